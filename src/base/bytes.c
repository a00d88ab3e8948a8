#include "base/bytes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

struct pq_span pq_span(const void *at, size_t len) { return (struct pq_span){at, len}; }

struct pq_span pq_span_text(const char *text) { return (struct pq_span){(const uint8_t *)text, strlen(text)}; }

bool pq_span_equal(struct pq_span a, struct pq_span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.at, b.at, a.len) == 0);
}

struct pq_reader pq_reader(struct pq_span in) { return (struct pq_reader){in.at, in.at + in.len}; }

size_t pq_reader_left(const struct pq_reader *r) { return (size_t)(r->end - r->at); }

static int read_integer(struct pq_reader *r, unsigned bytes, uint64_t *out)
{
    if (pq_reader_left(r) < bytes)
        return PQ_E_TRUNCATED;
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++)
        v = v << 8 | *r->at++;
    *out = v;
    return 0;
}

int pq_read_u8(struct pq_reader *r, uint8_t *out)
{
    uint64_t v;
    TRY(read_integer(r, 1, &v));
    *out = (uint8_t)v;
    return 0;
}

int pq_read_u16(struct pq_reader *r, uint16_t *out)
{
    uint64_t v;
    TRY(read_integer(r, 2, &v));
    *out = (uint16_t)v;
    return 0;
}

int pq_read_u24(struct pq_reader *r, uint32_t *out)
{
    uint64_t v;
    TRY(read_integer(r, 3, &v));
    *out = (uint32_t)v;
    return 0;
}

int pq_read_u32(struct pq_reader *r, uint32_t *out)
{
    uint64_t v;
    TRY(read_integer(r, 4, &v));
    *out = (uint32_t)v;
    return 0;
}

int pq_read_u64(struct pq_reader *r, uint64_t *out) { return read_integer(r, 8, out); }

int pq_read_bytes(struct pq_reader *r, size_t len, struct pq_span *out)
{
    if (pq_reader_left(r) < len)
        return PQ_E_TRUNCATED;
    *out = pq_span(r->at, len);
    r->at += len;
    return 0;
}

int pq_read_vector(struct pq_reader *r, unsigned length_bytes, size_t cap, struct pq_span *out)
{
    struct pq_reader ahead = *r;
    uint64_t len;
    TRY(read_integer(&ahead, length_bytes, &len));
    if (len > cap)
        return PQ_E_TOO_LONG;
    TRY(pq_read_bytes(&ahead, (size_t)len, out));
    *r = ahead;
    return 0;
}

struct pq_writer pq_writer(void *at, size_t size) { return (struct pq_writer){at, 0, size}; }

static int write_integer(struct pq_writer *w, unsigned bytes, uint64_t v)
{
    if (w->size - w->len < bytes)
        return PQ_E_TOO_LONG;
    for (unsigned i = bytes; i-- > 0;)
        w->at[w->len++] = (uint8_t)(v >> (8 * i));
    return 0;
}

int pq_write_u8(struct pq_writer *w, uint8_t v) { return write_integer(w, 1, v); }
int pq_write_u16(struct pq_writer *w, uint16_t v) { return write_integer(w, 2, v); }
int pq_write_u24(struct pq_writer *w, uint32_t v) { return v >> 24 ? PQ_E_TOO_LONG : write_integer(w, 3, v); }
int pq_write_u32(struct pq_writer *w, uint32_t v) { return write_integer(w, 4, v); }
int pq_write_u64(struct pq_writer *w, uint64_t v) { return write_integer(w, 8, v); }

int pq_write_bytes(struct pq_writer *w, struct pq_span bytes)
{
    if (w->size - w->len < bytes.len)
        return PQ_E_TOO_LONG;
    if (bytes.len)
        memcpy(w->at + w->len, bytes.at, bytes.len);
    w->len += bytes.len;
    return 0;
}

/* Not realloc(), which may leave a copy behind: what is kept here may be a key. */
static int resize(struct pq_buf *b, size_t size)
{
    uint8_t *at = malloc(size);
    if (!at)
        return PQ_E_NOMEM;
    if (b->at) {
        memcpy(at, b->at, b->len);
        explicit_bzero(b->at, b->size);
        free(b->at);
    }
    b->at = at;
    b->size = size;
    b->at[b->len] = 0;
    return 0;
}

static bool fits(const struct pq_buf *b, size_t len) { return len <= b->cap && b->len <= b->cap - len; }

int pq_buf_reserve(struct pq_buf *b, size_t len)
{
    if (!fits(b, len))
        return PQ_E_TOO_LONG;
    size_t need = b->len + len + 1;
    if (need <= b->size)
        return 0;
    size_t size = b->size ? b->size : 64;
    while (size < need)
        size *= 2;
    return resize(b, size > b->cap + 1 ? b->cap + 1 : size);
}

int pq_buf_reserve_tight(struct pq_buf *b, size_t len)
{
    enum { STEP = 1024 };
    if (!fits(b, len))
        return PQ_E_TOO_LONG;
    size_t need = b->len + len + 1;
    return need <= b->size ? 0 : resize(b, (need + STEP - 1) / STEP * STEP);
}

int pq_buf_append(struct pq_buf *b, const void *bytes, size_t len)
{
    TRY(pq_buf_reserve(b, len));
    if (len)
        memcpy(b->at + b->len, bytes, len);
    b->len += len;
    b->at[b->len] = 0;
    return 0;
}

int pq_buf_text(struct pq_buf *b, const char *text) { return pq_buf_append(b, text, strlen(text)); }

int pq_buf_printf(struct pq_buf *b, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    int e = n < 0 ? PQ_E_INVALID : pq_buf_reserve(b, (size_t)n);
    if (e == 0) {
        vsnprintf((char *)b->at + b->len, (size_t)n + 1, format, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return e;
}

void pq_buf_consume(struct pq_buf *b, size_t len)
{
    if (len >= b->len)
        len = b->len;
    if (len == 0)
        return;
    memmove(b->at, b->at + len, b->len - len);
    b->len -= len;
    b->at[b->len] = 0;
}

void pq_buf_free(struct pq_buf *b)
{
    free(b->at);
    *b = (struct pq_buf){.cap = b->cap};
}

void pq_buf_wipe(struct pq_buf *b)
{
    if (b->at)
        explicit_bzero(b->at, b->size);
    pq_buf_free(b);
}
