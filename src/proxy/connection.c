#include "proxy/connection.h"

#include <ev.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "proxy/closing.h"
#include "proxy/doom.h"
#include "proxy/listing.h"
#include "proxy/relay.h"
#include "proxy/target.h"
#include "proxy/transparent.h"
#include "proxy/tunnel.h"

/* Connections that are asked whether one that comes is their own: it comes right after them. */
enum { OWN_LOOKED_AT = 256 };

/* How often a relay that lingers is looked at, in seconds. */
#define LINGER_STEP 0.1

/* Connections that are held against a new generation at a turn of the loop. */
enum { RECHECKED_A_TURN = 200 };

enum phase { CONNECT, HANDSHAKE, RELAY, ENDED };

struct pq_connection {
    struct pq_connections *set;
    struct pq_route *route;
    struct pq_connection *next, **link; /* link points to what points here */
    uint64_t id;
    enum phase phase;
    int fd[2]; /* by enum pq_relay_side */
    struct pq_tls *tls;
    struct pq_handshake handshake;
    bool known; /* the peer's address authenticated before, or it is we who connect */
    struct pq_relay relay;
    ev_io io[2];
    unsigned watched[2];
    ev_timer timer;
    int64_t active;      /* when something last moved; monotonic, which ev_now() is not */
    uint64_t progress;   /* the relay's then */
    bool judged;         /* the handshake is counted: a client's once the server's first byte shows that it accepted */
    uint64_t counted[2]; /* bytes up and down that the counters have */
    bool lingers;        /* and the timer is set for that */
    bool abandoned;      /* in its handshake: it ends, with that reason, once the thread has given it back */
    enum pq_proxy_end why;
    struct pq_doom *doom; /* NULL: allowed */
    struct pq_address address[2];
    struct pq_upstream_try attempt;
    int64_t started, phase_started, took[ENDED]; /* ns */
};

static enum pq_proxy_direction direction(const struct pq_connection *c) { return c->route->how->direction; }

/* --- the end ----------------------------------------------------------------------------------------------------- */
static void log_end(const struct pq_connection *c, const char *event, enum pq_log_level level, const char *reason,
                    const char *detail)
{
    pq_closing_log(&(struct pq_closing){.event = event,
                                        .level = level,
                                        .how = c->route->how,
                                        .local = &c->address[PQ_RELAY_LOCAL],
                                        .peer = &c->address[PQ_RELAY_PEER],
                                        .tls = c->tls,
                                        .connect_ns = c->took[CONNECT],
                                        .handshake_ns = c->took[HANDSHAKE],
                                        .started = c->started,
                                        .up = c->relay.flow[PQ_RELAY_LOCAL].bytes,
                                        .down = c->relay.flow[PQ_RELAY_PEER].bytes,
                                        .reason = reason,
                                        .detail = detail});
}

/* Bytes that came and were never read would make the kernel send RST, which can overtake the alert that says why. */
static void close_after_alert(int fd)
{
    char scratch[4096];
    shutdown(fd, SHUT_WR);
    for (int i = 0; i < 16 && recv(fd, scratch, sizeof scratch, MSG_DONTWAIT) > 0; i++)
        ;
    close(fd);
}

static void unwatch(struct pq_connection *c)
{
    for (int i = 0; i < 2; i++)
        ev_io_stop(c->set->loop, &c->io[i]);
    ev_timer_stop(c->set->loop, &c->timer);
}

static void close_all(struct pq_connection *c, enum pq_proxy_end why, enum phase phase)
{
    bool orderly = why == PQ_PROXY_END, alert = why == PQ_PROXY_TLS && phase == HANDSHAKE;
    int local = c->fd[PQ_RELAY_LOCAL], peer = c->fd[PQ_RELAY_PEER];
    pq_tls_free(c->tls);
    if (local >= 0) {
        pq_tcp_abort_on_close(local, !orderly);
        close(local);
    }
    if (peer >= 0 && alert) {
        close_after_alert(peer);
    } else if (peer >= 0) {
        if (!orderly)
            pq_tcp_abort_on_close(peer, true);
        close(peer);
    }
}

static void unlink_from_set(struct pq_connection *c)
{
    if (c->set->listed == c)
        c->set->listed = c->next;
    if (c->set->rechecked == c)
        c->set->rechecked = c->next;
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    c->set->count--;
}

static void count_bytes(struct pq_connection *c)
{
    uint64_t up = c->relay.flow[PQ_RELAY_LOCAL].bytes, down = c->relay.flow[PQ_RELAY_PEER].bytes;
    pq_metrics_bytes(c->set->counters, direction(c), up - c->counted[0], down - c->counted[1]);
    c->counted[0] = up;
    c->counted[1] = down;
}

/* Once. */
static void count_handshake(struct pq_connection *c, enum pq_tls_reason reason)
{
    if (!c->judged)
        pq_metrics_handshake(c->set->counters, direction(c), c->tls ? pq_tls_info(c->tls) : NULL, reason,
                             c->took[HANDSHAKE]);
    c->judged = true;
}

static void end(struct pq_connection *c, enum pq_proxy_end why, enum pq_tls_reason tls_reason, const char *detail)
{
    struct pq_connections *s = c->set;
    enum phase phase = c->phase;
    /* TLS 1.3 lets a client go on before the server has judged it: an alert in place of the first byte is a
     * handshake's. */
    bool unjudged = phase == RELAY && direction(c) == PQ_PROXY_EGRESS && c->relay.flow[PQ_RELAY_PEER].bytes == 0;
    bool handshake = why == PQ_PROXY_TLS && (phase == HANDSHAKE || unjudged);
    c->took[phase] = pq_clock_ns() - c->phase_started;
    c->phase = ENDED;
    unwatch(c);
    log_end(c, handshake ? "handshake failed" : "connection closed", pq_proxy_end_level(why),
            why == PQ_PROXY_TLS ? pq_tls_reason_label(tls_reason) : pq_proxy_end_label(why), detail);
    count_bytes(c);
    if (handshake)
        count_handshake(c, tls_reason);
    else if (phase == RELAY)
        count_handshake(c, PQ_TLS_NONE);
    pq_metrics_ended(s->counters, direction(c), why, tls_reason, pq_clock_ns() - c->started);
    pq_relay_free(&c->relay);
    close_all(c, why, phase);
    pq_doom_lift(&c->doom, c->set->loop);
    unlink_from_set(c);
    pq_generation_free(c->route->of);
    free(c);
    pq_connections_give_place(s);
    if (s->closed)
        s->closed(s->context);
}

static void end_plain(struct pq_connection *c, enum pq_proxy_end why, const char *detail)
{
    end(c, why, PQ_TLS_NONE, detail);
}

/* TLS gave the error e. */
static void end_tls(struct pq_connection *c, int e)
{
    enum pq_tls_reason reason = pq_tls_reason(c->tls);
    if (e == PQ_E_NOMEM)
        end_plain(c, PQ_PROXY_MEMORY, NULL);
    else if (c->phase == RELAY && (e == PQ_E_RESET || reason == PQ_TLS_NONE || reason == PQ_TLS_RESET))
        end_plain(c, PQ_PROXY_RESET_BY_PEER, NULL);
    else
        end(c, PQ_PROXY_TLS, reason == PQ_TLS_NONE ? PQ_TLS_INTERNAL : reason, pq_tls_failure(c->tls));
}

/* What a reload brought does not allow its peer any more. */
static void end_forbidden(void *connection, enum pq_tls_reason reason, const char *sentence)
{
    struct pq_connection *c = connection;
    char detail[PQ_DOOM_TEXT];
    pq_doom_text(reason, sentence, detail);
    pq_metrics_rechecked(c->set->counters, direction(c), reason);
    end_plain(c, PQ_PROXY_NOT_ALLOWED, detail);
}

/* --- waiting ----------------------------------------------------------------------------------------------------- */
static void watch(struct pq_connection *c, enum pq_relay_side side, unsigned wants)
{
    if (c->watched[side] == wants)
        return;
    ev_io *io = &c->io[side];
    ev_io_stop(c->set->loop, io);
    ev_io_set(io, c->fd[side], (wants & PQ_RELAY_READ ? EV_READ : 0) | (wants & PQ_RELAY_WRITE ? EV_WRITE : 0));
    if (wants)
        ev_io_start(c->set->loop, io);
    c->watched[side] = wants;
}

static void set_timer(struct pq_connection *c, double after)
{
    ev_timer_stop(c->set->loop, &c->timer);
    ev_timer_set(&c->timer, after, 0.);
    ev_timer_start(c->set->loop, &c->timer);
}

static void enter_next(struct pq_connection *c);

/* --- connect ----------------------------------------------------------------------------------------------------- */
static enum pq_relay_side target_side(const struct pq_connection *c)
{
    return direction(c) == PQ_PROXY_INGRESS ? PQ_RELAY_LOCAL : PQ_RELAY_PEER;
}

static int64_t connect_left(const struct pq_connection *c)
{
    return c->phase_started + c->set->config->timeouts.connect - pq_clock_ns();
}

/* A transparent route knows but the one address that its client wanted. */
static bool next_place(struct pq_connection *c)
{
    if (!c->route->how->transparent)
        return pq_upstream_next(c->route->upstream, &c->attempt, pq_clock_ns(), &c->address[target_side(c)]);
    return !c->attempt.tried++;
}

static size_t places_left(const struct pq_connection *c)
{
    return c->route->how->transparent ? !c->attempt.tried : pq_upstream_left(c->route->upstream, &c->attempt);
}

static void connect_failed(struct pq_connection *c, int e, const char *detail)
{
    c->set->starved |= e == PQ_E_LIMIT;
    end_plain(c, pq_proxy_end_of_connect(e), detail);
}

/* The address is to blame, unless it is we who have no descriptor or memory. */
static bool note_failure(struct pq_connection *c, int e, const char *detail)
{
    if (e == PQ_E_LIMIT || e == PQ_E_NOMEM)
        return false;
    bool news = pq_upstream_failed(c->route->upstream, &c->attempt, pq_clock_ns());
    bool more = places_left(c) > 0 && connect_left(c) > 0;
    if (news && more)
        pq_log(PQ_LOG_WARN, "address failed", "route", pq_s(c->route->how->name), "detail", pq_s(detail), NULL);
    return more;
}

static void connect_try(struct pq_connection *c);

static void try_failed(struct pq_connection *c, int e, const char *detail)
{
    struct pq_why why = {""};
    char text[PQ_ADDRESS_TEXT];
    if (!detail[0]) {
        pq_address_text(&c->address[target_side(c)], text);
        pq_why(&why, e, "can't connect to %s: %s", text, pq_error_text(e));
        detail = why.text;
    }
    if (!note_failure(c, e, detail)) {
        connect_failed(c, e, detail);
        return;
    }
    watch(c, target_side(c), 0);
    pq_closep(&c->fd[target_side(c)]);
    connect_try(c);
}

static void connected(struct pq_connection *c)
{
    int fd = c->fd[target_side(c)];
    pq_upstream_worked(c->route->upstream, &c->attempt);
    if (!c->set->config->tcp_nodelay)
        pq_tcp_nodelay(fd, false);
    if (direction(c) == PQ_PROXY_INGRESS)
        pq_tcp_abort_on_close(fd, true);
    enter_next(c);
}

/* An address that does not answer at all leaves the others their share of the time. */
static void connect_try(struct pq_connection *c)
{
    enum pq_relay_side side = target_side(c);
    struct pq_why why = {""};
    if (!next_place(c)) {
        connect_failed(c, PQ_E_NOT_FOUND, "no address is known of where it leads");
        return;
    }
    set_timer(c, (double)connect_left(c) / 1e9 / (double)(places_left(c) + 1));
    int e = pq_tcp_connect(&c->address[side], &c->fd[side], &why);
    if (e == 0)
        connected(c);
    else if (e == PQ_E_WANT_WRITE)
        watch(c, side, PQ_RELAY_WRITE);
    else
        try_failed(c, e, why.text);
}

static void connect_enter(struct pq_connection *c)
{
    c->attempt = (struct pq_upstream_try){.tried = 0};
    connect_try(c);
}

static void connect_ready(struct pq_connection *c, enum pq_relay_side side, unsigned ready)
{
    (void)ready;
    int e = pq_tcp_connected(c->fd[side]);
    watch(c, side, 0);
    if (e == 0)
        connected(c);
    else
        try_failed(c, e, "");
}

static void connect_expired(struct pq_connection *c) { try_failed(c, PQ_E_TIMEOUT, ""); }

/* --- handshake --------------------------------------------------------------------------------------------------- */
static void handshake_expired(struct pq_connection *c)
{
    char detail[128];
    snprintf(detail, sizeof detail, "the peer did not finish the handshake within %.3f s (timeouts.handshake)",
             (double)c->set->config->timeouts.handshake / 1e9);
    end(c, PQ_PROXY_TLS, PQ_TLS_TIMEOUT, detail);
}

static void count_in_flight(struct pq_connection *c, int change)
{
    struct pq_connections *s = c->set;
    if (direction(c) == PQ_PROXY_INGRESS)
        s->judging[c->known] += change;
    pq_metrics_in_flight(s->counters, pq_handshaker_in_flight(s->handshaker));
}

/* What the peer agreed to is a tunnel: this was only its beginning. */
static void become_tunnel(struct pq_connection *c)
{
    struct pq_connections *s = c->set;
    c->took[HANDSHAKE] = pq_clock_ns() - c->phase_started;
    count_handshake(c, PQ_TLS_NONE);
    pq_metrics_became_tunnel(s->counters, direction(c));
    unwatch(c);
    unlink_from_set(c);
    pq_connections_give_place(s);
    pq_tunnel_serve(s, c->route, c->fd[PQ_RELAY_PEER], c->tls, &c->address[PQ_RELAY_PEER]);
    pq_generation_free(c->route->of);
    free(c);
    if (s->closed)
        s->closed(s->context);
}

static bool is_tunnel(const struct pq_connection *c)
{
    return direction(c) == PQ_PROXY_INGRESS && strcmp(pq_tls_info(c->tls)->alpn, PQ_TUNNEL_ALPN) == 0;
}

static bool still_allowed(struct pq_connection *c, enum pq_tls_reason *reason, struct pq_why *why);

static void handshake_finished(struct pq_connection *c)
{
    enum pq_tls_reason reason;
    struct pq_why now_why = {""};
    if (!still_allowed(c, &reason, &now_why)) { /* it began before a reload */
        end_forbidden(c, reason, now_why.text);
        return;
    }
    if (direction(c) == PQ_PROXY_INGRESS)
        pq_admission_authenticated(&c->set->shared->admission, &c->address[PQ_RELAY_PEER], pq_clock_ns());
    if (is_tunnel(c))
        become_tunnel(c);
    else
        enter_next(c);
}

static void handshake_done(struct pq_handshake *h, int e)
{
    struct pq_connection *c = (struct pq_connection *)(void *)((char *)h - offsetof(struct pq_connection, handshake));
    c->tls = h->tls;
    count_in_flight(c, -1);
    if (c->abandoned || e == PQ_E_INTERRUPTED)
        end_plain(c, c->abandoned ? c->why : PQ_PROXY_DRAIN, NULL);
    else if (e == PQ_E_TIMEOUT)
        handshake_expired(c);
    else if (!c->tls)
        end_plain(c, PQ_PROXY_MEMORY, NULL);
    else if (e < 0)
        end_tls(c, e);
    else
        handshake_finished(c);
}

static void handshake_enter(struct pq_connection *c)
{
    const struct pq_strings *peers = &c->route->how->peers;
    c->handshake = (struct pq_handshake){.context = c->route->tls,
                                         .names = peers->count ? peers : NULL,
                                         .fd = c->fd[PQ_RELAY_PEER],
                                         .timeout = c->set->config->timeouts.handshake,
                                         .known = c->known,
                                         .done = handshake_done};
    pq_handshaker_submit(c->set->handshaker, &c->handshake);
    count_in_flight(c, 1);
}

static void handshake_abandon(struct pq_connection *c, enum pq_proxy_end why)
{
    c->abandoned = true;
    c->why = why;
    pq_handshaker_cancel(c->set->handshaker, &c->handshake);
}

/* --- relay ------------------------------------------------------------------------------------------------------- */
static void relay_ended(struct pq_connection *c, int e)
{
    enum pq_proxy_end reset = c->relay.failed == PQ_RELAY_PEER ? PQ_PROXY_RESET_BY_PEER : PQ_PROXY_RESET_BY_LOCAL;
    if (e == PQ_E_CLOSED)
        end_plain(c, PQ_PROXY_END,
                  c->relay.lost ? "the side that closed first did not take all that the other sent" : NULL);
    else if (e == PQ_E_NOMEM)
        end_plain(c, PQ_PROXY_MEMORY, NULL);
    else if (e != PQ_E_RESET && c->relay.failed == PQ_RELAY_PEER)
        end_tls(c, e);
    else
        end_plain(c, reset, NULL);
}

/* False where the connection has ended, and is no more. */
static bool relay_pumped(struct pq_connection *c, enum pq_relay_side side, unsigned ready)
{
    int e = pq_relay_pump(&c->relay, side, ready);
    if (e < 0) {
        relay_ended(c, e);
        return false;
    }
    if (c->progress != c->relay.progress) {
        c->active = pq_clock_ns();
        count_bytes(c);
        if (!c->judged && c->relay.flow[PQ_RELAY_PEER].bytes)
            count_handshake(c, PQ_TLS_NONE);
    }
    c->progress = c->relay.progress;
    return true;
}

static void relay_watch(struct pq_connection *c)
{
    watch(c, PQ_RELAY_LOCAL, pq_relay_wants(&c->relay, PQ_RELAY_LOCAL));
    watch(c, PQ_RELAY_PEER, pq_relay_wants(&c->relay, PQ_RELAY_PEER));
}

static void relay_ready(struct pq_connection *c, enum pq_relay_side side, unsigned ready)
{
    if (!relay_pumped(c, side, ready))
        return;
    relay_watch(c);
    /* Once: events that come more often than the timer fires would put it off for ever. */
    if (!c->lingers && pq_relay_lingers(&c->relay)) {
        c->lingers = true;
        set_timer(c, LINGER_STEP);
    }
}

static void relay_enter(struct pq_connection *c)
{
    pq_metrics_established(c->set->counters, direction(c));
    pq_relay_init(&c->relay, c->fd[PQ_RELAY_LOCAL], c->fd[PQ_RELAY_PEER], c->tls, &c->set->pool);
    relay_ready(c, PQ_RELAY_PEER, 0);
}

/* The timer is not touched for each event, only when it fires: then it is set for what is left of the idle time. */
static void relay_expired(struct pq_connection *c)
{
    /* After a stop of this process, or of the host, time is up before what came meanwhile was looked at. */
    if (!relay_pumped(c, PQ_RELAY_LOCAL, PQ_RELAY_READ | PQ_RELAY_WRITE) ||
        !relay_pumped(c, PQ_RELAY_PEER, PQ_RELAY_READ | PQ_RELAY_WRITE))
        return;
    double idle = (double)c->set->config->timeouts.idle / 1e9;
    double left = idle - (double)(pq_clock_ns() - c->active) / 1e9;
    if (idle > 0 && left <= 0) {
        end_plain(c, PQ_PROXY_IDLE, NULL);
        return;
    }
    relay_watch(c);
    c->lingers = pq_relay_lingers(&c->relay);
    if (c->lingers)
        set_timer(c, idle > 0 && left < LINGER_STEP ? left : LINGER_STEP);
    else if (idle > 0)
        set_timer(c, left);
}

/* --- phases ------------------------------------------------------------------------------------------------------ */
#define TIMEOUT(name) offsetof(struct pq_proxy_config, timeouts.name)

static const struct {
    const char *name;
    void (*enter)(struct pq_connection *c);
    void (*ready)(struct pq_connection *c, enum pq_relay_side side, unsigned ready);
    size_t timeout; /* where in the configuration; 0: none, or watched elsewhere */
    void (*expired)(struct pq_connection *c);
} phases[] = {
    [CONNECT] = {"connect", connect_enter, connect_ready, TIMEOUT(connect), connect_expired},
    [HANDSHAKE] = {"handshake", handshake_enter, NULL, 0, NULL}, /* the handshaker has the descriptor */
    [RELAY] = {"relay", relay_enter, relay_ready, TIMEOUT(idle), relay_expired},
};
static const enum phase first_phase[] = {[PQ_PROXY_INGRESS] = HANDSHAKE, [PQ_PROXY_EGRESS] = CONNECT};
static const enum phase next_phase[][ENDED] = {
    [PQ_PROXY_INGRESS] = {[HANDSHAKE] = CONNECT, [CONNECT] = RELAY, [RELAY] = ENDED},
    [PQ_PROXY_EGRESS] = {[CONNECT] = HANDSHAKE, [HANDSHAKE] = RELAY, [RELAY] = ENDED},
};

static void enter(struct pq_connection *c, enum phase phase)
{
    size_t at = phases[phase].timeout;
    int64_t timeout = at ? *(const int64_t *)(const void *)((const char *)c->set->config + at) : 0;
    c->phase = phase;
    c->phase_started = pq_clock_ns();
    c->active = pq_clock_ns();
    ev_timer_stop(c->set->loop, &c->timer);
    if (timeout)
        set_timer(c, (double)timeout / 1e9);
    if (pq_log_on(PQ_LOG_DEBUG))
        pq_log(PQ_LOG_DEBUG, "connection state", "route", pq_s(c->route->how->name), "state", pq_s(phases[phase].name),
               "descriptor", pq_i(c->fd[target_side(c) == PQ_RELAY_LOCAL ? PQ_RELAY_PEER : PQ_RELAY_LOCAL]), NULL);
    phases[phase].enter(c);
}

static void enter_next(struct pq_connection *c)
{
    c->took[c->phase] = pq_clock_ns() - c->phase_started;
    if (c->phase == CONNECT)
        pq_metrics_connected(c->set->counters, direction(c), c->took[CONNECT]);
    else if (c->phase == HANDSHAKE && direction(c) == PQ_PROXY_INGRESS)
        count_handshake(c, PQ_TLS_NONE);
    enter(c, next_phase[direction(c)][c->phase]);
}

/* --- what there is ----------------------------------------------------------------------------------------------- */
static int tell_of(const struct pq_connection *c, struct pq_buf *out)
{
    const struct pq_connections *s = c->set;
    /* Until it has ended, the handshake is its thread's. */
    bool secured = c->tls && c->phase != HANDSHAKE;
    const struct pq_row row = {.kind = "connection",
                               .worker = (size_t)(s->slot - s->shared->worker),
                               .id = c->id,
                               .route = c->route->how->name,
                               .direction = pq_proxy_direction_names[direction(c)],
                               .state = phases[c->phase].name,
                               .local = &c->address[PQ_RELAY_LOCAL],
                               .peer = &c->address[PQ_RELAY_PEER],
                               .tls = secured ? pq_tls_info(c->tls) : NULL,
                               .bytes_up = c->relay.flow[PQ_RELAY_LOCAL].bytes,
                               .bytes_down = c->relay.flow[PQ_RELAY_PEER].bytes,
                               .age_ns = pq_clock_ns() - c->started,
                               .idle_s = (double)(pq_clock_ns() - c->active) / 1e9};
    return pq_row_write(&row, out);
}

void pq_connections_list(struct pq_connections *s)
{
    s->listed = s->first;
    pq_tunnel_list(s);
}

int pq_connections_rows(struct pq_connections *s, size_t most, struct pq_buf *out)
{
    for (; s->listed && most; most--) {
        TRY(tell_of(s->listed, out));
        s->listed = s->listed->next;
    }
    return s->listed || !most ? 0 : pq_tunnel_rows(s, most, out);
}

static void on_io(struct ev_loop *loop, ev_io *w, int revents)
{
    (void)loop;
    struct pq_connection *c = w->data;
    enum pq_relay_side side = w == &c->io[PQ_RELAY_LOCAL] ? PQ_RELAY_LOCAL : PQ_RELAY_PEER;
    phases[c->phase].ready(c, side,
                           (revents & EV_READ ? PQ_RELAY_READ : 0) | (revents & EV_WRITE ? PQ_RELAY_WRITE : 0));
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)loop, (void)revents;
    struct pq_connection *c = w->data;
    phases[c->phase].expired(c);
}

/* --- a new generation -------------------------------------------------------------------------------------------- */
/* Where its listener is gone, it goes by the rules that it began with. */
static bool still_allowed(struct pq_connection *c, enum pq_tls_reason *reason, struct pq_why *why)
{
    struct pq_generation *now = c->set->generation;
    if (!now || !c->route->of || c->route->of == now)
        return true;
    struct pq_route *route = pq_generation_route(now, c->route->how);
    if (!route)
        return true;
    const struct pq_strings *peers = &route->how->peers;
    if (pq_tls_recheck(c->tls, route->tls, peers->count ? peers : NULL, reason, why) < 0)
        return false;
    pq_generation_take_route(&c->route, route);
    return true;
}

static void recheck(struct pq_connections *s, struct pq_connection *c)
{
    enum pq_tls_reason reason;
    struct pq_why why = {""};
    if (!c->tls)
        return; /* once its handshake is done */
    if (still_allowed(c, &reason, &why)) {
        pq_doom_lift(&c->doom, c->set->loop);
        return;
    }
    s->forbidden++;
    double grace = (double)s->config->timeouts.grace / 1e9;
    if (pq_doom_set(&c->doom, s->loop, grace, reason, why.text, end_forbidden, c) < 0)
        end_forbidden(c, reason, why.text);
}

static void on_recheck(struct ev_loop *loop, ev_timer *timer, int revents)
{
    (void)revents;
    struct pq_connections *s = timer->data;
    for (int i = 0; s->rechecked && i < RECHECKED_A_TURN; i++) {
        struct pq_connection *c = s->rechecked;
        s->rechecked = c->next;
        recheck(s, c);
    }
    if (s->rechecked)
        return;
    ev_timer_stop(loop, timer);
    if (s->forbidden)
        pq_log(PQ_LOG_WARN, "connections no longer allowed", "connections", pq_i(s->forbidden), "grace_s",
               pq_f((double)s->config->timeouts.grace / 1e9), "generation", pq_i((int64_t)s->generation->number), NULL);
}

void pq_connections_use(struct pq_connections *s, struct pq_generation *g)
{
    s->generation = g;
    s->config = &g->config;
    pq_ring_pool_resize(&s->pool, (size_t)g->config.limits.buffer);
    s->rechecked = s->first;
    s->forbidden = 0;
    ev_timer_stop(s->loop, &s->recheck);
    ev_timer_set(&s->recheck, 0., 0.001);
    ev_timer_start(s->loop, &s->recheck);
}

/* --- the set ----------------------------------------------------------------------------------------------------- */
int pq_connections_init(struct pq_connections *s, struct ev_loop *loop, const struct pq_proxy_config *config,
                        struct pq_shared *shared, size_t slot, struct pq_why *why)
{
    *s = (struct pq_connections){.loop = loop,
                                 .config = config,
                                 .pool = {.size = (size_t)config->limits.buffer},
                                 .shared = shared,
                                 .slot = &shared->worker[slot],
                                 .counters = &shared->worker[slot].counters};
    ev_init(&s->recheck, on_recheck);
    s->recheck.data = s;
    pq_refusals_init(&s->refusals, loop, s->counters);
    return pq_handshaker_new(loop, &s->handshaker, why);
}

void pq_connections_end(struct pq_connections *s, enum pq_proxy_end why)
{
    for (struct pq_connection *c = s->first; c; c = c->next)
        if (c->phase == HANDSHAKE)
            handshake_abandon(c, why);
    if (s->handshaker)
        pq_handshaker_settle(s->handshaker);
    while (s->first)
        end_plain(s->first, why, NULL);
    pq_tunnel_end_all(s, why);
}

void pq_connections_free(struct pq_connections *s)
{
    pq_tunnel_free_all(s);
    pq_handshaker_free(s->handshaker);
    ev_timer_stop(s->loop, &s->recheck);
    pq_refusals_stop(&s->refusals);
    pq_ring_pool_free(&s->pool);
}

/* Whether a peer may start a handshake. Strangers get three quarters of the places, so that known addresses always find
 * some. Our own function's connections are no handshake of somebody else's making. */
static bool admit(struct pq_connections *s, const struct pq_route *route, const struct pq_address *from, bool *known,
                  enum pq_proxy_end *why)
{
    int64_t most = s->config->limits.handshakes, strangers = most - most / 4;
    struct pq_admission_rates rates = {s->config->limits.handshakes_per_source, s->config->limits.strangers};
    *known = true;
    if (route->how->direction == PQ_PROXY_EGRESS)
        return true;
    enum pq_admission asked = pq_admission_ask(&s->shared->admission, &rates, from, pq_clock_ns());
    *known = asked == PQ_ADMIT_KNOWN;
    *why = asked == PQ_REFUSE_SOURCE      ? PQ_PROXY_SOURCE_RATE
           : asked == PQ_REFUSE_STRANGERS ? PQ_PROXY_STRANGER_RATE
                                          : PQ_PROXY_HANDSHAKES;
    return (asked == PQ_ADMIT_KNOWN || asked == PQ_ADMIT_STRANGER) && s->judging[0] + s->judging[1] < most &&
           (*known || s->judging[0] < strangers);
}

static void link_to_set(struct pq_connection *c)
{
    struct pq_connections *s = c->set;
    c->next = s->first;
    c->link = &s->first;
    c->id = ++s->ids;
    if (s->first)
        s->first->link = &c->next;
    s->first = c;
    s->count++;
}

/* Taken before it is counted: two that take the last one at once may both go without, but never both get it. */
bool pq_connections_take_place(struct pq_connections *s)
{
    s->slot->open++;
    if (pq_shared_open(s->shared) <= s->config->limits.connections)
        return true;
    s->slot->open--;
    return false;
}

void pq_connections_give_place(struct pq_connections *s) { s->slot->open--; }

static void refuse(struct pq_connections *s, const struct pq_route *route, int fd, const struct pq_address *from,
                   enum pq_proxy_end why)
{
    pq_refuse(&s->refusals, route->how, fd, from, why, pq_shared_open(s->shared));
}

/* A rule that redirects the proxy's own connections leads each of them back here, as the client of another one. */
static bool is_own(const struct pq_connections *s, const struct pq_address *from, const struct pq_address *target)
{
    int left = OWN_LOOKED_AT;
    for (const struct pq_connection *c = s->first; c && left--; c = c->next) {
        if (!c->route->how->transparent || c->phase > HANDSHAKE || c->fd[PQ_RELAY_PEER] < 0 ||
            !pq_address_equal(target, &c->address[PQ_RELAY_PEER]))
            continue;
        struct pq_address local = pq_address_local(c->fd[PQ_RELAY_PEER]);
        if (pq_address_equal(from, &local))
            return true;
    }
    return false;
}

static bool find_target(const struct pq_connections *s, const struct pq_route *route, int fd,
                        const struct pq_address *from, struct pq_address *target, enum pq_proxy_end *why)
{
    *target = *pq_proxy_target_first(&route->how->target); /* what the log shows until one was tried */
    if (!route->how->transparent)
        return true;
    if (!pq_transparent_target(route->how, fd, target, why))
        return false;
    *why = PQ_PROXY_LOOP;
    return !is_own(s, from, target);
}

static void carry_alone(struct pq_connections *s, struct pq_route *route, int fd, const struct pq_address *from,
                        const struct pq_address *target, bool known)
{
    struct pq_connection *c = calloc(1, sizeof *c);
    if (!c) {
        pq_connections_give_place(s);
        refuse(s, route, fd, from, PQ_PROXY_MEMORY);
        return;
    }
    *c = (struct pq_connection){.set = s, .route = route, .known = known, .started = pq_clock_ns(), .fd = {-1, -1}};
    enum pq_relay_side from_side = target_side(c) == PQ_RELAY_LOCAL ? PQ_RELAY_PEER : PQ_RELAY_LOCAL;
    c->fd[from_side] = fd;
    c->address[from_side] = *from;
    c->address[target_side(c)] = *target;
    for (int i = 0; i < 2; i++) {
        ev_init(&c->io[i], on_io);
        c->io[i].data = c;
    }
    ev_init(&c->timer, on_timer);
    c->timer.data = c;
    pq_generation_keep(route->of);
    link_to_set(c);
    enter(c, first_phase[direction(c)]);
}

void pq_connection_carry_alone(struct pq_connections *s, struct pq_route *route, int fd, const struct pq_address *from)
{
    carry_alone(s, route, fd, from, pq_proxy_target_first(&route->how->target), true);
}

/* False where it is to be carried alone. */
static bool carry_in_tunnel(struct pq_connections *s, struct pq_route *route, int fd, const struct pq_address *from)
{
    int e = route->tunnels ? pq_tunnels_carry(route->tunnels, fd, from) : PQ_E_UNSUPPORTED;
    if (e == PQ_E_NOMEM) {
        pq_connections_give_place(s);
        refuse(s, route, fd, from, PQ_PROXY_MEMORY);
    }
    return e == 0 || e == PQ_E_NOMEM;
}

static bool let_in(struct pq_connections *s, const struct pq_route *route, int fd, const struct pq_address *from,
                   struct pq_address *target, bool *known, enum pq_proxy_end *why)
{
    if (!admit(s, route, from, known, why) || !find_target(s, route, fd, from, target, why))
        return false;
    *why = PQ_PROXY_LIMIT;
    return pq_connections_take_place(s);
}

void pq_connection_accept(struct pq_connections *s, struct pq_route *route, int fd, const struct pq_address *from)
{
    struct pq_address target;
    enum pq_proxy_end why;
    bool known;
    pq_metrics_accepted(s->counters, route->how->direction);
    if (!let_in(s, route, fd, from, &target, &known, &why)) {
        refuse(s, route, fd, from, why);
        return;
    }
    if (!s->config->tcp_nodelay)
        pq_tcp_nodelay(fd, false);
    if (route->how->direction == PQ_PROXY_EGRESS)
        pq_tcp_abort_on_close(fd, true);
    if (!carry_in_tunnel(s, route, fd, from))
        carry_alone(s, route, fd, from, &target, known);
}
