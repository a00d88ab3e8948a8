#include "proxy/tunnel_parts.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "proxy/closing.h"
#include "proxy/target.h"

/* Seconds between two attempts to open a tunnel: at first, at most, and how soon a local connection may hurry it. */
#define BACKOFF_FIRST 0.1
#define BACKOFF_MOST  5.
#define HURRY         0.1
/* A tunnel's age at which the next one is opened, as a part of the most: not all at the same moment. */
#define AGE_FROM 0.85
#define AGE_TO   0.95
/* Seconds that a tunnel lives at least, though a certificate ends sooner. */
#define AGE_LEAST 10.

/* What the peer showed: it stays so until the configuration is read anew. */
enum mode { UNKNOWN, TUNNEL, ALONE };

struct pq_tunnels {
    TAILQ_ENTRY(pq_tunnels) of_loop;
    struct pq_tunnel_loop *loop;
    struct pq_route *route;
    enum mode mode;
    bool was_alone; /* before the latest reload: nobody waits to learn whether it still is */
    bool retired;
    bool doubtful; /* the latest attempt failed, or there was none */
    struct pq_tunnel_list own;
    struct pq_carried_list waiting; /* in the order of their deadlines */
    ev_timer redial;
    double backoff;
    double dialled;
    char failure[512]; /* of the latest attempt */
    nghttp2_nv request[2];
    uint64_t random;
};

static const struct pq_proxy_config *config_of(const struct pq_tunnels *o) { return o->loop->set->config; }
static struct ev_loop *loop_of(const struct pq_tunnels *o) { return o->loop->set->loop; }

struct pq_tunnels *pq_tunnels_next(struct pq_tunnels *o) { return TAILQ_NEXT(o, of_loop); }

/* In [0, 1): only spreads points in time. */
static double spread(struct pq_tunnels *o)
{
    o->random = o->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(o->random >> 40) / (double)(1 << 24);
}

/* --- streams ------------------------------------------------------------------------------------------------------ */
static struct pq_tunnel *least_loaded(struct pq_tunnels *o)
{
    struct pq_tunnel *best = NULL, *t;
    TAILQ_FOREACH(t, &o->own, of_owner)
    if (pq_tunnel_takes_streams(t) && (!best || t->aged < best->aged || t->streams < best->streams))
        best = t;
    return best;
}

bool pq_tunnels_awaited(const struct pq_tunnels *o) { return !TAILQ_EMPTY(&o->waiting); }

/* False where there is no tunnel for it now. */
static bool open_stream(struct pq_tunnels *o, struct pq_carried *s)
{
    const nghttp2_data_provider2 data = {.source.ptr = s, .read_callback = pq_carried_pull};
    struct pq_tunnel *t = least_loaded(o);
    if (!t)
        return false;
    s->deferred = false;
    s->can_read = true; /* what the local side sent already goes with the CONNECT */
    int32_t id = nghttp2_submit_request2(t->h2, NULL, o->request, PQ_COUNT(o->request), &data, s);
    if (id == NGHTTP2_ERR_STREAM_ID_NOT_AVAILABLE) {
        pq_tunnel_drain(t);
        return open_stream(o, s);
    }
    if (id < 0) {
        pq_carried_fail(s, PQ_PROXY_MEMORY, 0, NULL);
    } else {
        pq_carried_join(s, t, id);
    }
    pq_carried_touch(s);
    return true;
}

void pq_tunnels_left(struct pq_carried *s)
{
    TAILQ_REMOVE(&s->owner->waiting, s, of_waiting);
    s->waiting = false;
    pq_tunnel_loop_timed(s->loop, s, false);
}

static void wait_for_tunnel(struct pq_tunnels *o, struct pq_carried *s)
{
    s->waiting = true;
    TAILQ_INSERT_TAIL(&o->waiting, s, of_waiting);
    pq_carried_watch(s);
    pq_tunnel_loop_timed(s->loop, s, true);
}

static void serve_waiting(struct pq_tunnels *o)
{
    struct pq_carried *s;
    while ((s = TAILQ_FIRST(&o->waiting)) && least_loaded(o)) {
        pq_tunnels_left(s);
        (void)open_stream(o, s);
    }
}

/* --- dialling ----------------------------------------------------------------------------------------------------- */
static void dial(struct pq_tunnels *o);

static void on_redial(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)loop, (void)revents;
    dial(w->data);
}

static void redial_after(struct pq_tunnels *o, double seconds)
{
    ev_timer_stop(loop_of(o), &o->redial);
    ev_timer_set(&o->redial, seconds, 0.);
    ev_timer_start(loop_of(o), &o->redial);
}

static void log_failed(struct pq_tunnel *t, enum pq_proxy_end why, enum pq_tls_reason reason, const char *detail)
{
    pq_closing_log(
        &(struct pq_closing){.event = why == PQ_PROXY_TLS ? "handshake failed" : "tunnel failed",
                             .level = pq_proxy_end_level(why),
                             .how = t->route->how,
                             .peer = &t->peer,
                             .tls = t->tls,
                             .tunnel = t->id,
                             .connect_ns = t->took_connect,
                             .handshake_ns = t->took_handshake,
                             .started = t->started,
                             .reason = why == PQ_PROXY_TLS ? pq_tls_reason_label(reason) : pq_proxy_end_label(why),
                             .detail = detail});
}

/* A tunnel that never was: logged and counted here, then gone. */
static void failed(struct pq_tunnel *t, enum pq_proxy_end why, enum pq_tls_reason reason, const char *detail)
{
    struct pq_connections *set = t->loop->set;
    log_failed(t, why, reason, detail);
    if (why == PQ_PROXY_TLS) {
        pq_metrics_handshake(set->counters, PQ_PROXY_EGRESS, t->tls ? pq_tls_info(t->tls) : NULL, reason,
                             t->took_handshake);
        if (reason != PQ_TLS_RESET) /* a peer that is stopping is no refusal */
            pq_metrics_tunnel_refused(set->counters, PQ_PROXY_EGRESS, why, reason);
    }
    pq_tunnel_end(t, why, detail);
}

static void connect_failed(struct pq_tunnel *t, int e, const char *detail)
{
    struct pq_why why = {""};
    char text[PQ_ADDRESS_TEXT];
    pq_address_text(&t->peer, text);
    if (!detail[0]) {
        pq_why(&why, e, "can't connect to %s: %s", text, pq_error_text(e));
        detail = why.text;
    }
    if (e != PQ_E_LIMIT && e != PQ_E_NOMEM)
        (void)pq_upstream_failed(t->route->upstream, &t->attempt, pq_clock_ns());
    failed(t, pq_proxy_end_of_connect(e), PQ_TLS_NONE, detail);
}

static void on_timeout(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)loop, (void)revents;
    struct pq_tunnel *t = w->data;
    if (t->state == PQ_TUNNEL_CONNECTING)
        connect_failed(t, PQ_E_TIMEOUT, "");
    else
        failed(t, PQ_PROXY_TLS, PQ_TLS_TIMEOUT, "the peer did not show in time that it accepted the handshake");
}

/* A client is done before the server has judged its certificate: an alert may come in place of SETTINGS. */
void pq_tunnels_unproven(struct pq_tunnel *t, int e)
{
    enum pq_tls_reason reason = t->tls ? pq_tls_reason(t->tls) : PQ_TLS_NONE;
    const char *detail = t->tls ? pq_tls_failure(t->tls) : NULL;
    if (reason == PQ_TLS_ALPN) {
        pq_tunnels_alone(t);
        return;
    }
    if (e == PQ_E_TIMEOUT) {
        reason = PQ_TLS_TIMEOUT;
        detail = "the peer did not finish the handshake in time (timeouts.handshake)";
    } else if (e == PQ_E_RESET || e == PQ_E_CLOSED) {
        reason = PQ_TLS_RESET;
        detail = "the peer closed the connection instead of finishing the handshake";
    }
    failed(t, PQ_PROXY_TLS, reason == PQ_TLS_NONE ? PQ_TLS_INTERNAL : reason, detail);
}

static void begin(struct pq_tunnel *t)
{
    t->state = PQ_TUNNEL_PROVING;
    if (pq_tunnel_begin(t) < 0)
        pq_tunnel_end(t, PQ_PROXY_MEMORY, NULL);
    else
        pq_tunnel_set_timer(t, (double)config_of(t->owner)->timeouts.handshake / 1e9, on_timeout);
}

static void on_handshake(struct pq_handshake *h, int e)
{
    struct pq_tunnel *t = (struct pq_tunnel *)(void *)((char *)h - offsetof(struct pq_tunnel, handshake));
    t->tls = h->tls;
    t->took_handshake = pq_clock_ns() - t->phase_started;
    pq_metrics_in_flight(t->loop->set->counters, pq_handshaker_in_flight(t->loop->set->handshaker));
    if (t->abandoned || e == PQ_E_INTERRUPTED)
        pq_tunnel_end(t, PQ_PROXY_DRAIN, NULL);
    else if (e < 0 && e != PQ_E_TIMEOUT && !t->tls)
        pq_tunnel_end(t, PQ_PROXY_MEMORY, NULL);
    else if (e < 0)
        pq_tunnels_unproven(t, e);
    else if (strcmp(pq_tls_info(t->tls)->alpn, PQ_TUNNEL_ALPN) != 0)
        pq_tunnels_alone(t);
    else
        begin(t);
}

static void connected(struct pq_tunnel *t)
{
    struct pq_connections *set = t->loop->set;
    const struct pq_strings *peers = &t->route->how->peers;
    t->took_connect = pq_clock_ns() - t->phase_started;
    t->phase_started = pq_clock_ns();
    t->state = PQ_TUNNEL_HANDSHAKE;
    pq_upstream_worked(t->route->upstream, &t->attempt);
    pq_tunnel_watch(t, 0);
    pq_tunnel_set_timer(t, 0, NULL);
    pq_metrics_connected(set->counters, PQ_PROXY_EGRESS, t->took_connect);
    t->handshake = (struct pq_handshake){.context = t->route->tunnel_tls,
                                         .names = peers->count ? peers : NULL,
                                         .fd = t->fd,
                                         .timeout = set->config->timeouts.handshake,
                                         .known = true,
                                         .done = on_handshake};
    pq_handshaker_submit(set->handshaker, &t->handshake);
    pq_metrics_in_flight(set->counters, pq_handshaker_in_flight(set->handshaker));
}

void pq_tunnel_connect_ready(struct pq_tunnel *t)
{
    int e = pq_tcp_connected(t->fd);
    if (e == 0)
        connected(t);
    else
        connect_failed(t, e, "");
}

static void dial_one(struct pq_tunnels *o)
{
    struct pq_tunnel *t;
    struct pq_why why = {""};
    pq_tunnel_loop_clock(o->loop);
    o->dialled = o->loop->now;
    if (pq_tunnel_new(o->loop, o->route, o, &t) < 0) {
        redial_after(o, BACKOFF_MOST);
        return;
    }
    TAILQ_INSERT_TAIL(&o->own, t, of_owner);
    t->phase_started = pq_clock_ns();
    int e = pq_upstream_next(o->route->upstream, &t->attempt, pq_clock_ns(), &t->peer)
                ? pq_tcp_connect(&t->peer, &t->fd, &why)
                : pq_why(&why, PQ_E_NOT_FOUND, "no address is known of where it leads");
    pq_tunnel_set_timer(t, (double)config_of(o)->timeouts.connect / 1e9, on_timeout);
    if (e == 0)
        connected(t);
    else if (e == PQ_E_WANT_WRITE)
        pq_tunnel_watch(t, PQ_RELAY_WRITE);
    else
        connect_failed(t, e, why.text);
}

/* As many as are wanted, but one at a time until the peer has shown that it is there and speaks tunnel. */
static void dial(struct pq_tunnels *o)
{
    int64_t have = 0, opening = 0, want = config_of(o)->tunnel.connections;
    struct pq_tunnel *t;
    if (o->retired || o->mode == ALONE || (o->loop->set->draining && TAILQ_EMPTY(&o->waiting)))
        return;
    TAILQ_FOREACH(t, &o->own, of_owner)
    {
        have += t->state <= PQ_TUNNEL_OPEN && !t->aged;
        opening += t->state < PQ_TUNNEL_OPEN;
    }
    for (; have < want && !ev_is_active(&o->redial) && !(o->doubtful && opening); have++, opening++)
        dial_one(o);
}

/* Somebody waits: an attempt that was put off comes now. */
static void hurry(struct pq_tunnels *o)
{
    double since = o->loop->now - o->dialled;
    if (!ev_is_active(&o->redial))
        dial(o);
    else if (ev_timer_remaining(loop_of(o), &o->redial) > HURRY)
        redial_after(o, since < HURRY ? HURRY - since : 0.);
}

/* --- what happens to a tunnel ------------------------------------------------------------------------------------- */
static void on_aged(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)loop, (void)revents;
    struct pq_tunnel *t = w->data;
    t->aged = true;
    dial(t->owner);
}

/* One that an open tunnel takes the place of. */
static void retire_aged(struct pq_tunnels *o)
{
    struct pq_tunnel *t;
    TAILQ_FOREACH(t, &o->own, of_owner)
    if (t->aged && t->state == PQ_TUNNEL_OPEN) {
        pq_tunnel_drain(t);
        return;
    }
}

/* Seconds until the next one takes its place: before the most that is configured, and before either certificate ends.
 * Close to that end, when the next one's is the same, not at every moment. */
static double lifetime(struct pq_tunnels *o, const struct pq_tunnel *t)
{
    double most = (double)config_of(o)->tunnel.max_age / 1e9;
    int64_t ends[] = {t->tls ? pq_tls_info(t->tls)->not_after : 0,
                      o->route->tunnel_tls ? pq_tls_context_not_after(o->route->tunnel_tls) : 0};
    for (size_t i = 0; i < PQ_COUNT(ends); i++) {
        double left = (double)(ends[i] - (int64_t)time(NULL));
        left = left < AGE_LEAST ? AGE_LEAST : left;
        most = ends[i] && left < most ? left : most;
    }
    return most * (AGE_FROM + (AGE_TO - AGE_FROM) * spread(o));
}

void pq_tunnels_opened(struct pq_tunnel *t)
{
    struct pq_tunnels *o = t->owner;
    double age = lifetime(o, t);
    t->state = PQ_TUNNEL_OPEN;
    o->mode = TUNNEL;
    o->doubtful = false;
    o->backoff = BACKOFF_FIRST;
    o->failure[0] = '\0';
    pq_tunnel_set_timer(t, age, on_aged);
    pq_metrics_handshake(t->loop->set->counters, PQ_PROXY_EGRESS, t->tls ? pq_tls_info(t->tls) : NULL, PQ_TLS_NONE,
                         t->took_handshake);
    pq_tunnel_opened(t);
    retire_aged(o);
    serve_waiting(o);
    if (o->retired || o->loop->set->draining)
        pq_tunnel_drain(t);
    dial(o);
}

void pq_tunnels_changed(struct pq_tunnel *t)
{
    serve_waiting(t->owner);
    dial(t->owner);
}

static void free_if_done(struct pq_tunnels *o)
{
    if (o->retired && TAILQ_EMPTY(&o->own) && TAILQ_EMPTY(&o->waiting))
        pq_tunnels_free(o);
}

void pq_tunnels_ended(struct pq_tunnel *t, enum pq_proxy_end why, const char *detail)
{
    struct pq_tunnels *o = t->owner;
    TAILQ_REMOVE(&o->own, t, of_owner);
    if (why != PQ_PROXY_END) {
        snprintf(o->failure, sizeof o->failure, "%s", detail ? detail : pq_proxy_end_label(why));
        o->doubtful = true;
        redial_after(o, o->backoff * (0.75 + 0.5 * spread(o)));
        o->backoff = o->backoff * 2 < BACKOFF_MOST ? o->backoff * 2 : BACKOFF_MOST;
    } else {
        dial(o);
    }
    free_if_done(o);
}

/* --- the peer speaks no tunnel ------------------------------------------------------------------------------------ */
static void carry_waiting_alone(struct pq_tunnels *o)
{
    struct pq_carried *s;
    while ((s = TAILQ_FIRST(&o->waiting))) {
        struct pq_address from = pq_carried_address(s);
        pq_tunnels_left(s);
        int fd = pq_carried_release(s);
        pq_connection_carry_alone(o->loop->set, o->route, fd, &from);
    }
}

/* What was just opened has no use, and is closed in order: the peer did nothing wrong. */
void pq_tunnels_alone(struct pq_tunnel *t)
{
    struct pq_tunnels *o = t->owner;
    char peer[PQ_ADDRESS_TEXT];
    pq_address_text(&t->peer, peer);
    o->mode = ALONE;
    pq_log(PQ_LOG_INFO, "peer speaks no tunnel", "route", pq_s(o->route->how->name), "peer", pq_s(peer), "detail",
           pq_s("each local connection gets a TLS connection of its own, until the configuration is read anew"), NULL);
    if (t->tls && pq_tls_close_notify(t->tls) < 0)
        pq_log(PQ_LOG_DEBUG, "close_notify not sent", "peer", pq_s(peer), NULL);
    pq_tunnel_end(t, PQ_PROXY_END, NULL);
    carry_waiting_alone(o);
}

/* --- for the rest of the proxy ------------------------------------------------------------------------------------ */
/* RFC 9113, section 8.5: host and port; a unix socket has none, so that the route's name must do. */
static const char *authority(const struct pq_proxy_listener *how)
{
    const struct pq_proxy_address *first = pq_proxy_target_at(&how->target, 0);
    return how->authority ? how->authority : first->at.sa.ss_family == AF_UNIX ? how->name : first->text;
}

static nghttp2_nv field(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name), strlen(value),
                        NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE};
}

int pq_tunnels_new(struct pq_connections *set, struct pq_route *route, struct pq_tunnels **out)
{
    struct pq_tunnel_loop *l = pq_tunnel_loop_of(set);
    struct pq_tunnels *o = l ? calloc(1, sizeof *o) : NULL;
    if (!o)
        return PQ_E_NOMEM;
    o->loop = l;
    o->route = route;
    pq_generation_keep(route->of);
    o->backoff = BACKOFF_FIRST;
    o->doubtful = true;
    o->random = (uint64_t)pq_clock_ns();
    o->request[0] = field(":method", "CONNECT");
    o->request[1] = field(":authority", authority(route->how));
    TAILQ_INIT(&o->own);
    TAILQ_INIT(&o->waiting);
    ev_init(&o->redial, on_redial);
    o->redial.data = o;
    TAILQ_INSERT_TAIL(&l->egress, o, of_loop);
    redial_after(o, 0.); /* from the loop: nothing is sent before it runs */
    *out = o;
    return 0;
}

void pq_tunnels_free(struct pq_tunnels *o)
{
    ev_timer_stop(loop_of(o), &o->redial);
    TAILQ_REMOVE(&o->loop->egress, o, of_loop);
    pq_generation_free(o->route->of);
    free(o);
}

void pq_tunnels_retire(struct pq_tunnels *o)
{
    struct pq_tunnel *t, *next;
    if (!o)
        return;
    ev_timer_stop(loop_of(o), &o->redial);
    carry_waiting_alone(o);
    for (t = TAILQ_FIRST(&o->own); t; t = next) {
        next = TAILQ_NEXT(t, of_owner);
        pq_tunnel_drain(t);
    }
    o->retired = true;
    free_if_done(o);
}

/* --- another generation ------------------------------------------------------------------------------------------- */
/* Asks for the same. */
static bool goes_on(const struct pq_route *before, const struct pq_route *now)
{
    return now->tunnels && strcmp(authority(before->how), authority(now->how)) == 0;
}

static bool leads_to(const struct pq_route *r, const struct pq_address *peer)
{
    for (size_t i = 0; i < r->how->target.count; i++)
        if (pq_address_equal(&r->how->target.places[i].at, peer))
            return true;
    return false;
}

static void adopt_waiting(struct pq_tunnels *o, struct pq_tunnels *from)
{
    struct pq_carried *s;
    while ((s = TAILQ_FIRST(&from->waiting))) {
        TAILQ_REMOVE(&from->waiting, s, of_waiting);
        TAILQ_INSERT_TAIL(&o->waiting, s, of_waiting);
        s->owner = o;
        pq_carried_move(s, o->route);
    }
}

/* What it carries moves with it. */
static void adopt(struct pq_tunnels *o, struct pq_tunnel *t)
{
    TAILQ_REMOVE(&t->owner->own, t, of_owner);
    TAILQ_INSERT_TAIL(&o->own, t, of_owner);
    t->owner = o;
    t->aged = true; /* new ones have the new certificates */
    o->mode = TUNNEL;
    o->doubtful = false;
}

/* Tunnels that are open by then: what is still being opened has the old certificates, and ends. */
void pq_tunnels_inherit(struct pq_tunnel *t, struct pq_route *now)
{
    if (t->state == PQ_TUNNEL_OPEN && goes_on(t->route, now) && leads_to(now, &t->peer))
        adopt(now->tunnels, t);
}

static void make_tunnels(struct pq_connections *set, struct pq_generation *g)
{
    for (size_t i = 0; i < g->count; i++) {
        struct pq_route *r = &g->routes[i];
        if (r->tunnel_tls && pq_tunnels_new(set, r, &r->tunnels) < 0)
            pq_log(PQ_LOG_ERROR, "no tunnels", "route", pq_s(r->how->name), "reason",
                   pq_s(pq_proxy_end_label(PQ_PROXY_MEMORY)), NULL);
    }
}

void pq_tunnels_use(struct pq_connections *set, struct pq_generation *before, struct pq_generation *now)
{
    make_tunnels(set, now);
    pq_tunnel_loop_use(set, now);
    pq_tunnel_recheck_all(set, now);
    for (size_t i = 0; before && i < before->count; i++) {
        struct pq_tunnels *o = before->routes[i].tunnels;
        struct pq_route *r = pq_generation_route(now, before->routes[i].how);
        if (o && r && goes_on(&before->routes[i], r)) {
            r->tunnels->was_alone = o->mode == ALONE || o->was_alone;
            adopt_waiting(r->tunnels, o);
        }
        pq_tunnels_retire(TAKE(before->routes[i].tunnels));
    }
}

/* --- local connections -------------------------------------------------------------------------------------------- */
int pq_tunnels_carry(struct pq_tunnels *o, int fd, const struct pq_address *from)
{
    struct pq_carried *s;
    if (o->mode == ALONE || o->retired || (o->mode == UNKNOWN && o->was_alone))
        return PQ_E_UNSUPPORTED;
    pq_tunnel_loop_clock(o->loop);
    TRY(pq_carried_new(o->loop, o->route, o, fd, from, &s));
    if (open_stream(o, s))
        return 0;
    s->deadline = o->loop->now + (double)config_of(o)->timeouts.connect / 1e9;
    wait_for_tunnel(o, s);
    hurry(o);
    return 0;
}

void pq_tunnels_again(struct pq_carried *s)
{
    s->again = false;
    wait_for_tunnel(s->owner, s);
}

void pq_tunnels_sweep(struct pq_tunnels *o)
{
    struct pq_carried *s;
    char detail[640];
    serve_waiting(o);
    while ((s = TAILQ_FIRST(&o->waiting)) && o->loop->now > s->deadline) {
        snprintf(detail, sizeof detail, "no tunnel to the peer within timeouts.connect%s%s",
                 o->failure[0] ? "; the latest attempt: " : "", o->failure);
        pq_carried_fail(s, PQ_PROXY_NO_TUNNEL, 0, detail);
        pq_carried_touch(s);
    }
}
