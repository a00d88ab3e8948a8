#include "lab/experiment.h"

#include <limits.h>
#include <string.h>

#include "base/bytes.h"
#include "base/file.h"

/* The file's parts as nodes, judged once the driver and the factors are known. */
struct parts {
    const struct pq_node *name, *title, *why, *published, *interface, *factors, *exclude, *load, *repetitions, *quick,
        *metrics, *questions;
};
struct quick_parts {
    const struct pq_node *repetitions, *load;
};

static int keep(const struct pq_node *n, void *out, struct pq_why *why)
{
    (void)why;
    *(const struct pq_node **)out = n;
    return 0;
}

#define PART(struct_name, field, needed)                                                                               \
    {.name = #field,                                                                                                   \
     .type = PQ_FIELD_CUSTOM,                                                                                          \
     .offset = offsetof(struct struct_name, field),                                                                    \
     .required = needed,                                                                                               \
     .custom = keep}
static const struct pq_field part_fields[] = {
    PART(parts, name, true),       PART(parts, title, false),    PART(parts, why, true),
    PART(parts, published, false), PART(parts, interface, true), PART(parts, factors, true),
    PART(parts, exclude, false),   PART(parts, load, false),     PART(parts, repetitions, true),
    PART(parts, quick, false),     PART(parts, metrics, true),   PART(parts, questions, false),
};
static const struct pq_schema part_schema = {
    .what = "an experiment", .size = sizeof(struct parts), .fields = part_fields, .count = PQ_COUNT(part_fields)};
static const struct pq_field quick_fields[] = {PART(quick_parts, repetitions, false), PART(quick_parts, load, false)};
static const struct pq_schema quick_schema = {
    .what = "quick", .size = sizeof(struct quick_parts), .fields = quick_fields, .count = PQ_COUNT(quick_fields)};

static int no_memory(struct pq_why *why)
{
    return pq_why(why, PQ_E_NOMEM, "out of memory while reading an experiment");
}

/* ", "-separated, for "is none of ...". */
static void join(char *out, size_t size, const char *item)
{
    size_t len = strlen(out);
    snprintf(out + len, size - len, "%s%s", len ? ", " : "", item);
}

static int read_text(const struct pq_node *n, const char *what, char **out, struct pq_why *why)
{
    if (!n)
        return 0;
    const char *text = pq_node_text(n);
    if (!text || !*text)
        return pq_node_why(n, why, "\"%s\" must be a text", what);
    *out = strdup(text);
    return *out ? 0 : no_memory(why);
}

static int read_name(const struct pq_node *n, char **out, struct pq_why *why)
{
    TRY(read_text(n, "name", out, why));
    // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): read_text() set it
    if (strspn(*out, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(*out) || strlen(*out) > 64)
        return pq_node_why(n, why, "name: \"%.70s\" must be at most 64 small letters, digits and hyphens", *out);
    return 0;
}

static int read_interface(const struct pq_node *n, const struct pq_driver **out, struct pq_why *why)
{
    const char *names, *text = pq_node_text(n);
    *out = pq_driver_find(text ? text : "", &names);
    return *out ? 0
                : pq_node_why(n, why, "interface: \"%.60s\" can't be measured by this program, which knows %s",
                              text ? text : "", names);
}

static void strings_free(struct pq_strings *s)
{
    for (size_t i = 0; i < s->count; i++)
        free(s->at[i]);
    free(s->at);
    *s = (struct pq_strings){0};
}

static void match_free(struct pq_match *m)
{
    for (size_t i = 0; i < m->count; i++)
        strings_free(&m->at[i].values);
    free(m->at);
    *m = (struct pq_match){0};
}

static bool holds(const struct pq_strings *s, const char *text)
{
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->at[i], text) == 0)
            return true;
    return false;
}

/* A list of different scalars, or one scalar. */
static int read_values(const struct pq_node *n, const char *what, size_t max, struct pq_strings *out,
                       struct pq_why *why)
{
    bool single = pq_node_kind(n) == PQ_NODE_SCALAR;
    size_t count = single ? 1 : pq_node_count(n);
    if (pq_node_kind(n) == PQ_NODE_MAP)
        return pq_node_why(n, why, "%s must be a list of values", what);
    if (count == 0)
        return pq_node_why(n, why, "%s has no values: name at least one", what);
    if (count > max)
        return pq_node_why(n, why, "%s has %zu values: %zu are the most", what, count, max);
    out->at = calloc(count, sizeof *out->at);
    if (!out->at)
        return no_memory(why);
    for (size_t i = 0; i < count; i++) {
        const struct pq_node *item = single ? n : pq_node_item(n, i);
        const char *text = pq_node_text(item);
        if (!text || !*text)
            return pq_node_why(item, why, "%s must be a list of single values", what);
        if (holds(out, text))
            return pq_node_why(item, why, "%s names \"%.60s\" twice", what, text);
        out->at[i] = strdup(text);
        if (!out->at[i])
            return no_memory(why);
        out->count++;
    }
    return 0;
}

static const struct pq_driver_factor *known_factor(const struct pq_driver *d, const char *name)
{
    for (const struct pq_driver_factor *f = d->factors; f->name; f++)
        if (strcmp(f->name, name) == 0)
            return f;
    return NULL;
}

static int unknown_factor(const struct pq_node *n, const struct pq_driver *d, const char *name, struct pq_why *why)
{
    char names[300] = "";
    for (const struct pq_driver_factor *f = d->factors; f->name; f++)
        join(names, sizeof names, f->name);
    return pq_node_why(n, why, "the interface %s has no factor \"%.60s\"; it has %s", d->interface, name, names);
}

static int check_values(const struct pq_node *n, const struct pq_driver_factor *f, const struct pq_strings *values,
                        struct pq_why *why)
{
    for (size_t i = 0; i < values->count; i++) {
        char names[500] = "";
        bool known = false;
        for (const char *const *v = f->values; *v; v++) {
            known |= strcmp(*v, values->at[i]) == 0;
            join(names, sizeof names, *v);
        }
        const struct pq_node *at = pq_node_kind(n) == PQ_NODE_LIST ? pq_node_item(n, i) : n;
        if (!known)
            return pq_node_why(at, why, "%s: \"%.60s\" is none of %s", f->name, values->at[i], names);
    }
    return 0;
}

static int find_factor(const struct pq_experiment *x, const char *name, size_t *out)
{
    for (size_t i = 0; i < x->factor_count; i++)
        if (strcmp(x->factors[i].name, name) == 0) {
            *out = i;
            return 0;
        }
    return PQ_E_NOT_FOUND;
}

/* {factor: value or values, ...}, of factors that are already read. */
static int read_match(const struct pq_node *map, const struct pq_experiment *x, const char *what, struct pq_match *out,
                      struct pq_why *why)
{
    size_t count = pq_node_count(map);
    if (pq_node_kind(map) != PQ_NODE_MAP || count == 0)
        return pq_node_why(map, why, "%s must be a map of factors to values", what);
    out->at = calloc(count, sizeof *out->at);
    if (!out->at)
        return no_memory(why);
    const char *name;
    const struct pq_node *n;
    for (size_t i = 0; (n = pq_node_pair(map, i, &name)); i++) {
        struct pq_condition *c = &out->at[out->count++];
        if (find_factor(x, name, &c->factor) < 0)
            return pq_node_why(n, why, "%s: there is no factor \"%.60s\" above", what, name);
        TRY(read_values(n, name, PQ_VALUE_MAX, &c->values, why));
        for (size_t v = 0; v < c->values.count; v++)
            if (!holds(&x->factors[c->factor].values, c->values.at[v]))
                return pq_node_why(n, why, "%s: the factor %s has no value \"%.60s\"", what, name, c->values.at[v]);
    }
    return 0;
}

static int read_factor(const struct pq_node *n, const char *name, struct pq_experiment *x, struct pq_why *why)
{
    const struct pq_driver_factor *known = known_factor(x->driver, name);
    if (!known)
        return unknown_factor(n, x->driver, name, why);
    if (x->factor_count == PQ_FACTOR_MAX)
        return pq_node_why(n, why, "%d factors are the most", PQ_FACTOR_MAX);
    struct pq_factor *f = &x->factors[x->factor_count];
    const struct pq_node *values = n, *when = NULL;
    if (pq_node_kind(n) == PQ_NODE_MAP) {
        const char *key;
        const struct pq_node *part;
        for (size_t i = 0; (part = pq_node_pair(n, i, &key)); i++)
            if (strcmp(key, "values") != 0 && strcmp(key, "when") != 0)
                return pq_node_why(part, why, "a factor has no \"%.60s\"; it has values, when", key);
        values = pq_node_get(n, "values");
        when = pq_node_get(n, "when");
        if (!values)
            return pq_node_why(n, why, "the factor %s needs \"values\"", name);
    }
    f->name = strdup(name);
    int e = f->name ? read_values(values, name, PQ_VALUE_MAX, &f->values, why) : no_memory(why);
    if (e == 0)
        e = check_values(values, known, &f->values, why);
    if (e == 0 && when)
        e = read_match(when, x, "when", &f->when, why);
    /* Counted only now, so that `when` can't name the factor itself; what was read is freed with the rest. */
    x->factor_count++;
    return e;
}

static int read_factors(const struct pq_node *map, struct pq_experiment *x, struct pq_why *why)
{
    const char *name;
    const struct pq_node *n;
    if (pq_node_kind(map) != PQ_NODE_MAP || pq_node_count(map) == 0)
        return pq_node_why(map, why, "factors must be a map of a factor's name to its values");
    for (size_t i = 0; (n = pq_node_pair(map, i, &name)); i++)
        TRY(read_factor(n, name, x, why));
    return 0;
}

static int read_exclude(const struct pq_node *list, struct pq_experiment *x, struct pq_why *why)
{
    if (!list)
        return 0;
    if (pq_node_kind(list) != PQ_NODE_LIST)
        return pq_node_why(list, why, "exclude must be a list of maps of factors to values");
    size_t count = pq_node_count(list);
    x->exclude = calloc(count ? count : 1, sizeof *x->exclude);
    if (!x->exclude)
        return no_memory(why);
    for (size_t i = 0; i < count; i++)
        TRY(read_match(pq_node_item(list, i), x, "exclude", &x->exclude[x->exclude_count++], why));
    return 0;
}

static int read_choice(const struct pq_node *n, const struct pq_driver_load *l, int64_t *out, struct pq_why *why)
{
    char names[300] = "";
    for (int64_t i = 0; l->choices[i]; i++) {
        if (strcmp(l->choices[i], pq_node_text(n)) == 0) {
            *out = i;
            return 0;
        }
        join(names, sizeof names, l->choices[i]);
    }
    return pq_node_why(n, why, "%s: \"%.60s\" is none of %s", l->name, pq_node_text(n), names);
}

static int read_count(const struct pq_node *n, const char *name, int64_t low, int64_t high, int64_t *out,
                      struct pq_why *why)
{
    struct pq_why inner = {{0}};
    const char *text = pq_node_text(n);
    if (!text)
        return pq_node_why(n, why, "%s must be a number", name);
    if (pq_int_parse(text, low, high, out, &inner) < 0)
        return pq_node_why(n, why, "%s: %.200s", name, inner.text);
    return 0;
}

static int read_load(const struct pq_node *map, struct pq_experiment *x, struct pq_why *why)
{
    const char *key;
    const struct pq_node *n;
    const struct pq_driver_load *loads = x->driver->loads;
    if (map && pq_node_kind(map) != PQ_NODE_MAP)
        return pq_node_why(map, why, "load must be a map");
    for (size_t i = 0; map && (n = pq_node_pair(map, i, &key)); i++) {
        size_t l = 0;
        char names[300] = "";
        while (loads[l].name && strcmp(loads[l].name, key) != 0)
            join(names, sizeof names, loads[l++].name);
        if (!loads[l].name)
            return pq_node_why(n, why, "the load of the interface %s has no \"%.60s\"; it has %s", x->driver->interface,
                               key, names);
        if (loads[l].choices && pq_node_kind(n) != PQ_NODE_SCALAR)
            return pq_node_why(n, why, "%s must be a single value", key);
        TRY(loads[l].choices ? read_choice(n, &loads[l], &x->load[l], why)
                             : read_count(n, key, loads[l].low, loads[l].high, &x->load[l], why));
    }
    return 0;
}

static int read_metrics(const struct pq_node *list, struct pq_experiment *x, struct pq_why *why)
{
    TRY(read_values(list, "metrics", 100, &x->metrics, why));
    for (size_t i = 0; i < x->metrics.count; i++) {
        char names[600] = "";
        bool known = false;
        for (const struct pq_driver_metric *m = x->driver->metrics; m->name; m++) {
            // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): read_values() filled each
            known |= strcmp(m->name, x->metrics.at[i]) == 0;
            join(names, sizeof names, m->name);
        }
        if (!known)
            return pq_node_why(pq_node_kind(list) == PQ_NODE_LIST ? pq_node_item(list, i) : list, why,
                               "metrics: \"%.60s\" is none of %s", x->metrics.at[i], names);
    }
    return 0;
}

enum { REPETITIONS_MAX = 10000 };

static int read_quick(const struct pq_node *map, struct pq_experiment *x, struct pq_why *why)
{
    struct pq_experiment judged = {.driver = x->driver}; /* mistakes show whether or not it is used now */
    struct pq_experiment *into = x->quick ? x : &judged;
    struct quick_parts q = {0};
    if (!map)
        return 0;
    TRY(pq_config_read(map, &quick_schema, &q, why));
    if (q.repetitions)
        TRY(read_count(q.repetitions, "repetitions", 1, REPETITIONS_MAX, &into->repetitions, why));
    return read_load(q.load, into, why);
}

static int read_parts(const struct parts *p, struct pq_experiment *x, struct pq_why *why)
{
    TRY(read_name(p->name, &x->name, why));
    TRY(read_text(p->title, "title", &x->title, why));
    TRY(read_text(p->why, "why", &x->why, why));
    TRY(read_text(p->published, "published", &x->published, why));
    TRY(read_interface(p->interface, &x->driver, why));
    for (size_t i = 0; x->driver->loads[i].name; i++)
        x->load[i] = x->driver->loads[i].standard;
    TRY(read_factors(p->factors, x, why));
    TRY(read_exclude(p->exclude, x, why));
    TRY(read_load(p->load, x, why));
    TRY(read_count(p->repetitions, "repetitions", 1, REPETITIONS_MAX, &x->repetitions, why));
    TRY(read_quick(p->quick, x, why));
    TRY(read_metrics(p->metrics, x, why));
    if (p->questions && pq_node_kind(p->questions) != PQ_NODE_LIST)
        return pq_node_why(p->questions, why, "questions must be a list");
    TRY(pq_cells_fill(x, why));
    return x->cell_count ? 0
                         : pq_node_why(p->exclude ? p->exclude : p->factors, why, "exclude leaves no cell to measure");
}

int pq_experiment_parse(const char *name, const char *text, size_t len, bool quick, struct pq_experiment **out,
                        struct pq_why *why)
{
    DEFER(pq_document_freep) struct pq_document *d = NULL;
    DEFER(pq_experiment_freep) struct pq_experiment *x = calloc(1, sizeof *x);
    struct parts p = {0};
    if (!x)
        return no_memory(why);
    TRY(pq_document_parse(name, text, len, &d, why));
    TRY(pq_config_read(pq_document_root(d), &part_schema, &p, why));
    x->quick = quick;
    x->file = strdup(name);
    x->text = strndup(text, len);
    if (!x->file || !x->text)
        return no_memory(why);
    TRY(read_parts(&p, x, why));
    *out = TAKE(x);
    return 0;
}

/* "published/NAME.yaml" is relative to the folder above the experiment's own. */
static int load_published(const char *path, struct pq_experiment *x, struct pq_why *why)
{
    char file[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path) : 1;
    int n = snprintf(file, sizeof file, "%.*s/../%s", folder, slash ? path : ".", x->published);
    if (n < 0 || (size_t)n >= sizeof file)
        return pq_why(why, PQ_E_TOO_LONG, "%s: the path of its published study is too long", path);
    DEFER(pq_buf_free) struct pq_buf b = {.cap = PQ_EXPERIMENT_MAX};
    int e = pq_file_read(file, &b, why);
    if (e < 0)
        return pq_why_in(why, e, "%s: published", path);
    x->published_text = strndup(b.len ? (const char *)b.at : "", b.len);
    return x->published_text ? 0 : no_memory(why);
}

int pq_experiment_load(const char *path, bool quick, struct pq_experiment **out, struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf b = {.cap = PQ_EXPERIMENT_MAX};
    DEFER(pq_experiment_freep) struct pq_experiment *x = NULL;
    TRY(pq_file_read(path, &b, why));
    TRY(pq_experiment_parse(path, b.len ? (const char *)b.at : "", b.len, quick, &x, why));
    if (x->published)
        TRY(load_published(path, x, why));
    *out = TAKE(x);
    return 0;
}

void pq_experiment_free(struct pq_experiment *x)
{
    if (!x)
        return;
    for (size_t i = 0; i < x->factor_count; i++) {
        free(x->factors[i].name);
        strings_free(&x->factors[i].values);
        match_free(&x->factors[i].when);
    }
    for (size_t i = 0; i < x->exclude_count; i++)
        match_free(&x->exclude[i]);
    free(x->exclude);
    strings_free(&x->metrics);
    free(x->cells);
    free(x->name);
    free(x->title);
    free(x->why);
    free(x->published);
    free(x->file);
    free(x->text);
    free(x->published_text);
    free(x);
}
