#include "proxy/closing.h"

#include "base/clock.h"

static double ms(int64_t ns) { return (double)ns / 1e6; }

void pq_closing_log(const struct pq_closing *c)
{
    static const struct pq_tls_info nothing = {
        .group = "", .signature = "", .own_signature = "", .cipher = "", .peer = ""};
    const struct pq_tls_info *i = c->tls ? pq_tls_info(c->tls) : &nothing;
    char local[PQ_ADDRESS_TEXT] = "-", peer[PQ_ADDRESS_TEXT] = "-";
    bool shook = c->handshake_ns > 0; /* a carried connection had no handshake on its way, though its tunnel had */
    if (!pq_log_on(c->level))
        return;
    if (c->local)
        pq_address_text(c->local, local);
    if (c->peer)
        pq_address_text(c->peer, peer);
    /* What there is not is left out: the list of fields ends before it. */
    const char *next = c->tunnel ? "tunnel" : c->detail ? "detail" : NULL;
    const char *last = c->tunnel && c->detail ? "detail" : NULL;
    pq_log(
        c->level, c->event, "route", pq_s(c->how->name), "direction", pq_s(pq_proxy_direction_names[c->how->direction]),
        "local", pq_s(local), "peer", pq_s(peer), "peer_name", pq_s(i->peer), "group", pq_s(i->group), "signature",
        pq_s(i->signature), "own_signature", pq_s(i->own_signature), "cipher", pq_s(i->cipher), "resumed",
        pq_i(i->resumed), "connect_ms", pq_f(ms(c->connect_ns)), "handshake_ms", pq_f(ms(c->handshake_ns)), "chain_ms",
        pq_f(ms(shook ? i->chain_ns : 0)), "handshake_cpu_ms", pq_f(ms(shook ? i->cpu_ns : 0)), "bytes_up",
        pq_i((int64_t)c->up), "bytes_down", pq_i((int64_t)c->down), "duration_ms", pq_f(ms(pq_clock_ns() - c->started)),
        "reason", pq_s(c->reason), next, c->tunnel ? pq_i(c->tunnel) : pq_s(c->detail), last, pq_s(c->detail), NULL);
}
