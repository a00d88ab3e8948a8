#include "crypto/kind.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

const char *const pq_kind_names[] = {"unknown", "classical", "hybrid", "pq", NULL};

/* Parts of normalised names. */
static const char *const standard_kems[] = {"mlkem", NULL};
static const char *const experimental_kems[] = {"kyber", "frodo", "bike", "hqc", "mceliece", "ntru", "sntrup", NULL};
static const char *const classical_groups[] = {"x25519",   "x448",      "secp",  "p256", "p384", "p521",
                                               "prime256", "brainpool", "ffdhe", "sm2",  NULL};

static const char *const standard_signatures[] = {"mldsa", "slhdsa", NULL};
static const char *const experimental_signatures[] = {"dilithium", "sphincs", "falcon", "fndsa", "mayo", "crossrsdp",
                                                      "snova",     "hawk",    "uov",    "ov1s",  "ov1p", "ovis",
                                                      "ovip",      "xmss",    "lms",    "hss",   NULL};
static const char *const classical_signatures[] = {"ecdsa", "rsa", "ed25519",  "ed448",     "p256",    "p384", "p521",
                                                   "secp",  "sm2", "prime256", "brainpool", "dsawith", NULL};

enum { NAME_MAX_LENGTH = 128 };

static void normalise(const char *name, char out[NAME_MAX_LENGTH])
{
    size_t len = 0;
    for (; *name && len + 1 < NAME_MAX_LENGTH; name++)
        if (isalnum((unsigned char)*name))
            out[len++] = (char)tolower((unsigned char)*name);
    out[len] = 0;
}

static bool has_part(const char *name, const char *const parts[])
{
    for (; *parts; parts++)
        if (strstr(name, *parts))
            return true;
    return false;
}

static enum pq_kind kind(bool pq, bool classical)
{
    if (pq)
        return classical ? PQ_KIND_HYBRID : PQ_KIND_PQ;
    return classical ? PQ_KIND_CLASSICAL : PQ_KIND_UNKNOWN;
}

enum pq_kind pq_kind_of_group(const char *name)
{
    char n[NAME_MAX_LENGTH];
    normalise(name, n);
    return kind(has_part(n, standard_kems) || has_part(n, experimental_kems), has_part(n, classical_groups));
}

enum pq_kind pq_kind_of_signature(const char *name)
{
    char n[NAME_MAX_LENGTH];
    normalise(name, n);
    bool classical = has_part(n, classical_signatures) || !strcmp(n, "ec") || !strcmp(n, "dsa");
    return kind(has_part(n, standard_signatures) || has_part(n, experimental_signatures), classical);
}

bool pq_kind_experimental(const char *name)
{
    char n[NAME_MAX_LENGTH];
    normalise(name, n);
    return has_part(n, experimental_kems) || has_part(n, experimental_signatures);
}
