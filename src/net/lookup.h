/* lookup.h - how a host name becomes addresses: the system's way, or one that is handed in.
 *
 * Spec:   getaddrinfo(3), which may take many seconds; RFC 6724 (the order).
 * Owns:   nothing.
 * Errors: PQ_E_NOT_FOUND (no such name, or nobody answers), PQ_E_INVALID, PQ_E_NOMEM.
 */
#ifndef PQ_NET_LOOKUP_H
#define PQ_NET_LOOKUP_H

#include "net/tcp.h"

struct pq_lookup {
    /* As pq_address_resolve(). */
    int (*ask)(void *context, const char *text, struct pq_address *out, size_t room, size_t *count, struct pq_why *why);
    void *context;
};
extern const struct pq_lookup pq_lookup_system;

#endif
