/* restart.h - when a worker that died is started again: at once the first time, then later and later.
 *
 * Spec:   no wait, then 1 s, doubled each time up to 30 s; a minute of life begins anew.
 * Owns:   nothing.
 * Errors: none.
 */
#ifndef PQ_PROXY_RESTART_H
#define PQ_PROXY_RESTART_H

#include <stdint.h>

/* Zero-initialise; times are of one monotonic clock, in ns. */
struct pq_restart {
    int64_t started; /* the owner sets it at each start */
    int64_t wait;    /* before the next one */
};

/* It died at now: how long to wait with starting it again. */
int64_t pq_restart_died(struct pq_restart *r, int64_t now);

#endif
