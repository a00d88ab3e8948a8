#include "http2/server.h"

#include "base/clock.h"
#include "base/log.h"
#include "http2/connection.h"
#include "http2/defaults.h"

enum { ACCEPTS_A_TURN = 64, RETRY_ACCEPT_NS = 100 * 1000 * 1000 };

struct pq_http2_server {
    struct pq_server_shared shared;
    int fd;
    ev_io io;
    ev_timer retry; /* when descriptors ran out */
    struct pq_address bound;
    void (*done)(void *context);
    void *done_context;
    ev_timer done_soon;
};

static struct pq_http2_server *of_shared(struct pq_server_shared *shared)
{
    return (struct pq_http2_server *)(void *)shared;
}

static void on_gone(struct pq_server_shared *shared)
{
    struct pq_http2_server *s = of_shared(shared);
    if (shared->draining && !shared->first && !ev_is_active(&s->done_soon))
        ev_timer_start(shared->loop, &s->done_soon);
}

static void on_done(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop, (void)events;
    struct pq_http2_server *s = w->data;
    s->done(s->done_context);
}

int pq_http2_server_adopt(struct pq_http2_server *s, int fd)
{
    struct pq_address none = {.sa.ss_family = AF_UNSPEC};
    return pq_connection_new(&s->shared, fd, &none);
}

/* 0: go on; negative: no more for now. */
static int accept_one(struct pq_http2_server *s)
{
    struct pq_server_shared *shared = &s->shared;
    struct pq_address peer;
    int fd = -1;
    int e = pq_tcp_accept(s->fd, &fd, &peer);
    if (e == PQ_E_RESET)
        return 0;
    TRY(e);
    if (shared->counts.open >= shared->how.limits.connections) {
        shared->counts.refused_connections++;
        close(fd);
        return 0;
    }
    if (shared->how.nagle)
        pq_tcp_nodelay(fd, false);
    return pq_connection_new(shared, fd, &peer);
}

static int accept_all(struct pq_http2_server *s)
{
    int e = 0;
    for (int i = 0; e == 0 && i < ACCEPTS_A_TURN; i++)
        e = accept_one(s);
    return e;
}

static void on_accept(struct ev_loop *loop, ev_io *w, int events)
{
    (void)events;
    struct pq_http2_server *s = w->data;
    int e = accept_all(s);
    if (e == 0 || e == PQ_E_WANT_READ)
        return;
    pq_log(PQ_LOG_ERROR, "accept failed", "server", pq_s(s->shared.how.name), "reason", pq_s(pq_error_name(e)), NULL);
    /* A listener that stays readable would spin. */
    ev_io_stop(loop, &s->io);
    ev_timer_start(loop, &s->retry);
}

static void on_retry(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct pq_http2_server *s = w->data;
    if (s->fd >= 0)
        ev_io_start(loop, &s->io);
}

static void init_watchers(struct pq_http2_server *s)
{
    ev_io_init(&s->io, on_accept, s->fd, EV_READ);
    ev_timer_init(&s->retry, on_retry, (double)RETRY_ACCEPT_NS / (double)PQ_NS_PER_S, 0.);
    ev_timer_init(&s->done_soon, on_done, 0., 0.);
    s->io.data = s->retry.data = s->done_soon.data = s;
}

int pq_http2_server_new(struct ev_loop *loop, const struct pq_http2_server_settings *how, struct pq_http2_server **out,
                        struct pq_why *why)
{
    DEFER(pq_http2_server_freep) struct pq_http2_server *s = calloc(1, sizeof *s);
    if (!s)
        return PQ_E_NOMEM;
    s->fd = -1;
    s->shared.loop = loop;
    s->shared.how = *how;
    s->shared.gone = on_gone;
    init_watchers(s);
    pq_http2_default_limits(&s->shared.how.limits, 4096);
    pq_http2_default_timeouts(&s->shared.how.timeouts);
    TRY(pq_connection_callbacks(&s->shared.callbacks));
    TRY(pq_tcp_listen(&how->address, 0, &s->fd, why));
    s->bound = pq_address_local(s->fd);
    init_watchers(s);
    ev_io_start(loop, &s->io);
    *out = TAKE(s);
    return 0;
}

static void stop_listening(struct pq_http2_server *s)
{
    ev_io_stop(s->shared.loop, &s->io);
    ev_timer_stop(s->shared.loop, &s->retry);
    pq_closep(&s->fd);
}

void pq_http2_server_drain(struct pq_http2_server *s, void (*done)(void *context), void *context)
{
    if (s->shared.draining)
        return;
    s->done = done;
    s->done_context = context;
    s->shared.draining = true;
    /* Connections that the kernel completed already would be reset with the listener: they are served. */
    if (s->fd >= 0)
        while (accept_all(s) == 0)
            ;
    stop_listening(s);
    for (struct pq_connection *c = s->shared.first; c; c = pq_connection_next(c))
        pq_connection_shut_down(c);
    on_gone(&s->shared);
}

void pq_http2_server_free(struct pq_http2_server *s)
{
    if (!s)
        return;
    while (s->shared.first)
        pq_connection_free(s->shared.first);
    ev_timer_stop(s->shared.loop, &s->done_soon);
    stop_listening(s);
    if (s->shared.callbacks)
        nghttp2_session_callbacks_del(s->shared.callbacks);
    free(s);
}

struct pq_address pq_http2_server_address(const struct pq_http2_server *s) { return s->bound; }
struct pq_http2_counts pq_http2_server_counts(const struct pq_http2_server *s) { return s->shared.counts; }
