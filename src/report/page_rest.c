/* What surrounds the measurements: published figures, errors, drift, methods, how to run it again, the raw data. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "report/embed.h"
#include "report/number.h"
#include "report/page.h"
#include "report/plot.h"
#include "report/quantity.h"

/* With its base64 a page stays below some ten megabytes. */
enum { EMBED_MOST = 6 << 20, SOURCE_CAP = 2000, LINE_CAP = 1 << 16 };

/* --- published figures
 * ---------------------------------------------------------------------------------------------------------- */

static void write_range(struct pq_page *p, double low, double high)
{
    pq_out(p->out, pq_number_exact(low).text);
    if (high > low)
        pq_outf(p->out, " to %s", pq_number_exact(high).text);
}

static int write_ours(struct pq_page *p, const char *name, const struct pq_quantity *q, size_t *said)
{
    struct pq_measured m;
    struct pq_why missing = {{0}};
    DEFER(pq_out_free) struct pq_out line = {.buf.cap = LINE_CAP};
    int e = pq_quantity_measure(q, p->r->results, &m, &missing);
    if (e < 0 && e != PQ_E_NOT_FOUND)
        return e;
    if (name)
        pq_out_clean(&line, name, 120);
    else
        pq_quantity_label(q, &line);
    pq_out(&line, ": ");
    if (e == 0)
        pq_measured_text(&m, q->minus != NULL, &line);
    else
        pq_out(&line, "not measured here");
    pq_out(p->out, (*said)++ ? "<br>" : "");
    pq_out_html(p->out, pq_out_text(&line));
    return line.error;
}

/* Ours beside it: what the file says is the same, and what questions compare with it. */
static int write_counterparts(struct pq_page *p, const struct pq_published *f)
{
    size_t said = 0;
    struct pq_quantity own;
    if (f->ours && pq_quantity_read(f->ours, &own, NULL) == 0)
        TRY(write_ours(p, NULL, &own, &said));
    for (size_t i = 0; i < p->r->questions.count; i++) {
        const struct pq_question *q = &p->r->questions.at[i];
        if (!p->r->answers[i].published_key || strcmp(p->r->answers[i].published_key, f->key) != 0)
            continue;
        for (size_t k = 0; k < q->option_count; k++)
            TRY(write_ours(p, q->options[k].name, &q->options[k].quantity, &said));
    }
    pq_out(p->out, said ? "" : "–");
    return 0;
}

static int write_baseline(struct pq_page *p, const struct pq_node *root, const struct pq_published *f)
{
    struct pq_published base;
    int e = f->baseline ? pq_published_find(root, f->baseline, &base) : PQ_E_NOT_FOUND;
    if (e == PQ_E_NOMEM)
        return e;
    if (e < 0 || strcmp(base.key, f->key) == 0 || strcmp(base.unit, f->unit) != 0 || base.low <= 0 || f->low < 0) {
        pq_out(p->out, "–");
        return 0;
    }
    double low = f->low / base.high, high = f->high / base.low;
    pq_outf(p->out, "× %s", pq_number(low, pq_decimals(low)).text);
    if (high > low)
        pq_outf(p->out, " to %s", pq_number(high, pq_decimals(high)).text);
    return 0;
}

static int write_published(struct pq_page *p, const struct pq_node *root, const struct pq_published *f)
{
    pq_out(p->out, "<tr><th scope=\"row\" class=\"wide\">");
    pq_out_html_short(p->out, f->what ? f->what : f->key, 200);
    if (f->where) {
        pq_out(p->out, " <span class=\"soft\">(");
        pq_out_html_short(p->out, f->where, 200);
        pq_out(p->out, ")</span>");
    }
    pq_out(p->out, "</th><td class=\"n\">");
    write_range(p, f->low, f->high);
    pq_out(p->out, " ");
    pq_out_html_short(p->out, f->unit, 40);
    pq_out(p->out, "</td><td class=\"n\">");
    TRY(write_baseline(p, root, f));
    pq_out(p->out, "</td><td class=\"wide\">");
    TRY(write_counterparts(p, f));
    pq_out(p->out, "</td></tr>\n");
    return 0;
}

int pq_page_published(struct pq_page *p)
{
    char source[SOURCE_CAP];
    if (!p->r->published)
        return 0;
    const struct pq_node *root = pq_document_root(p->r->published);
    DEFER(pq_freep) struct pq_published *all = calloc(PQ_PUBLISHED_MAX, sizeof *all);
    if (!all)
        return PQ_E_NOMEM;
    size_t count = pq_published_list(root, all, PQ_PUBLISHED_MAX);
    pq_published_source(root, source, sizeof source);
    pq_out(p->out, "<section>\n");
    pq_page_heading(p, 0, "published", "Published figures");
    pq_out(p->out,
           "<p>These are <strong>not measurements of this run</strong>: others published them, on other machines. "
           "Source: ");
    pq_out_html(p->out, *source ? source : "not given");
    pq_out(p->out, ". Set beside them is what was measured here for the same question.</p>\n");
    pq_page_table(p, "Published by others, and measured here",
                  "figure|#published|#to the study's baseline|measured here", false);
    for (size_t i = 0; i < count; i++)
        TRY(write_published(p, root, &all[i]));
    pq_page_table_end(p);
    pq_out(p->out, "</section>\n");
    return 0;
}

/* --- errors
 * ---------------------------------------------------------------------------------------------------------------------
 */

void pq_page_errors(struct pq_page *p)
{
    const struct pq_results *r = p->r->results;
    bool any = false;
    for (size_t i = 0; i < r->cell_count; i++)
        any |= pq_report_cell_errors(&r->cells[i]) > 0;
    pq_out(p->out, "<section>\n");
    pq_page_heading(p, 0, "errors", "Errors");
    if (!any) {
        pq_out(p->out, "<p>No request failed.</p>\n</section>\n");
        return;
    }
    pq_out(p->out, "<p>What failed is counted by its reason and is no sample.</p>\n");
    pq_page_table(p, "Failures by cell and reason", "cell|reason|#count", true);
    for (size_t i = 0; i < r->cell_count; i++)
        for (size_t k = 0; k < r->cells[i].error_count; k++) {
            DEFER(pq_out_free) struct pq_out label = {.buf.cap = LINE_CAP};
            if (r->cells[i].errors[k].count == 0)
                continue;
            pq_report_cell_label(p->r, i, NULL, &label);
            pq_out(p->out, "<tr><th scope=\"row\">");
            pq_out_html(p->out, pq_out_text(&label));
            pq_out(p->out, "</th><td class=\"wide\">");
            pq_out_html_short(p->out, r->cells[i].errors[k].reason, 400);
            pq_outf(p->out, "</td><td class=\"n\">%" PRIu64 "</td></tr>\n", r->cells[i].errors[k].count);
        }
    pq_page_table_end(p);
    pq_out(p->out, "</section>\n");
}

/* --- drift
 * ----------------------------------------------------------------------------------------------------------------------
 */

struct series {
    double *round, *work, *steal;
    size_t count;
};

static void series_free(struct series *s)
{
    free(s->round);
    free(s->work);
    free(s->steal);
}

static int by_round(const void *a, const void *b)
{
    const struct pq_result_calibration *x = a, *y = b;
    return (x->round > y->round) - (x->round < y->round);
}

static int series_of(const struct pq_results *r, struct series *s)
{
    size_t n = r->calibration_count;
    DEFER(pq_freep) struct pq_result_calibration *sorted = calloc(n, sizeof *sorted);
    s->round = calloc(n, sizeof *s->round);
    s->work = calloc(n, sizeof *s->work);
    s->steal = calloc(n, sizeof *s->steal);
    if (!sorted || !s->round || !s->work || !s->steal)
        return PQ_E_NOMEM;
    memcpy(sorted, r->calibration, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_round);
    s->count = n;
    for (size_t i = 0; i < n; i++) {
        s->round[i] = (double)sorted[i].round;
        s->work[i] = sorted[i].work_ms;
        s->steal[i] = sorted[i].steal_ms;
    }
    return 0;
}

static int course(struct pq_page *p, const struct series *s, const double *v, const char *name, const char *caption)
{
    char id[32];
    snprintf(id, sizeof id, "r%u-%s", p->number, name);
    pq_outf(p->out, "<figure>\n<figcaption><b>%s</b>, in ms, by round.</figcaption>\n", caption);
    TRY(pq_plot_course(&(struct pq_plot_course){id, caption, "A value for each round, in the order of the rounds.",
                                                "ms", s->round, v, s->count},
                       p->out, p->why));
    pq_out(p->out, "</figure>\n");
    return 0;
}

int pq_page_drift(struct pq_page *p)
{
    DEFER(series_free) struct series s = {0};
    struct pq_summary work;
    double steal = 0;
    if (p->r->results->calibration_count < 2)
        return 0;
    TRY(series_of(p->r->results, &s));
    TRY(pq_summarize((struct pq_samples){s.work, NULL, s.count}, p->r->results->seed, &work));
    for (size_t i = 0; i < s.count; i++)
        steal += s.steal[i];
    pq_out(p->out, "<section>\n");
    pq_page_heading(p, 0, "drift", "Drift");
    int d = pq_decimals(work.median);
    pq_outf(
        p->out,
        "<p>In each round the same piece of computing was timed, to see whether the machine changed: it took %s ms "
        "(median), from %s to %s ms, with a coefficient of variation of %s %%. The hypervisor took %s ms in all.</p>\n",
        pq_number(work.median, d).text, pq_number(work.min, d).text, pq_number(work.max, d).text,
        pq_number(100 * work.cv, 1).text, pq_number(steal, pq_decimals(steal)).text);
    TRY(course(p, &s, s.work, "work", "The same piece of computing"));
    if (steal > 0)
        TRY(course(p, &s, s.steal, "steal", "Time that the hypervisor took (steal)"));
    pq_out(p->out, "</section>\n");
    return 0;
}

/* --- methods
 * --------------------------------------------------------------------------------------------------------------------
 */

void pq_page_methods(struct pq_page *p)
{
    pq_out(p->out, "<section>\n");
    pq_page_heading(p, 0, "methods", "How it was measured");
    pq_outf(p->out,
            "<p>A cell is one combination of the factors. Cells were measured in rounds: each round visits every cell "
            "once, in an order "
            "drawn from the seed, so that a machine that drifts meets all cells alike. Each sample is kept with its "
            "round and time; "
            "failures are counted by reason and are never samples.</p>\n"
            "<p>The figure of a cell is the median of its samples. Its 95 %% interval is a percentile bootstrap over "
            "whole rounds "
            "(1,000 resamples from the run's seed), because samples of one round resemble each other: if the run were "
            "repeated under the "
            "same conditions, an interval made so would cover the median in about 95 of 100 runs. It says nothing of "
            "other machines. "
            "Cells that were measured in the same rounds are compared round by round. A difference is called one only "
            "where its interval "
            "excludes zero; where several cells are compared at once, the interval is widened for all pairs. Fewer "
            "than %d rounds give no "
            "interval.</p>\n"
            "<p>IQR is the distance between the quartiles, CV the standard deviation over the mean, p95 and p99 are "
            "percentiles.</p>\n"
            "</section>\n",
            PQ_ROUNDS_LEAST);
}

/* --- raw data
 * ---------------------------------------------------------------------------------------------------------------------
 */

static int write_download(struct pq_page *p)
{
    struct pq_span raw = pq_span(p->r->raw.at, p->r->raw.len);
    DEFER(pq_buf_free) struct pq_buf packed = {.cap = PQ_RESULTS_MAX_FILE};
    int e = pq_gzip(raw, &packed);
    if (e < 0 && e != PQ_E_UNSUPPORTED && e != PQ_E_TOO_LONG)
        return e;
    bool gzip = e == 0;
    if (gzip)
        raw = pq_span(packed.at, packed.len);
    if (raw.len > EMBED_MOST) {
        pq_out(p->out,
               "<p>results.json is too large to be carried in this page; it lies beside the page's source.</p>\n");
        return 0;
    }
    pq_outf(p->out, "<p><a class=\"button\" download=\"results.json%s\" href=\"data:application/%s;base64,",
            gzip ? ".gz" : "", gzip ? "gzip" : "json");
    pq_out_base64(p->out, raw);
    pq_outf(p->out, "\">Download results.json%s</a></p>\n", gzip ? ".gz" : "");
    return 0;
}

int pq_page_raw(struct pq_page *p)
{
    struct pq_digest digest;
    const struct pq_results *r = p->r->results;
    TRY(pq_digest(pq_span(p->r->raw.at, p->r->raw.len), &digest));
    pq_out(p->out, "<section>\n");
    pq_page_heading(p, 0, "raw", "Run it again, raw data");
    if (*r->command) {
        pq_out(p->out, "<p>This run was started with:</p>\n<pre><code>");
        pq_out_html(p->out, r->command);
        pq_out(p->out, "</code></pre>\n");
    }
    pq_out(p->out, "<p>Every sample is in results.json, of which this page is made. <code>pqplane report DIR --csv "
                   "FILE</code> turns it "
                   "into a table, <code>pqplane report --compare DIR DIR</code> compares two runs.</p>\n");
    TRY(write_download(p));
    pq_outf(p->out, "<p class=\"soft\">results.json: %zu bytes, SHA-256 <code>%s</code></p>\n", p->r->raw.len,
            digest.hex);
    pq_out(p->out, "<details><summary>The experiment as it was run</summary>\n<pre><code>");
    pq_out_html_lines(p->out, r->experiment_text);
    pq_out(p->out, "</code></pre></details>\n");
    if (r->published_text) {
        pq_out(p->out, "<details><summary>The published figures as they were read</summary>\n<pre><code>");
        pq_out_html_lines(p->out, r->published_text);
        pq_out(p->out, "</code></pre></details>\n");
    }
    pq_out(p->out, "</section>\n");
    return 0;
}
