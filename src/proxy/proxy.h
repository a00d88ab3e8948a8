/* proxy.h - the sidecar: listeners on a loop of its own, until it is told to stop.
 *
 * Spec:   docs/architecture.md, "The sidecar". SIGTERM and SIGINT drain: no new connections, the open ones may finish
 *         until timeouts.drain, what is left then is reset; a second signal ends at once.
 * Owns:   a proxy owns its listening sockets (a unix socket's path is removed at the end), TLS contexts and
 * connections; configuration and pq_crypto outlive it. Errors: PQ_E_CONFIG, PQ_E_NOENT and the like (a file: why names
 * listener and file), what pq_tcp_listen() gives, PQ_E_NOMEM.
 */
#ifndef PQ_PROXY_PROXY_H
#define PQ_PROXY_PROXY_H

#include <stdio.h>

#include "proxy/config.h"
#include "proxy/counters.h"

struct pq_proxy;

/* Reads all that the configuration names and checks it; opens no socket. */
PQ_MUST_CHECK int pq_proxy_new(struct pq_crypto *crypto, const struct pq_proxy_config *config, struct pq_proxy **out,
                               struct pq_why *why);
void pq_proxy_free(struct pq_proxy *p);
PQ_DEFINE_FREEP(struct pq_proxy, pq_proxy_free)

PQ_MUST_CHECK int pq_proxy_listen(struct pq_proxy *p, struct pq_why *why);
/* One line a listener, "ready NAME ADDRESS". */
PQ_MUST_CHECK int pq_proxy_ready(const struct pq_proxy *p, FILE *out);
/* Serves until drained: 0, or PQ_E_INTERRUPTED after a second signal. */
PQ_MUST_CHECK int pq_proxy_run(struct pq_proxy *p);

#endif
