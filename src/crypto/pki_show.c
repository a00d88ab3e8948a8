#include "crypto/pki_show.h"

#include <arpa/inet.h>
#include <openssl/decoder.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "crypto/kind.h"
#include "crypto/ossl.h"

PQ_DEFINE_FREEP(OSSL_DECODER_CTX, OSSL_DECODER_CTX_free)

enum { LINE = 20 }; /* where values begin */

/* --- pieces of text ------------------------------------------------------------------------------------------------
 */
static int label(struct pq_buf *out, const char *name) { return pq_buf_printf(out, "  %-*s", LINE - 2, name); }

/* Whatever a certificate says can't drive a terminal. */
static int quoted(struct pq_buf *out, const unsigned char *at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        TRY(at[i] < ' ' || at[i] > '~' || at[i] == '\\' ? pq_buf_printf(out, "\\x%02x", at[i])
                                                        : pq_buf_append(out, at + i, 1));
    return 0;
}

static int hex(struct pq_buf *out, const ASN1_STRING *s)
{
    const unsigned char *at = ASN1_STRING_get0_data(s);
    for (int i = 0; i < ASN1_STRING_length(s); i++)
        TRY(pq_buf_printf(out, "%02x", at[i]));
    return 0;
}

static int serial(struct pq_buf *out, const ASN1_INTEGER *n)
{
    if (ASN1_STRING_type(n) == V_ASN1_NEG_INTEGER)
        TRY(pq_buf_text(out, "-"));
    return hex(out, n);
}

static int name_line(struct pq_buf *out, const char *what, const X509_NAME *name)
{
    DEFER(BIO_freep) BIO *bio = BIO_new(BIO_s_mem());
    if (!bio || X509_NAME_print_ex(bio, name, 0, XN_FLAG_RFC2253 & ~ASN1_STRFLGS_ESC_MSB) < 0)
        return pq_crypto_why(NULL, PQ_E_SYNTAX, "name");
    char *text = NULL;
    long len = BIO_get_mem_data(bio, &text);
    TRY(label(out, what));
    for (long i = 0; i < len; i++)
        TRY((unsigned char)text[i] < ' ' || text[i] == 0x7f ? pq_buf_text(out, "?") : pq_buf_append(out, text + i, 1));
    return pq_buf_text(out, len > 0 ? "\n" : "-\n");
}

static int date(struct pq_buf *out, const ASN1_TIME *t)
{
    struct tm tm = {0};
    char text[64];
    if (!t || !ASN1_TIME_to_tm(t, &tm) || strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        return pq_buf_text(out, "unreadable");
    return pq_buf_text(out, text);
}

static int period(struct pq_buf *out, const ASN1_TIME *begin, const ASN1_TIME *end, time_t now)
{
    TRY(label(out, "valid"));
    TRY(date(out, begin));
    TRY(pq_buf_text(out, " to "));
    TRY(end ? date(out, end) : pq_buf_text(out, "-"));
    const char *state = X509_cmp_time(begin, &now) > 0        ? ", not yet valid"
                        : end && X509_cmp_time(end, &now) < 0 ? ", expired"
                                                              : "";
    return pq_buf_printf(out, "%s\n", state);
}

static const char *object_name(const ASN1_OBJECT *o, char *text, size_t size)
{
    int nid = OBJ_obj2nid(o);
    if (nid != NID_undef)
        return OBJ_nid2ln(nid);
    return OBJ_obj2txt(text, (int)size, o, 1) > 0 ? text : "unknown";
}

static int kind_text(struct pq_buf *out, const char *algorithm)
{
    enum pq_kind kind = pq_kind_of_signature(algorithm);
    return pq_buf_printf(out, ", %s%s\n", pq_kind_names[kind], pq_kind_experimental(algorithm) ? ", experimental" : "");
}

static int signature_line(struct pq_buf *out, const X509_ALGOR *algorithm, const ASN1_BIT_STRING *bits)
{
    char text[80];
    const ASN1_OBJECT *o = NULL;
    X509_ALGOR_get0(&o, NULL, NULL, algorithm);
    const char *name = object_name(o, text, sizeof text);
    TRY(label(out, "signature"));
    TRY(pq_buf_printf(out, "%s, %d bytes", name, ASN1_STRING_length(bits)));
    return kind_text(out, name);
}

/* --- keys ----------------------------------------------------------------------------------------------------------
 */
static int key_text(struct pq_buf *out, const EVP_PKEY *key)
{
    const char *type = EVP_PKEY_get0_type_name(key);
    char group[64] = "";
    if (!type)
        type = "unknown";
    TRY(pq_buf_text(out, type));
    if (strcmp(type, "EC") == 0 && EVP_PKEY_get_group_name(key, group, sizeof group, NULL) > 0)
        TRY(pq_buf_printf(out, " %s", group));
    if (strncmp(type, "RSA", 3) == 0)
        TRY(pq_buf_printf(out, " %d bits", EVP_PKEY_get_bits(key)));
    return 0;
}

static int public_size(const EVP_PKEY *key)
{
    X509_PUBKEY *p = NULL;
    const unsigned char *at;
    int len = 0;
    if (!X509_PUBKEY_set(&p, (EVP_PKEY *)key) || !X509_PUBKEY_get0_param(NULL, &at, &len, NULL, p))
        len = 0;
    X509_PUBKEY_free(p);
    ERR_clear_error();
    return len;
}

static int certificate_key(struct pq_buf *out, X509 *x)
{
    X509_PUBKEY *p = X509_get_X509_PUBKEY(x);
    const unsigned char *at = NULL;
    ASN1_OBJECT *o = NULL;
    char text[80];
    int len = 0;
    X509_PUBKEY_get0_param(&o, &at, &len, NULL, p);
    const EVP_PKEY *key = X509_get0_pubkey(x);
    const char *type = key ? EVP_PKEY_get0_type_name(key) : object_name(o, text, sizeof text);
    TRY(label(out, "key"));
    TRY(key ? key_text(out, key) : pq_buf_printf(out, "%s (no provider reads it)", type));
    TRY(pq_buf_printf(out, ", %d bytes", len));
    ERR_clear_error();
    return kind_text(out, type ? type : "unknown");
}

static int refuse_passphrase(char *buf, size_t size, size_t *len, const OSSL_PARAM params[], void *asked)
{
    (void)buf, (void)size, (void)len, (void)params;
    *(bool *)asked = true;
    return 0;
}

static int show_key(struct pq_crypto *c, struct pq_span der, bool private, struct pq_buf *out)
{
    EVP_PKEY *read = NULL;
    bool asked = false;
    const unsigned char *at = der.at;
    size_t left = der.len;
    DEFER(OSSL_DECODER_CTX_freep)
    OSSL_DECODER_CTX *decoder = OSSL_DECODER_CTX_new_for_pkey(
        &read, "DER", NULL, NULL, private ? EVP_PKEY_KEYPAIR : EVP_PKEY_PUBLIC_KEY, pq_crypto_libctx(c), NULL);
    if (!decoder || !OSSL_DECODER_CTX_set_passphrase_cb(decoder, refuse_passphrase, &asked))
        return PQ_E_NOMEM;
    int ok = OSSL_DECODER_from_data(decoder, &at, &left);
    DEFER(EVP_PKEY_freep) EVP_PKEY *key = read;
    if (asked) {
        TRY(pq_buf_text(out, "encrypted private key\n"));
        return pq_buf_printf(out, "  %-*s%zu bytes\n", LINE - 2, "size", der.len);
    }
    if (!ok || !key || left)
        return PQ_E_SYNTAX;
    TRY(pq_buf_text(out, private ? "private key\n" : "public key\n"));
    TRY(label(out, "key"));
    TRY(key_text(out, key));
    const char *type = EVP_PKEY_get0_type_name(key);
    TRY(pq_buf_printf(out, ", public key %d bytes", public_size(key)));
    TRY(kind_text(out, type ? type : "unknown"));
    return pq_buf_printf(out, "  %-*s%zu bytes\n", LINE - 2, "size", der.len);
}

/* --- certificates --------------------------------------------------------------------------------------------------
 */
static int flags_line(struct pq_buf *out, const char *what, uint32_t flags, const char *const *names, size_t count)
{
    bool first = true;
    TRY(label(out, what));
    for (size_t i = 0; i < count; i++) {
        if (!names[i] || !(flags & (1u << i)))
            continue;
        TRY(pq_buf_printf(out, "%s%s", first ? "" : ", ", names[i]));
        first = false;
    }
    return pq_buf_text(out, first ? "none that is known\n" : "\n");
}

static int usage_lines(struct pq_buf *out, X509 *x)
{
    /* By bit of X509_get_key_usage(): the first octet of the BIT STRING, then the last bit in the second. */
    static const char *const usages[16] = {"encipherOnly",
                                           "cRLSign",
                                           "keyCertSign",
                                           "keyAgreement",
                                           "dataEncipherment",
                                           "keyEncipherment",
                                           "nonRepudiation",
                                           "digitalSignature",
                                           NULL,
                                           NULL,
                                           NULL,
                                           NULL,
                                           NULL,
                                           NULL,
                                           NULL,
                                           "decipherOnly"};
    /* By bit of X509_get_extended_key_usage(): XKU_SSL_SERVER and on. */
    static const char *const purposes[9] = {"serverAuth",         "clientAuth",  "emailProtection", "codeSigning",
                                            "serverGatedCrypto",  "OCSPSigning", "timeStamping",    "DVCS",
                                            "anyExtendedKeyUsage"};
    uint32_t flags = X509_get_extension_flags(x);
    if (flags & EXFLAG_CA) {
        long depth = X509_get_pathlen(x);
        TRY(label(out, "authority"));
        TRY(depth >= 0 ? pq_buf_printf(out, "yes, path length %ld\n", depth) : pq_buf_text(out, "yes\n"));
    } else {
        TRY(label(out, "authority"));
        TRY(pq_buf_text(out, "no\n"));
    }
    if (flags & EXFLAG_KUSAGE)
        TRY(flags_line(out, "key usage", X509_get_key_usage(x), usages, PQ_COUNT(usages)));
    if (flags & EXFLAG_XKUSAGE)
        TRY(flags_line(out, "purposes", X509_get_extended_key_usage(x), purposes, PQ_COUNT(purposes)));
    if (flags & EXFLAG_INVALID)
        TRY(pq_buf_printf(out, "  %-*sthe certificate contradicts itself or RFC 5280\n", LINE - 2, "invalid"));
    return 0;
}

static int ip_text(struct pq_buf *out, const ASN1_OCTET_STRING *s)
{
    char text[INET6_ADDRSTRLEN];
    int len = ASN1_STRING_length(s);
    TRY(pq_buf_text(out, "IP:"));
    if ((len != 4 && len != 16) ||
        !inet_ntop(len == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(s), text, sizeof text))
        return hex(out, s);
    return pq_buf_text(out, text);
}

static int one_name(struct pq_buf *out, const GENERAL_NAME *n)
{
    static const struct {
        int type;
        const char *prefix;
    } texts[] = {{GEN_DNS, "DNS:"}, {GEN_URI, "URI:"}, {GEN_EMAIL, "email:"}};
    int type;
    const ASN1_STRING *value = GENERAL_NAME_get0_value(n, &type);
    if (type == GEN_IPADD)
        return ip_text(out, value);
    for (size_t i = 0; i < PQ_COUNT(texts); i++) {
        if (type != texts[i].type)
            continue;
        TRY(pq_buf_text(out, texts[i].prefix));
        return quoted(out, ASN1_STRING_get0_data(value), (size_t)ASN1_STRING_length(value));
    }
    return pq_buf_text(out, "a name of another form");
}

static int names_lines(struct pq_buf *out, X509 *x)
{
    int state = 0;
    DEFER(GENERAL_NAMES_freep) GENERAL_NAMES *names = X509_get_ext_d2i(x, NID_subject_alt_name, &state, NULL);
    if (!names)
        return state == -1 ? 0 : pq_buf_printf(out, "  %-*sunreadable\n", LINE - 2, "name");
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        TRY(label(out, "name"));
        TRY(one_name(out, sk_GENERAL_NAME_value(names, i)));
        TRY(pq_buf_text(out, "\n"));
    }
    return 0;
}

static int id_line(struct pq_buf *out, const char *what, const ASN1_OCTET_STRING *id)
{
    if (!id)
        return 0;
    TRY(label(out, what));
    TRY(hex(out, id));
    return pq_buf_text(out, "\n");
}

static int show_certificate(struct pq_crypto *c, struct pq_span der, time_t now, struct pq_buf *out)
{
    DEFER(X509_freep) X509 *x = X509_new_ex(pq_crypto_libctx(c), NULL);
    const unsigned char *at = der.at;
    if (!x)
        return PQ_E_NOMEM;
    if (!d2i_X509(&x, &at, (long)der.len) || at != der.at + der.len)
        return PQ_E_SYNTAX;
    const ASN1_BIT_STRING *bits;
    const X509_ALGOR *algorithm;
    X509_get0_signature(&bits, &algorithm, x);
    TRY(pq_buf_text(out, "certificate\n"));
    TRY(name_line(out, "subject", X509_get_subject_name(x)));
    TRY(name_line(out, "issuer", X509_get_issuer_name(x)));
    TRY(label(out, "serial"));
    TRY(serial(out, X509_get0_serialNumber(x)));
    TRY(pq_buf_text(out, "\n"));
    TRY(period(out, X509_get0_notBefore(x), X509_get0_notAfter(x), now));
    TRY(certificate_key(out, x));
    TRY(signature_line(out, algorithm, bits));
    TRY(usage_lines(out, x));
    TRY(names_lines(out, x));
    TRY(id_line(out, "key id", X509_get0_subject_key_id(x)));
    TRY(id_line(out, "authority key id", X509_get0_authority_key_id(x)));
    return pq_buf_printf(out, "  %-*s%zu bytes\n", LINE - 2, "size", der.len);
}

/* --- revocation lists ----------------------------------------------------------------------------------------------
 */
static int show_entries(struct pq_buf *out, X509_CRL *crl)
{
    STACK_OF(X509_REVOKED) *entries = X509_CRL_get_REVOKED(crl);
    int count = entries ? sk_X509_REVOKED_num(entries) : 0;
    TRY(pq_buf_printf(out, "  %-*s%d\n", LINE - 2, "revoked", count));
    for (int i = 0; i < count && i < PQ_PKI_SHOW_ENTRIES_MAX; i++) {
        const X509_REVOKED *r = sk_X509_REVOKED_value(entries, i);
        TRY(label(out, ""));
        TRY(serial(out, X509_REVOKED_get0_serialNumber(r)));
        TRY(pq_buf_text(out, " since "));
        TRY(date(out, X509_REVOKED_get0_revocationDate(r)));
        TRY(pq_buf_text(out, "\n"));
    }
    if (count > PQ_PKI_SHOW_ENTRIES_MAX)
        TRY(pq_buf_printf(out, "  %-*sand %d more\n", LINE - 2, "", count - PQ_PKI_SHOW_ENTRIES_MAX));
    return 0;
}

static int show_list(struct pq_crypto *c, struct pq_span der, time_t now, struct pq_buf *out)
{
    DEFER(X509_CRL_freep) X509_CRL *crl = X509_CRL_new_ex(pq_crypto_libctx(c), NULL);
    const unsigned char *at = der.at;
    if (!crl)
        return PQ_E_NOMEM;
    if (!d2i_X509_CRL(&crl, &at, (long)der.len) || at != der.at + der.len)
        return PQ_E_SYNTAX;
    const ASN1_BIT_STRING *bits;
    const X509_ALGOR *algorithm;
    X509_CRL_get0_signature(crl, &bits, &algorithm);
    TRY(pq_buf_text(out, "revocation list\n"));
    TRY(name_line(out, "issuer", X509_CRL_get_issuer(crl)));
    DEFER(ASN1_INTEGER_freep) ASN1_INTEGER *number = X509_CRL_get_ext_d2i(crl, NID_crl_number, NULL, NULL);
    if (number) {
        TRY(label(out, "number"));
        TRY(serial(out, number));
        TRY(pq_buf_text(out, "\n"));
    }
    TRY(period(out, X509_CRL_get0_lastUpdate(crl), X509_CRL_get0_nextUpdate(crl), now));
    TRY(signature_line(out, algorithm, bits));
    TRY(show_entries(out, crl));
    return pq_buf_printf(out, "  %-*s%zu bytes\n", LINE - 2, "size", der.len);
}

/* --- a file --------------------------------------------------------------------------------------------------------
 */
static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

static int show_pem(struct pq_crypto *c, const char *type, const char *header, struct pq_span der, time_t now,
                    struct pq_buf *out)
{
    if (strcmp(type, "CERTIFICATE") == 0 || strcmp(type, "X509 CERTIFICATE") == 0)
        return show_certificate(c, der, now, out);
    if (strcmp(type, "X509 CRL") == 0)
        return show_list(c, der, now, out);
    if (strcmp(type, "PUBLIC KEY") == 0)
        return show_key(c, der, false, out);
    if (ends_with(type, "PRIVATE KEY") && *header)
        return pq_buf_text(out, "encrypted private key\n");
    if (ends_with(type, "PRIVATE KEY"))
        return show_key(c, der, true, out);
    TRY(pq_buf_text(out, "an object of another kind\n"));
    TRY(label(out, "type"));
    TRY(quoted(out, (const unsigned char *)type, strlen(type)));
    return pq_buf_text(out, "\n");
}

static int show_der(struct pq_crypto *c, struct pq_span der, time_t now, struct pq_buf *out)
{
    int e = show_certificate(c, der, now, out);
    if (e == PQ_E_SYNTAX)
        e = show_list(c, der, now, out);
    if (e == PQ_E_SYNTAX)
        e = show_key(c, der, true, out);
    if (e == PQ_E_SYNTAX)
        e = show_key(c, der, false, out);
    return e;
}

static int why_not(const char *name, size_t count, const char *type, int e, struct pq_why *why)
{
    if (e == PQ_E_SYNTAX)
        return pq_crypto_why(why, e, "%s: object %zu (%.40s) can't be read", name, count, type);
    ERR_clear_error();
    return pq_why(why, e, "%s: %s", name, pq_error_text(e));
}

static int show_pems(struct pq_crypto *c, const char *name, BIO *bio, time_t now, struct pq_buf *out, size_t *count,
                     struct pq_why *why)
{
    for (*count = 0;;) {
        char *type = NULL, *header = NULL;
        unsigned char *data = NULL;
        long len = 0;
        ERR_clear_error();
        if (!PEM_read_bio(bio, &type, &header, &data, &len)) {
            bool end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
            if (!end)
                return pq_crypto_why(why, PQ_E_SYNTAX, "%s: object %zu can't be read", name, *count + 1);
            ERR_clear_error();
            return 0;
        }
        int e = ++*count > PQ_PKI_SHOW_OBJECTS_MAX ? PQ_E_TOO_LONG : pq_buf_printf(out, "%s: ", name);
        if (e == 0)
            e = show_pem(c, type, header, pq_span(data, (size_t)len), now, out);
        if (e < 0)
            e = why_not(name, *count, type, e, why);
        OPENSSL_free(type);
        OPENSSL_free(header);
        OPENSSL_clear_free(data, (size_t)len);
        TRY(e);
    }
}

int pq_pki_show(struct pq_crypto *c, const char *name, struct pq_span in, time_t now, struct pq_buf *out,
                struct pq_why *why)
{
    size_t count = 0;
    DEFER(BIO_freep) BIO *bio = BIO_new_mem_buf(in.len ? (const void *)in.at : "", (int)in.len);
    if (!bio)
        return pq_crypto_why(why, PQ_E_NOMEM, "out of memory");
    int e = show_pems(c, name, bio, now, out, &count, why);
    ERR_clear_error();
    if (e < 0 || count)
        return e;
    size_t before = out->len;
    e = pq_buf_printf(out, "%s: ", name);
    if (e == 0)
        e = show_der(c, in, now, out);
    ERR_clear_error();
    if (e == 0)
        return 0;
    out->len = before;
    if (e == PQ_E_SYNTAX)
        return pq_why(why, PQ_E_TYPE, "%s holds no certificate, key or revocation list, neither in PEM nor in DER",
                      name);
    return why_not(name, 1, "DER", e, why);
}

int pq_pki_show_file(struct pq_crypto *c, const char *path, time_t now, struct pq_buf *out, struct pq_why *why)
{
    DEFER(pq_buf_wipe) struct pq_buf text = {.cap = PQ_PKI_SHOW_FILE_CAP};
    TRY(pq_file_read(path, &text, why));
    return pq_pki_show(c, path, pq_span(text.at, text.len), now, out, why);
}
