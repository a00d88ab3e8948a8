#include "core5g/nrf.h"

#include <inttypes.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "core5g/kind.h"
#include "core5g/nrf_discovery.h"
#include "core5g/nrf_profile.h"
#include "core5g/nrf_store.h"

enum { SEARCHES = 64, ROOT_MAX = 320 };

/* A search that can be read again (6.2.3.3): what it asked for; the answer is that of the moment. */
struct search {
    char id[17];
    struct pq_nrf_filter filter;
};

struct nrf {
    struct pq_nrf_store *store;
    int64_t (*now)(void);
    struct search searches[SEARCHES];
    size_t next_search;
};

static struct nrf *of(const struct pq_sbi_request *r) { return r->function; }

static void answer_failure(struct pq_sbi_request *r, int e)
{
    if (e == PQ_E_NOT_FOUND)
        pq_sbi_problem(r, 404, "CONTEXT_NOT_FOUND", "no such NF instance is registered");
    else if (e == PQ_E_TOO_LONG)
        pq_sbi_problem(r, 413, NULL, "a profile has at most %d bytes", PQ_NRF_MAX_PROFILE);
    else
        pq_sbi_problem(r, e == PQ_E_LIMIT ? 503 : 500, e == PQ_E_LIMIT ? "NF_CONGESTION" : "INSUFFICIENT_RESOURCES",
                       "%s", pq_error_text(e));
}

static void answer_fault(struct pq_sbi_request *r, int e, const struct pq_nrf_fault *f)
{
    if (e == PQ_E_INVALID)
        pq_sbi_invalid(r, f->missing ? "MANDATORY_IE_MISSING" : "MANDATORY_IE_INCORRECT", f->param, f->reason);
    else
        answer_failure(r, e);
}

static void answer_profile(struct pq_sbi_request *r, int status, const struct pq_nrf_instance *n)
{
    DEFER(pq_buf_free) struct pq_buf body = {.cap = PQ_NRF_MAX_PROFILE};
    int e = pq_buf_append(&body, n->text, n->text_len);
    if (e < 0) {
        answer_failure(r, e);
        return;
    }
    pq_sbi_field(r, "etag", "\"%" PRIu64 "\"", n->version);
    pq_sbi_answer(r, status, pq_sbi_type_json, &body);
}

/* --- NFManagement ------------------------------------------------------------------------------------------------- */

static void on_put(struct pq_sbi_request *r)
{
    struct nrf *nrf = of(r);
    const char *id = r->parameter[0];
    struct pq_nrf_fault fault;
    const struct pq_nrf_instance *n = NULL;
    bool created = false;
    int e = pq_nrf_store_put(nrf->store, nrf->now(), id, yyjson_doc_get_root(r->json), false, &created, &fault);
    if (e == 0)
        e = pq_nrf_store_get(nrf->store, nrf->now(), id, &n);
    if (e < 0) {
        answer_fault(r, e, &fault);
        return;
    }
    char root[ROOT_MAX];
    if (created && pq_sbi_root(r, root, sizeof root) == 0)
        pq_sbi_field(r, "location", "%s/nnrf-nfm/v1/nf-instances/%s", root, n->id);
    pq_log(PQ_LOG_INFO, "instance registered", "instance", pq_s(n->id), "type", pq_s(n->type), "new", pq_i(created),
           NULL);
    answer_profile(r, created ? 201 : 200, n);
}

static void on_get(struct pq_sbi_request *r)
{
    struct nrf *nrf = of(r);
    const struct pq_nrf_instance *n;
    int e = pq_nrf_store_get(nrf->store, nrf->now(), r->parameter[0], &n);
    if (e < 0)
        answer_failure(r, e);
    else
        answer_profile(r, 200, n);
}

/* 6.1.3.3.3.1: 204 for a heart-beat, 200 with the profile where more changed. */
static void on_patch(struct pq_sbi_request *r)
{
    struct nrf *nrf = of(r);
    const struct pq_nrf_instance *n;
    struct pq_nrf_fault fault;
    bool changed = false;
    yyjson_val *patch = yyjson_doc_get_root(r->json);
    if (!yyjson_is_arr(patch) || yyjson_arr_size(patch) == 0) {
        pq_sbi_invalid(r, "INVALID_MSG_FORMAT", "patch", "must be an array of PatchItem");
        return;
    }
    int e = pq_nrf_store_patch(nrf->store, nrf->now(), r->parameter[0], patch, &changed, &fault);
    if (e == 0 && changed)
        e = pq_nrf_store_get(nrf->store, nrf->now(), r->parameter[0], &n);
    if (e < 0)
        answer_fault(r, e, &fault);
    else if (changed)
        answer_profile(r, 200, n);
    else
        pq_sbi_answer_empty(r, 204);
}

static void on_delete(struct pq_sbi_request *r)
{
    struct nrf *nrf = of(r);
    int e = pq_nrf_store_delete(nrf->store, nrf->now(), r->parameter[0]);
    if (e < 0) {
        answer_failure(r, e);
        return;
    }
    pq_log(PQ_LOG_INFO, "instance deregistered", "instance", pq_s(r->parameter[0]), NULL);
    pq_sbi_answer_empty(r, 204);
}

/* What GET of the collection asks for; false: answered. */
static bool list_wishes(struct pq_sbi_request *r, char type[16], size_t *limit)
{
    char value[32];
    int64_t n = 0;
    *limit = SIZE_MAX;
    int e = pq_sbi_query(r, "nf-type", value, sizeof value);
    if (e != PQ_E_NOT_FOUND && (e < 0 || !pq_nf_type_is_known(value))) {
        pq_sbi_invalid(r, "OPTIONAL_QUERY_PARAM_INCORRECT", "nf-type", "is no NFType");
        return false;
    }
    snprintf(type, 16, "%s", e == 0 ? value : "");
    e = pq_sbi_query(r, "limit", value, sizeof value);
    if (e == 0)
        e = pq_int_parse(value, 1, 1000000, &n, NULL);
    if (e < 0 && e != PQ_E_NOT_FOUND) {
        pq_sbi_invalid(r, "OPTIONAL_QUERY_PARAM_INCORRECT", "limit", "must be a number of at least 1");
        return false;
    }
    if (n > 0)
        *limit = (size_t)n;
    return true;
}

/* 6.1.3.2.3.1: links to the instances (UriList). */
static void on_list(struct pq_sbi_request *r)
{
    struct nrf *nrf = of(r);
    char type[16], root[ROOT_MAX], href[ROOT_MAX + 80];
    size_t limit, fits = 0;
    if (!list_wishes(r, type, &limit))
        return;
    if (pq_sbi_root(r, root, sizeof root) < 0)
        root[0] = '\0';
    DEFER(pq_sbi_mut_freep) yyjson_mut_doc *d = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *o = yyjson_mut_obj(d);
    yyjson_mut_doc_set_root(d, o);
    yyjson_mut_val *items = yyjson_mut_obj_add_arr(d, yyjson_mut_obj_add_obj(d, o, "_links"), "item");
    size_t count = pq_nrf_store_count(nrf->store, nrf->now());
    for (size_t i = 0; i < count; i++) {
        const struct pq_nrf_instance *n = pq_nrf_store_at(nrf->store, i);
        if ((type[0] && strcmp(n->type, type) != 0) || fits++ >= limit)
            continue;
        snprintf(href, sizeof href, "%s/nnrf-nfm/v1/nf-instances/%s", root, n->id);
        yyjson_mut_obj_add_strcpy(d, yyjson_mut_arr_add_obj(d, items), "href", href);
    }
    yyjson_mut_obj_add_uint(d, o, "totalItemCount", fits);
    pq_sbi_answer_json(r, 200, pq_sbi_type_hal, d);
}

/* --- NFDiscovery -------------------------------------------------------------------------------------------------- */

static void answer_search(struct pq_sbi_request *r, const struct pq_nrf_filter *f, const char *id)
{
    struct nrf *nrf = of(r);
    DEFER(pq_buf_free) struct pq_buf body = {.cap = PQ_SBI_ANSWER_MAX};
    size_t found = 0, given = 0;
    int e = pq_nrf_search(nrf->store, nrf->now(), f, id, &body, &found, &given);
    if (e < 0) {
        pq_sbi_problem(r, 500, "INSUFFICIENT_RESOURCES", "the result is too large: ask with a limit");
        return;
    }
    pq_sbi_field(r, "cache-control", "max-age=%d", PQ_NRF_VALIDITY_S);
    pq_sbi_answer(r, 200, pq_sbi_type_json, &body);
}

/* Keeps a limited search, so that the rest can be had; the oldest makes room. NULL where that fails: the answer has
 * no searchId. */
static const char *keep_search(struct nrf *nrf, const struct pq_nrf_filter *f)
{
    unsigned char bytes[8];
    if (RAND_bytes(bytes, sizeof bytes) != 1)
        return NULL;
    struct search *s = &nrf->searches[nrf->next_search++ % SEARCHES];
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(s->id + 2 * i, 3, "%02x", bytes[i]);
    s->filter = *f;
    return s->id;
}

static void on_discover(struct pq_sbi_request *r)
{
    struct pq_nrf_filter f;
    struct pq_nrf_query_fault fault;
    if (pq_nrf_filter_parse(r->query, &f, &fault) < 0)
        pq_sbi_invalid(r, fault.cause, fault.param, fault.reason);
    else
        answer_search(r, &f, f.limit == SIZE_MAX ? NULL : keep_search(of(r), &f));
}

static void answer_stored(struct pq_sbi_request *r, bool complete)
{
    struct nrf *nrf = of(r);
    for (size_t i = 0; i < SEARCHES; i++) {
        struct search *s = &nrf->searches[i];
        if (!s->id[0] || strcmp(s->id, r->parameter[0]) != 0)
            continue;
        struct pq_nrf_filter f = s->filter;
        if (complete)
            f.limit = SIZE_MAX;
        answer_search(r, &f, NULL);
        return;
    }
    pq_sbi_problem(r, 404, "CONTEXT_NOT_FOUND", "no such search is kept");
}

static void on_stored(struct pq_sbi_request *r) { answer_stored(r, false); }
static void on_stored_complete(struct pq_sbi_request *r) { answer_stored(r, true); }

static const struct pq_sbi_route routes[] = {
    {"GET", "/nnrf-disc/v1/nf-instances", NULL, on_discover},
    {"GET", "/nnrf-disc/v1/searches/{searchId}", NULL, on_stored},
    {"GET", "/nnrf-disc/v1/searches/{searchId}/complete", NULL, on_stored_complete},
    {"GET", "/nnrf-nfm/v1/nf-instances", NULL, on_list},
    {"GET", "/nnrf-nfm/v1/nf-instances/{nfInstanceID}", NULL, on_get},
    {"PUT", "/nnrf-nfm/v1/nf-instances/{nfInstanceID}", "application/json", on_put},
    {"PATCH", "/nnrf-nfm/v1/nf-instances/{nfInstanceID}", "application/json-patch+json", on_patch},
    {"DELETE", "/nnrf-nfm/v1/nf-instances/{nfInstanceID}", NULL, on_delete},
};

/* --- the function ------------------------------------------------------------------------------------------------- */

/* The i-th preloaded instance: the same on every run. */
static int preload_one(struct nrf *nrf, const struct pq_nrf_settings *how, unsigned i, struct pq_why *why)
{
    char id[37], fqdn[64], address[32];
    snprintf(id, sizeof id, "5b9e4b10-0000-4000-8000-%012x", i + 1);
    snprintf(fqdn, sizeof fqdn, "nf%u.5gc.mnc001.mcc001.3gppnetwork.org", i + 1);
    snprintf(address, sizeof address, "198.18.%u.%u", i / 250 % 250, i % 250 + 1);
    struct pq_nrf_profile p = {.id = id,
                               .type = how->instance_type,
                               .fqdn = fqdn,
                               .address = address,
                               .scheme = "https",
                               .port = 8443,
                               .heartbeat_s = (int)(how->heartbeat_ns / PQ_NS_PER_S)};
    DEFER(pq_buf_free) struct pq_buf text = {.cap = PQ_NRF_MAX_PROFILE};
    DEFER(pq_sbi_doc_freep) yyjson_doc *doc = NULL;
    struct pq_nrf_fault fault = {0};
    bool created;
    TRY(pq_nrf_profile_text(&p, &text));
    TRY(pq_sbi_parse(pq_span(text.at, text.len), &doc));
    int e = pq_nrf_store_put(nrf->store, nrf->now(), id, yyjson_doc_get_root(doc), true, &created, &fault);
    return e == PQ_E_INVALID ? pq_why(why, e, "instance %u: %s %s", i, fault.param, fault.reason) : e;
}

static void nrf_free(void *self)
{
    struct nrf *nrf = self;
    if (nrf)
        pq_nrf_store_free(nrf->store);
    free(nrf);
}

static void nrf_freep(struct nrf **nrf) { nrf_free(*nrf); }

int pq_nrf_new(const struct pq_nrf_settings *how, struct pq_function *out, struct pq_why *why)
{
    DEFER(nrf_freep) struct nrf *nrf = calloc(1, sizeof *nrf);
    if (!nrf)
        return PQ_E_NOMEM;
    nrf->now = how->now ? how->now : pq_clock_ns;
    TRY(pq_nrf_store_new(how->heartbeat_ns, &nrf->store));
    for (size_t i = 0; i < how->instances; i++)
        TRY(preload_one(nrf, how, (unsigned)i, why));
    *out = (struct pq_function){routes, PQ_COUNT(routes), TAKE(nrf), nrf_free};
    return 0;
}
