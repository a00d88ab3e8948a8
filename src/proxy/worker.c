#include "proxy/worker.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "proxy/tunnel.h"
#include "proxy/worker_parts.h"

enum {
    DESCRIPTORS_SPARE = 32, /* standard streams, the loops', log, what is being opened or closed */
    DESCRIPTORS_EACH = 2,   /* a connection's */
};

/* --- talking to the supervisor ----------------------------------------------------------------------------------- */
static void watch_control(struct pq_worker *w)
{
    ev_io_stop(w->loop, &w->control_io);
    ev_io_set(&w->control_io, w->control.fd, EV_READ | (pq_control_waits(&w->control) ? EV_WRITE : 0));
    ev_io_start(w->loop, &w->control_io);
}

/* The supervisor may be gone, which then shows as the end of its stream. */
static void tell(struct pq_worker *w, enum pq_control_type type, int status, uint64_t generation, const char *text)
{
    struct pq_control_message m = {.type = type, .status = status, .generation = (int64_t)generation};
    snprintf(m.text, sizeof m.text, "%s", text);
    if (pq_control_send(&w->control, &m) == 0 && pq_control_waits(&w->control))
        watch_control(w);
}

/* --- stopping ---------------------------------------------------------------------------------------------------- */
/* A tunnel without connections still has to say that it closes. */
static void end_if_empty(struct pq_worker *w)
{
    if (w->stopping && w->connections.count == 0 && pq_tunnel_count(&w->connections) == 0)
        ev_break(w->loop, EVBREAK_ALL);
}

static void on_closed(void *context)
{
    struct pq_worker *w = context;
    if (w->stopping)
        end_if_empty(w);
    else
        pq_acceptors_relieve(w);
}

static void on_limit(struct ev_loop *loop, ev_timer *timer, int revents)
{
    (void)loop, (void)revents;
    pq_connections_end(&((struct pq_worker *)timer->data)->connections, PQ_PROXY_DRAIN);
}

static void end_connections_after(struct pq_worker *w, int64_t ns)
{
    ev_timer_stop(w->loop, &w->limit);
    ev_timer_set(&w->limit, (double)ns / 1e9, 0.);
    ev_timer_start(w->loop, &w->limit);
}

static void drain(struct pq_worker *w)
{
    if (!w->stopping)
        pq_acceptors_close(w, true);
    pq_tunnel_drain_all(&w->connections);
    if (w->generation)
        end_connections_after(w, w->generation->config.timeouts.drain);
    end_if_empty(w);
}

/* Others accept from the same sockets. */
static void retire(struct pq_worker *w)
{
    if (w->stopping)
        return;
    pq_acceptors_close(w, false);
    pq_tunnel_drain_all(&w->connections);
    if (w->generation && w->generation->config.timeouts.retire)
        end_connections_after(w, w->generation->config.timeouts.retire);
    end_if_empty(w);
}

/* --- generations ------------------------------------------------------------------------------------------------- */
static int begin(struct pq_worker *w, struct pq_generation *first, struct pq_why *why)
{
    TRY(pq_connections_init(&w->connections, w->loop, &first->config, w->how->shared, w->how->slot, why));
    w->connections.closed = on_closed;
    w->connections.context = w;
    return 0;
}

static int use(struct pq_worker *w, struct pq_generation *g, const uint64_t *sockets, struct pq_why *why)
{
    if (!w->generation)
        TRY(begin(w, g, why));
    struct pq_generation *before = w->generation;
    w->generation = g;
    w->descriptors = pq_worker_connections(g->count);
    int e = pq_acceptors_assign(w, g, sockets);
    if (e < 0) {
        w->generation = before;
        return pq_why(why, e, "a listening socket did not come");
    }
    pq_generation_keep(g);
    pq_connections_use(&w->connections, g);
    pq_tunnels_use(&w->connections, before, g);
    pq_log_set_format((enum pq_log_format)g->config.log.format);
    pq_generation_free(before);
    return 0;
}

void pq_worker_made(struct pq_worker *w)
{
    struct pq_making *m = &w->making;
    int e = m->e < 0 ? m->e : use(w, m->generation, m->sockets, &m->why);
    if (e == 0) {
        tell(w, PQ_CONTROL_READY, 0, m->number, "");
        return;
    }
    tell(w, PQ_CONTROL_REFUSED, e, m->number, m->why.text[0] ? m->why.text : pq_error_text(e));
    if (w->generation)
        return;
    w->failed = true;
    ev_break(w->loop, EVBREAK_ALL);
}

/* --- the supervisor's messages ----------------------------------------------------------------------------------- */
static int take_fd(struct pq_control_message *m) { return m->fd_count ? m->fd[--m->fd_count] : -1; }

static void obey_socket(struct pq_worker *w, struct pq_control_message *m)
{
    int fd = take_fd(m);
    /* One that is missing shows when a generation uses it. */
    if (fd >= 0 && pq_acceptors_add(w, (uint64_t)m->generation, fd) < 0)
        pq_log(PQ_LOG_ERROR, "listener lost", "detail", pq_s("out of memory"), NULL);
}

static void obey_generation(struct pq_worker *w, struct pq_control_message *m)
{
    pq_making_start(w, (uint64_t)m->generation, take_fd(m));
}

static void obey_retire(struct pq_worker *w, struct pq_control_message *m)
{
    (void)m;
    retire(w);
}

static void obey_drain(struct pq_worker *w, struct pq_control_message *m)
{
    drain(w);
    tell(w, PQ_CONTROL_DONE, (int)m->type, 0, "");
}

static void obey_end(struct pq_worker *w, struct pq_control_message *m)
{
    (void)m;
    ev_break(w->loop, EVBREAK_ALL);
}

/* In place, since another thread may be about to write to it. */
static void obey_log(struct pq_worker *w, struct pq_control_message *m)
{
    if (m->fd_count && w->how->log_fd >= 0)
        (void)dup3(m->fd[0], w->how->log_fd, O_CLOEXEC);
}

static void on_listed(void *context, int e)
{
    struct pq_worker *w = context;
    w->listing = NULL;
    if (e < 0)
        pq_log(PQ_LOG_ERROR, "connections not listed", "detail", pq_s(pq_error_text(e)), NULL);
    tell(w, PQ_CONTROL_DONE, PQ_CONTROL_CONNECTIONS, (uint64_t)w->listing_number, "");
}

static void obey_connections(struct pq_worker *w, struct pq_control_message *m)
{
    DEFER(pq_closep) int fd = take_fd(m);
    pq_listing_free(TAKE(w->listing)); /* nobody waits for it any more */
    w->listing_number = m->generation;
    int e = fd >= 0 && w->generation ? pq_listing_start(&w->connections, fd, on_listed, w, &w->listing) : PQ_E_CLOSED;
    if (e == 0)
        (void)TAKE_FD(fd);
    else
        on_listed(w, e == PQ_E_CLOSED ? 0 : e);
}

static void obey_addresses(struct pq_worker *w, struct pq_control_message *m)
{
    struct pq_address at[PQ_PROXY_PLACES_MAX];
    size_t count = 0, listener = (size_t)m->status;
    char *line = m->text;
    if (!w->generation || w->generation->number != (uint64_t)m->generation || listener >= w->generation->count)
        return;
    for (char *end; count < PQ_COUNT(at) && (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        count += pq_address_parse(line, &at[count], NULL) == 0;
    }
    (void)pq_upstream_set(w->generation->routes[listener].upstream, at, count);
}

static void (*const obey[PQ_CONTROL_TYPE_COUNT])(struct pq_worker *w, struct pq_control_message *m) = {
    [PQ_CONTROL_SOCKET] = obey_socket,
    [PQ_CONTROL_GENERATION] = obey_generation,
    [PQ_CONTROL_RETIRE] = obey_retire,
    [PQ_CONTROL_DRAIN] = obey_drain,
    [PQ_CONTROL_END] = obey_end,
    [PQ_CONTROL_LOG] = obey_log,
    [PQ_CONTROL_ADDRESSES] = obey_addresses,
    [PQ_CONTROL_CONNECTIONS] = obey_connections,
};

static void supervisor_gone(struct pq_worker *w)
{
    ev_io_stop(w->loop, &w->control_io);
    if (!w->stopping)
        pq_log(PQ_LOG_WARN, "supervisor gone", "open", pq_i(w->connections.count), "detail",
               pq_s("no new connections are taken, and this worker ends with its last one"), NULL);
    drain(w);
}

static void on_control(struct ev_loop *loop, ev_io *io, int revents)
{
    (void)loop, (void)revents;
    struct pq_worker *w = io->data;
    struct pq_control_message m;
    if (pq_control_flush(&w->control) == 0 && !pq_control_waits(&w->control) && (io->events & EV_WRITE))
        watch_control(w);
    int e = 0;
    while (e == 0) {
        e = pq_control_receive(&w->control, &m);
        if (e < 0)
            continue;
        if (obey[m.type])
            obey[m.type](w, &m);
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

/* A token's module and its files are out of reach later. */
static int find_keys(void *context, struct pq_why *why)
{
    struct pq_worker *w = context;
    struct pq_bundle b;
    if (w->how->packed < 0)
        return 0;
    int e = pq_bundle_unpack(w->how->packed, &b, why);
    close(w->how->packed);
    for (size_t i = 0; e == 0 && i < pq_proxy_listener_count(&b.config); i++) {
        struct pq_tls_settings how = pq_proxy_listener_tls(&b.config, pq_proxy_listener_at(&b.config, i));
        how.files = b.files;
        e = pq_tls_settings_keys(w->crypto, &how, why);
    }
    pq_bundle_free(&b);
    return e;
}

/* OpenSSL reads its configuration and providers before the files are out of reach; threads come after that. */
static int start(struct pq_worker *w, struct pq_why *why)
{
    struct pq_contain contain = *w->how->contain;
    contain.before = find_keys;
    contain.context = w;
    TRY(pq_crypto_new(&w->crypto, why));
    TRY(pq_contain_worker(&contain, why));
    if (!contain.off)
        pq_crypto_seal(w->crypto);
    w->loop = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
    if (!w->loop)
        return pq_why(why, PQ_E_UNSUPPORTED, "no event loop to be had: epoll is missing or descriptors ran out");
    pq_acceptors_init(w);
    pq_making_init(w);
    ev_init(&w->limit, on_limit);
    w->limit.data = w;
    ev_init(&w->control_io, on_control);
    w->control_io.data = w;
    watch_control(w);
    return 0;
}

static void end(struct pq_worker *w)
{
    w->connections.closed = NULL;
    pq_listing_free(TAKE(w->listing));
    if (w->loop)
        pq_making_free(w);
    if (w->connections.handshaker) {
        pq_connections_end(&w->connections, PQ_PROXY_DRAIN);
        pq_connections_free(&w->connections);
    }
    if (w->loop)
        pq_acceptors_close(w, false);
    pq_tunnel_drain_all(&w->connections);
    pq_generation_free(w->generation);
    pq_crypto_free(w->crypto);
    pq_control_free(&w->control);
    if (w->loop)
        ev_loop_destroy(w->loop);
}

int pq_worker_run(const struct pq_worker_how *how)
{
    struct pq_why why = {""};
    struct pq_worker w = {.how = how};
    char name[16];
    snprintf(name, sizeof name, "pqplane:%zu", how->slot);
    prctl(PR_SET_NAME, name);
    pq_control_init(&w.control, how->control);
    pq_log_count_dropped(&how->shared->worker[how->slot].log_dropped);
    int e = start(&w, &why);
    if (e < 0)
        tell(&w, PQ_CONTROL_REFUSED, e, 0, why.text[0] ? why.text : pq_error_text(e));
    else
        ev_run(w.loop, 0);
    end(&w);
    return e < 0 || w.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
