/* process.h - the programs of a cell: started into a host, watched, stopped, and what they cost.
 *
 * Spec:   pidfd_open(2), clock_getcpuclockid(3), proc_pid_stat(5), proc_pid_status(5).
 * Owns:   a set owns its processes: pq_processes_stop() ends and forgets them all.
 * Errors: PQ_E_CLOSED (a process ended when it should not: why ends with its last words), PQ_E_TIMEOUT,
 * PQ_E_INTERRUPTED (the run was asked to stop), PQ_E_LIMIT, PQ_E_NOMEM, PQ_E_IO.
 */
#ifndef PQ_LAB_PROCESS_H
#define PQ_LAB_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

enum { PQ_PROCESS_MAX = 32, PQ_PROCESS_NAME = 32, PQ_PROCESS_PATH = 128 };

struct pq_process {
    char name[PQ_PROCESS_NAME]; /* for messages: "nrf sidecar" */
    char log[PQ_PROCESS_PATH];  /* what it writes to its standard output and error */
    pid_t pid;
    int pidfd, ready_fd;
    bool ended;
    int status; /* of waitpid(2), once ended */
};

struct pq_processes {
    struct pq_process at[PQ_PROCESS_MAX];
    size_t count;
    int stop_fd; /* readable: stop waiting, PQ_E_INTERRUPTED; -1: none */
};

struct pq_process_start {
    const char *name, *log;
    const char *program;
    const char *const *argv; /* NULL-terminated; argv[0] first */
    int netns;               /* -1: the caller's */
    bool ready;              /* "--ready-fd N" is appended */
};
/* *out points into the set. */
PQ_MUST_CHECK int pq_process_start(struct pq_processes *set, const struct pq_process_start *how,
                                   struct pq_process **out, struct pq_why *why);
/* Until it has written its ready lines. */
PQ_MUST_CHECK int pq_process_await_ready(struct pq_processes *set, struct pq_process *p, int64_t timeout_ns,
                                         struct pq_why *why);
/* Until it has ended by itself with status 0. */
PQ_MUST_CHECK int pq_process_await_end(struct pq_processes *set, struct pq_process *p, int64_t timeout_ns,
                                       struct pq_why *why);
/* Whether all others are still there. */
PQ_MUST_CHECK int pq_processes_check(struct pq_processes *set, struct pq_why *why);
/* SIGTERM to each, the last started first, and SIGKILL if it is still there after grace; reaps all, orphans too. Fails
 * where one had to be killed or failed while it ended; the set is empty in any case. */
int pq_processes_stop(struct pq_processes *set, int64_t grace_ns, struct pq_why *why);

/* Of a process and its descendants, those that it has reaped included (to the kernel's tick, 10 ms mostly). */
struct pq_process_cost {
    int64_t cpu_ns;
    int64_t peak_rss_kib; /* the living ones' peaks, added up */
};
PQ_MUST_CHECK int pq_process_cost(const struct pq_process *p, struct pq_process_cost *out, struct pq_why *why);

#endif
