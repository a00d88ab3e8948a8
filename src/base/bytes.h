/* bytes.h - the one checked reader, the one bounded writer, and a buffer that grows up to a cap.
 *
 * Spec:   big-endian integers (network order) and length-prefixed vectors (RFC 8446, section 3.4).
 * Owns:   a span, reader and writer point into the caller's bytes; a pq_buf owns its bytes until pq_buf_free().
 * Errors: PQ_E_TRUNCATED (reader), PQ_E_TOO_LONG (a length above the caller's cap; writer or buffer full), PQ_E_NOMEM.
 *         On error the output and the position are unchanged.
 */
#ifndef PQ_BASE_BYTES_H
#define PQ_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct pq_span {
    const uint8_t *at;
    size_t len;
};

struct pq_span pq_span(const void *at, size_t len);
struct pq_span pq_span_text(const char *text);
bool pq_span_equal(struct pq_span a, struct pq_span b);

struct pq_reader {
    const uint8_t *at, *end;
};

struct pq_reader pq_reader(struct pq_span in);
size_t pq_reader_left(const struct pq_reader *r);
PQ_MUST_CHECK int pq_read_u8(struct pq_reader *r, uint8_t *out);
PQ_MUST_CHECK int pq_read_u16(struct pq_reader *r, uint16_t *out);
PQ_MUST_CHECK int pq_read_u24(struct pq_reader *r, uint32_t *out);
PQ_MUST_CHECK int pq_read_u32(struct pq_reader *r, uint32_t *out);
PQ_MUST_CHECK int pq_read_u64(struct pq_reader *r, uint64_t *out);
PQ_MUST_CHECK int pq_read_bytes(struct pq_reader *r, size_t len, struct pq_span *out);
/* A vector behind a length of 1, 2 or 3 bytes; a length above cap is PQ_E_TOO_LONG. */
PQ_MUST_CHECK int pq_read_vector(struct pq_reader *r, unsigned length_bytes, size_t cap, struct pq_span *out);

struct pq_writer {
    uint8_t *at;
    size_t len, size;
};

struct pq_writer pq_writer(void *at, size_t size);
PQ_MUST_CHECK int pq_write_u8(struct pq_writer *w, uint8_t v);
PQ_MUST_CHECK int pq_write_u16(struct pq_writer *w, uint16_t v);
PQ_MUST_CHECK int pq_write_u24(struct pq_writer *w, uint32_t v);
PQ_MUST_CHECK int pq_write_u32(struct pq_writer *w, uint32_t v);
PQ_MUST_CHECK int pq_write_u64(struct pq_writer *w, uint64_t v);
PQ_MUST_CHECK int pq_write_bytes(struct pq_writer *w, struct pq_span bytes);

/* cap is the most it may ever hold, in bytes. Zero-initialise the rest. The bytes always end in a NUL beyond len. */
struct pq_buf {
    uint8_t *at;
    size_t len, size, cap;
};

PQ_MUST_CHECK int pq_buf_append(struct pq_buf *b, const void *bytes, size_t len);
PQ_MUST_CHECK int pq_buf_text(struct pq_buf *b, const char *text);
PQ_MUST_CHECK int pq_buf_printf(struct pq_buf *b, const char *format, ...) PQ_PRINTF(2, 3);
/* Room for len more bytes at b->at + b->len; the caller then adds to b->len. */
PQ_MUST_CHECK int pq_buf_reserve(struct pq_buf *b, size_t len);
/* The same, growing by no more than it takes (in steps of 1 KiB): for many buffers that peers fill. */
PQ_MUST_CHECK int pq_buf_reserve_tight(struct pq_buf *b, size_t len);
void pq_buf_consume(struct pq_buf *b, size_t len);
void pq_buf_free(struct pq_buf *b);
/* For what was secret: wiped, then freed. */
void pq_buf_wipe(struct pq_buf *b);

#endif
