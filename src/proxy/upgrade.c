#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "proxy/handover.h"
#include "proxy/notify.h"
#include "proxy/supervisor_parts.h"

#define VARIABLE "PQPLANE_HANDOVER" /* in the new one's environment: the descriptor's number */

/* How long the new one may take until it serves, in seconds, and until the next thing comes from the old one, in ms. */
#define READY_LIMIT 30.
#define NEXT_WITHIN 10000

extern char **environ;

/* --- the old one: what it hands over ----------------------------------------------------------------------------- */
static int send_socket(int channel, const char *word, const struct pq_listening *l)
{
    char text[PQ_HANDOVER_TEXT];
    int n = snprintf(text, sizeof text, "%s ", word);
    TRY(pq_handover_socket_write(l, text + n, sizeof text - (size_t)n));
    return pq_handover_send(channel, text, l->fd);
}

static int send_keys(const struct pq_supervisor *s)
{
    char text[8 + 2 * PQ_TLS_TICKET_KEYS_SIZE] = "keys ";
    uint8_t keys[PQ_TLS_TICKET_KEYS_SIZE];
    pq_tls_ticket_keys_save(&s->shared->tickets, keys);
    pq_handover_keys_write(keys, sizeof keys, text + strlen("keys "));
    int e = pq_handover_send(s->upgrade.channel, text, -1);
    explicit_bzero(keys, sizeof keys);
    explicit_bzero(text, sizeof text);
    return e;
}

/* PQ_E_CLOSED after the last. */
static int send_next(const struct pq_supervisor *s)
{
    const struct pq_listening_set *sockets = &s->listening, *admin = &s->admin.listening;
    size_t i = s->upgrade.sent;
    if (i == 0)
        return pq_handover_send(s->upgrade.channel, "sockets 1", -1);
    if (--i < sockets->count)
        return send_socket(s->upgrade.channel, "socket", &sockets->at[i]);
    if ((i -= sockets->count) < admin->count)
        return send_socket(s->upgrade.channel, "admin", &admin->at[i]);
    if ((i -= admin->count) == 0)
        return send_keys(s);
    return i == 1 ? pq_handover_send(s->upgrade.channel, "end", -1) : PQ_E_CLOSED;
}

/* --- the old one: how it ends ------------------------------------------------------------------------------------ */
static void close_channel(struct pq_supervisor *s)
{
    ev_io_stop(s->loop, &s->upgrade.io);
    pq_closep(&s->upgrade.channel);
}

static void failed(struct pq_supervisor *s, const char *why)
{
    struct pq_upgrade *u = &s->upgrade;
    ev_timer_stop(s->loop, &u->limit);
    close_channel(s);
    if (u->pid)
        kill(u->pid, SIGKILL);
    u->step = PQ_UPGRADE_NOTHING;
    pq_log(PQ_LOG_ERROR, "upgrade failed", "program", pq_s(program_invocation_name), "detail", pq_s(why), NULL);
    pq_loading_resume(s);
}

static void replaced(struct pq_supervisor *s)
{
    struct pq_upgrade *u = &s->upgrade;
    ev_timer_stop(s->loop, &u->limit);
    u->step = PQ_UPGRADE_DONE;
    pq_log(PQ_LOG_INFO, "replaced", "pid", pq_i(u->pid), "open", pq_i(pq_shared_open(s->shared)), NULL);
    pq_notify("MAINPID=%d", (int)u->pid);
    pq_supervisor_retire(s);
}

static void heard_word(struct pq_supervisor *s, const char *text)
{
    struct pq_upgrade *u = &s->upgrade;
    if (strcmp(text, "ready") == 0 && u->step == PQ_UPGRADE_BEGUN)
        replaced(s);
    else if (strncmp(text, "refused ", 8) == 0 && u->step == PQ_UPGRADE_BEGUN)
        failed(s, text + 8);
    else if (strcmp(text, "reload") == 0 && s->phase == PQ_RETIRING)
        pq_loading_begin(s, "the new supervisor", true);
    else if (strcmp(text, "log") == 0)
        pq_supervisor_reopen_log(s);
    else if (strcmp(text, "drain") == 0 && s->phase == PQ_RETIRING)
        pq_supervisor_drain(s, "the new supervisor");
    else if (strcmp(text, "stop") == 0 && s->phase >= PQ_RETIRING)
        pq_supervisor_end(s, PQ_E_INTERRUPTED, NULL);
}

static int receive_all(struct pq_supervisor *s)
{
    char text[PQ_HANDOVER_TEXT];
    int e = 0, fd;
    while (e == 0 && s->upgrade.channel >= 0) {
        e = pq_handover_receive(s->upgrade.channel, text, &fd);
        if (e == 0)
            heard_word(s, text);
        pq_closep(&fd);
    }
    return e;
}

static void on_channel(struct ev_loop *loop, ev_io *io, int revents)
{
    (void)revents;
    struct pq_supervisor *s = io->data;
    struct pq_upgrade *u = &s->upgrade;
    int e = 0;
    while (e == 0 && (io->events & EV_WRITE)) {
        e = send_next(s);
        u->sent += e == 0;
    }
    if (e == PQ_E_CLOSED && (io->events & EV_WRITE)) {
        ev_io_stop(loop, io);
        ev_io_set(io, u->channel, EV_READ);
        ev_io_start(loop, io);
    }
    e = receive_all(s);
    if (e < 0 && e != PQ_E_WANT_READ) /* it has ended, or is about to: SIGCHLD tells how */
        close_channel(s);
}

static void on_limit(struct ev_loop *loop, ev_timer *timer, int revents)
{
    (void)loop, (void)revents;
    failed(timer->data, "the new program did not serve within 30 s, so it was stopped");
}

void pq_upgrade_reap(struct pq_supervisor *s)
{
    struct pq_upgrade *u = &s->upgrade;
    char how[80];
    int status;
    if (!u->pid || waitpid(u->pid, &status, WNOHANG) != u->pid)
        return;
    u->pid = 0;
    if (u->channel >= 0)
        (void)receive_all(s); /* its last words */
    if (u->step != PQ_UPGRADE_BEGUN)
        return;
    pq_child_status_text(status, how, sizeof how);
    failed(s, how);
}

/* --- the old one: how it begins ---------------------------------------------------------------------------------- */
static int spawn(struct pq_supervisor *s, int channel)
{
    char *argv[] = {program_invocation_name,
                    (char *)(uintptr_t)"proxy",
                    (char *)(uintptr_t)"--config",
                    (char *)(uintptr_t)s->how->config,
                    s->how->log_file ? (char *)(uintptr_t)"--log-file" : NULL,
                    (char *)(uintptr_t)s->how->log_file,
                    NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    if (posix_spawn_file_actions_init(&files) != 0)
        return ENOMEM;
    posix_spawnattr_init(&how);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setsigdefault(&how, &all);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    /* Onto itself: it is no longer closed by the execution. */
    int err = posix_spawn_file_actions_adddup2(&files, channel, channel);
    if (err == 0)
        err = posix_spawnp(&s->upgrade.pid, argv[0], &files, &how, argv, environ);
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    return err;
}

static int start(struct pq_supervisor *s)
{
    struct pq_upgrade *u = &s->upgrade;
    int pair[2];
    char number[16];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return errno;
    u->channel = pair[0];
    snprintf(number, sizeof number, "%d", pair[1]);
    int err = fcntl(pair[0], F_SETFL, O_NONBLOCK) < 0 || setenv(VARIABLE, number, 1) < 0 ? errno : spawn(s, pair[1]);
    unsetenv(VARIABLE);
    close(pair[1]);
    return err;
}

void pq_upgrade_begin(struct pq_supervisor *s)
{
    struct pq_upgrade *u = &s->upgrade;
    if (s->phase != PQ_SERVING || u->step != PQ_UPGRADE_NOTHING)
        return;
    u->wanted = s->loading.step != PQ_LOADING_NOTHING; /* then when that is done */
    if (u->wanted)
        return;
    if (getpid() == 1) {
        failed(s, "this is the first process of its container, which ends with it: start another container instead");
        return;
    }
    u->sent = 0;
    u->step = PQ_UPGRADE_BEGUN;
    int err = start(s);
    if (err) {
        u->pid = 0;
        failed(s, strerror(err));
        return;
    }
    pq_log(PQ_LOG_INFO, "upgrading", "program", pq_s(program_invocation_name), "pid", pq_i(u->pid), NULL);
    ev_io_set(&u->io, u->channel, EV_READ | EV_WRITE);
    ev_io_start(s->loop, &u->io);
    ev_timer_set(&u->limit, READY_LIMIT, 0.);
    ev_timer_start(s->loop, &u->limit);
}

void pq_upgrade_stop(struct pq_supervisor *s)
{
    if (s->upgrade.step == PQ_UPGRADE_BEGUN)
        failed(s, "this supervisor is stopping");
}

/* --- the new one ------------------------------------------------------------------------------------------------- */
static int take_socket(struct pq_listening_set *to, const char *text, int fd)
{
    struct pq_listening l;
    if (fd < 0)
        return PQ_E_SYNTAX;
    TRY(pq_handover_socket_read(text, &l));
    l.number = ++to->last;
    l.fd = fd;
    l.shared = true;
    int e = pq_listening_add(to, &l);
    if (e < 0)
        free(l.name);
    return e;
}

static int take_keys(struct pq_supervisor *s, char *text)
{
    uint8_t keys[PQ_TLS_TICKET_KEYS_SIZE];
    int e = pq_handover_keys_read(text, keys, sizeof keys);
    if (e == 0)
        pq_tls_ticket_keys_load(&s->shared->tickets, keys);
    explicit_bzero(keys, sizeof keys);
    explicit_bzero(text, strlen(text));
    return e;
}

static int take_one(struct pq_supervisor *s, char *text, int *fd)
{
    static const struct {
        const char *word;
        size_t to; /* a set in the supervisor */
    } rows[] = {{"socket ", offsetof(struct pq_supervisor, listening)},
                {"admin ", offsetof(struct pq_supervisor, admin.listening)}};
    if (strncmp(text, "keys ", 5) == 0)
        return take_keys(s, text + 5);
    if (strncmp(text, "sockets ", 8) == 0)
        return strcmp(text + 8, "1") == 0 ? 0 : PQ_E_UNSUPPORTED;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        size_t len = strlen(rows[i].word);
        if (strncmp(text, rows[i].word, len) != 0)
            continue;
        TRY(take_socket((struct pq_listening_set *)(void *)((char *)s + rows[i].to), text + len, *fd));
        *fd = -1;
    }
    return 0;
}

static int take_all(struct pq_supervisor *s)
{
    char text[PQ_HANDOVER_TEXT];
    for (;;) {
        struct pollfd p = {.fd = s->previous.channel, .events = POLLIN};
        DEFER(pq_closep) int fd = -1;
        if (poll(&p, 1, NEXT_WITHIN) != 1)
            return PQ_E_TIMEOUT;
        TRY(pq_handover_receive(s->previous.channel, text, &fd));
        if (strcmp(text, "end") == 0)
            return 0;
        TRY(take_one(s, text, &fd));
    }
}

int pq_upgrade_receive(struct pq_supervisor *s, struct pq_why *why)
{
    const char *number = getenv(VARIABLE);
    int64_t fd;
    if (!number)
        return 0;
    if (pq_int_parse(number, 3, 65535, &fd, NULL) < 0 || fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0)
        return pq_why(why, PQ_E_USAGE, "%s is set, but is no descriptor to take over from: unset it", VARIABLE);
    unsetenv(VARIABLE);
    s->previous.channel = (int)fd;
    int e = take_all(s);
    return e < 0 ? pq_why(why, e, "what the old supervisor hands over can't be taken: %s", pq_error_text(e)) : 0;
}

static void say(struct pq_supervisor *s, const char *text)
{
    if (s->previous.channel >= 0 && pq_handover_send(s->previous.channel, text, -1) < 0)
        pq_log(PQ_LOG_WARN, "old supervisor not told", "message", pq_s(text), NULL);
}

static void on_previous(struct ev_loop *loop, ev_io *io, int revents)
{
    (void)revents;
    struct pq_supervisor *s = io->data;
    char text[PQ_HANDOVER_TEXT];
    int fd, e = pq_handover_receive(s->previous.channel, text, &fd);
    pq_closep(&fd);
    if (e == 0 || e == PQ_E_WANT_READ)
        return;
    ev_io_stop(loop, io);
    pq_closep(&s->previous.channel);
    pq_log(PQ_LOG_INFO, "old supervisor ended", NULL);
    pq_supervisor_look(s);
}

void pq_upgrade_serving(struct pq_supervisor *s)
{
    if (s->previous.channel < 0)
        return;
    pq_listening_own(&s->listening);
    pq_listening_own(&s->admin.listening);
    pq_listening_own(&s->removed);
    say(s, "ready");
    ev_io_set(&s->previous.io, s->previous.channel, EV_READ);
    ev_io_start(s->loop, &s->previous.io);
}

void pq_upgrade_refuse(struct pq_supervisor *s, int e, const struct pq_why *why)
{
    char text[PQ_HANDOVER_TEXT];
    snprintf(text, sizeof text, "refused %s", why && why->text[0] ? why->text : pq_error_text(e));
    say(s, text);
    pq_closep(&s->previous.channel);
}

void pq_upgrade_pass_on(struct pq_supervisor *s, const char *word)
{
    if (ev_is_active(&s->previous.io))
        say(s, word);
}

void pq_upgrade_give_up(struct pq_supervisor *s)
{
    if (s->previous.channel < 0)
        return;
    ev_io_stop(s->loop, &s->previous.io);
    pq_closep(&s->previous.channel);
}

void pq_upgrade_init(struct pq_supervisor *s)
{
    s->upgrade.channel = s->previous.channel = -1;
    ev_init(&s->upgrade.io, on_channel);
    ev_init(&s->upgrade.limit, on_limit);
    ev_init(&s->previous.io, on_previous);
    s->upgrade.io.data = s->upgrade.limit.data = s->previous.io.data = s;
}

void pq_upgrade_free(struct pq_supervisor *s)
{
    pq_closep(&s->upgrade.channel);
    pq_closep(&s->previous.channel);
}
