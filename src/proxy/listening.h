/* listening.h - the sockets that the supervisor listens on and all workers accept from.
 *
 * Spec:   a unix socket's path is removed with its socket, unless somebody else has bound one of their own there.
 * Owns:   pq_listening_open() gives a descriptor that pq_listening_close() closes. The name is the configuration's.
 * Errors: what pq_tcp_listen() gives.
 */
#ifndef PQ_PROXY_LISTENING_H
#define PQ_PROXY_LISTENING_H

#include <sys/types.h>

#include "proxy/config.h"

struct pq_listening {
    struct pq_address at; /* as configured */
    int fd;
    dev_t device; /* of a unix socket's path, with its inode: while they hold, the path is ours */
    ino_t inode;  /* 0: not known */
};

PQ_MUST_CHECK int pq_listening_open(const struct pq_proxy_listener *l, struct pq_listening *out, struct pq_why *why);
/* Other processes may go on accepting from the socket; its path goes now. */
void pq_listening_close(struct pq_listening *l);

#endif
