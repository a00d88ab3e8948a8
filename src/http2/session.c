#include "http2/session.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "net/tcp.h"

enum {
    READ_SIZE = 16 * 1024,
    READS_A_TURN = 8, /* then other connections get theirs */
    LINGER_NS = 1000 * 1000 * 1000,
    FINISH_S = 10,       /* for the peer to take what is left once all was said */
    RESET_BURST = 1000,  /* RST_STREAM frames at once (rapid reset, CVE-2023-44487) ... */
    RESET_RATE = 33,     /* ... and a second */
    OUTBOUND_ACKS = 256, /* PING and SETTINGS acknowledgements that a peer may let pile up */
};

const char *const pq_session_state_names[] = {"connecting", "handshake", "open", "linger", "ended", NULL};

static void on_io(struct ev_loop *loop, ev_io *w, int events);
static void on_timer(struct ev_loop *loop, ev_timer *w, int events);

void pq_session_init(struct pq_session *s, struct ev_loop *loop, const struct pq_session_hooks *hooks, int fd,
                     enum pq_session_state state)
{
    *s = (struct pq_session){.loop = loop, .hooks = hooks, .fd = fd, .state = state, .out.cap = 2 * PQ_SESSION_OUT};
    ev_io_init(&s->io, on_io, fd, EV_READ);
    ev_timer_init(&s->timer, on_timer, 0., 0.);
    s->io.data = s;
    s->timer.data = s;
}

static void watch(struct pq_session *s)
{
    int events = 0;
    if (s->state == PQ_SESSION_ENDED)
        return;
    if (s->state == PQ_SESSION_CONNECTING || s->sent < s->out.len || s->read_needs_write)
        events |= EV_WRITE;
    if (s->state != PQ_SESSION_CONNECTING && !s->peer_done)
        events |= EV_READ;
    if (ev_is_active(&s->io) && events == s->io.events)
        return;
    ev_io_stop(s->loop, &s->io);
    ev_io_set(&s->io, s->fd, events);
    if (events)
        ev_io_start(s->loop, &s->io);
}

static void set_timer(struct pq_session *s, int64_t ns)
{
    ev_timer_stop(s->loop, &s->timer);
    if (ns <= 0)
        return;
    /* The loop's idea of now may be old after long work; the deadline counts from the real one. */
    ev_now_update(s->loop);
    ev_timer_set(&s->timer, (double)ns / (double)PQ_NS_PER_S, 0.);
    ev_timer_start(s->loop, &s->timer);
}

void pq_session_deadline(struct pq_session *s, int64_t ns)
{
    /* The end under way has its own. */
    if (!s->finishing && s->state != PQ_SESSION_LINGER)
        set_timer(s, ns);
}

void pq_session_fail(struct pq_session *s, int code, const char *format, ...)
{
    if (s->state == PQ_SESSION_ENDED)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(s->why.text, sizeof s->why.text, format, args);
    va_end(args);
    s->code = code;
    s->state = PQ_SESSION_ENDED;
    ev_io_stop(s->loop, &s->io);
    ev_timer_stop(s->loop, &s->timer);
    ev_feed_event(s->loop, &s->io, EV_CUSTOM);
}

/* --- out ---------------------------------------------------------------------------------------------------------- */

static int write_some(struct pq_session *s, size_t *n)
{
    const uint8_t *at = s->out.at + s->sent;
    size_t len = s->out.len - s->sent;
    return s->tls ? pq_tls_write(s->tls, at, len, n) : pq_tcp_write(s->fd, at, len, n);
}

/* 0 when all is out, PQ_E_WANT_WRITE when the peer must read first. */
static int flush(struct pq_session *s)
{
    s->write_needs_read = false;
    while (s->sent < s->out.len) {
        size_t n = 0;
        int e = write_some(s, &n);
        if (e == PQ_E_WANT_READ) {
            s->write_needs_read = true;
            return PQ_E_WANT_WRITE;
        }
        TRY(e);
        s->sent += n;
    }
    s->out.len = s->sent = 0;
    return 0;
}

/* Fills out from nghttp2 up to PQ_SESSION_OUT. */
static int collect(struct pq_session *s)
{
    while (s->out.len < PQ_SESSION_OUT) {
        const uint8_t *bytes = NULL;
        nghttp2_ssize n = nghttp2_session_mem_send2(s->h2, &bytes);
        if (n == NGHTTP2_ERR_NOMEM)
            return PQ_E_NOMEM;
        if (n < 0)
            return PQ_E_PROTOCOL;
        if (n == 0)
            return 0;
        TRY(pq_buf_append(&s->out, bytes, (size_t)n));
        if (s->by_frame)
            return 0;
    }
    return 0;
}

/* Frames that leave by themselves shall also arrive so: whoever reads them must find one at a time. This stops the
 * loop, which a server for studies may. */
static void pause_between_frames(void)
{
    const struct timespec gap = {.tv_nsec = PQ_SESSION_FRAME_GAP_NS};
    nanosleep(&gap, NULL);
}

static int pump(struct pq_session *s)
{
    do {
        bool sent = s->out.len > 0;
        TRY(flush(s));
        if (sent && s->by_frame)
            pause_between_frames();
        TRY(collect(s));
    } while (s->out.len);
    return 0;
}

static void linger(struct pq_session *s)
{
    if (s->tls) {
        int e = pq_tls_close_notify(s->tls);
        if (e < 0 && e != PQ_E_WANT_READ && e != PQ_E_WANT_WRITE) {
            pq_session_fail(s, 0, "closed");
            return;
        }
    }
    shutdown(s->fd, SHUT_WR);
    s->out.len = s->sent = 0;
    s->state = PQ_SESSION_LINGER;
    if (s->peer_done)
        pq_session_fail(s, 0, "closed");
    else
        set_timer(s, LINGER_NS);
}

/* What the peer sent before it went away is still read; that side then tells the end. */
static void write_failed(struct pq_session *s, int e)
{
    s->write_dead = true;
    s->out.len = s->sent = 0;
    if (e == PQ_E_NOMEM || s->peer_done)
        pq_session_fail(s, e, "sending failed: %s", pq_error_text(e));
}

/* A server speaks when it was spoken to: then its SETTINGS leave with the first answer, and HTTP/1 text gets one
 * that is text. */
static bool may_speak(const struct pq_session *s)
{
    return s->state == PQ_SESSION_OPEN && s->h2 && !s->write_dead &&
           (s->first_bytes || !nghttp2_session_check_server_session(s->h2));
}

/* Pumps, and looks whether anything is left to be said. */
static void pump_and_look(struct pq_session *s)
{
    if (!may_speak(s))
        return;
    int e = pump(s);
    if (e == 0 && s->peer_done) {
        s->hooks->half_closed(s);
        e = pump(s);
    }
    if (e < 0 && e != PQ_E_WANT_WRITE)
        write_failed(s, e);
    else if (e == 0 && !nghttp2_session_want_read(s->h2) && !nghttp2_session_want_write(s->h2))
        linger(s);
}

void pq_session_pump(struct pq_session *s)
{
    if (s->busy)
        return;
    s->busy = true;
    pump_and_look(s);
    s->busy = false;
    watch(s);
}

void pq_session_finish(struct pq_session *s)
{
    if (s->state != PQ_SESSION_OPEN) {
        pq_session_fail(s, 0, "closed");
        return;
    }
    int e = nghttp2_session_terminate_session2(s->h2, nghttp2_session_get_last_proc_stream_id(s->h2), NGHTTP2_NO_ERROR);
    if (e < 0) {
        pq_session_fail(s, PQ_E_NOMEM, "%s", pq_error_text(PQ_E_NOMEM));
        return;
    }
    if (!s->finishing)
        set_timer(s, FINISH_S * PQ_NS_PER_S);
    s->finishing = true;
    pq_session_pump(s);
}

/* --- in ----------------------------------------------------------------------------------------------------------- */

static int read_some(struct pq_session *s, uint8_t *at, size_t size, size_t *n)
{
    int e = s->tls ? pq_tls_read(s->tls, at, size, n) : pq_tcp_read(s->fd, at, size, n);
    s->read_needs_write = e == PQ_E_WANT_WRITE;
    return e == PQ_E_WANT_WRITE ? PQ_E_WANT_READ : e;
}

/* A client that speaks HTTP/1 to us gets an answer that it can read. */
static bool is_http1(const uint8_t *at, size_t n)
{
    static const char *const methods[] = {"GET ",   "HEAD ",   "POST ",    "PUT ",
                                          "PATCH ", "DELETE ", "OPTIONS ", "CONNECT "};
    for (size_t i = 0; i < PQ_COUNT(methods); i++)
        if (n >= strlen(methods[i]) && memcmp(at, methods[i], strlen(methods[i])) == 0)
            return true;
    return false;
}

static int answer_http1(struct pq_session *s)
{
    static const char answer[] =
        "HTTP/1.1 505 HTTP Version Not Supported\r\nConnection: close\r\nContent-Type: text/plain\r\n"
        "Content-Length: 55\r\n\r\nHTTP/2 is spoken here, with prior knowledge or by ALPN\n";
    _Static_assert(sizeof "HTTP/2 is spoken here, with prior knowledge or by ALPN\n" - 1 == 55, "Content-Length");
    s->out.len = s->sent = 0;
    TRY(pq_buf_text(&s->out, answer));
    int e = flush(s);
    if (e < 0 && e != PQ_E_WANT_WRITE)
        return e;
    linger(s);
    return 0;
}

/* nghttp2 refused what came. What it queued (GOAWAY) still leaves, as far as the socket takes it. */
static void refuse(struct pq_session *s, int lib)
{
    if (lib == NGHTTP2_ERR_FLOODED || lib == NGHTTP2_ERR_TOO_MANY_CONTINUATIONS)
        nghttp2_session_terminate_session(s->h2, NGHTTP2_ENHANCE_YOUR_CALM);
    else if (lib == NGHTTP2_ERR_BAD_CLIENT_MAGIC)
        nghttp2_session_terminate_session(s->h2, NGHTTP2_PROTOCOL_ERROR);
    int e = collect(s);
    e = e < 0 ? e : flush(s);
    pq_session_fail(s, lib == NGHTTP2_ERR_NOMEM ? PQ_E_NOMEM : PQ_E_PROTOCOL, "%s%s", nghttp2_strerror(lib),
                    e < 0 ? ", and GOAWAY could not be sent" : "");
}

static void feed(struct pq_session *s, const uint8_t *at, size_t n)
{
    bool first = !s->first_bytes;
    s->first_bytes = true;
    if (first && nghttp2_session_check_server_session(s->h2) && is_http1(at, n)) {
        int e = answer_http1(s);
        if (e < 0)
            pq_session_fail(s, e, "an HTTP/1 request");
        return;
    }
    nghttp2_ssize used = nghttp2_session_mem_recv2(s->h2, at, n);
    if (used < 0)
        refuse(s, (int)used);
}

static void end_of_stream(struct pq_session *s, int e)
{
    s->peer_done = true;
    if (s->state == PQ_SESSION_LINGER)
        pq_session_fail(s, 0, "closed");
    else if (e != PQ_E_CLOSED || !s->hooks->half_closed || !s->first_bytes || s->write_dead)
        pq_session_fail(s, e, "%s", e == PQ_E_CLOSED ? "the peer closed the connection" : pq_error_text(e));
}

/* A turn ends after some reads, since other sessions wait; of what TLS holds already no event tells, so that is read
 * too, and no more taken in for it. */
static void read_turn(struct pq_session *s)
{
    uint8_t bytes[READ_SIZE];
    for (int i = 0; i < READS_A_TURN || s->tls; i++) {
        size_t n = 0;
        if (s->tls)
            pq_tls_hold(s->tls, i >= READS_A_TURN);
        int e = read_some(s, bytes, sizeof bytes, &n);
        if (e == PQ_E_WANT_READ)
            return;
        if (e < 0) {
            end_of_stream(s, e);
            return;
        }
        if (s->state == PQ_SESSION_OPEN)
            feed(s, bytes, n);
        if (s->state == PQ_SESSION_ENDED)
            return;
        /* A short read of a plain socket has emptied it. */
        if (!s->tls && n < sizeof bytes)
            return;
    }
}

/* --- the loop's callbacks ----------------------------------------------------------------------------------------- */

static void open_session(struct pq_session *s)
{
    s->state = PQ_SESSION_OPEN;
    ev_timer_stop(s->loop, &s->timer);
    int e = s->hooks->open(s);
    if (e < 0)
        pq_session_fail(s, e, "%s", pq_error_text(e));
}

static void handshake_step(struct pq_session *s)
{
    int e = pq_tls_handshake(s->tls);
    s->read_needs_write = e == PQ_E_WANT_WRITE;
    if (e == 0) {
        open_session(s);
    } else if (e != PQ_E_WANT_READ && e != PQ_E_WANT_WRITE) {
        s->label = pq_tls_reason_label(pq_tls_reason(s->tls));
        pq_session_fail(s, e, "TLS handshake failed (%s): %s", s->label, pq_tls_failure(s->tls));
    }
}

static void connect_step(struct pq_session *s)
{
    int e = pq_tcp_connected(s->fd);
    if (e == PQ_E_WANT_WRITE)
        return;
    if (e < 0) {
        pq_session_fail(s, e, "%s", pq_error_text(e));
        return;
    }
    s->state = s->tls ? PQ_SESSION_HANDSHAKE : PQ_SESSION_OPEN;
    if (s->hooks->connected)
        s->hooks->connected(s);
    if (!s->tls)
        open_session(s);
}

static void step(struct pq_session *s, int events)
{
    if (s->state == PQ_SESSION_CONNECTING)
        connect_step(s);
    if (s->state == PQ_SESSION_HANDSHAKE)
        handshake_step(s);
    else if (s->state == PQ_SESSION_OPEN && !s->h2)
        open_session(s);
    if ((s->state == PQ_SESSION_OPEN || s->state == PQ_SESSION_LINGER) && !s->peer_done &&
        (events & EV_READ || s->read_needs_write || (s->tls && pq_tls_pending(s->tls))))
        read_turn(s);
    pump_and_look(s);
}

/* After the last touch of s: the owner may free it. */
static void settle(struct pq_session *s)
{
    if (s->state == PQ_SESSION_ENDED) {
        ev_clear_pending(s->loop, &s->io);
        s->hooks->ended(s, s->code, s->why.text);
    } else {
        watch(s);
    }
}

static void on_io(struct ev_loop *loop, ev_io *w, int events)
{
    (void)loop;
    struct pq_session *s = w->data;
    s->busy = true;
    step(s, events);
    s->busy = false;
    settle(s);
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop, (void)events;
    struct pq_session *s = w->data;
    s->busy = true;
    if (s->state == PQ_SESSION_LINGER)
        pq_session_fail(s, 0, "closed");
    else if (s->finishing)
        pq_session_fail(s, PQ_E_TIMEOUT, "the peer does not take what is left to send");
    else if (s->state == PQ_SESSION_OPEN)
        s->hooks->timeout(s);
    else
        pq_session_fail(s, PQ_E_TIMEOUT,
                        s->state == PQ_SESSION_CONNECTING ? "no TCP connection in time"
                                                          : "the TLS handshake took too long");
    pump_and_look(s);
    s->busy = false;
    settle(s);
}

void pq_session_begin(struct pq_session *s)
{
    watch(s);
    /* An accepted plain connection is open already. */
    if (s->state == PQ_SESSION_OPEN)
        ev_feed_event(s->loop, &s->io, EV_READ);
}

static int refuse_field(nghttp2_session *h2, const nghttp2_frame *frame, nghttp2_rcbuf *name, nghttp2_rcbuf *value,
                        uint8_t flags, void *user)
{
    (void)name, (void)value, (void)flags, (void)user;
    int e = nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_PROTOCOL_ERROR);
    return e < 0 ? NGHTTP2_ERR_CALLBACK_FAILURE : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

int pq_session_callbacks(const struct pq_session_frames *own, nghttp2_session_callbacks **out)
{
    nghttp2_session_callbacks *cb;
    if (nghttp2_session_callbacks_new(&cb) < 0)
        return PQ_E_NOMEM;
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, own->begin);
    nghttp2_session_callbacks_set_on_header_callback2(cb, own->header);
    nghttp2_session_callbacks_set_on_invalid_header_callback2(cb, refuse_field);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, own->data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, own->frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, own->sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, own->closed);
    *out = cb;
    return 0;
}

static int set_options(nghttp2_option *o)
{
    nghttp2_option_set_max_continuations(o, PQ_HTTP2_MAX_CONTINUATIONS);
    nghttp2_option_set_max_settings(o, PQ_HTTP2_MAX_SETTINGS);
    nghttp2_option_set_max_outbound_ack(o, OUTBOUND_ACKS);
    nghttp2_option_set_stream_reset_rate_limit(o, RESET_BURST, RESET_RATE);
    nghttp2_option_set_max_send_header_block_length(o, 2 * PQ_HTTP2_MAX_HEADER_LIST); /* the receiver judges */
    nghttp2_option_set_no_closed_streams(o, 1);
    nghttp2_option_set_peer_max_concurrent_streams(o, PQ_HTTP2_MAX_STREAMS);
    return 0;
}

static int submit_settings(struct pq_session *s, bool server, const struct pq_http2_limits *limits)
{
    const nghttp2_settings_entry entries[] = {
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, (uint32_t)limits->window},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, PQ_HTTP2_MAX_HEADER_LIST},
        {server ? NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS : NGHTTP2_SETTINGS_ENABLE_PUSH,
         server ? (uint32_t)limits->streams : 0},
    };
    if (nghttp2_submit_settings(s->h2, NGHTTP2_FLAG_NONE, entries, PQ_COUNT(entries)) < 0)
        return PQ_E_NOMEM;
    return nghttp2_session_set_local_window_size(s->h2, NGHTTP2_FLAG_NONE, 0, 4 * limits->window) < 0 ? PQ_E_NOMEM : 0;
}

static void option_delp(nghttp2_option **o) { nghttp2_option_del(*o); }

int pq_session_start(struct pq_session *s, bool server, const nghttp2_session_callbacks *callbacks,
                     const struct pq_http2_limits *limits, void *user)
{
    DEFER(option_delp) nghttp2_option *option = NULL;
    if (nghttp2_option_new(&option) < 0)
        return PQ_E_NOMEM;
    TRY(set_options(option));
    int e = server ? nghttp2_session_server_new2(&s->h2, callbacks, user, option)
                   : nghttp2_session_client_new2(&s->h2, callbacks, user, option);
    return e < 0 ? PQ_E_NOMEM : submit_settings(s, server, limits);
}

void pq_session_close(struct pq_session *s)
{
    if (s->loop) {
        ev_io_stop(s->loop, &s->io);
        ev_timer_stop(s->loop, &s->timer);
    }
    if (s->h2)
        nghttp2_session_del(s->h2);
    s->h2 = NULL;
    pq_tls_free(s->tls);
    s->tls = NULL;
    pq_closep(&s->fd);
    pq_buf_free(&s->out);
}
