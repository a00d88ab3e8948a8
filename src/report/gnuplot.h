/* gnuplot.h - runs gnuplot over a script of our own and gives back what it draws.
 *
 * The script goes in as an unnamed file and the picture comes back through a pipe: no shell, no file that could be
 * left, no start-up file of the user's, an environment of our own. Scripts hold numbers and tokens only; data text
 * never gets there (svg.h puts it in afterwards).
 *
 * Spec:   gnuplot 5.4 or later, its svg terminal.
 * Owns:   fills the caller's buffer, which must have a cap.
 * Errors: PQ_E_UNSUPPORTED (no gnuplot), PQ_E_TIMEOUT, PQ_E_IO (it failed; the sentence has its own words), PQ_E_NOMEM.
 */
#ifndef PQ_REPORT_GNUPLOT_H
#define PQ_REPORT_GNUPLOT_H

#include "base/bytes.h"

PQ_MUST_CHECK int pq_gnuplot(struct pq_span script, struct pq_buf *picture, struct pq_why *why);

#endif
