/* address.h - an address in the configuration: its form, whether it stays on this host, how two relate.
 *
 * Spec:   net/tcp.h, "address texts"; loopback is 127.0.0.0/8, ::1 and ::ffff:127.0.0.0/104; a unix socket is local.
 * Owns:   a read address owns its texts until pq_proxy_address_free().
 * Errors: PQ_E_CONFIG (form, with FILE:LINE:COLUMN), PQ_E_NOMEM.
 */
#ifndef PQ_PROXY_ADDRESS_H
#define PQ_PROXY_ADDRESS_H

#include "proxy/config.h"

/* Of a field's type PQ_FIELD_CUSTOM; out is a struct pq_proxy_address. A listener's own address holds no host name. */
PQ_MUST_CHECK int pq_proxy_address_read(const struct pq_node *n, void *out, struct pq_why *why);
PQ_MUST_CHECK int pq_proxy_address_read_numeric(const struct pq_node *n, void *out, struct pq_why *why);
void pq_proxy_address_free(void *address);

bool pq_proxy_address_is_local(const struct pq_address *a);
/* A relative path of a unix socket becomes one from the file's folder; each path gets one spelling. PQ_E_CONFIG: it is
 * then too long. */
PQ_MUST_CHECK int pq_proxy_address_beside(struct pq_proxy_address *a, const char *file, struct pq_why *why);

/* Two listeners can't have both: the same, or one takes the port on every address of the host. */
bool pq_proxy_address_collides(const struct pq_address *a, const struct pq_address *b);
/* Who connects to target comes to that listener. Of a listener on every address this knows loopback only. */
bool pq_proxy_address_reaches(const struct pq_address *target, const struct pq_address *listener);

#endif
