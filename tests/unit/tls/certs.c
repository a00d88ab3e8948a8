#include "certs.h"

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/file.h"

static char paths[CERTS_MAX * 4][CERTS_PATH];
static int path_count;

static const char *path_of(const struct certs *w, const char *name, const char *end)
{
    assert_true(path_count < CERTS_MAX * 4);
    char *p = paths[path_count++];
    assert_true(snprintf(p, CERTS_PATH, "%s/%s%s", w->folder, name, end) < CERTS_PATH);
    return p;
}

void certs_new(struct certs *w)
{
    struct pq_why why = {{0}};
    *w = (struct certs){.folder = "/tmp/pqplane-tls-test-XXXXXX"};
    assert_non_null(mkdtemp(w->folder));
    assert_int_equal(pq_crypto_new(&w->crypto, &why), 0);
}

void certs_free(struct certs *w)
{
    for (int i = 0; i < w->count; i++) {
        EVP_PKEY_free(w->all[i]->key);
        X509_free(w->all[i]->x);
        free(w->all[i]);
    }
    struct pq_why why;
    assert_int_equal(pq_file_remove_tree(w->folder, &why), 0);
    pq_crypto_free(w->crypto);
    path_count = 0;
}

static EVP_PKEY *make_key(OSSL_LIB_CTX *lib, const char *algorithm)
{
    static const char *const curves[][2] = {{"p256", "P-256"}, {"p384", "P-384"}, {"p521", "P-521"}};
    for (size_t i = 0; i < PQ_COUNT(curves); i++)
        if (!strcmp(algorithm, curves[i][0]))
            return EVP_PKEY_Q_keygen(lib, NULL, "EC", curves[i][1]);
    if (!strcmp(algorithm, "rsa1024") || !strcmp(algorithm, "rsa2048"))
        return EVP_PKEY_Q_keygen(lib, NULL, "RSA", (size_t)(algorithm[3] == '1' ? 1024 : 2048));
    return EVP_PKEY_Q_keygen(lib, NULL, algorithm);
}

static void extend(X509 *x, const X509 *issuer, int nid, const char *value)
{
    X509V3_CTX v;
    X509V3_set_ctx(&v, (X509 *)(uintptr_t)issuer, x, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &v, nid, value);
    assert_non_null(e);
    assert_true(X509_add_ext(x, e, -1));
    X509_EXTENSION_free(e);
}

static void sign(OSSL_LIB_CTX *lib, X509 *x, X509_CRL *crl, EVP_PKEY *key)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    char digest[32] = "";
    int has = EVP_PKEY_get_default_digest_name(key, digest, sizeof digest);
    bool named = has > 0 && strcmp(digest, "UNDEF") != 0 && *digest;
    assert_int_equal(EVP_DigestSignInit_ex(md, NULL, named ? digest : NULL, lib, NULL, key, NULL), 1);
    assert_true(x ? X509_sign_ctx(x, md) : X509_CRL_sign_ctx(crl, md));
    EVP_MD_CTX_free(md);
}

static void write_files(struct certs *w, struct cert *c, const struct cert_how *how)
{
    snprintf(c->chain, sizeof c->chain, "%s", path_of(w, how->name, ".crt"));
    snprintf(c->key_file, sizeof c->key_file, "%s", path_of(w, how->name, ".key"));
    c->identity = (struct pq_tls_identity){c->chain, c->key_file};
    BIO *b = BIO_new_file(c->chain, "w");
    for (const struct cert *i = c; i && (i->issuer || i == c || how->whole_chain); i = i->issuer)
        assert_true(PEM_write_bio_X509(b, i->x));
    BIO_free(b);
    FILE *f = fopen(c->key_file, "w");
    assert_non_null(f);
    assert_int_equal(fchmod(fileno(f), 0600), 0);
    assert_true(PEM_write_PKCS8PrivateKey(f, c->key, NULL, NULL, 0, NULL, NULL));
    fclose(f);
}

const struct cert *certs_make(struct certs *w, struct cert_how how)
{
    OSSL_LIB_CTX *lib = pq_crypto_libctx(w->crypto);
    struct cert *c = calloc(1, sizeof *c);
    assert_true(c && w->count < CERTS_MAX);
    w->all[w->count++] = c;
    c->issuer = how.issuer;
    c->key = make_key(lib, how.algorithm);
    c->x = X509_new_ex(lib, NULL);
    assert_true(c->key && c->x);
    const X509 *issuer = how.issuer ? how.issuer->x : c->x;
    X509_set_version(c->x, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(c->x), w->count + 1000);
    X509_gmtime_adj(X509_getm_notBefore(c->x), how.from_s || how.to_s ? how.from_s : -3600);
    X509_gmtime_adj(X509_getm_notAfter(c->x), how.from_s || how.to_s ? how.to_s : 3600);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(c->x), "CN", MBSTRING_ASC, (const unsigned char *)how.name, -1, -1,
                               0);
    X509_set_issuer_name(c->x, X509_get_subject_name(issuer));
    X509_set_pubkey(c->x, c->key);
    if (!how.small) {
        extend(c->x, issuer, NID_basic_constraints, how.ca ? "critical,CA:TRUE" : "critical,CA:FALSE");
        extend(c->x, issuer, NID_key_usage, how.ca ? "critical,keyCertSign,cRLSign" : "critical,digitalSignature");
        extend(c->x, issuer, NID_subject_key_identifier, "hash");
        extend(c->x, issuer, NID_authority_key_identifier, "keyid");
    }
    if (how.san)
        extend(c->x, issuer, NID_subject_alt_name, how.san);
    if (how.eku)
        extend(c->x, issuer, NID_ext_key_usage, how.eku);
    sign(lib, c->x, NULL, how.issuer ? how.issuer->key : c->key);
    write_files(w, c, &how);
    return c;
}

const char *certs_crl(struct certs *w, const char *name, const struct cert *issuer, const struct cert *revoked,
                      long from_s, long to_s)
{
    OSSL_LIB_CTX *lib = pq_crypto_libctx(w->crypto);
    X509_CRL *crl = X509_CRL_new_ex(lib, NULL);
    X509_CRL_set_version(crl, X509_CRL_VERSION_2);
    X509_CRL_set_issuer_name(crl, X509_get_subject_name(issuer->x));
    ASN1_TIME *at = X509_gmtime_adj(NULL, from_s);
    X509_CRL_set1_lastUpdate(crl, at);
    X509_gmtime_adj(at, to_s);
    X509_CRL_set1_nextUpdate(crl, at);
    X509_gmtime_adj(at, -60);
    if (revoked) {
        X509_REVOKED *r = X509_REVOKED_new();
        X509_REVOKED_set_serialNumber(r, X509_get_serialNumber(revoked->x));
        X509_REVOKED_set_revocationDate(r, at);
        X509_CRL_add0_revoked(crl, r);
    }
    ASN1_TIME_free(at);
    sign(lib, NULL, crl, issuer->key);
    const char *path = path_of(w, name, ".crl");
    BIO *b = BIO_new_file(path, "w");
    assert_true(PEM_write_bio_X509_CRL(b, crl));
    BIO_free(b);
    X509_CRL_free(crl);
    return path;
}

const char *certs_file(struct certs *w, const char *name, const char *text, unsigned mode)
{
    struct pq_why why = {{0}};
    const char *path = path_of(w, name, "");
    assert_int_equal(pq_file_write(path, pq_span_text(text), mode, PQ_FILE_REPLACE, &why), 0);
    return path;
}
