#include "proxy/proxy.h"

#include <ev.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/clock.h"
#include "proxy/connection.h"

enum {
    ACCEPTS_A_TURN = 64,    /* of one listener, before other events get their turn */
    DESCRIPTORS_SPARE = 32, /* standard streams, the loop's, listeners beyond count, log, name lookups */
    DESCRIPTORS_EACH = 2,   /* a connection's */
};
/* How long accepting pauses where descriptors ran out and no connection ends meanwhile, in seconds. */
#define PAUSE           0.25
#define PAUSE_LOG_EVERY 10.

struct listener {
    struct pq_proxy *proxy;
    struct pq_route route;
    int fd;       /* -1: none */
    dev_t device; /* of a unix socket's path, with its inode: while they hold, the path is ours */
    ino_t inode;  /* 0: not known */
    ev_io io;
};

struct pq_proxy {
    struct ev_loop *loop;
    const struct pq_proxy_config *config;
    struct pq_connections connections;
    struct pq_proxy_counters counters;
    int64_t descriptors; /* how many connections there are descriptors for */
    ev_timer pause, drain;
    ev_tstamp pause_logged;
    ev_signal signals[2];
    bool paused, draining, interrupted;
    size_t count;
    struct listener listeners[];
};

/* --- accepting --------------------------------------------------------------------------------------------------- */
static void watch_listeners(struct pq_proxy *p, bool on)
{
    for (size_t i = 0; i < p->count; i++) {
        if (on && p->listeners[i].fd >= 0)
            ev_io_start(p->loop, &p->listeners[i].io);
        else
            ev_io_stop(p->loop, &p->listeners[i].io);
    }
}

/* Clients meanwhile wait in the listeners' backlogs, and open connections go on. */
static void pause_accepting(struct pq_proxy *p)
{
    p->connections.starved = false;
    if (p->paused || p->draining)
        return;
    p->paused = true;
    pq_metrics_paused(&p->counters);
    watch_listeners(p, false);
    ev_timer_set(&p->pause, PAUSE, 0.);
    ev_timer_start(p->loop, &p->pause);
    if (ev_now(p->loop) < p->pause_logged + PAUSE_LOG_EVERY)
        return;
    p->pause_logged = ev_now(p->loop);
    pq_log(
        PQ_LOG_WARN, "accepting paused", "reason", pq_s(pq_proxy_end_label(PQ_PROXY_DESCRIPTORS)), "open",
        pq_i(p->connections.count), "detail",
        pq_s("no descriptor is left for another connection: raise the limit (ulimit -n), or lower limits.connections"),
        NULL);
}

static void resume_accepting(struct pq_proxy *p)
{
    if (!p->paused)
        return;
    p->paused = false;
    ev_timer_stop(p->loop, &p->pause);
    if (p->draining)
        return;
    watch_listeners(p, true);
    pq_log(PQ_LOG_DEBUG, "accepting resumed", "open", pq_i(p->connections.count), NULL);
}

static void on_pause_over(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)loop, (void)revents;
    resume_accepting(w->data);
}

static bool descriptors_left(const struct pq_proxy *p)
{
    /* Beyond limits.connections a connection is refused at once, so it needs no more than the one that it has. */
    return p->connections.count < p->descriptors || p->connections.count >= p->config->limits.connections;
}

/* 0 when none waits any more. */
static int accept_some(struct listener *l, int most)
{
    struct pq_proxy *p = l->proxy;
    for (int i = 0; i < most; i++) {
        int fd = -1;
        struct pq_address from;
        int e = descriptors_left(p) ? pq_tcp_accept(l->fd, &fd, &from) : PQ_E_LIMIT;
        if (e == PQ_E_WANT_READ)
            return 0;
        if (e == 0)
            pq_connection_accept(&p->connections, &l->route, fd, &from);
        if (e == PQ_E_LIMIT)
            pause_accepting(p);
        if (p->paused)
            return PQ_E_LIMIT;
    }
    return PQ_E_WANT_READ;
}

static void on_accept(struct ev_loop *loop, ev_io *w, int revents)
{
    (void)loop, (void)revents;
    (void)accept_some(w->data, ACCEPTS_A_TURN);
}

/* --- stopping ---------------------------------------------------------------------------------------------------- */
static const char *unix_path(const struct pq_address *a)
{
    return a->sa.ss_family == AF_UNIX ? ((const struct sockaddr_un *)(const void *)&a->sa)->sun_path : NULL;
}

/* Somebody else may have removed our path and bound one of their own there. */
static void remove_path(const struct listener *l)
{
    const char *path = unix_path(&l->route.how->listen.at);
    struct stat now;
    if (path && l->inode && lstat(path, &now) == 0 && now.st_dev == l->device && now.st_ino == l->inode)
        unlink(path);
}

static void close_listeners(struct pq_proxy *p)
{
    watch_listeners(p, false);
    for (size_t i = 0; i < p->count; i++) {
        struct listener *l = &p->listeners[i];
        if (l->fd < 0)
            continue;
        remove_path(l); /* while the socket is open, nobody else can have its inode's number */
        pq_closep(&l->fd);
    }
}

static void on_drain_over(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)loop, (void)revents;
    struct pq_proxy *p = w->data;
    pq_connections_end(&p->connections, PQ_PROXY_DRAIN);
}

static void on_closed(void *context)
{
    struct pq_proxy *p = context;
    if (p->draining && p->connections.count == 0)
        ev_break(p->loop, EVBREAK_ALL);
    else if (p->connections.starved)
        pause_accepting(p);
    else
        resume_accepting(p);
}

static void start_draining(struct pq_proxy *p, int signal)
{
    /* Who is in a backlog already has a connection, as far as TCP tells it. */
    for (size_t i = 0; i < p->count; i++)
        if (!p->paused)
            (void)accept_some(&p->listeners[i], 4096);
    p->draining = true;
    close_listeners(p);
    pq_log(PQ_LOG_INFO, "draining", "signal", pq_s(strsignal(signal)), "open", pq_i(p->connections.count), "at_most_s",
           pq_f((double)p->config->timeouts.drain / 1e9), NULL);
    if (p->connections.count == 0) {
        ev_break(p->loop, EVBREAK_ALL);
        return;
    }
    ev_timer_set(&p->drain, (double)p->config->timeouts.drain / 1e9, 0.);
    ev_timer_start(p->loop, &p->drain);
}

static void on_signal(struct ev_loop *loop, ev_signal *w, int revents)
{
    (void)revents;
    struct pq_proxy *p = w->data;
    if (!p->draining) {
        start_draining(p, w->signum);
        return;
    }
    p->interrupted = true;
    ev_break(loop, EVBREAK_ALL);
}

/* --- making it --------------------------------------------------------------------------------------------------- */
/* Names that no certificate could show would refuse every peer; a connection that is never used finds them now. */
static int try_names(const struct pq_route *route, struct pq_why *why)
{
    DEFER(pq_tls_freep) struct pq_tls *unused = NULL;
    int e = pq_tls_new(route->tls, -1, &route->how->peers, &unused);
    return e == PQ_E_INVALID
               ? pq_why(why, e,
                        "peers: one of them is no name that a certificate shows: write DNS names, IP addresses or URIs")
               : e;
}

static int load_listener(struct pq_proxy *p, struct pq_crypto *crypto, struct pq_proxy_listener *how,
                         struct pq_why *why)
{
    struct listener *l = &p->listeners[p->count++];
    *l = (struct listener){.proxy = p, .route.how = how, .fd = -1};
    struct pq_tls_settings settings = pq_proxy_listener_tls(p->config, how);
    enum pq_tls_role role = how->direction == PQ_PROXY_INGRESS ? PQ_TLS_SERVER : PQ_TLS_CLIENT;
    int e = pq_tls_context_new(crypto, role, &settings, &l->route.tls, why);
    if (e == 0)
        e = try_names(&l->route, why);
    return e < 0 ? pq_why_in(why, e, "%s: %s \"%s\"", how->listen.where, pq_proxy_direction_names[how->direction],
                             how->name)
                 : 0;
}

/* As many descriptors as the system lets us have; a warning where that is too few for limits.connections. */
static void take_descriptors(struct pq_proxy *p)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) < 0)
        r.rlim_cur = r.rlim_max = 1024;
    if (r.rlim_cur < r.rlim_max) {
        struct rlimit most = {r.rlim_max, r.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &most) == 0)
            r.rlim_cur = r.rlim_max;
    }
    rlim_t taken = DESCRIPTORS_SPARE + p->count;
    rlim_t most = r.rlim_cur > taken ? (r.rlim_cur - taken) / DESCRIPTORS_EACH : 0;
    p->descriptors = most > PQ_PROXY_CONNECTIONS_MAX ? PQ_PROXY_CONNECTIONS_MAX : most ? (int64_t)most : 1;
    if (p->descriptors < p->config->limits.connections)
        pq_log(PQ_LOG_WARN, "few descriptors", "limit", pq_i((int64_t)r.rlim_cur), "enough_for", pq_i(p->descriptors),
               "limits_connections", pq_i(p->config->limits.connections), "detail",
               pq_s("further clients wait until a connection ends: raise the limit (ulimit -n, LimitNOFILE=)"), NULL);
}

static void prepare_watchers(struct pq_proxy *p)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    ev_init(&p->pause, on_pause_over);
    ev_init(&p->drain, on_drain_over);
    p->pause.data = p->drain.data = p;
    for (size_t i = 0; i < PQ_COUNT(numbers); i++) {
        ev_signal_init(&p->signals[i], on_signal, numbers[i]);
        p->signals[i].data = p;
    }
}

int pq_proxy_new(struct pq_crypto *crypto, const struct pq_proxy_config *config, struct pq_proxy **out,
                 struct pq_why *why)
{
    size_t count = pq_proxy_listener_count(config);
    DEFER(pq_proxy_freep) struct pq_proxy *p = calloc(1, sizeof *p + count * sizeof p->listeners[0]);
    if (!p)
        return PQ_E_NOMEM;
    p->config = config;
    p->loop = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
    if (!p->loop)
        return pq_why(why, PQ_E_UNSUPPORTED, "no event loop to be had: epoll is missing or descriptors ran out");
    prepare_watchers(p);
    TRY(pq_connections_init(&p->connections, p->loop, config, &p->counters, why));
    p->connections.closed = on_closed;
    p->connections.context = p;
    for (size_t i = 0; i < count; i++)
        TRY(load_listener(p, crypto, pq_proxy_listener_at(config, i), why));
    *out = TAKE(p);
    return 0;
}

void pq_proxy_free(struct pq_proxy *p)
{
    if (!p)
        return;
    if (p->loop) {
        p->connections.closed = NULL;
        pq_connections_end(&p->connections, PQ_PROXY_DRAIN);
        pq_connections_free(&p->connections);
        close_listeners(p);
        for (size_t i = 0; i < PQ_COUNT(p->signals); i++)
            ev_signal_stop(p->loop, &p->signals[i]);
        ev_loop_destroy(p->loop);
    }
    for (size_t i = 0; i < p->count; i++)
        pq_tls_context_free(p->listeners[i].route.tls);
    free(p);
}

static int listen_on(struct listener *l, struct pq_why *why)
{
    const struct pq_proxy_listener *how = l->route.how;
    const char *path = unix_path(&how->listen.at);
    struct stat bound;
    int e = pq_tcp_listen(&how->listen.at, 0, &l->fd, why);
    if (e < 0)
        return pq_why_in(why, e, "%s: \"%s\"", how->listen.where, how->name);
    if (path && lstat(path, &bound) == 0) {
        l->device = bound.st_dev;
        l->inode = bound.st_ino;
    }
    ev_io_init(&l->io, on_accept, l->fd, EV_READ);
    l->io.data = l;
    return 0;
}

int pq_proxy_listen(struct pq_proxy *p, struct pq_why *why)
{
    /* From here on somebody may know of us and stop us: a signal then waits for pq_proxy_run(). */
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < PQ_COUNT(p->signals); i++)
        ev_signal_start(p->loop, &p->signals[i]);
    for (size_t i = 0; i < p->count; i++)
        TRY(listen_on(&p->listeners[i], why));
    take_descriptors(p);
    return 0;
}

int pq_proxy_ready(const struct pq_proxy *p, FILE *out)
{
    for (size_t i = 0; i < p->count; i++) {
        struct pq_address bound = pq_address_local(p->listeners[i].fd);
        char text[PQ_ADDRESS_TEXT];
        pq_address_text(&bound, text);
        if (fprintf(out, "ready %s %s\n", p->listeners[i].route.how->name, text) < 0)
            return PQ_E_IO;
    }
    return fflush(out) == 0 ? 0 : PQ_E_IO;
}

/* unix(7) has no reset; relay.h says what follows. */
static void warn_of_unix(const struct pq_proxy *p)
{
    for (size_t i = 0; i < p->count; i++) {
        const struct pq_proxy_listener *how = p->listeners[i].route.how;
        const struct pq_address *plain = &pq_proxy_plaintext_side(how)->at;
        char text[PQ_ADDRESS_TEXT];
        if (!unix_path(plain))
            continue;
        pq_address_text(plain, text);
        pq_log(PQ_LOG_WARN, "unix socket", "route", pq_s(how->name), "address", pq_s(text), "detail",
               pq_s("a broken stream looks like its end there, and an end that a crash made is passed on as one: use a "
                    "loopback address unless the protocol itself tells"),
               NULL);
    }
}

int pq_proxy_run(struct pq_proxy *p)
{
    watch_listeners(p, true);
    warn_of_unix(p);
    pq_log(PQ_LOG_INFO, "started", "listeners", pq_i((int64_t)p->count), NULL);
    ev_run(p->loop, 0);
    p->connections.closed = NULL;
    pq_connections_end(&p->connections, PQ_PROXY_DRAIN);
    close_listeners(p);
    pq_proxy_counters_log(&p->counters, "stopped", pq_log_dropped());
    return p->interrupted ? PQ_E_INTERRUPTED : 0;
}
