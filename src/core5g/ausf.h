/* ausf.h - the Authentication Server Function: 5G-AKA towards the AMF.
 *
 * Spec:   TS 29.509 (Nausf_UEAuthentication); TS 33.501, 6.1.3.2.0 (5G-AKA), 6.1.4 (what the home network is told).
 * Owns:   authentications under way, at most PQ_AUSF_CONTEXTS: the oldest makes room. The directory is the caller's
 *         and outlives it.
 * Errors: PQ_E_NOMEM.
 */
#ifndef PQ_CORE5G_AUSF_H
#define PQ_CORE5G_AUSF_H

#include "core5g/directory.h"
#include "core5g/function.h"

enum { PQ_AUSF_CONTEXTS = 4096 };

PQ_MUST_CHECK int pq_ausf_new(struct pq_directory *directory, const char *instance, struct pq_function *out);

#endif
