/* style.h - the page's style sheet and its one script, as they stand in the page and in its content security policy.
 *
 * Spec:   CSS, with light and dark by prefers-color-scheme; every text and mark has a contrast of 4.5 or more in both.
 * Owns:   pq_style_sheet() and pq_style_script() give text that ends with the program.
 * Errors: kept in out->error.
 */
#ifndef PQ_REPORT_STYLE_H
#define PQ_REPORT_STYLE_H

#include "report/text.h"

void pq_style_sheet(struct pq_out *out);
/* Sorts tables by a click on a column's head; the page says all without it. */
void pq_style_script(struct pq_out *out);

#endif
