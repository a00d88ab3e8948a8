#include "core5g/aka.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#include "base/cleanup.h"
#include "core5g/milenage.h"

enum {
    FC_KAUSF = 0x6a,
    FC_RES_STAR = 0x6b,
    FC_KSEAF = 0x6c,
    KDF_INPUT_MAX = 1 + PQ_AKA_NAME_MAX + 2 + 2 * (16 + 2),
};

int pq_kdf(struct pq_span key, uint8_t fc, const struct pq_span *parameters, size_t count, uint8_t out[32])
{
    uint8_t input[KDF_INPUT_MAX];
    struct pq_writer w = pq_writer(input, sizeof input);
    unsigned n = 0;
    TRY(pq_write_u8(&w, fc));
    for (size_t i = 0; i < count; i++) {
        TRY(pq_write_bytes(&w, parameters[i]));
        TRY(pq_write_u16(&w, (uint16_t)parameters[i].len));
    }
    return HMAC(EVP_sha256(), key.at, (int)key.len, input, w.len, out, &n) && n == 32 ? 0 : PQ_E_CRYPTO;
}

static int check_name(const char *network) { return strlen(network) <= PQ_AKA_NAME_MAX ? 0 : PQ_E_INVALID; }

static void sqn_bytes(uint64_t sqn, uint8_t out[6])
{
    for (int i = 0; i < 6; i++)
        out[i] = (uint8_t)(sqn >> (40 - 8 * i));
}

/* A.4: the low half of the KDF's output. */
static int res_star(const struct pq_milenage *m, const uint8_t rand[16], const char *network, uint8_t out[16])
{
    uint8_t key[32], full[32];
    memcpy(key, m->ck, 16);
    memcpy(key + 16, m->ik, 16);
    const struct pq_span p[] = {pq_span_text(network), pq_span(rand, 16), pq_span(m->res, sizeof m->res)};
    int e = pq_kdf(pq_span(key, sizeof key), FC_RES_STAR, p, PQ_COUNT(p), full);
    if (e == 0)
        memcpy(out, full + 16, 16);
    OPENSSL_cleanse(key, sizeof key);
    OPENSSL_cleanse(full, sizeof full);
    return e;
}

/* A.2. */
static int kausf(const struct pq_milenage *m, const char *network, const uint8_t hidden_sqn[6], uint8_t out[32])
{
    uint8_t key[32];
    memcpy(key, m->ck, 16);
    memcpy(key + 16, m->ik, 16);
    const struct pq_span p[] = {pq_span_text(network), pq_span(hidden_sqn, 6)};
    int e = pq_kdf(pq_span(key, sizeof key), FC_KAUSF, p, PQ_COUNT(p), out);
    OPENSSL_cleanse(key, sizeof key);
    return e;
}

static int fill_vector(const struct pq_aka_subscriber *s, const struct pq_milenage *m, const uint8_t sqn[6],
                       const char *network, struct pq_aka_vector *v)
{
    for (int i = 0; i < 6; i++)
        v->autn[i] = sqn[i] ^ m->ak[i];
    memcpy(v->autn + 6, s->amf, 2);
    memcpy(v->autn + 8, m->mac_a, 8);
    TRY(res_star(m, v->rand, network, v->xres_star));
    return kausf(m, network, v->autn, v->kausf);
}

int pq_aka_vector(const struct pq_aka_subscriber *s, const uint8_t rand[16], uint64_t sqn, const char *network,
                  struct pq_aka_vector *out)
{
    struct pq_milenage m;
    struct pq_aka_vector v;
    uint8_t bytes[6];
    TRY(check_name(network));
    sqn_bytes(sqn, bytes);
    TRY(pq_milenage(s->k, s->opc, rand, bytes, s->amf, &m));
    memcpy(v.rand, rand, 16);
    int e = fill_vector(s, &m, bytes, network, &v);
    if (e == 0)
        *out = v;
    OPENSSL_cleanse(&m, sizeof m);
    OPENSSL_cleanse(&v, sizeof v);
    return e;
}

int pq_aka_res_star(const struct pq_aka_subscriber *s, const uint8_t rand[16], const char *network, uint8_t out[16])
{
    static const uint8_t any_sqn[6]; /* f2 to f4 do not depend on it */
    struct pq_milenage m;
    TRY(check_name(network));
    TRY(pq_milenage(s->k, s->opc, rand, any_sqn, s->amf, &m));
    int e = res_star(&m, rand, network, out);
    OPENSSL_cleanse(&m, sizeof m);
    return e;
}

/* A.5: the low half of SHA-256(RAND || XRES*). */
int pq_aka_hxres_star(const uint8_t rand[16], const uint8_t xres_star[16], uint8_t out[16])
{
    uint8_t in[32], full[32];
    unsigned n = 0;
    memcpy(in, rand, 16);
    memcpy(in + 16, xres_star, 16);
    int ok = EVP_Digest(in, sizeof in, full, &n, EVP_sha256(), NULL);
    if (ok)
        memcpy(out, full + 16, 16);
    OPENSSL_cleanse(in, sizeof in);
    return ok ? 0 : PQ_E_CRYPTO;
}

int pq_aka_kseaf(const uint8_t kausf_key[32], const char *network, uint8_t out[32])
{
    const struct pq_span p[] = {pq_span_text(network)};
    TRY(check_name(network));
    return pq_kdf(pq_span(kausf_key, 32), FC_KSEAF, p, PQ_COUNT(p), out);
}

/* TS 33.102, 6.3.3: AUTS is SQN_MS ^ f5*(RAND), then f1*(SQN_MS, RAND, AMF = 0). */
int pq_aka_resync(const struct pq_aka_subscriber *s, const uint8_t rand[16], const uint8_t auts[14], uint64_t *sqn)
{
    static const uint8_t no_amf[2];
    struct pq_milenage m;
    uint8_t bytes[6] = {0};
    TRY(pq_milenage(s->k, s->opc, rand, bytes, no_amf, &m));
    for (int i = 0; i < 6; i++)
        bytes[i] = auts[i] ^ m.ak_star[i];
    TRY(pq_milenage(s->k, s->opc, rand, bytes, no_amf, &m));
    bool good = CRYPTO_memcmp(m.mac_s, auts + 6, 8) == 0;
    OPENSSL_cleanse(&m, sizeof m);
    if (!good)
        return PQ_E_AUTH;
    uint64_t v = 0;
    for (int i = 0; i < 6; i++)
        v = v << 8 | bytes[i];
    *sqn = v;
    return 0;
}
