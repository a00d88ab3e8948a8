/* shared.h - memory that the supervisor and all its workers share: what limits and counts hold over all of them.
 *
 * Spec:   made before the first fork (mmap(2), MAP_SHARED | MAP_ANONYMOUS). A slot has one writer at a time, the relay
 *         thread of the worker that has it. When a worker dies the supervisor clears the slot's gauges; its counters
 *         stay, and the next worker in that slot goes on from there.
 * Owns:   pq_shared_new() gives memory that lives until pq_shared_free() in each process.
 * Errors: PQ_E_NOMEM.
 */
#ifndef PQ_PROXY_SHARED_H
#define PQ_PROXY_SHARED_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "proxy/admission.h"
#include "proxy/config.h"
#include "proxy/counters.h"

/* Retired workers keep their slots while their last connections go on. */
enum { PQ_SHARED_SLOTS = 2 * PQ_PROXY_WORKERS_MAX };

enum pq_shared_state { PQ_SHARED_STARTING, PQ_SHARED_SERVING, PQ_SHARED_DRAINING };

struct pq_worker_slot {
    _Atomic int pid; /* 0: nobody's */
    _Atomic uint64_t restarts;
    _Atomic uint64_t log_dropped; /* lines of its log that were not taken */
    _Atomic int64_t open;         /* connections now */
    _Atomic int wanted, ready;    /* there should be a worker here; it serves */
    struct pq_proxy_counters counters;
};

struct pq_shared {
    _Atomic int log_level;             /* enum pq_log_level, of all processes */
    _Atomic uint64_t generation;       /* the newest that all workers have */
    _Atomic uint64_t log_dropped;      /* the supervisor's own */
    _Atomic uint32_t used;             /* slots up to here have been used: memory of the others is not touched */
    struct pq_tls_ticket_keys tickets; /* the supervisor's to write */
    struct pq_admission_table admission;
    _Atomic int state;       /* enum pq_shared_state */
    _Atomic int64_t started; /* unix seconds */
    _Atomic uint64_t reloads, reloads_refused;
    _Atomic int reload_refused; /* the latest one was */
    struct pq_worker_slot worker[PQ_SHARED_SLOTS];
};

PQ_MUST_CHECK int pq_shared_new(struct pq_shared **out);
void pq_shared_free(struct pq_shared *s);
PQ_DEFINE_FREEP(struct pq_shared, pq_shared_free)

void pq_shared_use(struct pq_shared *s, size_t slot);
/* Connections open in all workers. */
int64_t pq_shared_open(const struct pq_shared *s);
uint64_t pq_shared_log_dropped(const struct pq_shared *s);
/* What all workers counted, dead ones included. */
void pq_shared_sum(const struct pq_shared *s, struct pq_proxy_counters *out);
/* Its worker is dead: the gauges go, the counters stay. */
void pq_shared_clear(struct pq_worker_slot *slot);

#endif
