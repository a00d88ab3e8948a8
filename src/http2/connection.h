/* connection.h - one connection of a server and its streams: the module's own.
 *
 * Spec:   RFC 9113.
 * Owns:   the server's list owns the connection; a stream belongs to its connection until it is closed and its
 *         exchange answered, whichever is later.
 * Errors: PQ_E_NOMEM.
 */
#ifndef PQ_HTTP2_CONNECTION_H
#define PQ_HTTP2_CONNECTION_H

#include "http2/server.h"
#include "http2/session.h"

struct pq_connection;

/* What connections need of their server. */
struct pq_server_shared {
    struct ev_loop *loop;
    struct pq_http2_server_settings how; /* defaults filled in */
    nghttp2_session_callbacks *callbacks;
    struct pq_http2_counts counts;
    bool draining;
    struct pq_connection *first;
    void (*gone)(struct pq_server_shared *shared); /* a connection left the list */
};

/* Links a new connection into the list; takes fd also on error. */
PQ_MUST_CHECK int pq_connection_new(struct pq_server_shared *shared, int fd, const struct pq_address *peer);
/* Announces the end (drain, idle). */
void pq_connection_shut_down(struct pq_connection *c);
struct pq_connection *pq_connection_next(const struct pq_connection *c);
void pq_connection_free(struct pq_connection *c);
PQ_MUST_CHECK int pq_connection_callbacks(nghttp2_session_callbacks **out);

#endif
