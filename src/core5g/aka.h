/* aka.h - 5G-AKA in the home network: the vector, the derived keys, resynchronisation.
 *
 * Spec:   TS 33.501, 6.1.3.2 and Annex A (A.2 KAUSF, A.4 XRES*, A.5 HXRES*, A.6 KSEAF); TS 33.220, B.2 (KDF,
 *         HMAC-SHA-256); TS 33.102, 6.3.3 and 6.3.5 (AUTN, AUTS).
 * Owns:   nothing; intermediate keys are wiped.
 * Errors: PQ_E_CRYPTO; PQ_E_AUTH (AUTS with a wrong MAC-S); PQ_E_INVALID (serving network name over PQ_AKA_NAME_MAX).
 */
#ifndef PQ_CORE5G_AKA_H
#define PQ_CORE5G_AKA_H

#include <stdint.h>

#include "base/bytes.h"

enum { PQ_AKA_NAME_MAX = 255, PQ_AKA_SQN_STEP = 32 /* TS 33.102, C.3.2: five bits of IND below SEQ */ };

struct pq_aka_subscriber {
    uint8_t k[16], opc[16], amf[2];
};

struct pq_aka_vector {
    uint8_t rand[16], autn[16], xres_star[16], kausf[32];
};

/* B.2: FC, then each parameter and its length. */
PQ_MUST_CHECK int pq_kdf(struct pq_span key, uint8_t fc, const struct pq_span *parameters, size_t count,
                         uint8_t out[32]);

/* The 5G HE AV for that RAND and SQN; network is the serving network name. */
PQ_MUST_CHECK int pq_aka_vector(const struct pq_aka_subscriber *s, const uint8_t rand[16], uint64_t sqn,
                                const char *network, struct pq_aka_vector *out);
PQ_MUST_CHECK int pq_aka_hxres_star(const uint8_t rand[16], const uint8_t xres_star[16], uint8_t out[16]);
PQ_MUST_CHECK int pq_aka_kseaf(const uint8_t kausf[32], const char *network, uint8_t out[32]);
/* What the USIM counts, out of AUTS. */
PQ_MUST_CHECK int pq_aka_resync(const struct pq_aka_subscriber *s, const uint8_t rand[16], const uint8_t auts[14],
                                uint64_t *sqn);

/* The other side, for tests and UEs: RES* of what f2 to f4 give. */
PQ_MUST_CHECK int pq_aka_res_star(const struct pq_aka_subscriber *s, const uint8_t rand[16], const char *network,
                                  uint8_t out[16]);

#endif
