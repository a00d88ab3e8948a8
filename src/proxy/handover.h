/* handover.h - how a supervisor passes what it holds to the one that takes its place: listening sockets, the keys of
 * session tickets, and later what is to be done with the connections that stay behind.
 *
 *   old to new:  "sockets 1", then for each "socket NAME ADDRESS DEVICE INODE" with its descriptor, "keys HEX", "end"
 *   new to old:  "ready", or "refused WHY"
 *   new to old:  "reload", "log", "drain", "stop", whenever it does that itself
 *
 * Spec:   unix(7), SOCK_SEQPACKET. The two may be of different versions, so this is text of its own: an unknown word is
 *         ignored, a change that old ones can't ignore gets another number after "sockets".
 * Owns:   sent descriptors stay the caller's, received ones are the receiver's.
 * Errors: PQ_E_WANT_READ, PQ_E_WANT_WRITE, PQ_E_CLOSED (the other one is gone), PQ_E_TOO_LONG, PQ_E_SYNTAX.
 */
#ifndef PQ_PROXY_HANDOVER_H
#define PQ_PROXY_HANDOVER_H

#include "proxy/listening.h"

enum { PQ_HANDOVER_TEXT = 8192, PQ_HANDOVER_VERSION = 1 };

/* fd -1: none. */
PQ_MUST_CHECK int pq_handover_send(int channel, const char *text, int fd);
PQ_MUST_CHECK int pq_handover_receive(int channel, char text[PQ_HANDOVER_TEXT], int *fd);

/* "NAME ADDRESS DEVICE INODE", what is known of a socket beside its descriptor. */
PQ_MUST_CHECK int pq_handover_socket_write(const struct pq_listening *l, char *out, size_t size);
/* The name is the caller's to free; number and descriptor are not set. */
PQ_MUST_CHECK int pq_handover_socket_read(const char *text, struct pq_listening *out);

/* Hexadecimal digits, exactly as many as size asks for. */
void pq_handover_keys_write(const uint8_t *keys, size_t size, char *out);
PQ_MUST_CHECK int pq_handover_keys_read(const char *text, uint8_t *out, size_t size);

#endif
