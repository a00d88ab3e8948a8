/* subscribers.h - what a UDR holds of its subscribers: imsi-001010000000001 and on, as many as it was told.
 *
 * Spec:   TS 29.505 (data), TS 33.102, Annex C (sequence numbers). Keys follow from the SUPI alone, so that each run
 *         has the same.
 * Owns:   their data; keys are wiped when it is freed.
 * Errors: PQ_E_NOT_FOUND, PQ_E_NOMEM, PQ_E_CRYPTO.
 */
#ifndef PQ_CORE5G_SUBSCRIBERS_H
#define PQ_CORE5G_SUBSCRIBERS_H

#include "base/cleanup.h"
#include "core5g/aka.h"
#include "core5g/identity.h"

#define PQ_HOME_MCC "001"
#define PQ_HOME_MNC "01"

struct pq_subscriber {
    struct pq_aka_subscriber key;
    uint64_t sqn;
    char *auth_status; /* JSON of the last AuthEvent, or NULL */
    char *amf_access;  /* JSON of Amf3GppAccessRegistration, or NULL */
};

struct pq_subscribers;
PQ_MUST_CHECK int pq_subscribers_new(uint64_t count, struct pq_subscribers **out);
void pq_subscribers_free(struct pq_subscribers *s);
PQ_DEFINE_FREEP(struct pq_subscribers, pq_subscribers_free)
/* Made when first asked for. */
PQ_MUST_CHECK int pq_subscribers_find(struct pq_subscribers *s, const char *supi, struct pq_subscriber **out);

/* K, OPc and AMF of a SUPI: also what a simulated UE has. */
PQ_MUST_CHECK int pq_subscriber_key(const char *supi, struct pq_aka_subscriber *out);

#endif
