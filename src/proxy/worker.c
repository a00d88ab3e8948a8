#include "proxy/worker.h"

#include <ev.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "proxy/connection.h"
#include "proxy/control.h"

enum {
    ACCEPTS_A_TURN = 64,       /* of one listener, before other events get their turn */
    ACCEPTS_A_TURN_SHARED = 4, /* so that the other workers get theirs */
    BACKLOG_MAX = 4096,        /* accepted while stopping */
    DESCRIPTORS_SPARE = 32,    /* standard streams, the loop's, listeners beyond count, log, name lookups */
    DESCRIPTORS_EACH = 2,      /* a connection's */
};
/* How long accepting pauses where descriptors ran out and no connection ends meanwhile, in seconds. */
#define PAUSE           0.25
#define PAUSE_LOG_EVERY (10 * PQ_NS_PER_S)

struct worker;
struct listener {
    struct worker *worker;
    struct pq_route *route;
    int fd; /* -1: none */
    ev_io io;
};

struct worker {
    struct ev_loop *loop;
    struct pq_shared *shared;
    struct pq_control control;
    ev_io control_io;
    struct pq_crypto *crypto;
    struct pq_generation *generation;
    struct pq_connections connections;
    int64_t descriptors; /* how many connections there are descriptors for */
    ev_timer pause, drain;
    int64_t pause_logged; /* when, 0: never */
    bool paused, draining;
    size_t count;
    struct listener *listeners;
};

/* --- talking to the supervisor ----------------------------------------------------------------------------------- */
/* The supervisor may be gone, which then shows as the end of its stream. */
static void tell(struct worker *w, enum pq_control_type type, int status, const char *text)
{
    struct pq_control_message m = {.type = type, .status = status};
    m.generation = w->generation ? (int64_t)w->generation->number : 0;
    snprintf(m.text, sizeof m.text, "%s", text);
    if (pq_control_send(&w->control, &m) == 0 && pq_control_waits(&w->control)) {
        ev_io_stop(w->loop, &w->control_io);
        ev_io_set(&w->control_io, w->control.fd, EV_READ | EV_WRITE);
        ev_io_start(w->loop, &w->control_io);
    }
}

/* --- accepting --------------------------------------------------------------------------------------------------- */
static void watch_listeners(struct worker *w, bool on)
{
    for (size_t i = 0; i < w->count; i++) {
        if (on && w->listeners[i].fd >= 0)
            ev_io_start(w->loop, &w->listeners[i].io);
        else
            ev_io_stop(w->loop, &w->listeners[i].io);
    }
}

/* Clients meanwhile wait in the listeners' backlogs, and open connections go on. */
static void pause_accepting(struct worker *w)
{
    w->connections.starved = false;
    if (w->paused || w->draining)
        return;
    w->paused = true;
    pq_metrics_paused(w->connections.counters);
    watch_listeners(w, false);
    ev_timer_set(&w->pause, PAUSE, 0.);
    ev_timer_start(w->loop, &w->pause);
    int64_t now = pq_clock_ns();
    if (w->pause_logged && now < w->pause_logged + PAUSE_LOG_EVERY)
        return;
    w->pause_logged = now;
    pq_log(
        PQ_LOG_WARN, "accepting paused", "reason", pq_s(pq_proxy_end_label(PQ_PROXY_DESCRIPTORS)), "open",
        pq_i(w->connections.count), "detail",
        pq_s("no descriptor is left for another connection: raise the limit (ulimit -n), or lower limits.connections"),
        NULL);
}

static void resume_accepting(struct worker *w)
{
    if (!w->paused)
        return;
    w->paused = false;
    ev_timer_stop(w->loop, &w->pause);
    if (w->draining)
        return;
    watch_listeners(w, true);
    pq_log(PQ_LOG_DEBUG, "accepting resumed", "open", pq_i(w->connections.count), NULL);
}

static void on_pause_over(struct ev_loop *loop, ev_timer *timer, int revents)
{
    (void)loop, (void)revents;
    resume_accepting(timer->data);
}

static bool descriptors_left(const struct worker *w)
{
    /* Beyond limits.connections a connection is refused at once, so it needs no more than the one that it has. */
    return w->connections.count < w->descriptors ||
           pq_shared_open(w->shared) >= w->generation->config.limits.connections;
}

/* 0 when none waits any more. */
static int accept_some(struct listener *l, int most)
{
    struct worker *w = l->worker;
    for (int i = 0; i < most; i++) {
        int fd = -1;
        struct pq_address from;
        int e = descriptors_left(w) ? pq_tcp_accept(l->fd, &fd, &from) : PQ_E_LIMIT;
        if (e == PQ_E_WANT_READ)
            return 0;
        if (e == 0)
            pq_connection_accept(&w->connections, l->route, fd, &from);
        if (e == PQ_E_LIMIT)
            pause_accepting(w);
        if (w->paused)
            return PQ_E_LIMIT;
    }
    return PQ_E_WANT_READ;
}

static void on_accept(struct ev_loop *loop, ev_io *io, int revents)
{
    (void)loop, (void)revents;
    struct listener *l = io->data;
    (void)accept_some(l, l->worker->generation->config.workers > 1 ? ACCEPTS_A_TURN_SHARED : ACCEPTS_A_TURN);
}

/* --- stopping ---------------------------------------------------------------------------------------------------- */
static void close_listeners(struct worker *w)
{
    watch_listeners(w, false);
    for (size_t i = 0; i < w->count; i++)
        pq_closep(&w->listeners[i].fd);
}

static void on_drain_over(struct ev_loop *loop, ev_timer *timer, int revents)
{
    (void)loop, (void)revents;
    pq_connections_end(&((struct worker *)timer->data)->connections, PQ_PROXY_DRAIN);
}

static void on_closed(void *context)
{
    struct worker *w = context;
    if (w->draining && w->connections.count == 0)
        ev_break(w->loop, EVBREAK_ALL);
    else if (w->connections.starved)
        pause_accepting(w);
    else
        resume_accepting(w);
}

static void drain(struct worker *w)
{
    if (w->draining)
        return;
    /* Who is in a backlog already has a connection, as far as TCP tells it. */
    for (size_t i = 0; i < w->count; i++)
        if (!w->paused)
            (void)accept_some(&w->listeners[i], BACKLOG_MAX);
    w->draining = true;
    close_listeners(w);
    if (w->connections.count == 0) {
        ev_break(w->loop, EVBREAK_ALL);
        return;
    }
    ev_timer_set(&w->drain, (double)w->generation->config.timeouts.drain / 1e9, 0.);
    ev_timer_start(w->loop, &w->drain);
}

/* --- the supervisor's messages ----------------------------------------------------------------------------------- */
static void obey_drain(struct worker *w, struct pq_control_message *m)
{
    drain(w);
    tell(w, PQ_CONTROL_DONE, (int)m->type, "");
}

static void obey_end(struct worker *w, struct pq_control_message *m)
{
    (void)m;
    ev_break(w->loop, EVBREAK_ALL);
}

static void (*const obey[PQ_CONTROL_TYPE_COUNT])(struct worker *w, struct pq_control_message *m) = {
    [PQ_CONTROL_DRAIN] = obey_drain,
    [PQ_CONTROL_END] = obey_end,
};

static void supervisor_gone(struct worker *w)
{
    ev_io_stop(w->loop, &w->control_io);
    if (!w->draining)
        pq_log(PQ_LOG_WARN, "supervisor gone", "open", pq_i(w->connections.count), "detail",
               pq_s("no new connections are taken, and this worker ends with its last one"), NULL);
    drain(w);
}

static void on_control(struct ev_loop *loop, ev_io *io, int revents)
{
    (void)revents;
    struct worker *w = io->data;
    int e = pq_control_flush(&w->control);
    if (e == 0 && !pq_control_waits(&w->control) && (io->events & EV_WRITE)) {
        ev_io_stop(loop, io);
        ev_io_set(io, w->control.fd, EV_READ);
        ev_io_start(loop, io);
    }
    struct pq_control_message m;
    for (e = 0; e == 0;) {
        e = pq_control_receive(&w->control, &m);
        if (e == 0 && obey[m.type])
            obey[m.type](w, &m);
        if (e == 0)
            pq_control_drop(&m);
    }
    if (e != PQ_E_WANT_READ)
        supervisor_gone(w);
}

/* --- making it --------------------------------------------------------------------------------------------------- */
int64_t pq_worker_connections(size_t listeners)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) < 0)
        r.rlim_cur = 1024;
    rlim_t taken = DESCRIPTORS_SPARE + listeners;
    rlim_t most = r.rlim_cur > taken ? (r.rlim_cur - taken) / DESCRIPTORS_EACH : 0;
    return most > PQ_PROXY_CONNECTIONS_MAX ? PQ_PROXY_CONNECTIONS_MAX : most ? (int64_t)most : 1;
}

static int make_listeners(struct worker *w, const struct pq_listening *listening, struct pq_why *why)
{
    w->listeners = calloc(w->generation->count, sizeof w->listeners[0]);
    if (!w->listeners)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    w->count = w->generation->count;
    for (size_t i = 0; i < w->count; i++) {
        struct listener *l = &w->listeners[i];
        *l = (struct listener){.worker = w, .route = &w->generation->routes[i], .fd = listening[i].fd};
        ev_io_init(&l->io, on_accept, l->fd, EV_READ);
        l->io.data = l;
    }
    return 0;
}

static int prepare(struct worker *w, const struct pq_worker_how *how, struct pq_why *why)
{
    TRY(pq_crypto_new(&w->crypto, why));
    /* What a certificate's dates are to be warned of, the check before has said. */
    pq_log_mute(true);
    int e = pq_generation_new(w->crypto, how->config, how->generation, &w->generation, why);
    pq_log_mute(false);
    TRY(e);
    TRY(pq_connections_init(&w->connections, w->loop, &w->generation->config, how->shared, how->slot, why));
    w->connections.closed = on_closed;
    w->connections.context = w;
    TRY(make_listeners(w, how->listening, why));
    w->descriptors = pq_worker_connections(w->count);
    return 0;
}

static int start(struct worker *w, const struct pq_worker_how *how, struct pq_why *why)
{
    w->loop = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
    if (!w->loop)
        return pq_why(why, PQ_E_UNSUPPORTED, "no event loop to be had: epoll is missing or descriptors ran out");
    ev_init(&w->pause, on_pause_over);
    ev_init(&w->drain, on_drain_over);
    w->pause.data = w->drain.data = w;
    ev_io_init(&w->control_io, on_control, w->control.fd, EV_READ);
    w->control_io.data = w;
    TRY(prepare(w, how, why));
    ev_io_start(w->loop, &w->control_io);
    watch_listeners(w, true);
    return 0;
}

static void end(struct worker *w)
{
    w->connections.closed = NULL;
    if (w->connections.handshaker) {
        pq_connections_end(&w->connections, PQ_PROXY_DRAIN);
        pq_connections_free(&w->connections);
    }
    if (w->listeners)
        close_listeners(w);
    free(w->listeners);
    pq_generation_free(w->generation);
    pq_crypto_free(w->crypto);
    pq_control_free(&w->control);
    if (w->loop)
        ev_loop_destroy(w->loop);
}

int pq_worker_run(const struct pq_worker_how *how)
{
    struct pq_why why = {""};
    struct worker w = {.shared = how->shared};
    char name[16];
    snprintf(name, sizeof name, "pqplane:%zu", how->slot);
    prctl(PR_SET_NAME, name);
    pq_control_init(&w.control, how->control);
    pq_log_count_dropped(&how->shared->worker[how->slot].log_dropped);
    int e = start(&w, how, &why);
    if (e < 0) {
        tell(&w, PQ_CONTROL_REFUSED, e, why.text[0] ? why.text : pq_error_text(e));
    } else {
        tell(&w, PQ_CONTROL_READY, 0, "");
        ev_run(w.loop, 0);
    }
    end(&w);
    return e < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
