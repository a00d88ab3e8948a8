#include "proxy/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "proxy/generation.h"
#include "proxy/notify.h"
#include "proxy/supervisor_parts.h"

/* In seconds. */
#define PATIENCE   2. /* that a child may take which was told to end at once, or whose time to drain is over */
#define LOOK_EVERY 1. /* at the files */
#define KEYS_EVERY 60.

/* --- ready ------------------------------------------------------------------------------------------------------- */
static int write_ready(const struct pq_supervisor *s, FILE *out)
{
    for (size_t i = 0; i < s->listening.count; i++) {
        struct pq_address bound = pq_address_local(s->listening.at[i].fd);
        char text[PQ_ADDRESS_TEXT];
        pq_address_text(&bound, text);
        if (fprintf(out, "ready %s %s\n", s->listening.at[i].name, text) < 0)
            return PQ_E_IO;
    }
    for (size_t i = 0; i < s->admin.listening.count; i++) {
        struct pq_address bound = pq_address_local(s->admin.listening.at[i].fd);
        char text[PQ_ADDRESS_TEXT];
        pq_address_text(&bound, text);
        if (fprintf(out, "admin %s\n", text) < 0)
            return PQ_E_IO;
    }
    return fflush(out) == 0 ? 0 : PQ_E_IO;
}

static int tell_ready(struct pq_supervisor *s, struct pq_why *why)
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
static void warn_of_unix(const struct pq_supervisor *s)
{
    for (size_t i = 0; i < pq_proxy_listener_count(&s->config); i++) {
        const struct pq_proxy_listener *how = pq_proxy_listener_at(&s->config, i);
        const struct pq_address *plain = pq_proxy_plaintext_unix(how);
        char text[PQ_ADDRESS_TEXT];
        if (!plain)
            continue;
        pq_address_text(plain, text);
        pq_log(PQ_LOG_WARN, "unix socket", "route", pq_s(how->name), "address", pq_s(text), "detail",
               pq_s("a broken stream looks like its end there, and an end that a crash made is passed on as one: use a "
                    "loopback address unless the protocol itself tells"),
               NULL);
    }
}

static void watch_files(struct pq_supervisor *s)
{
    ev_timer_stop(s->loop, &s->look);
    if (!s->config.watch)
        return;
    ev_timer_set(&s->look, LOOK_EVERY, LOOK_EVERY);
    ev_timer_start(s->loop, &s->look);
}

void pq_supervisor_tell_manager(const struct pq_supervisor *s)
{
    if (s->phase == PQ_SERVING)
        pq_notify("READY=1\nSTATUS=%zu listeners, %lld workers, generation %llu", s->listening.count,
                  (long long)s->config.workers, (unsigned long long)s->generation);
}

static void start_serving(struct pq_supervisor *s)
{
    s->phase = PQ_SERVING;
    s->shared->state = PQ_SHARED_SERVING;
    pq_upgrade_serving(s);
    pq_listening_close(&s->removed);
}

void pq_supervisor_applied(struct pq_supervisor *s)
{
    struct pq_why why = {""};
    bool first = s->phase == PQ_STARTING;
    if (first)
        start_serving(s);
    else
        pq_upgrade_pass_on(s, "reload");
    s->shared->reloads += !first;
    s->shared->reload_refused = 0;
    if (s->phase == PQ_SERVING)
        watch_files(s);
    pq_log(PQ_LOG_INFO, first ? "started" : "reloaded", "listeners", pq_i((int64_t)s->listening.count), "workers",
           pq_i(s->config.workers), "generation", pq_i((int64_t)s->generation), first ? NULL : "cause",
           pq_s(s->loading.cause), NULL);
    if (!first)
        return;
    warn_of_unix(s);
    int e = tell_ready(s, &why);
    if (e < 0)
        pq_supervisor_end(s, e, &why);
}

/* --- stopping ---------------------------------------------------------------------------------------------------- */
static size_t living(const struct pq_supervisor *s)
{
    return pq_crew_living(s) + (s->loading.check.pid != 0) + (s->previous.channel >= 0);
}

static void on_kill(struct ev_loop *loop, ev_timer *timer, int revents)
{
    (void)loop, (void)revents;
    pq_crew_kill(timer->data);
    pq_loading_stop(timer->data);
    pq_upgrade_give_up(timer->data);
    pq_supervisor_look(timer->data);
}

static void stop_within(struct pq_supervisor *s, enum pq_supervisor_phase phase, enum pq_control_type how,
                        double seconds)
{
    struct pq_control_message m = {.type = how};
    s->phase = phase;
    pq_upgrade_stop(s);
    s->shared->state = PQ_SHARED_DRAINING;
    pq_notify("STOPPING=1");
    pq_upgrade_pass_on(s, phase == PQ_DRAINING ? "drain" : "stop");
    pq_crew_dismiss(s);
    pq_crew_tell(s, &m);
    pq_loading_stop(s);
    ev_timer_stop(s->loop, &s->look);
    ev_timer_stop(s->loop, &s->kill);
    ev_timer_set(&s->kill, seconds, 0.);
    ev_timer_start(s->loop, &s->kill);
    pq_supervisor_look(s);
}

void pq_supervisor_end(struct pq_supervisor *s, int error, const struct pq_why *why)
{
    if (why && s->why)
        *s->why = *why;
    s->error = error;
    if (s->phase == PQ_STARTING)
        pq_upgrade_refuse(s, error, why);
    stop_within(s, PQ_ENDING, PQ_CONTROL_END, PATIENCE);
}

void pq_supervisor_drain(struct pq_supervisor *s, const char *cause)
{
    s->drained_by = cause;
    pq_listening_close(&s->listening);
    stop_within(s, PQ_DRAINING, PQ_CONTROL_DRAIN, (double)s->config.timeouts.drain / 1e9 + PATIENCE);
}

/* The sockets are the other's; its admin process answers. */
void pq_supervisor_retire(struct pq_supervisor *s)
{
    s->phase = PQ_RETIRING;
    ev_timer_stop(s->loop, &s->look);
    ev_timer_stop(s->loop, &s->keys);
    pq_listening_forget(&s->listening);
    pq_listening_forget(&s->admin.listening);
    pq_admin_link_dismiss(s);
    pq_crew_retire(s);
    pq_supervisor_look(s);
}

/* Once no worker accepts any more. */
static void tell_of_drain(struct pq_supervisor *s)
{
    int64_t open = 0;
    if (s->phase != PQ_DRAINING || s->told)
        return;
    for (size_t i = 0; i < PQ_SHARED_SLOTS; i++) {
        const struct pq_supervised *w = &s->worker[i];
        if (w->child.pid && !w->drained)
            return;
        open += w->drained ? w->open : 0;
    }
    s->told = true;
    pq_log(PQ_LOG_INFO, "draining", "signal", pq_s(s->drained_by), "open", pq_i(open), "at_most_s",
           pq_f((double)s->config.timeouts.drain / 1e9), NULL);
}

void pq_supervisor_look(struct pq_supervisor *s)
{
    tell_of_drain(s);
    if (s->phase >= PQ_RETIRING && living(s) == 0)
        ev_break(s->loop, EVBREAK_ALL);
}

/* --- events ------------------------------------------------------------------------------------------------------ */
static void on_stop(struct ev_loop *loop, ev_signal *w, int revents)
{
    (void)loop, (void)revents;
    struct pq_supervisor *s = w->data;
    if (s->phase < PQ_DRAINING)
        pq_supervisor_drain(s, strsignal(w->signum));
    else if (s->phase == PQ_DRAINING)
        pq_supervisor_end(s, PQ_E_INTERRUPTED, NULL);
}

static void on_death(struct ev_loop *loop, ev_signal *w, int revents)
{
    (void)loop, (void)revents;
    struct pq_supervisor *s = w->data;
    pq_loading_reap(s);
    pq_crew_reap(s);
    pq_admin_link_reap(s);
    pq_upgrade_reap(s);
    pq_supervisor_look(s);
}

/* In place: all threads and processes that write to it have its number. */
void pq_supervisor_reopen_log(struct pq_supervisor *s)
{
    const char *path = s->how->log_file;
    struct pq_control_message m = {.type = PQ_CONTROL_LOG};
    if (!path)
        return;
    DEFER(pq_closep) int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (fd < 0 || dup3(fd, s->log_fd, O_CLOEXEC) < 0) {
        pq_log(PQ_LOG_ERROR, "log not reopened", "file", pq_s(path), "detail", pq_s(strerror(errno)), NULL);
        return;
    }
    m.fd[m.fd_count++] = fd;
    pq_crew_tell(s, &m);
    pq_admin_link_tell(s, &m);
}

static void on_reload(struct ev_loop *loop, ev_signal *w, int revents)
{
    (void)loop, (void)revents;
    struct pq_supervisor *s = w->data;
    pq_supervisor_reopen_log(s);
    pq_upgrade_pass_on(s, "log");
    if (s->phase < PQ_DRAINING)
        pq_loading_begin(s, "SIGHUP", true);
}

static void on_upgrade(struct ev_loop *loop, ev_signal *w, int revents)
{
    (void)loop, (void)revents;
    pq_upgrade_begin(w->data);
}

static void on_look(struct ev_loop *loop, ev_timer *timer, int revents)
{
    (void)loop, (void)revents;
    struct pq_supervisor *s = timer->data;
    if (pq_watch_look(s->watch))
        pq_loading_begin(s, "a file changed", false);
}

static void on_keys(struct ev_loop *loop, ev_timer *timer, int revents)
{
    (void)loop, (void)revents;
    struct pq_supervisor *s = timer->data;
    if (pq_tls_ticket_keys_rotate(&s->shared->tickets, pq_clock_ns()) < 0)
        pq_log(PQ_LOG_ERROR, "ticket keys not renewed", "detail", pq_s("the system gives no random bytes"), NULL);
}

/* --- making it --------------------------------------------------------------------------------------------------- */
static void watch_signals(struct pq_supervisor *s)
{
    static const struct {
        int number;
        void (*callback)(struct ev_loop *loop, ev_signal *w, int revents);
    } rows[PQ_COUNT(s->signals)] = {
        {SIGTERM, on_stop}, {SIGINT, on_stop}, {SIGHUP, on_reload}, {SIGUSR2, on_upgrade}, {SIGCHLD, on_death}};
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        ev_signal_init(&s->signals[i], rows[i].callback, rows[i].number);
        s->signals[i].data = s;
        ev_signal_start(s->loop, &s->signals[i]);
    }
}

static void stop_watching(struct pq_supervisor *s)
{
    for (size_t i = 0; i < PQ_COUNT(s->signals); i++)
        if (ev_is_active(&s->signals[i]))
            ev_signal_stop(s->loop, &s->signals[i]);
    pq_child_close(&s->loading.check);
    pq_child_close(&s->admin.child);
    for (size_t i = 0; i < PQ_SHARED_SLOTS; i++)
        pq_child_close(&s->worker[i].child);
    ev_loop_destroy(s->loop);
    s->loop = NULL;
}

void pq_supervisor_leave(void *supervisor)
{
    struct pq_supervisor *s = supervisor;
    pq_resolver_forget(TAKE(s->resolver));
    stop_watching(s);
    pq_upgrade_free(s);
    pq_admin_link_free(s, false);
    pq_listening_forget(&s->listening);
    pq_listening_forget(&s->removed);
    pq_closep(&s->packed);
    pq_watch_free(TAKE(s->watch));
    pq_proxy_config_free(&s->config);
    if (s->ready_fd >= 0)
        pq_file_close(s->ready_fd);
}

static void free_supervisor(struct pq_supervisor *s)
{
    pq_listening_close(&s->listening);
    pq_listening_close(&s->removed);
    pq_admin_link_free(s, true);
    pq_upgrade_free(s);
    pq_resolver_free(s->resolver);
    if (s->loop)
        stop_watching(s);
    pq_closep(&s->packed);
    pq_bundle_free(&s->loading.bundle);
    pq_watch_free(s->watch);
    pq_proxy_config_free(&s->config);
    pq_log_to(STDERR_FILENO);
    pq_log_level_in(NULL);
    pq_log_count_dropped(NULL);
    pq_closep(&s->log_fd);
    if (s->shared)
        pq_tls_ticket_keys_wipe(&s->shared->tickets);
    pq_shared_free(s->shared);
    free(s);
}
PQ_DEFINE_FREEP(struct pq_supervisor, free_supervisor)

static void prepare_timers(struct pq_supervisor *s)
{
    ev_init(&s->kill, on_kill);
    ev_init(&s->look, on_look);
    ev_timer_init(&s->keys, on_keys, 0., KEYS_EVERY);
    s->kill.data = s->look.data = s->keys.data = s;
    ev_timer_start(s->loop, &s->keys);
}

static void lead(void *supervisor, size_t listener) { pq_crew_lead(supervisor, listener); }

static int new_supervisor(const struct pq_supervisor_how *how, struct pq_supervisor **out, struct pq_why *why)
{
    DEFER(free_supervisorp) struct pq_supervisor *s = calloc(1, sizeof *s);
    if (!s)
        return PQ_E_NOMEM;
    s->how = how;
    s->why = why;
    s->log_fd = s->packed = s->admin.view = s->admin.rows = s->loading.view = -1;
    s->ready_fd = how->ready_fd;
    s->loop = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
    if (!s->loop)
        return pq_why(why, PQ_E_UNSUPPORTED, "no event loop to be had: epoll is missing or descriptors ran out");
    pq_crew_init(s);
    pq_loading_init(s);
    pq_admin_link_init(s);
    pq_upgrade_init(s);
    prepare_timers(s);
    TRY(pq_watch_new(&s->watch));
    struct pq_resolver_how resolver = {.lookup = &pq_lookup_system, .changed = lead, .context = s};
    TRY(pq_resolver_new(s->loop, &resolver, &s->resolver));
    TRY(pq_shared_new(&s->shared));
    pq_log_level_in(&s->shared->log_level);
    pq_log_count_dropped(&s->shared->log_dropped);
    s->shared->started = pq_clock_wall_ns() / PQ_NS_PER_S;
    *out = TAKE(s);
    return 0;
}

static int open_log(struct pq_supervisor *s, struct pq_why *why)
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

static void log_stopped(const struct pq_supervisor *s)
{
    DEFER(pq_freep) struct pq_proxy_counters *sum = calloc(1, sizeof *sum);
    if (!sum)
        return;
    pq_shared_sum(s->shared, sum);
    pq_proxy_counters_log(sum, "stopped", pq_shared_log_dropped(s->shared));
}

int pq_supervisor_check(const char *path, struct pq_why *why)
{
    DEFER(pq_bundle_free) struct pq_bundle b = {.files = NULL};
    DEFER(pq_crypto_freep) struct pq_crypto *crypto = NULL;
    DEFER(pq_generation_freep) struct pq_generation *g = NULL;
    TRY(pq_bundle_open(path, &b, why));
    pq_log_set((enum pq_log_level)b.config.log.level, (enum pq_log_format)b.config.log.format);
    TRY(pq_bundle_fill(&b, why));
    TRY(pq_crypto_new(&crypto, why));
    return pq_generation_new(crypto, &b.config, &b.files, NULL, 0, &g, why);
}

int pq_supervisor_run(const struct pq_supervisor_how *how, struct pq_why *why)
{
    DEFER(free_supervisorp) struct pq_supervisor *s = NULL;
    TRY(pq_contain_memory(why));
    int e = new_supervisor(how, &s, why);
    if (e < 0 || !s)
        return e;
    TRY(open_log(s, why));
    TRY(pq_upgrade_receive(s, why));
    watch_signals(s);
    pq_loading_begin(s, "start", true);
    if (s->error == 0)
        ev_run(s->loop, 0);
    pq_admin_link_end(s);
    if (s->told || s->phase == PQ_RETIRING || s->error == PQ_E_INTERRUPTED)
        log_stopped(s);
    return s->error;
}
