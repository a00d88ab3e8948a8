/* host.h - where a run takes place: facts about the machine and the libraries, and its drift.
 *
 * Spec:   proc_cpuinfo(5), proc_stat(5), os-release(5).
 * Owns:   nothing.
 * Errors: none; a fact that can't be found out is "unknown" or 0.
 */
#ifndef PQ_LAB_HOST_H
#define PQ_LAB_HOST_H

#include <stddef.h>
#include <stdint.h>

enum { PQ_FACT_TEXT = 128, PQ_LIBRARY_MAX = 8 };

struct pq_host_facts {
    char cpu[PQ_FACT_TEXT], kernel[PQ_FACT_TEXT], distribution[PQ_FACT_TEXT];
    char virtual_machine[PQ_FACT_TEXT]; /* "yes" with the maker where it is told, "no sign of it" */
    int64_t cores, memory_kib;          /* cores that this process may use */
    struct {
        const char *name;
        char version[32];
    } libraries[PQ_LIBRARY_MAX];
    size_t library_count;
};
void pq_host_facts(struct pq_host_facts *out);

/* A fixed piece of CPU work (SHA-256 of 16 MiB): how long it took shows how fast the machine is just now. */
int64_t pq_host_work_ns(void);
/* CPU time that the hypervisor gave to others, since boot, of all cores. */
int64_t pq_host_steal_ns(void);

#endif
