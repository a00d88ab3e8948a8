#include "proxy/tunnel_parts.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

enum {
    FIELDS_MAX = 4096,   /* bytes of a head's fields, counted as RFC 9113, section 6.5.2, does */
    FIELD_OVERHEAD = 32, /* section 6.5.2 */
    WINDOW = 1 << 30,    /* of the connection: the streams' windows bound what there is to keep */
    CALM_RATE = 500,     /* a second */
    CALM_EARNED = 3,     /* by each DATA frame that we send */
};

static enum pq_proxy_direction direction(const struct pq_tunnel *t) { return t->route->how->direction; }

/* --- what a peer may cost ----------------------------------------------------------------------------------------- */
/* Frames that move nothing are free up to a burst, and then at a rate, which grows by what we send ourselves: a
 * WINDOW_UPDATE for each of our DATA frames is nobody's flood. */
bool pq_tunnel_spend(struct pq_tunnel *t, double cost, const char *what)
{
    double now = t->loop->now;
    if (now > t->calm.at)
        t->calm.left += (now - t->calm.at) * CALM_RATE;
    t->calm.at = now;
    if (t->calm.left > PQ_TUNNEL_CALM)
        t->calm.left = PQ_TUNNEL_CALM;
    t->calm.left -= cost;
    if (t->calm.left < 0 && !t->calm.broken)
        t->calm.broken = what;
    return !t->calm.broken;
}

static double cost_of(const struct pq_tunnel *t, const nghttp2_frame_hd *hd)
{
    const struct pq_carried *s;
    switch (hd->type) {
    case NGHTTP2_DATA:
        return hd->length == 0 && !(hd->flags & NGHTTP2_FLAG_END_STREAM);
    case NGHTTP2_HEADERS:
        return 0;
    case NGHTTP2_RST_STREAM: /* of a connection that there hardly was: the rapid reset */
        s = nghttp2_session_get_stream_user_data(t->h2, hd->stream_id);
        return !s || !s->answered;
    default:
        return 1;
    }
}

static const char *frame_name(uint8_t type)
{
    static const char *const names[] = {"DATA",         "HEADERS", "PRIORITY", "RST_STREAM",    "SETTINGS",
                                        "PUSH_PROMISE", "PING",    "GOAWAY",   "WINDOW_UPDATE", "CONTINUATION"};
    return type < PQ_COUNT(names) ? names[type] : "unknown";
}

/* --- what comes --------------------------------------------------------------------------------------------------- */
static struct pq_carried *stream_at(struct pq_tunnel *t, int32_t id)
{
    return nghttp2_session_get_stream_user_data(t->h2, id);
}

static int on_begin_frame(nghttp2_session *h2, const nghttp2_frame_hd *hd, void *user)
{
    (void)h2;
    struct pq_tunnel *t = user;
    if (hd->type == NGHTTP2_DATA && hd->length)
        return 0;
    double cost = cost_of(t, hd);
    return cost == 0 || pq_tunnel_spend(t, cost, frame_name(hd->type)) ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_begin_headers(nghttp2_session *h2, const nghttp2_frame *frame, void *user)
{
    (void)h2, (void)frame;
    struct pq_tunnel *t = user;
    memset(&t->request, 0, sizeof t->request);
    return 0;
}

/* The stream alone fails, as RFC 9113, section 8.1.1, wants it. */
static int malformed(struct pq_tunnel *t, int32_t id, const char *what)
{
    pq_tunnel_refused(t, PQ_PROXY_BAD_REQUEST, what);
    int e = nghttp2_submit_rst_stream(t->h2, NGHTTP2_FLAG_NONE, id, NGHTTP2_PROTOCOL_ERROR);
    return e < 0 ? NGHTTP2_ERR_CALLBACK_FAILURE : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static bool is(nghttp2_vec v, const char *text) { return v.len == strlen(text) && memcmp(v.base, text, v.len) == 0; }

static void note_status(struct pq_tunnel *t, int32_t id, nghttp2_vec value)
{
    struct pq_carried *s = stream_at(t, id);
    int64_t status = 0;
    char text[8] = "";
    if (!s || value.len >= sizeof text)
        return;
    memcpy(text, value.base, value.len);
    if (pq_int_parse(text, 100, 999, &status, NULL) == 0)
        s->status = (uint16_t)status;
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, nghttp2_rcbuf *n, nghttp2_rcbuf *v, uint8_t flags,
                     void *user)
{
    (void)h2, (void)flags;
    struct pq_tunnel *t = user;
    nghttp2_vec name = nghttp2_rcbuf_get_buf(n), value = nghttp2_rcbuf_get_buf(v);
    t->request.bytes += name.len + value.len + FIELD_OVERHEAD;
    if (t->request.bytes > FIELDS_MAX)
        return malformed(t, frame->hd.stream_id, "its fields are longer than 4096 bytes");
    if (is(name, ":method")) {
        t->request.connect = is(value, "CONNECT");
    } else if (is(name, ":authority")) {
        if (value.len >= sizeof t->request.authority)
            return malformed(t, frame->hd.stream_id, "its :authority is longer than 255 bytes");
        memcpy(t->request.authority, value.base, value.len);
    } else if (is(name, ":status")) {
        note_status(t, frame->hd.stream_id, value);
    }
    return 0;
}

static int on_invalid_header(nghttp2_session *h2, const nghttp2_frame *frame, nghttp2_rcbuf *name, nghttp2_rcbuf *value,
                             uint8_t flags, void *user)
{
    (void)h2, (void)name, (void)value, (void)flags;
    return malformed(user, frame->hd.stream_id, "a field is malformed");
}

static int on_invalid_frame(nghttp2_session *h2, const nghttp2_frame *frame, int error, void *user)
{
    (void)h2;
    struct pq_tunnel *t = user;
    (void)error;
    if (frame->hd.type == NGHTTP2_HEADERS)
        pq_tunnel_refused(t, PQ_PROXY_BAD_REQUEST, "it is no request that RFC 9113 allows");
    return 0;
}

/* An answer to our CONNECT. */
static void answered(struct pq_tunnel *t, struct pq_carried *s)
{
    char detail[64];
    if (s->status < 200)
        return;
    if (s->status < 300) {
        s->answered = true;
        s->took_connect = pq_clock_ns() - s->started;
        pq_metrics_established(t->loop->set->counters, direction(t));
        return;
    }
    snprintf(detail, sizeof detail, "the peer answered CONNECT with %u", s->status);
    pq_carried_fail(s, s->status == 403 ? PQ_PROXY_CONNECT_FORBIDDEN : PQ_PROXY_CONNECT_REFUSED, NGHTTP2_CANCEL,
                    detail);
    pq_carried_touch(s);
}

static int on_head(struct pq_tunnel *t, const nghttp2_frame *frame)
{
    struct pq_carried *s = stream_at(t, frame->hd.stream_id);
    if (!s && !t->owner && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        if (!pq_tunnel_request(t, frame->hd.stream_id))
            return NGHTTP2_ERR_CALLBACK_FAILURE;
        s = stream_at(t, frame->hd.stream_id);
    } else if (s && !s->answered && t->owner) {
        answered(t, s);
    } else if (s) { /* no trailers here: RFC 9113, section 8.5 */
        pq_carried_fail(s, PQ_PROXY_RESET_BY_PEER, NGHTTP2_PROTOCOL_ERROR, "HEADERS came in the middle of the stream");
        pq_carried_touch(s);
    }
    if (s && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        pq_carried_took_end(s);
    return 0;
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *user)
{
    (void)h2;
    struct pq_tunnel *t = user;
    struct pq_carried *s;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        return on_head(t, frame);
    case NGHTTP2_DATA:
        s = frame->hd.flags & NGHTTP2_FLAG_END_STREAM ? stream_at(t, frame->hd.stream_id) : NULL;
        if (s)
            pq_carried_took_end(s);
        return 0;
    case NGHTTP2_SETTINGS:
        t->settings_came |= !(frame->hd.flags & NGHTTP2_FLAG_ACK);
        return 0;
    case NGHTTP2_GOAWAY:
        t->goaway_came = true;
        t->goaway = frame->goaway.error_code;
        return 0;
    default:
        return 0;
    }
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t id, const uint8_t *bytes, size_t len, void *user)
{
    (void)flags;
    struct pq_tunnel *t = user;
    struct pq_carried *s = nghttp2_session_get_stream_user_data(h2, id);
    t->came += len;
    if (s)
        pq_carried_take(s, bytes, len);
    return 0;
}

static int on_stream_close(nghttp2_session *h2, int32_t id, uint32_t code, void *user)
{
    (void)h2;
    struct pq_tunnel *t = user;
    struct pq_carried *s = stream_at(t, id);
    if (s) {
        pq_carried_gathered(t->loop);
        pq_carried_closed(s, code, false);
        t->room = true;
    }
    return 0;
}

/* --- what goes ---------------------------------------------------------------------------------------------------- */
static int on_send_data(nghttp2_session *h2, nghttp2_frame *frame, const uint8_t *head, size_t length,
                        nghttp2_data_source *source, void *user)
{
    (void)h2, (void)source;
    struct pq_tunnel *t = user;
    if (frame->data.padlen) /* we ask for none */
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    memcpy(t->out.at + t->out.len, head, PQ_TUNNEL_FRAME_HEAD);
    t->out.len += PQ_TUNNEL_FRAME_HEAD + length;
    t->calm.left += CALM_EARNED;
    return 0;
}

static int on_sent(nghttp2_session *h2, const nghttp2_frame *frame, void *user)
{
    struct pq_tunnel *t = user;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        t->said_goaway = true;
        t->said_error = frame->goaway.error_code;
    }
    /* A refused request's answer: whatever else comes for it nobody takes. */
    bool refusal = frame->hd.type == NGHTTP2_HEADERS && !t->owner && frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    if (refusal && nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR) < 0)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    return 0;
}

/* A single stream's frames fill records, with their heads. */
static nghttp2_ssize most_of_frame(nghttp2_session *h2, uint8_t type, int32_t id, int32_t connection, int32_t stream,
                                   uint32_t frame, void *user)
{
    (void)h2, (void)type, (void)id, (void)user;
    nghttp2_ssize most = PQ_TLS_RECORD - PQ_TUNNEL_FRAME_HEAD;
    most = most < connection ? most : connection;
    most = most < stream ? most : stream;
    return most < (nghttp2_ssize)frame ? most : (nghttp2_ssize)frame;
}

int pq_tunnel_callbacks(nghttp2_session_callbacks **out)
{
    nghttp2_session_callbacks *c;
    if (nghttp2_session_callbacks_new(&c) < 0)
        return PQ_E_NOMEM;
    nghttp2_session_callbacks_set_on_begin_frame_callback(c, on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(c, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback2(c, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback2(c, on_invalid_header);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(c, on_invalid_frame);
    nghttp2_session_callbacks_set_on_frame_recv_callback(c, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(c, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(c, on_stream_close);
    nghttp2_session_callbacks_set_send_data_callback(c, on_send_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(c, on_sent);
    nghttp2_session_callbacks_set_data_source_read_length_callback2(c, most_of_frame);
    *out = c;
    return 0;
}

int pq_tunnel_begin(struct pq_tunnel *t)
{
    const struct pq_proxy_config *config = t->loop->set->config;
    int64_t streams = config->limits.connections < PQ_TUNNEL_STREAMS ? config->limits.connections : PQ_TUNNEL_STREAMS;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, t->owner ? 0 : (uint32_t)streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, (uint32_t)config->limits.buffer},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, FIELDS_MAX},
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
    };
    int e = t->owner ? nghttp2_session_client_new2(&t->h2, t->loop->callbacks, t, t->loop->option)
                     : nghttp2_session_server_new2(&t->h2, t->loop->callbacks, t, t->loop->option);
    if (e < 0 ||
        nghttp2_submit_settings(t->h2, NGHTTP2_FLAG_NONE, settings,
                                t->owner ? PQ_COUNT(settings) : PQ_COUNT(settings) - 1) < 0 ||
        nghttp2_session_set_local_window_size(t->h2, NGHTTP2_FLAG_NONE, 0, WINDOW) < 0)
        return PQ_E_NOMEM;
    t->heard = t->loop->now;
    if (t->tls)
        pq_tls_keep_buffers(t->tls);
    pq_tunnel_touch(t);
    return 0;
}
