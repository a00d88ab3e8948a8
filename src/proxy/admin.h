/* admin.h - the admin process: what the sidecar does, seen from outside, and a few things to tell it.
 *
 *   GET  /metrics /healthz /ready /connections /config /log-level
 *   POST /drain /reload
 *   PUT  /log-level
 *
 * It is a process of its own, contained like a worker, so that nothing that comes over HTTP meets a key or a byte of
 * traffic: it reads counters in shared memory and asks the supervisor for the rest.
 *
 * Spec:   docs/guide.md, "Watch it". Ends when the supervisor's end of the control socket closes, or when it says
 *         PQ_CONTROL_END.
 * Owns:   takes both descriptors over.
 * Errors: told to the supervisor (PQ_CONTROL_REFUSED), and by the exit status.
 */
#ifndef PQ_PROXY_ADMIN_H
#define PQ_PROXY_ADMIN_H

#include "proxy/contain.h"
#include "proxy/shared.h"

struct pq_admin_how {
    struct pq_shared *shared;
    int control, listening;
    int log_fd;                       /* what PQ_CONTROL_LOG replaces; -1: the log can't change */
    const struct pq_contain *contain; /* NULL in tests: not at all */
};
/* In the new process, after the fork: serves until told to end, and gives the exit status. */
int pq_admin_run(const struct pq_admin_how *how);

#endif
