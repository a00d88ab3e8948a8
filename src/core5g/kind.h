/* kind.h - network function kinds: the NFType names of the standard, and those that pqplane plays.
 *
 * Spec:   TS 29.510, 6.1.6.3.3 (NFType).
 * Owns:   nothing.
 * Errors: none.
 */
#ifndef PQ_CORE5G_KIND_H
#define PQ_CORE5G_KIND_H

#include <stdbool.h>

enum pq_nf_kind { PQ_NF_NRF, PQ_NF_AUSF, PQ_NF_UDM, PQ_NF_UDR, PQ_NF_KINDS };
extern const char *const pq_nf_kind_names[]; /* "nrf", "ausf", "udm", "udr", NULL */
extern const char *const pq_nf_type_names[]; /* the same as NFType: "NRF", ... */

/* Whether the text is an NFType of the standard. */
bool pq_nf_type_is_known(const char *text);
/* Whether the text is a UUID as RFC 9562 writes it, in either case. */
bool pq_uuid_is_valid(const char *text);

#endif
