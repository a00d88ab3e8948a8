/* catalogue_measure.h - what one algorithm's keys, ciphertexts and signatures measure, and TLS code points of libssl's
 * own.
 *
 * Spec:   a group's key is made as provider-base(7) says: key management "tls-group-alg" with the group's internal
 * name. A scheme without provider is named as RFC 8446, section 4.2.3, names it: "ecdsa_<curve>_<hash>", "rsa_...", or
 * a key type. Owns:   nothing that stays. Errors: PQ_E_CRYPTO where no key can be made, PQ_E_UNSUPPORTED where TLS 1.3
 * can't use the scheme, PQ_E_NOMEM; *out is untouched then. OpenSSL's error queue is left empty.
 */
#ifndef PQ_CRYPTO_CATALOGUE_MEASURE_H
#define PQ_CRYPTO_CATALOGUE_MEASURE_H

#include "crypto/catalogue.h"

struct pq_measured {
    struct pq_sizes size;
    int category, security_bits;
    char provider[PQ_ALGORITHM_NAME]; /* of the key */
};

/* group may be NULL. */
PQ_MUST_CHECK int pq_measure_key_exchange(struct pq_crypto *c, const char *algorithm, const char *group, bool kem,
                                          struct pq_measured *out);
PQ_MUST_CHECK int pq_measure_signature(struct pq_crypto *c, const char *key_type, const char *group,
                                       struct pq_measured *out);
/* The same by the scheme's TLS name; curve is the provider's name for that of an "ecdsa_..." scheme, otherwise NULL. */
PQ_MUST_CHECK int pq_measure_scheme(struct pq_crypto *c, const char *scheme, const char *curve,
                                    struct pq_measured *out);
/* What libssl sends for the scheme; PQ_E_UNSUPPORTED where it can't be in a ClientHello of TLS 1.3. */
PQ_MUST_CHECK int pq_scheme_code_point(struct pq_crypto *c, const char *scheme, int *out);

#endif
