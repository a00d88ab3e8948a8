#include "core5g/subscribers.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "core5g/milenage.h"

struct pq_subscribers {
    uint64_t count;
    struct pq_subscriber **at;
};

int pq_subscriber_key(const char *supi, struct pq_aka_subscriber *out)
{
    /* An operator's OP: any constant will do. */
    static const uint8_t op[16] = {'p', 'q', 'p', 'l', 'a', 'n', 'e', ' ', 't', 'e', 's', 't', ' ', 'o', 'p', '.'};
    struct pq_aka_subscriber s = {.amf = {0x80, 0x00}}; /* the separation bit: TS 33.501, Annex A.1 */
    uint8_t digest[32];
    char text[64];
    unsigned n = 0;
    int len = snprintf(text, sizeof text, "pqplane subscriber %s", supi);
    if (!EVP_Digest(text, (size_t)len, digest, &n, EVP_sha256(), NULL))
        return PQ_E_CRYPTO;
    memcpy(s.k, digest, sizeof s.k);
    TRY(pq_milenage_opc(s.k, op, s.opc));
    *out = s;
    OPENSSL_cleanse(&s, sizeof s);
    OPENSSL_cleanse(digest, sizeof digest);
    return 0;
}

int pq_subscribers_new(uint64_t count, struct pq_subscribers **out)
{
    DEFER(pq_subscribers_freep) struct pq_subscribers *s = calloc(1, sizeof *s);
    if (!s || !(s->at = calloc(count ? count : 1, sizeof(struct pq_subscriber *))))
        return PQ_E_NOMEM;
    s->count = count;
    *out = TAKE(s);
    return 0;
}

static void subscriber_free(struct pq_subscriber *s)
{
    if (!s)
        return;
    OPENSSL_cleanse(&s->key, sizeof s->key);
    free(s->auth_status);
    free(s->amf_access);
    free(s);
}

void pq_subscribers_free(struct pq_subscribers *s)
{
    if (!s)
        return;
    for (uint64_t i = 0; s->at && i < s->count; i++)
        subscriber_free(s->at[i]);
    free(s->at);
    free(s);
}

int pq_subscribers_find(struct pq_subscribers *s, const char *supi, struct pq_subscriber **out)
{
    static const char prefix[] = "imsi-" PQ_HOME_MCC PQ_HOME_MNC;
    int64_t number = 0;
    if (strncmp(supi, prefix, sizeof prefix - 1) != 0 || strlen(supi) != sizeof prefix - 1 + 10)
        return PQ_E_NOT_FOUND;
    const char *msin = supi + sizeof prefix - 1;
    while (*msin == '0')
        msin++;
    if (pq_int_parse(msin, 1, INT64_MAX, &number, NULL) < 0 || (uint64_t)number > s->count)
        return PQ_E_NOT_FOUND;
    struct pq_subscriber **slot = &s->at[number - 1];
    if (!*slot) {
        struct pq_subscriber *new = calloc(1, sizeof *new);
        if (!new)
            return PQ_E_NOMEM;
        int e = pq_subscriber_key(supi, &new->key);
        if (e < 0) {
            free(new);
            return e;
        }
        *slot = new;
    }
    *out = *slot;
    return 0;
}
