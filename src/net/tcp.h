/* tcp.h - addresses, listening and connecting sockets, and what the kernel knows of a connection.
 *
 * Spec:   tcp(7), unix(7); address texts "192.0.2.1:80", "[2001:db8::1]:80", "host.example:80", "unix:/path".
 * Owns:   returned descriptors are the caller's; all are non-blocking and close-on-exec.
 * Errors: PQ_E_INVALID (address text), PQ_E_NOT_FOUND (name), PQ_E_EXISTS (address in use), PQ_E_REFUSED (a full queue
 *         too), PQ_E_TIMEOUT, PQ_E_RESET, PQ_E_LIMIT (descriptors), PQ_E_PERMISSION, PQ_E_IO; why says which
 *         address and what to do.
 */
#ifndef PQ_NET_TCP_H
#define PQ_NET_TCP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/error.h"

struct pq_address {
    struct sockaddr_storage sa;
    socklen_t len;
};

/* Resolves names too (blocking); takes the first address. */
PQ_MUST_CHECK int pq_address_parse(const char *text, struct pq_address *out, struct pq_why *why);
/* All that a text stands for, as many as there is room for, at least one; the order is RFC 6724's. */
PQ_MUST_CHECK int pq_address_resolve(const char *text, struct pq_address *out, size_t room, size_t *count,
                                     struct pq_why *why);
/* The text that pq_address_parse() reads; out holds PQ_ADDRESS_TEXT bytes. */
enum { PQ_ADDRESS_TEXT = 128 };
void pq_address_text(const struct pq_address *a, char out[PQ_ADDRESS_TEXT]);
/* Of a socket; zero-length family AF_UNSPEC prints as "-". */
struct pq_address pq_address_local(int fd);
struct pq_address pq_address_peer(int fd);
uint16_t pq_address_port(const struct pq_address *a);
/* IPv4 in its mapped form (RFC 4291, section 2.5.5.2) becomes plain; all else stays. */
struct pq_address pq_address_plain(const struct pq_address *a);
/* Of IPv4 and IPv6: the same host and port, be IPv4 mapped or plain. */
bool pq_address_equal(const struct pq_address *a, const struct pq_address *b);

/* An address with port 0 gets one from the kernel: read it with pq_address_local(). SO_REUSEADDR is set;
 * a unix socket's path must not exist (a stale socket that nobody answers on is removed). backlog 0 means 1024. */
PQ_MUST_CHECK int pq_tcp_listen(const struct pq_address *a, int backlog, int *out_fd, struct pq_why *why);
/* Accepts one: 0, PQ_E_WANT_READ when none waits, PQ_E_LIMIT when descriptors ran out, PQ_E_RESET (try the next).
 * TCP_NODELAY is set. */
PQ_MUST_CHECK int pq_tcp_accept(int listener, int *out_fd, struct pq_address *peer);
/* Starts to connect, TCP_NODELAY set: 0 when done at once (unix), PQ_E_WANT_WRITE while under way; *out_fd is set in
 * both cases. */
PQ_MUST_CHECK int pq_tcp_connect(const struct pq_address *a, int *out_fd, struct pq_why *why);
/* Once writable: 0 when connected, or why not. */
PQ_MUST_CHECK int pq_tcp_connected(int fd);

/* Reads and writes once: 0 and *n > 0; PQ_E_CLOSED at the end of the stream (read); PQ_E_WANT_READ, PQ_E_WANT_WRITE;
 * PQ_E_RESET. */
PQ_MUST_CHECK int pq_tcp_read(int fd, void *out, size_t size, size_t *n);
PQ_MUST_CHECK int pq_tcp_write(int fd, const void *bytes, size_t size, size_t *n);

int pq_tcp_nodelay(int fd, bool on);
/* The next close() sends RST instead of FIN: for a stream that did not really end. */
int pq_tcp_abort_on_close(int fd, bool on);

/* Of TCP_INFO. */
struct pq_tcp_counts {
    uint64_t bytes_sent, bytes_received; /* payload, retransmissions not counted again */
    uint32_t segments_out, segments_in, retransmitted;
    uint32_t rtt_us;
};
PQ_MUST_CHECK int pq_tcp_counts(int fd, struct pq_tcp_counts *out);

#endif
