/* http2.h - what client and server share: messages, limits, timeouts.
 *
 * Spec:   RFC 9113 (HTTP/2), RFC 9110 (semantics); plain connections by prior knowledge (RFC 9113, section 3.3), TLS
 *         by ALPN "h2".
 * Owns:   a message owns its fields and its body until pq_http2_message_clear(). Texts of a message end in a NUL and
 *         hold none.
 * Errors: PQ_E_TOO_LONG (a limit below), PQ_E_NOMEM.
 */
#ifndef PQ_HTTP2_HTTP2_H
#define PQ_HTTP2_HTTP2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

enum {
    PQ_HTTP2_MAX_FIELDS = 128,            /* of one message, trailers included */
    PQ_HTTP2_MAX_HEADER_LIST = 32 * 1024, /* bytes, counted as SETTINGS_MAX_HEADER_LIST_SIZE does (RFC 9113, 6.5.2) */
    PQ_HTTP2_MAX_BODY = 1024 * 1024,      /* unless the limits say otherwise */
    PQ_HTTP2_MAX_STREAMS = 128,           /* at once on one connection */
    PQ_HTTP2_MAX_CONTINUATIONS = 8,
    PQ_HTTP2_MAX_SETTINGS = 32,   /* entries of one SETTINGS frame */
    PQ_HTTP2_WINDOW = 256 * 1024, /* of a stream; a connection gets four times that */
};

/* Names are in lower case. */
struct pq_http2_field {
    const char *name, *value;
};

struct pq_http2_message {
    const char *method, *scheme, *authority, *path; /* of a request; "" where absent */
    int status;                                     /* of a response */
    struct pq_http2_field *fields;
    size_t field_count;
    size_t trailer_at; /* fields from here on came after the body */
    struct pq_buf body;
    /* the rest is the module's own */
    struct nghttp2_rcbuf *pseudo[4];
    struct nghttp2_rcbuf **held;
    size_t list_size;
};

/* The value of the first field of that name, or NULL. */
const char *pq_http2_get(const struct pq_http2_message *m, const char *name);
void pq_http2_message_clear(struct pq_http2_message *m);

/* 0 means the default. */
struct pq_http2_limits {
    size_t body;        /* bytes of one message */
    size_t buffered;    /* bytes of all request bodies that a connection holds at once; default 8 times body */
    size_t connections; /* at once: of a server 4096, of a client to one authority 8 */
    size_t streams;     /* at once on a connection */
    int32_t window;     /* the initial window of a stream that we grant */
};

/* Nanoseconds; 0 means the default. */
struct pq_http2_timeouts {
    int64_t connect;   /* 5 s */
    int64_t handshake; /* TLS, then the peer's first SETTINGS: 5 s */
    int64_t request; /* a client: until the response's end; a server: until the request's end, and for each progress of
                        the response: 10 s */
    int64_t idle;    /* a connection without streams is closed after this: 60 s */
    int64_t drain;   /* a server that was told to end waits this long for its streams: 30 s */
};

#endif
