/* target.h - where a listener leads: one address or several, numbers, paths and host names.
 *
 *   connect: nrf.example:7777          forward: [127.0.0.1:8000, 127.0.0.1:8001, unix:/run/spare.sock]
 *
 * Spec:   docs/guide, "The proxy's file".
 * Owns:   a read target owns its texts and places until pq_proxy_target_free().
 * Errors: PQ_E_CONFIG (form, with FILE:LINE:COLUMN), what the lookup gives, PQ_E_NOMEM.
 */
#ifndef PQ_PROXY_TARGET_H
#define PQ_PROXY_TARGET_H

#include "proxy/config.h"

/* Of a field's type PQ_FIELD_CUSTOM; out is a struct pq_proxy_target. */
PQ_MUST_CHECK int pq_proxy_target_read(const struct pq_node *n, void *out, struct pq_why *why);
void pq_proxy_target_free(void *target);

size_t pq_proxy_target_named(const struct pq_proxy_target *t);
struct pq_proxy_address *pq_proxy_target_at(const struct pq_proxy_target *t, size_t i);
/* The node that the i-th was read from. */
const struct pq_node *pq_proxy_target_node(const struct pq_node *n, size_t i);

/* The most wanted place; AF_UNSPEC, which prints as "-", where there is none. */
const struct pq_address *pq_proxy_target_first(const struct pq_proxy_target *t);
/* Replaces its places; on error they stay. */
PQ_MUST_CHECK int pq_proxy_target_resolve(struct pq_proxy_target *t, const struct pq_lookup *lookup,
                                          struct pq_why *why);

#endif
