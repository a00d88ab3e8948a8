/* suite.h - a mode and a level name a suite: groups, signature schemes, certificate key types, cipher suites.
 *
 * Spec:   modes plain, classical, hybrid, pure; levels are NIST categories 1, 3, 5. IANA code points only:
 *         draft-ietf-tls-ecdhe-mlkem, draft-ietf-tls-mlkem, draft-ietf-tls-mldsa, RFC 8446. Level 1 signs with
 * ML-DSA-44 (category 2). Owns:   suites are constants; pq_suite_find() returns one that is never freed. Errors: none.
 */
#ifndef PQ_CRYPTO_SUITE_H
#define PQ_CRYPTO_SUITE_H

#include <stdbool.h>
#include <stddef.h>

enum pq_mode { PQ_MODE_PLAIN, PQ_MODE_CLASSICAL, PQ_MODE_HYBRID, PQ_MODE_PURE };
extern const char *const pq_mode_names[]; /* "plain", "classical", "hybrid", "pure", NULL */

struct pq_suite {
    const char *name; /* "hybrid-3" */
    enum pq_mode mode;
    int level;                 /* 1, 3, 5; 0 for plain */
    const char *groups;        /* OpenSSL's list for a client, preferred first: "X25519MLKEM768:SecP256r1MLKEM768" */
    const char *server_groups; /* the same with preference tuples ('/') for a server */
    const char *sigalgs;       /* "mldsa65:mldsa87" */
    const char *key;           /* the certificate key's algorithm as pki names it: "mldsa65", "p256" */
    const char *ciphersuites;  /* "TLS_AES_256_GCM_SHA384" */
};

const struct pq_suite *pq_suites(size_t *count);
/* NULL where there is none. */
const struct pq_suite *pq_suite_find(enum pq_mode mode, int level);

#endif
