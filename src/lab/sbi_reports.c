#include <math.h>
#include <string.h>
#include <time.h>
#include <yyjson.h>

#include "base/clock.h"
#include "lab/sbi_internal.h"

enum { LINES_MAX = 1000000 };

static void json_free(yyjson_doc **d) { yyjson_doc_free(*d); }

void pq_sbi_load_free(struct pq_sbi_load *l)
{
    free(l->samples);
    *l = (struct pq_sbi_load){0};
}

static int64_t whole(yyjson_val *in, const char *key) { return yyjson_get_sint(yyjson_obj_get(in, key)); }

static int read_errors(yyjson_val *errors, struct pq_record *record, struct pq_sbi_load *out, struct pq_why *why)
{
    size_t i, n;
    yyjson_val *e;
    yyjson_arr_foreach(errors, i, n, e)
    {
        const char *reason = yyjson_get_str(yyjson_obj_get(e, "reason"));
        int64_t count = whole(e, "count");
        if (!reason || count < 1)
            return pq_why(why, PQ_E_SYNTAX, "the load's report has an error without reason or count");
        if (out->failed == 0)
            snprintf(out->reason, sizeof out->reason, "%s", reason);
        out->failed += (uint64_t)count;
        char text[PQ_REASON_MAX];
        snprintf(text, sizeof text, "request: %s", reason);
        if (record && pq_record_error(record, text, (uint64_t)count) < 0)
            return pq_why(why, PQ_E_NOMEM, "out of memory");
    }
    return 0;
}

int pq_sbi_load_parse(const char *json, size_t len, int64_t ended_ns, struct pq_record *failures,
                      struct pq_sbi_load *out, struct pq_why *why)
{
    DEFER(json_free) yyjson_doc *d = yyjson_read(json, len, 0);
    DEFER(pq_sbi_load_free) struct pq_sbi_load l = {0};
    yyjson_val *root = yyjson_doc_get_root(d), *samples = yyjson_obj_get(root, "samples"), *s;
    if (!yyjson_is_arr(samples) || !yyjson_is_arr(yyjson_obj_get(root, "errors")))
        return pq_why(why, PQ_E_SYNTAX, "the load's report is not what it should be (JSON with samples and errors)");
    size_t count = yyjson_arr_size(samples), i, n;
    l.samples = calloc(count ? count : 1, sizeof *l.samples);
    if (!l.samples)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    l.cpu_ns = whole(root, "cpu_ns");
    /* The load tells times since it began to measure; that it ended shortly before we saw it end is near enough for a
     * place on the time axis, and no figure depends on it. */
    int64_t began_ns = ended_ns - whole(root, "wall_ns");
    yyjson_arr_foreach(samples, i, n, s)
    {
        struct pq_sbi_sample one = {began_ns + whole(s, "at_ns"), whole(s, "total_ns"), whole(s, "tcp_ns"),
                                    whole(s, "tls_ns"), whole(s, "chain_ns")};
        if (one.total_ns <= 0 || one.tcp_ns < 0 || one.tls_ns < 0 || one.chain_ns < 0)
            return pq_why(why, PQ_E_SYNTAX, "the load's report has a sample without a duration");
        l.samples[l.count++] = one;
    }
    TRY(read_errors(yyjson_obj_get(root, "errors"), failures, &l, why));
    *out = l;
    l = (struct pq_sbi_load){0};
    return 0;
}

/* "2026-11-30T13:12:19.123Z" in milliseconds since 1970. */
static int read_time(const char *text, double *out)
{
    struct tm tm = {0};
    double seconds;
    if (!text || sscanf(text, "%4d-%2d-%2dT%2d:%2d:%6lfZ", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
                        &tm.tm_min, &seconds) != 6)
        return PQ_E_SYNTAX;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    *out = (double)timegm(&tm) * 1e3 + seconds * 1e3;
    return 0;
}

static bool has_text(yyjson_val *line, const char *key, const char *wanted)
{
    const char *text = yyjson_get_str(yyjson_obj_get(line, key));
    return text && strcmp(text, wanted) == 0;
}

/* Whether the line is a closed egress connection with a handshake. */
static int read_line(const char *at, size_t len, struct pq_sbi_connection *out, bool *taken, struct pq_why *why)
{
    *taken = false;
    DEFER(json_free) yyjson_doc *d = yyjson_read(at, len, 0);
    yyjson_val *line = yyjson_doc_get_root(d);
    if (!has_text(line, "event", "connection closed") || !has_text(line, "direction", "egress"))
        return 0;
    struct pq_sbi_connection c = {.connect_ms = yyjson_get_num(yyjson_obj_get(line, "connect_ms")),
                                  .handshake_ms = yyjson_get_num(yyjson_obj_get(line, "handshake_ms")),
                                  .chain_ms = yyjson_get_num(yyjson_obj_get(line, "chain_ms"))};
    double closed_ms;
    if (read_time(yyjson_get_str(yyjson_obj_get(line, "time")), &closed_ms) < 0)
        return pq_why(why, PQ_E_SYNTAX, "a sidecar's log has a line without a time");
    c.opened_ms = closed_ms - yyjson_get_num(yyjson_obj_get(line, "duration_ms"));
    if (c.handshake_ms <= 0)
        return 0;
    *out = c;
    *taken = true;
    return 0;
}

/* Insertion keeps the order of equals and is fast on what is sorted already. */
static void sort_by_opening(struct pq_sbi_connection *c, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct pq_sbi_connection one = c[i];
        size_t j = i;
        for (; j > 0 && c[j - 1].opened_ms > one.opened_ms; j--)
            c[j] = c[j - 1];
        c[j] = one;
    }
}

int pq_sbi_log_parse(const char *text, size_t len, struct pq_sbi_connection **out, size_t *count, struct pq_why *why)
{
    size_t lines = 1, n = 0;
    for (size_t i = 0; i < len; i++)
        lines += text[i] == '\n';
    if (lines > LINES_MAX)
        return pq_why(why, PQ_E_TOO_LONG, "a sidecar's log has more than %d lines", LINES_MAX);
    DEFER(pq_freep) struct pq_sbi_connection *c = calloc(lines, sizeof *c);
    if (!c)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    for (const char *at = text, *end = text + len; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t line = (size_t)((stop ? stop : end) - at);
        bool taken;
        TRY(read_line(at, line, &c[n], &taken, why));
        n += taken;
        at += line + 1;
    }
    sort_by_opening(c, n);
    *out = TAKE(c);
    *count = n;
    return 0;
}
