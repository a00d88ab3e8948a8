/* identity.h - subscriber identities, serving network names, and hexadecimal texts of the SBI.
 *
 * Spec:   TS 23.003, 2.2A (SUPI), 28.7.3 (SUCI in NAI-less form), TS 29.571 (Supi, SupiOrSuci), TS 24.501, 9.12.1
 *         (serving network name). Of the SUCI protection schemes only the null scheme: others need the home network's
 *         private key.
 * Owns:   nothing.
 * Errors: PQ_E_SYNTAX; PQ_E_UNSUPPORTED (another protection scheme).
 */
#ifndef PQ_CORE5G_IDENTITY_H
#define PQ_CORE5G_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { PQ_SUPI_MAX = 21 /* "imsi-" and 15 digits, NUL */ };

/* "imsi-001010000000001", or "suci-0-001-01-0000-0-0-0000000001" turned into that. */
PQ_MUST_CHECK int pq_supi_parse(const char *text, char supi[PQ_SUPI_MAX]);
/* "5G:mnc001.mcc001.3gppnetwork.org" */
bool pq_network_name_is_valid(const char *text);

/* Exactly size bytes from 2 * size digits. */
PQ_MUST_CHECK int pq_hex_read(const char *text, uint8_t *out, size_t size);
/* out holds 2 * size + 1 bytes. */
void pq_hex_write(const uint8_t *in, size_t size, char *out);

#endif
