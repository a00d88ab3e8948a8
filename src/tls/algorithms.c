#include <openssl/err.h>
#include <string.h>
#include <strings.h>

#include "crypto/kind.h"
#include "tls/internal.h"

enum { LIST_MAX = 4096, NAME_SIZE = 128 };

/* What a first flight carries where the policy lists no classical group: small, and known everywhere. */
static const char lone_share[] = "x25519";

/* --- lists as OpenSSL writes them ----------------------------------------------------------------------------------
 */

/* Copies the name at the front of a list; returns where the rest begins. */
static const char *take_name(const char *list, char name[NAME_SIZE])
{
    size_t len = strcspn(list, ":/");
    snprintf(name, NAME_SIZE, "%.*s", (int)len, list);
    return list + len + (list[len] != 0);
}

/* A sign may stand before a name: '?' if known, '*' with a key share, '-' not. */
static const char *bare(const char *name) { return name + strspn(name, "?*-"); }

/* OpenSSL takes these for one another. */
static const char *standard_name(const char *name)
{
    static const char *const same[][2] = {
        {"P-256", "secp256r1"}, {"prime256v1", "secp256r1"}, {"P-384", "secp384r1"}, {"P-521", "secp521r1"}};
    for (size_t i = 0; i < PQ_COUNT(same); i++)
        if (strcasecmp(name, same[i][0]) == 0)
            return same[i][1];
    return name;
}

/* "DEFAULT" is OpenSSL's own list, and a "+" its older way to name signature schemes: these are left to it. */
bool pq_tls_list_has(const char *list, const char *wanted)
{
    char name[NAME_SIZE];
    bool has = false;
    for (const char *at = list; *at;) {
        at = take_name(at, name);
        bool same = strcasecmp(standard_name(bare(name)), standard_name(wanted)) == 0;
        if (*name == '-' && same)
            return false;
        has |= *name != '-' && (same || strcmp(bare(name), "DEFAULT") == 0 || strchr(name, '+'));
    }
    return has;
}

/* The first name in list that OpenSSL does not take alone, for the message. */
static int blame_list(struct pq_why *why, const char *what, const char *list, int (*set)(SSL_CTX *, const char *),
                      SSL_CTX *ssl)
{
    char name[NAME_SIZE];
    for (const char *at = list; *at;) {
        at = take_name(at, name);
        if (*name && !set(ssl, name)) {
            ERR_clear_error();
            return pq_why(why, PQ_E_CONFIG, "policy %s: OpenSSL and its providers know no \"%s\" that TLS 1.3 can use",
                          what, name);
        }
    }
    return pq_crypto_why(why, PQ_E_CONFIG, "policy %s: OpenSSL does not take \"%s\"", what, list);
}

/* OpenSSL passes over a cipher suite that it does not know, so that a misspelt name would go unseen: each is tried
 * alone. */
static int set_ciphersuites(SSL_CTX *s, const char *list)
{
    char name[NAME_SIZE];
    for (const char *at = list; *at;) {
        size_t len = strcspn(at, ":");
        snprintf(name, sizeof name, "%.*s", (int)len, at);
        if (len == 0 || len >= sizeof name || !SSL_CTX_set_ciphersuites(s, name))
            return 0;
        at += len + (at[len] != 0);
    }
    return SSL_CTX_set_ciphersuites(s, list);
}

static int set_groups(SSL_CTX *s, const char *list) { return SSL_CTX_set1_groups_list(s, list) > 0; }
static int set_sigalgs(SSL_CTX *s, const char *list) { return SSL_CTX_set1_sigalgs_list(s, list) > 0; }
static int set_client_sigalgs(SSL_CTX *s, const char *list) { return SSL_CTX_set1_client_sigalgs_list(s, list) > 0; }

static int set_list(struct pq_why *why, const char *what, const char *list, int (*set)(SSL_CTX *, const char *),
                    SSL_CTX *ssl)
{
    ERR_clear_error();
    if (!*list)
        return pq_why(why, PQ_E_CONFIG, "policy %s: the list is empty", what);
    return set(ssl, list) ? 0 : blame_list(why, what, list, set, ssl);
}

/* Adds those names of list that are post-quantum, or those that are not. */
static int add(struct pq_buf *out, const char *list, bool pq, enum pq_kind (*kind)(const char *name),
               const char *before)
{
    char name[NAME_SIZE];
    for (const char *at = list; *at;) {
        at = take_name(at, name);
        if (pq_kind_is_pq(kind(bare(name))) != pq)
            continue;
        TRY(pq_buf_printf(out, "%s%s", out->len ? before : "", name));
        before = ":";
    }
    return 0;
}

static int finish_list(int e, const char *what, struct pq_buf *list, char **out, struct pq_why *why)
{
    if (e < 0)
        return pq_why(why, e == PQ_E_NOMEM ? e : PQ_E_CONFIG, "policy %s: %s", what, pq_error_text(e));
    if (list->len == 0)
        return pq_why(why, PQ_E_CONFIG, "policy %s: the list is empty", what);
    *out = (char *)TAKE(list->at);
    return 0;
}

/* --- groups --------------------------------------------------------------------------------------------------------
 */

static bool in_full(const char *list) { return !strchr(list, '-') && !strstr(list, "DEFAULT"); }

/* A server takes a share that the client sent over a better group that it did not, unless a '/' stands between them. A
 * list with tuples of its own stays as it is. */
static int server_groups(const char *list, struct pq_buf *out)
{
    if (strchr(list, '/') || !in_full(list))
        return pq_buf_text(out, list);
    TRY(add(out, list, true, pq_kind_of_group, ":"));
    return add(out, list, false, pq_kind_of_group, "/");
}

/* A key share with the first classical group and with no other. */
static int first_flight_groups(struct pq_tls_context *c, const char *list, struct pq_buf *out)
{
    char name[NAME_SIZE];
    bool shared = false;
    for (const char *at = list; *at;) {
        at = take_name(at, name);
        bool share = !shared && !pq_kind_is_pq(pq_kind_of_group(bare(name)));
        shared |= share;
        TRY(pq_buf_printf(out, "%s%s%s", out->len ? ":" : "", share ? "*" : "", bare(name)));
    }
    if (shared)
        return 0;
    c->lone_share = lone_share;
    return pq_buf_printf(out, ":*%s", lone_share);
}

static int make_groups(struct pq_tls_context *c, const struct pq_tls_settings *how, const struct pq_suite *suite,
                       struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf groups = {.cap = LIST_MAX};
    bool server = c->role == PQ_TLS_SERVER;
    const char *list = how->policy.groups ? how->policy.groups : server ? suite->server_groups : suite->groups;
    if (!server && how->first_flight_classical && !in_full(list))
        return pq_why(why, PQ_E_CONFIG, "policy groups: a classical first flight needs each group by its name, not %s",
                      list);
    int e = server                        ? server_groups(list, &groups)
            : how->first_flight_classical ? first_flight_groups(c, list, &groups)
                                          : pq_buf_text(&groups, list);
    return finish_list(e, "groups", &groups, &c->groups, why);
}

/* --- signature schemes ---------------------------------------------------------------------------------------------
 */

/* Post-quantum ones first, so that whoever can gets one: a peer may go by our order, and we go by it ourselves
 * (SSL_OP_SERVER_PREFERENCE, which holds for a client's certificate too). beside may be NULL. */
static int make_sigalgs(const char *list, const char *beside, char **out, struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf b = {.cap = LIST_MAX};
    int e = add(&b, list, true, pq_kind_of_signature, ":");
    if (e == 0)
        e = add(&b, list, false, pq_kind_of_signature, ":");
    if (e == 0 && beside)
        e = add(&b, beside, false, pq_kind_of_signature, ":");
    return finish_list(e, "sigalgs", &b, out, why);
}

/* What an identity for peers that know no post-quantum signatures may sign with: the classical suite of the same
 * level. Lists of one's own say it themselves. */
static const char *beside(const struct pq_tls_settings *how)
{
    const struct pq_tls_policy *p = &how->policy;
    bool wanted = how->identity_count > 1 && !p->sigalgs && !p->require_pq_auth && p->mode != PQ_MODE_CLASSICAL;
    return wanted ? pq_suite_find(PQ_MODE_CLASSICAL, (int)p->level)->sigalgs : NULL;
}

int pq_tls_set_algorithms(struct pq_tls_context *c, const struct pq_tls_settings *how, struct pq_why *why)
{
    const struct pq_tls_policy *p = &how->policy;
    const struct pq_suite *suite = pq_suite_find((enum pq_mode)p->mode, (int)p->level);
    const char *sigalgs = p->sigalgs ? p->sigalgs : suite->sigalgs;
    bool server = c->role == PQ_TLS_SERVER;
    TRY(make_groups(c, how, suite, why));
    TRY(make_sigalgs(sigalgs, NULL, &c->sigalgs, why));
    TRY(make_sigalgs(sigalgs, beside(how), &c->own_sigalgs, why));
    TRY(set_list(why, "groups", c->groups, set_groups, c->ssl));
    /* OpenSSL's names are the client's view: "client sigalgs" is what a client signs with, at both ends. */
    TRY(set_list(why, "sigalgs", server ? c->own_sigalgs : c->sigalgs, set_sigalgs, c->ssl));
    TRY(set_list(why, "sigalgs", server ? c->sigalgs : c->own_sigalgs, set_client_sigalgs, c->ssl));
    return set_list(why, "ciphersuites", p->ciphersuites ? p->ciphersuites : suite->ciphersuites, set_ciphersuites,
                    c->ssl);
}
