/* message.h - one message of a socket between two processes, with descriptors beside it.
 *
 * Spec:   unix(7), SOCK_SEQPACKET and SCM_RIGHTS: a message arrives whole or not at all, and never blocks the caller.
 * Owns:   sent descriptors stay the caller's, received ones are the caller's too (close-on-exec).
 * Errors: PQ_E_WANT_READ, PQ_E_WANT_WRITE (later), PQ_E_CLOSED (the other end is gone), PQ_E_TOO_LONG (it does not fit
 *         what the caller has room for, and is lost with its descriptors), PQ_E_LIMIT (descriptors to send).
 */
#ifndef PQ_NET_MESSAGE_H
#define PQ_NET_MESSAGE_H

#include <stddef.h>
#include <sys/uio.h>

#include "base/error.h"

enum { PQ_MESSAGE_FDS = 4 }; /* of one message */

PQ_MUST_CHECK int pq_message_send(int socket, struct iovec *parts, size_t count, const int *fds, size_t fd_count);
/* *len is what came in all parts together, *fd_count at most room. */
PQ_MUST_CHECK int pq_message_receive(int socket, struct iovec *parts, size_t count, size_t *len, int *fds, size_t room,
                                     size_t *fd_count);

#endif
