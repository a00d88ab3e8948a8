/* quantity.h - a question's quantities among the samples: which cells they name, their medians, how they read.
 *
 * Spec:   question.h, "QUANTITY".
 * Owns:   everything points into the results and the question's document.
 * Errors: PQ_E_NOT_FOUND (not measured here; the sentence says what), PQ_E_NOMEM.
 */
#ifndef PQ_REPORT_QUANTITY_H
#define PQ_REPORT_QUANTITY_H

#include "report/answer.h"
#include "report/text.h"

/* The samples behind a quantity: one cell's, or those of cell and minus. */
struct pq_terms {
    const struct pq_result_metric *at[2];
    size_t count;
};
PQ_MUST_CHECK int pq_terms_find(const struct pq_quantity *q, const struct pq_results *r, struct pq_terms *out,
                                struct pq_why *missing);
/* Every term was measured in rounds enough for an interval. */
bool pq_terms_have_interval(const struct pq_terms *t);

/* "Request time, sidecar-pqc · new less native-tls" */
void pq_quantity_label(const struct pq_quantity *q, struct pq_out *o);
/* The cell's values alone: "sidecar-pqc · new". */
void pq_cell_label(const struct pq_node *cell, struct pq_out *o);
/* "3.42 ms (95 % interval 3.31 to 3.55)"; sign: with "+" too. */
void pq_measured_text(const struct pq_measured *m, bool sign, struct pq_out *o);

#endif
