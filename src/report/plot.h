/* plot.h - the plots of a page: rows of distributions, cumulative distributions, a course over rounds. Each is written
 * twice, for a desk and for a phone; the style sheet shows one of them.
 *
 * Spec:   a row has its samples (at most PQ_PLOT_DOTS of them, drawn by the seed), whiskers from the 5th to the 95th
 * percentile, a box between the quartiles, the median and its 95 % interval. Owns:   nothing. Errors: those of
 * gnuplot.h and PQ_E_NOMEM; out's own are kept in out->error.
 */
#ifndef PQ_REPORT_PLOT_H
#define PQ_REPORT_PLOT_H

#include "report/report.h"

enum { PQ_PLOT_DOTS = 120, PQ_PLOT_ROWS = 60, PQ_PLOT_LINES = 8, PQ_PLOT_COLOURS = 8 };

struct pq_plot_row {
    const char *label; /* data */
    const struct pq_report_entry *entry;
    unsigned colour; /* below PQ_PLOT_COLOURS */
};

struct pq_plot {
    const char *id, *title, *description, *unit; /* title, description and unit may be data */
    struct pq_plot_row *rows;
    size_t count;
    double low, high; /* of the axis of values, from pq_plot_range() */
    bool logarithmic;
    uint64_t seed;
};

/* The axis that all rows need: from the lowest 5th percentile to the highest 99th, logarithmic where that is more than
 * fiftyfold. */
void pq_plot_range(struct pq_plot *p);
/* Samples that lie beyond the axis. */
size_t pq_plot_beyond(const struct pq_plot *p);

PQ_MUST_CHECK int pq_plot_rows(const struct pq_plot *p, struct pq_out *out, struct pq_why *why);
PQ_MUST_CHECK int pq_plot_cumulative(const struct pq_plot *p, struct pq_out *out, struct pq_why *why);

struct pq_plot_course {
    const char *id, *title, *description, *unit;
    const double *round, *value; /* ascending rounds */
    size_t count;
};
PQ_MUST_CHECK int pq_plot_course(const struct pq_plot_course *p, struct pq_out *out, struct pq_why *why);

#endif
