/* call.h - one request of a client and its response: the module's own.
 *
 * Spec:   RFC 9113, section 8.
 * Owns:   copies of what the caller gave; the response. A call is in exactly one list: its pool's waiting calls or
 *         its connection's running ones.
 * Errors: PQ_E_NOMEM, PQ_E_INVALID (more than PQ_CALL_FIELDS fields).
 */
#ifndef PQ_HTTP2_CALL_H
#define PQ_HTTP2_CALL_H

#include "http2/client.h"
#include "http2/message.h"

enum { PQ_CALL_FIELDS = 16, PQ_CALL_ATTEMPTS = 4 };

struct pq_call {
    struct pq_call *next, **link;
    struct pq_pool *pool;
    struct pq_link *at; /* the connection, while running */
    int32_t id;         /* its stream */
    char *text;         /* method NUL path NUL name NUL value NUL ... */
    size_t field_count;
    struct pq_buf body;
    size_t body_sent;
    struct pq_http2_message response;
    bool response_done;
    bool too_long;
    struct pq_http2_timing timing;
    int attempts;
    ev_timer timer;
    void (*done)(void *context, const struct pq_http2_result *r);
    void *context;
};

PQ_MUST_CHECK int pq_call_new(const struct pq_http2_call *how, size_t max_body, struct pq_call **out);
void pq_call_free(struct pq_call *call);
PQ_DEFINE_FREEP(struct pq_call, pq_call_free)
/* Gives it to nghttp2: the stream, or nghttp2's error. */
int32_t pq_call_submit(struct pq_call *call, nghttp2_session *h2, const char *scheme, const char *authority);
/* For another attempt. */
void pq_call_rewind(struct pq_call *call);

void pq_call_put_first(struct pq_call **list, struct pq_call *call);
void pq_call_put_last(struct pq_call **list, struct pq_call *call);
void pq_call_take_out(struct pq_call *call);

#endif
