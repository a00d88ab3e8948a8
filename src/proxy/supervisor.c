#include "proxy/supervisor.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "proxy/control.h"
#include "proxy/generation.h"
#include "proxy/restart.h"
#include "proxy/worker.h"

/* How long a child that was told to end at once, or whose time to drain is over, may take, in seconds. */
#define PATIENCE 2.

enum phase {
    CHECKING, /* a child reads all that the configuration names */
    STARTING, /* the first workers are */
    SERVING,
    DRAINING,
    ENDING /* a second signal came, or it can't start */
};

enum kind { CHECK, WORKER };
struct child {
    struct supervisor *supervisor;
    enum kind kind;
    size_t slot; /* a worker's */
    pid_t pid;   /* 0: none runs */
    bool ready;
    bool drained; /* accepts no more */
    int64_t open; /* connections when it stopped accepting */
    int refused;  /* why it can't serve; 0: it did not say so */
    struct pq_why why;
    struct pq_control control;
    ev_io io;
    struct pq_restart restart;
    ev_timer again;
};

struct supervisor {
    const struct pq_supervisor_how *how;
    struct ev_loop *loop;
    struct pq_shared *shared;
    struct pq_proxy_config config;
    enum phase phase;
    struct pq_listening *listening; /* one a listener of config */
    size_t count;
    int log_fd, ready_fd;
    int signal; /* that drains it */
    bool told;  /* that it drains */
    int error;  /* what it ends with */
    struct pq_why *why;
    ev_signal signals[3];
    ev_timer kill; /* what is left of the children */
    struct child check, worker[PQ_SHARED_SLOTS];
};

/* --- children ---------------------------------------------------------------------------------------------------- */
static void stop_child_watchers(struct child *c)
{
    ev_io_stop(c->supervisor->loop, &c->io);
    ev_timer_stop(c->supervisor->loop, &c->again);
}

static void watch_child(struct child *c)
{
    struct ev_loop *loop = c->supervisor->loop;
    ev_io_stop(loop, &c->io);
    ev_io_set(&c->io, c->control.fd, EV_READ | (pq_control_waits(&c->control) ? EV_WRITE : 0));
    ev_io_start(loop, &c->io);
}

/* A child that is gone is found by SIGCHLD. */
static void tell(struct child *c, enum pq_control_type type)
{
    struct pq_control_message m = {.type = type};
    if (!c->pid || c->control.fd < 0)
        return;
    int e = pq_control_send(&c->control, &m);
    if (e < 0 && e != PQ_E_CLOSED)
        pq_log(PQ_LOG_ERROR, "message lost", "to", pq_i(c->pid), "message", pq_s(pq_control_type_name(type)), "detail",
               pq_s(pq_error_text(e)), NULL);
    watch_child(c);
}

static void tell_workers(struct supervisor *s, enum pq_control_type type)
{
    for (size_t i = 0; i < PQ_SHARED_SLOTS; i++)
        tell(&s->worker[i], type);
}

static size_t living(const struct supervisor *s)
{
    size_t n = s->check.pid != 0;
    for (size_t i = 0; i < PQ_SHARED_SLOTS; i++)
        n += s->worker[i].pid != 0;
    return n;
}

/* In the child: what is the supervisor's alone goes, so that nothing keeps another child's control socket open. */
static void leave(struct supervisor *s)
{
    static const int mine[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE};
    for (size_t i = 0; i < PQ_COUNT(s->signals); i++)
        ev_signal_stop(s->loop, &s->signals[i]);
    /* The supervisor gets them, and says what is to be done: a terminal and a service manager send them to all. */
    for (size_t i = 0; i < PQ_COUNT(mine); i++)
        signal(mine[i], SIG_IGN);
    pq_control_free(&s->check.control);
    for (size_t i = 0; i < PQ_SHARED_SLOTS; i++)
        pq_control_free(&s->worker[i].control);
    if (s->ready_fd >= 0)
        pq_file_close(s->ready_fd);
    ev_loop_destroy(s->loop);
}

static void check_in_child(struct supervisor *s, int control)
{
    struct pq_control c;
    struct pq_control_message m = {.type = PQ_CONTROL_READY};
    struct pq_why why = {""};
    DEFER(pq_crypto_freep) struct pq_crypto *crypto = NULL;
    DEFER(pq_generation_freep) struct pq_generation *g = NULL;
    pq_control_init(&c, control);
    m.status = pq_crypto_new(&crypto, &why);
    if (m.status == 0)
        m.status = pq_generation_new(crypto, &s->config, 0, &g, &why);
    if (m.status < 0) {
        m.type = PQ_CONTROL_REFUSED;
        snprintf(m.text, sizeof m.text, "%s", why.text);
    }
    m.status = pq_control_send(&c, &m);
    pq_control_free(&c);
}

static int work_in_child(struct supervisor *s, size_t slot, int control)
{
    struct pq_worker_how how = {.shared = s->shared,
                                .slot = slot,
                                .control = control,
                                .config = &s->config,
                                .generation = 1,
                                .listening = s->listening};
    return pq_worker_run(&how);
}

static void free_listening(struct supervisor *s, bool close_them)
{
    for (size_t i = 0; i < s->count && close_them; i++)
        pq_listening_close(&s->listening[i]);
    free(s->listening);
    s->listening = NULL;
    s->count = 0;
}

/* Does not return. exit() and not _exit(): what sanitizers and coverage have to tell is told there. */
static void be_child(struct supervisor *s, enum kind kind, size_t slot, int control, const sigset_t *before)
{
    int status = EXIT_SUCCESS;
    leave(s);
    sigprocmask(SIG_SETMASK, before, NULL);
    if (kind == CHECK)
        check_in_child(s, control);
    else
        status = work_in_child(s, slot, control);
    free_listening(s, false);
    pq_proxy_config_free(&s->config);
    free(s);
    exit(status);
}

static int start_child(struct child *c, struct pq_why *why)
{
    struct supervisor *s = c->supervisor;
    sigset_t all, before;
    int other;
    int e = pq_control_pair(&c->control, &other);
    if (e < 0)
        return pq_why(why, e, "a process can't be started: %s", strerror(errno));
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0)
        be_child(s, c->kind, c->slot, other, &before);
    int err = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(other);
    if (pid < 0) {
        pq_control_free(&c->control);
        return pq_why(why, pq_error_from_errno(err), "a process can't be started: %s", strerror(err));
    }
    c->pid = pid;
    c->ready = c->drained = false;
    c->refused = 0;
    c->restart.started = pq_clock_ns();
    watch_child(c);
    return 0;
}

/* --- workers ----------------------------------------------------------------------------------------------------- */
static int start_worker(struct child *c, struct pq_why *why)
{
    TRY(start_child(c, why));
    pq_shared_use(c->supervisor->shared, c->slot);
    c->supervisor->shared->worker[c->slot].pid = c->pid;
    pq_log(PQ_LOG_DEBUG, "worker started", "worker", pq_i((int64_t)c->slot), "pid", pq_i(c->pid), NULL);
    return 0;
}

/* In how many seconds. */
static double start_again_later(struct child *c)
{
    double wait = (double)pq_restart_died(&c->restart, pq_clock_ns()) / 1e9;
    ev_timer_set(&c->again, wait, 0.);
    ev_timer_start(c->supervisor->loop, &c->again);
    return wait;
}

static void on_again(struct ev_loop *loop, ev_timer *timer, int revents)
{
    (void)loop, (void)revents;
    struct child *c = timer->data;
    struct pq_why why = {""};
    c->supervisor->shared->worker[c->slot].restarts++;
    if (start_worker(c, &why) == 0)
        return;
    pq_log(PQ_LOG_ERROR, "worker not started", "worker", pq_i((int64_t)c->slot), "detail", pq_s(why.text), NULL);
    (void)start_again_later(c);
}

static void end_with(struct supervisor *s, int error, const struct pq_why *why);

static void how_it_died(int status, char *out, size_t size)
{
    if (WIFSIGNALED(status))
        snprintf(out, size, "killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(out, size, "ended with status %d", WEXITSTATUS(status));
}

static void worker_died(struct child *c, int status)
{
    struct supervisor *s = c->supervisor;
    char how[80];
    how_it_died(status, how, sizeof how);
    if (s->phase == STARTING && c->refused) {
        end_with(s, c->refused, &c->why);
        return;
    }
    if (s->phase >= DRAINING) {
        if (status != 0)
            pq_log(PQ_LOG_ERROR, "worker died", "worker", pq_i((int64_t)c->slot), "detail", pq_s(how), NULL);
        return;
    }
    double wait = start_again_later(c);
    pq_log(PQ_LOG_ERROR, "worker died", "worker", pq_i((int64_t)c->slot), "detail",
           pq_s(c->refused ? c->why.text : how), "restart_in_s", pq_f(wait), NULL);
}

/* --- starting ---------------------------------------------------------------------------------------------------- */
/* As many descriptors as the system lets each process have; a warning where that is too few for limits.connections. */
static void raise_descriptors(const struct supervisor *s)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) < 0)
        return;
    if (r.rlim_cur < r.rlim_max) {
        struct rlimit most = {r.rlim_max, r.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &most) == 0)
            r.rlim_cur = r.rlim_max;
    }
    int64_t enough = pq_worker_connections(s->count) * s->config.workers;
    if (enough < s->config.limits.connections)
        pq_log(PQ_LOG_WARN, "few descriptors", "limit", pq_i((int64_t)r.rlim_cur), "enough_for", pq_i(enough),
               "limits_connections", pq_i(s->config.limits.connections), "detail",
               pq_s("further clients wait until a connection ends: raise the limit (ulimit -n, LimitNOFILE=)"), NULL);
}

static int listen_on_all(struct supervisor *s, struct pq_why *why)
{
    size_t count = pq_proxy_listener_count(&s->config);
    s->listening = calloc(count, sizeof s->listening[0]);
    if (!s->listening)
        return PQ_E_NOMEM;
    for (; s->count < count; s->count++)
        TRY(pq_listening_open(pq_proxy_listener_at(&s->config, s->count), &s->listening[s->count], why));
    return 0;
}

static int start_workers(struct supervisor *s, struct pq_why *why)
{
    s->phase = STARTING;
    TRY(listen_on_all(s, why));
    raise_descriptors(s);
    for (size_t i = 0; i < (size_t)s->config.workers; i++)
        TRY(start_worker(&s->worker[i], why));
    return 0;
}

static int write_ready(const struct supervisor *s, FILE *out)
{
    for (size_t i = 0; i < s->count; i++) {
        struct pq_address bound = pq_address_local(s->listening[i].fd);
        char text[PQ_ADDRESS_TEXT];
        pq_address_text(&bound, text);
        if (fprintf(out, "ready %s %s\n", pq_proxy_listener_at(&s->config, i)->name, text) < 0)
            return PQ_E_IO;
    }
    return fflush(out) == 0 ? 0 : PQ_E_IO;
}

static int tell_ready(struct supervisor *s, struct pq_why *why)
{
    int fd = s->ready_fd;
    if (fd < 0)
        return 0;
    DEFER(pq_closep) int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    DEFER(pq_fclosep) FILE *out = copy < 0 ? NULL : fdopen(copy, "w");
    if (out)
        (void)TAKE_FD(copy);
    int e = out ? write_ready(s, out) : PQ_E_IO;
    pq_file_close(fd);
    s->ready_fd = -1;
    return e < 0 ? pq_why(why, e, "descriptor %d can't be written to", fd) : 0;
}

/* unix(7) has no reset; relay.h says what follows. */
static void warn_of_unix(const struct supervisor *s)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct pq_proxy_listener *how = pq_proxy_listener_at(&s->config, i);
        const struct pq_address *plain = &pq_proxy_plaintext_side(how)->at;
        char text[PQ_ADDRESS_TEXT];
        if (plain->sa.ss_family != AF_UNIX)
            continue;
        pq_address_text(plain, text);
        pq_log(PQ_LOG_WARN, "unix socket", "route", pq_s(how->name), "address", pq_s(text), "detail",
               pq_s("a broken stream looks like its end there, and an end that a crash made is passed on as one: use a "
                    "loopback address unless the protocol itself tells"),
               NULL);
    }
}

static void look_whether_all_are_ready(struct supervisor *s)
{
    struct pq_why why = {""};
    if (s->phase != STARTING)
        return;
    for (size_t i = 0; i < (size_t)s->config.workers; i++)
        if (!s->worker[i].ready)
            return;
    s->phase = SERVING;
    s->shared->generation = 1;
    warn_of_unix(s);
    pq_log(PQ_LOG_INFO, "started", "listeners", pq_i((int64_t)s->count), "workers", pq_i(s->config.workers), NULL);
    int e = tell_ready(s, &why);
    if (e < 0)
        end_with(s, e, &why);
}

static void check_ended(struct child *c, int status)
{
    struct supervisor *s = c->supervisor;
    struct pq_why why = {""};
    int e = c->refused;
    if (s->phase != CHECKING)
        return;
    if (e < 0) {
        why = c->why;
    } else if (!c->ready) {
        char how[80];
        how_it_died(status, how, sizeof how);
        e = pq_why(&why, PQ_E_IO, "the process that checks the configuration %s", how);
    } else {
        e = start_workers(s, &why);
    }
    if (e < 0)
        end_with(s, e, &why);
}

/* --- stopping ---------------------------------------------------------------------------------------------------- */
static void stop_if_all_ended(struct supervisor *s)
{
    if (s->phase >= DRAINING && living(s) == 0)
        ev_break(s->loop, EVBREAK_ALL);
}

static void on_kill(struct ev_loop *loop, ev_timer *timer, int revents)
{
    (void)loop, (void)revents;
    struct supervisor *s = timer->data;
    for (size_t i = 0; i < PQ_SHARED_SLOTS; i++)
        if (s->worker[i].pid)
            kill(s->worker[i].pid, SIGKILL);
    if (s->check.pid)
        kill(s->check.pid, SIGKILL);
}

static void kill_after(struct supervisor *s, double seconds)
{
    ev_timer_stop(s->loop, &s->kill);
    ev_timer_set(&s->kill, seconds, 0.);
    ev_timer_start(s->loop, &s->kill);
}

static void stop_restarts(struct supervisor *s)
{
    for (size_t i = 0; i < PQ_SHARED_SLOTS; i++)
        ev_timer_stop(s->loop, &s->worker[i].again);
}

static void end_with(struct supervisor *s, int error, const struct pq_why *why)
{
    if (why && s->why)
        *s->why = *why;
    s->error = error;
    s->phase = ENDING;
    stop_restarts(s);
    tell_workers(s, PQ_CONTROL_END);
    if (s->check.pid)
        kill(s->check.pid, SIGKILL);
    kill_after(s, PATIENCE);
    stop_if_all_ended(s);
}

/* Once no worker accepts any more. */
static void look_whether_all_drain(struct supervisor *s)
{
    int64_t open = 0;
    if (s->phase != DRAINING || s->told)
        return;
    for (size_t i = 0; i < PQ_SHARED_SLOTS; i++) {
        const struct child *c = &s->worker[i];
        if (c->pid && !c->drained)
            return;
        open += c->drained ? c->open : 0;
    }
    s->told = true;
    pq_log(PQ_LOG_INFO, "draining", "signal", pq_s(strsignal(s->signal)), "open", pq_i(open), "at_most_s",
           pq_f((double)s->config.timeouts.drain / 1e9), NULL);
}

static void drain(struct supervisor *s, int number)
{
    s->phase = DRAINING;
    s->signal = number;
    stop_restarts(s);
    for (size_t i = 0; i < s->count; i++)
        pq_listening_close(&s->listening[i]);
    tell_workers(s, PQ_CONTROL_DRAIN);
    if (s->check.pid)
        kill(s->check.pid, SIGKILL);
    kill_after(s, (double)s->config.timeouts.drain / 1e9 + PATIENCE);
    look_whether_all_drain(s);
    stop_if_all_ended(s);
}

static void on_stop(struct ev_loop *loop, ev_signal *w, int revents)
{
    (void)loop, (void)revents;
    struct supervisor *s = w->data;
    if (s->phase < DRAINING)
        drain(s, w->signum);
    else if (s->phase == DRAINING)
        end_with(s, PQ_E_INTERRUPTED, NULL);
}

/* --- what children say ------------------------------------------------------------------------------------------- */
static void heard_ready(struct child *c, const struct pq_control_message *m)
{
    (void)m;
    c->ready = true;
    if (c->kind == WORKER)
        look_whether_all_are_ready(c->supervisor);
}

static void heard_refused(struct child *c, const struct pq_control_message *m)
{
    c->refused = m->status < 0 ? m->status : PQ_E_IO;
    pq_why(&c->why, 0, "%s", m->text);
}

static void heard_done(struct child *c, const struct pq_control_message *m)
{
    if (m->status != PQ_CONTROL_DRAIN)
        return;
    c->drained = true;
    c->open = c->supervisor->shared->worker[c->slot].open;
    look_whether_all_drain(c->supervisor);
}

static void (*const hear[PQ_CONTROL_TYPE_COUNT])(struct child *c, const struct pq_control_message *m) = {
    [PQ_CONTROL_READY] = heard_ready,
    [PQ_CONTROL_REFUSED] = heard_refused,
    [PQ_CONTROL_DONE] = heard_done,
};

/* False once there will be no more. */
static bool listen_to(struct child *c)
{
    struct pq_control_message m;
    int e = 0;
    while (e == 0) {
        e = pq_control_receive(&c->control, &m);
        if (e == 0 && hear[m.type])
            hear[m.type](c, &m);
        if (e == 0)
            pq_control_drop(&m);
    }
    return e == PQ_E_WANT_READ;
}

static void on_child(struct ev_loop *loop, ev_io *io, int revents)
{
    (void)revents;
    struct child *c = io->data;
    bool more = pq_control_flush(&c->control) == 0;
    more = listen_to(c) && more;
    if (!more)
        ev_io_stop(loop, io); /* SIGCHLD does the rest */
    else if (c->control.fd >= 0)
        watch_child(c);
}

static void reap(struct child *c)
{
    int status;
    if (!c->pid || waitpid(c->pid, &status, WNOHANG) != c->pid)
        return;
    (void)listen_to(c);
    stop_child_watchers(c);
    pq_control_free(&c->control);
    c->pid = 0;
    if (c->kind == CHECK) {
        check_ended(c, status);
    } else {
        pq_shared_clear(&c->supervisor->shared->worker[c->slot]);
        worker_died(c, status);
    }
}

static void on_death(struct ev_loop *loop, ev_signal *w, int revents)
{
    (void)loop, (void)revents;
    struct supervisor *s = w->data;
    reap(&s->check);
    for (size_t i = 0; i < PQ_SHARED_SLOTS; i++)
        reap(&s->worker[i]);
    look_whether_all_drain(s);
    stop_if_all_ended(s);
}

/* --- all of it --------------------------------------------------------------------------------------------------- */
static void prepare_child(struct supervisor *s, struct child *c, enum kind kind, size_t slot)
{
    *c = (struct child){.supervisor = s, .kind = kind, .slot = slot, .control.fd = -1};
    ev_init(&c->io, on_child);
    ev_init(&c->again, on_again);
    c->io.data = c->again.data = c;
}

static void watch_signals(struct supervisor *s)
{
    static const struct {
        int number;
        void (*callback)(struct ev_loop *loop, ev_signal *w, int revents);
    } rows[PQ_COUNT(s->signals)] = {{SIGTERM, on_stop}, {SIGINT, on_stop}, {SIGCHLD, on_death}};
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        ev_signal_init(&s->signals[i], rows[i].callback, rows[i].number);
        s->signals[i].data = s;
        ev_signal_start(s->loop, &s->signals[i]);
    }
}

static void free_supervisor(struct supervisor *s)
{
    free_listening(s, true);
    for (size_t i = 0; s->loop && i < PQ_COUNT(s->signals); i++)
        ev_signal_stop(s->loop, &s->signals[i]);
    pq_control_free(&s->check.control);
    for (size_t i = 0; i < PQ_SHARED_SLOTS; i++)
        pq_control_free(&s->worker[i].control);
    if (s->loop)
        ev_loop_destroy(s->loop);
    pq_proxy_config_free(&s->config);
    pq_log_to(STDERR_FILENO);
    pq_log_level_in(NULL);
    pq_log_count_dropped(NULL);
    pq_closep(&s->log_fd);
    pq_shared_free(s->shared);
    free(s);
}
PQ_DEFINE_FREEP(struct supervisor, free_supervisor)

static int new_supervisor(const struct pq_supervisor_how *how, struct supervisor **out, struct pq_why *why)
{
    DEFER(free_supervisorp) struct supervisor *s = calloc(1, sizeof *s);
    if (!s)
        return PQ_E_NOMEM;
    s->how = how;
    s->why = why;
    s->log_fd = -1;
    s->ready_fd = how->ready_fd;
    prepare_child(s, &s->check, CHECK, 0);
    for (size_t i = 0; i < PQ_SHARED_SLOTS; i++)
        prepare_child(s, &s->worker[i], WORKER, i);
    s->loop = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
    if (!s->loop)
        return pq_why(why, PQ_E_UNSUPPORTED, "no event loop to be had: epoll is missing or descriptors ran out");
    ev_init(&s->kill, on_kill);
    s->kill.data = s;
    TRY(pq_shared_new(&s->shared));
    pq_log_level_in(&s->shared->log_level);
    pq_log_count_dropped(&s->shared->log_dropped);
    *out = TAKE(s);
    return 0;
}

static int open_log(struct supervisor *s, struct pq_why *why)
{
    const char *path = s->how->log_file;
    if (!path)
        return 0;
    s->log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (s->log_fd < 0)
        return pq_why(why, pq_error_from_errno(errno), "%s can't be opened: %s", path, strerror(errno));
    pq_log_to(s->log_fd);
    return 0;
}

static void log_stopped(const struct supervisor *s)
{
    DEFER(pq_freep) struct pq_proxy_counters *sum = calloc(1, sizeof *sum);
    if (!sum)
        return;
    pq_shared_sum(s->shared, sum);
    pq_proxy_counters_log(sum, "stopped", pq_shared_log_dropped(s->shared));
}

static int load(const char *path, struct pq_proxy_config *out, struct pq_why *why)
{
    TRY(pq_proxy_config_load(path, out, why));
    TRY(pq_proxy_config_resolve(out, why));
    pq_log_set((enum pq_log_level)out->log.level, (enum pq_log_format)out->log.format);
    return 0;
}

static void free_config(struct pq_proxy_config *c) { pq_proxy_config_free(c); }

int pq_supervisor_check(const char *path, struct pq_why *why)
{
    DEFER(free_config) struct pq_proxy_config config = {0};
    DEFER(pq_crypto_freep) struct pq_crypto *crypto = NULL;
    DEFER(pq_generation_freep) struct pq_generation *g = NULL;
    TRY(load(path, &config, why));
    TRY(pq_crypto_new(&crypto, why));
    return pq_generation_new(crypto, &config, 0, &g, why);
}

int pq_supervisor_run(const struct pq_supervisor_how *how, struct pq_why *why)
{
    DEFER(free_supervisorp) struct supervisor *s = NULL;
    TRY(new_supervisor(how, &s, why));
    TRY(load(how->config, &s->config, why));
    TRY(open_log(s, why));
    watch_signals(s);
    TRY(start_child(&s->check, why));
    ev_run(s->loop, 0);
    if (s->told || s->error == PQ_E_INTERRUPTED)
        log_stopped(s);
    return s->error;
}
