/* number.h - figures as people read them: as many decimals as the figure bears, the interval beside it.
 *
 * Spec:   none. Thousands are grouped from 10,000; an interval has the decimals of its figure.
 * Owns:   nothing.
 * Errors: none.
 */
#ifndef PQ_REPORT_NUMBER_H
#define PQ_REPORT_NUMBER_H

#include "base/stats.h"

struct pq_number {
    char text[64];
};

/* Decimals that show three significant digits of scale; 0 to 6. */
int pq_decimals(double scale);
/* Decimals for a figure with its interval: two significant digits of the interval's width, where there is one. */
int pq_decimals_of(double value, struct pq_interval ci);
struct pq_number pq_number(double v, int decimals);
/* With its sign, "+" too. */
struct pq_number pq_number_signed(double v, int decimals);
/* The shortest text that reads back as the same double. */
struct pq_number pq_number_exact(double v);

#endif
