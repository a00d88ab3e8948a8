#include "base/log.h"

#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"

const char *const pq_log_level_names[] = {"error", "warn", "info", "debug", NULL};
const char *const pq_log_format_names[] = {"logfmt", "json", NULL};

static _Atomic int threshold = PQ_LOG_INFO, layout = PQ_LOG_LOGFMT, out_fd = STDERR_FILENO;
static _Atomic uint64_t dropped;

void pq_log_set(enum pq_log_level level, enum pq_log_format format)
{
    threshold = level;
    layout = format;
}

void pq_log_to(int fd) { out_fd = fd; }
int pq_log_on(enum pq_log_level level) { return (int)level <= threshold; }
uint64_t pq_log_dropped(void) { return dropped; }

/* A line is built in a fixed buffer: what does not fit is cut, and logging never allocates. */
struct line {
    char at[4096];
    size_t len;
};

static void put(struct line *l, const char *text, size_t len)
{
    size_t room = sizeof l->at - 2 - l->len;
    if (len > room)
        len = room;
    memcpy(l->at + l->len, text, len);
    l->len += len;
}

static void put_text(struct line *l, const char *text) { put(l, text, strlen(text)); }

static void put_quoted(struct line *l, const char *text)
{
    put(l, "\"", 1);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        char escaped[8];
        if (*c == '"' || *c == '\\')
            snprintf(escaped, sizeof escaped, "\\%c", *c);
        else if (*c == '\n')
            snprintf(escaped, sizeof escaped, "\\n");
        else if (*c < 0x20 || *c == 0x7f)
            snprintf(escaped, sizeof escaped, "\\u%04x", *c);
        else
            snprintf(escaped, sizeof escaped, "%c", *c);
        put_text(l, escaped);
    }
    put(l, "\"", 1);
}

static bool plain(const char *text)
{
    if (!*text)
        return false;
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if (*c <= ' ' || *c == '"' || *c == '=' || *c == '\\' || *c == 0x7f)
            return false;
    return true;
}

static void put_value(struct line *l, struct pq_log_value v)
{
    char number[40];
    if (v.kind == PQ_LOG_TEXT) {
        if (layout == PQ_LOG_LOGFMT && plain(v.text))
            put_text(l, v.text);
        else
            put_quoted(l, v.text);
        return;
    }
    if (v.kind == PQ_LOG_INT)
        snprintf(number, sizeof number, "%lld", (long long)v.integer);
    else if (isfinite(v.real))
        snprintf(number, sizeof number, "%.3f", v.real);
    else
        snprintf(number, sizeof number, "null");
    put_text(l, number);
}

static void put_pair(struct line *l, const char *key, struct pq_log_value v)
{
    bool json = layout == PQ_LOG_JSON;
    if (l->len > (json ? 1u : 0u))
        put(l, json ? "," : " ", 1);
    if (json)
        put_quoted(l, key);
    else
        put_text(l, key);
    put(l, json ? ":" : "=", 1);
    put_value(l, v);
}

void pq_log(enum pq_log_level level, const char *event, ...)
{
    if (!pq_log_on(level))
        return;
    struct line l = {.len = 0};
    char now[32];
    pq_clock_rfc3339(pq_clock_wall_ns(), now, sizeof now);
    if (layout == PQ_LOG_JSON)
        put(&l, "{", 1);
    put_pair(&l, "time", pq_s(now));
    put_pair(&l, "level", pq_s(pq_log_level_names[level]));
    put_pair(&l, "event", pq_s(event));
    va_list args;
    va_start(args, event);
    for (const char *key; (key = va_arg(args, const char *));)
        put_pair(&l, key, va_arg(args, struct pq_log_value));
    va_end(args);
    l.at[l.len] = '}';
    l.len += layout == PQ_LOG_JSON;
    l.at[l.len++] = '\n';
    if (write(out_fd, l.at, l.len) != (ssize_t)l.len)
        dropped++;
}
