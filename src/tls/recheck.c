#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "crypto/kind.h"
#include "tls/internal.h"
#include "tls/load.h"

struct judge {
    const struct pq_tls_context *c;
    struct pq_tls_path path;
    X509_NAME *subject[PQ_TLS_PATH_CERTIFICATES_MAX + 1]; /* and the anchor's issuer */
    size_t anchor;                                        /* the index of who is trusted */
    int64_t now_s;
    enum pq_tls_reason *reason;
    struct pq_why *why;
};

static int refuse(const struct judge *j, int code, enum pq_tls_reason reason, const char *format, ...) PQ_PRINTF(4, 5);
static int refuse(const struct judge *j, int code, enum pq_tls_reason reason, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (j->why)
        vsnprintf(j->why->text, sizeof j->why->text, format, args);
    va_end(args);
    *j->reason = reason;
    return code;
}

static int out_of_memory(const struct judge *j) { return refuse(j, PQ_E_NOMEM, PQ_TLS_INTERNAL, "out of memory"); }

static void judge_free(struct judge *j)
{
    for (size_t i = 0; i < PQ_COUNT(j->subject); i++)
        X509_NAME_free(j->subject[i]);
}

static int read_name(struct pq_span der, X509_NAME **out)
{
    const unsigned char *at = der.at;
    ERR_clear_error();
    *out = d2i_X509_NAME(NULL, &at, (long)der.len);
    if (*out)
        return at == der.at + der.len ? 0 : PQ_E_SYNTAX;
    return ERR_GET_REASON(ERR_peek_error()) == ERR_R_MALLOC_FAILURE ? PQ_E_NOMEM : PQ_E_SYNTAX;
}

static int judge_read(struct judge *j, struct pq_span encoded)
{
    int e = pq_tls_path_decode(encoded, &j->path);
    for (size_t i = 0; e == 0 && i < j->path.count; i++)
        e = read_name(j->path.at[i].subject, &j->subject[i]);
    if (e == 0)
        e = read_name(j->path.issuer, &j->subject[j->path.count]);
    ERR_clear_error();
    if (e == PQ_E_NOMEM)
        return out_of_memory(j);
    if (e < 0)
        return refuse(j, PQ_E_AUTH, PQ_TLS_BAD_CERTIFICATE,
                      "what was noted of the peer's certificates can't be read: %s", pq_error_text(e));
    return 0;
}

static void text_of(const struct judge *j, size_t i, char out[256]) { pq_tls_name_text(j->subject[i], out); }
static const char *whose(size_t i) { return i ? "issuer's " : ""; }

/* --- trust and time ----------------------------------------------------------------------------------------------- */

/* As OpenSSL does, the path goes as far up as it is trusted. */
static int find_anchor(struct judge *j)
{
    char subject[256];
    for (size_t i = j->path.count; i-- > 0;)
        if (pq_tls_trust_has_anchor(&j->c->trust, j->subject[i], j->path.at[i].key)) {
            j->anchor = i;
            return 0;
        }
    text_of(j, 0, subject);
    return refuse(j, PQ_E_AUTH, PQ_TLS_UNTRUSTED,
                  "the peer's certificate (%s) leads to no trust anchor any more: the CA file no longer has its root",
                  subject);
}

static int check_dates(const struct judge *j)
{
    char subject[256], date[16];
    for (size_t i = 0; i <= j->anchor; i++) {
        const struct pq_tls_path_certificate *x = &j->path.at[i];
        text_of(j, i, subject);
        if (x->to_s < j->now_s) {
            pq_tls_date_s(x->to_s, date);
            return refuse(j, PQ_E_AUTH, PQ_TLS_EXPIRED, "the peer's %scertificate (%s) expired on %s: renew it",
                          whose(i), subject, date);
        }
        if (x->from_s > j->now_s) {
            pq_tls_date_s(x->from_s, date);
            return refuse(j, PQ_E_AUTH, PQ_TLS_NOT_YET_VALID,
                          "the peer's %scertificate (%s) is not valid before %s: compare the clocks of both hosts",
                          whose(i), subject, date);
        }
    }
    return 0;
}

/* --- revocation --------------------------------------------------------------------------------------------------- */

static int check_serial(const struct judge *j, size_t i, X509_CRL *list)
{
    const unsigned char *at = j->path.at[i].serial.at;
    ASN1_INTEGER *serial = d2i_ASN1_INTEGER(NULL, &at, (long)j->path.at[i].serial.len);
    X509_REVOKED *entry = NULL;
    char subject[256];
    if (!serial)
        return out_of_memory(j);
    bool revoked = X509_CRL_get0_by_serial(list, &entry, serial) == 1; /* 2: no longer */
    ASN1_INTEGER_free(serial);
    if (!revoked)
        return 0;
    text_of(j, i, subject);
    return refuse(j, PQ_E_AUTH, PQ_TLS_REVOKED, "the peer's %scertificate (%s) is revoked: issue another", whose(i),
                  subject);
}

static int check_list(const struct judge *j, size_t i, X509_CRL *list)
{
    char issuer[256], date[16] = "";
    text_of(j, i + 1, issuer);
    if (list && pq_tls_list_is_early(list, j->now_s)) {
        pq_tls_date(X509_CRL_get0_lastUpdate(list), date);
        return refuse(j, PQ_E_AUTH, PQ_TLS_CRL_INVALID,
                      "the revocation list of %s is not valid before %s: compare this host's clock with its issuer's",
                      issuer, date);
    }
    bool stale = list && pq_tls_list_is_stale(list, j->now_s);
    if ((list && !stale) || pq_tls_trust_tolerates(&j->c->trust, j->subject[i + 1], list))
        return 0;
    if (stale)
        pq_tls_date(X509_CRL_get0_nextUpdate(list), date);
    return refuse(j, PQ_E_AUTH, stale ? PQ_TLS_CRL_STALE : PQ_TLS_CRL_MISSING, "the revocation list of %s is %s%s: %s",
                  issuer, stale ? "out of date since " : "missing", date,
                  stale ? "fetch the present list" : "add it to the CRL file");
}

static int check_revocation(const struct judge *j)
{
    for (size_t i = 0; j->c->trust.lists && i <= j->anchor; i++) {
        X509_CRL *list = pq_tls_trust_list(&j->c->trust, j->subject[i + 1], j->now_s);
        if (list)
            TRY(check_serial(j, i, list));
        if (i < j->anchor)
            TRY(check_list(j, i, list));
    }
    return 0;
}

/* --- names -------------------------------------------------------------------------------------------------------- */

/* A certificate that has these names and nothing else. */
static int certificate_of(struct pq_span names, X509 **out)
{
    DEFER(X509_freep) X509 *x = X509_new();
    ASN1_OCTET_STRING *value = ASN1_OCTET_STRING_new();
    X509_EXTENSION *extension = NULL;
    bool ok = x && value && ASN1_OCTET_STRING_set(value, names.at, (int)names.len) &&
              (extension = X509_EXTENSION_create_by_NID(NULL, NID_subject_alt_name, 0, value)) &&
              X509_add_ext(x, extension, -1);
    X509_EXTENSION_free(extension);
    ASN1_OCTET_STRING_free(value);
    if (!ok)
        return PQ_E_NOMEM;
    *out = TAKE(x);
    return 0;
}

static int check_names(const struct judge *j, const struct pq_strings *names)
{
    DEFER(X509_freep) X509 *x = NULL;
    char subject[256];
    bool shows = false;
    if (!names || names->count == 0)
        return 0;
    if (j->path.names.len && certificate_of(j->path.names, &x) < 0)
        return out_of_memory(j);
    for (size_t i = 0; x && i < names->count && !shows; i++)
        shows = pq_tls_shows_name(x, names->at[i]);
    bool memory = ERR_GET_REASON(ERR_peek_error()) == ERR_R_MALLOC_FAILURE;
    ERR_clear_error();
    if (shows)
        return 0;
    if (memory)
        return out_of_memory(j);
    text_of(j, 0, subject);
    return refuse(j, PQ_E_AUTH, PQ_TLS_WRONG_NAME, "the peer's certificate (%s) does not show the name %s%s", subject,
                  names->at[0], names->count > 1 ? " or an alternative to it" : "");
}

/* --- policy ------------------------------------------------------------------------------------------------------- */

static bool is_pq(const struct judge *j)
{
    const struct pq_tls_path *p = &j->path;
    bool pq = pq_tls_signature_is_pq(j->c, p->signature) && pq_tls_signature_is_pq(j->c, p->at[0].algorithm) &&
              pq_tls_signature_is_pq(j->c, p->at[j->anchor].algorithm);
    for (size_t i = 0; i < j->anchor; i++)
        pq = pq && pq_tls_signature_is_pq(j->c, p->at[i].signed_with);
    return pq;
}

static int check_signatures(const struct judge *j)
{
    char subject[256];
    text_of(j, 0, subject);
    if (j->c->require_pq_auth && !is_pq(j))
        return refuse(j, PQ_E_POLICY, PQ_TLS_POLICY_AUTH,
                      "the policy requires pq-auth, but a key or signature on the path of the peer's certificate (%s), "
                      "or its own signature (%s), is not post-quantum: issue it from a post-quantum root",
                      subject, j->path.signature);
    if (!pq_tls_list_has(j->c->sigalgs, j->path.signature))
        return refuse(j, PQ_E_POLICY, PQ_TLS_NO_SHARED_SIGALG,
                      "the peer signed with %s, which the policy no longer takes: give it one of %s", j->path.signature,
                      j->c->sigalgs);
    return 0;
}

int pq_tls_path_check(const struct pq_tls_context *c, struct pq_span encoded, const struct pq_strings *names,
                      int64_t now_s, enum pq_tls_reason *reason, struct pq_why *why)
{
    DEFER(judge_free) struct judge j = {.c = c, .now_s = now_s, .reason = reason, .why = why};
    TRY(judge_read(&j, encoded));
    TRY(find_anchor(&j));
    TRY(check_dates(&j));
    TRY(check_revocation(&j));
    TRY(check_names(&j, names));
    return check_signatures(&j);
}

int pq_tls_path_told(const struct pq_tls_context *c, struct pq_span encoded, char subject[256], bool *pq)
{
    enum pq_tls_reason reason;
    DEFER(judge_free) struct judge j = {.c = c, .reason = &reason};
    TRY(judge_read(&j, encoded));
    TRY(find_anchor(&j));
    text_of(&j, 0, subject);
    *pq = is_pq(&j);
    return 0;
}

/* --- a connection ------------------------------------------------------------------------------------------------- */

static bool has_cipher(const struct pq_tls_context *c, const char *name)
{
    const STACK_OF(SSL_CIPHER) *all = SSL_CTX_get_ciphers(c->ssl);
    for (int i = 0; i < sk_SSL_CIPHER_num(all); i++)
        if (strcmp(SSL_CIPHER_get_name(sk_SSL_CIPHER_value(all, i)), name) == 0)
            return true;
    return false;
}

static int check_exchange(const struct judge *j, const struct pq_tls_info *info)
{
    if (j->c->require_pq_kex && !info->pq_kex)
        return refuse(j, PQ_E_POLICY, PQ_TLS_POLICY_KEX,
                      "the policy requires pq-kex, but the key exchange is %s: give the peer a hybrid or post-quantum "
                      "group",
                      info->group);
    if (!pq_tls_list_has(j->c->groups, info->group) ||
        (j->c->lone_share && strcasecmp(j->c->lone_share, info->group) == 0))
        return refuse(j, PQ_E_POLICY, PQ_TLS_NO_SHARED_GROUP,
                      "the key exchange is %s, which the policy no longer takes: give the peer one of %s", info->group,
                      j->c->groups);
    if (!has_cipher(j->c, info->cipher))
        return refuse(j, PQ_E_POLICY, PQ_TLS_NO_SHARED_CIPHER,
                      "the cipher suite is %s, which the policy no longer takes", info->cipher);
    return 0;
}

int pq_tls_recheck_at(struct pq_tls *t, struct pq_tls_context *now, const struct pq_strings *names, int64_t now_s,
                      enum pq_tls_reason *reason, struct pq_why *why)
{
    struct judge j = {.c = now, .reason = reason, .why = why};
    if (!t->done)
        return refuse(&j, PQ_E_USAGE, PQ_TLS_INTERNAL, "the handshake has not finished");
    TRY(check_exchange(&j, &t->info));
    if (!now->verify_peer)
        return 0;
    if (t->path.len == 0)
        return refuse(&j, PQ_E_AUTH, PQ_TLS_NO_CERTIFICATE,
                      "nothing is known of the peer's certificate: it showed none, it was not verified, or its names "
                      "are too long to be kept");
    return pq_tls_path_check(now, pq_span(t->path.at, t->path.len), names, now_s, reason, why);
}

int pq_tls_recheck(struct pq_tls *t, struct pq_tls_context *now, const struct pq_strings *names,
                   enum pq_tls_reason *reason, struct pq_why *why)
{
    return pq_tls_recheck_at(t, now, names, pq_clock_wall_ns() / PQ_NS_PER_S, reason, why);
}
