/* catalogue.h - every TLS key-exchange group and signature algorithm that the loaded providers offer, asked at run
 * time.
 *
 * Spec:   provider-base(7), TLS-GROUP and TLS-SIGALG; code points as IANA's "TLS Parameters" registers them, read from
 * the provider or, for what libssl itself brings, from a ClientHello that it writes. Listed is what TLS 1.3 can use,
 *         and beside it post-quantum KEMs and signatures without a code point (for certificates and others).
 * Owns:   pq_catalogue_new() allocates, pq_catalogue_free() frees.
 * Errors: PQ_E_NOMEM, PQ_E_LIMIT (more than PQ_ALGORITHMS_MAX). An algorithm that a provider announces and can't use is
 * listed without sizes.
 */
#ifndef PQ_CRYPTO_CATALOGUE_H
#define PQ_CRYPTO_CATALOGUE_H

#include <stdbool.h>
#include <stddef.h>

#include "crypto/crypto.h"
#include "crypto/kind.h"

enum { PQ_ALGORITHM_NAME = 80, PQ_ALGORITHMS_MAX = 1024, PQ_CATALOGUE_RSA_BITS = 2048 };

enum pq_use { PQ_USE_KEY_EXCHANGE, PQ_USE_SIGNATURE };
extern const char *const pq_use_names[]; /* "key-exchange", "signature", NULL */

/* Sizes in bytes as measured on a fresh key; -1 where there is none or it can't be told. */
struct pq_sizes {
    long public_key; /* as in a key share, or in a certificate's subjectPublicKey */
    long ciphertext; /* what the server answers with: a KEM's ciphertext, or a share again */
    long signature;  /* the longest that a key gives */
};

struct pq_algorithm {
    char name[PQ_ALGORITHM_NAME]; /* as TLS names it, otherwise the provider's first name */
    char provider[PQ_ALGORITHM_NAME];
    enum pq_use use;
    enum pq_kind kind;
    bool experimental;
    int category;      /* NIST's, as the provider claims; 0: none */
    int security_bits; /* 0: not told */
    int code_point;    /* -1: none */
    struct pq_sizes size;
};

/* Sorted: use, kind, security bits, code point (none last), name, provider. */
struct pq_catalogue {
    struct pq_algorithm *at;
    size_t count, room;
};
PQ_MUST_CHECK int pq_catalogue_new(struct pq_crypto *c, struct pq_catalogue *out, struct pq_why *why);
void pq_catalogue_free(struct pq_catalogue *c);

#endif
