#include <string.h>

#include "base/table.h"
#include "report/number.h"
#include "report/report.h"

struct tally {
    size_t compared, overlap, alone, without_interval;
};

/* The cell of b with the same factors; b's cell_count where there is none. */
static size_t counterpart(const struct pq_report *b, struct pq_facts factors)
{
    size_t i = 0;
    while (i < b->results->cell_count && !pq_facts_equal(b->results->cells[i].factors, factors))
        i++;
    return i;
}

static const struct pq_report_entry *entry_named(const struct pq_report *r, size_t cell, const char *metric)
{
    for (size_t k = 0; cell < r->results->cell_count && k < r->metric_count; k++)
        if (strcmp(r->metrics[k].name, metric) == 0 && pq_report_entry(r, cell, k)->metric)
            return pq_report_entry(r, cell, k);
    return NULL;
}

static size_t measured(const struct pq_report *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->results->cell_count * r->metric_count; i++)
        n += r->entries[i].metric != NULL;
    return n;
}

static void row(struct pq_table *t, const struct pq_report *a, size_t cell, size_t metric,
                const struct pq_report_entry *e, const struct pq_report_entry *f)
{
    const struct pq_report_entry *both[] = {e, f};
    DEFER(pq_out_free) struct pq_out label = {.buf.cap = 4096};
    pq_report_cell_label(a, cell, NULL, &label);
    pq_table_cell(t, "%s", pq_out_text(&label));
    pq_table_cell(t, "%s", pq_short(a->metrics[metric].name).text);
    for (size_t i = 0; i < 2; i++) {
        const struct pq_summary *s = &both[i]->summary;
        int d = pq_decimals_of(s->median, s->median_ci);
        pq_table_cell(t, "%s", pq_number(s->median, d).text);
        pq_table_cell(t, "%s to %s", pq_number(s->median_ci.low, d).text, pq_number(s->median_ci.high, d).text);
    }
    pq_table_cell(t, "%s", pq_short(a->metrics[metric].unit).text);
}

static void compare_entry(struct pq_table *t, const struct pq_report *a, size_t cell, size_t metric,
                          const struct pq_report_entry *f, struct tally *n)
{
    const struct pq_report_entry *e = pq_report_entry(a, cell, metric);
    if (!f) {
        n->alone++;
        return;
    }
    if (!e->has_interval || !f->has_interval) {
        n->without_interval++;
        return;
    }
    n->compared++;
    if (pq_intervals_overlap(e->summary.median_ci, f->summary.median_ci))
        n->overlap++;
    else
        row(t, a, cell, metric, e, f);
}

static int conclude(const struct pq_report *b, struct tally n, size_t matched, FILE *out)
{
    double share = (double)n.overlap / (double)n.compared;
    fprintf(out, "intervals overlap in %s %% of %zu cells×metrics",
            pq_number(100 * share, n.overlap == n.compared ? 0 : 1).text, n.compared);
    size_t alone = n.alone + measured(b) - matched;
    if (alone)
        fprintf(out, "; %zu are in one run only", alone);
    if (n.without_interval)
        fprintf(out, "; %zu have too few rounds for an interval", n.without_interval);
    fprintf(out, "\ncompare overlap=%.4f cells=%zu\n", share, n.compared);
    return ferror(out) ? PQ_E_IO : 0;
}

int pq_report_compare(const struct pq_report *a, const struct pq_report *b, FILE *out, struct pq_why *why)
{
    static const char *const heads[] = {"apart",    "metric",        "median A", "95 % interval",
                                        "median B", "95 % interval", "unit"};
    DEFER(pq_table_freep) struct pq_table *t = NULL;
    struct tally n = {0};
    if (strcmp(a->results->experiment, b->results->experiment) != 0)
        return pq_why(why, PQ_E_INVALID,
                      "these are runs of two experiments, %s and %s; only runs of one can be compared",
                      pq_short(a->results->experiment).text, pq_short(b->results->experiment).text);
    TRY(pq_table_new("llrrrrl", &t));
    for (size_t i = 0; i < PQ_COUNT(heads); i++)
        pq_table_cell(t, "%s", heads[i]);
    for (size_t i = 0; i < a->results->cell_count; i++) {
        size_t there = counterpart(b, a->results->cells[i].factors);
        for (size_t k = 0; k < a->metric_count; k++)
            if (pq_report_entry(a, i, k)->metric)
                compare_entry(t, a, i, k, entry_named(b, there, a->metrics[k].name), &n);
    }
    if (n.compared == 0)
        return pq_why(why, PQ_E_INVALID, "the two runs have no cell and metric in common that has an interval in both");
    if (n.overlap < n.compared) {
        TRY(pq_table_print(t, out));
        fputc('\n', out);
    }
    return conclude(b, n, n.compared + n.without_interval, out);
}
