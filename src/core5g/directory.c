#include "core5g/directory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "core5g/sbi.h"

enum { VALIDITY_MAX_S = 3600, PATH_MAX_BYTES = 512 };

/* What discovery asks for of each kind. */
static const char *const services[PQ_NF_KINDS] = {"nnrf-disc", "nausf-auth", "nudm-ueau", "nudr-dr"};

struct pending {
    struct pq_directory *d;
    enum pq_nf_kind to;
    char *method, *path, *type;
    struct pq_buf body;
    void (*done)(void *context, const struct pq_directory_result *r);
    void *context;
};

static void pending_free(struct pending *p)
{
    free(p->method);
    free(p->path);
    free(p->type);
    pq_buf_free(&p->body);
    free(p);
}
PQ_DEFINE_FREEP(struct pending, pending_free)

static int set_fixed(struct pq_directory *d, enum pq_nf_kind kind, const char *uri, bool tls, struct pq_why *why)
{
    struct pq_uri u;
    if (pq_uri_parse(uri, &u) < 0 || u.path.len > 1 || u.query.len)
        return pq_why(why, PQ_E_USAGE, "--%s %s: give http://HOST:PORT or https://HOST:PORT", pq_nf_kind_names[kind],
                      uri);
    if (u.tls != tls)
        return pq_why(why, PQ_E_USAGE,
                      "--%s %s: a function with a certificate speaks https to others, one without speaks http",
                      pq_nf_kind_names[kind], uri);
    d->at[kind].fixed = true;
    return pq_uri_authority(&u, d->at[kind].authority, sizeof d->at[kind].authority);
}

int pq_directory_init(struct pq_directory *d, const struct pq_directory_settings *how, struct pq_why *why)
{
    *d = (struct pq_directory){.client = how->client, .requester = how->requester};
    for (int i = 0; i < PQ_NF_KINDS; i++)
        if (how->uri[i])
            TRY(set_fixed(d, (enum pq_nf_kind)i, how->uri[i], how->tls, why));
    return 0;
}

void pq_directory_clear(struct pq_directory *d) { *d = (struct pq_directory){0}; }

/* --- one request -------------------------------------------------------------------------------------------------- */

static void finish(struct pending *p, const struct pq_directory_result *r)
{
    p->done(p->context, r);
    pending_free(p);
}

static void fail(struct pending *p, int error, const char *reason)
{
    finish(p, &(struct pq_directory_result){.error = error, .reason = reason});
}

static bool is_json(const struct pq_http2_message *m)
{
    const char *type = pq_http2_get(m, "content-type");
    return type && strncasecmp(type, "application/", 12) == 0 && strcasestr(type, "json");
}

static void on_response(void *context, const struct pq_http2_result *r)
{
    struct pending *p = context;
    struct pq_directory_entry *entry = &p->d->at[p->to];
    DEFER(pq_sbi_doc_freep) yyjson_doc *doc = NULL;
    if (r->error) {
        /* What was found may have moved: the next request asks again. */
        if (!entry->fixed)
            entry->valid_until = 0;
        pq_log(PQ_LOG_WARN, "request failed", "to", pq_s(pq_nf_kind_names[p->to]), "reason", pq_s(r->label), "detail",
               pq_s(r->reason), NULL);
        fail(p, r->error, r->reason);
        return;
    }
    const struct pq_http2_message *m = r->response;
    if (m->body.len && is_json(m) && pq_sbi_parse(pq_span(m->body.at, m->body.len), &doc) < 0) {
        fail(p, PQ_E_SYNTAX, "the answer is no JSON text");
        return;
    }
    finish(p, &(struct pq_directory_result){
                  .status = m->status, .json = yyjson_doc_get_root(doc), .location = pq_http2_get(m, "location")});
}

static void send_pending(struct pending *p)
{
    const struct pq_http2_field fields[] = {
        {"accept", "application/json, application/problem+json"},
        {"user-agent", p->d->requester},
        {"content-type", p->type},
    };
    const struct pq_http2_call call = {.method = p->method,
                                       .authority = p->d->at[p->to].authority,
                                       .path = p->path,
                                       .fields = fields,
                                       .field_count = p->body.len ? 3 : 2,
                                       .body = pq_span(p->body.at, p->body.len),
                                       .done = on_response,
                                       .context = p};
    struct pq_why why = {{0}};
    int e = pq_http2_client_call(p->d->client, &call, &why);
    if (e < 0)
        fail(p, e, why.text[0] ? why.text : pq_error_text(e));
}

/* --- discovery ---------------------------------------------------------------------------------------------------- */

/* The first service's end point; the instance's own address where the service has none. */
static int endpoint(yyjson_val *instance, char *out, size_t size)
{
    yyjson_val *service = yyjson_arr_get_first(yyjson_obj_get(instance, "nfServices"));
    yyjson_val *end = yyjson_arr_get_first(yyjson_obj_get(service, "ipEndPoints"));
    const char *scheme = yyjson_get_str(yyjson_obj_get(service, "scheme"));
    const char *v4 = yyjson_get_str(yyjson_obj_get(end, "ipv4Address")),
               *v6 = yyjson_get_str(yyjson_obj_get(end, "ipv6Address"));
    if (!v4 && !v6)
        v4 = yyjson_get_str(yyjson_arr_get_first(yyjson_obj_get(instance, "ipv4Addresses")));
    yyjson_val *port = yyjson_obj_get(end, "port");
    uint64_t number = yyjson_is_uint(port) ? yyjson_get_uint(port) : scheme && strcmp(scheme, "https") == 0 ? 443 : 80;
    int n = snprintf(out, size, v4 ? "%s:%" PRIu64 : "[%s]:%" PRIu64, v4 ? v4 : v6 ? v6 : "", number);
    return (v4 || v6) && n > 0 && (size_t)n < size && number <= 65535 ? 0 : PQ_E_NOT_FOUND;
}

static void on_found(void *context, const struct pq_directory_result *r)
{
    struct pending *p = context;
    struct pq_directory_entry *entry = &p->d->at[p->to];
    char authority[PQ_URI_AUTHORITY_MAX];
    if (r->error) {
        finish(p, &(struct pq_directory_result){.error = r->error, .undiscovered = true, .reason = r->reason});
        return;
    }
    yyjson_val *instance = yyjson_arr_get_first(yyjson_obj_get(r->json, "nfInstances"));
    if (r->status != 200 || !instance || endpoint(instance, authority, sizeof authority) < 0) {
        fail(p, PQ_E_NOT_FOUND, "the NRF knows no such function");
        return;
    }
    int64_t validity = yyjson_get_sint(yyjson_obj_get(r->json, "validityPeriod"));
    if (validity < 1 || validity > VALIDITY_MAX_S)
        validity = VALIDITY_MAX_S;
    memcpy(entry->authority, authority, sizeof authority);
    entry->valid_until = pq_clock_ns() + validity * PQ_NS_PER_S;
    send_pending(p);
}

static int discover(struct pending *p)
{
    char path[PATH_MAX_BYTES];
    snprintf(path, sizeof path, "/nnrf-disc/v1/nf-instances?target-nf-type=%s&requester-nf-type=%s&service-names=%s",
             pq_nf_type_names[p->to], p->d->requester, services[p->to]);
    const struct pq_directory_call call = {
        .to = PQ_NF_NRF, .method = "GET", .path = path, .done = on_found, .context = p};
    return pq_directory_call(p->d, &call);
}

static int pending_new(struct pq_directory *d, const struct pq_directory_call *call, struct pending **out)
{
    DEFER(pending_freep) struct pending *p = calloc(1, sizeof *p);
    if (!p)
        return PQ_E_NOMEM;
    p->d = d;
    p->to = call->to;
    p->method = strdup(call->method);
    p->path = strdup(call->path);
    p->type = strdup(call->type ? call->type : pq_sbi_type_json);
    if (!p->method || !p->path || !p->type)
        return PQ_E_NOMEM;
    p->body.cap = call->body.len;
    TRY(pq_buf_append(&p->body, call->body.at, call->body.len));
    p->done = call->done;
    p->context = call->context;
    *out = TAKE(p);
    return 0;
}

int pq_directory_call(struct pq_directory *d, const struct pq_directory_call *call)
{
    struct pq_directory_entry *entry = &d->at[call->to];
    if (!entry->fixed && (call->to == PQ_NF_NRF || !d->at[PQ_NF_NRF].fixed))
        return PQ_E_CONFIG;
    struct pending *p = NULL;
    TRY(pending_new(d, call, &p));
    if (entry->fixed || pq_clock_ns() < entry->valid_until) {
        send_pending(p);
        return 0;
    }
    int e = discover(p);
    if (e < 0)
        pending_free(p);
    return e;
}
