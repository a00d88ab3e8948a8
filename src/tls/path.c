#include "tls/path.h"

#include <openssl/objects.h>
#include <openssl/x509v3.h>
#include <string.h>

#include "tls/internal.h"

enum { FORM = 1 };

/* --- writing ------------------------------------------------------------------------------------------------------ */

static int write_vector(struct pq_writer *w, unsigned length_bytes, struct pq_span v)
{
    if (v.len > (length_bytes == 1 ? 0xff : 0xffff))
        return PQ_E_TOO_LONG;
    TRY(length_bytes == 1 ? pq_write_u8(w, (uint8_t)v.len) : pq_write_u16(w, (uint16_t)v.len));
    return pq_write_bytes(w, v);
}

static int write_text(struct pq_writer *w, const char *text)
{
    return write_vector(w, 1, pq_span(text, strlen(text) + 1));
}

static int write_name(struct pq_writer *w, const X509_NAME *name)
{
    const unsigned char *der = NULL;
    size_t len = 0;
    if (!X509_NAME_get0_der(name, &der, &len))
        return PQ_E_NOMEM;
    return write_vector(w, 2, pq_span(der, len));
}

static int write_serial(struct pq_writer *w, const X509 *x)
{
    unsigned char *der = NULL;
    int len = i2d_ASN1_INTEGER(X509_get0_serialNumber(x), &der);
    int e = len < 0 ? PQ_E_NOMEM : write_vector(w, 1, pq_span(der, (size_t)len));
    OPENSSL_free(der);
    return e;
}

static int write_algorithms(struct pq_writer *w, const X509 *x)
{
    char name[PQ_TLS_ALGORITHM_SIZE];
    EVP_PKEY *key = X509_get0_pubkey(x);
    const char *type = key ? EVP_PKEY_get0_type_name(key) : NULL;
    pq_tls_signed_with(x, name);
    TRY(write_text(w, name));
    return write_text(w, type ? type : "");
}

static int write_certificate(OSSL_LIB_CTX *lib, struct pq_writer *w, const X509 *x)
{
    uint8_t key[PQ_TLS_KEY_HASH];
    TRY(pq_tls_key_hash(lib, x, key));
    TRY(write_name(w, X509_get_subject_name(x)));
    TRY(pq_write_bytes(w, pq_span(key, sizeof key)));
    TRY(write_serial(w, x));
    TRY(pq_write_u64(w, (uint64_t)pq_tls_seconds(X509_get0_notBefore(x))));
    TRY(pq_write_u64(w, (uint64_t)pq_tls_seconds(X509_get0_notAfter(x))));
    return write_algorithms(w, x);
}

/* Where the extension stands twice, none of them counts, as for OpenSSL. */
static int write_names(struct pq_writer *w, const X509 *leaf)
{
    int at = X509_get_ext_by_NID(leaf, NID_subject_alt_name, -1);
    if (at < 0 || X509_get_ext_by_NID(leaf, NID_subject_alt_name, at) >= 0)
        return write_vector(w, 2, pq_span(NULL, 0));
    const ASN1_OCTET_STRING *names = X509_EXTENSION_get_data(X509_get_ext(leaf, at));
    return write_vector(w, 2, pq_span(ASN1_STRING_get0_data(names), (size_t)ASN1_STRING_length(names)));
}

static int write_path(OSSL_LIB_CTX *lib, STACK_OF(X509) * chain, const char *signature, struct pq_writer *w)
{
    int count = sk_X509_num(chain);
    if (count < 1 || count > PQ_TLS_PATH_CERTIFICATES_MAX)
        return PQ_E_TOO_LONG;
    TRY(pq_write_u8(w, FORM));
    TRY(write_text(w, signature));
    TRY(pq_write_u8(w, (uint8_t)count));
    for (int i = 0; i < count; i++)
        TRY(write_certificate(lib, w, sk_X509_value(chain, i)));
    TRY(write_name(w, X509_get_issuer_name(sk_X509_value(chain, count - 1))));
    return write_names(w, sk_X509_value(chain, 0));
}

int pq_tls_path_encode(OSSL_LIB_CTX *lib, STACK_OF(X509) * chain, const char *signature, struct pq_writer *out)
{
    struct pq_writer w = *out;
    TRY(write_path(lib, chain, signature, &w));
    out->len = w.len;
    return 0;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static int read_text(struct pq_reader *r, const char **out)
{
    struct pq_span text;
    TRY(pq_read_vector(r, 1, 0xff, &text));
    if (text.len == 0 || memchr(text.at, 0, text.len) != text.at + text.len - 1)
        return PQ_E_SYNTAX;
    *out = (const char *)text.at;
    return 0;
}

static int read_certificate(struct pq_reader *r, struct pq_tls_path_certificate *out)
{
    struct pq_span key;
    uint64_t from, to;
    TRY(pq_read_vector(r, 2, PQ_TLS_PATH_SIZE_MAX, &out->subject));
    TRY(pq_read_bytes(r, PQ_TLS_KEY_HASH, &key));
    TRY(pq_read_vector(r, 1, 0xff, &out->serial));
    TRY(pq_read_u64(r, &from));
    TRY(pq_read_u64(r, &to));
    out->key = key.at;
    out->from_s = (int64_t)from;
    out->to_s = (int64_t)to;
    TRY(read_text(r, &out->signed_with));
    return read_text(r, &out->algorithm);
}

static int read_path(struct pq_reader *r, struct pq_tls_path *out)
{
    uint8_t form, count;
    TRY(pq_read_u8(r, &form));
    if (form != FORM)
        return PQ_E_TYPE;
    TRY(read_text(r, &out->signature));
    TRY(pq_read_u8(r, &count));
    if (count == 0 || count > PQ_TLS_PATH_CERTIFICATES_MAX)
        return PQ_E_SYNTAX;
    out->count = count;
    for (size_t i = 0; i < count; i++)
        TRY(read_certificate(r, &out->at[i]));
    TRY(pq_read_vector(r, 2, PQ_TLS_PATH_SIZE_MAX, &out->issuer));
    TRY(pq_read_vector(r, 2, PQ_TLS_PATH_SIZE_MAX, &out->names));
    return pq_reader_left(r) ? PQ_E_SYNTAX : 0;
}

int pq_tls_path_decode(struct pq_span in, struct pq_tls_path *out)
{
    struct pq_reader r = pq_reader(in);
    struct pq_tls_path p = {0};
    if (in.len > PQ_TLS_PATH_SIZE_MAX)
        return PQ_E_TOO_LONG;
    TRY(read_path(&r, &p));
    *out = p;
    return 0;
}

int64_t pq_tls_path_not_after(const struct pq_tls_path *p)
{
    int64_t earliest = p->at[0].to_s;
    for (size_t i = 1; i < p->count; i++)
        if (p->at[i].to_s < earliest)
            earliest = p->at[i].to_s;
    return earliest;
}

/* --- on a connection ---------------------------------------------------------------------------------------------- */

/* A peer whose names are too long for it has none: it can't be judged again. */
int pq_tls_path_begin(struct pq_tls *t, STACK_OF(X509) * chain)
{
    uint8_t bytes[PQ_TLS_PATH_SIZE_MAX];
    struct pq_writer w = pq_writer(bytes, sizeof bytes);
    int e = pq_tls_path_encode(t->context->lib, chain, "", &w);
    pq_buf_free(&t->path);
    t->path.cap = PQ_TLS_PATH_SIZE_MAX;
    return e == PQ_E_TOO_LONG ? 0 : e < 0 ? e : pq_buf_append(&t->path, bytes, w.len);
}

int pq_tls_path_note(struct pq_tls *t)
{
    enum { UNSIGNED = 3 }; /* the form and an empty text */
    uint8_t bytes[PQ_TLS_PATH_SIZE_MAX];
    struct pq_writer w = pq_writer(bytes, sizeof bytes);
    const char *signature = NULL;
    if (t->path.len < UNSIGNED || t->path.at[1] != 1)
        return 0;
    if (!SSL_get0_peer_signature_name(t->ssl, &signature) || !signature)
        return PQ_E_CRYPTO;
    struct pq_span rest = pq_span(t->path.at + UNSIGNED, t->path.len - UNSIGNED);
    int e = pq_write_u8(&w, FORM);
    if (e == 0)
        e = write_text(&w, signature);
    if (e == 0)
        e = pq_write_bytes(&w, rest);
    if (e == 0)
        pq_buf_free(&t->path);
    if (e < 0)
        return e == PQ_E_TOO_LONG ? (pq_buf_free(&t->path), 0) : e;
    return pq_buf_append(&t->path, bytes, w.len);
}
