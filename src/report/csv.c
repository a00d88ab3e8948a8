#include <inttypes.h>
#include <string.h>

#include "report/number.h"
#include "report/report.h"

/* The names of all reports' factors, each once, in the order of their first appearance. */
struct names {
    const char **at;
    size_t count;
};

static void names_free(struct names *n) { free(n->at); }

static bool has(const struct names *n, const char *name)
{
    for (size_t i = 0; i < n->count; i++)
        if (strcmp(n->at[i], name) == 0)
            return true;
    return false;
}

static int collect(struct pq_report *const *reports, size_t count, struct names *n)
{
    size_t most = 1;
    for (size_t i = 0; i < count; i++)
        most += reports[i]->factor_count;
    n->at = calloc(most, sizeof *n->at);
    if (!n->at)
        return PQ_E_NOMEM;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < reports[i]->factor_count; k++)
            if (!has(n, reports[i]->factors[k].name))
                n->at[n->count++] = reports[i]->factors[k].name;
    return 0;
}

/* What is the same in each row of one metric of one cell is written once and repeated. */
static void write_prefix(const struct pq_results *r, const struct pq_result_cell *c, const struct pq_result_metric *m,
                         const struct names *n, struct pq_out *out)
{
    pq_out_csv(out, r->experiment);
    for (size_t i = 0; i < n->count; i++) {
        const char *value = pq_fact(c->factors, n->at[i]);
        pq_out(out, ",");
        pq_out_csv(out, value ? value : "");
    }
    pq_out(out, ",");
    pq_out_csv(out, m->name);
    pq_out(out, ",");
    pq_out_csv(out, m->unit);
}

static int write_metric(const struct pq_results *r, const struct pq_result_cell *c, const struct pq_result_metric *m,
                        const struct names *n, struct pq_out *out)
{
    DEFER(pq_out_free) struct pq_out prefix = {.buf.cap = out->buf.cap};
    write_prefix(r, c, m, n, &prefix);
    TRY(prefix.error);
    for (size_t i = 0; i < m->count; i++) {
        pq_out(out, pq_out_text(&prefix));
        pq_outf(out, ",%s,%" PRId64 ",%s\r\n", pq_number_exact(m->value[i]).text, m->round[i],
                pq_number_exact(m->at_ms[i]).text);
    }
    return out->error;
}

int pq_report_csv(struct pq_report *const *reports, size_t count, struct pq_out *out)
{
    DEFER(names_free) struct names n = {0};
    TRY(collect(reports, count, &n));
    pq_out(out, "experiment");
    for (size_t i = 0; i < n.count; i++) {
        pq_out(out, ",");
        pq_out_csv(out, n.at[i]);
    }
    pq_out(out, ",metric,unit,value,round,at_ms\r\n");
    for (size_t i = 0; i < count; i++) {
        const struct pq_results *r = reports[i]->results;
        for (size_t c = 0; c < r->cell_count; c++)
            for (size_t m = 0; m < r->cells[c].metric_count; m++)
                TRY(write_metric(r, &r->cells[c], &r->cells[c].metrics[m], &n, out));
    }
    return out->error;
}
