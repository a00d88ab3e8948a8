/* topology.h - an experiment's hosts: network namespaces, each with one interface "eth0" on a common subnet.
 *
 * Spec:   RFC 2544 addresses, 198.18.0.0/24 of the lab; no route out; neighbours are known beforehand, and offloads
 * off, so that the interface's counters hold the experiment's own bytes as a wire would see them. Owns:
 * pq_topology_free() closes the namespaces; the kernel removes them when the last process in them has ended. Errors: as
 * net/namespace.h and net/links.h.
 */
#ifndef PQ_LAB_TOPOLOGY_H
#define PQ_LAB_TOPOLOGY_H

#include <stddef.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "net/links.h"

enum { PQ_HOST_MAX = 16 };
#define PQ_HOST_DEVICE "eth0"

struct pq_host {
    const char *name;
    int netns;
    char address[16]; /* "198.18.0.1" */
};

struct pq_topology;

/* Two hosts share a cable; more are plugged into a switch. names must outlive the topology; label tells topologies of a
 * run apart (at most 8 letters). */
PQ_MUST_CHECK int pq_topology_new(const char *label, const char *const *names, size_t count, struct pq_topology **out,
                                  struct pq_why *why);
void pq_topology_free(struct pq_topology *t);
PQ_DEFINE_FREEP(struct pq_topology, pq_topology_free)

/* NULL where there is none of that name. */
const struct pq_host *pq_topology_host(const struct pq_topology *t, const char *name);
/* The congestion window that every host's new connections start with, in segments; 0: the kernel's own. */
PQ_MUST_CHECK int pq_topology_window(struct pq_topology *t, unsigned segments, struct pq_why *why);

#endif
