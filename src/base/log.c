#include "base/log.h"

#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/utf8.h"

const char *const pq_log_level_names[] = {"error", "warn", "info", "debug", NULL};
const char *const pq_log_format_names[] = {"logfmt", "json", NULL};

static _Atomic int own_threshold = PQ_LOG_INFO, layout = PQ_LOG_LOGFMT, out_fd = STDERR_FILENO;
static _Atomic uint64_t own_dropped;
/* Or another process's, too. */
static _Atomic int *threshold = &own_threshold;
static _Atomic uint64_t *dropped = &own_dropped;
static _Thread_local bool muted;

void pq_log_set(enum pq_log_level level, enum pq_log_format format)
{
    *threshold = level;
    layout = format;
}

void pq_log_set_format(enum pq_log_format format) { layout = format; }
void pq_log_to(int fd) { out_fd = fd; }
int pq_log_on(enum pq_log_level level) { return !muted && (int)level <= *threshold; }
uint64_t pq_log_dropped(void) { return *dropped; }
void pq_log_mute(bool on) { muted = on; }
void pq_log_count_dropped(_Atomic uint64_t *in) { dropped = in ? in : &own_dropped; }

void pq_log_level_in(_Atomic int *level)
{
    if (level)
        *level = *threshold;
    threshold = level ? level : &own_threshold;
}

/* A line is built in a fixed buffer, and logging never allocates. What does not fit is cut between two pairs or two
 * characters, and quote, brace and newline still close the line. */
struct line {
    char at[4096]; /* PIPE_BUF: a pipe takes it whole or not at all */
    size_t len;
    bool full;
};
enum { CLOSING = 3 };

static void put(struct line *l, const char *text, size_t len)
{
    l->full = l->full || l->len + len > sizeof l->at - CLOSING;
    if (l->full)
        return;
    memcpy(l->at + l->len, text, len);
    l->len += len;
}

static void put_text(struct line *l, const char *text) { put(l, text, strlen(text)); }

/* C0, DEL and C1 controls, line and paragraph separators, and what turns the direction of the text around it. */
static bool hidden(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

static void put_quoted(struct line *l, const char *text)
{
    put(l, "\"", 1);
    if (l->full)
        return;
    for (size_t len = strlen(text), n; len; text += n, len -= n) {
        uint32_t c = 0xfffd;
        char escaped[8];
        n = pq_utf8_next(text, len, &c);
        if (c == '"' || c == '\\')
            snprintf(escaped, sizeof escaped, "\\%c", (char)c);
        else if (c == '\n')
            snprintf(escaped, sizeof escaped, "\\n");
        else if (hidden(c))
            snprintf(escaped, sizeof escaped, "\\u%04x", c);
        else
            snprintf(escaped, sizeof escaped, "%.*s", n ? (int)n : 3, n ? text : "\xef\xbf\xbd");
        put_text(l, escaped);
        n += n == 0;
    }
    l->at[l->len++] = '"'; /* of CLOSING */
}

static bool plain(const char *text)
{
    size_t len = strlen(text);
    if (len == 0)
        return false;
    for (size_t n; len; text += n, len -= n) {
        uint32_t c = 0;
        n = pq_utf8_next(text, len, &c);
        if (n == 0 || hidden(c) || c == ' ' || c == '"' || c == '=' || c == '\\')
            return false;
    }
    return true;
}

static void put_value(struct line *l, struct pq_log_value v)
{
    char number[40];
    if (v.kind == PQ_LOG_TEXT) {
        if (layout == PQ_LOG_LOGFMT && plain(v.text)) {
            put_text(l, v.text);
            if (!l->full)
                return;
            l->full = false;
        }
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
    size_t before = l->len;
    if (before > (json ? 1u : 0u))
        put(l, json ? "," : " ", 1);
    if (json)
        put_quoted(l, key);
    else
        put_text(l, key);
    put(l, json ? ":" : "=", 1);
    size_t start = l->len;
    if (!l->full)
        put_value(l, v);
    if (l->full && l->len == start)
        l->len = before; /* a key without its value */
}

/* A reader that stopped reading must not stop this process. The descriptor is often shared with other programs, so
 * that O_NONBLOCK is not ours to set. */
static bool takes_a_line(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLOUT | POLLERR | POLLNVAL)) == POLLOUT;
}

/* A disk that got full may have taken the beginning of a line: the next one begins anew. */
static bool write_line(int fd, struct line *l)
{
    static atomic_bool cut;
    struct iovec parts[] = {{(void *)(uintptr_t)"\n", cut}, {l->at, l->len}};
    if (!takes_a_line(fd))
        return false;
    ssize_t wanted = (ssize_t)(parts[0].iov_len + l->len), n = writev(fd, parts, 2);
    if (n > 0)
        cut = n < wanted;
    return n == wanted;
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
    if (!write_line(out_fd, &l))
        (*dropped)++;
}
