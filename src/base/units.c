#include "base/config.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"

struct unit {
    const char *name;
    int64_t factor;
};

/* Digits, optionally a decimal fraction, then a unit of the table; no sign, no space. */
static int parse_with_unit(const char *text, const struct unit *units, size_t count, int64_t *out)
{
    uint64_t whole = 0, part = 0, scale = 1;
    const char *c = text;
    if (!isdigit((unsigned char)*c))
        return PQ_E_SYNTAX;
    for (; isdigit((unsigned char)*c); c++)
        if (__builtin_mul_overflow(whole, 10u, &whole) || __builtin_add_overflow(whole, (uint64_t)(*c - '0'), &whole))
            return PQ_E_TOO_LONG;
    if (*c == '.') {
        if (!isdigit((unsigned char)*++c))
            return PQ_E_SYNTAX;
        for (; isdigit((unsigned char)*c); c++)
            if (scale < 1000000000u) {
                part = part * 10 + (uint64_t)(*c - '0');
                scale *= 10;
            }
    }
    if (!*c && whole == 0 && part == 0) {
        *out = 0;
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        if (strcmp(c, units[i].name) != 0)
            continue;
        uint64_t factor = (uint64_t)units[i].factor, v;
        uint64_t fraction = (uint64_t)((long double)part * (long double)factor / (long double)scale);
        if (__builtin_mul_overflow(whole, factor, &v) || __builtin_add_overflow(v, fraction, &v) || v > INT64_MAX)
            return PQ_E_TOO_LONG;
        *out = (int64_t)v;
        return 0;
    }
    return PQ_E_TYPE;
}

int pq_duration_parse(const char *text, int64_t *out_ns, struct pq_why *why)
{
    static const struct unit units[] = {{"ns", 1},
                                        {"us", PQ_NS_PER_US},
                                        {"ms", PQ_NS_PER_MS},
                                        {"s", PQ_NS_PER_S},
                                        {"min", 60 * PQ_NS_PER_S},
                                        {"h", 3600 * PQ_NS_PER_S},
                                        {"d", 86400 * PQ_NS_PER_S}};
    if (parse_with_unit(text, units, PQ_COUNT(units), out_ns) < 0)
        return pq_why(
            why, PQ_E_CONFIG,
            "\"%.40s\" is no duration: write a number and a unit (ns, us, ms, s, min, h, d), for example 250ms", text);
    return 0;
}

int pq_size_parse(const char *text, int64_t *out_bytes, struct pq_why *why)
{
    static const struct unit units[] = {{"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
    if (parse_with_unit(text, units, PQ_COUNT(units), out_bytes) < 0)
        return pq_why(why, PQ_E_CONFIG,
                      "\"%.40s\" is no size: write a number and a unit (B, KiB, MiB, GiB), for example 64KiB", text);
    return 0;
}

int pq_int_parse(const char *text, int64_t low, int64_t high, int64_t *out, struct pq_why *why)
{
    const char *digits = text + (text[0] == '-');
    bool decimal = *digits && strspn(digits, "0123456789") == strlen(digits) && (digits[0] != '0' || !digits[1]);
    errno = 0;
    long long v = decimal ? strtoll(text, NULL, 10) : 0;
    if (!decimal)
        return pq_why(why, PQ_E_CONFIG, "\"%.40s\" is no whole number", text);
    if (errno || v < low || v > high)
        return pq_why(why, PQ_E_CONFIG, "%.40s is not between %lld and %lld", text, (long long)low, (long long)high);
    *out = v;
    return 0;
}
