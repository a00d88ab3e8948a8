#include "http2/stream.h"

#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/config.h"
#include "http2/message.h"

enum { ANSWER_FIELDS = 24, STATUS_CONTINUE = 100 };

struct pq_stream {
    struct pq_http2_exchange x;     /* first: the handler's pointer is ours */
    struct pq_stream_place *place;  /* NULL once closed */
    struct pq_stream *next, **link; /* in the place's list */
    int32_t id;
    ev_timer timer;
    bool request_done, handed, answered;
    struct pq_buf body; /* the answer's */
    size_t body_sent;
    char *trailer_text; /* name NUL value NUL ... */
    size_t trailer_count;
};

static void on_timer(struct ev_loop *loop, ev_timer *w, int events);

static void deadline(struct pq_stream *s, int64_t ns)
{
    struct ev_loop *loop = s->place->session->loop;
    ev_timer_stop(loop, &s->timer);
    ev_timer_set(&s->timer, (double)ns / (double)PQ_NS_PER_S, 0.);
    ev_timer_start(loop, &s->timer);
}

int pq_stream_new(struct pq_stream_place *place, int32_t id, struct pq_stream **out)
{
    struct pq_stream *s = calloc(1, sizeof *s);
    if (!s)
        return PQ_E_NOMEM;
    s->place = place;
    s->id = id;
    s->x.peer = "";
    pq_http2_message_init(&s->x.request, place->how->limits.body);
    ev_timer_init(&s->timer, on_timer, 0., 0.);
    s->timer.data = s;
    s->next = place->first;
    s->link = &place->first;
    if (s->next)
        s->next->link = &s->next;
    place->first = s;
    deadline(s, place->how->timeouts.request);
    *out = s;
    return 0;
}

static void stream_free(struct pq_stream *s)
{
    pq_http2_message_clear(&s->x.request);
    pq_buf_free(&s->body);
    free(s->trailer_text);
    free(s);
}

static void reset(struct pq_stream *s, uint32_t code)
{
    if (nghttp2_submit_rst_stream(s->place->session->h2, NGHTTP2_FLAG_NONE, s->id, code) < 0)
        pq_session_fail(s->place->session, PQ_E_NOMEM, "%s", pq_error_text(PQ_E_NOMEM));
    else
        pq_session_pump(s->place->session);
}

static void hand_over(struct pq_stream *s, int refused)
{
    if (s->handed)
        return;
    s->handed = true;
    s->x.refused = refused;
    s->x.peer = s->place->peer;
    s->place->counts->requests++;
    ev_timer_stop(s->place->session->loop, &s->timer);
    s->place->how->request(s->place->how->context, &s->x);
}

/* The request did not end in time, or the client does not take its answer. */
static void on_timer(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop, (void)events;
    struct pq_stream *s = w->data;
    if (s->handed)
        reset(s, NGHTTP2_CANCEL);
    else
        hand_over(s, 408);
}

/* --- the request -------------------------------------------------------------------------------------------------- */

int pq_stream_header(struct pq_stream *s, nghttp2_rcbuf *name, nghttp2_rcbuf *value)
{
    if (s->handed || s->x.refused)
        return 0;
    int e = pq_http2_message_add(&s->x.request, name, value);
    if (e == PQ_E_TOO_LONG)
        s->x.refused = 431;
    return e == PQ_E_NOMEM ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

/* 413 at once where the client announces more than the limit; else it may send. */
static int expect_body(struct pq_stream *s)
{
    const char *length = pq_http2_get(&s->x.request, "content-length");
    int64_t n = 0;
    if (length && (pq_int_parse(length, 0, INT64_MAX, &n, NULL) < 0 || (uint64_t)n > s->x.request.body.cap)) {
        hand_over(s, 413);
        return 0;
    }
    const char *expect = pq_http2_get(&s->x.request, "expect");
    if (!expect || strcasecmp(expect, "100-continue") != 0)
        return 0;
    nghttp2_nv status = {(uint8_t *)":status", (uint8_t *)"100", 7, 3, NGHTTP2_NV_FLAG_NONE};
    return nghttp2_submit_headers(s->place->session->h2, NGHTTP2_FLAG_NONE, s->id, NULL, &status, 1, NULL) < 0
               ? NGHTTP2_ERR_CALLBACK_FAILURE
               : 0;
}

int pq_stream_headers_end(struct pq_stream *s, bool trailers, bool end_stream)
{
    s->request_done = end_stream;
    if (s->x.refused)
        hand_over(s, s->x.refused);
    else if (end_stream)
        hand_over(s, 0);
    else if (!trailers)
        return expect_body(s);
    return 0;
}

int pq_stream_trailers_begin(struct pq_stream *s)
{
    s->x.request.trailer_at = s->x.request.field_count;
    return 0;
}

int pq_stream_data(struct pq_stream *s, const uint8_t *at, size_t len)
{
    if (s->handed)
        return 0;
    if (len > s->place->how->limits.buffered - s->place->buffered) {
        hand_over(s, 503);
        return 0;
    }
    int e = pq_buf_append(&s->x.request.body, at, len);
    if (e == PQ_E_TOO_LONG)
        hand_over(s, 413);
    else if (e == 0)
        s->place->buffered += len;
    return e == PQ_E_NOMEM ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

int pq_stream_data_end(struct pq_stream *s)
{
    s->request_done = true;
    hand_over(s, s->x.refused);
    return 0;
}

/* --- the answer --------------------------------------------------------------------------------------------------- */

static nghttp2_nv nv(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value), NGHTTP2_NV_FLAG_NONE};
}

static int submit_trailers(struct pq_stream *s)
{
    nghttp2_nv nvs[ANSWER_FIELDS];
    const char *at = s->trailer_text;
    for (size_t i = 0; i < s->trailer_count; i++) {
        const char *value = at + strlen(at) + 1;
        nvs[i] = nv(at, value);
        at = value + strlen(value) + 1;
    }
    return nghttp2_submit_trailer(s->place->session->h2, s->id, nvs, s->trailer_count);
}

static nghttp2_ssize read_body(nghttp2_session *h2, int32_t id, uint8_t *out, size_t size, uint32_t *flags,
                               nghttp2_data_source *source, void *user)
{
    (void)h2, (void)id, (void)user;
    struct pq_stream *s = source->ptr;
    size_t n = s->body.len - s->body_sent;
    if (n > size)
        n = size;
    if (n)
        memcpy(out, s->body.at + s->body_sent, n);
    s->body_sent += n;
    deadline(s, s->place->how->timeouts.request);
    if (s->body_sent < s->body.len)
        return (nghttp2_ssize)n;
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (s->trailer_count) {
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (submit_trailers(s) < 0)
            return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    return (nghttp2_ssize)n;
}

static int keep_trailers(struct pq_stream *s, const struct pq_http2_answer *a)
{
    DEFER(pq_buf_free) struct pq_buf b = {.cap = PQ_HTTP2_MAX_HEADER_LIST};
    if (a->trailer_count > ANSWER_FIELDS)
        return PQ_E_TOO_LONG;
    for (size_t i = 0; i < a->trailer_count; i++) {
        TRY(pq_buf_append(&b, a->trailers[i].name, strlen(a->trailers[i].name) + 1));
        TRY(pq_buf_append(&b, a->trailers[i].value, strlen(a->trailers[i].value) + 1));
    }
    s->trailer_text = (char *)TAKE(b.at);
    s->trailer_count = a->trailer_count;
    return 0;
}

/* RFC 9110, 6.6.1: a server with a clock sends Date. */
static const char *date_text(void)
{
    static char text[32];
    static time_t last;
    time_t now = time(NULL);
    if (now != last) {
        struct tm tm;
        gmtime_r(&now, &tm);
        strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
        last = now;
    }
    return text;
}

static int submit_answer(struct pq_stream *s, const struct pq_http2_answer *a)
{
    char status[12], length[24];
    nghttp2_nv nvs[ANSWER_FIELDS + 3];
    size_t n = 0;
    if (a->field_count > ANSWER_FIELDS || a->status < 200 || a->status > 999)
        return PQ_E_INVALID;
    TRY(keep_trailers(s, a));
    snprintf(status, sizeof status, "%d", a->status);
    snprintf(length, sizeof length, "%zu", s->body.len);
    nvs[n++] = nv(":status", status);
    nvs[n++] = nv("date", date_text());
    for (size_t i = 0; i < a->field_count; i++)
        nvs[n++] = nv(a->fields[i].name, a->fields[i].value);
    if (a->status != 204 && a->status != 304 && !a->trailer_count)
        nvs[n++] = nv("content-length", length);
    bool bodyless = (s->body.len == 0 && !s->trailer_count) || strcmp(s->x.request.method, "HEAD") == 0;
    nghttp2_data_provider2 provider = {.source.ptr = s, .read_callback = read_body};
    return nghttp2_submit_response2(s->place->session->h2, s->id, nvs, n, bodyless ? NULL : &provider) < 0 ? PQ_E_NOMEM
                                                                                                           : 0;
}

void pq_http2_respond(struct pq_http2_exchange *x, const struct pq_http2_answer *a)
{
    struct pq_stream *s = (struct pq_stream *)(void *)x;
    if (a->body) {
        s->body = *a->body;
        *a->body = (struct pq_buf){.cap = s->body.cap};
    }
    if (!s->place) {
        stream_free(s);
        return;
    }
    s->answered = true;
    s->place->counts->answers++;
    /* The request is not needed any more; a slow reader of the answer should not hold it. */
    s->place->buffered -= s->x.request.body.len;
    pq_buf_free(&s->x.request.body);
    deadline(s, s->place->how->timeouts.request);
    if (submit_answer(s, a) < 0)
        reset(s, NGHTTP2_INTERNAL_ERROR);
    else
        pq_session_pump(s->place->session);
}

/* RFC 9113, 8.1: an answer that does not need the rest of the request is followed by RST_STREAM(NO_ERROR). */
void pq_stream_sent_end(struct pq_stream *s)
{
    if (!s->request_done &&
        nghttp2_submit_rst_stream(s->place->session->h2, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_NO_ERROR) < 0)
        pq_session_fail(s->place->session, PQ_E_NOMEM, "%s", pq_error_text(PQ_E_NOMEM));
}

void pq_streams_cut(struct pq_stream_place *place)
{
    for (struct pq_stream *s = place->first; s; s = s->next)
        if ((!s->request_done || s->answered) &&
            nghttp2_submit_rst_stream(place->session->h2, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_CANCEL) < 0)
            pq_session_fail(place->session, PQ_E_NOMEM, "%s", pq_error_text(PQ_E_NOMEM));
}

void pq_stream_closed(struct pq_stream *s)
{
    ev_timer_stop(s->place->session->loop, &s->timer);
    s->place->buffered -= s->x.request.body.len;
    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    s->place = NULL;
    s->x.peer = "";
    if (s->answered || !s->handed)
        stream_free(s);
}
