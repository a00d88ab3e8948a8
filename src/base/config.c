#include "base/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int wrong_kind(const struct pq_node *n, const struct pq_field *f, const char *wanted, struct pq_why *why)
{
    return pq_node_why(n, why, "\"%s\" must be %s", f->name, wanted);
}

static int with_place(const struct pq_node *n, const struct pq_field *f, struct pq_why *why, int e)
{
    if (e < 0 && why) {
        struct pq_why inner = *why;
        return pq_node_why(n, why, "%s: %.700s", f->name, inner.text);
    }
    return e;
}

static int check_range(const struct pq_node *n, const struct pq_field *f, int64_t v, struct pq_why *why)
{
    if ((f->low || f->high) && (v < f->low || v > f->high))
        return f->type == PQ_FIELD_DURATION
                   ? pq_node_why(n, why, "%s: %s is not between %.9gs and %.9gs", f->name, pq_node_text(n),
                                 (double)f->low / 1e9, (double)f->high / 1e9)
                   : pq_node_why(n, why, "%s: %s is not between %lld and %lld%s", f->name, pq_node_text(n),
                                 (long long)f->low, (long long)f->high, f->type == PQ_FIELD_SIZE ? " bytes" : "");
    return 0;
}

static int read_string(const struct pq_node *n, const struct pq_field *f, char **out, struct pq_why *why)
{
    if (!*pq_node_text(n))
        return pq_node_why(n, why, "\"%s\" is empty", f->name);
    char *copy = strdup(pq_node_text(n));
    if (!copy)
        return PQ_E_NOMEM;
    *out = copy;
    return 0;
}

static int read_bool(const struct pq_node *n, const struct pq_field *f, bool *out, struct pq_why *why)
{
    const char *text = pq_node_text(n);
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
        return pq_node_why(n, why, "%s: \"%.40s\" is neither true nor false", f->name, text);
    *out = text[0] == 't';
    return 0;
}

static int read_real(const struct pq_node *n, const struct pq_field *f, double *out, struct pq_why *why)
{
    char *end;
    const char *text = pq_node_text(n);
    double v = strtod(text, &end);
    if (!*text || *end || !isfinite(v) || strspn(text, "0123456789.eE+-") != strlen(text))
        return pq_node_why(n, why, "%s: \"%.40s\" is no number", f->name, text);
    if ((f->low || f->high) && (v < (double)f->low || v > (double)f->high))
        return pq_node_why(n, why, "%s: %s is not between %lld and %lld", f->name, text, (long long)f->low,
                           (long long)f->high);
    *out = v;
    return 0;
}

static int read_choice(const struct pq_node *n, const struct pq_field *f, int *out, struct pq_why *why)
{
    char names[300] = "";
    size_t len = 0;
    for (int i = 0; f->choices[i]; i++) {
        if (strcmp(f->choices[i], pq_node_text(n)) == 0) {
            *out = i;
            return 0;
        }
        int added = snprintf(names + len, sizeof names - len, "%s%s", i ? ", " : "", f->choices[i]);
        if (added > 0 && len + (size_t)added < sizeof names)
            len += (size_t)added;
    }
    return pq_node_why(n, why, "%s: \"%.60s\" is none of %s", f->name, pq_node_text(n), names);
}

static void strings_free(struct pq_strings *s)
{
    for (size_t i = 0; i < s->count; i++)
        free(s->at[i]);
    free(s->at);
    *s = (struct pq_strings){0};
}

static int read_strings(const struct pq_node *n, const struct pq_field *f, struct pq_strings *out, struct pq_why *why)
{
    bool single = pq_node_kind(n) == PQ_NODE_SCALAR;
    size_t count = single ? 1 : pq_node_count(n);
    DEFER(strings_free) struct pq_strings s = {calloc(count ? count : 1, sizeof(char *)), 0};
    if (!s.at)
        return PQ_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        const struct pq_node *item = single ? n : pq_node_item(n, i);
        if (pq_node_kind(item) != PQ_NODE_SCALAR)
            return wrong_kind(item, f, "a list of texts", why);
        TRY(read_string(item, f, &s.at[i], why));
        s.count++;
    }
    *out = s;
    s = (struct pq_strings){0};
    return 0;
}

static void structs_free(const struct pq_schema *schema, struct pq_structs *s)
{
    for (size_t i = 0; i < s->count; i++)
        pq_config_free(schema, (char *)s->at + i * schema->size);
    free(s->at);
    *s = (struct pq_structs){0};
}

static int read_structs(const struct pq_node *n, const struct pq_field *f, struct pq_structs *out, struct pq_why *why)
{
    size_t count = pq_node_count(n);
    struct pq_structs s = {calloc(count ? count : 1, f->of->size), 0};
    if (!s.at)
        return PQ_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        int e = pq_config_read(pq_node_item(n, i), f->of, (char *)s.at + i * f->of->size, why);
        if (e < 0) {
            structs_free(f->of, &s);
            return e;
        }
        s.count++;
    }
    *out = s;
    return 0;
}

static int read_scalar(const struct pq_node *n, const struct pq_field *f, void *at, struct pq_why *why)
{
    int64_t v = 0;
    switch (f->type) {
    case PQ_FIELD_STRING:
        return read_string(n, f, at, why);
    case PQ_FIELD_BOOL:
        return read_bool(n, f, at, why);
    case PQ_FIELD_REAL:
        return read_real(n, f, at, why);
    case PQ_FIELD_CHOICE:
        return read_choice(n, f, at, why);
    case PQ_FIELD_INT: {
        bool limited = f->low || f->high;
        TRY(with_place(
            n, f, why,
            pq_int_parse(pq_node_text(n), limited ? f->low : INT64_MIN, limited ? f->high : INT64_MAX, &v, why)));
        break;
    }
    case PQ_FIELD_DURATION:
        TRY(with_place(n, f, why, pq_duration_parse(pq_node_text(n), &v, why)));
        break;
    default:
        TRY(with_place(n, f, why, pq_size_parse(pq_node_text(n), &v, why)));
        break;
    }
    TRY(check_range(n, f, v, why));
    *(int64_t *)at = v;
    return 0;
}

static int read_field(const struct pq_node *n, const struct pq_field *f, void *at, struct pq_why *why)
{
    enum pq_node_kind kind = pq_node_kind(n);
    switch (f->type) {
    case PQ_FIELD_CUSTOM:
        return f->custom(n, at, why);
    case PQ_FIELD_STRINGS:
        return kind == PQ_NODE_MAP ? wrong_kind(n, f, "a list of texts", why) : read_strings(n, f, at, why);
    case PQ_FIELD_STRUCT:
        return pq_config_read(n, f->of, at, why);
    case PQ_FIELD_STRUCTS:
        return kind != PQ_NODE_LIST ? wrong_kind(n, f, "a list", why) : read_structs(n, f, at, why);
    default:
        return kind != PQ_NODE_SCALAR ? wrong_kind(n, f, "a single value", why) : read_scalar(n, f, at, why);
    }
}

static const struct pq_field *find_field(const struct pq_schema *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->fields[i].name, name) == 0)
            return &s->fields[i];
    return NULL;
}

static int unknown_key(const struct pq_node *n, const struct pq_schema *s, const char *key, struct pq_why *why)
{
    char names[600] = "";
    size_t len = 0;
    for (size_t i = 0; i < s->count; i++) {
        int added = snprintf(names + len, sizeof names - len, "%s%s", i ? ", " : "", s->fields[i].name);
        if (added > 0 && len + (size_t)added < sizeof names)
            len += (size_t)added;
    }
    return pq_node_why(n, why, "%s has no \"%.60s\"; it has %s", s->what, key, names);
}

static int read_map(const struct pq_node *map, const struct pq_schema *s, char *out, struct pq_why *why)
{
    if (pq_node_kind(map) != PQ_NODE_MAP)
        return pq_node_why(map, why, "%s must be written as a map (key: value)", s->what);
    const char *key;
    const struct pq_node *n;
    for (size_t i = 0; (n = pq_node_pair(map, i, &key)); i++) {
        const struct pq_field *f = find_field(s, key);
        if (!f)
            return unknown_key(n, s, key, why);
        TRY(read_field(n, f, out + f->offset, why));
    }
    for (size_t i = 0; i < s->count; i++)
        if (s->fields[i].required && !pq_node_get(map, s->fields[i].name))
            return pq_node_why(map, why, "%s needs \"%s\"", s->what, s->fields[i].name);
    return s->check ? s->check(map, out, why) : 0;
}

int pq_config_read(const struct pq_node *map, const struct pq_schema *schema, void *out, struct pq_why *why)
{
    memset(out, 0, schema->size);
    if (schema->defaults)
        schema->defaults(out);
    for (size_t i = 0; i < schema->count; i++)
        if (schema->fields[i].type == PQ_FIELD_STRUCT && schema->fields[i].of->defaults)
            schema->fields[i].of->defaults((char *)out + schema->fields[i].offset);
    int e = read_map(map, schema, out, why);
    if (e == PQ_E_NOMEM)
        pq_why(why, e, "out of memory while reading %s", schema->what);
    if (e < 0)
        pq_config_free(schema, out);
    return e;
}

void pq_config_free(const struct pq_schema *schema, void *out)
{
    for (size_t i = 0; i < schema->count; i++) {
        const struct pq_field *f = &schema->fields[i];
        void *at = (char *)out + f->offset;
        if (f->type == PQ_FIELD_STRING)
            free(*(char **)at);
        else if (f->type == PQ_FIELD_STRINGS)
            strings_free(at);
        else if (f->type == PQ_FIELD_STRUCT)
            pq_config_free(f->of, at);
        else if (f->type == PQ_FIELD_STRUCTS)
            structs_free(f->of, at);
        else if (f->type == PQ_FIELD_CUSTOM && f->custom_free)
            f->custom_free(at);
    }
    memset(out, 0, schema->size);
}

int pq_config_parse(const char *name, const char *text, size_t len, const struct pq_schema *schema, void *out,
                    struct pq_why *why)
{
    memset(out, 0, schema->size);
    DEFER(pq_document_freep) struct pq_document *d = NULL;
    TRY(pq_document_parse(name, text, len, &d, why));
    return pq_config_read(pq_document_root(d), schema, out, why);
}

int pq_config_load(const char *path, const struct pq_schema *schema, void *out, struct pq_why *why)
{
    memset(out, 0, schema->size);
    DEFER(pq_document_freep) struct pq_document *d = NULL;
    TRY(pq_document_load(path, &d, why));
    return pq_config_read(pq_document_root(d), schema, out, why);
}
