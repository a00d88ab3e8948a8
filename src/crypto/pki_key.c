#include "crypto/pki_key.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "crypto/ossl.h"

static const struct {
    const char *name, *type, *group;
    size_t bits;
} rows[] = {
    {"p256", "EC", "P-256", 0},
    {"p384", "EC", "P-384", 0},
    {"p521", "EC", "P-521", 0},
    {"ed25519", "ED25519", NULL, 0},
    {"ed448", "ED448", NULL, 0},
    {"rsa2048", "RSA", NULL, 2048},
    {"rsa3072", "RSA", NULL, 3072},
    {"rsa4096", "RSA", NULL, 4096},
    {"mldsa44", "ML-DSA-44", NULL, 0},
    {"mldsa65", "ML-DSA-65", NULL, 0},
    {"mldsa87", "ML-DSA-87", NULL, 0},
    {"slhdsa128s", "SLH-DSA-SHA2-128s", NULL, 0},
    {"slhdsa128f", "SLH-DSA-SHA2-128f", NULL, 0},
    {"slhdsa192s", "SLH-DSA-SHA2-192s", NULL, 0},
    {"slhdsa192f", "SLH-DSA-SHA2-192f", NULL, 0},
    {"slhdsa256s", "SLH-DSA-SHA2-256s", NULL, 0},
    {"slhdsa256f", "SLH-DSA-SHA2-256f", NULL, 0},
    {"slhdsashake128s", "SLH-DSA-SHAKE-128s", NULL, 0},
    {"slhdsashake128f", "SLH-DSA-SHAKE-128f", NULL, 0},
    {"slhdsashake192s", "SLH-DSA-SHAKE-192s", NULL, 0},
    {"slhdsashake192f", "SLH-DSA-SHAKE-192f", NULL, 0},
    {"slhdsashake256s", "SLH-DSA-SHAKE-256s", NULL, 0},
    {"slhdsashake256f", "SLH-DSA-SHAKE-256f", NULL, 0},
};

const char *const *pq_pki_algorithms(void)
{
    static const char *names[PQ_COUNT(rows) + 1];
    for (size_t i = 0; i < PQ_COUNT(rows); i++)
        names[i] = rows[i].name;
    return names;
}

/* --- near names ----------------------------------------------------------------------------------------------------
 */
enum { NEAR_LENGTH = 32, NEAR_COUNT = 3 };

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    unsigned ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Levenshtein's distance of the first NEAR_LENGTH characters. */
static unsigned distance(const char *a, const char *b)
{
    size_t la = strnlen(a, NEAR_LENGTH), lb = strnlen(b, NEAR_LENGTH);
    unsigned row[NEAR_LENGTH + 1];
    for (size_t j = 0; j <= lb; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= la; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= lb; j++) {
            unsigned above = row[j];
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[lb];
}

/* Lower case without what people put between the parts: "ML-DSA-65" is "mldsa65". */
static void plain(const char *name, char out[NEAR_LENGTH + 1])
{
    size_t n = 0;
    for (; *name && n < NEAR_LENGTH; name++)
        if (*name != '-' && *name != '_' && *name != ' ')
            out[n++] = *name >= 'A' && *name <= 'Z' ? (char)(*name + 32) : *name;
    out[n] = 0;
}

static int unknown(const char *algorithm, struct pq_why *why)
{
    char asked[NEAR_LENGTH + 1] = "";
    plain(algorithm, asked);
    unsigned best[NEAR_COUNT] = {~0u, ~0u, ~0u};
    const char *near[NEAR_COUNT] = {"mldsa65", "slhdsa128s", "p256"};
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        unsigned d = distance(asked, rows[i].name);
        for (size_t k = 0; k < NEAR_COUNT; k++) {
            if (d >= best[k])
                continue;
            memmove(best + k + 1, best + k, (NEAR_COUNT - 1 - k) * sizeof best[0]);
            memmove(near + k + 1, near + k, (NEAR_COUNT - 1 - k) * sizeof near[0]);
            best[k] = d;
            near[k] = rows[i].name;
            break;
        }
    }
    return pq_why(
        why, PQ_E_INVALID,
        "\"%.64s\" is no signature algorithm here; near it are %s, %s and %s, and \"pqplane algorithms\" lists all",
        algorithm, near[0], near[1], near[2]);
}

/* --- making --------------------------------------------------------------------------------------------------------
 */
static int find(const char *algorithm)
{
    for (size_t i = 0; i < PQ_COUNT(rows); i++)
        if (strcasecmp(rows[i].name, algorithm) == 0 ||
            (!rows[i].group && !rows[i].bits && strcasecmp(rows[i].type, algorithm) == 0))
            return (int)i;
    return -1;
}

int pq_pki_key_new(struct pq_crypto *c, const char *algorithm, EVP_PKEY **out, struct pq_why *why)
{
    int row = find(algorithm);
    const char *type = row >= 0 ? rows[row].type : algorithm;
    ERR_set_mark();
    DEFER(EVP_PKEY_CTX_freep) EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(pq_crypto_libctx(c), type, NULL);
    bool known = ctx && EVP_PKEY_keygen_init(ctx) > 0;
    if (!known && row < 0) {
        ERR_pop_to_mark();
        return unknown(algorithm, why);
    }
    ERR_clear_last_mark();
    if (!known)
        return pq_crypto_why(why, PQ_E_CRYPTO, "can't make a key for %s", algorithm);

    OSSL_PARAM params[2] = {OSSL_PARAM_END, OSSL_PARAM_END};
    char group[16];
    size_t bits = row >= 0 ? rows[row].bits : 0;
    if (row >= 0 && rows[row].group) {
        snprintf(group, sizeof group, "%s", rows[row].group);
        params[0] = OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, group, 0);
    } else if (bits) {
        params[0] = OSSL_PARAM_construct_size_t(OSSL_PKEY_PARAM_RSA_BITS, &bits);
    }
    DEFER(EVP_PKEY_freep) EVP_PKEY *key = NULL;
    if (EVP_PKEY_CTX_set_params(ctx, params) <= 0 || EVP_PKEY_generate(ctx, &key) <= 0)
        return pq_crypto_why(why, PQ_E_CRYPTO, "can't make a key for %s", algorithm);
    if (!EVP_PKEY_can_sign(key))
        return unknown(algorithm, why);
    *out = TAKE(key);
    return 0;
}

const char *pq_pki_key_digest(EVP_PKEY *key)
{
    char name[64] = "";
    /* 2: the scheme allows no other. */
    if (EVP_PKEY_get_default_digest_name(key, name, sizeof name) == 2 && (!name[0] || strcmp(name, "UNDEF") == 0))
        return NULL;
    int bits = EVP_PKEY_get_security_bits(key);
    return bits >= 256 ? "SHA512" : bits >= 192 ? "SHA384" : "SHA256";
}

/* --- PEM -----------------------------------------------------------------------------------------------------------
 */
int pq_pki_key_pem(EVP_PKEY *key, struct pq_buf *out, struct pq_why *why)
{
    /* Wiped when freed. */
    DEFER(BIO_freep) BIO *bio = BIO_new(BIO_s_secmem());
    if (!bio)
        return pq_crypto_why(why, PQ_E_NOMEM, "out of memory");
    DEFER(OSSL_ENCODER_CTX_freep)
    OSSL_ENCODER_CTX *encoder = OSSL_ENCODER_CTX_new_for_pkey(key, EVP_PKEY_KEYPAIR, "PEM", "PrivateKeyInfo", NULL);
    if (!encoder || !OSSL_ENCODER_to_bio(encoder, bio))
        return pq_crypto_why(why, PQ_E_CRYPTO, "can't write the private key as PKCS#8");
    char *text = NULL;
    long len = BIO_get_mem_data(bio, &text);
    return pq_buf_append(out, text, len > 0 ? (size_t)len : 0);
}

/* A key behind a passphrase is refused instead of asked for: no terminal may be there. */
static int refuse_passphrase(char *buf, int size, int writing, void *asked)
{
    (void)buf, (void)size, (void)writing;
    *(bool *)asked = true;
    return -1;
}

int pq_pki_key_load(struct pq_crypto *c, const char *path, EVP_PKEY **out, struct pq_why *why)
{
    DEFER(pq_buf_wipe) struct pq_buf text = {.cap = PQ_PKI_KEY_FILE_CAP};
    /* All at once: a buffer that grows leaves unwiped copies behind. */
    if (pq_buf_reserve(&text, PQ_PKI_KEY_FILE_CAP) < 0)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    TRY(pq_file_read(path, &text, why));
    DEFER(BIO_freep) BIO *bio = BIO_new_mem_buf(text.len ? (const void *)text.at : "", (int)text.len);
    if (!bio)
        return pq_crypto_why(why, PQ_E_NOMEM, "out of memory");
    bool asked = false;
    EVP_PKEY *key = PEM_read_bio_PrivateKey_ex(bio, NULL, refuse_passphrase, &asked, pq_crypto_libctx(c), NULL);
    if (key) {
        *out = key;
        return 0;
    }
    if (!asked)
        return pq_crypto_why(why, PQ_E_CRYPTO, "%s holds no private key in PEM that can be read", path);
    ERR_clear_error();
    return pq_why(why, PQ_E_INVALID,
                  "the key in %s is encrypted: decrypt it with \"openssl pkey\" into a file of mode 0600", path);
}
