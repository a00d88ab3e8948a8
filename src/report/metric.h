/* metric.h - what a metric is called in words.
 *
 * Spec:   the names of the drivers' metrics (docs/experiments.md): "NAME" or "NAME.PART".
 * Owns:   nothing.
 * Errors: kept in out->error.
 */
#ifndef PQ_REPORT_METRIC_H
#define PQ_REPORT_METRIC_H

#include "report/text.h"

/* "CPU time per request, ingress" for cpu_us_per_request.ingress; an unknown name is its own title. */
void pq_metric_title(const char *name, struct pq_out *out);

#endif
