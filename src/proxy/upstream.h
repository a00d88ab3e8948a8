/* upstream.h - the addresses that a route may connect to, and which of them to try next.
 *
 *   struct pq_upstream_try t = {0};
 *   while (pq_upstream_next(u, &t, now, &a))
 *       if (connect to a fails) pq_upstream_failed(u, &t, now); else { pq_upstream_worked(u, &t); break; }
 *
 * Spec:   the most wanted first, in the configuration's order; one that failed goes behind all others for 10 s, so that
 *         each connection need not find out anew. An attempt tries each address once; where the addresses are replaced
 *         meanwhile, it starts over with the new ones.
 * Owns:   its copy of the addresses. For one thread.
 * Errors: PQ_E_NOMEM.
 */
#ifndef PQ_PROXY_UPSTREAM_H
#define PQ_PROXY_UPSTREAM_H

#include "base/clock.h"
#include "proxy/config.h"

#define PQ_UPSTREAM_SHUNNED (10 * PQ_NS_PER_S)

struct pq_upstream;

/* Zero-initialise: one attempt to connect. */
struct pq_upstream_try {
    uint64_t tried; /* a bit for each address */
    uint32_t version, last;
};

/* The target is resolved, or has no addresses yet: then there is none to try. */
PQ_MUST_CHECK int pq_upstream_new(const struct pq_proxy_target *t, struct pq_upstream **out);
void pq_upstream_free(struct pq_upstream *u);
PQ_DEFINE_FREEP(struct pq_upstream, pq_upstream_free)

/* False where all were tried. now: CLOCK_MONOTONIC in ns. */
bool pq_upstream_next(struct pq_upstream *u, struct pq_upstream_try *t, int64_t now, struct pq_address *out);
/* Addresses that this attempt has not tried yet. */
size_t pq_upstream_left(const struct pq_upstream *u, const struct pq_upstream_try *t);
/* The address that was tried last. True where it had not failed before, so that there is something to tell. */
bool pq_upstream_failed(struct pq_upstream *u, const struct pq_upstream_try *t, int64_t now);
void pq_upstream_worked(struct pq_upstream *u, const struct pq_upstream_try *t);
/* Replaces the addresses; those that stay keep what is known of them. At most PQ_PROXY_PLACES_MAX are taken. False
 * where they are the same: then the order stays too, which name servers rotate. */
bool pq_upstream_set(struct pq_upstream *u, const struct pq_address *addresses, size_t count);

#endif
