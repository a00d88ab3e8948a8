/* closing.h - the log line of a connection's end, with the same fields whether it was carried alone or in a tunnel.
 *
 * Spec:   docs/guide.md, "What the proxy says".
 * Owns:   nothing.
 * Errors: none.
 */
#ifndef PQ_PROXY_CLOSING_H
#define PQ_PROXY_CLOSING_H

#include "base/log.h"
#include "net/tcp.h"
#include "proxy/config.h"
#include "tls/tls.h"

struct pq_closing {
    const char *event; /* "connection closed", "handshake failed", "tunnel closed" */
    enum pq_log_level level;
    const struct pq_proxy_listener *how;
    const struct pq_address *local, *peer; /* NULL: none */
    const struct pq_tls *tls;              /* NULL: none */
    int64_t tunnel;                        /* its number; 0: carried alone */
    int64_t connect_ns, handshake_ns, started;
    uint64_t up, down;
    const char *reason, *detail; /* detail may be NULL */
};

void pq_closing_log(const struct pq_closing *c);

#endif
