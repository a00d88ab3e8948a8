#include "proxy/admin_request.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <yyjson.h>

#include "base/cleanup.h"
#include "base/config.h"

/* --- where it comes from ----------------------------------------------------------------------------------------- */
/* RFC 9110, section 7.2: a host and perhaps a port. */
static bool split_host(const char *text, char *host, size_t size)
{
    const char *end = *text == '[' ? strchr(text, ']') : text + strcspn(text, ":");
    int64_t port;
    if (!end || (size_t)(end - text) >= size)
        return false;
    const char *start = *text == '[' ? text + 1 : text;
    snprintf(host, size, "%.*s", (int)(end - start), start);
    end += *text == '[';
    return !*end || (*end == ':' && end[1] != '-' && pq_int_parse(end + 1, 0, 65535, &port, NULL) == 0);
}

static bool names_this_host(const char *text)
{
    char host[64];
    unsigned char address[16];
    if (!split_host(text, host, sizeof host))
        return false;
    return strcasecmp(host, "localhost") == 0 || inet_pton(*text == '[' ? AF_INET6 : AF_INET, host, address) == 1;
}

/* A program sends neither field; a browser sends at least one with what changes something. */
static bool from_another_page(const struct pq_admin_request *r)
{
    if (r->fetch_site && strcasecmp(r->fetch_site, "same-origin") != 0 && strcasecmp(r->fetch_site, "none") != 0)
        return true;
    if (!r->origin)
        return false;
    return strncasecmp(r->origin, "http://", 7) != 0 || !r->host || strcasecmp(r->origin + 7, r->host) != 0;
}

/* --- what it asks for -------------------------------------------------------------------------------------------- */
static const struct {
    const char *path, *method;
    enum pq_admin_action action;
    const char *allow;
} rows[] = {
    {"/", "GET", PQ_ADMIN_INDEX, "GET, HEAD"},
    {"/metrics", "GET", PQ_ADMIN_METRICS, "GET, HEAD"},
    {"/healthz", "GET", PQ_ADMIN_HEALTHZ, "GET, HEAD"},
    {"/ready", "GET", PQ_ADMIN_READY, "GET, HEAD"},
    {"/connections", "GET", PQ_ADMIN_CONNECTIONS, "GET, HEAD"},
    {"/config", "GET", PQ_ADMIN_CONFIG, "GET, HEAD"},
    {"/drain", "POST", PQ_ADMIN_DRAIN, "POST"},
    {"/reload", "POST", PQ_ADMIN_RELOAD, "POST"},
    {"/log-level", "GET", PQ_ADMIN_LOG_LEVEL, "GET, HEAD, PUT"},
    {"/log-level", "PUT", PQ_ADMIN_SET_LOG_LEVEL, "GET, HEAD, PUT"},
};

static struct pq_admin_verdict refuse(int status, const char *error)
{
    return (struct pq_admin_verdict){.status = status, .error = error};
}

static struct pq_admin_verdict route(const char *method, const char *path)
{
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method, *allow = NULL;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        if (strcmp(rows[i].path, path) != 0)
            continue;
        if (strcmp(rows[i].method, wanted) == 0)
            return (struct pq_admin_verdict){.action = rows[i].action};
        allow = rows[i].allow;
    }
    if (!allow)
        return refuse(404, "there is no such path: GET / lists them");
    struct pq_admin_verdict v = refuse(405, "this path has no such method: the field Allow lists what it has");
    v.allow = allow;
    return v;
}

static bool changes(enum pq_admin_action a)
{
    return a == PQ_ADMIN_DRAIN || a == PQ_ADMIN_RELOAD || a == PQ_ADMIN_SET_LOG_LEVEL;
}

struct pq_admin_verdict pq_admin_judge(const struct pq_admin_request *r)
{
    int64_t length = 0;
    if (!r->unix_socket && r->host && !names_this_host(r->host))
        return refuse(403, "the Host is neither an address nor localhost: a name could be anybody's");
    struct pq_admin_verdict v = route(r->method, r->path);
    if (v.status)
        return v;
    if (changes(v.action) && from_another_page(r))
        return refuse(403, "the request comes from a page of another origin, which must not change anything here");
    if (r->length && pq_int_parse(r->length, 0, PQ_ADMIN_BODY_READ, &length, NULL) < 0)
        return refuse(413, "the body is too long");
    return v;
}

/* --- a log level ------------------------------------------------------------------------------------------------- */
static int level_named(const char *text, size_t len)
{
    for (int i = 0; pq_log_level_names[i]; i++)
        if (strlen(pq_log_level_names[i]) == len && memcmp(pq_log_level_names[i], text, len) == 0)
            return i;
    return -1;
}

static int level_in_json(struct pq_span body)
{
    yyjson_doc *d = yyjson_read((const char *)body.at, body.len, 0);
    const char *level = yyjson_get_str(yyjson_obj_get(yyjson_doc_get_root(d), "level"));
    int found = level ? level_named(level, strlen(level)) : -1;
    yyjson_doc_free(d);
    return found;
}

int pq_admin_level(struct pq_span body)
{
    while (body.len && isspace(body.at[body.len - 1]))
        body.len--;
    if (body.len == 0 || body.len >= PQ_ADMIN_BODY_MAX)
        return -1;
    return body.at[0] == '{' ? level_in_json(body) : level_named((const char *)body.at, body.len);
}
