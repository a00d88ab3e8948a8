#include "http2/message.h"

#include <string.h>

#include "base/cleanup.h"

void pq_http2_message_init(struct pq_http2_message *m, size_t max_body)
{
    *m = (struct pq_http2_message){
        .method = "", .scheme = "", .authority = "", .path = "", .body.cap = max_body, .trailer_at = SIZE_MAX};
}

const char *pq_http2_get(const struct pq_http2_message *m, const char *name)
{
    for (size_t i = 0; i < m->field_count; i++)
        if (strcmp(m->fields[i].name, name) == 0)
            return m->fields[i].value;
    return NULL;
}

void pq_http2_message_clear(struct pq_http2_message *m)
{
    for (size_t i = 0; i < 2 * m->field_count; i++)
        nghttp2_rcbuf_decref(m->held[i]);
    for (size_t i = 0; i < PQ_COUNT(m->pseudo); i++)
        if (m->pseudo[i])
            nghttp2_rcbuf_decref(m->pseudo[i]);
    free(m->fields);
    free(m->held);
    size_t cap = m->body.cap;
    pq_buf_free(&m->body);
    pq_http2_message_init(m, cap);
}

static const char *text_of(nghttp2_rcbuf *b) { return (const char *)nghttp2_rcbuf_get_buf(b).base; }

/* nghttp2 has checked that :status is three digits. */
static int status_of(const char *text) { return (text[0] - '0') * 100 + (text[1] - '0') * 10 + (text[2] - '0'); }

static void set_pseudo(struct pq_http2_message *m, const char *name, nghttp2_rcbuf *value)
{
    const struct {
        const char *name;
        const char **to;
    } slots[] = {{":method", &m->method}, {":scheme", &m->scheme}, {":authority", &m->authority}, {":path", &m->path}};
    if (strcmp(name, ":status") == 0)
        m->status = status_of(text_of(value));
    for (size_t i = 0; i < PQ_COUNT(slots); i++)
        if (strcmp(name, slots[i].name) == 0 && !m->pseudo[i]) {
            nghttp2_rcbuf_incref(value);
            m->pseudo[i] = value;
            *slots[i].to = text_of(value);
        }
}

/* Room grows by doubling from 16. */
static int make_room(struct pq_http2_message *m)
{
    size_t n = m->field_count;
    if (n >= PQ_HTTP2_MAX_FIELDS)
        return PQ_E_TOO_LONG;
    if (n && (n < 16 || (n & (n - 1))))
        return 0;
    size_t size = n ? 2 * n : 16;
    struct pq_http2_field *fields = realloc(m->fields, size * sizeof *fields);
    if (!fields)
        return PQ_E_NOMEM;
    m->fields = fields;
    nghttp2_rcbuf **held = realloc(m->held, 2 * size * sizeof(nghttp2_rcbuf *));
    if (!held)
        return PQ_E_NOMEM;
    m->held = held;
    return 0;
}

int pq_http2_message_add(struct pq_http2_message *m, nghttp2_rcbuf *name, nghttp2_rcbuf *value)
{
    size_t size = nghttp2_rcbuf_get_buf(name).len + nghttp2_rcbuf_get_buf(value).len + 32;
    if (size > PQ_HTTP2_MAX_HEADER_LIST - m->list_size)
        return PQ_E_TOO_LONG;
    if (text_of(name)[0] == ':') {
        set_pseudo(m, text_of(name), value);
        m->list_size += size;
        return 0;
    }
    TRY(make_room(m));
    nghttp2_rcbuf_incref(name);
    nghttp2_rcbuf_incref(value);
    m->held[2 * m->field_count] = name;
    m->held[2 * m->field_count + 1] = value;
    m->fields[m->field_count++] = (struct pq_http2_field){text_of(name), text_of(value)};
    m->list_size += size;
    return 0;
}
