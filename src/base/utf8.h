/* utf8.h - one character of UTF-8.
 *
 * Spec:   RFC 3629, section 4: no overlong form, no surrogate, nothing above U+10FFFF.
 * Owns:   nothing.
 * Errors: a length of 0 where no well-formed character starts.
 */
#ifndef PQ_BASE_UTF8_H
#define PQ_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The length of the character that text starts with, of which len bytes may be read, and its code point. */
size_t pq_utf8_next(const char *text, size_t len, uint32_t *out);

#endif
