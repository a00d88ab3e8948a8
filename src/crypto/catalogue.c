#include "crypto/catalogue.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/params.h>
#include <openssl/provider.h>
#include <openssl/ssl.h>
#include <string.h>
#include <strings.h>

#include "crypto/catalogue_measure.h"
#include "crypto/ossl.h"

const char *const pq_use_names[] = {"key-exchange", "signature", NULL};

enum { TLS_1_3 = 0x0304, COVERED_MAX = 2 * PQ_ALGORITHMS_MAX };

/* What a walk over providers carries; the first error ends it. */
struct walk {
    struct pq_crypto *crypto;
    struct pq_catalogue *out;
    const char *provider;
    char (*covered)[PQ_ALGORITHM_NAME]; /* provider algorithms that a TLS name stands for already */
    size_t covered_count;
    struct group {
        char name[PQ_ALGORITHM_NAME], inner[PQ_ALGORITHM_NAME]; /* TLS's and the provider's */
    } *groups;
    size_t group_count;
    int error;
};

static struct pq_algorithm *add(struct walk *w, const char *name, enum pq_use use)
{
    struct pq_catalogue *c = w->out;
    if (c->count == PQ_ALGORITHMS_MAX) {
        w->error = PQ_E_LIMIT;
        return NULL;
    }
    if (c->count == c->room) {
        size_t room = c->room ? 2 * c->room : 64;
        struct pq_algorithm *at = realloc(c->at, room * sizeof *at);
        if (!at) {
            w->error = PQ_E_NOMEM;
            return NULL;
        }
        c->at = at;
        c->room = room;
    }
    struct pq_algorithm *a = &c->at[c->count++];
    *a = (struct pq_algorithm){.use = use, .code_point = -1, .size = {-1, -1, -1}};
    snprintf(a->name, sizeof a->name, "%s", name);
    snprintf(a->provider, sizeof a->provider, "%s", w->provider ? w->provider : "");
    a->kind = use == PQ_USE_SIGNATURE ? pq_kind_of_signature(name) : pq_kind_of_group(name);
    a->experimental = pq_kind_experimental(name);
    return a;
}

static void cover(struct walk *w, const char *name)
{
    if (w->covered_count < COVERED_MAX)
        snprintf(w->covered[w->covered_count++], PQ_ALGORITHM_NAME, "%s", name);
}

/* A provider may announce a group again under another name ("P-256"): the first is IANA's. */
static bool announced(const struct walk *w, enum pq_use use, int code_point)
{
    for (size_t i = 0; i < w->out->count; i++) {
        const struct pq_algorithm *a = &w->out->at[i];
        if (a->use == use && a->code_point == code_point && strcmp(a->provider, w->provider) == 0)
            return true;
    }
    return false;
}

/* A category is of attacks by quantum computers: classical algorithms have none. */
static void fill(struct pq_algorithm *a, const struct pq_measured *m)
{
    a->size = m->size;
    a->category = pq_kind_is_pq(a->kind) ? m->category : 0;
    if (!a->security_bits)
        a->security_bits = m->security_bits;
    if (!a->provider[0])
        snprintf(a->provider, sizeof a->provider, "%s", m->provider);
}

/* --- what providers announce for TLS -------------------------------------------------------------------------------
 */
static const char *text_of(const OSSL_PARAM params[], const char *key)
{
    const OSSL_PARAM *p = OSSL_PARAM_locate_const(params, key);
    const char *text = NULL;
    return p && OSSL_PARAM_get_utf8_string_ptr(p, &text) ? text : NULL;
}

static int number_of(const OSSL_PARAM params[], const char *key, int otherwise)
{
    const OSSL_PARAM *p = OSSL_PARAM_locate_const(params, key);
    int n = otherwise;
    return p && OSSL_PARAM_get_int(p, &n) ? n : otherwise;
}

/* 0 is no bound, -1 never. */
static bool for_tls13(int min, int max)
{
    return min >= 0 && max >= 0 && min <= TLS_1_3 && (max == 0 || max >= TLS_1_3);
}

static int on_group(const OSSL_PARAM params[], void *context)
{
    struct walk *w = context;
    const char *name = text_of(params, OSSL_CAPABILITY_TLS_GROUP_NAME);
    const char *inner = text_of(params, OSSL_CAPABILITY_TLS_GROUP_NAME_INTERNAL);
    const char *algorithm = text_of(params, OSSL_CAPABILITY_TLS_GROUP_ALG);
    if (!name || !algorithm ||
        !for_tls13(number_of(params, OSSL_CAPABILITY_TLS_GROUP_MIN_TLS, -1),
                   number_of(params, OSSL_CAPABILITY_TLS_GROUP_MAX_TLS, -1)))
        return 1;
    int code_point = number_of(params, OSSL_CAPABILITY_TLS_GROUP_ID, -1);
    if (announced(w, PQ_USE_KEY_EXCHANGE, code_point))
        return 1;
    struct pq_algorithm *a = add(w, name, PQ_USE_KEY_EXCHANGE);
    if (!a)
        return 0;
    a->code_point = code_point;
    a->security_bits = number_of(params, OSSL_CAPABILITY_TLS_GROUP_SECURITY_BITS, 0);
    struct pq_measured m;
    if (pq_measure_key_exchange(w->crypto, algorithm, inner ? inner : name,
                                number_of(params, OSSL_CAPABILITY_TLS_GROUP_IS_KEM, 0) == 1, &m) == 0)
        fill(a, &m);
    cover(w, algorithm);
    if (inner && w->group_count < PQ_ALGORITHMS_MAX) {
        struct group *g = &w->groups[w->group_count++];
        snprintf(g->name, sizeof g->name, "%s", name);
        snprintf(g->inner, sizeof g->inner, "%s", inner);
    }
    return 1;
}

static int on_sigalg(const OSSL_PARAM params[], void *context)
{
    struct walk *w = context;
    const char *name = text_of(params, OSSL_CAPABILITY_TLS_SIGALG_IANA_NAME);
    const char *algorithm = text_of(params, OSSL_CAPABILITY_TLS_SIGALG_NAME);
    const char *key_type = text_of(params, OSSL_CAPABILITY_TLS_SIGALG_KEYTYPE);
    if (!name || !algorithm ||
        !for_tls13(number_of(params, OSSL_CAPABILITY_TLS_SIGALG_MIN_TLS, -1),
                   number_of(params, OSSL_CAPABILITY_TLS_SIGALG_MAX_TLS, -1)))
        return 1;
    struct pq_algorithm *a = add(w, name, PQ_USE_SIGNATURE);
    if (!a)
        return 0;
    a->code_point = number_of(params, OSSL_CAPABILITY_TLS_SIGALG_CODE_POINT, -1);
    a->security_bits = number_of(params, OSSL_CAPABILITY_TLS_SIGALG_SECURITY_BITS, 0);
    struct pq_measured m;
    if (pq_measure_signature(w->crypto, key_type ? key_type : algorithm, NULL, &m) == 0)
        fill(a, &m);
    cover(w, algorithm);
    if (key_type)
        cover(w, key_type);
    return 1;
}

static int on_provider(OSSL_PROVIDER *p, void *context)
{
    struct walk *w = context;
    w->provider = OSSL_PROVIDER_get0_name(p);
    OSSL_PROVIDER_get_capabilities(p, "TLS-GROUP", on_group, w);
    OSSL_PROVIDER_get_capabilities(p, "TLS-SIGALG", on_sigalg, w);
    w->provider = NULL;
    return !w->error;
}

/* --- what libssl brings itself -------------------------------------------------------------------------------------
 */
static bool listed(const struct pq_catalogue *c, const char *name)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcasecmp(c->at[i].name, name) == 0)
            return true;
    return false;
}

/* "secp256r1" of "ecdsa_secp256r1_sha256" by the name that its provider gave with the group: "prime256v1". */
static const char *curve_of(const struct walk *w, const char *scheme, char curve[PQ_ALGORITHM_NAME])
{
    if (strncmp(scheme, "ecdsa_", 6) != 0)
        return NULL;
    snprintf(curve, PQ_ALGORITHM_NAME, "%.*s", (int)strcspn(scheme + 6, "_"), scheme + 6);
    for (size_t i = 0; i < w->group_count; i++)
        if (strcmp(w->groups[i].name, curve) == 0)
            return w->groups[i].inner;
    return curve;
}

/* Schemes that differ in the hash alone share their key's sizes; an RSA key takes long to make. */
static const struct pq_algorithm *sibling(const struct pq_catalogue *c, const char *scheme)
{
    const char *hash = strrchr(scheme, '_');
    size_t len = hash ? (size_t)(hash - scheme) + 1 : 0;
    for (size_t i = 0; i < c->count && len; i++)
        if (c->at[i].size.signature > 0 && strncmp(c->at[i].name, scheme, len) == 0 &&
            !strchr(c->at[i].name + len, '_'))
            return &c->at[i];
    return NULL;
}

static int add_builtin(struct walk *w, const char *scheme)
{
    int code_point;
    char curve[PQ_ALGORITHM_NAME];
    struct pq_measured m = {0};
    int e = listed(w->out, scheme) ? PQ_E_EXISTS : pq_scheme_code_point(w->crypto, scheme, &code_point);
    if (e < 0)
        return e == PQ_E_NOMEM ? e : 0;
    const struct pq_algorithm *like = sibling(w->out, scheme);
    bool known = like != NULL;
    if (like) {
        m = (struct pq_measured){.size = like->size, .security_bits = like->security_bits};
        snprintf(m.provider, sizeof m.provider, "%s", like->provider);
    } else {
        known = pq_measure_scheme(w->crypto, scheme, curve_of(w, scheme, curve), &m) == 0;
    }
    struct pq_algorithm *a = add(w, scheme, PQ_USE_SIGNATURE);
    if (!a)
        return w->error;
    a->code_point = code_point;
    if (known)
        fill(a, &m);
    return 0;
}

static int add_builtins(struct walk *w)
{
    char *list = SSL_get1_builtin_sigalgs(pq_crypto_libctx(w->crypto));
    if (!list)
        return PQ_E_NOMEM;
    int e = 0;
    char name[PQ_ALGORITHM_NAME];
    for (const char *at = list; *at && e == 0; at += strspn(at, ":")) {
        size_t len = strcspn(at, ":");
        snprintf(name, sizeof name, "%.*s", (int)len, at);
        e = add_builtin(w, name);
        at += len;
    }
    OPENSSL_free(list);
    return e;
}

/* --- what has no place in TLS --------------------------------------------------------------------------------------
 */
static bool covered(const struct walk *w, int (*is_a)(const void *algorithm, const char *name), const void *algorithm)
{
    for (size_t i = 0; i < w->covered_count; i++)
        if (is_a(algorithm, w->covered[i]))
            return true;
    return false;
}

static int kem_is_a(const void *kem, const char *name) { return EVP_KEM_is_a(kem, name); }
static int signature_is_a(const void *signature, const char *name) { return EVP_SIGNATURE_is_a(signature, name); }

/* The longest name says most: "SLH-DSA-SHA2-128s" rather than the object identifier or an alias. */
static void keep_name(const char *name, void *best)
{
    size_t digits = strspn(name, "0123456789.");
    bool better = name[digits] && strncmp(name, "id-", 3) != 0 && strlen(name) > strlen(best);
    if (better)
        snprintf(best, PQ_ALGORITHM_NAME, "%s", name);
}

static void on_kem(EVP_KEM *kem, void *context)
{
    struct walk *w = context;
    char name[PQ_ALGORITHM_NAME] = "";
    struct pq_measured m;
    if (w->error || covered(w, kem_is_a, kem) || !EVP_KEM_names_do_all(kem, keep_name, name) ||
        pq_kind_of_group(name) == PQ_KIND_CLASSICAL || pq_measure_key_exchange(w->crypto, name, NULL, true, &m) < 0 ||
        m.size.ciphertext < 0 || m.size.public_key < 0)
        return;
    struct pq_algorithm *a = add(w, name, PQ_USE_KEY_EXCHANGE);
    if (!a)
        return;
    snprintf(a->provider, sizeof a->provider, "%s", OSSL_PROVIDER_get0_name(EVP_KEM_get0_provider(kem)));
    fill(a, &m);
}

static void on_signature(EVP_SIGNATURE *signature, void *context)
{
    struct walk *w = context;
    char name[PQ_ALGORITHM_NAME] = "";
    struct pq_measured m;
    /* A MAC signs as well, but has no public key. */
    if (w->error || covered(w, signature_is_a, signature) || !EVP_SIGNATURE_names_do_all(signature, keep_name, name) ||
        pq_kind_of_signature(name) == PQ_KIND_CLASSICAL || pq_measure_signature(w->crypto, name, NULL, &m) < 0 ||
        m.size.public_key < 0)
        return;
    struct pq_algorithm *a = add(w, name, PQ_USE_SIGNATURE);
    if (!a)
        return;
    snprintf(a->provider, sizeof a->provider, "%s", OSSL_PROVIDER_get0_name(EVP_SIGNATURE_get0_provider(signature)));
    fill(a, &m);
}

/* --- all together --------------------------------------------------------------------------------------------------
 */
static int compare(const void *x, const void *y)
{
    const struct pq_algorithm *a = x, *b = y;
    if (a->use != b->use)
        return a->use < b->use ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->security_bits != b->security_bits)
        return a->security_bits < b->security_bits ? -1 : 1;
    if (a->code_point != b->code_point)
        return (unsigned)a->code_point < (unsigned)b->code_point ? -1 : 1;
    int by_name = strcmp(a->name, b->name);
    return by_name ? by_name : strcmp(a->provider, b->provider);
}

static int collect(struct walk *w)
{
    OSSL_PROVIDER_do_all(pq_crypto_libctx(w->crypto), on_provider, w);
    TRY(w->error);
    TRY(add_builtins(w));
    EVP_KEM_do_all_provided(pq_crypto_libctx(w->crypto), on_kem, w);
    EVP_SIGNATURE_do_all_provided(pq_crypto_libctx(w->crypto), on_signature, w);
    return w->error;
}

void pq_catalogue_free(struct pq_catalogue *c)
{
    free(c->at);
    *c = (struct pq_catalogue){0};
}

int pq_catalogue_new(struct pq_crypto *c, struct pq_catalogue *out, struct pq_why *why)
{
    DEFER(pq_catalogue_free) struct pq_catalogue all = {0};
    DEFER(pq_freep) void *covered_names = calloc(COVERED_MAX, PQ_ALGORITHM_NAME);
    DEFER(pq_freep) struct group *groups = calloc(PQ_ALGORITHMS_MAX, sizeof *groups);
    struct walk w = {.crypto = c, .out = &all, .covered = covered_names, .groups = groups};
    int e = covered_names && groups ? collect(&w) : PQ_E_NOMEM;
    ERR_clear_error();
    if (e < 0)
        return pq_why(why, e, "can't list the algorithms: %s", pq_error_text(e));
    if (all.count)
        qsort(all.at, all.count, sizeof *all.at, compare);
    *out = all;
    all = (struct pq_catalogue){0};
    return 0;
}
