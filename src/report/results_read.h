/* results_read.h - the fields of results.json, one function an object of the schema; for results.c alone.
 *
 * Spec:   results.json, schema 1 (docs/results.md).
 * Owns:   what it allocates hangs on r, also on error: pq_results_free() frees it.
 * Errors: as pq_results_parse().
 */
#ifndef PQ_REPORT_RESULTS_READ_H
#define PQ_REPORT_RESULTS_READ_H

#include "report/results.h"

struct yyjson_val;
PQ_MUST_CHECK int pq_results_read(struct yyjson_val *root, struct pq_results *r, struct pq_why *why);

#endif
