/* transparent.h - an egress without a target of its own: each connection goes to where its client wanted to go before a
 * rule of the host redirected it.
 *
 * Spec:   docs/guide, "Transparent egress"; net/redirect.h. Who connects to the listener itself wanted to go nowhere
 *         else, and would be led in a circle: it is refused (not-redirected). With networks, only what is in one of
 * them is a target (forbidden-destination). Owns:   the list of networks that is read is freed with the configuration.
 * Errors: PQ_E_CONFIG with FILE:LINE:COLUMN, PQ_E_NOMEM; where a connection may not go, a reason.
 */
#ifndef PQ_PROXY_TRANSPARENT_H
#define PQ_PROXY_TRANSPARENT_H

#include "proxy/counters.h"

/* Of a field's type PQ_FIELD_CUSTOM; out is a struct pq_structs of struct pq_network. */
PQ_MUST_CHECK int pq_transparent_networks_read(const struct pq_node *n, void *out, struct pq_why *why);
void pq_transparent_networks_free(void *networks);

/* What an egress with and without it needs, and does not take. */
PQ_MUST_CHECK int pq_transparent_check(const struct pq_node *map, struct pq_proxy_listener *l, struct pq_why *why);

/* The target of an accepted connection. False: it has none, *refused says why. */
bool pq_transparent_target(const struct pq_proxy_listener *how, int fd, struct pq_address *out,
                           enum pq_proxy_end *refused);

#endif
