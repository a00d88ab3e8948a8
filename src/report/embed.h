/* embed.h - bytes inside a page: as gzip where the cryptographic library was built with zlib, in base64, and their
 * digest.
 *
 * Spec:   RFC 1952 (gzip, no time, no name), RFC 4648 (base64), FIPS 180-4 (SHA-256).
 * Owns:   outputs fill the caller's structs.
 * Errors: PQ_E_UNSUPPORTED (no zlib), PQ_E_CRYPTO, PQ_E_NOMEM, PQ_E_TOO_LONG.
 */
#ifndef PQ_REPORT_EMBED_H
#define PQ_REPORT_EMBED_H

#include "report/text.h"

PQ_MUST_CHECK int pq_gzip(struct pq_span in, struct pq_buf *out);
void pq_out_base64(struct pq_out *o, struct pq_span bytes);

struct pq_digest {
    uint8_t at[32];
    char hex[65];
};
PQ_MUST_CHECK int pq_digest(struct pq_span bytes, struct pq_digest *out);

#endif
