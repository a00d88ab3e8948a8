#include "proxy/tunnel_parts.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "proxy/closing.h"

enum {
    ROUNDS_MAX = 4,      /* of a pump, before other connections get their turn */
    READS_MAX = 4,       /* of PQ_TUNNEL_IN bytes each */
    CAME_MOST = 1 << 20, /* bytes that came before nghttp2 is told to open the connection's window again */
    LOST_SHOWN = 8,      /* addresses of lost connections in a tunnel's line */
};
#define NOTICE  1. /* seconds between the first GOAWAY and the last: what was on its way meanwhile is still served */
#define CLOSING 5. /* seconds for the peer's end of stream after ours */

const char *const pq_tunnel_state_names[] = {"connecting", "handshake", "proving", "open",
                                             "draining",   "closing",   "ended",   NULL};

static enum pq_proxy_direction direction(const struct pq_tunnel *t) { return t->route->how->direction; }
static struct ev_loop *loop_of(const struct pq_tunnel *t) { return t->loop->set->loop; }

/* --- its life ----------------------------------------------------------------------------------------------------- */
static void on_io(struct ev_loop *loop, ev_io *w, int revents);

int pq_tunnel_new(struct pq_tunnel_loop *l, struct pq_route *route, struct pq_tunnels *owner, struct pq_tunnel **out)
{
    struct pq_tunnel *t = calloc(1, sizeof *t);
    if (!t)
        return PQ_E_NOMEM;
    *t = (struct pq_tunnel){.loop = l,
                            .route = route,
                            .owner = owner,
                            .id = ++l->last_id,
                            .fd = -1,
                            .can_read = true,
                            .can_write = true,
                            .read_on = PQ_RELAY_READ,
                            .write_on = PQ_RELAY_WRITE,
                            .started = pq_clock_ns(),
                            .calm = {.left = PQ_TUNNEL_CALM, .at = l->now}};
    TAILQ_INIT(&t->touched);
    TAILQ_INIT(&t->gone);
    ev_init(&t->io, on_io);
    ev_init(&t->timer, NULL);
    t->io.data = t->timer.data = t;
    pq_generation_keep(route->of);
    TAILQ_INSERT_TAIL(&l->tunnels, t, of_loop);
    l->tunnel_count++;
    *out = t;
    return 0;
}

void pq_tunnel_set_timer(struct pq_tunnel *t, double after, void (*expired)(struct ev_loop *, ev_timer *, int))
{
    ev_timer_stop(loop_of(t), &t->timer);
    if (!expired)
        return;
    ev_set_cb(&t->timer, expired);
    ev_timer_set(&t->timer, after, 0.);
    ev_timer_start(loop_of(t), &t->timer);
}

void pq_tunnel_watch(struct pq_tunnel *t, unsigned wants)
{
    if (t->watched == wants)
        return;
    ev_io_stop(loop_of(t), &t->io);
    ev_io_set(&t->io, t->fd, (wants & PQ_RELAY_READ ? EV_READ : 0) | (wants & PQ_RELAY_WRITE ? EV_WRITE : 0));
    if (wants)
        ev_io_start(loop_of(t), &t->io);
    t->watched = wants;
}

void pq_tunnel_touch(struct pq_tunnel *t)
{
    if (t->dirty || !t->h2)
        return;
    t->dirty = true;
    TAILQ_INSERT_TAIL(&t->loop->dirty, t, of_dirty);
}

static void log_closed(const struct pq_tunnel *t, enum pq_proxy_end why, const char *detail)
{
    struct pq_address local = t->fd < 0 ? (struct pq_address){.len = 0} : pq_address_local(t->fd);
    char text[700];
    if (t->lost)
        snprintf(text, sizeof text, "%s%s%lld local connections died with it: %s", detail ? detail : "",
                 detail ? "; " : "", (long long)t->lost, t->lost_text);
    else
        snprintf(text, sizeof text, "%s", detail ? detail : "");
    pq_closing_log(&(struct pq_closing){.event = "tunnel closed",
                                        .level = t->lost ? PQ_LOG_WARN : pq_proxy_end_level(why),
                                        .how = t->route->how,
                                        .local = &local,
                                        .peer = &t->peer,
                                        .tls = t->tls,
                                        .tunnel = t->id,
                                        .connect_ns = t->took_connect,
                                        .handshake_ns = t->took_handshake,
                                        .started = t->started,
                                        .up = t->up,
                                        .down = t->down,
                                        .reason = pq_proxy_end_label(why),
                                        .detail = text[0] ? text : NULL});
}

static void note_lost(struct pq_tunnel *t, const struct pq_carried *s)
{
    char text[PQ_ADDRESS_TEXT];
    struct pq_address a = pq_carried_address(s);
    size_t len = strlen(t->lost_text);
    pq_address_text(&a, text);
    if (t->lost < LOST_SHOWN)
        snprintf(t->lost_text + len, sizeof t->lost_text - len, "%s%s", len ? " " : "", text);
    else if (t->lost == LOST_SHOWN)
        snprintf(t->lost_text + len, sizeof t->lost_text - len, " ...");
}

/* Every stream of it: those that are complete, or only deliver what came, go on alone. */
static void lose_streams(struct pq_tunnel *t, enum pq_proxy_end why, const char *detail)
{
    struct pq_carried *next;
    for (struct pq_carried *s = TAILQ_FIRST(&t->loop->streams); s; s = next) {
        next = TAILQ_NEXT(s, of_loop);
        if (s->tunnel != t)
            continue;
        if (s->id) {
            int64_t before = t->lost;
            if (why == PQ_PROXY_DRAIN || why == PQ_PROXY_NOT_ALLOWED)
                pq_carried_fail(s, why, 0, detail);
            pq_carried_closed(s, NGHTTP2_NO_ERROR, true);
            if (t->lost > before) {
                t->lost = before;
                note_lost(t, s);
                t->lost = before + 1;
            }
        }
        if (pq_carried_step(s)) {
            pq_carried_leave(s);
            pq_carried_watch(s);
        }
    }
    while ((next = TAILQ_FIRST(&t->gone)))
        pq_carried_closed(next, NGHTTP2_NO_ERROR, true);
}

static void free_tunnel(struct pq_tunnel *t)
{
    struct pq_tunnel_loop *l = t->loop;
    if (t->dirty)
        TAILQ_REMOVE(&l->dirty, t, of_dirty);
    pq_tunnel_unlist(t);
    TAILQ_REMOVE(&l->tunnels, t, of_loop);
    l->tunnel_count--;
    pq_generation_free(t->route->of);
    pq_doom_lift(&t->doom, l->set->loop);
    free(t->out.at);
    free(t);
}

static void close_socket(struct pq_tunnel *t, bool orderly)
{
    if (t->fd < 0)
        return;
    if (!orderly)
        pq_tcp_abort_on_close(t->fd, true);
    close(t->fd);
    t->fd = -1;
}

void pq_tunnel_end(struct pq_tunnel *t, enum pq_proxy_end why, const char *detail)
{
    struct pq_connections *set = t->loop->set;
    bool was_open = t->state >= PQ_TUNNEL_OPEN;
    t->state = PQ_TUNNEL_ENDED;
    pq_tunnel_watch(t, 0);
    pq_tunnel_set_timer(t, 0, NULL);
    lose_streams(t, why, detail);
    if (was_open) {
        log_closed(t, why, detail);
        pq_metrics_tunnel_ended(set->counters, direction(t),
                                why != PQ_PROXY_END && why != PQ_PROXY_DRAIN && why != PQ_PROXY_NOT_ALLOWED);
    }
    nghttp2_session_del(t->h2);
    t->h2 = NULL;
    pq_tls_free(t->tls);
    close_socket(t, why == PQ_PROXY_END);
    if (t->owner)
        pq_tunnels_ended(t, why, detail);
    free_tunnel(t);
    if (set->closed)
        set->closed(set->context);
}

void pq_tunnel_end_tls(struct pq_tunnel *t, int e)
{
    enum pq_tls_reason reason = t->tls ? pq_tls_reason(t->tls) : PQ_TLS_NONE;
    if (t->state == PQ_TUNNEL_PROVING && e != PQ_E_NOMEM)
        pq_tunnels_unproven(t, e);
    else if (e == PQ_E_NOMEM)
        pq_tunnel_end(t, PQ_PROXY_MEMORY, NULL);
    else if (e == PQ_E_RESET || reason == PQ_TLS_NONE || reason == PQ_TLS_RESET)
        pq_tunnel_end(t, PQ_PROXY_RESET_BY_PEER, NULL);
    else
        pq_tunnel_end(t, PQ_PROXY_TLS, pq_tls_failure(t->tls));
}

/* --- open ----------------------------------------------------------------------------------------------------------
 */
void pq_tunnel_opened(struct pq_tunnel *t)
{
    static const struct pq_tls_info nothing = {
        .group = "", .signature = "", .own_signature = "", .cipher = "", .peer = ""};
    const struct pq_tls_info *i = t->tls ? pq_tls_info(t->tls) : &nothing;
    char peer[PQ_ADDRESS_TEXT];
    pq_address_text(&t->peer, peer);
    pq_metrics_tunnel_opened(t->loop->set->counters, direction(t));
    pq_log(PQ_LOG_INFO, "tunnel opened", "route", pq_s(t->route->how->name), "direction",
           pq_s(pq_proxy_direction_names[direction(t)]), "tunnel", pq_i(t->id), "peer", pq_s(peer), "peer_name",
           pq_s(i->peer), "group", pq_s(i->group), "signature", pq_s(i->signature), "own_signature",
           pq_s(i->own_signature), "cipher", pq_s(i->cipher), "resumed", pq_i(i->resumed), "connect_ms",
           pq_f((double)t->took_connect / 1e6), "handshake_ms", pq_f((double)t->took_handshake / 1e6),
           "handshake_cpu_ms", pq_f((double)i->cpu_ns / 1e6), NULL);
}

bool pq_tunnel_takes_streams(const struct pq_tunnel *t)
{
    return t->state == PQ_TUNNEL_OPEN &&
           t->streams < (int64_t)nghttp2_session_get_remote_settings(t->h2, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */
/* nghttp2 refused what came, or we did. What was queued for the peer (GOAWAY) still leaves if the socket takes it. */
static void refuse(struct pq_tunnel *t, int error)
{
    char detail[160];
    enum pq_proxy_end why = PQ_PROXY_TUNNEL_PROTOCOL;
    if (error == NGHTTP2_ERR_NOMEM || t->starved) {
        pq_tunnel_end(t, PQ_PROXY_MEMORY, NULL);
        return;
    }
    if (t->calm.broken || error == NGHTTP2_ERR_FLOODED || error == NGHTTP2_ERR_TOO_MANY_CONTINUATIONS) {
        why = PQ_PROXY_TUNNEL_FLOOD;
        snprintf(detail, sizeof detail, "the peer sends more %s frames than the streams need",
                 t->calm.broken                 ? t->calm.broken
                 : error == NGHTTP2_ERR_FLOODED ? "PING or SETTINGS"
                                                : "CONTINUATION");
        nghttp2_session_terminate_session(t->h2, NGHTTP2_ENHANCE_YOUR_CALM);
    } else {
        snprintf(detail, sizeof detail, "the peer breaks RFC 9113: %s", nghttp2_strerror(error));
        nghttp2_session_terminate_session(t->h2, NGHTTP2_PROTOCOL_ERROR);
    }
    pq_tunnel_last_words(t);
    pq_metrics_tunnel_refused(t->loop->set->counters, direction(t), why, PQ_TLS_NONE);
    pq_tunnel_end(t, why, detail);
}

static void read_failed(struct pq_tunnel *t, int e)
{
    bool said_all = t->streams == 0 && t->state != PQ_TUNNEL_PROVING;
    if (said_all && (e == PQ_E_CLOSED || (e == PQ_E_RESET && t->state >= PQ_TUNNEL_DRAINING)))
        pq_tunnel_end(t, PQ_PROXY_END, NULL);
    else if (e == PQ_E_CLOSED && t->state != PQ_TUNNEL_PROVING)
        pq_tunnel_end(t, PQ_PROXY_RESET_BY_PEER, "the peer closed it before its streams had ended");
    else
        pq_tunnel_end_tls(t, e);
}

static int read_some(struct pq_tunnel *t, uint8_t *at, size_t room, size_t *n)
{
    int e = t->tls ? pq_tls_read(t->tls, at, room, n) : pq_tcp_read(t->fd, at, room, n);
    /* Less than a record, and nothing behind it: probably drained. If not, the loop says so at once. */
    if (e == 0 && *n < PQ_TLS_RECORD && !(t->tls && pq_tls_pending(t->tls)))
        t->can_read = false;
    if (e != PQ_E_WANT_READ && e != PQ_E_WANT_WRITE)
        return e;
    t->can_read = false;
    t->read_on = e == PQ_E_WANT_WRITE ? PQ_RELAY_WRITE : PQ_RELAY_READ;
    return e;
}

static bool feed(struct pq_tunnel *t, size_t len)
{
    if (t->state == PQ_TUNNEL_CLOSING)
        return true;
    nghttp2_ssize used = nghttp2_session_mem_recv2(t->h2, t->loop->in, len);
    pq_carried_gathered(t->loop);
    if (t->came >= CAME_MOST) {
        t->starved |= nghttp2_session_consume_connection(t->h2, t->came) < 0;
        t->came = 0;
    }
    t->heard = t->loop->now;
    t->asked = 0;
    if (used >= 0 && !t->starved)
        return true;
    refuse(t, used < 0 ? (int)used : NGHTTP2_ERR_NOMEM);
    return false;
}

/* False where the tunnel has ended. */
static bool read_turn(struct pq_tunnel *t)
{
    for (int i = 0; i < READS_MAX && t->can_read; i++) {
        size_t len = 0, n = 0;
        int e = 0;
        for (; e == 0 && t->can_read && len + PQ_TLS_RECORD <= PQ_TUNNEL_IN; len += n) {
            n = 0;
            e = read_some(t, t->loop->in + len, PQ_TUNNEL_IN - len, &n);
        }
        if (len && !feed(t, len))
            return false;
        if (e < 0 && e != PQ_E_WANT_READ && e != PQ_E_WANT_WRITE) {
            read_failed(t, e);
            return false;
        }
    }
    return true;
}

/* --- sending ------------------------------------------------------------------------------------------------------ */
static int borrow_out(struct pq_tunnel *t)
{
    if (t->out.at)
        return 0;
    t->out.at = t->loop->spare ? TAKE(t->loop->spare) : malloc(PQ_TUNNEL_OUT + PQ_TUNNEL_OUT_SPARE);
    return t->out.at ? 0 : PQ_E_NOMEM;
}

static void return_out(struct pq_tunnel *t)
{
    t->out.len = t->out.sent = 0;
    if (t->loop->spare)
        free(t->out.at);
    else
        t->loop->spare = t->out.at;
    t->out.at = NULL;
}

static int collect(struct pq_tunnel *t)
{
    TRY(borrow_out(t));
    t->round++;
    t->more = false;
    while (t->out.len < PQ_TUNNEL_OUT) {
        const uint8_t *bytes;
        nghttp2_ssize n = nghttp2_session_mem_send2(t->h2, &bytes);
        if (n < 0)
            return n == NGHTTP2_ERR_NOMEM ? PQ_E_NOMEM : PQ_E_PROTOCOL;
        if (n == 0)
            return 0;
        if ((size_t)n > PQ_TUNNEL_OUT + PQ_TUNNEL_OUT_SPARE - t->out.len) /* we submit no head as long as that */
            return PQ_E_TOO_LONG;
        memcpy(t->out.at + t->out.len, bytes, (size_t)n);
        t->out.len += (size_t)n;
    }
    t->more = true;
    return 0;
}

/* 0 also where the socket takes no more now. */
static int write_out(struct pq_tunnel *t)
{
    while (t->out.sent < t->out.len) {
        const uint8_t *at = t->out.at + t->out.sent;
        size_t len = t->out.len - t->out.sent, n = 0;
        int e = t->tls ? pq_tls_write(t->tls, at, len, &n) : pq_tcp_write(t->fd, at, len, &n);
        if (e == PQ_E_WANT_READ || e == PQ_E_WANT_WRITE) {
            t->can_write = false;
            t->write_on = e == PQ_E_WANT_READ ? PQ_RELAY_READ : PQ_RELAY_WRITE;
            return 0;
        }
        TRY(e);
        t->out.sent += n;
    }
    return_out(t);
    return 0;
}

void pq_tunnel_last_words(struct pq_tunnel *t)
{
    /* The end comes anyway, said or not. */
    if (t->can_write && collect(t) == 0 && write_out(t) < 0)
        t->can_write = false;
}

static void step_touched(struct pq_tunnel *t)
{
    struct pq_carried *next;
    for (struct pq_carried *s = TAILQ_FIRST(&t->touched); s; s = next) {
        next = TAILQ_NEXT(s, of_touched);
        (void)pq_carried_step(s);
    }
}

/* Those that have more to give stay for the next pump. */
static void watch_touched(struct pq_tunnel *t)
{
    struct pq_carried *next;
    for (struct pq_carried *s = TAILQ_FIRST(&t->touched); s; s = next) {
        next = TAILQ_NEXT(s, of_touched);
        if (s->news && !pq_carried_step(s)) /* what sending brought */
            continue;
        pq_carried_watch(s);
        if (s->id && !s->done && s->deferred && s->can_read && s->out == PQ_FLOW_OPEN) {
            t->more = true;
            continue;
        }
        TAILQ_REMOVE(&t->touched, s, of_touched);
        s->touched = false;
        if (!s->id)
            pq_carried_leave(s);
    }
}

static void on_closing_over(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)loop, (void)revents;
    pq_tunnel_end(w->data, PQ_PROXY_END, "the peer did not close it");
}

/* close_notify, then FIN: once, when the socket takes it. */
static void say_last(struct pq_tunnel *t)
{
    int e = t->tls ? pq_tls_close_notify(t->tls) : 0;
    if (e == PQ_E_WANT_READ || e == PQ_E_WANT_WRITE) {
        t->can_write = false;
        t->write_on = e == PQ_E_WANT_READ ? PQ_RELAY_READ : PQ_RELAY_WRITE;
        return;
    }
    t->said_last = true;
    shutdown(t->fd, SHUT_WR);
}

static void close_orderly(struct pq_tunnel *t)
{
    t->state = PQ_TUNNEL_CLOSING;
    pq_tunnel_set_timer(t, CLOSING, on_closing_over);
    if (t->owner)
        pq_tunnels_changed(t);
}

static int pump_rounds(struct pq_tunnel *t)
{
    for (int i = 0; i < ROUNDS_MAX && t->state != PQ_TUNNEL_CLOSING; i++) {
        step_touched(t);
        if (!t->can_write)
            return 0;
        if (t->out.len == 0 && nghttp2_session_want_write(t->h2))
            TRY(collect(t));
        if (t->out.len == 0) {
            if (t->out.at)
                return_out(t);
            return 0;
        }
        TRY(write_out(t));
        if (!t->more)
            return 0;
    }
    return 0;
}

/* False where the tunnel has ended. */
static bool look_for_end(struct pq_tunnel *t)
{
    char detail[160];
    if (t->state == PQ_TUNNEL_CLOSING) {
        if (!t->said_last && t->can_write)
            say_last(t);
        return true;
    }
    bool goaway = t->goaway_came || t->said_goaway; /* without one there is always something to come */
    if (!goaway || t->out.len || nghttp2_session_want_read(t->h2) || nghttp2_session_want_write(t->h2))
        return true;
    if (t->said_error || t->goaway) {
        bool flood = t->said_error == NGHTTP2_ENHANCE_YOUR_CALM;
        snprintf(detail, sizeof detail, "%s: %s", t->said_error ? "the peer breaks RFC 9113" : "the peer gave it up",
                 nghttp2_http2_strerror(t->said_error ? t->said_error : t->goaway));
        pq_tunnel_end(t, flood ? PQ_PROXY_TUNNEL_FLOOD : PQ_PROXY_TUNNEL_PROTOCOL, detail);
        return false;
    }
    close_orderly(t);
    say_last(t);
    return true;
}

bool pq_tunnel_pump(struct pq_tunnel *t)
{
    if (t->can_read && !read_turn(t))
        return false;
    if (t->state == PQ_TUNNEL_PROVING && t->settings_came)
        pq_tunnels_opened(t);
    if (t->goaway_came && t->state == PQ_TUNNEL_OPEN) {
        t->state = PQ_TUNNEL_DRAINING;
        if (t->owner)
            pq_tunnels_changed(t);
    }
    int e = pump_rounds(t);
    if (t->starved)
        e = PQ_E_NOMEM;
    if (e < 0) { /* what it sent before it went, and why, is still to be read */
        t->can_read = true;
        if (read_turn(t))
            pq_tunnel_end_tls(t, e);
        return false;
    }
    watch_touched(t);
    if (!look_for_end(t))
        return false;
    if (t->room && t->owner) {
        t->room = false;
        pq_tunnels_changed(t);
    }
    bool waits = t->out.len || (t->state == PQ_TUNNEL_CLOSING && !t->said_last);
    pq_tunnel_watch(t, t->read_on | (waits ? t->write_on : 0));
    return true;
}

bool pq_tunnel_wants_pump(const struct pq_tunnel *t)
{
    if (t->can_read)
        return true;
    return t->can_write && t->state != PQ_TUNNEL_CLOSING &&
           (t->more || !TAILQ_EMPTY(&t->touched) || nghttp2_session_want_write(t->h2));
}

static void on_io(struct ev_loop *loop, ev_io *w, int revents)
{
    (void)loop;
    struct pq_tunnel *t = w->data;
    if (t->state == PQ_TUNNEL_CONNECTING) {
        pq_tunnel_connect_ready(t);
        return;
    }
    unsigned ready = (revents & EV_READ ? PQ_RELAY_READ : 0) | (revents & EV_WRITE ? PQ_RELAY_WRITE : 0);
    t->can_read |= (ready & t->read_on) != 0;
    t->can_write |= (ready & t->write_on) != 0;
    pq_tunnel_touch(t);
}

/* --- no more streams ---------------------------------------------------------------------------------------------- */
static void on_notice_over(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)loop, (void)revents;
    struct pq_tunnel *t = w->data;
    if (nghttp2_submit_goaway(t->h2, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(t->h2),
                              NGHTTP2_NO_ERROR, NULL, 0) < 0)
        t->starved = true;
    pq_tunnel_touch(t);
}

void pq_tunnel_drain(struct pq_tunnel *t)
{
    if (t->state < PQ_TUNNEL_OPEN && t->owner && pq_tunnels_awaited(t->owner))
        return;                            /* local connections wait for it; it is drained once it has them */
    if (t->state == PQ_TUNNEL_HANDSHAKE) { /* the handshaker has it */
        t->abandoned = true;
        pq_handshaker_cancel(t->loop->set->handshaker, &t->handshake);
        return;
    }
    if (t->state < PQ_TUNNEL_OPEN) {
        pq_tunnel_end(t, PQ_PROXY_DRAIN, NULL);
        return;
    }
    if (t->state != PQ_TUNNEL_OPEN)
        return;
    t->state = PQ_TUNNEL_DRAINING;
    int e = t->owner ? nghttp2_submit_goaway(t->h2, NGHTTP2_FLAG_NONE, 0, NGHTTP2_NO_ERROR, NULL, 0)
                     : nghttp2_submit_shutdown_notice(t->h2);
    t->starved |= e < 0;
    if (!t->owner)
        pq_tunnel_set_timer(t, NOTICE, on_notice_over);
    pq_tunnel_touch(t);
}

/* --- a reload ----------------------------------------------------------------------------------------------------- */
static void end_forbidden(void *tunnel, enum pq_tls_reason reason, const char *sentence)
{
    struct pq_tunnel *t = tunnel;
    char detail[PQ_DOOM_TEXT];
    pq_doom_text(reason, sentence, detail);
    pq_metrics_rechecked(t->loop->set->counters, direction(t), reason);
    pq_tunnel_end(t, PQ_PROXY_NOT_ALLOWED, detail);
}

static void forbid(struct pq_tunnel *t, enum pq_tls_reason reason, const char *sentence)
{
    struct pq_connections *set = t->loop->set;
    double grace = (double)set->config->timeouts.grace / 1e9;
    set->forbidden += t->streams ? t->streams : 1;
    if (pq_doom_set(&t->doom, set->loop, grace, reason, sentence, end_forbidden, t) < 0)
        end_forbidden(t, reason, sentence);
    else
        pq_tunnel_drain(t);
}

static void recheck(struct pq_tunnel *t, struct pq_generation *g)
{
    struct pq_route *now = pq_generation_route(g, t->route->how);
    enum pq_tls_reason reason;
    struct pq_why why = {""};
    /* One that is being opened has its own end, and its TLS connection is its thread's. */
    if (!now || t->state < PQ_TUNNEL_OPEN || !t->tls)
        return;
    const struct pq_strings *peers = &now->how->peers;
    struct pq_tls_context *context = now->tunnel_tls ? now->tunnel_tls : now->tls;
    if (pq_tls_recheck(t->tls, context, peers->count ? peers : NULL, &reason, &why) < 0) {
        forbid(t, reason, why.text);
        return;
    }
    pq_doom_lift(&t->doom, loop_of(t));
    if (t->owner)
        pq_tunnels_inherit(t, now);
    if (!t->owner || t->owner == now->tunnels)
        pq_generation_take_route(&t->route, now);
}

void pq_tunnel_recheck_all(struct pq_connections *set, struct pq_generation *now)
{
    struct pq_tunnel *t, *next;
    for (t = set->tunnels ? TAILQ_FIRST(&set->tunnels->tunnels) : NULL; t; t = next) {
        next = TAILQ_NEXT(t, of_loop);
        recheck(t, now);
    }
    struct pq_carried *s = set->tunnels ? TAILQ_FIRST(&set->tunnels->streams) : NULL;
    for (; s; s = TAILQ_NEXT(s, of_loop))
        if (s->tunnel && s->route != s->tunnel->route) {
            pq_carried_move(s, s->tunnel->route);
            s->owner = s->tunnel->owner;
        }
}
