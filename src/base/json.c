#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/utf8.h"

struct pq_json pq_json(struct pq_buf *out) { return (struct pq_json){.out = out}; }

static void put(struct pq_json *j, const char *at, size_t len)
{
    if (j->failed == 0)
        j->failed = pq_buf_append(j->out, at, len);
}

static void put_string(struct pq_json *j, const char *text)
{
    put(j, "\"", 1);
    for (size_t len = strlen(text), n; len && j->failed == 0; text += n, len -= n) {
        uint32_t c = 0;
        n = pq_utf8_next(text, len, &c);
        if (n == 0)
            put(j, "\xef\xbf\xbd", 3);
        else if (c == '"' || c == '\\')
            put(j, c == '"' ? "\\\"" : "\\\\", 2);
        else if (c < 0x20 || c == 0x7f)
            j->failed = pq_buf_printf(j->out, "\\u%04x", c);
        else
            put(j, text, n);
        n += n == 0;
    }
    put(j, "\"", 1);
}

static void begin(struct pq_json *j, const char *key)
{
    if (j->follows)
        put(j, ",", 1);
    j->follows = true;
    if (!key)
        return;
    put_string(j, key);
    put(j, ":", 1);
}

void pq_json_open(struct pq_json *j, const char *key, char bracket)
{
    begin(j, key);
    put(j, &bracket, 1);
    j->follows = false;
}

void pq_json_close(struct pq_json *j, char bracket)
{
    put(j, &bracket, 1);
    j->follows = true;
}

void pq_json_text(struct pq_json *j, const char *key, const char *value)
{
    begin(j, key);
    if (value)
        put_string(j, value);
    else
        put(j, "null", 4);
}

void pq_json_whole(struct pq_json *j, const char *key, int64_t value)
{
    begin(j, key);
    if (j->failed == 0)
        j->failed = pq_buf_printf(j->out, "%" PRId64, value);
}

void pq_json_real(struct pq_json *j, const char *key, double value)
{
    begin(j, key);
    if (j->failed == 0)
        j->failed = isfinite(value) ? pq_buf_printf(j->out, "%.3f", value) : pq_buf_text(j->out, "null");
}

void pq_json_bool(struct pq_json *j, const char *key, bool value)
{
    begin(j, key);
    put(j, value ? "true" : "false", value ? 4 : 5);
}
