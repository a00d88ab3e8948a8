/* pki_cert.h - one certificate or revocation list, built and signed.
 *
 * Spec:   RFC 5280, sections 4 and 5; key usages as RFC 9881 and RFC 9909 allow them: a leaf signs and never
 *         enciphers. Key identifiers are RFC 7093's method 1 (SHA-256, 160 bits), so that SHA-1 is not needed.
 * Owns:   returned objects are the caller's.
 * Errors: PQ_E_INVALID (validity), PQ_E_CRYPTO, PQ_E_NOMEM.
 */
#ifndef PQ_CRYPTO_PKI_CERT_H
#define PQ_CRYPTO_PKI_CERT_H

#include <stdint.h>
#include <time.h>

#include "crypto/ossl.h"
#include "crypto/pki.h"

enum { PQ_PKI_SERIAL_BYTES = 20 }; /* RFC 5280, section 4.1.2.2: at most 20 octets */

struct pq_pki_template {
    const X509_NAME *subject;
    EVP_PKEY *key;      /* the subject's */
    GENERAL_NAMES *san; /* may be NULL */
    time_t begin, end;
    bool ca;
    long path_length; /* of a CA */
};
/* Signed by issuer with its key; issuer NULL: signed by itself. */
PQ_MUST_CHECK int pq_pki_cert_new(struct pq_crypto *c, const struct pq_pki_template *t, X509 *issuer,
                                  EVP_PKEY *issuer_key, X509 **out, struct pq_why *why);

/* A list with the entries of old (may be NULL) and one for each of serials, numbered one above old's. */
PQ_MUST_CHECK int pq_pki_crl_new(struct pq_crypto *c, X509 *issuer, EVP_PKEY *issuer_key, X509_CRL *old,
                                 ASN1_INTEGER *const *serials, size_t count, time_t begin, time_t end, X509_CRL **out,
                                 struct pq_why *why);

#endif
