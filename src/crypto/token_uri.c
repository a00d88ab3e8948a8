#include <ctype.h>
#include <string.h>

#include "crypto/token.h"

static const char scheme[] = "pkcs11:";
enum { SCHEME = sizeof scheme - 1, SHOWN_MAX = 200 };

bool pq_token_is_uri(const char *key) { return strncmp(key, scheme, SCHEME) == 0; }

void pq_token_uri_free(struct pq_token_uri *u)
{
    char **texts[] = {&u->plain, &u->pin_file, &u->token, &u->manufacturer, &u->serial, &u->model};
    for (size_t i = 0; i < PQ_COUNT(texts); i++)
        pq_freep(texts[i]);
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* RFC 3986, section 2.1. A NUL would cut what comes behind it. */
static int decode(const char *at, size_t len, char **out)
{
    DEFER(pq_freep) char *text = calloc(1, len + 1);
    size_t n = 0;
    if (!text)
        return PQ_E_NOMEM;
    for (size_t i = 0; i < len; i++) {
        bool escaped = at[i] == '%';
        if (escaped && (len - i < 3 || hex(at[i + 1]) < 0 || hex(at[i + 2]) < 0))
            return PQ_E_SYNTAX;
        char c = escaped ? (char)(hex(at[i + 1]) << 4 | hex(at[i + 2])) : at[i];
        if (c == 0)
            return PQ_E_SYNTAX;
        text[n++] = c;
        i += escaped ? 2 : 0;
    }
    *out = TAKE(text);
    return 0;
}

/* --- attributes --------------------------------------------------------------------------------------------------- */

struct parsing {
    struct pq_token_uri uri;
    bool names_key, has_type;
    struct pq_why *why;
};

static void parsing_free(struct parsing *p) { pq_token_uri_free(&p->uri); }

static int take_type(struct parsing *p, const char *value)
{
    p->has_type = true;
    return strcmp(value, "private") == 0 ? 0 : pq_why(p->why, PQ_E_CONFIG, "type=%s: it must be private", value);
}

static int take_key(struct parsing *p, const char *value)
{
    (void)value;
    p->names_key = true;
    return 0;
}

static int take_pin_source(struct parsing *p, const char *value)
{
    const char *path = strncmp(value, "file:", 5) == 0 ? value + 5 : value;
    if (strncmp(path, "//", 2) == 0) /* "file:///path" */
        path += 2;
    if (*path != '/')
        return pq_why(p->why, PQ_E_CONFIG, "pin-source: name a file by its whole path (pin-source=file:/PATH)");
    free(p->uri.pin_file);
    p->uri.pin_file = strdup(path);
    return p->uri.pin_file ? 0 : pq_why(p->why, PQ_E_NOMEM, "out of memory");
}

static int refuse_pin(struct parsing *p, const char *value)
{
    (void)value;
    return pq_why(p->why, PQ_E_CONFIG,
                  "pin-value: a PIN has no place here: write it into a file of mode 0600 and name that "
                  "(pin-source=file:/PATH)");
}

static int refuse_module(struct parsing *p, const char *value)
{
    (void)value;
    return pq_why(p->why, PQ_E_CONFIG, "the module is named by pkcs11: {module: PATH}, not here");
}

#define MEMBER(name) offsetof(struct parsing, uri.name)
static const struct attribute {
    const char *name;
    bool query;
    size_t member; /* 0: none keeps it */
    int (*take)(struct parsing *p, const char *value);
} attributes[] = {
    {"token", false, MEMBER(token), NULL},   {"manufacturer", false, MEMBER(manufacturer), NULL},
    {"serial", false, MEMBER(serial), NULL}, {"model", false, MEMBER(model), NULL},
    {"object", false, 0, take_key},          {"id", false, 0, take_key},
    {"type", false, 0, take_type},           {"pin-source", true, 0, take_pin_source},
    {"pin-value", true, 0, refuse_pin},      {"module-path", true, 0, refuse_module},
    {"module-name", true, 0, refuse_module},
};

static int take_attribute(struct parsing *p, const char *at, size_t len, bool query)
{
    const char *equals = memchr(at, '=', len);
    if (!equals || equals == at)
        return pq_why(p->why, PQ_E_CONFIG, "\"%.*s\" is no attribute (NAME=VALUE)", (int)len, at);
    size_t name = (size_t)(equals - at), i = 0;
    while (i < PQ_COUNT(attributes) && (attributes[i].query != query || strlen(attributes[i].name) != name ||
                                        strncmp(attributes[i].name, at, name) != 0))
        i++;
    if (i == PQ_COUNT(attributes))
        return query ? pq_why(p->why, PQ_E_CONFIG, "the query has no attribute \"%.*s\" but pin-source", (int)name, at)
                     : 0;
    DEFER(pq_freep) char *value = NULL;
    int e = decode(equals + 1, len - name - 1, &value);
    /* An id may hold any byte, and is left to the provider. */
    if (e == PQ_E_NOMEM || (e < 0 && attributes[i].take != take_key))
        return pq_why(p->why, e == PQ_E_NOMEM ? e : PQ_E_CONFIG, "%s: %s", attributes[i].name, pq_error_text(e));
    if (attributes[i].take)
        return attributes[i].take(p, value ? value : "");
    char **member = (char **)(void *)((char *)p + attributes[i].member);
    free(*member);
    *member = TAKE(value);
    return 0;
}

static int take_attributes(struct parsing *p, const char *at, size_t len, bool query)
{
    for (const char *end = at + len; at < end;) {
        const char *next = memchr(at, query ? '&' : ';', (size_t)(end - at));
        size_t one = (size_t)((next ? next : end) - at);
        TRY(take_attribute(p, at, one, query));
        at += one + 1;
    }
    return 0;
}

static int parse(struct parsing *p, const char *uri)
{
    size_t len = strlen(uri);
    if (len > PQ_TOKEN_URI_MAX)
        return pq_why(p->why, PQ_E_CONFIG, "it is longer than %d bytes", PQ_TOKEN_URI_MAX);
    for (const char *c = uri; *c; c++)
        if (!isgraph((unsigned char)*c))
            return pq_why(p->why, PQ_E_CONFIG, "it holds a blank or a byte beyond ASCII: write it as %%20 and so on");
    size_t path = strcspn(uri, "?");
    TRY(take_attributes(p, uri + SCHEME, path - SCHEME, false));
    if (path < len)
        TRY(take_attributes(p, uri + path + 1, len - path - 1, true));
    if (!p->names_key)
        return pq_why(p->why, PQ_E_CONFIG, "it names no key: add object=LABEL or id=%%01");
    if (asprintf(&p->uri.plain, "%.*s%s", (int)path, uri, p->has_type ? "" : ";type=private") < 0) {
        p->uri.plain = NULL;
        return pq_why(p->why, PQ_E_NOMEM, "out of memory");
    }
    return 0;
}

int pq_token_uri_parse(const char *uri, struct pq_token_uri *out, struct pq_why *why)
{
    DEFER(parsing_free) struct parsing p = {.why = why};
    int e = pq_token_is_uri(uri) ? parse(&p, uri) : pq_why(why, PQ_E_CONFIG, "it does not begin with pkcs11:");
    size_t shown = strcspn(uri, "?"); /* the query may hold a PIN */
    if (e < 0)
        return pq_why_in(why, e, "the key %.*s", (int)(shown < SHOWN_MAX ? shown : SHOWN_MAX), uri);
    *out = p.uri;
    p.uri = (struct pq_token_uri){0};
    return 0;
}
