#include "proxy/counters.h"

#include <inttypes.h>
#include <stdio.h>

static const struct {
    const char *label;
    enum pq_log_level level;
} ends[] = {
#define X(name, label, level) {label, PQ_LOG_##level},
    PQ_PROXY_ENDS(X)
#undef X
};

const char *pq_proxy_end_label(enum pq_proxy_end e) { return ends[e].label; }
enum pq_log_level pq_proxy_end_level(enum pq_proxy_end e) { return ends[e].level; }

static size_t put(char *out, size_t size, size_t len, const char *label, uint64_t n)
{
    if (n == 0 || len >= size)
        return len;
    int added = snprintf(out + len, size - len, "%s%s=%" PRIu64, len ? " " : "", label, n);
    return added > 0 ? len + (size_t)added : len;
}

void pq_proxy_counters_text(const struct pq_proxy_counters *c, char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (int i = 0; i < PQ_PROXY_END_COUNT; i++)
        if (i != PQ_PROXY_TLS)
            len = put(out, size, len, ends[i].label, c->ends[i]);
    for (int i = 0; i < PQ_TLS_REASON_COUNT; i++)
        len = put(out, size, len, pq_tls_reason_label((enum pq_tls_reason)i), c->tls[i]);
}
