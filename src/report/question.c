#include "report/question.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "report/text.h"

static int only_keys(const struct pq_node *map, const char *what, const char *const *keys, struct pq_why *why)
{
    if (pq_node_kind(map) != PQ_NODE_MAP)
        return pq_node_why(map, why, "%s must be a map", what);
    for (size_t i = 0; i < pq_node_count(map); i++) {
        const char *key;
        const struct pq_node *n = pq_node_pair(map, i, &key);
        size_t k = 0;
        while (keys[k] && strcmp(keys[k], key) != 0)
            k++;
        if (!keys[k])
            return pq_node_why(n, why, "%s has no key \"%s\"", what, pq_short(key).text);
    }
    return 0;
}

static int text_at(const struct pq_node *map, const char *key, bool required, const char **out, struct pq_why *why)
{
    const struct pq_node *n = pq_node_get(map, key);
    *out = NULL;
    if (!n)
        return required ? pq_node_why(map, why, "%s: is missing here; it must be a text", key) : 0;
    const char *text = pq_node_text(n);
    if (!text || !*text)
        return pq_node_why(n, why, "%s must be a text", key);
    *out = text;
    return 0;
}

static int number_at(const struct pq_node *map, const char *key, bool *has, double *out, struct pq_why *why)
{
    const struct pq_node *n = pq_node_get(map, key);
    *has = n != NULL;
    if (n && !pq_node_number(n, out))
        return pq_node_why(n, why, "%s must be a number", key);
    return 0;
}

static int list_at(const struct pq_node *map, const char *key, size_t least, const struct pq_node **out,
                   struct pq_why *why)
{
    const struct pq_node *n = pq_node_get(map, key);
    if (!n)
        return pq_node_why(map, why, "%s: is missing here; it must be a list", key);
    if (pq_node_kind(n) != PQ_NODE_LIST || pq_node_count(n) < least || pq_node_count(n) > PQ_QUESTION_CELLS_MAX)
        return pq_node_why(n, why, "%s must be a list of %zu to %d items", key, least, PQ_QUESTION_CELLS_MAX);
    *out = n;
    return 0;
}

static int read_cell(const struct pq_node *n, const char *what, struct pq_why *why)
{
    if (pq_node_kind(n) != PQ_NODE_MAP || pq_node_count(n) == 0)
        return pq_node_why(n, why, "%s must be a map of factors and their values", what);
    for (size_t i = 0; i < pq_node_count(n); i++) {
        const char *key;
        const struct pq_node *value = pq_node_pair(n, i, &key);
        if (!pq_node_text(value))
            return pq_node_why(value, why, "%s in %s must be one value", pq_short(key).text, what);
    }
    return 0;
}

int pq_quantity_read(const struct pq_node *n, struct pq_quantity *out, struct pq_why *why)
{
    static const char *const keys[] = {"metric", "cell", "minus", NULL};
    struct pq_quantity q = {0};
    TRY(only_keys(n, "a quantity", keys, why));
    TRY(text_at(n, "metric", true, &q.metric, why));
    q.cell = pq_node_get(n, "cell");
    if (!q.cell)
        return pq_node_why(n, why, "cell: is missing here; it must be a map of factors and their values");
    TRY(read_cell(q.cell, "cell", why));
    q.minus = pq_node_get(n, "minus");
    if (q.minus)
        TRY(read_cell(q.minus, "minus", why));
    *out = q;
    return 0;
}

static int quantity_at(const struct pq_node *map, const char *key, bool with_minus, struct pq_quantity *out,
                       struct pq_why *why)
{
    const struct pq_node *n = pq_node_get(map, key);
    if (!n)
        return pq_node_why(map, why, "%s: is missing here; it must be {metric: ..., cell: {...}}", key);
    TRY(pq_quantity_read(n, out, why));
    if (with_minus && !out->minus)
        return pq_node_why(n, why, "a difference needs minus: {factor: value, ...}");
    return 0;
}

static int read_ratio(const struct pq_node *n, struct pq_question *q, struct pq_why *why)
{
    static const char *const keys[] = {"of", "to", NULL};
    TRY(only_keys(n, "ratio", keys, why));
    TRY(quantity_at(n, "of", false, &q->of, why));
    TRY(quantity_at(n, "to", false, &q->to, why));
    if (!q->has_at_most && !q->has_at_least)
        return pq_node_why(q->node, why, "a ratio needs at_most: or at_least: to be decided by");
    return 0;
}

static int read_difference(const struct pq_node *n, struct pq_question *q, struct pq_why *why)
{
    (void)n;
    TRY(quantity_at(q->node, "difference", true, &q->of, why));
    if (q->has_or_contains)
        return pq_node_why(q->node, why, "or_contains: belongs to a ratio");
    if (!q->has_at_most && !q->has_at_least)
        return pq_node_why(q->node, why, "a difference needs at_most: or at_least: to be decided by");
    return 0;
}

static int without_limits(const struct pq_question *q, const char *what, struct pq_why *why)
{
    if (q->has_at_most || q->has_at_least || q->has_or_contains)
        return pq_node_why(q->node, why, "at_most:, at_least: and or_contains: do not belong to %s", what);
    return 0;
}

static int read_options(const struct pq_node *list, struct pq_question *q, struct pq_why *why)
{
    static const char *const keys[] = {"name", "difference", NULL};
    for (size_t i = 0; i < pq_node_count(list); i++) {
        const struct pq_node *n = pq_node_item(list, i);
        struct pq_option *o = &q->options[i];
        TRY(only_keys(n, "an option", keys, why));
        TRY(text_at(n, "name", true, &o->name, why));
        TRY(quantity_at(n, "difference", false, &o->quantity, why));
    }
    return 0;
}

static int make_options(struct pq_question *q, size_t count, struct pq_why *why)
{
    q->options = calloc(count, sizeof *q->options);
    if (!q->options)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    q->option_count = count;
    return 0;
}

static int read_reaches(const struct pq_node *n, struct pq_question *q, struct pq_why *why)
{
    static const char *const keys[] = {"published", "within_factor", "options", NULL};
    const struct pq_node *list = NULL;
    bool has_factor;
    TRY(without_limits(q, "reaches", why));
    TRY(only_keys(n, "reaches", keys, why));
    TRY(text_at(n, "published", true, &q->published, why));
    q->within_factor = 1;
    TRY(number_at(n, "within_factor", &has_factor, &q->within_factor, why));
    if (q->within_factor < 1)
        return pq_node_why(pq_node_get(n, "within_factor"), why, "within_factor must be 1 or more");
    TRY(list_at(n, "options", 1, &list, why));
    TRY(make_options(q, pq_node_count(list), why));
    return read_options(list, q, why);
}

static int read_varies(const struct pq_node *n, struct pq_question *q, struct pq_why *why)
{
    static const char *const keys[] = {"metric", "cells", "labels", NULL};
    const struct pq_node *cells = NULL, *labels = NULL;
    const char *metric = NULL;
    TRY(without_limits(q, "varies", why));
    TRY(only_keys(n, "varies", keys, why));
    TRY(text_at(n, "metric", true, &metric, why));
    TRY(list_at(n, "cells", 2, &cells, why));
    if (pq_node_get(n, "labels"))
        TRY(list_at(n, "labels", 2, &labels, why));
    if (labels && pq_node_count(labels) != pq_node_count(cells))
        return pq_node_why(labels, why, "there are %zu labels for %zu cells; they must be equally many",
                           pq_node_count(labels), pq_node_count(cells));
    TRY(make_options(q, pq_node_count(cells), why));
    for (size_t i = 0; i < pq_node_count(cells); i++) {
        TRY(read_cell(pq_node_item(cells, i), "a cell", why));
        q->options[i].quantity = (struct pq_quantity){metric, pq_node_item(cells, i), NULL};
        if (!labels)
            continue;
        q->options[i].name = pq_node_text(pq_node_item(labels, i));
        if (!q->options[i].name)
            return pq_node_why(pq_node_item(labels, i), why, "a label must be a text");
    }
    return 0;
}

static const struct {
    const char *key;
    enum pq_question_kind kind;
    int (*read)(const struct pq_node *n, struct pq_question *q, struct pq_why *why);
} kinds[] = {
    {"ratio", PQ_QUESTION_RATIO, read_ratio},
    {"difference", PQ_QUESTION_DIFFERENCE, read_difference},
    {"reaches", PQ_QUESTION_REACHES, read_reaches},
    {"varies", PQ_QUESTION_VARIES, read_varies},
};

static int read_question(const struct pq_node *n, struct pq_question *q, struct pq_why *why)
{
    static const char *const keys[] = {"ask",      "ratio",       "difference", "reaches", "varies",  "at_most",
                                       "at_least", "or_contains", "holds",      "fails",   "because", NULL};
    TRY(only_keys(n, "a question", keys, why));
    q->node = n;
    TRY(text_at(n, "ask", true, &q->ask, why));
    TRY(text_at(n, "holds", false, &q->holds, why));
    TRY(text_at(n, "fails", false, &q->fails, why));
    TRY(text_at(n, "because", false, &q->because, why));
    TRY(number_at(n, "at_most", &q->has_at_most, &q->at_most, why));
    TRY(number_at(n, "at_least", &q->has_at_least, &q->at_least, why));
    TRY(number_at(n, "or_contains", &q->has_or_contains, &q->or_contains, why));
    if (q->has_at_most && q->has_at_least && q->at_least > q->at_most)
        return pq_node_why(n, why, "at_least is greater than at_most: nothing could hold");
    size_t found = 0, kind = 0;
    for (size_t k = 0; k < PQ_COUNT(kinds); k++)
        if (pq_node_get(n, kinds[k].key)) {
            kind = k;
            found++;
        }
    if (found != 1)
        return pq_node_why(n, why, "a question has exactly one of ratio:, difference:, reaches: and varies:");
    q->kind = kinds[kind].kind;
    return kinds[kind].read(pq_node_get(n, kinds[kind].key), q, why);
}

int pq_questions_read(const struct pq_node *questions, struct pq_questions *out, struct pq_why *why)
{
    DEFER(pq_questions_free) struct pq_questions q = {0};
    size_t count = questions ? pq_node_count(questions) : 0;
    if (questions && (pq_node_kind(questions) != PQ_NODE_LIST || count > PQ_QUESTIONS_MAX))
        return pq_node_why(questions, why, "questions must be a list of at most %d", PQ_QUESTIONS_MAX);
    q.at = calloc(count ? count : 1, sizeof *q.at);
    if (!q.at)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    for (; q.count < count; q.count++) {
        int e = read_question(pq_node_item(questions, q.count), &q.at[q.count], why);
        if (e < 0) {
            q.count++;
            return e;
        }
    }
    *out = q;
    q = (struct pq_questions){0};
    return 0;
}

void pq_questions_free(struct pq_questions *q)
{
    for (size_t i = 0; i < q->count; i++)
        free(q->at[i].options);
    free(q->at);
    *q = (struct pq_questions){0};
}
