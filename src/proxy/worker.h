/* worker.h - one worker process: accepts from the shared listening sockets and carries its connections.
 *
 * Spec:   docs/architecture.md, "The sidecar". It does what the supervisor's messages say; when the supervisor is gone
 *         it drains: it stops accepting, its connections may finish until timeouts.drain, and it ends. A generation is
 *         made on a thread beside the relay and takes effect all at once.
 * Owns:   a worker owns its end of the control socket, its copies of the listening sockets, its generations and
 *         connections.
 * Errors: told to the supervisor (PQ_CONTROL_REFUSED), and by the exit status.
 */
#ifndef PQ_PROXY_WORKER_H
#define PQ_PROXY_WORKER_H

#include "proxy/contain.h"
#include "proxy/shared.h"

struct pq_worker_how {
    struct pq_shared *shared;
    size_t slot;
    int control;
    int log_fd; /* what PQ_CONTROL_LOG replaces; -1: the log can't change */
    const struct pq_contain *contain;
    int packed; /* the bundle, where it names keys in a token: they are looked for before the worker is contained; -1 */
};

/* In the new process, after the fork: serves until told to stop, and gives the exit status. */
int pq_worker_run(const struct pq_worker_how *how);
/* Connections that a worker of so many listeners has descriptors for, under this process's limit; at least one. */
int64_t pq_worker_connections(size_t listeners);

#endif
