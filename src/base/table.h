/* table.h - a text table for a terminal: columns padded to their widest cell, UTF-8 counted by character.
 *
 * Spec:   none.
 * Owns:   the table copies each cell's text; pq_table_free() frees it and accepts NULL.
 * Errors: PQ_E_INVALID (no columns), PQ_E_NOMEM, from the call or, kept, from a later pq_table_print().
 */
#ifndef PQ_BASE_TABLE_H
#define PQ_BASE_TABLE_H

#include <stdio.h>

#include "base/cleanup.h"
#include "base/error.h"

struct pq_table;

/* One letter a column, 'l' left or 'r' right: "lrr" has three. */
PQ_MUST_CHECK int pq_table_new(const char *columns, struct pq_table **out);
void pq_table_free(struct pq_table *t);
PQ_DEFINE_FREEP(struct pq_table, pq_table_free)
/* Fills cells row by row; the first row is the heading. */
void pq_table_cell(struct pq_table *t, const char *format, ...) PQ_PRINTF(2, 3);
/* Control bytes in a cell are printed as '?', so that data can't drive a terminal. */
PQ_MUST_CHECK int pq_table_print(const struct pq_table *t, FILE *out);

#endif
