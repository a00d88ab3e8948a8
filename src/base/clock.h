/* clock.h - time. Code that must be replayed takes the time as an argument instead of calling these.
 *
 * Spec:   clock_gettime(2).
 * Owns:   nothing.
 * Errors: none.
 */
#ifndef PQ_BASE_CLOCK_H
#define PQ_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#define PQ_NS_PER_US 1000LL
#define PQ_NS_PER_MS 1000000LL
#define PQ_NS_PER_S  1000000000LL

int64_t pq_clock_ns(void);            /* CLOCK_MONOTONIC */
int64_t pq_clock_wall_ns(void);       /* CLOCK_REALTIME, since 1970-01-01T00:00:00Z */
int64_t pq_clock_thread_cpu_ns(void); /* CPU time of the calling thread */
int64_t pq_clock_process_cpu_ns(void);
/* RFC 3339 in UTC with milliseconds, "2026-11-30T13:12:19.123Z"; out holds at least 25 bytes. */
void pq_clock_rfc3339(int64_t wall_ns, char *out, size_t size);

#endif
