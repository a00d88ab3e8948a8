/* server.h - an HTTP/2 server on one listening socket: complete requests in, answers out, now or later.
 *
 * Spec:   RFC 9113, RFC 9110. A message that breaks HTTP/2 ends its stream or connection with the error code of RFC
 *         9113; one that is well framed but too large gets 431 or 413. HTTP/1 text gets a 505 and the end.
 * Owns:   the listener, its connections, and every exchange until it is answered. An exchange must be answered
 *         exactly once, also when its stream is gone meanwhile (the answer is then dropped).
 * Errors: those of net/tcp.h; one connection's failure is a log line and never the server's.
 *
 * pq_http2_server_drain() ends it without losing a request: GOAWAY announces the end, a second one follows when the
 * peer has
 * seen it (RFC 9113, 6.8), the streams up to there finish, then comes our end of stream.
 */
#ifndef PQ_HTTP2_SERVER_H
#define PQ_HTTP2_SERVER_H

#include <ev.h>

#include "base/cleanup.h"
#include "http2/http2.h"
#include "net/tcp.h"
#include "tls/tls.h"

struct pq_http2_exchange {
    struct pq_http2_message request;
    int refused;      /* 0, or the status that the limits demand: 413, 431; the body is then incomplete */
    const char *peer; /* the TLS peer certificate's subject; "" without TLS */
    void *user;       /* the handler's */
};

struct pq_http2_answer {
    int status;
    const struct pq_http2_field *fields;
    size_t field_count;
    const struct pq_http2_field *trailers;
    size_t trailer_count;
    struct pq_buf *body; /* its bytes are taken; NULL: none */
};
/* Ends x: it must not be touched any more. A HEAD request's body is dropped, its content-length kept. */
void pq_http2_respond(struct pq_http2_exchange *x, const struct pq_http2_answer *a);

struct pq_http2_server_settings {
    const char *name; /* in log lines */
    struct pq_address address;
    struct pq_tls_context *tls; /* NULL: plain */
    bool nagle;                 /* leave Nagle's algorithm on; only to reproduce studies */
    bool by_frame;              /* each frame is a write of its own, 1 ms apart; only to reproduce studies */
    struct pq_http2_limits limits;
    struct pq_http2_timeouts timeouts;
    void (*request)(void *context, struct pq_http2_exchange *x);
    void *context;
};

struct pq_http2_counts {
    uint64_t connections, refused_connections, failed_handshakes, requests, answers;
    size_t open; /* connections now */
};

struct pq_http2_server;
PQ_MUST_CHECK int pq_http2_server_new(struct ev_loop *loop, const struct pq_http2_server_settings *how,
                                      struct pq_http2_server **out, struct pq_why *why);
/* Cuts what is left. */
void pq_http2_server_free(struct pq_http2_server *s);
PQ_DEFINE_FREEP(struct pq_http2_server, pq_http2_server_free)
/* The bound address, its port known. */
struct pq_address pq_http2_server_address(const struct pq_http2_server *s);
/* Takes no new connection, finishes those there are, then calls done (from the loop). */
void pq_http2_server_drain(struct pq_http2_server *s, void (*done)(void *context), void *context);
struct pq_http2_counts pq_http2_server_counts(const struct pq_http2_server *s);

/* A connection that is there already (a socket pair, say) is served as if it had been accepted; takes fd. */
PQ_MUST_CHECK int pq_http2_server_adopt(struct pq_http2_server *s, int fd);

#endif
