/* kind.h - is an algorithm classical, hybrid or post-quantum? Told by its name, so that algorithms of any provider are
 * judged alike.
 *
 * Spec:   names as OpenSSL's providers give them for TLS-GROUP, TLS-SIGALG, keys and object identifiers; case, '-', '_'
 * and ' ' do not matter ("ML-DSA-65", "mldsa65" and "id-ml-dsa-65" are one). Owns:   nothing. Errors: none; a name that
 * says nothing known is PQ_KIND_UNKNOWN, which never counts as post-quantum.
 */
#ifndef PQ_CRYPTO_KIND_H
#define PQ_CRYPTO_KIND_H

#include <stdbool.h>

enum pq_kind { PQ_KIND_UNKNOWN, PQ_KIND_CLASSICAL, PQ_KIND_HYBRID, PQ_KIND_PQ };
extern const char *const pq_kind_names[]; /* "unknown", "classical", "hybrid", "pq", NULL */

/* Of a key exchange: "X25519MLKEM768" is hybrid, "MLKEM768" PQ, "secp256r1" classical. */
enum pq_kind pq_kind_of_group(const char *name);
/* Of a signature scheme, a certificate's signature or its key: "mldsa65", "SLH-DSA-SHA2-128s", "ecdsa-with-SHA256",
 * "EC". */
enum pq_kind pq_kind_of_signature(const char *name);
/* Not standardised, or not for general use: counts as post-quantum only where a policy names it. */
bool pq_kind_experimental(const char *name);
static inline bool pq_kind_is_pq(enum pq_kind k) { return k == PQ_KIND_HYBRID || k == PQ_KIND_PQ; }

#endif
