/* pki_key.h - private keys: made by algorithm name, kept as PKCS#8 PEM.
 *
 * Spec:   PKCS#8 (RFC 5958); of the forms that RFC 9881 gives an ML-DSA key any is read, and seed with key is written.
 * Owns:   a returned key is the caller's. A PEM text is secret: free it with pq_buf_wipe().
 * Errors: PQ_E_INVALID (no such algorithm; why lists near ones), PQ_E_CRYPTO, PQ_E_NOENT and the like (file),
 * PQ_E_NOMEM.
 */
#ifndef PQ_CRYPTO_PKI_KEY_H
#define PQ_CRYPTO_PKI_KEY_H

#include "base/bytes.h"
#include "crypto/crypto.h"

enum { PQ_PKI_FILE_CAP = 4 << 20, PQ_PKI_KEY_FILE_CAP = 64 << 10 };

/* "p256", "mldsa65", ... as in pki.h; any other name is asked of the providers. */
PQ_MUST_CHECK int pq_pki_key_new(struct pq_crypto *c, const char *algorithm, EVP_PKEY **out, struct pq_why *why);
PQ_MUST_CHECK int pq_pki_key_pem(EVP_PKEY *key, struct pq_buf *out, struct pq_why *why);
PQ_MUST_CHECK int pq_pki_key_load(struct pq_crypto *c, const char *path, EVP_PKEY **out, struct pq_why *why);
/* A digest as strong as the key; NULL where the scheme hashes by itself (Ed25519, ML-DSA, SLH-DSA). */
const char *pq_pki_key_digest(EVP_PKEY *key);

/* The names of pki.h's table, NULL-terminated. */
const char *const *pq_pki_algorithms(void);

#endif
