/* supervisor.h - the sidecar's first process: opens the listening sockets, starts the workers that accept from them,
 * starts those anew that died, and stops them.
 *
 * Spec:   docs/architecture.md, "The sidecar". SIGTERM and SIGINT drain: no new connections, the open ones may finish
 *         until timeouts.drain, what is left then is reset; a second signal ends at once. SIGHUP reads everything anew.
 *         SIGUSR2 starts the program as it lies there now in this one's place; connections stay with this one until
 *         they end, or for timeouts.retire.
 * Owns:   a supervisor owns its listening sockets (a unix socket's path is removed at the end), its children and the
 *         memory that they share.
 * Errors: PQ_E_CONFIG, PQ_E_NOENT and the like (a file: why names listener and file), what pq_tcp_listen() gives,
 *         PQ_E_INTERRUPTED (a second signal), PQ_E_NOMEM.
 */
#ifndef PQ_PROXY_SUPERVISOR_H
#define PQ_PROXY_SUPERVISOR_H

#include "base/error.h"

struct pq_supervisor_how {
    const char *config;
    const char *log_file; /* NULL: standard error */
    int ready_fd; /* gets a line a listener, "ready NAME ADDRESS", once all workers serve; then closed; -1: none */
};

/* Only reads the configuration and all that it names, and checks it. */
PQ_MUST_CHECK int pq_supervisor_check(const char *config, struct pq_why *why);
/* Serves until drained. */
PQ_MUST_CHECK int pq_supervisor_run(const struct pq_supervisor_how *how, struct pq_why *why);

#endif
