#include "base/utf8.h"

size_t pq_utf8_next(const char *text, size_t len, uint32_t *out)
{
    static const struct {
        uint8_t mask, lead;
        uint32_t low; /* what a shorter form holds is below */
    } forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    const uint8_t *at = (const uint8_t *)text;
    for (size_t n = 1; n <= 4 && n <= len; n++) {
        if ((at[0] & forms[n - 1].mask) != forms[n - 1].lead)
            continue;
        uint32_t c = at[0] & (uint8_t)~forms[n - 1].mask;
        for (size_t i = 1; i < n; i++) {
            if ((at[i] & 0xc0) != 0x80)
                return 0;
            c = c << 6 | (at[i] & 0x3f);
        }
        if (c < forms[n - 1].low || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
            return 0;
        *out = c;
        return n;
    }
    return 0;
}
