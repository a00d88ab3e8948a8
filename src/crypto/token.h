/* token.h - private keys that stay in a PKCS#11 token and are named by URI; OpenSSL's pkcs11 provider uses them.
 *
 *   pkcs11:token=lab;object=leaf?pin-source=file:/etc/pqplane/pin
 *
 * Spec:   RFC 7512: path attributes token, manufacturer, serial, model, object, id, type (private), and others that are
 *         left to the provider; of the query only pin-source, a whole path with or without "file:". A PIN in the URI
 *         itself is refused, for configurations are shown. PKCS #11 v2.40, 5.4 to 5.6, for what went wrong.
 * Owns:   a parsed URI owns its texts until pq_token_uri_free(). The key is the caller's; it works as long as the
 *         pq_crypto lives, which loads provider and module once and keeps each key that was found. Called by one
 *         thread at a time.
 * Errors: PQ_E_CONFIG (the URI, the module, token, key or PIN: why says which and what to do), PQ_E_UNSUPPORTED (a key
 *         that a sealed pq_crypto has not kept), PQ_E_CRYPTO, PQ_E_NOMEM. A wrong PIN is tried once: tokens lock.
 */
#ifndef PQ_CRYPTO_TOKEN_H
#define PQ_CRYPTO_TOKEN_H

#include <stdbool.h>

#include "base/bytes.h"
#include "crypto/crypto.h"

enum { PQ_TOKEN_URI_MAX = 1024, PQ_TOKEN_PIN_MAX = 255 }; /* bytes */

struct pq_token_uri {
    char *plain;    /* without its query, with type=private: what the provider gets, and messages show */
    char *pin_file; /* NULL: none named */
    /* What a token must be, decoded; NULL: any. */
    char *token, *manufacturer, *serial, *model;
};

bool pq_token_is_uri(const char *key);
PQ_MUST_CHECK int pq_token_uri_parse(const char *uri, struct pq_token_uri *out, struct pq_why *why);
void pq_token_uri_free(struct pq_token_uri *u);

/* module: a path, or NULL (which is an error that says what to do). pin: the contents of the PIN's file; one line break
 * at its end does not count; empty where there is none. certificate: the key's (NULL: any will do). */
PQ_MUST_CHECK int pq_token_key(struct pq_crypto *c, const char *module, const struct pq_token_uri *uri,
                               struct pq_span pin, const X509 *certificate, EVP_PKEY **out, struct pq_why *why);

#endif
