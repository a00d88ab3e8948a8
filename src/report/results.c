#include "report/results.h"

#include <stdio.h>
#include <string.h>
#include <yyjson.h>

#include "report/results_read.h"
#include "report/text.h"

/* calloc that gives a pointer also for none. */
static void *calloc_some(size_t count, size_t size) { return calloc(count ? count : 1, size); }

/* A file lists the factors of each cell in the same order, that of the experiment. */
static int by_factors(const void *a, const void *b)
{
    const struct pq_facts *x = &(*(struct pq_result_cell *const *)a)->factors,
                          *y = &(*(struct pq_result_cell *const *)b)->factors;
    if (x->count != y->count)
        return x->count < y->count ? -1 : 1;
    for (size_t i = 0; i < x->count; i++) {
        int d = strcmp(x->at[i].name, y->at[i].name);
        if (d == 0)
            d = strcmp(x->at[i].value, y->at[i].value);
        if (d)
            return d;
    }
    return 0;
}

static int refuse_twins(const struct pq_results *r, struct pq_why *why)
{
    DEFER(pq_freep) struct pq_result_cell **sorted = calloc_some(r->cell_count, sizeof *sorted);
    if (!sorted)
        return PQ_E_NOMEM;
    for (size_t i = 0; i < r->cell_count; i++)
        sorted[i] = &r->cells[i];
    qsort(sorted, r->cell_count, sizeof *sorted, by_factors);
    for (size_t i = 1; i < r->cell_count; i++)
        if (by_factors(&sorted[i - 1], &sorted[i]) == 0)
            return pq_why(why, PQ_E_CONFIG,
                          "cells[%zu] and cells[%zu] have the same factors; each combination stands once",
                          (size_t)(sorted[i - 1] - r->cells), (size_t)(sorted[i] - r->cells));
    return 0;
}

struct unit {
    const char *metric, *unit;
};

static int by_metric(const void *a, const void *b)
{
    const struct unit *x = a, *y = b;
    return strcmp(x->metric, y->metric);
}

static int refuse_mixed_units(const struct pq_results *r, struct pq_why *why)
{
    size_t count = 0, n = 0;
    for (size_t i = 0; i < r->cell_count; i++)
        count += r->cells[i].metric_count;
    DEFER(pq_freep) struct unit *all = calloc_some(count, sizeof *all);
    if (!all)
        return PQ_E_NOMEM;
    for (size_t i = 0; i < r->cell_count; i++)
        for (size_t k = 0; k < r->cells[i].metric_count; k++)
            all[n++] = (struct unit){r->cells[i].metrics[k].name, r->cells[i].metrics[k].unit};
    qsort(all, count, sizeof *all, by_metric);
    for (size_t i = 1; i < count; i++)
        if (strcmp(all[i].metric, all[i - 1].metric) == 0 && strcmp(all[i].unit, all[i - 1].unit) != 0)
            return pq_why(why, PQ_E_CONFIG, "the metric %s has the unit \"%s\" in one cell and \"%s\" in another",
                          pq_short(all[i].metric).text, pq_short(all[i - 1].unit).text, pq_short(all[i].unit).text);
    return 0;
}

int pq_results_parse(struct pq_span text, struct pq_results **out, struct pq_why *why)
{
    if (text.len > PQ_RESULTS_MAX_FILE)
        return pq_why(why, PQ_E_TOO_LONG, "larger than %d MiB", PQ_RESULTS_MAX_FILE >> 20);
    DEFER(pq_results_freep) struct pq_results *r = calloc(1, sizeof *r);
    if (!r)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    yyjson_read_err err = {0};
    /* Without YYJSON_READ_INSITU the input is only read. */
    r->document = yyjson_read_opts((char *)(uintptr_t)(text.len ? (const char *)text.at : ""), text.len, 0, NULL, &err);
    if (!r->document && err.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    if (!r->document)
        return pq_why(why, PQ_E_CONFIG, "no JSON: %s (byte %zu)", err.msg, err.pos);
    int e = pq_results_read(yyjson_doc_get_root(r->document), r, why);
    if (e == 0)
        e = refuse_twins(r, why);
    if (e == 0)
        e = refuse_mixed_units(r, why);
    if (e == PQ_E_NOMEM)
        return pq_why(why, e, "out of memory");
    if (e < 0)
        return e;
    *out = TAKE(r);
    return 0;
}

static void facts_free(struct pq_facts *f)
{
    for (size_t i = 0; i < f->count; i++)
        free(f->at[i].owned);
    free(f->at);
}

void pq_results_free(struct pq_results *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->cell_count; i++) {
        struct pq_result_cell *c = &r->cells[i];
        for (size_t k = 0; k < c->metric_count; k++) {
            free(c->metrics[k].value);
            free(c->metrics[k].at_ms);
            free(c->metrics[k].round);
        }
        facts_free(&c->factors);
        free(c->metrics);
        free(c->errors);
    }
    facts_free(&r->host);
    facts_free(&r->libraries);
    free(r->cells);
    free(r->calibration);
    free(r->notes);
    yyjson_doc_free(r->document);
    free(r);
}

const struct pq_result_metric *pq_result_metric(const struct pq_result_cell *cell, const char *name)
{
    for (size_t i = 0; i < cell->metric_count; i++)
        if (strcmp(cell->metrics[i].name, name) == 0)
            return &cell->metrics[i];
    return NULL;
}

const char *pq_fact(struct pq_facts facts, const char *name)
{
    for (size_t i = 0; i < facts.count; i++)
        if (strcmp(facts.at[i].name, name) == 0)
            return facts.at[i].value;
    return NULL;
}

bool pq_facts_equal(struct pq_facts a, struct pq_facts b)
{
    for (size_t i = 0; i < a.count; i++) {
        const char *value = pq_fact(b, a.at[i].name);
        if (!value || strcmp(value, a.at[i].value) != 0)
            return false;
    }
    return a.count == b.count;
}

struct pq_samples pq_result_samples(const struct pq_result_metric *m)
{
    return (struct pq_samples){m->value, m->round, m->count};
}
