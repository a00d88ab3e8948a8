/* stream.h - one stream of a server's connection: collects the request, hands it over, sends the answer. The
 * module's own.
 *
 * Spec:   RFC 9113, section 8; RFC 9110, 10.1.1 (Expect) and 15.5 (408, 413, 431).
 * Owns:   lives until its stream is closed and its exchange answered, whichever is later.
 * Errors: PQ_E_NOMEM.
 */
#ifndef PQ_HTTP2_STREAM_H
#define PQ_HTTP2_STREAM_H

#include "http2/server.h"
#include "http2/session.h"

struct pq_stream;

/* What a stream needs of its connection. */
struct pq_stream_place {
    struct pq_session *session;
    const struct pq_http2_server_settings *how;
    struct pq_http2_counts *counts;
    size_t buffered; /* bytes of all its streams' request bodies */
    const char *peer;
    struct pq_stream *first; /* all that are not closed */
};

PQ_MUST_CHECK int pq_stream_new(struct pq_stream_place *place, int32_t id, struct pq_stream **out);
/* nghttp2's callbacks, in the order in which they come. Results are nghttp2's. */
int pq_stream_header(struct pq_stream *s, nghttp2_rcbuf *name, nghttp2_rcbuf *value);
int pq_stream_headers_end(struct pq_stream *s, bool trailers, bool end_stream);
int pq_stream_trailers_begin(struct pq_stream *s);
int pq_stream_data(struct pq_stream *s, const uint8_t *at, size_t len);
int pq_stream_data_end(struct pq_stream *s);
void pq_stream_sent_end(struct pq_stream *s);
/* The peer sends no more, and what its windows allow is sent: resets what waits for more of the request, or for a
 * window. */
void pq_streams_cut(struct pq_stream_place *place);
/* The stream is closed, or its connection gone: the place must not be used any more. */
void pq_stream_closed(struct pq_stream *s);

#endif
