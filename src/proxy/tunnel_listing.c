#include "base/clock.h"
#include "proxy/listing.h"
#include "proxy/target.h"
#include "proxy/tunnel_parts.h"

static size_t worker_of(const struct pq_connections *s) { return (size_t)(s->slot - s->shared->worker); }

/* Until it has ended, the handshake is its thread's. */
static const struct pq_tls_info *tls_of(const struct pq_tunnel *t)
{
    return t && t->tls && t->state >= PQ_TUNNEL_PROVING ? pq_tls_info(t->tls) : NULL;
}

static int tell_of_tunnel(const struct pq_tunnel *t, struct pq_buf *out)
{
    static const struct pq_address nowhere = {.sa.ss_family = AF_UNSPEC};
    const struct pq_connections *s = t->loop->set;
    const struct pq_row row = {.kind = "tunnel",
                               .worker = worker_of(s),
                               .id = (uint64_t)t->id,
                               .route = t->route->how->name,
                               .direction = pq_proxy_direction_names[t->route->how->direction],
                               .state = pq_tunnel_state_names[t->state],
                               .local = &nowhere,
                               .peer = &t->peer,
                               .tls = tls_of(t),
                               .bytes_up = t->up,
                               .bytes_down = t->down,
                               .age_ns = pq_clock_ns() - t->started,
                               .idle_s = t->heard ? t->loop->now - t->heard : 0,
                               .tunnel = (uint64_t)t->id};
    return pq_row_write(&row, out);
}

static int tell_of_stream(const struct pq_carried *c, struct pq_buf *out)
{
    const struct pq_connections *s = c->loop->set;
    const struct pq_address local = pq_carried_address(c);
    const struct pq_row row = {.kind = "stream",
                               .worker = worker_of(s),
                               .id = (uint64_t)c->id,
                               .route = c->route->how->name,
                               .direction = pq_proxy_direction_names[c->route->how->direction],
                               .state = c->waiting      ? "waiting"
                                        : c->connecting ? "connect"
                                                        : "relay",
                               .local = &local,
                               .peer = c->tunnel ? &c->tunnel->peer : pq_proxy_target_first(&c->route->how->target),
                               .tls = tls_of(c->tunnel),
                               .bytes_up = c->pulled,
                               .bytes_down = c->delivered,
                               .age_ns = pq_clock_ns() - c->started,
                               .idle_s = c->loop->now - c->active,
                               .tunnel = (uint64_t)c->tunnel_id};
    return pq_row_write(&row, out);
}

void pq_tunnel_list(struct pq_connections *set)
{
    struct pq_tunnel_loop *l = set->tunnels;
    if (!l)
        return;
    l->listed_tunnel = TAILQ_FIRST(&l->tunnels);
    l->listed_stream = TAILQ_FIRST(&l->streams);
}

int pq_tunnel_rows(struct pq_connections *set, size_t most, struct pq_buf *out)
{
    struct pq_tunnel_loop *l = set->tunnels;
    if (!l)
        return PQ_E_CLOSED;
    for (; l->listed_tunnel && most; most--) {
        TRY(tell_of_tunnel(l->listed_tunnel, out));
        l->listed_tunnel = TAILQ_NEXT(l->listed_tunnel, of_loop);
    }
    for (; l->listed_stream && most; most--) {
        TRY(tell_of_stream(l->listed_stream, out));
        l->listed_stream = TAILQ_NEXT(l->listed_stream, of_loop);
    }
    return l->listed_tunnel || l->listed_stream ? 0 : PQ_E_CLOSED;
}

void pq_tunnel_unlist(struct pq_tunnel *t)
{
    if (t->loop->listed_tunnel == t)
        t->loop->listed_tunnel = TAILQ_NEXT(t, of_loop);
}

void pq_carried_unlist(struct pq_carried *s)
{
    if (s->loop->listed_stream == s)
        s->loop->listed_stream = TAILQ_NEXT(s, of_loop);
}
