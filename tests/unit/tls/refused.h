/* refused.h - a handshake that must fail: why, as each side sees it.
 *
 * Spec:   none.
 * Owns:   nothing.
 * Errors: none: assertions.
 */
#ifndef PQ_TESTS_TLS_REFUSED_H
#define PQ_TESTS_TLS_REFUSED_H

#include "pair.h"

struct expected {
    int code;
    enum pq_tls_reason reason;
    const char *says;
};

/* The peer's alert says this. */
struct expected refused_alert(const char *text);
struct expected refused_handshake(void); /* handshake_failure */

void refused_expect(const char *who, struct pq_tls *t, int code, struct expected e);
/* Both sides fail as expected, stay so, and no byte of data passes. */
void refused_run(struct pq_crypto *c, const struct pq_tls_settings *client, const struct pq_tls_settings *server,
                 const char *name, struct expected at_client, struct expected at_server);

#endif
