/* udr.h - the Unified Data Repository: subscription, authentication and context data.
 *
 * Spec:   TS 29.504 (Nudr_DataRepository), TS 29.505 (its subscription data).
 * Owns:   its subscribers.
 * Errors: PQ_E_NOMEM.
 */
#ifndef PQ_CORE5G_UDR_H
#define PQ_CORE5G_UDR_H

#include "core5g/function.h"

PQ_MUST_CHECK int pq_udr_new(uint64_t subscribers, struct pq_function *out);

#endif
