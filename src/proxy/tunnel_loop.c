#include "proxy/tunnel_parts.h"

#include <string.h>

#include "base/clock.h"

enum {
    FIRST_WINDOW = 65535, /* RFC 9113, section 6.9.2: until a peer has read our SETTINGS */
    SECTIONS_MAX = 4,     /* CONTINUATION frames of one head */
    SETTINGS_MAX = 32,
    ACKS_MAX = 256,       /* of PING and SETTINGS that a peer may let pile up */
    RESETS_MAX = 1 << 20, /* nghttp2's own counts of resets and oddities know nothing of a connection that was long
                           * open: pq_tunnel_spend() is the bound */
};
/* Seconds between two sweeps: where a stream waits for a time, and otherwise. */
#define SWEEP_SOON 0.1
#define SWEEP_MIN  0.05
#define SWEEP_MAX  5.
#define QUIET      15. /* seconds without a byte before a tunnel's peer is asked, and for its answer */

/* Not the loop's own, which a clock that is set moves. */
void pq_tunnel_loop_clock(struct pq_tunnel_loop *l) { l->now = (double)pq_clock_ns() / 1e9; }

/* --- the turn's end ----------------------------------------------------------------------------------------------- */
static void on_again(struct ev_loop *loop, ev_idle *w, int revents) { (void)loop, (void)w, (void)revents; }

static void on_flush(struct ev_loop *loop, ev_prepare *w, int revents)
{
    (void)revents;
    struct pq_tunnel_loop *l = w->data;
    struct pq_tunnel *t;
    l->turn++;
    pq_tunnel_loop_clock(l);
    while ((t = TAILQ_FIRST(&l->dirty)) && t->flushed != l->turn) {
        t->flushed = l->turn;
        if (!pq_tunnel_pump(t))
            continue;
        /* What the pump itself touched, it has done. */
        TAILQ_REMOVE(&l->dirty, t, of_dirty);
        t->dirty = false;
        if (pq_tunnel_wants_pump(t))
            pq_tunnel_touch(t);
    }
    if (TAILQ_EMPTY(&l->dirty))
        ev_idle_stop(loop, &l->again);
    else
        ev_idle_start(loop, &l->again);
}

/* --- sweeping ----------------------------------------------------------------------------------------------------- */
static void set_sweep(struct pq_tunnel_loop *l)
{
    double after = (double)l->set->config->timeouts.idle / 1e9 / 8;
    after = after == 0 || after > SWEEP_MAX ? SWEEP_MAX : after < SWEEP_MIN ? SWEEP_MIN : after;
    if (l->timed && after > SWEEP_SOON)
        after = SWEEP_SOON;
    ev_timer_stop(l->set->loop, &l->sweep);
    ev_timer_set(&l->sweep, after, 0.);
    ev_timer_start(l->set->loop, &l->sweep);
}

/* False where the tunnel has ended. */
static bool ask_quiet(struct pq_tunnel *t)
{
    double now = t->loop->now;
    if (!t->h2 || t->state == PQ_TUNNEL_CLOSING || now < t->heard + QUIET)
        return true;
    if (t->asked == 0) {
        t->asked = now;
        t->starved |= nghttp2_submit_ping(t->h2, NGHTTP2_FLAG_NONE, NULL) < 0;
        pq_tunnel_touch(t);
        return true;
    }
    if (now < t->asked + QUIET)
        return true;
    pq_tunnel_end(t, PQ_PROXY_TUNNEL_LOST, "the peer did not answer PING within 15 s");
    return false;
}

static void on_sweep(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)loop, (void)revents;
    struct pq_tunnel_loop *l = w->data;
    struct pq_carried *s, *next;
    struct pq_tunnel *t, *after;
    struct pq_tunnels *o;
    pq_tunnel_loop_clock(l);
    for (s = TAILQ_FIRST(&l->streams); s; s = next) {
        next = TAILQ_NEXT(s, of_loop);
        pq_carried_sweep(s);
    }
    for (o = TAILQ_FIRST(&l->egress); o; o = pq_tunnels_next(o))
        pq_tunnels_sweep(o);
    for (t = TAILQ_FIRST(&l->tunnels); t; t = after) {
        after = TAILQ_NEXT(t, of_loop);
        (void)ask_quiet(t);
    }
    set_sweep(l);
}

void pq_tunnel_loop_timed(struct pq_tunnel_loop *l, struct pq_carried *s, bool on)
{
    if (s->timed == on)
        return;
    s->timed = on;
    l->timed += on ? 1 : -1;
    if (on && ev_timer_remaining(l->set->loop, &l->sweep) > SWEEP_SOON)
        set_sweep(l);
}

/* --- its life ----------------------------------------------------------------------------------------------------- */
static int make_option(nghttp2_option **out)
{
    nghttp2_option *o;
    if (nghttp2_option_new(&o) < 0)
        return PQ_E_NOMEM;
    nghttp2_option_set_no_auto_window_update(o, 1);
    nghttp2_option_set_max_continuations(o, SECTIONS_MAX);
    nghttp2_option_set_max_settings(o, SETTINGS_MAX);
    nghttp2_option_set_max_outbound_ack(o, ACKS_MAX);
    nghttp2_option_set_stream_reset_rate_limit(o, RESETS_MAX, RESETS_MAX);
    nghttp2_option_set_glitch_rate_limit(o, RESETS_MAX, RESETS_MAX);
    *out = o;
    return 0;
}

static void free_loop(struct pq_tunnel_loop *l)
{
    nghttp2_session_callbacks_del(l->callbacks);
    nghttp2_option_del(l->option);
    pq_ring_pool_free(&l->rings);
    free(l->in);
    free(l->spare);
    free(l);
}
PQ_DEFINE_FREEP(struct pq_tunnel_loop, free_loop)

static void start_watchers(struct pq_tunnel_loop *l)
{
    struct ev_loop *loop = l->set->loop;
    ev_prepare_init(&l->flush, on_flush);
    ev_idle_init(&l->again, on_again);
    ev_timer_init(&l->sweep, on_sweep, 0., 0.);
    l->flush.data = l->again.data = l->sweep.data = l;
    ev_prepare_start(loop, &l->flush);
    set_sweep(l);
}

/* A ring holds a whole window, also one that was granted before: it never shrinks. */
void pq_tunnel_loop_use(struct pq_connections *set, const struct pq_generation *g)
{
    size_t window = (size_t)g->config.limits.buffer;
    if (set->tunnels && window > set->tunnels->rings.size)
        pq_ring_pool_resize(&set->tunnels->rings, window);
}

struct pq_tunnel_loop *pq_tunnel_loop_of(struct pq_connections *set)
{
    if (set->tunnels)
        return set->tunnels;
    DEFER(free_loopp) struct pq_tunnel_loop *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    size_t window = (size_t)set->config->limits.buffer;
    l->set = set;
    pq_tunnel_loop_clock(l);
    l->rings.size = window > FIRST_WINDOW ? window : FIRST_WINDOW;
    TAILQ_INIT(&l->tunnels);
    TAILQ_INIT(&l->dirty);
    TAILQ_INIT(&l->streams);
    TAILQ_INIT(&l->egress);
    l->in = malloc(PQ_TUNNEL_IN);
    if (!l->in || make_option(&l->option) < 0 || pq_tunnel_callbacks(&l->callbacks) < 0)
        return NULL;
    start_watchers(l);
    set->tunnels = TAKE(l);
    return set->tunnels;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */
int64_t pq_tunnel_count(const struct pq_connections *set) { return set->tunnels ? set->tunnels->tunnel_count : 0; }

void pq_tunnel_drain_all(struct pq_connections *set)
{
    struct pq_tunnel_loop *l = set->tunnels;
    struct pq_tunnel *t, *next;
    set->draining = true;
    if (!l)
        return;
    for (t = TAILQ_FIRST(&l->tunnels); t; t = next) {
        next = TAILQ_NEXT(t, of_loop);
        pq_tunnel_drain(t);
    }
}

void pq_tunnel_end_all(struct pq_connections *set, enum pq_proxy_end why)
{
    struct pq_tunnel_loop *l = set->tunnels;
    struct pq_carried *s, *next;
    struct pq_tunnel *t;
    set->draining = true;
    if (!l)
        return;
    for (s = TAILQ_FIRST(&l->streams); s; s = next) {
        next = TAILQ_NEXT(s, of_loop);
        pq_carried_fail(s, why, NGHTTP2_CANCEL, NULL);
        (void)pq_carried_step(s);
    }
    for (t = TAILQ_FIRST(&l->tunnels); t; t = TAILQ_NEXT(t, of_loop))
        if (t->state == PQ_TUNNEL_HANDSHAKE)
            pq_tunnel_drain(t);
    if (set->handshaker)
        pq_handshaker_settle(set->handshaker);
    while ((t = TAILQ_FIRST(&l->tunnels))) {
        if (t->h2)
            pq_tunnel_last_words(t);
        pq_tunnel_end(t, PQ_PROXY_DRAIN, NULL);
    }
}

void pq_tunnel_free_all(struct pq_connections *set)
{
    struct pq_tunnel_loop *l = set->tunnels;
    struct pq_tunnels *o;
    if (!l)
        return;
    while ((o = TAILQ_FIRST(&l->egress)))
        pq_tunnels_free(o);
    ev_prepare_stop(set->loop, &l->flush);
    ev_idle_stop(set->loop, &l->again);
    ev_timer_stop(set->loop, &l->sweep);
    free_loop(l);
    set->tunnels = NULL;
}
