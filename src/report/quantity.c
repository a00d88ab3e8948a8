#include "report/quantity.h"

#include <string.h>

#include "report/metric.h"
#include "report/number.h"

enum { NAME = 60 };

static bool cell_is(const struct pq_result_cell *c, const struct pq_node *named)
{
    for (size_t i = 0; i < pq_node_count(named); i++) {
        const char *key, *text = pq_node_text(pq_node_pair(named, i, &key)), *value = pq_fact(c->factors, key);
        if (!text || !value || strcmp(text, value) != 0)
            return false;
    }
    return c->factors.count == pq_node_count(named);
}

/* The cell that has what minus says and otherwise agrees with cell; a factor of cell may be absent, as where it has a
 * when:. */
static bool cell_differs_by(const struct pq_result_cell *c, const struct pq_node *minus, const struct pq_node *cell)
{
    size_t of_minus = 0;
    for (size_t i = 0; i < c->factors.count; i++) {
        const struct pq_node *n = pq_node_get(minus, c->factors.at[i].name);
        of_minus += n != NULL;
        n = n ? n : pq_node_get(cell, c->factors.at[i].name);
        const char *text = n ? pq_node_text(n) : NULL;
        if (!text || strcmp(text, c->factors.at[i].value) != 0)
            return false;
    }
    return of_minus == pq_node_count(minus);
}

static const struct pq_result_cell *find_cell(const struct pq_results *r, const struct pq_node *named,
                                              const struct pq_node *base)
{
    const struct pq_result_cell *only = NULL;
    size_t found = 0;
    for (size_t i = 0; i < r->cell_count; i++)
        if (cell_is(&r->cells[i], named))
            return &r->cells[i];
    for (size_t i = 0; base && i < r->cell_count; i++)
        if (cell_differs_by(&r->cells[i], named, base)) {
            only = &r->cells[i];
            found++;
        }
    return found == 1 ? only : NULL;
}

static int find_term(const struct pq_quantity *q, const struct pq_node *named, const struct pq_node *base,
                     const struct pq_results *r, const struct pq_result_metric **out, struct pq_why *missing)
{
    const struct pq_result_cell *c = find_cell(r, named, base);
    const struct pq_result_metric *m = c ? pq_result_metric(c, q->metric) : NULL;
    if (m && m->count) {
        *out = m;
        return 0;
    }
    DEFER(pq_out_free) struct pq_out label = {.buf.cap = 900};
    pq_cell_label(named, &label);
    if (label.error == PQ_E_NOMEM)
        return label.error;
    return pq_why(missing, PQ_E_NOT_FOUND, c ? "%s has no sample of %s" : "there is no cell %s%.0s",
                  pq_out_text(&label), pq_short(q->metric).text);
}

int pq_terms_find(const struct pq_quantity *q, const struct pq_results *r, struct pq_terms *out, struct pq_why *missing)
{
    struct pq_terms t = {.count = q->minus ? 2 : 1};
    TRY(find_term(q, q->cell, NULL, r, &t.at[0], missing));
    if (q->minus)
        TRY(find_term(q, q->minus, q->cell, r, &t.at[1], missing));
    *out = t;
    return 0;
}

bool pq_terms_have_interval(const struct pq_terms *t)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->at[i]->rounds < PQ_ROUNDS_LEAST)
            return false;
    return true;
}

static double less(const double *medians, const void *context)
{
    return *(const size_t *)context == 2 ? medians[0] - medians[1] : medians[0];
}

int pq_quantity_measure(const struct pq_quantity *q, const struct pq_results *r, struct pq_measured *out,
                        struct pq_why *missing)
{
    struct pq_terms t;
    TRY(pq_terms_find(q, r, &t, missing));
    struct pq_samples s[2];
    for (size_t i = 0; i < t.count; i++)
        s[i] = pq_result_samples(t.at[i]);
    struct pq_measured m = {.unit = t.at[0]->unit, .has_interval = pq_terms_have_interval(&t)};
    TRY(pq_bootstrap(s, t.count, less, &t.count, r->seed, &m.estimate));
    *out = m;
    return 0;
}

void pq_cell_label(const struct pq_node *cell, struct pq_out *o)
{
    for (size_t i = 0; i < pq_node_count(cell); i++) {
        const char *key, *text = pq_node_text(pq_node_pair(cell, i, &key));
        pq_out(o, i ? " · " : "");
        pq_out_clean(o, text ? text : "", NAME);
    }
}

/* Of minus only what differs from cell. */
static void label_minus(const struct pq_quantity *q, struct pq_out *o)
{
    size_t said = 0;
    for (size_t i = 0; i < pq_node_count(q->minus); i++) {
        const char *key, *text = pq_node_text(pq_node_pair(q->minus, i, &key));
        const struct pq_node *same = pq_node_get(q->cell, key);
        if (!text || (same && pq_node_text(same) && strcmp(pq_node_text(same), text) == 0))
            continue;
        pq_out(o, said++ ? " · " : "");
        pq_out_clean(o, text, NAME);
    }
    if (said == 0)
        pq_cell_label(q->minus, o);
}

void pq_quantity_label(const struct pq_quantity *q, struct pq_out *o)
{
    pq_metric_title(q->metric, o);
    pq_out(o, ", ");
    pq_cell_label(q->cell, o);
    if (!q->minus)
        return;
    pq_out(o, " less ");
    label_minus(q, o);
}

void pq_measured_text(const struct pq_measured *m, bool sign, struct pq_out *o)
{
    struct pq_interval ci = m->estimate.ci;
    if (!m->has_interval)
        ci = (struct pq_interval){m->estimate.value, m->estimate.value};
    int d = pq_decimals_of(m->estimate.value, ci);
    pq_outf(o, "%s", (sign ? pq_number_signed(m->estimate.value, d) : pq_number(m->estimate.value, d)).text);
    if (m->unit[0]) {
        pq_out(o, PQ_NBSP);
        pq_out_clean(o, m->unit, NAME);
    }
    if (m->has_interval)
        pq_outf(o, " (95" PQ_NBSP "%% interval %s to %s)", pq_number(ci.low, d).text, pq_number(ci.high, d).text);
}
