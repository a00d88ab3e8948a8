#include "http2/connection.h"

#include <string.h>

#include "base/log.h"
#include "http2/stream.h"

enum { SHUTDOWN_WAIT_NS = 1000 * 1000 * 1000 };

/* The end of a connection: OPEN -> NOTICE (first GOAWAY and a PING) -> LAST (second GOAWAY, when the PING is
 * answered). */
enum closing { CLOSING_NO, CLOSING_NOTICE, CLOSING_LAST };

struct pq_connection {
    struct pq_session session;
    struct pq_stream_place place;
    struct pq_server_shared *shared;
    struct pq_connection *next, **link;
    struct pq_address peer;
    size_t streams;
    bool settings_seen, served; /* had a stream */
    enum closing closing;
    uint32_t goaway_code; /* what the client did wrong, as our GOAWAY says it */
};

static const uint8_t ping_text[8] = {'p', 'q', '-', 'd', 'r', 'a', 'i', 'n'};

static void to_log(const struct pq_connection *c, enum pq_log_level level, const char *event, int code,
                   const char *reason)
{
    if (!pq_log_on(level))
        return;
    char peer[PQ_ADDRESS_TEXT];
    pq_address_text(&c->peer, peer);
    pq_log(level, event, "server", pq_s(c->shared->how.name), "peer", pq_s(peer), "reason", pq_s(pq_error_name(code)),
           "detail", pq_s(reason), NULL);
}

static void set_idle_deadline(struct pq_connection *c)
{
    const struct pq_http2_timeouts *t = &c->shared->how.timeouts;
    if (c->closing)
        return;
    int64_t ns = !c->settings_seen ? t->handshake : t->idle;
    if (!c->served && ns < t->handshake)
        ns = t->handshake;
    pq_session_deadline(&c->session, c->streams ? 0 : ns);
}

static void last_goaway(struct pq_connection *c)
{
    nghttp2_session *h2 = c->session.h2;
    c->closing = CLOSING_LAST;
    if (nghttp2_submit_goaway(h2, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(h2), NGHTTP2_NO_ERROR,
                              NULL, 0) < 0)
        pq_session_fail(&c->session, PQ_E_NOMEM, "%s", pq_error_text(PQ_E_NOMEM));
    pq_session_deadline(&c->session, c->shared->how.timeouts.drain);
}

void pq_connection_shut_down(struct pq_connection *c)
{
    if (c->closing || c->session.state != PQ_SESSION_OPEN || !c->session.h2)
        return;
    c->closing = CLOSING_NOTICE;
    if (nghttp2_submit_shutdown_notice(c->session.h2) < 0 ||
        nghttp2_submit_ping(c->session.h2, NGHTTP2_FLAG_NONE, ping_text) < 0) {
        pq_session_fail(&c->session, PQ_E_NOMEM, "%s", pq_error_text(PQ_E_NOMEM));
        return;
    }
    pq_session_deadline(&c->session, SHUTDOWN_WAIT_NS);
    pq_session_pump(&c->session);
}

/* --- nghttp2's callbacks ------------------------------------------------------------------------------------------ */

static int on_begin_headers(nghttp2_session *h2, const nghttp2_frame *frame, void *user)
{
    struct pq_connection *c = user;
    struct pq_stream *s = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);
    if (frame->headers.cat == NGHTTP2_HCAT_HEADERS && s)
        return pq_stream_trailers_begin(s);
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    if (pq_stream_new(&c->place, frame->hd.stream_id, &s) < 0)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    nghttp2_session_set_stream_user_data(h2, frame->hd.stream_id, s);
    c->streams++;
    c->served = true;
    set_idle_deadline(c);
    return 0;
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, nghttp2_rcbuf *name, nghttp2_rcbuf *value,
                     uint8_t flags, void *user)
{
    (void)flags, (void)user;
    struct pq_stream *s = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);
    return s ? pq_stream_header(s, name, value) : 0;
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t id, const uint8_t *at, size_t len, void *user)
{
    (void)flags, (void)user;
    struct pq_stream *s = nghttp2_session_get_stream_user_data(h2, id);
    return s ? pq_stream_data(s, at, len) : 0;
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *user)
{
    struct pq_connection *c = user;
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    if (frame->hd.type == NGHTTP2_SETTINGS && !c->settings_seen) {
        c->settings_seen = true;
        set_idle_deadline(c);
    }
    if (frame->hd.type == NGHTTP2_PING && frame->hd.flags & NGHTTP2_FLAG_ACK && c->closing == CLOSING_NOTICE &&
        memcmp(frame->ping.opaque_data, ping_text, sizeof ping_text) == 0)
        last_goaway(c);
    struct pq_stream *s = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);
    if (s && frame->hd.type == NGHTTP2_HEADERS)
        return pq_stream_headers_end(s, frame->headers.cat == NGHTTP2_HCAT_HEADERS, end);
    return s && frame->hd.type == NGHTTP2_DATA && end ? pq_stream_data_end(s) : 0;
}

static int on_frame_sent(nghttp2_session *h2, const nghttp2_frame *frame, void *user)
{
    struct pq_connection *c = user;
    if (frame->hd.type == NGHTTP2_GOAWAY)
        c->goaway_code = frame->goaway.error_code;
    bool ends = (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
                frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    struct pq_stream *s = ends ? nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id) : NULL;
    if (s)
        pq_stream_sent_end(s);
    return 0;
}

static int on_stream_close(nghttp2_session *h2, int32_t id, uint32_t code, void *user)
{
    (void)code;
    struct pq_connection *c = user;
    struct pq_stream *s = nghttp2_session_get_stream_user_data(h2, id);
    if (!s)
        return 0;
    nghttp2_session_set_stream_user_data(h2, id, NULL);
    pq_stream_closed(s);
    c->streams--;
    if (c->streams == 0 && c->session.peer_done)
        pq_session_finish(&c->session);
    else
        set_idle_deadline(c);
    return 0;
}

int pq_connection_callbacks(nghttp2_session_callbacks **out)
{
    static const struct pq_session_frames own = {on_begin_headers, on_header,     on_data,
                                                 on_frame,         on_frame_sent, on_stream_close};
    return pq_session_callbacks(&own, out);
}

/* --- the session's hooks ------------------------------------------------------------------------------------------ */

static struct pq_connection *of_session(struct pq_session *s)
{
    return (struct pq_connection *)(void *)((char *)s - offsetof(struct pq_connection, session));
}

static int on_open(struct pq_session *s)
{
    struct pq_connection *c = of_session(s);
    TRY(pq_session_start(s, true, c->shared->callbacks, &c->shared->how.limits, c));
    c->place.peer = s->tls ? pq_tls_info(s->tls)->peer : "";
    set_idle_deadline(c);
    if (c->shared->draining)
        pq_connection_shut_down(c);
    return 0;
}

static void on_timeout(struct pq_session *s)
{
    struct pq_connection *c = of_session(s);
    if (!c->settings_seen)
        pq_session_fail(s, PQ_E_TIMEOUT, "no HTTP/2 preface in time");
    else if (c->closing == CLOSING_NO)
        pq_connection_shut_down(c);
    else if (c->closing == CLOSING_NOTICE)
        last_goaway(c);
    else
        pq_session_fail(s, PQ_E_TIMEOUT, "streams did not finish in time");
}

static void on_half_closed(struct pq_session *s)
{
    struct pq_connection *c = of_session(s);
    pq_streams_cut(&c->place);
    if (c->streams == 0)
        pq_session_finish(s);
}

static void on_ended(struct pq_session *s, int code, const char *reason)
{
    struct pq_connection *c = of_session(s);
    struct pq_server_shared *shared = c->shared;
    bool handshake = s->tls && !s->h2;
    if (handshake)
        shared->counts.failed_handshakes++;
    if (code == 0 && c->goaway_code != NGHTTP2_NO_ERROR)
        to_log(c, PQ_LOG_INFO, "connection failed", PQ_E_PROTOCOL, nghttp2_http2_strerror(c->goaway_code));
    else if (code < 0 && code != PQ_E_CLOSED)
        to_log(c, handshake ? PQ_LOG_WARN : PQ_LOG_INFO, handshake ? "handshake failed" : "connection failed", code,
               reason);
    pq_connection_free(c);
    shared->gone(shared);
}

static const struct pq_session_hooks hooks = {
    .open = on_open, .timeout = on_timeout, .half_closed = on_half_closed, .ended = on_ended};

int pq_connection_new(struct pq_server_shared *shared, int fd, const struct pq_address *peer)
{
    DEFER(pq_closep) int own = fd;
    struct pq_connection *c = calloc(1, sizeof *c);
    if (!c)
        return PQ_E_NOMEM;
    struct pq_tls *tls = NULL;
    int e = shared->how.tls ? pq_tls_new(shared->how.tls, fd, NULL, &tls) : 0;
    if (e < 0) {
        free(c);
        return e;
    }
    pq_session_init(&c->session, shared->loop, &hooks, TAKE_FD(own), tls ? PQ_SESSION_HANDSHAKE : PQ_SESSION_OPEN);
    c->session.by_frame = shared->how.by_frame;
    c->session.tls = tls;
    c->shared = shared;
    c->peer = *peer;
    c->place =
        (struct pq_stream_place){.session = &c->session, .how = &shared->how, .counts = &shared->counts, .peer = ""};
    c->next = shared->first;
    c->link = &shared->first;
    if (c->next)
        c->next->link = &c->next;
    shared->first = c;
    shared->counts.open++;
    shared->counts.connections++;
    if (tls)
        pq_session_deadline(&c->session, shared->how.timeouts.handshake);
    pq_session_begin(&c->session);
    return 0;
}

struct pq_connection *pq_connection_next(const struct pq_connection *c) { return c->next; }

void pq_connection_free(struct pq_connection *c)
{
    /* nghttp2 tells of no stream's end when a session is deleted. */
    while (c->place.first)
        pq_stream_closed(c->place.first);
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    c->shared->counts.open--;
    pq_session_close(&c->session);
    free(c);
}
