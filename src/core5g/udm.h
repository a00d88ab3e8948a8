/* udm.h - the Unified Data Management: authentication vectors, subscription data, context of the serving AMF.
 *
 * Spec:   TS 29.503 (Nudm_UEAU, Nudm_SDM, Nudm_UECM); TS 33.501, 6.1.3.2.0 (steps 1 and 2 of 5G-AKA).
 * Owns:   requests under way; what it knows is in the UDR. The directory is the caller's and outlives it.
 * Errors: PQ_E_NOMEM.
 */
#ifndef PQ_CORE5G_UDM_H
#define PQ_CORE5G_UDM_H

#include "core5g/directory.h"
#include "core5g/function.h"

PQ_MUST_CHECK int pq_udm_new(struct pq_directory *directory, const char *instance, struct pq_function *out);

/* udm_auth.c: POST generate-auth-data. r's function is the directory. */
void pq_udm_generate_auth_data(struct pq_sbi_request *r);

#endif
