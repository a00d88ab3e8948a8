/* tunnel.h - local connections as HTTP/2 CONNECT streams of a few long-lived TLS connections between two proxies.
 *
 *   function - [egress: stream -> tunnel] = TLS = [ingress: tunnel -> stream] - function
 *
 * Spec:   RFC 9113, section 8.5; both ends agree by ALPN. What a local connection sends goes out with its CONNECT,
 *         without waiting for the answer. END_STREAM is a FIN, each way; RST_STREAM before it, and the end of the
 *         tunnel, are a RST. RST_STREAM after END_STREAM only says that its sender takes no more: what it sent before
 *         still arrives. A stream's window is limits.buffer and opens as its bytes leave to the local socket, so a
 *         slow connection stops its own sender and nobody else.
 * Owns:   a tunnel its descriptor and TLS connection, a stream its local descriptor; the set knows them all. They keep
 *         their route's generation.
 * Errors: pq_tunnels_new(): PQ_E_NOMEM. pq_tunnels_carry(): PQ_E_UNSUPPORTED (the peer speaks no tunnel), PQ_E_NOMEM;
 *         the descriptor then stays the caller's. What fails later is logged, counted and closed.
 */
#ifndef PQ_PROXY_TUNNEL_H
#define PQ_PROXY_TUNNEL_H

#include "proxy/connection.h"

#define PQ_TUNNEL_ALPN "pqplane-tunnel/1"

struct pq_tunnels; /* an egress route's tunnels to its peer */

/* Opens the first one at once. */
PQ_MUST_CHECK int pq_tunnels_new(struct pq_connections *set, struct pq_route *route, struct pq_tunnels **out);
/* No new streams; freed by itself when the last ended. */
void pq_tunnels_retire(struct pq_tunnels *t);
/* Takes the local descriptor over; a connection that finds no tunnel waits for one, at most timeouts.connect. */
PQ_MUST_CHECK int pq_tunnels_carry(struct pq_tunnels *t, int fd, const struct pq_address *from);

/* A generation takes another's place (NULL: it is the first): its egress routes get their tunnels, the other's retire.
 */
void pq_tunnels_use(struct pq_connections *set, struct pq_generation *before, struct pq_generation *now);

/* Ingress: takes the descriptor and its finished TLS connection, whose ALPN is PQ_TUNNEL_ALPN. */
void pq_tunnel_serve(struct pq_connections *set, struct pq_route *route, int fd, struct pq_tls *tls,
                     const struct pq_address *from);

/* No new streams in any tunnel of the set: GOAWAY; each closes when its last stream ended. */
void pq_tunnel_drain_all(struct pq_connections *set);
/* Ends all streams and tunnels, and whoever waits for one, with that reason. */
void pq_tunnel_end_all(struct pq_connections *set, enum pq_proxy_end why);
/* After pq_tunnel_end_all(). */
void pq_tunnel_free_all(struct pq_connections *set);
/* For pq_connections_rows(): begins to tell of the tunnels and streams that there are now; then, some at a time, a line
 * for each. PQ_E_CLOSED after the last one. */
void pq_tunnel_list(struct pq_connections *set);
PQ_MUST_CHECK int pq_tunnel_rows(struct pq_connections *set, size_t most, struct pq_buf *out);

/* Tunnels that are not yet closed. */
int64_t pq_tunnel_count(const struct pq_connections *set);

#endif
