/* crypto.h - the one place where OpenSSL's library context and its providers are set up.
 *
 * Spec:   OpenSSL 3.5 or later, provider(7).
 * Owns:   a struct pq_crypto owns its OSSL_LIB_CTX and loaded providers; everything made from it must be freed first.
 * Errors: PQ_E_CRYPTO (a provider can't be loaded: why names it and the reason), PQ_E_NOMEM.
 */
#ifndef PQ_CRYPTO_CRYPTO_H
#define PQ_CRYPTO_CRYPTO_H

#include <openssl/types.h>
#include <stdbool.h>

#include "base/cleanup.h"
#include "base/error.h"

struct pq_crypto;

/* OPENSSL_CONF is honoured, as in any OpenSSL program: the providers that it activates are used. */
PQ_MUST_CHECK int pq_crypto_new(struct pq_crypto **out, struct pq_why *why);
void pq_crypto_free(struct pq_crypto *c);
PQ_DEFINE_FREEP(struct pq_crypto, pq_crypto_free)

/* Adds a provider by name or path beside those there are ("oqsprovider"). */
PQ_MUST_CHECK int pq_crypto_load(struct pq_crypto *c, const char *provider, struct pq_why *why);
/* OpenSSL's pkcs11 provider with a PKCS#11 module; once, later calls must name the same. Its algorithms are used for
 * keys in the token alone. */
PQ_MUST_CHECK int pq_crypto_load_token(struct pq_crypto *c, const char *module, struct pq_why *why);
/* A key of a token, by name, for as long as the pq_crypto lives; NULL: none is kept. Keeping replaces. */
EVP_PKEY *pq_crypto_kept_key(const struct pq_crypto *c, const char *name);
PQ_MUST_CHECK int pq_crypto_keep_key(struct pq_crypto *c, const char *name, EVP_PKEY *key, struct pq_why *why);
/* From now on no other key can be looked for: PQ_E_UNSUPPORTED. For a process that is contained. */
void pq_crypto_seal(struct pq_crypto *c);
bool pq_crypto_is_sealed(const struct pq_crypto *c);
OSSL_LIB_CTX *pq_crypto_libctx(const struct pq_crypto *c);

/* The sentence for OpenSSL's oldest queued error, and the queue emptied: "context: reason". Returns PQ_E_NOMEM for its
 * allocation failures, else code. */
int pq_crypto_why(struct pq_why *why, int code, const char *context, ...) PQ_PRINTF(3, 4);

#endif
