#include "crypto/pki_cert.h"

#include <openssl/err.h>
#include <openssl/rand.h>
#include <string.h>

#include "crypto/pki_key.h"

static int no_memory(struct pq_why *why) { return pq_crypto_why(why, PQ_E_NOMEM, "out of memory"); }

/* --- what certificates and lists share -----------------------------------------------------------------------------
 */
static int signer(struct pq_crypto *c, EVP_PKEY *key, EVP_MD_CTX **out, struct pq_why *why)
{
    DEFER(EVP_MD_CTX_freep) EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    if (!ctx)
        return no_memory(why);
    if (EVP_DigestSignInit_ex(ctx, NULL, pq_pki_key_digest(key), pq_crypto_libctx(c), NULL, key, NULL) <= 0)
        return pq_crypto_why(why, PQ_E_CRYPTO, "can't sign with %s", EVP_PKEY_get0_type_name(key));
    *out = TAKE(ctx);
    return 0;
}

static int make_time(time_t t, ASN1_TIME **out, struct pq_why *why)
{
    *out = ASN1_TIME_set(NULL, t);
    if (*out)
        return 0;
    ERR_clear_error();
    return pq_why(why, PQ_E_INVALID,
                  "the validity does not end before the year 10000, the last that a certificate can tell");
}

/* 20 random octets of which the first is 0x40 to 0x7f: positive and never shortened by DER. */
static int make_serial(struct pq_crypto *c, ASN1_INTEGER **out, struct pq_why *why)
{
    unsigned char bytes[PQ_PKI_SERIAL_BYTES];
    if (RAND_bytes_ex(pq_crypto_libctx(c), bytes, sizeof bytes, 0) <= 0)
        return pq_crypto_why(why, PQ_E_CRYPTO, "no random serial number");
    bytes[0] = (unsigned char)((bytes[0] & 0x3f) | 0x40);
    DEFER(BN_freep) BIGNUM *n = BN_bin2bn(bytes, sizeof bytes, NULL);
    *out = n ? BN_to_ASN1_INTEGER(n, NULL) : NULL;
    return *out ? 0 : no_memory(why);
}

/* RFC 5280, section 5.2.1: lists too carry the issuer's key identifier. */
static int make_authority(X509 *issuer, AUTHORITY_KEYID **out, struct pq_why *why)
{
    const ASN1_OCTET_STRING *id = X509_get0_subject_key_id(issuer);
    if (!id) {
        *out = NULL;
        return 0;
    }
    DEFER(AUTHORITY_KEYID_freep) AUTHORITY_KEYID *a = AUTHORITY_KEYID_new();
    if (!a || !(a->keyid = ASN1_OCTET_STRING_dup(id)))
        return no_memory(why);
    *out = TAKE(a);
    return 0;
}

/* --- extensions of a certificate -----------------------------------------------------------------------------------
 */
static int add(X509 *x, int nid, void *value, bool critical, struct pq_why *why)
{
    if (X509_add1_ext_i2d(x, nid, value, critical, X509V3_ADD_APPEND) > 0)
        return 0;
    return pq_crypto_why(why, PQ_E_CRYPTO, "can't add the extension %s", OBJ_nid2sn(nid));
}

static int add_key_id(struct pq_crypto *c, X509 *x, struct pq_why *why)
{
    const ASN1_BIT_STRING *bits = X509_get0_pubkey_bitstr(x);
    unsigned char digest[EVP_MAX_MD_SIZE];
    DEFER(ASN1_OCTET_STRING_freep) ASN1_OCTET_STRING *id = ASN1_OCTET_STRING_new();
    if (!id || !bits)
        return no_memory(why);
    if (!EVP_Q_digest(pq_crypto_libctx(c), "SHA256", NULL, ASN1_STRING_get0_data(bits),
                      (size_t)ASN1_STRING_length(bits), digest, NULL))
        return pq_crypto_why(why, PQ_E_CRYPTO, "can't hash the public key");
    if (!ASN1_OCTET_STRING_set(id, digest, 20))
        return no_memory(why);
    return add(x, NID_subject_key_identifier, id, false, why);
}

static int add_authority(X509 *x, X509 *issuer, struct pq_why *why)
{
    DEFER(AUTHORITY_KEYID_freep) AUTHORITY_KEYID *a = NULL;
    TRY(make_authority(issuer, &a, why));
    return a ? add(x, NID_authority_key_identifier, a, false, why) : 0;
}

static int add_constraints(X509 *x, const struct pq_pki_template *t, struct pq_why *why)
{
    DEFER(BASIC_CONSTRAINTS_freep) BASIC_CONSTRAINTS *b = BASIC_CONSTRAINTS_new();
    if (!b)
        return no_memory(why);
    b->ca = t->ca ? 0xff : 0;
    if (t->ca && (!(b->pathlen = ASN1_INTEGER_new()) || !ASN1_INTEGER_set(b->pathlen, t->path_length)))
        return no_memory(why);
    return add(x, NID_basic_constraints, b, true, why);
}

static int add_usage(X509 *x, bool ca, struct pq_why *why)
{
    enum { DIGITAL_SIGNATURE = 0, KEY_CERT_SIGN = 5, CRL_SIGN = 6 };
    DEFER(ASN1_BIT_STRING_freep) ASN1_BIT_STRING *usage = ASN1_BIT_STRING_new();
    if (!usage || !ASN1_BIT_STRING_set_bit(usage, ca ? KEY_CERT_SIGN : DIGITAL_SIGNATURE, 1) ||
        (ca && !ASN1_BIT_STRING_set_bit(usage, CRL_SIGN, 1)))
        return no_memory(why);
    return add(x, NID_key_usage, usage, true, why);
}

/* A network function is a server and a client with one certificate. */
static int add_purpose(X509 *x, struct pq_why *why)
{
    static const int purposes[] = {NID_server_auth, NID_client_auth};
    DEFER(EXTENDED_KEY_USAGE_freep) EXTENDED_KEY_USAGE *usage = EXTENDED_KEY_USAGE_new();
    if (!usage)
        return no_memory(why);
    for (size_t i = 0; i < PQ_COUNT(purposes); i++)
        if (!sk_ASN1_OBJECT_push(usage, OBJ_nid2obj(purposes[i])))
            return no_memory(why);
    return add(x, NID_ext_key_usage, usage, false, why);
}

static int add_extensions(struct pq_crypto *c, X509 *x, const struct pq_pki_template *t, X509 *issuer,
                          struct pq_why *why)
{
    TRY(add_constraints(x, t, why));
    TRY(add_usage(x, t->ca, why));
    if (!t->ca)
        TRY(add_purpose(x, why));
    TRY(add_key_id(c, x, why));
    TRY(add_authority(x, issuer ? issuer : x, why));
    return t->san ? add(x, NID_subject_alt_name, t->san, false, why) : 0;
}

int pq_pki_cert_new(struct pq_crypto *c, const struct pq_pki_template *t, X509 *issuer, EVP_PKEY *issuer_key,
                    X509 **out, struct pq_why *why)
{
    DEFER(X509_freep) X509 *x = X509_new_ex(pq_crypto_libctx(c), NULL);
    DEFER(ASN1_INTEGER_freep) ASN1_INTEGER *serial = NULL;
    DEFER(ASN1_TIME_freep) ASN1_TIME *begin = NULL;
    DEFER(ASN1_TIME_freep) ASN1_TIME *end = NULL;
    DEFER(EVP_MD_CTX_freep) EVP_MD_CTX *ctx = NULL;
    if (!x)
        return no_memory(why);
    TRY(make_serial(c, &serial, why));
    TRY(make_time(t->begin, &begin, why));
    TRY(make_time(t->end, &end, why));
    if (!X509_set_version(x, X509_VERSION_3) || !X509_set_serialNumber(x, serial) || !X509_set1_notBefore(x, begin) ||
        !X509_set1_notAfter(x, end) || !X509_set_subject_name(x, t->subject) || !X509_set_pubkey(x, t->key) ||
        !X509_set_issuer_name(x, issuer ? X509_get_subject_name(issuer) : t->subject))
        return pq_crypto_why(why, PQ_E_CRYPTO, "can't fill in a certificate");
    TRY(add_extensions(c, x, t, issuer, why));
    TRY(signer(c, issuer_key, &ctx, why));
    if (X509_sign_ctx(x, ctx) <= 0)
        return pq_crypto_why(why, PQ_E_CRYPTO, "can't sign a certificate with %s", EVP_PKEY_get0_type_name(issuer_key));
    *out = TAKE(x);
    return 0;
}

/* --- revocation lists ----------------------------------------------------------------------------------------------
 */
static bool is_revoked(X509_CRL *crl, const ASN1_INTEGER *serial)
{
    X509_REVOKED *r;
    return X509_CRL_get0_by_serial(crl, &r, serial) > 0;
}

static int copy_entries(X509_CRL *crl, X509_CRL *old, struct pq_why *why)
{
    STACK_OF(X509_REVOKED) *entries = X509_CRL_get_REVOKED(old);
    for (int i = 0; i < sk_X509_REVOKED_num(entries); i++) {
        DEFER(X509_REVOKED_freep) X509_REVOKED *r = X509_REVOKED_dup(sk_X509_REVOKED_value(entries, i));
        if (!r || !X509_CRL_add0_revoked(crl, r))
            return no_memory(why);
        r = NULL;
    }
    return 0;
}

static int add_entry(X509_CRL *crl, const ASN1_INTEGER *serial, ASN1_TIME *when, struct pq_why *why)
{
    if (is_revoked(crl, serial))
        return 0;
    DEFER(X509_REVOKED_freep) X509_REVOKED *r = X509_REVOKED_new();
    DEFER(ASN1_INTEGER_freep) ASN1_INTEGER *copy = ASN1_INTEGER_dup(serial);
    if (!r || !copy || !X509_REVOKED_set_serialNumber(r, copy) || !X509_REVOKED_set_revocationDate(r, when) ||
        !X509_CRL_add0_revoked(crl, r))
        return no_memory(why);
    r = NULL;
    return 0;
}

/* RFC 5280, section 5.2.3: the number only grows. */
static int add_number(X509_CRL *crl, X509_CRL *old, struct pq_why *why)
{
    DEFER(ASN1_INTEGER_freep) ASN1_INTEGER *before = old ? X509_CRL_get_ext_d2i(old, NID_crl_number, NULL, NULL) : NULL;
    DEFER(BN_freep) BIGNUM *n = before ? ASN1_INTEGER_to_BN(before, NULL) : BN_new();
    if (!n || !BN_add_word(n, 1))
        return no_memory(why);
    DEFER(ASN1_INTEGER_freep) ASN1_INTEGER *number = BN_to_ASN1_INTEGER(n, NULL);
    if (!number || !X509_CRL_add1_ext_i2d(crl, NID_crl_number, number, 0, X509V3_ADD_APPEND))
        return no_memory(why);
    return 0;
}

static int fill_list(X509_CRL *crl, X509 *issuer, X509_CRL *old, ASN1_INTEGER *const *serials, size_t count,
                     ASN1_TIME *begin, ASN1_TIME *end, struct pq_why *why)
{
    if (!X509_CRL_set_version(crl, X509_CRL_VERSION_2) ||
        !X509_CRL_set_issuer_name(crl, X509_get_subject_name(issuer)) || !X509_CRL_set1_lastUpdate(crl, begin) ||
        !X509_CRL_set1_nextUpdate(crl, end))
        return pq_crypto_why(why, PQ_E_CRYPTO, "can't fill in a revocation list");
    if (old)
        TRY(copy_entries(crl, old, why));
    for (size_t i = 0; i < count; i++)
        TRY(add_entry(crl, serials[i], begin, why));
    DEFER(AUTHORITY_KEYID_freep) AUTHORITY_KEYID *authority = NULL;
    TRY(make_authority(issuer, &authority, why));
    if (authority && !X509_CRL_add1_ext_i2d(crl, NID_authority_key_identifier, authority, 0, X509V3_ADD_APPEND))
        return no_memory(why);
    TRY(add_number(crl, old, why));
    return X509_CRL_sort(crl) ? 0 : no_memory(why);
}

int pq_pki_crl_new(struct pq_crypto *c, X509 *issuer, EVP_PKEY *issuer_key, X509_CRL *old, ASN1_INTEGER *const *serials,
                   size_t count, time_t begin_at, time_t end_at, X509_CRL **out, struct pq_why *why)
{
    DEFER(X509_CRL_freep) X509_CRL *crl = X509_CRL_new_ex(pq_crypto_libctx(c), NULL);
    DEFER(ASN1_TIME_freep) ASN1_TIME *begin = NULL;
    DEFER(ASN1_TIME_freep) ASN1_TIME *end = NULL;
    DEFER(EVP_MD_CTX_freep) EVP_MD_CTX *ctx = NULL;
    if (!crl)
        return no_memory(why);
    TRY(make_time(begin_at, &begin, why));
    TRY(make_time(end_at, &end, why));
    TRY(fill_list(crl, issuer, old, serials, count, begin, end, why));
    TRY(signer(c, issuer_key, &ctx, why));
    if (X509_CRL_sign_ctx(crl, ctx) <= 0)
        return pq_crypto_why(why, PQ_E_CRYPTO, "can't sign a revocation list with %s",
                             EVP_PKEY_get0_type_name(issuer_key));
    *out = TAKE(crl);
    return 0;
}
