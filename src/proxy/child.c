#include "proxy/child.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

/* --- the channel ------------------------------------------------------------------------------------------------- */
static void watch(struct pq_child *c)
{
    int events = EV_READ | (pq_control_waits(&c->control) ? EV_WRITE : 0);
    if (ev_is_active(&c->io) && (c->io.events & (EV_READ | EV_WRITE)) == events)
        return;
    ev_io_stop(c->loop, &c->io);
    ev_io_set(&c->io, c->control.fd, events);
    ev_io_start(c->loop, &c->io);
}

/* False once there will be no more. */
static bool listen_to(struct pq_child *c)
{
    struct pq_control_message m;
    int e = 0;
    while (e == 0) {
        e = pq_control_receive(&c->control, &m);
        if (e < 0)
            continue;
        c->heard(c, &m);
        pq_control_drop(&m);
    }
    return e == PQ_E_WANT_READ;
}

static void on_io(struct ev_loop *loop, ev_io *io, int revents)
{
    (void)revents;
    struct pq_child *c = io->data;
    bool sent = pq_control_flush(&c->control) == 0;
    if (listen_to(c) && sent)
        watch(c);
    else
        ev_io_stop(loop, io); /* it is ending: SIGCHLD does the rest */
}

void pq_child_init(struct pq_child *c, struct ev_loop *loop,
                   void (*heard)(struct pq_child *c, struct pq_control_message *m))
{
    *c = (struct pq_child){.loop = loop, .heard = heard, .control.fd = -1};
    ev_init(&c->io, on_io);
    c->io.data = c;
}

void pq_child_tell(struct pq_child *c, const struct pq_control_message *m)
{
    if (!c->pid || c->control.fd < 0)
        return;
    int e = pq_control_send(&c->control, m);
    if (e == 0)
        watch(c);
    else if (e != PQ_E_CLOSED)
        pq_log(PQ_LOG_ERROR, "message lost", "to", pq_i(c->pid), "message", pq_s(pq_control_type_name(m->type)),
               "detail", pq_s(pq_error_text(e)), NULL);
}

void pq_child_close(struct pq_child *c)
{
    if (ev_is_active(&c->io))
        ev_io_stop(c->loop, &c->io);
    pq_control_free(&c->control);
}

/* --- the process ------------------------------------------------------------------------------------------------- */
/* Does not return. exit() and not _exit(): what sanitizers and coverage have to tell is told there. */
static void be_child(const struct pq_child_how *how, int control, const sigset_t *before)
{
    static const int mine[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE};
    how->leave(how->context);
    /* The supervisor gets them, and says what is to be done: a terminal and a service manager send them to all. */
    for (size_t i = 0; i < sizeof mine / sizeof mine[0]; i++)
        signal(mine[i], SIG_IGN);
    sigprocmask(SIG_SETMASK, before, NULL);
    exit(how->run(how->context, control));
}

int pq_child_start(struct pq_child *c, const struct pq_child_how *how, struct pq_why *why)
{
    sigset_t all, before;
    int other;
    int e = pq_control_pair(&c->control, &other);
    if (e < 0)
        return pq_why(why, e, "a process can't be started: %s", pq_error_text(e));
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0)
        be_child(how, other, &before);
    int err = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(other);
    if (pid < 0) {
        pq_control_free(&c->control);
        return pq_why(why, pq_error_from_errno(err), "a process can't be started: %s", strerror(err));
    }
    c->pid = pid;
    watch(c);
    return 0;
}

bool pq_child_reap(struct pq_child *c, int *status)
{
    if (!c->pid || waitpid(c->pid, status, WNOHANG) != c->pid)
        return false;
    (void)listen_to(c);
    pq_child_close(c);
    c->pid = 0;
    return true;
}

void pq_child_status_text(int status, char *out, size_t size)
{
    if (WIFSIGNALED(status))
        snprintf(out, size, "killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(out, size, "ended with status %d", WEXITSTATUS(status));
}
