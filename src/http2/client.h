/* client.h - an HTTP/2 client: a pool of connections for each authority, or a connection for each request.
 *
 * Spec:   RFC 9113. A request that a GOAWAY or RST_STREAM(REFUSED_STREAM) says was not processed (6.8, 8.7) is sent
 *         again, three times at most and after a GOAWAY on another connection; no other failure is retried, for the
 *         server may have acted.
 * Owns:   what a call needs of the caller is copied; the result is valid during done() only. done() is called exactly
 *         once for each accepted call, from the loop, and may start calls but not free the client.
 * Errors: in the result: PQ_E_TIMEOUT, PQ_E_REFUSED, PQ_E_RESET, PQ_E_CLOSED, PQ_E_AUTH, PQ_E_POLICY, PQ_E_PROTOCOL,
 *         PQ_E_TOO_LONG (the answer exceeds the limits), PQ_E_NOT_FOUND (name of the authority), PQ_E_INTERRUPTED
 *         (the client was freed).
 */
#ifndef PQ_HTTP2_CLIENT_H
#define PQ_HTTP2_CLIENT_H

#include <ev.h>

#include "base/cleanup.h"
#include "http2/http2.h"
#include "tls/tls.h"

struct pq_http2_client_settings {
    struct pq_tls_context *tls;     /* NULL: plain, by prior knowledge */
    const struct pq_strings *names; /* what a server's certificate must show; NULL: the authority's host. Copied. */
    bool fresh;                     /* a connection for each request, closed after it */
    bool nagle;
    struct pq_http2_limits limits;
    struct pq_http2_timeouts timeouts;
};

struct pq_http2_client;
PQ_MUST_CHECK int pq_http2_client_new(struct ev_loop *loop, const struct pq_http2_client_settings *how,
                                      struct pq_http2_client **out);
/* Open calls end with PQ_E_INTERRUPTED. */
void pq_http2_client_free(struct pq_http2_client *c);
PQ_DEFINE_FREEP(struct pq_http2_client, pq_http2_client_free)

/* When what happened, of pq_clock_ns(); 0 where it did not happen for this call. */
struct pq_http2_timing {
    int64_t start;    /* before connect(), or when the request was given to an open connection */
    int64_t connect;  /* before connect(): only where the call opened its connection, as the next two */
    int64_t tcp;      /* TCP was established */
    int64_t tls;      /* the TLS handshake was finished */
    int64_t end;      /* the response's end was read */
    int64_t chain_ns; /* of tls: spent on verifying the server's chain */
};

struct pq_http2_result {
    int error; /* 0: there is a response, whatever its status */
    const char
        *label; /* an error's name for counting: of a failed handshake pq_tls_reason_label(), else pq_error_name();
                   "" without one */
    const char *reason; /* the sentence of an error */
    const struct pq_http2_message *response;
    struct pq_http2_timing timing;
    int attempts;
};

struct pq_http2_call {
    const char *method;
    const char *authority; /* "host:port" */
    const char *path;      /* with the query, encoded */
    const struct pq_http2_field *fields;
    size_t field_count;
    struct pq_span body;
    int64_t timeout; /* 0: the client's */
    void (*done)(void *context, const struct pq_http2_result *r);
    void *context;
};
/* Negative (and no done()): PQ_E_NOMEM, PQ_E_LIMIT (too many calls wait), PQ_E_NOT_FOUND, PQ_E_INVALID (authority). */
PQ_MUST_CHECK int pq_http2_client_call(struct pq_http2_client *c, const struct pq_http2_call *call, struct pq_why *why);

/* Closes idle connections now and each other one when its streams are done; done() once none is left. */
void pq_http2_client_drain(struct pq_http2_client *c, void (*done)(void *context), void *context);

#endif
