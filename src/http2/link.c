#include "http2/pool.h"

#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

struct pq_link {
    struct pq_session session;
    struct pq_pool *pool;
    struct pq_link *next, **link;
    struct pq_call *running;
    struct pq_call *own; /* a fresh connection's, until it opened */
    size_t streams;
    bool opened, draining;
    int64_t connect_at, tcp_at, tls_at, chain_ns;
    uint32_t goaway_code; /* of a GOAWAY that says what went wrong, ours or the server's */
    bool told;            /* the times went to a call */
};

static struct pq_link *of_session(struct pq_session *s)
{
    return (struct pq_link *)(void *)((char *)s - offsetof(struct pq_link, session));
}

static struct pq_client_shared *shared_of(const struct pq_link *l) { return pq_pool_shared(l->pool); }

struct pq_link *pq_link_next(const struct pq_link *l) { return l->next; }
bool pq_link_connecting(const struct pq_link *l) { return !l->opened && l->session.state != PQ_SESSION_ENDED; }
bool pq_link_draining(const struct pq_link *l) { return l->draining || l->session.state > PQ_SESSION_OPEN; }
void pq_link_pump(struct pq_link *l) { pq_session_pump(&l->session); }

bool pq_link_usable(const struct pq_link *l)
{
    if (!l->opened || pq_link_draining(l) || l->session.write_dead || l->streams >= shared_of(l)->how.limits.streams)
        return false;
    return l->streams < nghttp2_session_get_remote_settings(l->session.h2, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
}

/* A connection without calls goes at once (fresh, draining) or when it was idle long enough. */
static void rest(struct pq_link *l)
{
    if (l->streams || l->session.state != PQ_SESSION_OPEN)
        return;
    if (l->draining || shared_of(l)->how.fresh) {
        l->draining = true;
        pq_session_finish(&l->session);
    } else {
        pq_session_deadline(&l->session, shared_of(l)->how.timeouts.idle);
    }
}

static void tell_times(struct pq_link *l, struct pq_call *call)
{
    if (l->told)
        return;
    l->told = true;
    call->timing.connect = l->connect_at;
    call->timing.tcp = l->tcp_at;
    call->timing.tls = l->tls_at;
    call->timing.chain_ns = l->chain_ns;
}

int pq_link_submit(struct pq_link *l, struct pq_call *call)
{
    int32_t id = pq_call_submit(call, l->session.h2, l->session.tls ? "https" : "http", l->pool->authority);
    if (id < 0) {
        l->draining = true;
        rest(l);
        return id == NGHTTP2_ERR_NOMEM ? PQ_E_NOMEM : PQ_E_LIMIT;
    }
    tell_times(l, call);
    call->at = l;
    call->id = id;
    call->attempts++;
    pq_call_put_first(&l->running, call);
    if (l->streams++ == 0)
        pq_session_deadline(&l->session, 0);
    return 0;
}

/* Out of the running list; the stream may live on without it. */
static void part(struct pq_link *l, struct pq_call *call)
{
    pq_call_take_out(call);
    call->at = NULL;
    l->streams--;
}

void pq_link_cancel(struct pq_link *l, struct pq_call *call)
{
    if (l->own == call) {
        l->own = NULL;
        pq_session_fail(&l->session, 0, "cancelled");
        return;
    }
    nghttp2_session_set_stream_user_data(l->session.h2, call->id, NULL);
    if (nghttp2_submit_rst_stream(l->session.h2, NGHTTP2_FLAG_NONE, call->id, NGHTTP2_CANCEL) < 0)
        pq_session_fail(&l->session, PQ_E_NOMEM, "%s", pq_error_text(PQ_E_NOMEM));
    part(l, call);
    rest(l);
    pq_session_pump(&l->session);
}

void pq_link_drain(struct pq_link *l)
{
    l->draining = true;
    if (l->opened)
        rest(l);
    else if (!l->own && !l->pool->waiting)
        pq_session_fail(&l->session, 0, "closed");
}

/* --- nghttp2's callbacks ------------------------------------------------------------------------------------------ */

static int on_begin_headers(nghttp2_session *h2, const nghttp2_frame *frame, void *user)
{
    (void)user;
    struct pq_call *call = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);
    if (!call)
        return 0;
    bool trailers = frame->headers.cat == NGHTTP2_HCAT_HEADERS && call->response.status >= 200;
    if (trailers)
        call->response.trailer_at = call->response.field_count;
    else
        pq_http2_message_clear(&call->response); /* what an interim response (1xx) left */
    return 0;
}

static void give_up(nghttp2_session *h2, struct pq_call *call)
{
    call->too_long = true;
    if (nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, call->id, NGHTTP2_CANCEL) < 0)
        pq_log(PQ_LOG_ERROR, "stream not reset", "reason", pq_s(pq_error_name(PQ_E_NOMEM)), NULL);
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, nghttp2_rcbuf *name, nghttp2_rcbuf *value,
                     uint8_t flags, void *user)
{
    (void)flags, (void)user;
    struct pq_call *call = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);
    if (!call || call->too_long)
        return 0;
    int e = pq_http2_message_add(&call->response, name, value);
    if (e == PQ_E_TOO_LONG)
        give_up(h2, call);
    return e == PQ_E_NOMEM ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t id, const uint8_t *at, size_t len, void *user)
{
    (void)flags, (void)user;
    struct pq_call *call = nghttp2_session_get_stream_user_data(h2, id);
    if (!call || call->too_long)
        return 0;
    int e = pq_buf_append(&call->response.body, at, len);
    if (e == PQ_E_TOO_LONG)
        give_up(h2, call);
    return e == PQ_E_NOMEM ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *user)
{
    struct pq_link *l = user;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        l->draining = true;
        l->goaway_code = frame->goaway.error_code;
    }
    if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM) ||
        (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS))
        return 0;
    struct pq_call *call = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);
    if (call) {
        call->timing.end = pq_clock_ns();
        call->response_done = true;
    }
    return 0;
}

static int on_frame_sent(nghttp2_session *h2, const nghttp2_frame *frame, void *user)
{
    (void)h2;
    struct pq_link *l = user;
    if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR)
        l->goaway_code = frame->goaway.error_code;
    return 0;
}

static void settle_call(struct pq_call *call, uint32_t code)
{
    char reason[128];
    snprintf(reason, sizeof reason, "the server reset the stream: %s", nghttp2_http2_strerror(code));
    if (call->response_done)
        pq_pool_finish(call, 0, "", "");
    else if (call->too_long)
        pq_pool_finish(call, PQ_E_TOO_LONG, pq_error_name(PQ_E_TOO_LONG), "the response exceeds the limits");
    else if (code == NGHTTP2_REFUSED_STREAM)
        pq_pool_retry(call);
    else
        pq_pool_finish(call, code == NGHTTP2_PROTOCOL_ERROR ? PQ_E_PROTOCOL : PQ_E_RESET, nghttp2_http2_strerror(code),
                       reason);
}

static int on_stream_close(nghttp2_session *h2, int32_t id, uint32_t code, void *user)
{
    struct pq_link *l = user;
    struct pq_call *call = nghttp2_session_get_stream_user_data(h2, id);
    if (!call)
        return 0;
    nghttp2_session_set_stream_user_data(h2, id, NULL);
    part(l, call);
    settle_call(call, code);
    pq_pool_run(l->pool);
    rest(l);
    return 0;
}

int pq_link_callbacks(nghttp2_session_callbacks **out)
{
    static const struct pq_session_frames own = {on_begin_headers, on_header,     on_data,
                                                 on_frame,         on_frame_sent, on_stream_close};
    return pq_session_callbacks(&own, out);
}

/* --- the session's hooks ------------------------------------------------------------------------------------------ */

static void on_connected(struct pq_session *s)
{
    struct pq_link *l = of_session(s);
    l->tcp_at = pq_clock_ns();
    pq_session_deadline(s, shared_of(l)->how.timeouts.handshake);
}

static int on_open(struct pq_session *s)
{
    struct pq_link *l = of_session(s);
    if (s->tls) {
        l->tls_at = pq_clock_ns();
        l->chain_ns = pq_tls_info(s->tls)->chain_ns;
    }
    struct pq_client_shared *shared = shared_of(l);
    TRY(pq_session_start(s, false, shared->callbacks, &shared->how.limits, l));
    l->opened = true;
    struct pq_call *own = TAKE(l->own);
    if (own)
        return pq_link_submit(l, own);
    pq_pool_run(l->pool);
    rest(l);
    return 0;
}

static void on_timeout(struct pq_session *s)
{
    struct pq_link *l = of_session(s);
    l->draining = true;
    rest(l);
}

static void end_calls(struct pq_link *l, int code, const char *label, const char *reason)
{
    for (struct pq_call *call; (call = l->running);) {
        part(l, call);
        if (call->response_done)
            pq_pool_finish(call, 0, "", "");
        else
            pq_pool_finish(call, code, label, reason);
    }
    struct pq_call *own = TAKE(l->own);
    if (own)
        pq_pool_finish(own, code, label, reason);
}

static void on_ended(struct pq_session *s, int code, const char *reason)
{
    struct pq_link *l = of_session(s);
    struct pq_pool *pool = l->pool;
    bool broken = l->goaway_code != NGHTTP2_NO_ERROR && (code == 0 || code == PQ_E_CLOSED);
    int shown = broken ? PQ_E_PROTOCOL : code ? code : PQ_E_CLOSED;
    const char *label = s->label ? s->label : broken ? nghttp2_http2_strerror(l->goaway_code) : pq_error_name(shown);
    bool opened = l->opened;
    char text[sizeof s->why.text];
    snprintf(text, sizeof text, "%s", broken ? "the connection broke HTTP/2's rules" : reason);
    end_calls(l, shown, label, text);
    pq_link_free(l);
    pq_pool_link_gone(pool, opened, code, label, text);
}

static const struct pq_session_hooks hooks = {
    .connected = on_connected, .open = on_open, .timeout = on_timeout, .ended = on_ended};

static int link_tls(struct pq_link *l, int fd)
{
    struct pq_client_shared *shared = shared_of(l);
    if (!shared->how.tls)
        return 0;
    const struct pq_strings host = {.at = &l->pool->host, .count = 1};
    return pq_tls_new(shared->how.tls, fd, shared->how.names ? shared->how.names : &host, &l->session.tls);
}

static void enlist(struct pq_pool *p, struct pq_link *l)
{
    l->next = p->first;
    l->link = &p->first;
    if (l->next)
        l->next->link = &l->next;
    p->first = l;
}

int pq_link_new(struct pq_pool *p, struct pq_call *own)
{
    struct pq_client_shared *shared = pq_pool_shared(p);
    struct pq_link *l = calloc(1, sizeof *l);
    if (!l)
        return PQ_E_NOMEM;
    struct pq_why why = {{0}};
    int fd = -1;
    l->pool = p;
    l->connect_at = pq_clock_ns();
    int e = pq_tcp_connect(&p->address, &fd, &why);
    pq_session_init(&l->session, shared->loop, &hooks, fd, PQ_SESSION_CONNECTING);
    if (e == 0 || e == PQ_E_WANT_WRITE) {
        pq_tcp_nodelay(fd, !shared->how.nagle);
        e = link_tls(l, fd);
    }
    l->own = own;
    if (own)
        own->at = l;
    enlist(p, l);
    if (e < 0) {
        /* From the loop, as every other failure. */
        pq_session_fail(&l->session, e, "%s", why.text[0] ? why.text : pq_error_text(e));
        return 0;
    }
    pq_session_deadline(&l->session, shared->how.timeouts.connect);
    pq_session_begin(&l->session);
    return 0;
}

void pq_link_abandon(struct pq_link *l, int code, const char *reason)
{
    l->draining = true;
    end_calls(l, code, pq_error_name(code), reason);
}

void pq_link_free(struct pq_link *l)
{
    *l->link = l->next;
    if (l->next)
        l->next->link = l->link;
    pq_session_close(&l->session);
    free(l);
}
