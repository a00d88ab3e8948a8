#include "tls/trust.h"

#include <limits.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "tls/load.h"

/* --- dates and names ---------------------------------------------------------------------------------------------- */

int64_t pq_tls_seconds(const ASN1_TIME *at)
{
    struct tm tm = {0};
    return at && ASN1_TIME_to_tm(at, &tm) ? (int64_t)timegm(&tm) : INT64_MIN;
}

void pq_tls_date_s(int64_t at_s, char out[16])
{
    struct tm tm = {0};
    time_t at = (time_t)at_s;
    if (at_s == INT64_MIN || !gmtime_r(&at, &tm) || !strftime(out, 16, "%Y-%m-%d", &tm))
        snprintf(out, 16, "an odd date");
}

void pq_tls_date(const ASN1_TIME *at, char out[16]) { pq_tls_date_s(pq_tls_seconds(at), out); }

void pq_tls_name_text(const X509_NAME *name, char out[256])
{
    out[0] = 0;
    DEFER(BIO_free_allp) BIO *b = BIO_new(BIO_s_mem());
    if (!b || X509_NAME_print_ex(b, name, 0, XN_FLAG_RFC2253) < 0)
        return;
    int n = BIO_read(b, out, 255);
    out[n > 0 ? n : 0] = 0;
}

static int64_t wall_s(void) { return pq_clock_wall_ns() / PQ_NS_PER_S; }

/* --- anchors ------------------------------------------------------------------------------------------------------ */

int pq_tls_key_hash(OSSL_LIB_CTX *lib, const X509 *x, uint8_t out[PQ_TLS_KEY_HASH])
{
    unsigned char *der = NULL;
    int len = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(x), &der);
    bool ok = len > 0 && EVP_Q_digest(lib, "SHA256", NULL, der, (size_t)len, out, NULL);
    OPENSSL_free(der);
    return ok ? 0 : PQ_E_NOMEM;
}

static int add_anchor(struct pq_tls_trust *t, const char *file, X509 *x, X509_STORE *store, struct pq_why *why)
{
    struct pq_tls_anchor *a = &t->anchors[t->anchor_count];
    if (!X509_STORE_add_cert(store, x))
        return pq_crypto_why(why, PQ_E_CONFIG, "%s: certificate number %zu can't be a trust anchor", file,
                             t->anchor_count + 1);
    if (pq_tls_key_hash(t->lib, x, a->key) < 0 || !X509_up_ref(x))
        return pq_crypto_why(why, PQ_E_NOMEM, "%s", file);
    a->x = x;
    t->anchor_count++;
    return 0;
}

static int load_anchors(struct pq_tls_trust *t, const struct pq_tls_settings *how, X509_STORE *store,
                        struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf own = {0};
    DEFER(pq_x509_stack_freep) STACK_OF(X509) *all = NULL;
    struct pq_span pem;
    TRY(pq_tls_contents(how->files, how->ca, false, &own, &pem, why));
    TRY(pq_tls_load_anchors(t->lib, how->ca, pem, &all, why));
    t->anchors = calloc((size_t)sk_X509_num(all), sizeof *t->anchors);
    if (!t->anchors)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    for (int i = 0; i < sk_X509_num(all); i++)
        TRY(add_anchor(t, how->ca, sk_X509_value(all, i), store, why));
    return 0;
}

bool pq_tls_trust_has_anchor(const struct pq_tls_trust *t, const X509_NAME *name, const uint8_t key[PQ_TLS_KEY_HASH])
{
    for (size_t i = 0; i < t->anchor_count; i++)
        if (memcmp(t->anchors[i].key, key, PQ_TLS_KEY_HASH) == 0 &&
            X509_NAME_cmp(X509_get_subject_name(t->anchors[i].x), name) == 0)
            return true;
    return false;
}

/* --- revocation lists --------------------------------------------------------------------------------------------- */

bool pq_tls_list_is_early(const X509_CRL *list, int64_t now_s)
{
    return pq_tls_seconds(X509_CRL_get0_lastUpdate(list)) > now_s + PQ_TLS_CLOCK_SKEW_S;
}

bool pq_tls_list_is_stale(const X509_CRL *list, int64_t now_s)
{
    const ASN1_TIME *next = X509_CRL_get0_nextUpdate(list);
    return next && pq_tls_seconds(next) < now_s;
}

static bool is_better(const X509_CRL *list, const X509_CRL *than, int64_t now_s)
{
    if (!than)
        return true;
    bool good = !pq_tls_list_is_stale(list, now_s), than_good = !pq_tls_list_is_stale(than, now_s);
    if (good != than_good)
        return good;
    return pq_tls_seconds(X509_CRL_get0_lastUpdate(list)) > pq_tls_seconds(X509_CRL_get0_lastUpdate(than));
}

X509_CRL *pq_tls_trust_list(const struct pq_tls_trust *t, const X509_NAME *issuer, int64_t now_s)
{
    X509_CRL *best = NULL;
    for (int i = 0; i < sk_X509_CRL_num(t->lists); i++) {
        X509_CRL *list = sk_X509_CRL_value(t->lists, i);
        if (X509_NAME_cmp(X509_CRL_get_issuer(list), issuer) == 0 && is_better(list, best, now_s))
            best = list;
    }
    return best;
}

/* Other keys may have had the same name: a list tells whose it is by its authority key identifier. */
static bool is_of(const X509_CRL *list, X509 *anchor)
{
    if (X509_NAME_cmp(X509_CRL_get_issuer(list), X509_get_subject_name(anchor)) != 0)
        return false;
    AUTHORITY_KEYID *id = X509_CRL_get_ext_d2i(list, NID_authority_key_identifier, NULL, NULL);
    bool fits = !id || X509_check_akid(anchor, id) == X509_V_OK;
    AUTHORITY_KEYID_free(id);
    return fits;
}

static bool is_signed_by_its_anchor(const struct pq_tls_trust *t, X509_CRL *list)
{
    bool named = false, ok = false;
    for (size_t i = 0; i < t->anchor_count && !ok; i++) {
        X509 *anchor = t->anchors[i].x;
        if (!is_of(list, anchor))
            continue;
        named = true;
        ok = X509_get0_pubkey(anchor) && X509_CRL_verify(list, X509_get0_pubkey(anchor)) == 1;
    }
    return ok || !named;
}

static int check_list(const struct pq_tls_trust *t, const char *file, X509_CRL *list, int64_t now_s, struct pq_why *why)
{
    char issuer[256], date[16];
    const ASN1_TIME *from = X509_CRL_get0_lastUpdate(list), *next = X509_CRL_get0_nextUpdate(list);
    pq_tls_name_text(X509_CRL_get_issuer(list), issuer);
    pq_tls_date(from, date);
    if (pq_tls_seconds(from) == INT64_MIN || (next && pq_tls_seconds(next) == INT64_MIN))
        return pq_why(why, PQ_E_CONFIG, "%s: the revocation list of %s has no readable date: fetch another", file,
                      issuer);
    if (pq_tls_list_is_early(list, now_s))
        return pq_why(why, PQ_E_CONFIG,
                      "%s: the revocation list of %s is not valid before %s: compare this host's clock with its "
                      "issuer's",
                      file, issuer, date);
    ERR_clear_error();
    bool is_signed = is_signed_by_its_anchor(t, list);
    if (!is_signed)
        return pq_crypto_why(why, PQ_E_CONFIG,
                             "%s: the revocation list of %s is not signed by the authority of that name in the CA "
                             "file: fetch the present list, and check that the CA file holds the authority's present "
                             "key",
                             file, issuer);
    ERR_clear_error();
    return 0;
}

static void warn(const char *event, const char *file, const X509_NAME *issuer, const X509_CRL *list)
{
    char name[256], date[16] = "none";
    pq_tls_name_text(issuer, name);
    if (list)
        pq_tls_date(X509_CRL_get0_nextUpdate(list), date);
    pq_log(PQ_LOG_WARN, event, "issuer", pq_s(name), "next_update", pq_s(date), file ? "file" : NULL, pq_s(file), NULL);
}

/* One that a newer list of its issuer replaces is of no interest. */
static void warn_if_stale(const struct pq_tls_trust *t, const char *file, const X509_CRL *list, int64_t now_s)
{
    const X509_NAME *issuer = X509_CRL_get_issuer(list);
    if (pq_tls_list_is_stale(list, now_s) && pq_tls_trust_list(t, issuer, now_s) == list)
        warn("revocation list out of date", file, issuer, list);
}

static int load_lists(struct pq_tls_trust *t, const struct pq_tls_settings *how, X509_STORE *store, struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf own = {0};
    struct pq_span pem;
    int64_t now_s = wall_s();
    TRY(pq_tls_contents(how->files, how->crl, false, &own, &pem, why));
    TRY(pq_tls_load_crls(t->lib, how->crl, pem, &t->lists, why));
    for (int i = 0; i < sk_X509_CRL_num(t->lists); i++) {
        X509_CRL *list = sk_X509_CRL_value(t->lists, i);
        TRY(check_list(t, how->crl, list, now_s, why));
        if (!X509_STORE_add_crl(store, list))
            return pq_crypto_why(why, PQ_E_CONFIG, "%s: revocation list number %d can't be used", how->crl, i + 1);
    }
    for (int i = 0; i < sk_X509_CRL_num(t->lists); i++)
        warn_if_stale(t, how->crl, sk_X509_CRL_value(t->lists, i), now_s);
    return 0;
}

int pq_tls_trust_load(struct pq_tls_trust *t, OSSL_LIB_CTX *lib, const struct pq_tls_settings *how, X509_STORE *store,
                      struct pq_why *why)
{
    t->lib = lib;
    t->stale = how->crl_stale;
    if (!(t->warned = calloc(1, sizeof *t->warned)))
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    pthread_mutex_init(&t->warned->lock, NULL); /* can't fail without attributes */
    if (how->ca)
        TRY(load_anchors(t, how, store, why));
    return how->crl ? load_lists(t, how, store, why) : 0;
}

void pq_tls_trust_free(struct pq_tls_trust *t)
{
    while (t->anchor_count)
        X509_free(t->anchors[--t->anchor_count].x);
    free(t->anchors);
    pq_crl_stack_freep(&t->lists);
    if (t->warned)
        pthread_mutex_destroy(&t->warned->lock);
    free(t->warned);
    *t = (struct pq_tls_trust){0};
}

/* --- warnings ----------------------------------------------------------------------------------------------------- */

/* Where the table is full, the issuer that was warned of longest ago makes room. */
static bool is_due(struct pq_tls_stale *w, unsigned long issuer, int64_t now_ns)
{
    size_t oldest = 0, i = 0;
    while (i < w->count && w->seen[i].issuer != issuer) {
        if (w->seen[i].at_ns < w->seen[oldest].at_ns)
            oldest = i;
        i++;
    }
    if (i < w->count && now_ns - w->seen[i].at_ns < PQ_TLS_STALE_WARNING_S * PQ_NS_PER_S)
        return false;
    if (i == PQ_TLS_STALE_WARNINGS_MAX)
        i = oldest;
    else if (i == w->count)
        w->count++;
    w->seen[i].issuer = issuer;
    w->seen[i].at_ns = now_ns;
    return true;
}

bool pq_tls_trust_tolerates(const struct pq_tls_trust *t, const X509_NAME *issuer, const X509_CRL *list)
{
    if (t->stale != PQ_TLS_CRL_WARN)
        return false;
    unsigned long hash = X509_NAME_hash_ex(issuer, t->lib, NULL, NULL);
    pthread_mutex_lock(&t->warned->lock);
    bool due = is_due(t->warned, hash, pq_clock_ns());
    pthread_mutex_unlock(&t->warned->lock);
    if (due)
        warn(list ? "revocation list out of date, certificate accepted"
                  : "revocation list missing, certificate accepted",
             NULL, issuer, list);
    return true;
}
