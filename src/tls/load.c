#include "tls/load.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <string.h>

#include "base/file.h"
#include "crypto/crypto.h"
#include "crypto/token.h"
#include "tls/tls.h"

/* No key asks a person for its password: a daemon has none to ask. */
static int no_password(char *out, int size, int writing, void *asked)
{
    (void)out, (void)size, (void)writing;
    *(bool *)asked = true;
    return -1;
}

static BIO *bio_of(struct pq_span pem) { return BIO_new_mem_buf(pem.len ? (const void *)pem.at : "", (int)pem.len); }

/* The end of a PEM file shows as "no start line"; anything else is a mistake in it. */
static bool at_end(void)
{
    unsigned long e = ERR_peek_last_error();
    if (ERR_GET_LIB(e) != ERR_LIB_PEM || ERR_GET_REASON(e) != PEM_R_NO_START_LINE)
        return false;
    ERR_clear_error();
    return true;
}

/* 0 and *out, or *out NULL at the end. */
static int next_certificate(OSSL_LIB_CTX *lib, const char *name, BIO *in, int index, X509 **out, struct pq_why *why)
{
    DEFER(X509_freep) X509 *x = X509_new_ex(lib, NULL);
    if (!x)
        return pq_crypto_why(why, PQ_E_NOMEM, "%s", name);
    ERR_clear_error();
    bool asked = false;
    X509 *got = PEM_read_bio_X509(in, &x, no_password, &asked);
    if (got) {
        *out = TAKE(x);
        return 0;
    }
    *out = NULL;
    if (at_end())
        return 0;
    return pq_crypto_why(why, PQ_E_CONFIG, "%s: certificate number %d can't be read", name, index + 1);
}

static int too_many(struct pq_why *why, const char *name, const char *what, int most)
{
    return pq_why(why, PQ_E_CONFIG, "%s holds more than %d %s", name, most, what);
}

static int check_span(struct pq_why *why, const char *name, struct pq_span pem)
{
    if (pem.len > PQ_TLS_FILE_MAX)
        return pq_why(why, PQ_E_CONFIG, "%s is larger than %d bytes", name, PQ_TLS_FILE_MAX);
    return 0;
}

/* A peer has the root already, or does not trust it. */
static bool is_root_behind_leaf(X509 *x, int index) { return index > 0 && (X509_get_extension_flags(x) & EXFLAG_SS); }

int pq_tls_load_chain(OSSL_LIB_CTX *lib, const char *name, struct pq_span pem, STACK_OF(X509) * *out,
                      struct pq_why *why)
{
    TRY(check_span(why, name, pem));
    DEFER(BIO_free_allp) BIO *in = bio_of(pem);
    DEFER(pq_x509_stack_freep) STACK_OF(X509) *chain = sk_X509_new_null();
    if (!in || !chain)
        return pq_crypto_why(why, PQ_E_NOMEM, "%s", name);
    for (int i = 0;; i++) {
        DEFER(X509_freep) X509 *x = NULL;
        TRY(next_certificate(lib, name, in, i, &x, why));
        if (!x)
            break;
        if (i == PQ_TLS_CHAIN_MAX)
            return too_many(why, name, "certificates", PQ_TLS_CHAIN_MAX);
        if (is_root_behind_leaf(x, i))
            continue;
        if (!sk_X509_push(chain, x))
            return pq_crypto_why(why, PQ_E_NOMEM, "%s", name);
        x = NULL;
    }
    if (sk_X509_num(chain) == 0)
        return pq_why(why, PQ_E_CONFIG, "%s holds no certificate (expected PEM, \"-----BEGIN CERTIFICATE-----\")",
                      name);
    *out = TAKE(chain);
    return 0;
}

int pq_tls_load_key(OSSL_LIB_CTX *lib, const char *name, struct pq_span pem, EVP_PKEY **out, struct pq_why *why)
{
    static const char mark[] = "PRIVATE KEY-----";
    TRY(check_span(why, name, pem));
    if (!pem.len || !memmem(pem.at, pem.len, mark, sizeof mark - 1))
        return pq_why(why, PQ_E_CONFIG, "%s holds no private key (expected PEM, \"-----BEGIN PRIVATE KEY-----\")",
                      name);
    DEFER(BIO_free_allp) BIO *in = bio_of(pem);
    if (!in)
        return pq_crypto_why(why, PQ_E_NOMEM, "%s", name);
    ERR_clear_error();
    bool asked = false;
    EVP_PKEY *key = PEM_read_bio_PrivateKey_ex(in, NULL, no_password, &asked, lib, NULL);
    if (key) {
        *out = key;
        return 0;
    }
    if (asked) {
        ERR_clear_error();
        return pq_why(why, PQ_E_CONFIG,
                      "the key in %s is encrypted: give it without a password, in a file of mode 0600", name);
    }
    return pq_crypto_why(why, PQ_E_CONFIG, "the key in %s can't be read", name);
}

int pq_tls_load_anchors(OSSL_LIB_CTX *lib, const char *name, struct pq_span pem, STACK_OF(X509) * *out,
                        struct pq_why *why)
{
    TRY(check_span(why, name, pem));
    DEFER(BIO_free_allp) BIO *in = bio_of(pem);
    DEFER(pq_x509_stack_freep) STACK_OF(X509) *anchors = sk_X509_new_null();
    if (!in || !anchors)
        return pq_crypto_why(why, PQ_E_NOMEM, "%s", name);
    for (int count = 0;; count++) {
        DEFER(X509_freep) X509 *x = NULL;
        TRY(next_certificate(lib, name, in, count, &x, why));
        if (!x)
            break;
        if (count == PQ_TLS_ANCHORS_MAX)
            return too_many(why, name, "trust anchors", PQ_TLS_ANCHORS_MAX);
        if (!sk_X509_push(anchors, x))
            return pq_crypto_why(why, PQ_E_NOMEM, "%s", name);
        x = NULL;
    }
    if (sk_X509_num(anchors) == 0)
        return pq_why(why, PQ_E_CONFIG, "%s holds no certificate (expected PEM, \"-----BEGIN CERTIFICATE-----\")",
                      name);
    *out = TAKE(anchors);
    return 0;
}

/* 0 and *out, or *out NULL at the end. */
static int next_list(OSSL_LIB_CTX *lib, const char *name, BIO *in, int index, X509_CRL **out, struct pq_why *why)
{
    DEFER(X509_CRL_freep) X509_CRL *crl = X509_CRL_new_ex(lib, NULL);
    if (!crl)
        return pq_crypto_why(why, PQ_E_NOMEM, "%s", name);
    ERR_clear_error();
    bool asked = false;
    if (PEM_read_bio_X509_CRL(in, &crl, no_password, &asked)) {
        *out = TAKE(crl);
        return 0;
    }
    *out = NULL;
    if (at_end())
        return 0;
    return pq_crypto_why(why, PQ_E_CONFIG, "%s: revocation list number %d can't be read", name, index + 1);
}

int pq_tls_load_crls(OSSL_LIB_CTX *lib, const char *name, struct pq_span pem, STACK_OF(X509_CRL) * *out,
                     struct pq_why *why)
{
    TRY(check_span(why, name, pem));
    DEFER(BIO_free_allp) BIO *in = bio_of(pem);
    DEFER(pq_crl_stack_freep) STACK_OF(X509_CRL) *lists = sk_X509_CRL_new_null();
    if (!in || !lists)
        return pq_crypto_why(why, PQ_E_NOMEM, "%s", name);
    for (int count = 0;; count++) {
        DEFER(X509_CRL_freep) X509_CRL *crl = NULL;
        TRY(next_list(lib, name, in, count, &crl, why));
        if (!crl)
            break;
        if (count == PQ_TLS_CRLS_MAX)
            return too_many(why, name, "revocation lists", PQ_TLS_CRLS_MAX);
        if (!sk_X509_CRL_push(lists, crl))
            return pq_crypto_why(why, PQ_E_NOMEM, "%s", name);
        crl = NULL;
    }
    if (sk_X509_CRL_num(lists) == 0)
        return pq_why(why, PQ_E_CONFIG, "%s holds no revocation list (expected PEM, \"-----BEGIN X509 CRL-----\")",
                      name);
    *out = TAKE(lists);
    return 0;
}

int pq_tls_contents(const struct pq_files *files, const char *path, bool secret, struct pq_buf *own,
                    struct pq_span *out, struct pq_why *why)
{
    if (files) {
        int e = pq_files_get(files, path, out);
        return e < 0 ? pq_why(why, PQ_E_NOENT, "can't read %s: it is not among the files that were read", path) : 0;
    }
    own->cap = PQ_TLS_FILE_MAX;
    TRY(secret ? pq_file_read_secret(path, own, why) : pq_file_read(path, own, why));
    *out = pq_span(own->at, own->len);
    return 0;
}

static int add_key(struct pq_files *out, const char *key, struct pq_why *why)
{
    DEFER(pq_token_uri_free) struct pq_token_uri uri = {0};
    if (!pq_token_is_uri(key))
        return pq_files_add(out, key, true, why);
    TRY(pq_token_uri_parse(key, &uri, why));
    return uri.pin_file ? pq_files_add(out, uri.pin_file, true, why) : 0;
}

int pq_tls_settings_files(const struct pq_tls_settings *how, struct pq_files *out, struct pq_why *why)
{
    for (size_t i = 0; i < how->identity_count; i++) {
        const struct pq_tls_identity *id = &how->identities[i];
        if (id->certificate)
            TRY(pq_files_add(out, id->certificate, false, why));
        if (id->key)
            TRY(add_key(out, id->key, why));
    }
    if (how->ca)
        TRY(pq_files_add(out, how->ca, false, why));
    return how->crl ? pq_files_add(out, how->crl, false, why) : 0;
}
