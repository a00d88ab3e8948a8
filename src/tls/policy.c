#include "tls/tls.h"

#include <string.h>

#include "base/bytes.h"

enum { LIST_MAX = 4096 };

static void defaults(void *out)
{
    *(struct pq_tls_policy *)out = (struct pq_tls_policy){.mode = PQ_MODE_HYBRID, .level = 3};
}

static int read_mode(const struct pq_node *n, void *out, struct pq_why *why)
{
    const char *text = pq_node_text(n);
    for (int mode = PQ_MODE_CLASSICAL; text && pq_mode_names[mode]; mode++)
        if (!strcmp(text, pq_mode_names[mode])) {
            *(int *)out = mode;
            return 0;
        }
    return pq_node_why(n, why, "mode must be classical, hybrid or pure");
}

static int read_level(const struct pq_node *n, void *out, struct pq_why *why)
{
    const char *text = pq_node_text(n);
    if (!text || strlen(text) != 1 || !strchr("135", *text))
        return pq_node_why(n, why, "level must be 1, 3 or 5 (NIST security category)");
    *(int64_t *)out = *text - '0';
    return 0;
}

/* "A:B" or [A, B]. */
static int read_list(const struct pq_node *n, void *out, struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf b = {.cap = LIST_MAX};
    const char *text = pq_node_text(n);
    size_t count = pq_node_kind(n) == PQ_NODE_LIST ? pq_node_count(n) : 0;
    int e = text && *text ? pq_buf_text(&b, text) : 0;
    for (size_t i = 0; i < count && e == 0; i++) {
        text = pq_node_text(pq_node_item(n, i));
        if (!text || !*text)
            return pq_node_why(pq_node_item(n, i), why, "expected the name of an algorithm");
        e = pq_buf_printf(&b, "%s%s", i ? ":" : "", text);
    }
    if (e == PQ_E_NOMEM)
        return pq_why(why, e, "out of memory");
    if (e < 0 || b.len == 0)
        return pq_node_why(n, why, "expected names of algorithms, \"A:B\" or [A, B], at most %d bytes", LIST_MAX);
    *(char **)out = (char *)TAKE(b.at);
    return 0;
}

static void free_list(void *out) { pq_freep(out); }

static int read_require(const struct pq_node *n, void *out, struct pq_why *why)
{
    struct pq_tls_policy *p = out;
    bool list = pq_node_kind(n) == PQ_NODE_LIST;
    for (size_t i = 0; i < (list ? pq_node_count(n) : 1); i++) {
        const struct pq_node *item = list ? pq_node_item(n, i) : n;
        const char *text = pq_node_text(item);
        if (text && !strcmp(text, "pq-kex"))
            p->require_pq_kex = true;
        else if (text && !strcmp(text, "pq-auth"))
            p->require_pq_auth = true;
        else
            return pq_node_why(item, why, "require takes pq-kex and pq-auth");
    }
    return 0;
}

#define LIST(name)                                                                                                     \
    {#name, PQ_FIELD_CUSTOM, offsetof(struct pq_tls_policy, name), .custom = read_list, .custom_free = free_list}

static const struct pq_field fields[] = {
    {"mode", PQ_FIELD_CUSTOM, offsetof(struct pq_tls_policy, mode), .custom = read_mode},
    {"level", PQ_FIELD_CUSTOM, offsetof(struct pq_tls_policy, level), .custom = read_level},
    LIST(groups),
    LIST(sigalgs),
    LIST(ciphersuites),
    {"require", PQ_FIELD_CUSTOM, 0, .custom = read_require},
};

const struct pq_schema pq_tls_policy_schema = {
    .what = "a TLS policy",
    .size = sizeof(struct pq_tls_policy),
    .fields = fields,
    .count = PQ_COUNT(fields),
    .defaults = defaults,
};
