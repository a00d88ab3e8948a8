#include <stdlib.h>

#include "base/clock.h"
#include "proxy/worker_parts.h"

enum {
    A_TURN = 64,        /* accepted of one listener, before other events get their turn */
    A_TURN_SHARED = 4,  /* so that the other workers get theirs */
    BACKLOG_MAX = 4096, /* accepted while stopping */
};
/* How long accepting pauses where descriptors ran out and no connection ends meanwhile, in seconds. */
#define PAUSE           0.25
#define PAUSE_LOG_EVERY (10 * PQ_NS_PER_S)

static void close_one(struct pq_acceptor *a)
{
    ev_io_stop(a->worker->loop, &a->io);
    TAILQ_REMOVE(&a->worker->acceptors, a, entry);
    pq_closep(&a->fd);
    pq_generation_take_route(&a->route, NULL);
    free(a);
}

/* --- pausing ----------------------------------------------------------------------------------------------------- */
static void watch_all(struct pq_worker *w, bool on)
{
    struct pq_acceptor *a;
    TAILQ_FOREACH(a, &w->acceptors, entry)
    {
        if (on && a->route)
            ev_io_start(w->loop, &a->io);
        else
            ev_io_stop(w->loop, &a->io);
    }
}

/* Clients meanwhile wait in the listeners' backlogs, and open connections go on. */
static void pause_accepting(struct pq_worker *w)
{
    w->connections.starved = false;
    if (w->paused || w->stopping)
        return;
    w->paused = true;
    pq_metrics_paused(w->connections.counters);
    watch_all(w, false);
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

static void leave(struct pq_worker *w);

static void resume_accepting(struct pq_worker *w)
{
    if (!w->paused)
        return;
    w->paused = false;
    ev_timer_stop(w->loop, &w->pause);
    if (w->stopping)
        return;
    watch_all(w, true);
    leave(w);
    pq_log(PQ_LOG_DEBUG, "accepting resumed", "open", pq_i(w->connections.count), NULL);
}

static void on_pause_over(struct ev_loop *loop, ev_timer *timer, int revents)
{
    (void)loop, (void)revents;
    resume_accepting(timer->data);
}

void pq_acceptors_relieve(struct pq_worker *w)
{
    if (w->connections.starved)
        pause_accepting(w);
    else
        resume_accepting(w);
}

/* --- accepting --------------------------------------------------------------------------------------------------- */
static bool descriptors_left(const struct pq_worker *w)
{
    /* Beyond limits.connections a connection is refused at once, so it needs no more than the one that it has. */
    return w->connections.count < w->descriptors ||
           pq_shared_open(w->how->shared) >= w->generation->config.limits.connections;
}

/* 0 when none waits any more. */
static int accept_some(struct pq_acceptor *a, int most)
{
    struct pq_worker *w = a->worker;
    for (int i = 0; i < most; i++) {
        int fd = -1;
        struct pq_address from;
        int e = descriptors_left(w) ? pq_tcp_accept(a->fd, &fd, &from) : PQ_E_LIMIT;
        if (e == PQ_E_WANT_READ)
            return 0;
        if (e == 0)
            pq_connection_accept(&w->connections, a->route, fd, &from);
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
    struct pq_acceptor *a = io->data;
    int e = accept_some(a, a->worker->generation->config.workers > 1 ? A_TURN_SHARED : A_TURN);
    if (e == 0 && a->leaving)
        close_one(a);
}

/* Who is in a backlog already has a connection, as far as TCP tells it. */
static void leave(struct pq_worker *w)
{
    struct pq_acceptor *next;
    for (struct pq_acceptor *a = TAILQ_FIRST(&w->acceptors); a && !w->paused; a = next) {
        next = TAILQ_NEXT(a, entry);
        if (a->leaving && (!a->route || accept_some(a, BACKLOG_MAX) == 0))
            close_one(a);
    }
}

/* --- which ------------------------------------------------------------------------------------------------------- */
void pq_acceptors_init(struct pq_worker *w)
{
    TAILQ_INIT(&w->acceptors);
    ev_init(&w->pause, on_pause_over);
    w->pause.data = w;
}

int pq_acceptors_add(struct pq_worker *w, uint64_t number, int fd)
{
    struct pq_acceptor *a = calloc(1, sizeof *a);
    if (!a) {
        close(fd);
        return PQ_E_NOMEM;
    }
    *a = (struct pq_acceptor){.worker = w, .number = number, .fd = fd};
    ev_io_init(&a->io, on_accept, fd, EV_READ);
    a->io.data = a;
    TAILQ_INSERT_TAIL(&w->acceptors, a, entry);
    return 0;
}

static struct pq_acceptor *find(struct pq_worker *w, uint64_t number)
{
    struct pq_acceptor *a;
    TAILQ_FOREACH(a, &w->acceptors, entry)
    if (a->number == number)
        return a;
    return NULL;
}

int pq_acceptors_assign(struct pq_worker *w, struct pq_generation *g, const uint64_t *sockets)
{
    struct pq_acceptor *a;
    for (size_t i = 0; i < g->count && !w->stopping; i++)
        if (!find(w, sockets[i]))
            return PQ_E_NOT_FOUND;
    TAILQ_FOREACH(a, &w->acceptors, entry) a->leaving = true;
    for (size_t i = 0; i < g->count && !w->stopping; i++) {
        a = find(w, sockets[i]);
        if (!a)
            continue;
        a->leaving = false;
        pq_generation_take_route(&a->route, &g->routes[i]);
    }
    if (!w->paused)
        watch_all(w, true);
    leave(w);
    return 0;
}

void pq_acceptors_close(struct pq_worker *w, bool backlog_first)
{
    struct pq_acceptor *a;
    TAILQ_FOREACH(a, &w->acceptors, entry)
    if (backlog_first && !w->paused && a->route)
        (void)accept_some(a, BACKLOG_MAX);
    w->stopping = true;
    ev_timer_stop(w->loop, &w->pause);
    while ((a = TAILQ_FIRST(&w->acceptors)))
        close_one(a);
}
