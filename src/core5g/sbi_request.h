/* sbi_request.h - what is behind a struct pq_sbi_request: for sbi.c and sbi_answer.c.
 *
 * Spec:   see sbi.h.
 * Owns:   the exchange until it is answered, the parsed body, the answer's fields.
 * Errors: none.
 */
#ifndef PQ_CORE5G_SBI_REQUEST_H
#define PQ_CORE5G_SBI_REQUEST_H

#include "core5g/sbi.h"

enum { PQ_SBI_FIELDS = 8, PQ_SBI_FIELD_MAX = 1024 };

struct pq_request {
    struct pq_sbi_request r; /* first */
    struct pq_http2_exchange *x;
    struct pq_http2_field fields[PQ_SBI_FIELDS];
    size_t field_count;
};

#endif
