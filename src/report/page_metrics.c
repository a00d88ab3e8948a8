/* Each metric: its plots, one for each kind of connection, and its table. */
#include <inttypes.h>
#include <string.h>

#include "report/metric.h"
#include "report/number.h"
#include "report/page.h"
#include "report/plot.h"
#include "report/svg.h"

enum { SAMPLES_FOR_CURVE = 50, LABEL_CAP = 1 << 16 };

/* What one plot shows: the cells with one value of the facet's factor, or all. */
struct facet {
    const char *factor, *value; /* NULL: there is no such factor */
    size_t metric;
};

static const struct pq_report_factor *factor_named(const struct pq_report *r, const char *name)
{
    for (size_t i = 0; i < r->factor_count; i++)
        if (strcmp(r->factors[i].name, name) == 0)
            return &r->factors[i];
    return NULL;
}

/* The kinds of connection differ tenfold and are read apart. */
static const struct pq_report_factor *facet_factor(const struct pq_report *r)
{
    const struct pq_report_factor *f = factor_named(r, "connection");
    return f && f->count > 1 && f->count <= 4 ? f : NULL;
}

static const struct pq_report_factor *colour_factor(const struct pq_report *r)
{
    const struct pq_report_factor *facet = facet_factor(r);
    for (size_t i = 0; i < r->factor_count; i++)
        if (&r->factors[i] != facet && r->factors[i].count > 1 && r->factors[i].count <= PQ_PLOT_COLOURS)
            return &r->factors[i];
    return NULL;
}

static unsigned colour_of(const struct pq_report *r, size_t cell)
{
    const struct pq_report_factor *f = colour_factor(r);
    const char *value = f ? pq_fact(r->results->cells[cell].factors, f->name) : NULL;
    for (size_t i = 0; value && i < f->count; i++)
        if (strcmp(f->values[i], value) == 0)
            return (unsigned)i;
    return 0;
}

static bool in_facet(const struct pq_report *r, const struct facet *f, size_t cell)
{
    if (!pq_report_entry(r, cell, f->metric)->metric)
        return false;
    const char *value = f->factor ? pq_fact(r->results->cells[cell].factors, f->factor) : NULL;
    return !f->factor || (value && strcmp(value, f->value) == 0);
}

/* --- the rows of a plot
 * ------------------------------------------------------------------------------------------------------- */

struct rows {
    struct pq_plot_row *at;
    char **labels;
    size_t count, left_out;
};

static void rows_free(struct rows *r)
{
    for (size_t i = 0; i < r->count; i++)
        free(r->labels[i]);
    free(r->labels);
    free(r->at);
}

struct ranked {
    size_t cell;
    double median;
};

static int by_median(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->median != y->median)
        return x->median < y->median ? -1 : 1;
    return (x->cell > y->cell) - (x->cell < y->cell);
}

static int add_row(const struct pq_report *r, const struct facet *f, size_t cell, struct rows *rows)
{
    DEFER(pq_out_free) struct pq_out label = {.buf.cap = LABEL_CAP};
    pq_report_cell_label(r, cell, f->factor, &label);
    TRY(label.error);
    rows->labels[rows->count] = strdup(pq_out_text(&label));
    if (!rows->labels[rows->count])
        return PQ_E_NOMEM;
    rows->at[rows->count] =
        (struct pq_plot_row){rows->labels[rows->count], pq_report_entry(r, cell, f->metric), colour_of(r, cell)};
    rows->count++;
    return 0;
}

static int rows_new(size_t most, struct rows *rows)
{
    rows->at = calloc(most + 1, sizeof *rows->at);
    rows->labels = calloc(most + 1, sizeof *rows->labels);
    return rows->at && rows->labels ? 0 : PQ_E_NOMEM;
}

/* In the order of their medians; what is beyond PQ_PLOT_ROWS is left to the table. */
static int sorted_rows(const struct pq_report *r, const struct facet *f, struct rows *rows)
{
    size_t n = 0;
    DEFER(pq_freep) struct ranked *all = calloc(r->results->cell_count + 1, sizeof *all);
    if (!all)
        return PQ_E_NOMEM;
    for (size_t i = 0; i < r->results->cell_count; i++)
        if (in_facet(r, f, i))
            all[n++] = (struct ranked){i, pq_report_entry(r, i, f->metric)->summary.median};
    rows->left_out = n > PQ_PLOT_ROWS ? n - PQ_PLOT_ROWS : 0;
    n -= rows->left_out;
    TRY(rows_new(n, rows));
    qsort(all, n + rows->left_out, sizeof *all, by_median);
    for (size_t i = 0; i < n; i++)
        TRY(add_row(r, f, all[i].cell, rows));
    return 0;
}

/* One cell for each colour: the first in the experiment's order, which has the first values of the other factors. */
static int curve_rows(const struct pq_report *r, const struct facet *f, struct rows *rows)
{
    bool taken[PQ_PLOT_COLOURS] = {false}, coloured = colour_factor(r) != NULL;
    TRY(rows_new(PQ_PLOT_LINES, rows));
    for (size_t i = 0; i < r->results->cell_count && rows->count < PQ_PLOT_LINES; i++) {
        unsigned colour = colour_of(r, i);
        if (!in_facet(r, f, i) || pq_report_entry(r, i, f->metric)->metric->count < SAMPLES_FOR_CURVE ||
            (coloured && taken[colour]))
            continue;
        taken[colour] = true;
        TRY(add_row(r, f, i, rows));
        if (!coloured)
            rows->at[rows->count - 1].colour = (unsigned)rows->count - 1;
    }
    return 0;
}

/* --- figures
 * ------------------------------------------------------------------------------------------------------------------ */

static void figure_id(struct pq_page *p, char id[32]) { snprintf(id, 32, "r%u-f%u", p->number, ++p->figures); }

static void facet_title(const struct pq_page *p, const struct facet *f, struct pq_out *o)
{
    pq_metric_title(p->r->metrics[f->metric].name, o);
    if (!f->factor)
        return;
    pq_out(o, ", ");
    pq_out_clean(o, f->factor, 40);
    pq_out(o, " ");
    pq_out_clean(o, f->value, 40);
}

static void write_unit(struct pq_page *p, const struct facet *f)
{
    if (!p->r->metrics[f->metric].unit[0])
        return;
    pq_out(p->out, ", in ");
    pq_out_html_short(p->out, p->r->metrics[f->metric].unit, 60);
}

static void describe(const struct pq_plot *plot, struct pq_out *o)
{
    const struct pq_plot_row *first = &plot->rows[0], *last = &plot->rows[plot->count - 1];
    pq_outf(o, "%zu cells by their median: from %s (", plot->count,
            pq_number(first->entry->summary.median, pq_decimals(first->entry->summary.median)).text);
    pq_out(o, first->label);
    pq_outf(o, ") to %s (", pq_number(last->entry->summary.median, pq_decimals(last->entry->summary.median)).text);
    pq_out(o, last->label);
    pq_out(o, "). The table below has all figures.");
}

static void caption_rows(struct pq_page *p, const struct facet *f, const struct pq_plot *plot, const char *title,
                         size_t left_out)
{
    size_t beyond = pq_plot_beyond(plot), samples = 0;
    for (size_t i = 0; i < plot->count; i++)
        samples += plot->rows[i].entry->metric->count;
    pq_out(p->out, "<figcaption><b>");
    pq_out_html(p->out, title);
    pq_out(p->out, "</b>");
    write_unit(p, f);
    pq_outf(p->out, "; lowest median first%s.", plot->logarithmic ? "; logarithmic scale" : "");
    if (beyond)
        pq_outf(p->out, " %s of %s samples lie beyond the axis.", pq_number((double)beyond, 0).text,
                pq_number((double)samples, 0).text);
    if (left_out)
        pq_outf(p->out, " %zu more cells are in the table.", left_out);
    pq_out(p->out, "</figcaption>\n");
}

static int figure_rows(struct pq_page *p, const struct facet *f)
{
    char id[32];
    DEFER(rows_free) struct rows rows = {0};
    DEFER(pq_out_free) struct pq_out title = {.buf.cap = LABEL_CAP};
    DEFER(pq_out_free) struct pq_out description = {.buf.cap = LABEL_CAP};
    TRY(sorted_rows(p->r, f, &rows));
    if (rows.count == 0)
        return 0;
    facet_title(p, f, &title);
    figure_id(p, id);
    struct pq_plot plot = {.id = id,
                           .title = pq_out_text(&title),
                           .unit = p->r->metrics[f->metric].unit,
                           .rows = rows.at,
                           .count = rows.count,
                           .seed = p->r->results->seed};
    pq_plot_range(&plot);
    describe(&plot, &description);
    plot.description = pq_out_text(&description);
    pq_out(p->out, "<figure>\n");
    caption_rows(p, f, &plot, pq_out_text(&title), rows.left_out);
    TRY(pq_plot_rows(&plot, p->out, p->why));
    pq_out(p->out, "</figure>\n");
    return title.error ? title.error : description.error;
}

static void write_key(struct pq_page *p, const struct pq_plot *plot)
{
    pq_out(p->out, "<ul class=\"key\">");
    for (size_t i = 0; i < plot->count; i++) {
        pq_outf(p->out, "<li><svg viewBox=\"0 0 26 8\" aria-hidden=\"true\"><path class=\"l%u\" d=\"M0 4h26\"/></svg>",
                plot->rows[i].colour);
        pq_out_html(p->out, plot->rows[i].label);
        pq_out(p->out, "</li>\n");
    }
    pq_out(p->out, "</ul>\n");
}

static int figure_curves(struct pq_page *p, const struct facet *f)
{
    char id[32];
    DEFER(rows_free) struct rows rows = {0};
    DEFER(pq_out_free) struct pq_out title = {.buf.cap = LABEL_CAP};
    TRY(curve_rows(p->r, f, &rows));
    if (rows.count == 0)
        return 0;
    facet_title(p, f, &title);
    pq_out(&title, ": cumulative distribution");
    figure_id(p, id);
    struct pq_plot plot = {.id = id,
                           .title = pq_out_text(&title),
                           .unit = p->r->metrics[f->metric].unit,
                           .rows = rows.at,
                           .count = rows.count,
                           .seed = p->r->results->seed,
                           .description =
                               "The share of samples at or below a value, a line for each cell named below the plot."};
    pq_plot_range(&plot);
    pq_out(p->out, "<figure>\n<figcaption><b>");
    pq_out_html(p->out, pq_out_text(&title));
    pq_out(p->out, "</b>");
    write_unit(p, f);
    pq_outf(p->out, "%s.</figcaption>\n", plot.logarithmic ? "; logarithmic scale" : "");
    TRY(pq_plot_cumulative(&plot, p->out, p->why));
    write_key(p, &plot);
    pq_out(p->out, "</figure>\n");
    return title.error;
}

static int figures(struct pq_page *p, size_t metric)
{
    const struct pq_report_factor *by = facet_factor(p->r);
    for (size_t i = 0; i < (by ? by->count : 1); i++) {
        struct facet f = {by ? by->name : NULL, by ? by->values[i] : NULL, metric};
        TRY(figure_rows(p, &f));
        TRY(figure_curves(p, &f));
    }
    return 0;
}

/* --- the table
 * ---------------------------------------------------------------------------------------------------------------- */

static void write_cell(struct pq_page *p, size_t cell)
{
    DEFER(pq_out_free) struct pq_out label = {.buf.cap = LABEL_CAP};
    pq_report_cell_label(p->r, cell, NULL, &label);
    pq_out(p->out, "<th scope=\"row\">");
    pq_out_html(p->out, pq_out_text(&label));
    pq_out(p->out, "</th>");
}

static void write_row(struct pq_page *p, size_t cell, size_t metric)
{
    const struct pq_report_entry *e = pq_report_entry(p->r, cell, metric);
    const struct pq_summary *s = &e->summary;
    struct pq_interval ci = e->has_interval ? s->median_ci : (struct pq_interval){s->median, s->median};
    int d = pq_decimals_of(s->median, ci);
    pq_out(p->out, "<tr>");
    write_cell(p, cell);
    pq_outf(p->out, "<td class=\"n\">%zu</td><td class=\"n\">%s</td>", s->n, pq_number(s->median, d).text);
    if (e->has_interval)
        pq_outf(p->out, "<td class=\"n\">%s to %s</td>", pq_number(ci.low, d).text, pq_number(ci.high, d).text);
    else
        pq_out(p->out, "<td class=\"n\">–</td>");
    pq_outf(p->out, "<td class=\"n\">%s</td><td class=\"n\">%s %%</td>", pq_number(s->iqr, d).text,
            pq_number(100 * s->cv, 1).text);
    pq_outf(p->out, "<td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
            pq_number(s->p95, d).text, pq_number(s->p99, d).text, pq_number(s->max, d).text);
}

static int table(struct pq_page *p, size_t metric)
{
    DEFER(pq_out_free) struct pq_out caption = {.buf.cap = LABEL_CAP};
    pq_metric_title(p->r->metrics[metric].name, &caption);
    pq_out(&caption, p->r->metrics[metric].unit[0] ? ", in " : "");
    pq_out_clean(&caption, p->r->metrics[metric].unit, 60);
    pq_page_table(p, pq_out_text(&caption), "cell|#n|#median|#95" PQ_NBSP "% interval|#IQR|#CV|#p95|#p99|#largest",
                  true);
    for (size_t i = 0; i < p->r->results->cell_count; i++)
        if (pq_report_entry(p->r, i, metric)->metric)
            write_row(p, i, metric);
    pq_page_table_end(p);
    return caption.error;
}

/* --- the section
 * ---------------------------------------------------------------------------------------------------------------- */

static bool quantity_has(const struct pq_quantity *q, const char *metric)
{
    return q->metric && strcmp(q->metric, metric) == 0;
}

/* A metric that stands for a cell or that a question is about is shown; the others unfold. */
static bool shown(const struct pq_report *r, size_t metric)
{
    const char *name = r->metrics[metric].name;
    if (strcmp(name, "request_ms") == 0 || metric == 0)
        return true;
    for (size_t i = 0; i < r->questions.count; i++) {
        const struct pq_question *q = &r->questions.at[i];
        if (quantity_has(&q->of, name) || quantity_has(&q->to, name))
            return true;
        for (size_t k = 0; k < q->option_count; k++)
            if (quantity_has(&q->options[k].quantity, name))
                return true;
    }
    return false;
}

static int write_metric(struct pq_page *p, size_t metric)
{
    char id[32];
    bool open = shown(p->r, metric);
    DEFER(pq_out_free) struct pq_out title = {.buf.cap = LABEL_CAP};
    DEFER(pq_out_free) struct pq_out heading = {.buf.cap = LABEL_CAP};
    pq_metric_title(p->r->metrics[metric].name, &title);
    pq_out_html(&heading, pq_out_text(&title));
    pq_out(&heading, "<code class=\"name\">");
    pq_out_html_short(&heading, p->r->metrics[metric].name, 80);
    pq_out(&heading, "</code>");
    TRY(title.error);
    TRY(heading.error);
    snprintf(id, sizeof id, "m%zu", metric + 1);
    pq_out(p->out, open ? "" : "<details class=\"metric\"><summary>");
    pq_page_heading(p, 1, id, pq_out_text(&heading));
    pq_out(p->out, open ? "" : "</summary>\n");
    TRY(figures(p, metric));
    pq_outf(p->out, "<details%s><summary>Table</summary>\n", metric == 0 || !open ? " open" : "");
    TRY(table(p, metric));
    pq_out(p->out, open ? "</details>\n" : "</details>\n</details>\n");
    return 0;
}

int pq_page_metrics(struct pq_page *p)
{
    pq_out(p->out, "<section>\n");
    pq_page_heading(p, 0, "metrics", "Measurements");
    pq_out(
        p->out,
        "<p class=\"soft\">In each row, dots are samples (a random choice where there are many), the thin line reaches "
        "from the 5th to the 95th percentile, the box holds the middle half, the upright stroke is the median and the "
        "thick bar its 95 % interval. The median is written at the end of the row.</p>\n");
    for (size_t i = 0; i < p->r->metric_count; i++)
        TRY(write_metric(p, i));
    if (p->r->metric_count == 0)
        pq_out(p->out, "<p>Nothing was measured.</p>\n");
    pq_out(p->out, "</section>\n");
    return 0;
}
