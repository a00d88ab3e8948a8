/* What could not be answered after a run is refused before it. */
#include "report/question.h"

#include <string.h>

#include "report/text.h"

struct check {
    const struct pq_node *factors, *exclude, *metrics, *published; /* any may be NULL */
    struct pq_why *why;
};

/* n is one value or a list of them; does text stand in it? */
static bool among(const struct pq_node *n, const char *text)
{
    if (!n || !text)
        return false;
    const char *own = pq_node_text(n);
    if (own)
        return strcmp(own, text) == 0;
    for (size_t i = 0; pq_node_kind(n) == PQ_NODE_LIST && i < pq_node_count(n); i++) {
        const char *item = pq_node_text(pq_node_item(n, i));
        if (item && strcmp(item, text) == 0)
            return true;
    }
    return false;
}

/* A cell as named: what minus says stands before what cell says. */
struct named {
    const struct pq_node *first, *then; /* then may be NULL */
    const struct check *check;
};

static const struct pq_node *value_in(const struct named *c, const char *factor);

static const struct pq_node *condition(const struct pq_node *factor)
{
    return pq_node_kind(factor) == PQ_NODE_MAP ? pq_node_get(factor, "when") : NULL;
}

static const struct pq_node *values(const struct pq_node *factor)
{
    return pq_node_kind(factor) == PQ_NODE_MAP ? pq_node_get(factor, "values") : factor;
}

/* Does the factor exist in this cell? Its condition may name earlier factors only, so this ends; depth guards the rest.
 */
static bool present(const struct named *c, const struct pq_node *factor, unsigned depth)
{
    const struct pq_node *when = condition(factor);
    if (!when || pq_node_kind(when) != PQ_NODE_MAP)
        return true;
    for (size_t i = 0; i < pq_node_count(when); i++) {
        const char *key;
        const struct pq_node *allowed = pq_node_pair(when, i, &key), *value = value_in(c, key),
                             *other = pq_node_get(c->check->factors, key);
        if (!value || !among(allowed, pq_node_text(value)))
            return false;
        if (other && (depth == 0 || !present(c, other, depth - 1)))
            return false;
    }
    return true;
}

enum { WHEN_DEPTH = 16 };

static const struct pq_node *value_in(const struct named *c, const char *factor)
{
    const struct pq_node *n = pq_node_get(c->first, factor);
    return n || !c->then ? n : pq_node_get(c->then, factor);
}

static int check_values(const struct check *k, const struct pq_node *cell)
{
    for (size_t i = 0; i < pq_node_count(cell); i++) {
        const char *key;
        const struct pq_node *value = pq_node_pair(cell, i, &key), *factor = pq_node_get(k->factors, key);
        if (!factor)
            return pq_node_why(value, k->why, "the experiment has no factor \"%s\"", pq_short(key).text);
        if (!among(values(factor), pq_node_text(value)))
            return pq_node_why(value, k->why, "the factor %s has no value \"%s\"", pq_short(key).text,
                               pq_short(pq_node_text(value)).text);
    }
    return 0;
}

static int check_whole(const struct check *k, const struct named *c)
{
    for (size_t i = 0; i < pq_node_count(k->factors); i++) {
        const char *key;
        const struct pq_node *factor = pq_node_pair(k->factors, i, &key), *value = value_in(c, key);
        bool there = present(c, factor, WHEN_DEPTH);
        if (there && !value)
            return pq_node_why(c->first, k->why, "the factor %s is missing here: a cell is named by all that it has",
                               pq_short(key).text);
        if (!there && pq_node_get(c->first, key))
            return pq_node_why(value, k->why, "such a cell has no factor %s (see its when:)", pq_short(key).text);
    }
    return 0;
}

static bool excluded(const struct named *c, const struct pq_node *entry)
{
    if (pq_node_kind(entry) != PQ_NODE_MAP || pq_node_count(entry) == 0)
        return false;
    for (size_t i = 0; i < pq_node_count(entry); i++) {
        const char *key;
        const struct pq_node *allowed = pq_node_pair(entry, i, &key), *value = value_in(c, key),
                             *factor = pq_node_get(c->check->factors, key);
        if (!value || (factor && !present(c, factor, WHEN_DEPTH)) || !among(allowed, pq_node_text(value)))
            return false;
    }
    return true;
}

static int check_cell(const struct check *k, const struct pq_node *cell, const struct pq_node *then)
{
    if (!k->factors || pq_node_kind(k->factors) != PQ_NODE_MAP)
        return 0;
    struct named c = {cell, then, k};
    TRY(check_values(k, cell));
    TRY(check_whole(k, &c));
    for (size_t i = 0; k->exclude && pq_node_kind(k->exclude) == PQ_NODE_LIST && i < pq_node_count(k->exclude); i++)
        if (excluded(&c, pq_node_item(k->exclude, i)))
            return pq_node_why(cell, k->why, "the experiment excludes this cell");
    return 0;
}

static int check_quantity(const struct check *k, const struct pq_quantity *q)
{
    if (k->metrics && !among(k->metrics, q->metric))
        return pq_node_why(q->cell, k->why,
                           "the experiment does not measure \"%s\": see its metrics:", pq_short(q->metric).text);
    TRY(check_cell(k, q->cell, NULL));
    return q->minus ? check_cell(k, q->minus, q->cell) : 0;
}

static int check_published(const struct check *k, const struct pq_question *q)
{
    struct pq_published found;
    if (!k->published)
        return 0;
    const struct pq_node *at = pq_node_get(pq_node_get(q->node, "reaches"), "published");
    int e = pq_published_find(k->published, q->published, &found);
    if (e == PQ_E_NOT_FOUND)
        return pq_node_why(at, k->why, "the published file has no figure \"%s\"", pq_short(q->published).text);
    if (e == PQ_E_CONFIG)
        return pq_node_why(at, k->why, "several published figures end in \"%s\": name one in full",
                           pq_short(q->published).text);
    return e;
}

static int check_question(const struct check *k, const struct pq_question *q)
{
    if (q->of.metric)
        TRY(check_quantity(k, &q->of));
    if (q->to.metric)
        TRY(check_quantity(k, &q->to));
    for (size_t i = 0; i < q->option_count; i++)
        TRY(check_quantity(k, &q->options[i].quantity));
    return q->published ? check_published(k, q) : 0;
}

int pq_question_check(const struct pq_node *questions, const struct pq_node *experiment,
                      const struct pq_node *published, struct pq_why *why)
{
    DEFER(pq_questions_free) struct pq_questions q = {0};
    TRY(pq_questions_read(questions, &q, why));
    struct check k = {.published = published, .why = why};
    if (experiment && pq_node_kind(experiment) == PQ_NODE_MAP) {
        k.factors = pq_node_get(experiment, "factors");
        k.exclude = pq_node_get(experiment, "exclude");
        k.metrics = pq_node_get(experiment, "metrics");
    }
    for (size_t i = 0; i < q.count; i++)
        TRY(check_question(&k, &q.at[i]));
    return 0;
}
