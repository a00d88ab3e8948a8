#include "proxy/counters.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *label;
    enum pq_log_level level;
} ends[] = {
#define X(name, label, level) {label, PQ_LOG_##level},
    PQ_PROXY_ENDS(X)
#undef X
};

const char *pq_proxy_end_label(enum pq_proxy_end e) { return ends[e].label; }

enum pq_proxy_end pq_proxy_end_of_connect(int e)
{
    return e == PQ_E_LIMIT     ? PQ_PROXY_DESCRIPTORS
           : e == PQ_E_NOMEM   ? PQ_PROXY_MEMORY
           : e == PQ_E_REFUSED ? PQ_PROXY_CONNECT_REFUSED
           : e == PQ_E_TIMEOUT ? PQ_PROXY_CONNECT_TIMEOUT
                               : PQ_PROXY_CONNECT_FAILED;
}

enum pq_log_level pq_proxy_end_level(enum pq_proxy_end e) { return ends[e].level; }

static uint64_t get(const _Atomic uint64_t *c) { return atomic_load_explicit(c, memory_order_relaxed); }

static size_t put(char *out, size_t size, size_t len, const char *label, uint64_t n)
{
    if (n == 0 || len >= size)
        return len;
    int added = snprintf(out + len, size - len, "%s%s=%" PRIu64, len ? " " : "", label, n);
    return added > 0 ? len + (size_t)added : len;
}

void pq_proxy_counters_text(const struct pq_proxy_counters *c, char *out, size_t size)
{
    const struct pq_direction_counters *in = &c->direction[PQ_PROXY_INGRESS], *eg = &c->direction[PQ_PROXY_EGRESS];
    size_t len = 0;
    out[0] = '\0';
    for (int i = 0; i < PQ_PROXY_END_COUNT; i++)
        if (i != PQ_PROXY_TLS)
            len = put(out, size, len, ends[i].label, get(&in->ends[i]) + get(&eg->ends[i]));
    for (int i = 0; i < PQ_TLS_REASON_COUNT; i++)
        len = put(out, size, len, pq_tls_reason_label((enum pq_tls_reason)i), get(&in->tls[i]) + get(&eg->tls[i]));
}

void pq_proxy_counters_log(const struct pq_proxy_counters *c, const char *event, uint64_t lines_dropped)
{
    const struct pq_direction_counters *in = &c->direction[PQ_PROXY_INGRESS], *eg = &c->direction[PQ_PROXY_EGRESS];
    char reasons[1024];
    pq_proxy_counters_text(c, reasons, sizeof reasons);
#define BOTH(counter) pq_i((int64_t)(get(&in->counter) + get(&eg->counter)))
    pq_log(PQ_LOG_INFO, event, "accepted", BOTH(accepted), "established", BOTH(established), "bytes_up", BOTH(bytes_up),
           "bytes_down", BOTH(bytes_down), "accepting_paused", pq_i((int64_t)get(&c->pauses)), "log_lines_dropped",
           pq_i((int64_t)lines_dropped), "reasons", pq_s(reasons), NULL);
#undef BOTH
}

/* Up to its series the struct is nothing but 64-bit counters. */
enum { COUNTERS = offsetof(struct pq_proxy_counters, series_count) / sizeof(uint64_t) };
_Static_assert(sizeof(_Atomic uint64_t) == sizeof(uint64_t), "an atomic counter has no lock beside it");

void pq_proxy_counters_add(struct pq_proxy_counters *sum, const struct pq_proxy_counters *one)
{
    _Atomic uint64_t *to = (_Atomic uint64_t *)(void *)sum;
    const _Atomic uint64_t *from = (const _Atomic uint64_t *)(const void *)one;
    for (size_t i = 0; i < COUNTERS; i++)
        atomic_store_explicit(&to[i], get(&to[i]) + get(&from[i]), memory_order_relaxed);
}

void pq_proxy_counters_close(struct pq_proxy_counters *c)
{
    for (int d = 0; d < PQ_PROXY_DIRECTIONS; d++)
        memset((void *)&c->direction[d].open, 0, sizeof c->direction[d].open);
    memset((void *)&c->open, 0, sizeof c->open);
}
