#include "report/published.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bool pq_node_number(const struct pq_node *n, double *out)
{
    const char *text = n && pq_node_kind(n) == PQ_NODE_SCALAR ? pq_node_text(n) : NULL;
    if (!text || !*text || text[strspn(text, "0123456789+-.eE")])
        return false;
    char *end;
    double v = strtod(text, &end);
    if (*end || !isfinite(v))
        return false;
    *out = v;
    return true;
}

static bool named(const char *key, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(key, *names) == 0)
            return true;
    return false;
}

static const char *text_of(const struct pq_node *map, const char *key)
{
    const struct pq_node *n = pq_node_get(map, key);
    return n ? pq_node_text(n) : NULL;
}

/* A number or an ascending pair of numbers. */
static bool extent(const struct pq_node *n, double *low, double *high)
{
    double a, b;
    if (pq_node_number(n, &a)) {
        *low = *high = a;
        return true;
    }
    if (!n || pq_node_kind(n) != PQ_NODE_LIST || pq_node_count(n) != 2 || !pq_node_number(pq_node_item(n, 0), &a) ||
        !pq_node_number(pq_node_item(n, 1), &b) || a > b)
        return false;
    *low = a;
    *high = b;
    return true;
}

/* "latency_ms_at_most" is in ms. */
static const char *unit_of_key(const char *key)
{
    static const struct {
        const char *word, *unit;
    } units[] = {{"ns", "ns"},   {"us", "µs"},       {"ms", "ms"},    {"s", "s"},
                 {"kib", "KiB"}, {"bytes", "bytes"}, {"percent", "%"}};
    for (const char *word = key; *word; word += strcspn(word, "_"), word += *word == '_') {
        size_t len = strcspn(word, "_");
        for (size_t i = 0; i < PQ_COUNT(units); i++)
            if (word != key && strlen(units[i].word) == len && memcmp(units[i].word, word, len) == 0)
                return units[i].unit;
    }
    return "";
}

struct walk {
    struct pq_published *out;
    size_t size, count;
};

static void take(struct walk *w, const struct pq_published *inherited, const char *key, const struct pq_node *value,
                 const struct pq_node *map)
{
    struct pq_published f = *inherited;
    if (w->count == w->size || !extent(value, &f.low, &f.high))
        return;
    if (snprintf(f.key, sizeof f.key, "%s%s%s", inherited->key, inherited->key[0] ? "." : "", key) >= (int)sizeof f.key)
        return;
    if (map) {
        f.what = text_of(map, "what");
        f.ours = pq_node_get(map, "ours");
    }
    if (!f.unit[0])
        f.unit = unit_of_key(key);
    w->out[w->count++] = f;
}

static void inherit(struct pq_published *f, const struct pq_node *map)
{
    const char *unit = text_of(map, "unit"), *where = text_of(map, "where"), *baseline = text_of(map, "baseline");
    f->unit = unit ? unit : f->unit;
    f->where = where ? where : f->where;
    f->baseline = baseline ? baseline : f->baseline;
}

/* Depth is that of the document, which has a cap. */
static void walk(struct walk *w, struct pq_published inherited, const struct pq_node *map)
{
    static const char *const no_figures[] = {"title", "authors", "study", "source", "url",      "year", "testbed",
                                             "unit",  "where",   "what",  "ours",   "baseline", NULL};
    inherit(&inherited, map);
    for (size_t i = 0; i < pq_node_count(map); i++) {
        const char *key;
        const struct pq_node *n = pq_node_pair(map, i, &key);
        if (named(key, no_figures))
            continue;
        if (pq_node_kind(n) != PQ_NODE_MAP) {
            take(w, &inherited, key, n, NULL);
            continue;
        }
        struct pq_published below = inherited;
        inherit(&below, n);
        if (pq_node_get(n, "value")) {
            take(w, &below, key, pq_node_get(n, "value"), n);
            continue;
        }
        if (snprintf(below.key, sizeof below.key, "%s%s%s", inherited.key, inherited.key[0] ? "." : "", key) <
            (int)sizeof below.key)
            walk(w, below, n);
    }
}

size_t pq_published_list(const struct pq_node *root, struct pq_published *out, size_t size)
{
    struct walk w = {out, size, 0};
    if (root && pq_node_kind(root) == PQ_NODE_MAP)
        walk(&w, (struct pq_published){.unit = ""}, root);
    return w.count;
}

static const char *last_name(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot ? dot + 1 : key;
}

int pq_published_find(const struct pq_node *root, const char *key, struct pq_published *out)
{
    DEFER(pq_freep) struct pq_published *all = calloc(PQ_PUBLISHED_MAX, sizeof *all);
    if (!all)
        return PQ_E_NOMEM;
    size_t count = pq_published_list(root, all, PQ_PUBLISHED_MAX), found = 0;
    const struct pq_published *only = NULL;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(all[i].key, key) == 0) {
            *out = all[i];
            return 0;
        }
        if (strcmp(last_name(all[i].key), key) == 0) {
            only = &all[i];
            found++;
        }
    }
    if (found != 1)
        return found ? PQ_E_CONFIG : PQ_E_NOT_FOUND;
    *out = *only;
    return 0;
}

struct line {
    char *out;
    size_t size, len;
};

static void add(struct line *l, const char *text)
{
    if (!text || !*text || l->len + 1 >= l->size)
        return;
    int n = snprintf(l->out + l->len, l->size - l->len, "%s%s", l->len ? ", " : "", text);
    l->len = n < 0 ? l->len : l->len + (size_t)n < l->size ? l->len + (size_t)n : l->size - 1;
}

static void add_all(struct line *l, const struct pq_node *n)
{
    if (!n)
        return;
    add(l, pq_node_text(n));
    for (size_t i = 0; pq_node_kind(n) != PQ_NODE_SCALAR && i < pq_node_count(n); i++) {
        const char *key;
        add(l, pq_node_text(pq_node_kind(n) == PQ_NODE_LIST ? pq_node_item(n, i) : pq_node_pair(n, i, &key)));
    }
}

void pq_published_source(const struct pq_node *root, char *out, size_t size)
{
    static const char *const parts[] = {"authors", "title", "study", "year", "source", "url"};
    struct line l = {out, size, 0};
    if (size)
        out[0] = 0;
    for (size_t i = 0; root && i < PQ_COUNT(parts); i++)
        add_all(&l, pq_node_get(root, parts[i]));
}
