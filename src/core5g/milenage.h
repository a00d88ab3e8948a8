/* milenage.h - the MILENAGE functions f1, f1*, f2, f3, f4, f5, f5*.
 *
 * Spec:   TS 35.206 (algorithm), TS 35.208 (test data). The block cipher is AES-128 from OpenSSL.
 * Owns:   nothing; intermediate values are wiped.
 * Errors: PQ_E_CRYPTO.
 */
#ifndef PQ_CORE5G_MILENAGE_H
#define PQ_CORE5G_MILENAGE_H

#include <stdint.h>

#include "base/error.h"

struct pq_milenage {
    uint8_t mac_a[8];   /* f1 */
    uint8_t mac_s[8];   /* f1* */
    uint8_t res[8];     /* f2 */
    uint8_t ck[16];     /* f3 */
    uint8_t ik[16];     /* f4 */
    uint8_t ak[6];      /* f5 */
    uint8_t ak_star[6]; /* f5* */
};

PQ_MUST_CHECK int pq_milenage(const uint8_t k[16], const uint8_t opc[16], const uint8_t rand[16], const uint8_t sqn[6],
                              const uint8_t amf[2], struct pq_milenage *out);
/* 8.2: OPc of OP and K. */
PQ_MUST_CHECK int pq_milenage_opc(const uint8_t k[16], const uint8_t op[16], uint8_t opc[16]);

#endif
