/* security.h - how a function and the load generator protect their connections: not at all, or by mutual TLS.
 *
 * Spec:   TS 33.501, 13.1 (TLS between network functions), RFC 9113, 3.2 (ALPN "h2").
 * Owns:   the TLS contexts and the crypto context behind them.
 * Errors: PQ_E_USAGE (a certificate without key or CA), those of pq_tls_context_new().
 */
#ifndef PQ_CORE5G_SECURITY_H
#define PQ_CORE5G_SECURITY_H

#include "tls/tls.h"

struct pq_sbi_security {
    const char *certificate, *key, *ca; /* PEM files; all NULL: plain */
    int mode;                           /* enum pq_mode */
    int64_t level;                      /* 1, 3, 5 */
};

struct pq_sbi_tls {
    struct pq_crypto *crypto;
    struct pq_tls_context *server, *client; /* NULL where plain */
};
/* A context for each role that is asked for. */
PQ_MUST_CHECK int pq_sbi_tls_open(const struct pq_sbi_security *how, bool server, bool client, struct pq_sbi_tls *out,
                                  struct pq_why *why);
void pq_sbi_tls_close(struct pq_sbi_tls *t);

#endif
