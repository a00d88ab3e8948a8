/* pki_name.h - names of certificates: file names, common names, subject alternative names.
 *
 * Spec:   RFC 5280, section 4.2.1.6; host names of RFC 1123, section 2.1; an NF instance id is a UUID (RFC 9562) in the
 * URI "urn:uuid:..." (TS 33.310, 6.1.3c). Owns:   returned names are the caller's. Errors: PQ_E_INVALID with what would
 * be right, PQ_E_NOMEM.
 */
#ifndef PQ_CRYPTO_PKI_NAME_H
#define PQ_CRYPTO_PKI_NAME_H

#include "base/config.h"
#include "crypto/crypto.h"
#include "crypto/ossl.h"

enum {
    PQ_PKI_COMMON_NAME_MAX = 64, /* ub-common-name */
    PQ_PKI_SAN_MAX = 64,
    PQ_PKI_URI_MAX = 2048
};

/* A name that is both a file's and a certificate's: letters, digits, '.', '_', '-'; not one that the authority uses. */
PQ_MUST_CHECK int pq_pki_name_check(const char *name, struct pq_why *why);
PQ_MUST_CHECK int pq_pki_common_name(const char *text, X509_NAME **out, struct pq_why *why);
/* "DNS:nrf.example", "IP:198.18.0.1", "URI:urn:uuid:...", "NF:<uuid>"; NULL for an empty list. */
PQ_MUST_CHECK int pq_pki_san(const struct pq_strings *san, GENERAL_NAMES **out, struct pq_why *why);

#endif
