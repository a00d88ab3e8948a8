/* network.h - a range of addresses, such as a rule names it.
 *
 * Spec:   RFC 4632 ("198.18.0.0/15") and RFC 4291, section 2.3 ("fd00::/8"); an address alone is a range of one. IPv4
 *         is held in its mapped form (RFC 4291, section 2.5.5.2), so a mapped address is in the range that its plain
 *         form is in; "::ffff:0:0/96" and all that is within it are refused, since they would be the same as IPv4's.
 * Owns:   nothing.
 * Errors: PQ_E_INVALID; why says what would be right.
 */
#ifndef PQ_NET_NETWORK_H
#define PQ_NET_NETWORK_H

#include <stdbool.h>

#include "net/tcp.h"

struct pq_network {
    struct in6_addr host;
    unsigned bits; /* of host that count: 0 to 128 */
};

PQ_MUST_CHECK int pq_network_parse(const char *text, struct pq_network *out, struct pq_why *why);
/* The text that pq_network_parse() reads, always with its prefix. */
enum { PQ_NETWORK_TEXT = 64 };
void pq_network_text(const struct pq_network *n, char out[PQ_NETWORK_TEXT]);
bool pq_network_is_v4(const struct pq_network *n);
/* One lies within the other. */
bool pq_network_overlaps(const struct pq_network *a, const struct pq_network *b);
bool pq_network_holds(const struct pq_network *n, const struct pq_address *a);

#endif
