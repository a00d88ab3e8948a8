/* upstream.h - what a function answers when the one that it asked did not help.
 *
 * Spec:   TS 29.500, 5.2.7.2 (causes); TS 29.503 and TS 29.509 (USER_NOT_FOUND and the like are passed on).
 * Owns:   nothing.
 * Errors: none.
 */
#ifndef PQ_CORE5G_UPSTREAM_H
#define PQ_CORE5G_UPSTREAM_H

#include "core5g/directory.h"
#include "core5g/sbi.h"

/* Ends r. */
void pq_upstream_problem(struct pq_sbi_request *r, enum pq_nf_kind asked, const struct pq_directory_result *result);
/* The same for a request that could not be sent. */
void pq_upstream_unsent(struct pq_sbi_request *r, enum pq_nf_kind asked, int e);

#endif
