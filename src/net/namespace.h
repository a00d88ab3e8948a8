/* namespace.h - a private part of the machine: namespaces in which an experiment's hosts live and with which they
 * vanish.
 *
 * Spec:   namespaces(7), user_namespaces(7), pid_namespaces(7), PR_SET_PDEATHSIG in prctl(2).
 * Owns:   pq_namespace_run() owns what it makes: when it returns, or when its caller is killed, the kernel has ended
 * every process in there and removed every namespace, link and mount. A network namespace's descriptor is the caller's.
 * Errors: PQ_E_PERMISSION (neither root nor user namespaces: why says what to do), PQ_E_UNSUPPORTED, PQ_E_NOMEM,
 * PQ_E_IO, PQ_E_LIMIT (the process in there ended without a result: killed, or out of memory).
 */
#ifndef PQ_NET_NAMESPACE_H
#define PQ_NET_NAMESPACE_H

#include "base/error.h"

/* What runs inside, as process 1 of a pid namespace and with all rights there, be the caller root or not: a fresh
 * /proc, an empty /run in memory, no network but its own. stop_fd becomes readable when the caller was asked to stop
 * (SIGINT, SIGTERM, SIGHUP); body then ends soon, or is killed at the second time of asking. Only its return value,
 * *why and files that it writes outside of /run and /proc reach the caller. */
typedef int pq_namespace_body(void *context, int stop_fd, struct pq_why *why);

PQ_MUST_CHECK int pq_namespace_run(pq_namespace_body *body, void *context, struct pq_why *why);

/* A new network namespace with its loopback up, IPv6 off until there is a use for it, no route out, and also there as
 * /run/netns/NAME for ip(8). The caller must be inside. */
PQ_MUST_CHECK int pq_netns_new(const char *name, int *out_fd, struct pq_why *why);
/* Moves the calling thread. */
PQ_MUST_CHECK int pq_netns_enter(int fd, struct pq_why *why);
/* Calls f with the calling thread moved into the namespace, and moves it back. */
PQ_MUST_CHECK int pq_netns_within(int fd, int (*f)(void *context, struct pq_why *why), void *context,
                                  struct pq_why *why);

#endif
