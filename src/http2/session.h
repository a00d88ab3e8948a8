/* session.h - one connection of either role: descriptor, TLS, nghttp2's session, and the pumping between them.
 *
 * Spec:   RFC 9113. Frames that are ready together leave in one write (HEADERS with DATA), so that neither Nagle's
 *         algorithm nor a record each costs a round trip. At most PQ_SESSION_OUT bytes wait here: then nghttp2 is not
 *         asked for more until the peer reads.
 * Owns:   the descriptor, the pq_tls and the nghttp2_session; the owner embeds the struct, hears of its end once
 *         (ended), and calls pq_session_close() then.
 * Errors: reach the owner by ended(): code and sentence. Nothing is freed inside nghttp2's callbacks: the end is told
 *         from the loop.
 */
#ifndef PQ_HTTP2_SESSION_H
#define PQ_HTTP2_SESSION_H

#include <ev.h>
#include <nghttp2/nghttp2.h>

#include "base/bytes.h"
#include "http2/http2.h"
#include "tls/tls.h"

enum { PQ_SESSION_OUT = 64 * 1024, PQ_SESSION_FRAME_GAP_NS = 1000000 };

/* CONNECTING -> HANDSHAKE (TLS only) -> OPEN -> LINGER -> ENDED; any -> ENDED on failure. */
enum pq_session_state {
    PQ_SESSION_CONNECTING,
    PQ_SESSION_HANDSHAKE,
    PQ_SESSION_OPEN,
    PQ_SESSION_LINGER,
    PQ_SESSION_ENDED
};
extern const char *const pq_session_state_names[];

struct pq_session;
struct pq_session_hooks {
    void (*connected)(struct pq_session *s); /* TCP is established (client); may be NULL */
    /* The transport is up: make s->h2 with pq_session_start(). Negative fails the connection. */
    int (*open)(struct pq_session *s);
    void (*timeout)(struct pq_session *s); /* pq_session_deadline() passed in OPEN */
    /* The peer sends no more and what can be sent is sent: what still waits for the peer must end. NULL: the peer's
     * end of
     * stream ends the session. */
    void (*half_closed)(struct pq_session *s);
    void (*ended)(struct pq_session *s, int code, const char *reason);
};

struct pq_session {
    struct ev_loop *loop;
    const struct pq_session_hooks *hooks;
    ev_io io;
    ev_timer timer;
    int fd;
    struct pq_tls *tls;
    nghttp2_session *h2;
    enum pq_session_state state;
    bool busy;                               /* inside nghttp2 or the loop's callback: pump and end later */
    bool peer_done;                          /* nothing more comes */
    bool write_dead;                         /* nothing more can be sent */
    bool finishing;                          /* pq_session_finish() was called */
    bool read_needs_write, write_needs_read; /* TLS */
    bool first_bytes;                        /* the first read was looked at */
    bool by_frame;                           /* each frame is a write of its own, a gap apart */
    struct pq_buf out;
    size_t sent;       /* of out */
    int code;          /* why it ends */
    const char *label; /* of a failed handshake: pq_tls_reason_label(); else NULL */
    struct pq_why why;
};

/* Takes fd (and tls, may be NULL). state is CONNECTING for a client's, HANDSHAKE or OPEN for an accepted descriptor. */
void pq_session_init(struct pq_session *s, struct ev_loop *loop, const struct pq_session_hooks *hooks, int fd,
                     enum pq_session_state state);
/* Begins: the first event (or the open hook) may come at once, from the loop. */
void pq_session_begin(struct pq_session *s);
/* Options that both roles share, and our SETTINGS queued. */
PQ_MUST_CHECK int pq_session_start(struct pq_session *s, bool server, const nghttp2_session_callbacks *callbacks,
                                   const struct pq_http2_limits *limits, void *user);
/* Sends what nghttp2 has ready, now or when the running callback is done. */
void pq_session_pump(struct pq_session *s);
/* timeout() comes in that many nanoseconds; 0: never. In other states than OPEN it ends the session with
 * PQ_E_TIMEOUT. */
void pq_session_deadline(struct pq_session *s, int64_t ns);
/* Ends it from the loop with that code; the first reason stays. */
void pq_session_fail(struct pq_session *s, int code, const char *format, ...) PQ_PRINTF(3, 4);
/* All was said: GOAWAY was queued before. Sends the rest, then our end of stream, then waits a little for the peer's,
 * so that no answer is lost to a reset; then ended() with 0. A peer that does not take the rest within 10 s:
 * PQ_E_TIMEOUT. */
void pq_session_finish(struct pq_session *s);
/* What a server's and a client's connection each make of frames. A field that RFC 9113, 8.2.1, calls malformed ends its
 * stream with PROTOCOL_ERROR (8.1.1) in both; nghttp2 by itself only drops the field. */
struct pq_session_frames {
    nghttp2_on_begin_headers_callback begin;
    nghttp2_on_header_callback2 header;
    nghttp2_on_data_chunk_recv_callback data;
    nghttp2_on_frame_recv_callback frame;
    nghttp2_on_frame_send_callback sent;
    nghttp2_on_stream_close_callback closed;
};
PQ_MUST_CHECK int pq_session_callbacks(const struct pq_session_frames *own, nghttp2_session_callbacks **out);
/* Frees what it owns. */
void pq_session_close(struct pq_session *s);

#endif
