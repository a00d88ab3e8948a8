#include "crypto/suite.h"

#define ECDSA_5 "ecdsa_secp521r1_sha512"
#define ECDSA_3 "ecdsa_secp384r1_sha384:" ECDSA_5
#define ECDSA_1 "ecdsa_secp256r1_sha256:ed25519:" ECDSA_3
#define MLDSA_5 "mldsa87"
#define MLDSA_3 "mldsa65:" MLDSA_5
#define MLDSA_1 "mldsa44:" MLDSA_3
#define AES_256 "TLS_AES_256_GCM_SHA384"
#define AES_128 "TLS_AES_128_GCM_SHA256:" AES_256
/* All of one tuple: the hybrids are as good as each other, which spares a HelloRetryRequest. */
#define HYBRID_3 "X25519MLKEM768:SecP256r1MLKEM768"

const char *const pq_mode_names[] = {"plain", "classical", "hybrid", "pure", NULL};

static const struct pq_suite suites[] = {
    {"plain", PQ_MODE_PLAIN, 0, "", "", "", "", ""},
    {"classical-1", PQ_MODE_CLASSICAL, 1, "x25519:secp256r1", "x25519:secp256r1", ECDSA_1, "p256", AES_128},
    {"classical-3", PQ_MODE_CLASSICAL, 3, "secp384r1:x448", "secp384r1:x448", ECDSA_3, "p384", AES_256},
    {"classical-5", PQ_MODE_CLASSICAL, 5, "secp521r1", "secp521r1", ECDSA_5, "p521", AES_256},
    {"hybrid-1", PQ_MODE_HYBRID, 1, HYBRID_3, HYBRID_3, MLDSA_1, "mldsa44", AES_128},
    {"hybrid-3", PQ_MODE_HYBRID, 3, HYBRID_3, HYBRID_3, MLDSA_3, "mldsa65", AES_256},
    {"hybrid-5", PQ_MODE_HYBRID, 5, "SecP384r1MLKEM1024", "SecP384r1MLKEM1024", MLDSA_5, "mldsa87", AES_256},
    {"pure-1", PQ_MODE_PURE, 1, "MLKEM512", "MLKEM512", MLDSA_1, "mldsa44", AES_128},
    {"pure-3", PQ_MODE_PURE, 3, "MLKEM768", "MLKEM768", MLDSA_3, "mldsa65", AES_256},
    {"pure-5", PQ_MODE_PURE, 5, "MLKEM1024", "MLKEM1024", MLDSA_5, "mldsa87", AES_256},
};

const struct pq_suite *pq_suites(size_t *count)
{
    *count = sizeof suites / sizeof suites[0];
    return suites;
}

const struct pq_suite *pq_suite_find(enum pq_mode mode, int level)
{
    for (size_t i = 0; i < sizeof suites / sizeof suites[0]; i++)
        if (suites[i].mode == mode && (suites[i].level == level || mode == PQ_MODE_PLAIN))
            return &suites[i];
    return NULL;
}
