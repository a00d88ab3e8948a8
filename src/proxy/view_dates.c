#include "proxy/view_dates.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tls/load.h"

/* --- pieces ------------------------------------------------------------------------------------------------------ */
/* 0: there is none. */
static time_t unix_time(const ASN1_TIME *t)
{
    struct tm tm = {0};
    return t && ASN1_TIME_to_tm(t, &tm) ? timegm(&tm) : 0;
}

static void put_until(struct pq_json *j, time_t at)
{
    char text[40];
    struct tm tm = {0};
    if (at == 0)
        return;
    gmtime_r(&at, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    pq_json_text(j, "until", text);
    pq_json_whole(j, "until_unix", at);
}

static int put_name(struct pq_json *j, const char *key, const X509_NAME *name)
{
    DEFER(BIO_free_allp) BIO *b = BIO_new(BIO_s_mem());
    char text[256] = "";
    if (!b || X509_NAME_print_ex(b, name, 0, XN_FLAG_RFC2253) < 0)
        return PQ_E_NOMEM;
    int n = BIO_read(b, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    pq_json_text(j, key, text);
    return j->failed;
}

static void put_algorithm(struct pq_json *j, X509 *leaf)
{
    EVP_PKEY *key = X509_get0_pubkey(leaf);
    const char *type = key ? EVP_PKEY_get0_type_name(key) : NULL;
    char text[128], group[64] = "";
    if (type && strcmp(type, "EC") == 0)
        EVP_PKEY_get_group_name(key, group, sizeof group, NULL);
    snprintf(text, sizeof text, "%s%s%s", type ? type : "unknown", group[0] ? " " : "", group);
    pq_json_text(j, "algorithm", text);
}

/* --- our certificates -------------------------------------------------------------------------------------------- */
/* A chain is of no use any more once one of it has expired. */
static time_t first_end(const STACK_OF(X509) * chain)
{
    time_t first = 0;
    for (int i = 0; i < sk_X509_num(chain); i++) {
        time_t end = unix_time(X509_get0_notAfter(sk_X509_value(chain, i)));
        first = i == 0 || end < first ? end : first;
    }
    return first;
}

static int load_chain(struct pq_crypto *crypto, const struct pq_view *v, const char *path, STACK_OF(X509) * *out,
                      struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf own = {0};
    struct pq_span pem;
    TRY(pq_tls_contents(v->files, path, false, &own, &pem, why));
    return pq_tls_load_chain(pq_crypto_libctx(crypto), path, pem, out, why);
}

static int put_certificate(struct pq_json *j, struct pq_crypto *crypto, const struct pq_view *v,
                           const struct pq_proxy_listener *l, const struct pq_tls_identity *identity, size_t number,
                           struct pq_why *why)
{
    DEFER(pq_x509_stack_freep) STACK_OF(X509) *chain = NULL;
    TRY(load_chain(crypto, v, identity->certificate, &chain, why));
    X509 *leaf = sk_X509_value(chain, 0);
    pq_json_open(j, NULL, '{');
    pq_json_text(j, "listener", l->name);
    pq_json_text(j, "direction", pq_proxy_direction_names[l->direction]);
    pq_json_whole(j, "identity", (int64_t)number);
    pq_json_text(j, "file", identity->certificate);
    TRY(put_name(j, "subject", X509_get_subject_name(leaf)));
    put_algorithm(j, leaf);
    pq_json_whole(j, "chain", sk_X509_num(chain));
    put_until(j, first_end(chain));
    pq_json_close(j, '}');
    return j->failed;
}

static int put_certificates(struct pq_json *j, struct pq_crypto *crypto, const struct pq_view *v, struct pq_why *why)
{
    pq_json_open(j, "certificates", '[');
    for (size_t i = 0; i < pq_proxy_listener_count(v->config); i++) {
        const struct pq_proxy_listener *l = pq_proxy_listener_at(v->config, i);
        struct pq_tls_settings s = pq_proxy_listener_tls(v->config, l);
        for (size_t k = 0; k < s.identity_count; k++)
            TRY(put_certificate(j, crypto, v, l, &s.identities[k], k, why));
    }
    pq_json_close(j, ']');
    return j->failed;
}

/* --- what others' are judged by ---------------------------------------------------------------------------------- */
static int put_row(struct pq_json *j, const char *file, int number, const X509_NAME *name, time_t until)
{
    pq_json_open(j, NULL, '{');
    pq_json_text(j, "file", file);
    pq_json_whole(j, "number", number);
    TRY(put_name(j, "name", name));
    put_until(j, until);
    pq_json_close(j, '}');
    return j->failed;
}

static int put_authorities(struct pq_json *j, OSSL_LIB_CTX *lib, const char *path, struct pq_span pem,
                           struct pq_why *why)
{
    DEFER(pq_x509_stack_freep) STACK_OF(X509) *all = NULL;
    TRY(pq_tls_load_anchors(lib, path, pem, &all, why));
    for (int i = 0; i < sk_X509_num(all); i++) {
        const X509 *x = sk_X509_value(all, i);
        TRY(put_row(j, path, i, X509_get_subject_name(x), unix_time(X509_get0_notAfter(x))));
    }
    return 0;
}

static int put_lists(struct pq_json *j, OSSL_LIB_CTX *lib, const char *path, struct pq_span pem, struct pq_why *why)
{
    DEFER(pq_crl_stack_freep) STACK_OF(X509_CRL) *all = NULL;
    TRY(pq_tls_load_crls(lib, path, pem, &all, why));
    for (int i = 0; i < sk_X509_CRL_num(all); i++) {
        const X509_CRL *x = sk_X509_CRL_value(all, i);
        TRY(put_row(j, path, i, X509_CRL_get_issuer(x), unix_time(X509_CRL_get0_nextUpdate(x))));
    }
    return 0;
}

static const struct {
    const char *key;
    size_t path; /* where in the settings */
    int (*put)(struct pq_json *j, OSSL_LIB_CTX *lib, const char *path, struct pq_span pem, struct pq_why *why);
} kinds[] = {{"authorities", offsetof(struct pq_tls_settings, ca), put_authorities},
             {"revocation_lists", offsetof(struct pq_tls_settings, crl), put_lists}};

static const char *path_of(const struct pq_view *v, size_t listener, size_t kind)
{
    struct pq_tls_settings s = pq_proxy_listener_tls(v->config, pq_proxy_listener_at(v->config, listener));
    return *(char *const *)(const void *)((const char *)&s + kinds[kind].path);
}

static bool told_before(const struct pq_view *v, size_t listener, size_t kind, const char *path)
{
    for (size_t i = 0; i < listener; i++) {
        const char *other = path_of(v, i, kind);
        if (other && strcmp(other, path) == 0)
            return true;
    }
    return false;
}

static int put_kind(struct pq_json *j, struct pq_crypto *crypto, const struct pq_view *v, size_t kind,
                    struct pq_why *why)
{
    pq_json_open(j, kinds[kind].key, '[');
    for (size_t i = 0; i < pq_proxy_listener_count(v->config); i++) {
        const char *path = path_of(v, i, kind);
        DEFER(pq_buf_free) struct pq_buf own = {0};
        struct pq_span pem;
        if (!path || told_before(v, i, kind, path))
            continue;
        TRY(pq_tls_contents(v->files, path, false, &own, &pem, why));
        TRY(kinds[kind].put(j, pq_crypto_libctx(crypto), path, pem, why));
    }
    pq_json_close(j, ']');
    return j->failed;
}

int pq_view_dates(struct pq_json *j, struct pq_crypto *crypto, const struct pq_view *v, struct pq_why *why)
{
    TRY(put_certificates(j, crypto, v, why));
    for (size_t kind = 0; kind < PQ_COUNT(kinds); kind++)
        TRY(put_kind(j, crypto, v, kind, why));
    return 0;
}
