#include "tls/internal.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/objects.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "crypto/kind.h"

/* --- what is post-quantum ------------------------------------------------------------------------------------------
 */

bool pq_tls_signature_is_pq(const struct pq_tls_context *c, const char *name)
{
    return pq_kind_is_pq(pq_kind_of_signature(name)) && (!pq_kind_experimental(name) || strcasestr(c->sigalgs, name));
}

void pq_tls_signed_with(const X509 *x, char out[PQ_TLS_ALGORITHM_SIZE])
{
    const X509_ALGOR *algorithm = NULL;
    const ASN1_OBJECT *object = NULL;
    X509_get0_signature(NULL, &algorithm, x);
    X509_ALGOR_get0(&object, NULL, NULL, algorithm);
    if (OBJ_obj2txt(out, PQ_TLS_ALGORITHM_SIZE, object, 0) <= 0)
        out[0] = 0;
}

static bool signed_pq(const struct pq_tls_context *c, const X509 *x)
{
    char name[PQ_TLS_ALGORITHM_SIZE];
    pq_tls_signed_with(x, name);
    return pq_tls_signature_is_pq(c, name);
}

static bool key_pq(const struct pq_tls_context *c, X509 *x)
{
    EVP_PKEY *key = X509_get0_pubkey(x);
    const char *name = key ? EVP_PKEY_get0_type_name(key) : NULL;
    return name && pq_tls_signature_is_pq(c, name);
}

bool pq_tls_chain_is_pq(const struct pq_tls_context *c, STACK_OF(X509) * chain)
{
    bool pq = sk_X509_num(chain) > 0 && key_pq(c, sk_X509_value(chain, 0));
    for (int i = 0; i < sk_X509_num(chain); i++)
        pq = pq && signed_pq(c, sk_X509_value(chain, i));
    return pq;
}

/* The leaf's key makes the handshake's signature. The anchor is trusted by its key: nobody verifies its own signature.
 */
static bool path_is_pq(const struct pq_tls_context *c, STACK_OF(X509) * path)
{
    int anchor = sk_X509_num(path) - 1;
    bool pq = anchor >= 0 && key_pq(c, sk_X509_value(path, 0)) && key_pq(c, sk_X509_value(path, anchor));
    for (int i = 0; i < anchor; i++)
        pq = pq && signed_pq(c, sk_X509_value(path, i));
    return pq;
}

/* OpenSSL looks for it in the session, and fails where there is none yet. */
const char *pq_tls_group(SSL *ssl)
{
    const char *name = SSL_get_session(ssl) ? SSL_get0_group_name(ssl) : NULL;
    return name ? name : "";
}

/* --- names (RFC 9525) ----------------------------------------------------------------------------------------------
 */

static bool is_ip(const char *name)
{
    unsigned char raw[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, name, raw) == 1 || inet_pton(AF_INET6, name, raw) == 1;
}

/* A DNS name has no colon, and peers are named without ports. */
static bool is_uri(const char *name) { return strchr(name, ':') && !is_ip(name); }
bool pq_tls_name_is_dns(const char *name) { return !is_ip(name) && !is_uri(name); }

/* OpenSSL would take ".example" for every name below example. */
bool pq_tls_name_valid(const char *name)
{
    size_t len = strlen(name);
    return len > 0 && len <= 255 && name[0] != '.' && !strpbrk(name, " \t\r\n*") &&
           (is_uri(name) || !strchr(name, '/'));
}

/* UUIDs are compared without regard to case (RFC 9562, section 4). */
static bool same_uuid(struct pq_span is, const char *uri)
{
    static const char prefix[] = "urn:uuid:";
    return is.len == strlen(uri) && !strncasecmp(uri, prefix, sizeof prefix - 1) &&
           !strncasecmp((const char *)is.at, uri, is.len);
}

static bool has_uri(const X509 *x, const char *uri)
{
    GENERAL_NAMES *all = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
    bool found = false;
    for (int i = 0; i < sk_GENERAL_NAME_num(all) && !found; i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(all, i);
        if (name->type != GEN_URI)
            continue;
        struct pq_span is = pq_span(ASN1_STRING_get0_data(name->d.uniformResourceIdentifier),
                                    (size_t)ASN1_STRING_length(name->d.uniformResourceIdentifier));
        found = pq_span_equal(is, pq_span_text(uri)) || same_uuid(is, uri);
    }
    GENERAL_NAMES_free(all);
    return found;
}

/* One trailing dot marks a DNS name as complete; certificates do not show it. */
bool pq_tls_shows_name(X509 *x, const char *name)
{
    size_t len = strlen(name);
    if (is_ip(name))
        return X509_check_ip_asc(x, name, 0) == 1;
    if (is_uri(name))
        return has_uri(x, name);
    if (len > 1 && name[len - 1] == '.')
        len--;
    return X509_check_host(x, name, len, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS,
                           NULL) == 1;
}

static bool shows_any_name(const struct pq_tls *t, X509 *x)
{
    bool shows = t->names.count == 0;
    for (size_t i = 0; i < t->names.count && !shows; i++)
        shows = pq_tls_shows_name(x, t->names.at[i]);
    return shows;
}

/* --- what was wrong ------------------------------------------------------------------------------------------------
 */

static const struct verdict {
    int error;
    enum pq_tls_reason reason;
    const char *what, *advice;
} verdicts[] = {
    {X509_V_ERR_CERT_HAS_EXPIRED, PQ_TLS_EXPIRED, "expired on ", "renew it"},
    {X509_V_ERR_CERT_NOT_YET_VALID, PQ_TLS_NOT_YET_VALID, "is not valid before ", "compare the clocks of both hosts"},
    {X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, PQ_TLS_UNTRUSTED, "leads to no trust anchor",
     "add its root to the CA file, or let the peer send its intermediates"},
    {X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY, PQ_TLS_UNTRUSTED, "leads to no trust anchor",
     "add its root to the CA file, or let the peer send its intermediates"},
    {X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE, PQ_TLS_UNTRUSTED, "leads to no trust anchor",
     "add its root to the CA file, or let the peer send its intermediates"},
    {X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN, PQ_TLS_UNTRUSTED, "is a root that is not trusted", "add it to the CA file"},
    {X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT, PQ_TLS_UNTRUSTED, "is self-signed and not trusted",
     "issue one from a trusted authority"},
    {X509_V_ERR_CERT_UNTRUSTED, PQ_TLS_UNTRUSTED, "is not trusted", "add its root to the CA file"},
    {X509_V_ERR_CERT_REJECTED, PQ_TLS_UNTRUSTED, "is marked as rejected", "issue another"},
    {X509_V_ERR_CERT_SIGNATURE_FAILURE, PQ_TLS_UNTRUSTED, "is not signed by the authority that it names",
     "check that the CA file holds the authority's present key"},
    {X509_V_ERR_CERT_CHAIN_TOO_LONG, PQ_TLS_BAD_CERTIFICATE, "stands in a chain that is too long", "shorten the chain"},
    {X509_V_ERR_CERT_REVOKED, PQ_TLS_REVOKED, "is revoked", "issue another"},
    {X509_V_ERR_CA_MD_TOO_WEAK, PQ_TLS_BAD_CERTIFICATE, "is signed with too weak an algorithm", "issue another"},
    {X509_V_ERR_EE_KEY_TOO_SMALL, PQ_TLS_BAD_CERTIFICATE, "has too small a key, or one of an algorithm unknown here",
     "issue another"},
    {X509_V_ERR_CA_KEY_TOO_SMALL, PQ_TLS_BAD_CERTIFICATE,
     "is issued with too small a key, or one of an algorithm unknown here", "issue another"},
};

static bool out_of_memory(int error)
{
    bool out = error == X509_V_ERR_OUT_OF_MEM;
    for (unsigned long e; !out && (e = ERR_get_error());)
        out = ERR_GET_REASON(e) == ERR_R_MALLOC_FAILURE;
    return out;
}

static void blame_path(struct pq_tls *t, X509_STORE_CTX *store)
{
    int error = X509_STORE_CTX_get_error(store), depth = X509_STORE_CTX_get_error_depth(store);
    const X509 *x = X509_STORE_CTX_get_current_cert(store);
    struct verdict v = {error, PQ_TLS_BAD_CERTIFICATE, NULL, "issue another"};
    char subject[256] = "?", date[16] = "";
    if (out_of_memory(error)) {
        pq_tls_blame(t, PQ_E_NOMEM, PQ_TLS_INTERNAL, "out of memory while verifying the peer's certificate");
        return;
    }
    for (size_t i = 0; i < PQ_COUNT(verdicts); i++)
        if (verdicts[i].error == error)
            v = verdicts[i];
    if (x)
        pq_tls_name_text(X509_get_subject_name(x), subject);
    if (x && v.reason == PQ_TLS_EXPIRED)
        pq_tls_date(X509_get0_notAfter(x), date);
    if (x && v.reason == PQ_TLS_NOT_YET_VALID)
        pq_tls_date(X509_get0_notBefore(x), date);
    pq_tls_blame(t, PQ_E_AUTH, v.reason, "the peer's %scertificate (%s) %s%s%s: %s", depth > 0 ? "issuer's " : "",
                 subject, v.what ? v.what : "is not acceptable, ", v.what ? "" : X509_verify_cert_error_string(error),
                 date, v.advice);
}

static void blame_name(struct pq_tls *t)
{
    pq_tls_blame(t, PQ_E_AUTH, PQ_TLS_WRONG_NAME,
                 "the peer's certificate (%s) does not show the name %s%s: expect a name that it shows, or issue one "
                 "with this name among its subject alternative names",
                 t->peer, t->names.at[0], t->names.count > 1 ? " or an alternative to it" : "");
}

/* --- callbacks -----------------------------------------------------------------------------------------------------
 */

static struct pq_tls *connection_of(X509_STORE_CTX *store)
{
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    return SSL_get_app_data(ssl);
}

enum list_fault { LIST_STALE, LIST_MISSING, LIST_EARLY, LIST_STRANGE };
static const struct {
    int error;
    enum list_fault fault;
    enum pq_tls_reason reason;
    const char *what, *advice;
} list_faults[] = {
    {X509_V_ERR_CRL_HAS_EXPIRED, LIST_STALE, PQ_TLS_CRL_STALE, "is out of date since ", "fetch the present list"},
    {X509_V_ERR_UNABLE_TO_GET_CRL, LIST_MISSING, PQ_TLS_CRL_MISSING, "is missing", "add it to the CRL file"},
    {X509_V_ERR_CRL_NOT_YET_VALID, LIST_EARLY, PQ_TLS_CRL_INVALID, "is not valid before ",
     "compare this host's clock with its issuer's"},
    {X509_V_ERR_CRL_SIGNATURE_FAILURE, LIST_STRANGE, PQ_TLS_CRL_INVALID, "is not signed by it",
     "fetch the present list"},
    {X509_V_ERR_UNABLE_TO_GET_CRL_ISSUER, LIST_STRANGE, PQ_TLS_CRL_INVALID, "is of an authority that is unknown",
     "add that one to the CA file"},
    {X509_V_ERR_KEYUSAGE_NO_CRL_SIGN, LIST_STRANGE, PQ_TLS_CRL_INVALID,
     "is not signed with a key that may sign such lists", "issue that authority's certificate anew"},
    {X509_V_ERR_DIFFERENT_CRL_SCOPE, LIST_STRANGE, PQ_TLS_CRL_INVALID, "covers other certificates",
     "add one of full scope to the CRL file"},
    {X509_V_ERR_UNHANDLED_CRITICAL_CRL_EXTENSION, LIST_STRANGE, PQ_TLS_CRL_INVALID,
     "has a critical extension that is unknown here", "publish one without it"},
};

static void blame_list(struct pq_tls *t, size_t row, const X509 *x, const X509_CRL *list)
{
    char subject[256], issuer[256], date[16] = "";
    enum list_fault fault = list_faults[row].fault;
    pq_tls_name_text(X509_get_subject_name(x), subject);
    pq_tls_name_text(X509_get_issuer_name(x), issuer);
    if (list && (fault == LIST_STALE || fault == LIST_EARLY))
        pq_tls_date(fault == LIST_STALE ? X509_CRL_get0_nextUpdate(list) : X509_CRL_get0_lastUpdate(list), date);
    pq_tls_blame(t, PQ_E_AUTH, list_faults[row].reason,
                 "the peer's certificate can't be checked: the revocation list of %s, issuer of %s, %s%s: %s", issuer,
                 subject, list_faults[row].what, date, list_faults[row].advice);
}

/* Nobody vouches for the anchor. */
static bool is_anchor(X509_STORE_CTX *store)
{
    return X509_STORE_CTX_get_error_depth(store) == sk_X509_num(X509_STORE_CTX_get0_chain(store)) - 1;
}

/* OpenSSL found a fault. 1: go on all the same. */
static int judge_fault(int ok, X509_STORE_CTX *store)
{
    int error = X509_STORE_CTX_get_error(store);
    struct pq_tls *t = connection_of(store);
    const X509 *x = X509_STORE_CTX_get_current_cert(store);
    const X509_CRL *list = X509_STORE_CTX_get0_current_crl(store);
    size_t row = 0;
    while (row < PQ_COUNT(list_faults) && list_faults[row].error != error)
        row++;
    if (ok || row == PQ_COUNT(list_faults) || !x)
        return ok;
    if (is_anchor(store))
        return 1;
    bool tolerable = list_faults[row].fault == LIST_STALE || list_faults[row].fault == LIST_MISSING;
    if (tolerable && pq_tls_trust_tolerates(&t->context->trust, X509_get_issuer_name(x), list))
        return 1;
    if (list && list_faults[row].fault == LIST_EARLY && !pq_tls_list_is_early(list, pq_clock_wall_ns() / PQ_NS_PER_S))
        return 1;
    blame_list(t, row, x, list);
    return 0;
}

static int refuse(X509_STORE_CTX *store, int error)
{
    X509_STORE_CTX_set_error(store, error);
    return 0;
}

static int verify(struct pq_tls *t, X509_STORE_CTX *store)
{
    X509 *leaf = X509_STORE_CTX_get0_cert(store);
    X509_STORE_CTX_set_verify_cb(store, judge_fault);
    ERR_clear_error();
    if (X509_verify_cert(store) <= 0) {
        blame_path(t, store);
        if (t->reason == PQ_TLS_CRL_STALE || t->reason == PQ_TLS_CRL_MISSING || t->reason == PQ_TLS_CRL_INVALID)
            return refuse(store, X509_V_ERR_DIFFERENT_CRL_SCOPE); /* certificate_unknown: nothing is wrong with it */
        return X509_STORE_CTX_get_error(store) == X509_V_OK ? refuse(store, X509_V_ERR_UNSPECIFIED) : 0;
    }
    X509_STORE_CTX_set_error(store, X509_V_OK);
    if (!shows_any_name(t, leaf)) {
        blame_name(t);
        return refuse(store, X509_V_ERR_HOSTNAME_MISMATCH);
    }
    return 1;
}

int pq_tls_judge_group(struct pq_tls *t)
{
    const struct pq_tls_context *c = t->context;
    const char *group = pq_tls_group(t->ssl);
    if (c->require_pq_kex && !pq_kind_is_pq(pq_kind_of_group(group)))
        return pq_tls_blame(
            t, PQ_E_POLICY, PQ_TLS_POLICY_KEX,
            "the policy requires pq-kex, but the key exchange is %s: give the peer a hybrid or post-quantum group",
            group);
    if (c->lone_share && !strcasecmp(group, c->lone_share))
        return pq_tls_blame(
            t, PQ_E_POLICY, PQ_TLS_POLICY_KEX,
            "the peer took the key share of %s, which only keeps the first flight short and is no group "
            "of the policy: give the peer one of the policy's groups, before the classical ones",
            group);
    return 0;
}

/* Of what was verified a record stays. Only the leaf is still needed, for its key: a peer that stalls now would make us
 * hold the others for nothing. */
static int keep_record(struct pq_tls *t, X509_STORE_CTX *store)
{
    STACK_OF(X509) *shown = X509_STORE_CTX_get0_untrusted(store);
    if (pq_tls_path_begin(t, X509_STORE_CTX_get0_chain(store)) < 0) {
        pq_tls_blame(t, PQ_E_NOMEM, PQ_TLS_INTERNAL, "out of memory");
        return refuse(store, X509_V_ERR_OUT_OF_MEM);
    }
    while (sk_X509_num(shown) > 1)
        X509_free(sk_X509_pop(shown));
    X509_STORE_CTX_set0_verified_chain(store, NULL);
    return 1;
}

int pq_tls_verify_callback(X509_STORE_CTX *store, void *context)
{
    const struct pq_tls_context *c = context;
    struct pq_tls *t = connection_of(store);
    if (X509_STORE_CTX_get0_cert(store))
        pq_tls_name_text(X509_get_subject_name(X509_STORE_CTX_get0_cert(store)), t->peer);
    if (pq_tls_judge_group(t) < 0)
        return refuse(store, X509_V_ERR_APPLICATION_VERIFICATION);
    if (!c->verify_peer)
        return 1;
    int64_t start = pq_clock_ns();
    int ok = verify(t, store);
    t->info.chain_ns += pq_clock_ns() - start;
    t->path_is_pq = ok && path_is_pq(c, X509_STORE_CTX_get0_chain(store));
    if (!ok)
        return 0;
    if (t->path_is_pq || !c->require_pq_auth)
        return keep_record(t, store);
    pq_tls_blame(
        t, PQ_E_POLICY, PQ_TLS_POLICY_AUTH,
        "the policy requires pq-auth, but a key or signature on the path of the peer's certificate (%s) is not "
        "post-quantum: issue it from a post-quantum root",
        t->peer);
    return refuse(store, X509_V_ERR_APPLICATION_VERIFICATION);
}

/* Called for every ClientHello, with a server name in it or without, once the group is chosen. */
int pq_tls_hello_callback(SSL *ssl, int *alert, void *context)
{
    (void)context;
    if (!*pq_tls_group(ssl) || pq_tls_judge_group(SSL_get_app_data(ssl)) == 0)
        return SSL_TLSEXT_ERR_NOACK;
    *alert = SSL_AD_HANDSHAKE_FAILURE;
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}
