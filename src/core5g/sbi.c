#include "core5g/sbi.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core5g/sbi_request.h"
#include "http2/uri.h"

const char pq_sbi_type_json[] = "application/json";
const char pq_sbi_type_hal[] = "application/3gppHal+json";
const char pq_sbi_type_patch[] = "application/json-patch+json";
const char pq_sbi_type_merge[] = "application/merge-patch+json";

static const char *const methods[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};

/* --- the path ----------------------------------------------------------------------------------------------------- */

/* Takes "/segment" off a path. */
static bool next_segment(struct pq_span *path, struct pq_span *out)
{
    if (path->len == 0 || path->at[0] != '/')
        return false;
    size_t n = 1;
    while (n < path->len && path->at[n] != '/')
        n++;
    *out = pq_span(path->at + 1, n - 1);
    *path = pq_span(path->at + n, path->len - n);
    return true;
}

/* Whether path fits the template; segments of parameters go to found. */
static bool path_fits(struct pq_span path, const char *template, struct pq_span found[PQ_SBI_PARAMETERS])
{
    struct pq_span want = pq_span_text(template), a, b;
    size_t n = 0;
    while (next_segment(&want, &a)) {
        if (!next_segment(&path, &b))
            return false;
        bool parameter = a.len && a.at[0] == '{';
        if (parameter && (b.len == 0 || n == PQ_SBI_PARAMETERS))
            return false;
        if (parameter)
            found[n++] = b;
        else if (!pq_span_equal(a, b))
            return false;
    }
    return path.len == 0;
}

static bool same_api(struct pq_span path, const char *template)
{
    struct pq_span want = pq_span_text(template), a, b;
    for (int i = 0; i < 2; i++)
        if (!next_segment(&want, &a) || !next_segment(&path, &b) || !pq_span_equal(a, b))
            return false;
    return true;
}

static bool method_is_known(const char *method)
{
    for (size_t i = 0; i < PQ_COUNT(methods); i++)
        if (strcmp(method, methods[i]) == 0)
            return true;
    return false;
}

static bool method_fits(const char *method, const char *route)
{
    return strcmp(method, route) == 0 || (strcmp(method, "HEAD") == 0 && strcmp(route, "GET") == 0);
}

/* --- the body ----------------------------------------------------------------------------------------------------- */

static bool type_is(const char *field, const char *type)
{
    size_t n = strlen(type);
    return field && strncasecmp(field, type, n) == 0 && (field[n] == '\0' || field[n] == ';' || field[n] == ' ');
}

static bool is_coded(const struct pq_http2_message *m)
{
    const char *coding = pq_http2_get(m, "content-encoding");
    return coding && strcasecmp(coding, "identity") != 0;
}

/* Quotes hide braces; an escape hides a quote. */
bool pq_sbi_deeper(struct pq_span text, size_t levels)
{
    size_t depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.at[i];
        if (quoted && c == '\\')
            i++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '{' || c == '['))
            depth++;
        else if (!quoted && (c == '}' || c == ']') && depth)
            depth--;
        if (depth > levels)
            return true;
    }
    return false;
}

int pq_sbi_parse(struct pq_span text, yyjson_doc **out)
{
    if (pq_sbi_deeper(text, PQ_SBI_JSON_DEPTH))
        return PQ_E_TOO_LONG;
    yyjson_read_err err;
    /* Without YYJSON_READ_INSITU the text is not written to. */
    yyjson_doc *doc = yyjson_read_opts((char *)(uintptr_t)text.at, text.len, YYJSON_READ_NOFLAG, NULL, &err);
    if (!doc)
        return err.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION ? PQ_E_NOMEM : PQ_E_SYNTAX;
    *out = doc;
    return 0;
}

/* False: answered. */
static bool take_body(struct pq_request *q, const struct pq_sbi_route *route)
{
    const struct pq_http2_message *m = &q->x->request;
    if (!route->type)
        return true;
    if (!type_is(pq_http2_get(m, "content-type"), route->type) || is_coded(m)) {
        pq_sbi_field(&q->r, strcmp(q->r.method, "PATCH") == 0 ? "accept-patch" : "accept", "%s", route->type);
        pq_sbi_problem(&q->r, 415, NULL, "the body must be %s without content coding", route->type);
        return false;
    }
    int e = pq_sbi_parse(pq_span(m->body.at, m->body.len), &q->r.json);
    if (e == PQ_E_NOMEM)
        pq_sbi_problem(&q->r, 500, "INSUFFICIENT_RESOURCES", "out of memory");
    else if (e == PQ_E_TOO_LONG)
        pq_sbi_problem(&q->r, 400, "INVALID_MSG_FORMAT", "the body is nested deeper than %d levels", PQ_SBI_JSON_DEPTH);
    else if (e < 0)
        pq_sbi_problem(&q->r, 400, "INVALID_MSG_FORMAT", "the body is no JSON text");
    return e == 0;
}

/* --- routing ------------------------------------------------------------------------------------------------------ */

static const struct {
    int status;
    const char *cause, *text;
} refusals[] = {
    {408, NULL, "the request did not end in time"},
    {413, NULL, "the body is larger than the limit"},
    {431, NULL, "the header fields are larger than the limit"},
    {503, "NF_CONGESTION", "too many unfinished requests on this connection"},
};

static void refuse(struct pq_request *q)
{
    for (size_t i = 0; i < PQ_COUNT(refusals); i++)
        if (q->x->refused == refusals[i].status) {
            pq_sbi_problem(&q->r, q->x->refused, refusals[i].cause, "%s", refusals[i].text);
            return;
        }
    pq_sbi_problem(&q->r, q->x->refused, NULL, "refused");
}

/* No route fits method and path: says which part it is. */
static void no_route(struct pq_request *q, const struct pq_sbi_router *router, struct pq_span path)
{
    char allow[64] = "";
    bool api = false;
    struct pq_span found[PQ_SBI_PARAMETERS];
    for (size_t i = 0; i < router->count; i++) {
        const struct pq_sbi_route *route = &router->routes[i];
        api |= same_api(path, route->path);
        if (!path_fits(path, route->path, found) || strstr(allow, route->method))
            continue;
        size_t n = strlen(allow);
        snprintf(allow + n, sizeof allow - n, "%s%s", n ? ", " : "", route->method);
    }
    if (allow[0]) {
        pq_sbi_field(&q->r, "allow", "%s", allow);
        pq_sbi_problem(&q->r, 405, NULL, "the resource has no method %s", q->r.method);
    } else if (api || path.len < 2) {
        pq_sbi_problem(&q->r, 404, "RESOURCE_URI_STRUCTURE_NOT_FOUND", "there is no such resource");
    } else {
        pq_sbi_problem(&q->r, 400, "INVALID_API", "this network function has no such API or version");
    }
}

static void run_route(struct pq_request *q, const struct pq_sbi_route *route, const struct pq_span *found)
{
    for (size_t i = 0; i < PQ_SBI_PARAMETERS && found[i].at; i++)
        if (pq_uri_decode(found[i], q->r.parameter[i], sizeof q->r.parameter[i]) < 0) {
            pq_sbi_problem(&q->r, 400, "INVALID_MSG_FORMAT", "a path segment is badly encoded or too long");
            return;
        }
    if (take_body(q, route))
        route->handle(&q->r);
}

static void dispatch(struct pq_request *q, const struct pq_sbi_router *router)
{
    struct pq_span path;
    if (q->x->refused) {
        refuse(q);
        return;
    }
    if (!method_is_known(q->r.method)) {
        pq_sbi_problem(&q->r, 501, NULL, "the method is not implemented");
        return;
    }
    if (pq_uri_split_path(q->x->request.path, &path, &q->r.query) < 0) {
        pq_sbi_problem(&q->r, 400, "INVALID_MSG_FORMAT", "the path is malformed");
        return;
    }
    for (size_t i = 0; i < router->count; i++) {
        struct pq_span found[PQ_SBI_PARAMETERS] = {{0}};
        if (method_fits(q->r.method, router->routes[i].method) && path_fits(path, router->routes[i].path, found)) {
            run_route(q, &router->routes[i], found);
            return;
        }
    }
    no_route(q, router, path);
}

void pq_sbi_serve(void *context, struct pq_http2_exchange *x)
{
    const struct pq_sbi_router *router = context;
    struct pq_request *q = calloc(1, sizeof *q);
    if (!q) {
        pq_http2_respond(x, &(struct pq_http2_answer){.status = 503});
        return;
    }
    q->x = x;
    q->r.method = x->request.method;
    q->r.peer = x->peer;
    q->r.query = pq_span("", 0);
    q->r.function = router->function;
    dispatch(q, router);
}

int pq_sbi_query(const struct pq_sbi_request *r, const char *name, char *out, size_t size)
{
    struct pq_span rest = r->query, want = pq_span_text(name), key, value;
    int e;
    while ((e = pq_uri_next_parameter(&rest, &key, &value)) == 0)
        if (pq_span_equal(key, want))
            return pq_uri_decode(value, out, size);
    return e;
}
