/* axis.h - an axis of values in a gnuplot script: its range and the figures beside it.
 *
 * Spec:   steps of 1, 2 or 5 times a power of ten; on a logarithmic axis 1, 2 and 5 of each decade, or decades alone.
 * Owns:   nothing.
 * Errors: kept in out->error.
 */
#ifndef PQ_REPORT_AXIS_H
#define PQ_REPORT_AXIS_H

#include "report/text.h"

struct pq_axis {
    double low, high; /* low < high; both above zero where logarithmic */
    bool logarithmic;
    unsigned most; /* figures that there is room for */
};

/* name is 'x' or 'y'. */
void pq_axis_write(const struct pq_axis *a, char name, struct pq_out *out);

#endif
