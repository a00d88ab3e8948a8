#include "core5g/load_record.h"

#include <inttypes.h>
#include <string.h>

#include "base/cleanup.h"

int pq_load_record_sample(struct pq_load_record *r, const struct pq_load_sample *s)
{
    if (r->count == r->size) {
        size_t size = r->size ? 2 * r->size : 1024;
        struct pq_load_sample *samples = realloc(r->samples, size * sizeof *samples);
        if (!samples)
            return PQ_E_NOMEM;
        r->samples = samples;
        r->size = size;
    }
    r->samples[r->count++] = *s;
    return 0;
}

/* Reasons are few; the last place gathers what has none of its own. */
int pq_load_record_error(struct pq_load_record *r, const char *reason)
{
    for (size_t i = 0; i < r->error_count; i++)
        if (strcmp(r->errors[i].reason, reason) == 0 || i + 1 == PQ_LOAD_REASONS) {
            r->errors[i].count++;
            return 0;
        }
    char *copy = strdup(r->error_count + 1 == PQ_LOAD_REASONS ? "other" : reason);
    if (!copy)
        return PQ_E_NOMEM;
    r->errors[r->error_count].reason = copy;
    r->errors[r->error_count++].count = 1;
    return 0;
}

static int write_sample(const struct pq_load_sample *s, bool first, struct pq_buf *out)
{
    return pq_buf_printf(out,
                         "%s{\"at_ns\":%" PRId64 ",\"total_ns\":%" PRId64 ",\"tcp_ns\":%" PRId64 ",\"tls_ns\":%" PRId64
                         ",\"chain_ns\":%" PRId64 ",\"http_ns\":%" PRId64 ",\"status\":%d,\"bytes\":%" PRIu64 "}",
                         first ? "" : ",", s->at_ns, s->total_ns, s->tcp_ns, s->tls_ns, s->chain_ns, s->http_ns,
                         s->status, s->bytes);
}

int pq_load_record_write(const struct pq_load_record *r, struct pq_buf *out)
{
    TRY(pq_buf_printf(
        out, "{\"workload\":\"%s\",\"connection\":\"%s\",\"cpu_ns\":%" PRId64 ",\"wall_ns\":%" PRId64 ",\"samples\":[",
        r->workload, r->connection, r->cpu_ns, r->wall_ns));
    for (size_t i = 0; i < r->count; i++)
        TRY(write_sample(&r->samples[i], i == 0, out));
    TRY(pq_buf_text(out, "],\"errors\":["));
    /* Reasons are our own words: nothing in them needs an escape. */
    for (size_t i = 0; i < r->error_count; i++)
        TRY(pq_buf_printf(out, "%s{\"reason\":\"%s\",\"count\":%" PRIu64 "}", i ? "," : "", r->errors[i].reason,
                          r->errors[i].count));
    return pq_buf_text(out, "]}\n");
}

void pq_load_record_free(struct pq_load_record *r)
{
    for (size_t i = 0; i < r->error_count; i++)
        free(r->errors[i].reason);
    free(r->samples);
    *r = (struct pq_load_record){0};
}
