/* hex.h - hexadecimal texts as bytes, for tests. */
#ifndef PQ_TESTS_HEX_H
#define PQ_TESTS_HEX_H

#include "core5g/identity.h"

static inline const uint8_t *hex(const char *text, uint8_t *out, size_t size)
{
    assert_int_equal(pq_hex_read(text, out, size), 0);
    return out;
}

#define HEX(text, size) hex(text, (uint8_t[size]){0}, size)

#endif
