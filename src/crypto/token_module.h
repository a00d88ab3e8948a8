/* token_module.h - a PKCS#11 module asked directly: whether it is one, which tokens it has, whether a login succeeded.
 *
 * OpenSSL's provider does the work; it tells of no failure more than that there is no key.
 *
 * Spec:   PKCS #11 v2.40: CK_FUNCTION_LIST, CK_TOKEN_INFO, CK_SESSION_INFO as on systems where CK_ULONG is unsigned
 *         long; C_GetSlotList, C_GetTokenInfo, C_GetSessionInfo.
 * Owns:   a module stays loaded until pq_token_module_close(). It must be initialised, which the provider does.
 * Errors: PQ_E_CONFIG: why says what is wrong and what to do.
 */
#ifndef PQ_CRYPTO_TOKEN_MODULE_H
#define PQ_CRYPTO_TOKEN_MODULE_H

#include "crypto/token.h"

struct pq_token_module {
    void *library;
    const struct pq_ck_functions *call;
};

PQ_MUST_CHECK int pq_token_module_open(const char *path, struct pq_token_module *out, struct pq_why *why);
void pq_token_module_close(struct pq_token_module *m);

/* Whether the provider may try: a token that fits is there, not locked, and a PIN is at hand where it wants one. */
PQ_MUST_CHECK int pq_token_module_ready(const struct pq_token_module *m, const struct pq_token_uri *uri, bool has_pin,
                                        struct pq_why *why);
/* The sentence for a key that was not found: a login that failed, or no such key. Returns PQ_E_CONFIG. */
int pq_token_module_blame(const struct pq_token_module *m, const struct pq_token_uri *uri, struct pq_why *why);
/* 0 where it can be initialised (and is not now); else PQ_E_CONFIG and the sentence. */
PQ_MUST_CHECK int pq_token_module_try(const struct pq_token_module *m, const char *path, struct pq_why *why);

#endif
