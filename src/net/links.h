/* links.h - interfaces and routes by ip(8), what an interface counted, and its offloads.
 *
 * Spec:   ip(8) with -batch; proc_net(5), /proc/net/dev; SIOCETHTOOL in netdevice(7).
 * Owns:   nothing.
 * Errors: PQ_E_NOENT (no ip command), PQ_E_UNSUPPORTED and the like: why holds what ip itself said; PQ_E_NOT_FOUND
 *         (no such interface), PQ_E_SYNTAX.
 */
#ifndef PQ_NET_LINKS_H
#define PQ_NET_LINKS_H

#include <stdint.h>

#include "base/error.h"

/* Runs the lines of batch, one ip command each ("link set lo up"), in the network namespace netns (-1: the caller's).
 */
PQ_MUST_CHECK int pq_ip_batch(int netns, const char *batch, struct pq_why *why);

struct pq_link_counts {
    uint64_t bytes_in, packets_in, bytes_out, packets_out;
};
PQ_MUST_CHECK int pq_link_counts(int netns, const char *device, struct pq_link_counts *out, struct pq_why *why);

/* Makes the kernel cut segments before they reach the interface, so that its counters see what a wire would. */
PQ_MUST_CHECK int pq_link_no_offload(int netns, const char *device, struct pq_why *why);

#endif
