/* report.h - results.json worked out, and written as a terminal table, CSV, one HTML page, or a comparison of two runs.
 *
 *   pq_report_open("results/sbi", &r, &why);  pq_report_print(&r, 1, stdout, 100, false);  pq_report_html(&r, 1, &out,
 * &why);
 *
 * A pure function of its input: no clock, nothing of the host; the bootstrap runs on the file's own seed. Several
 * reports make one page or one CSV file, a section each.
 *
 * Spec:   results.json, schema 1 (docs/results.md).
 * Owns:   a report owns all that it points to until pq_report_free(). Outputs fill the caller's struct pq_out.
 * Errors: those of results.h with "FILE: " before them; pq_report_html() PQ_E_UNSUPPORTED where gnuplot is missing and
 *         PQ_E_IO where it fails. An experiment text that can't be read is no error: the report says so (problems).
 */
#ifndef PQ_REPORT_REPORT_H
#define PQ_REPORT_REPORT_H

#include <stdio.h>

#include "report/answer.h"
#include "report/results.h"
#include "report/text.h"

enum { PQ_REPORT_PROBLEMS = 4, PQ_REPORT_CSV_MAX = 1 << 30, PQ_REPORT_HTML_MAX = 256 << 20 };

/* A factor with all values that cells have, in the order of their first appearance. */
struct pq_report_factor {
    const char *name;
    const char **values;
    size_t count;
};

struct pq_report_metric {
    const char *name, *unit;
};

/* One metric in one cell. */
struct pq_report_entry {
    const struct pq_result_metric *metric; /* NULL: not measured in this cell */
    struct pq_summary summary;
    double p5;
    bool has_interval; /* rounds enough for summary.median_ci */
};

struct pq_report {
    char *path;
    struct pq_buf raw; /* the file as it was read */
    struct pq_results *results;
    const char *title, *reason; /* of the experiment; its name and "" where it gives none */
    struct pq_report_factor *factors;
    size_t factor_count;
    struct pq_report_metric *metrics; /* in the order of the experiment's metrics:, then any others */
    size_t metric_count;
    struct pq_report_entry *entries;            /* cell by cell, each with metric_count of them */
    struct pq_document *experiment, *published; /* NULL where there is none that can be read */
    struct pq_questions questions;
    struct pq_answer *answers; /* questions.count of them */
    struct pq_why problems[PQ_REPORT_PROBLEMS];
    size_t problem_count;
};

/* path is results.json or the folder that holds it. */
PQ_MUST_CHECK int pq_report_open(const char *path, struct pq_report **out, struct pq_why *why);
/* name stands for the file in messages. */
PQ_MUST_CHECK int pq_report_parse(const char *name, struct pq_span text, struct pq_report **out, struct pq_why *why);
void pq_report_free(struct pq_report *r);
PQ_DEFINE_FREEP(struct pq_report, pq_report_free)

const struct pq_report_entry *pq_report_entry(const struct pq_report *r, size_t cell, size_t metric);
/* The metric that stands for a cell: request_ms where it has it, else its first; r->metric_count where it has none. */
size_t pq_report_primary(const struct pq_report *r, size_t cell);
/* The values that tell the cell from the others, joined by " · "; without the factor `skip` (may be NULL). */
void pq_report_cell_label(const struct pq_report *r, size_t cell, const char *skip, struct pq_out *out);
uint64_t pq_report_cell_errors(const struct pq_result_cell *c);

/* Lines are at most width characters but for a table that can't be narrower; colour for a terminal that shows it. */
PQ_MUST_CHECK int pq_report_print(struct pq_report *const *reports, size_t count, FILE *out, unsigned width,
                                  bool colour);
/* One row a sample: experiment, the factors, metric, unit, value, round, at_ms. */
PQ_MUST_CHECK int pq_report_csv(struct pq_report *const *reports, size_t count, struct pq_out *out);
/* One page that needs nothing else. gnuplot draws its plots. */
PQ_MUST_CHECK int pq_report_html(struct pq_report *const *reports, size_t count, struct pq_out *out,
                                 struct pq_why *why);
/* Two runs of one experiment: what share of the intervals overlaps; ends in a line "compare overlap=0.9600 cells=148".
 */
PQ_MUST_CHECK int pq_report_compare(const struct pq_report *a, const struct pq_report *b, FILE *out,
                                    struct pq_why *why);

#endif
