#include "crypto/catalogue_measure.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/provider.h>
#include <openssl/ssl.h>
#include <string.h>

#include "base/bytes.h"
#include "crypto/ossl.h"

PQ_DEFINE_FREEP(SSL_CTX, SSL_CTX_free)
PQ_DEFINE_FREEP(SSL, SSL_free)

static int no_key(void)
{
    ERR_clear_error();
    return PQ_E_CRYPTO;
}

static int make_key(struct pq_crypto *c, const char *type, const char *group, EVP_PKEY **out)
{
    DEFER(EVP_PKEY_CTX_freep) EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(pq_crypto_libctx(c), type, NULL);
    if (!ctx || EVP_PKEY_keygen_init(ctx) <= 0)
        return no_key();
    char name[PQ_ALGORITHM_NAME];
    size_t bits = PQ_CATALOGUE_RSA_BITS;
    OSSL_PARAM params[2] = {OSSL_PARAM_END, OSSL_PARAM_END};
    if (group) {
        snprintf(name, sizeof name, "%s", group);
        params[0] = OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, name, 0);
    } else if (EVP_PKEY_CTX_is_a(ctx, "RSA") || EVP_PKEY_CTX_is_a(ctx, "RSA-PSS")) {
        params[0] = OSSL_PARAM_construct_size_t(OSSL_PKEY_PARAM_RSA_BITS, &bits);
    }
    EVP_PKEY *key = NULL;
    if (EVP_PKEY_CTX_set_params(ctx, params) <= 0 || EVP_PKEY_generate(ctx, &key) <= 0)
        return no_key();
    *out = key;
    return 0;
}

static struct pq_measured describe(EVP_PKEY *key)
{
    struct pq_measured m = {.size = {-1, -1, -1}, .security_bits = EVP_PKEY_get_security_bits(key)};
    const OSSL_PROVIDER *p = EVP_PKEY_get0_provider(key);
    /* OSSL_PKEY_PARAM_SECURITY_CATEGORY of OpenSSL 3.6; an older one knows no such parameter. */
    if (EVP_PKEY_get_int_param(key, "security-category", &m.category) <= 0 || m.category < 0)
        m.category = 0;
    if (m.security_bits < 0)
        m.security_bits = 0;
    snprintf(m.provider, sizeof m.provider, "%s", p ? OSSL_PROVIDER_get0_name(p) : "");
    return m;
}

/* --- key exchange --------------------------------------------------------------------------------------------------
 */
static long share_size(EVP_PKEY *key)
{
    unsigned char *share = NULL;
    size_t len = EVP_PKEY_get1_encoded_public_key(key, &share);
    OPENSSL_free(share);
    return len ? (long)len : -1;
}

static long ciphertext_size(struct pq_crypto *c, EVP_PKEY *key)
{
    DEFER(EVP_PKEY_CTX_freep) EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(pq_crypto_libctx(c), key, NULL);
    size_t len = 0, secret_len = 0;
    if (!ctx || EVP_PKEY_encapsulate_init(ctx, NULL) <= 0 ||
        EVP_PKEY_encapsulate(ctx, NULL, &len, NULL, &secret_len) <= 0 || !len || !secret_len)
        return -1;
    DEFER(pq_freep) unsigned char *text = malloc(len);
    unsigned char *secret = OPENSSL_malloc(secret_len);
    size_t room = secret_len;
    bool good = text && secret && EVP_PKEY_encapsulate(ctx, text, &len, secret, &secret_len) > 0;
    OPENSSL_clear_free(secret, room);
    return good ? (long)len : -1;
}

/* Where a provider claims no category: the strength of a KEM, a hybrid's included, is that of FIPS 203's parameter
 * sets. */
static int category_of_bits(int bits) { return bits >= 256 ? 5 : bits >= 192 ? 3 : bits >= 128 ? 1 : 0; }

int pq_measure_key_exchange(struct pq_crypto *c, const char *algorithm, const char *group, bool kem,
                            struct pq_measured *out)
{
    DEFER(EVP_PKEY_freep) EVP_PKEY *key = NULL;
    TRY(make_key(c, algorithm, group, &key));
    struct pq_measured m = describe(key);
    m.size.public_key = share_size(key);
    m.size.ciphertext = kem ? ciphertext_size(c, key) : m.size.public_key;
    if (!m.category)
        m.category = category_of_bits(m.security_bits);
    ERR_clear_error();
    *out = m;
    return 0;
}

/* --- signatures ----------------------------------------------------------------------------------------------------
 */
static long subject_public_key_size(EVP_PKEY *key)
{
    X509_PUBKEY *p = NULL;
    const unsigned char *at;
    int len = 0;
    bool good = X509_PUBKEY_set(&p, key) && X509_PUBKEY_get0_param(NULL, &at, &len, NULL, p);
    X509_PUBKEY_free(p);
    return good ? len : -1;
}

int pq_measure_signature(struct pq_crypto *c, const char *key_type, const char *group, struct pq_measured *out)
{
    DEFER(EVP_PKEY_freep) EVP_PKEY *key = NULL;
    TRY(make_key(c, key_type, group, &key));
    if (!EVP_PKEY_can_sign(key))
        return no_key();
    struct pq_measured m = describe(key);
    m.size.public_key = subject_public_key_size(key);
    int size = EVP_PKEY_get_size(key);
    m.size.signature = size > 0 ? size : -1;
    ERR_clear_error();
    *out = m;
    return 0;
}

int pq_measure_scheme(struct pq_crypto *c, const char *scheme, const char *curve, struct pq_measured *out)
{
    if (curve)
        return pq_measure_signature(c, "EC", curve, out);
    if (strncmp(scheme, "rsa_pss_pss_", 12) == 0)
        return pq_measure_signature(c, "RSA-PSS", NULL, out);
    if (strncmp(scheme, "rsa_", 4) == 0)
        return pq_measure_signature(c, "RSA", NULL, out);
    return pq_measure_signature(c, scheme, NULL, out);
}

/* --- code points of libssl's own schemes ---------------------------------------------------------------------------
 */
enum { EXT_SIGNATURE_ALGORITHMS = 13, HELLO_CAP = 1 << 16 };

/* The only scheme of a ClientHello's signature_algorithms (RFC 8446, sections 4.1.2 and 4.2.3). */
static int scheme_of_hello(struct pq_span in, int *out)
{
    struct pq_reader r = pq_reader(in), e, schemes;
    struct pq_span extensions, body, list, skipped;
    uint16_t type, scheme;
    TRY(pq_read_bytes(&r, 5 + 4 + 2 + 32, &skipped)); /* record, handshake, version, random */
    TRY(pq_read_vector(&r, 1, 32, &skipped));
    TRY(pq_read_vector(&r, 2, HELLO_CAP, &skipped));
    TRY(pq_read_vector(&r, 1, 255, &skipped));
    TRY(pq_read_vector(&r, 2, HELLO_CAP, &extensions));
    for (e = pq_reader(extensions); pq_reader_left(&e);) {
        TRY(pq_read_u16(&e, &type));
        TRY(pq_read_vector(&e, 2, HELLO_CAP, &body));
        if (type != EXT_SIGNATURE_ALGORITHMS)
            continue;
        r = pq_reader(body);
        TRY(pq_read_vector(&r, 2, HELLO_CAP, &list));
        schemes = pq_reader(list);
        TRY(pq_read_u16(&schemes, &scheme));
        if (pq_reader_left(&schemes))
            return PQ_E_UNSUPPORTED;
        *out = scheme;
        return 0;
    }
    return PQ_E_UNSUPPORTED;
}

static int hello_of(struct pq_crypto *c, const char *scheme, BIO *out)
{
    DEFER(SSL_CTX_freep) SSL_CTX *ctx = SSL_CTX_new_ex(pq_crypto_libctx(c), NULL, TLS_client_method());
    if (!ctx)
        return PQ_E_NOMEM;
    SSL_CTX_set_security_level(ctx, 0);
    if (!SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) || !SSL_CTX_set1_sigalgs_list(ctx, scheme))
        return PQ_E_UNSUPPORTED;
    DEFER(SSL_freep) SSL *ssl = SSL_new(ctx);
    BIO *in = BIO_new(BIO_s_mem());
    if (!ssl || !in || !BIO_up_ref(out)) {
        BIO_free(in);
        return PQ_E_NOMEM;
    }
    BIO_set_mem_eof_return(in, -1);
    SSL_set_bio(ssl, in, out);
    SSL_set_connect_state(ssl);
    int done = SSL_do_handshake(ssl);
    return SSL_get_error(ssl, done) == SSL_ERROR_WANT_READ ? 0 : PQ_E_UNSUPPORTED;
}

int pq_scheme_code_point(struct pq_crypto *c, const char *scheme, int *out)
{
    DEFER(BIO_freep) BIO *wire = BIO_new(BIO_s_mem());
    if (!wire)
        return PQ_E_NOMEM;
    int e = hello_of(c, scheme, wire);
    ERR_clear_error();
    TRY(e);
    char *at = NULL;
    long len = BIO_get_mem_data(wire, &at);
    return scheme_of_hello(pq_span(at, len > 0 ? (size_t)len : 0), out);
}
