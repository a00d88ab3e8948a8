#include "proxy/metrics.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "version.h"

/* --- writing ----------------------------------------------------------------------------------------------------- */
static uint64_t get(const _Atomic uint64_t *c) { return atomic_load_explicit(c, memory_order_relaxed); }

/* There is one writer, so that nothing comes between the two. */
static void add(_Atomic uint64_t *c, uint64_t n) { atomic_store_explicit(c, get(c) + n, memory_order_relaxed); }
static void drop(_Atomic uint64_t *c) { add(c, (uint64_t)-1); }

const int64_t pq_histogram_brief[PQ_HISTOGRAM_BOUNDS] = {100000,    250000,    500000,     1000000,   2500000,
                                                         5000000,   10000000,  25000000,   50000000,  100000000,
                                                         250000000, 500000000, 1000000000, 5000000000};
const int64_t pq_histogram_lasting[PQ_HISTOGRAM_BOUNDS] = {
    PQ_NS_PER_MS,        10 * PQ_NS_PER_MS,      100 * PQ_NS_PER_MS, PQ_NS_PER_S,
    10 * PQ_NS_PER_S,    30 * PQ_NS_PER_S,       60 * PQ_NS_PER_S,   300 * PQ_NS_PER_S,
    600 * PQ_NS_PER_S,   1800 * PQ_NS_PER_S,     3600 * PQ_NS_PER_S, 21600 * PQ_NS_PER_S,
    86400 * PQ_NS_PER_S, 7 * 86400 * PQ_NS_PER_S};

static void observe(struct pq_histogram *h, const int64_t *bounds, int64_t ns)
{
    int i = 0;
    while (i < PQ_HISTOGRAM_BOUNDS && ns > bounds[i])
        i++;
    add(&h->bucket[i], 1);
    add(&h->sum_ns, ns > 0 ? (uint64_t)ns : 0);
}

void pq_metrics_accepted(struct pq_proxy_counters *c, enum pq_proxy_direction d)
{
    add(&c->direction[d].accepted, 1);
    add(&c->direction[d].open.connections, 1);
}

void pq_metrics_refused(struct pq_proxy_counters *c, enum pq_proxy_direction d, enum pq_proxy_end why)
{
    add(&c->direction[d].ends[why], 1);
    drop(&c->direction[d].open.connections);
}

void pq_metrics_connected(struct pq_proxy_counters *c, enum pq_proxy_direction d, int64_t duration_ns)
{
    observe(&c->direction[d].connect, pq_histogram_brief, duration_ns);
}

static void count_policy(struct pq_direction_counters *c, enum pq_tls_reason reason)
{
    if (reason == PQ_TLS_POLICY_KEX)
        add(&c->policy_kex, 1);
    else if (reason == PQ_TLS_POLICY_AUTH)
        add(&c->policy_auth, 1);
}

static struct pq_handshake_key key_of(enum pq_proxy_direction d, const struct pq_tls_info *i, enum pq_tls_reason reason)
{
    struct pq_handshake_key k = {.direction = (int8_t)d, .reason = (uint8_t)reason};
    if (!i)
        return k;
    snprintf(k.group, sizeof k.group, "%s", i->group ? i->group : "");
    snprintf(k.signature, sizeof k.signature, "%s", i->signature ? i->signature : "");
    snprintf(k.own_signature, sizeof k.own_signature, "%s", i->own_signature ? i->own_signature : "");
    snprintf(k.own_signature, sizeof k.own_signature, "%s", i->own_signature ? i->own_signature : "");
    k.resumed = i->resumed;
    k.hello_retry = i->hello_retry;
    return k;
}

static _Atomic uint64_t *series_of(struct pq_proxy_counters *c, const struct pq_handshake_key *k)
{
    uint64_t count = get(&c->series_count);
    for (uint64_t i = 0; i < count; i++)
        if (memcmp(&c->series[i].key, k, sizeof *k) == 0)
            return &c->series[i].count;
    if (count == PQ_SERIES_MAX)
        return &c->direction[k->direction].other[k->reason];
    c->series[count].key = *k;
    /* A reader that sees the count sees the key. */
    atomic_store_explicit(&c->series_count, count + 1, memory_order_release);
    return &c->series[count].count;
}

void pq_metrics_handshake(struct pq_proxy_counters *c, enum pq_proxy_direction d, const struct pq_tls_info *i,
                          enum pq_tls_reason reason, int64_t duration_ns)
{
    struct pq_handshake_key k = key_of(d, i, reason);
    add(series_of(c, &k), 1);
    count_policy(&c->direction[d], reason);
    if (i && i->cpu_ns > 0)
        add(&c->direction[d].handshake_cpu_ns, (uint64_t)i->cpu_ns);
    if (reason == PQ_TLS_NONE)
        observe(&c->direction[d].handshake[k.resumed], pq_histogram_brief, duration_ns);
}

void pq_metrics_established(struct pq_proxy_counters *c, enum pq_proxy_direction d)
{
    add(&c->direction[d].established, 1);
}

void pq_metrics_bytes(struct pq_proxy_counters *c, enum pq_proxy_direction d, uint64_t up, uint64_t down)
{
    add(&c->direction[d].bytes_up, up);
    add(&c->direction[d].bytes_down, down);
}

void pq_metrics_ended(struct pq_proxy_counters *c, enum pq_proxy_direction d, enum pq_proxy_end why,
                      enum pq_tls_reason reason, int64_t duration_ns)
{
    struct pq_direction_counters *of = &c->direction[d];
    add(&of->ends[why], 1);
    if (why == PQ_PROXY_TLS)
        add(&of->tls[reason], 1);
    drop(&of->open.connections);
    observe(&of->connection, pq_histogram_lasting, duration_ns);
}

void pq_metrics_rechecked(struct pq_proxy_counters *c, enum pq_proxy_direction d, enum pq_tls_reason reason)
{
    add(&c->direction[d].rechecks[reason], 1);
    count_policy(&c->direction[d], reason);
}

void pq_metrics_became_tunnel(struct pq_proxy_counters *c, enum pq_proxy_direction d)
{
    drop(&c->direction[d].open.connections);
}

void pq_metrics_tunnel_refused(struct pq_proxy_counters *c, enum pq_proxy_direction d, enum pq_proxy_end why,
                               enum pq_tls_reason reason)
{
    add(&c->direction[d].ends[why], 1);
    if (why == PQ_PROXY_TLS)
        add(&c->direction[d].tls[reason], 1);
}

void pq_metrics_tunnel_opened(struct pq_proxy_counters *c, enum pq_proxy_direction d)
{
    add(&c->direction[d].tunnels_opened, 1);
    add(&c->direction[d].open.tunnels, 1);
}

void pq_metrics_tunnel_ended(struct pq_proxy_counters *c, enum pq_proxy_direction d, bool lost)
{
    add(&c->direction[d].tunnels_lost, lost);
    drop(&c->direction[d].open.tunnels);
}

void pq_metrics_stream_opened(struct pq_proxy_counters *c, enum pq_proxy_direction d)
{
    add(&c->direction[d].streams_opened, 1);
    add(&c->direction[d].open.streams, 1);
}

void pq_metrics_stream_ended(struct pq_proxy_counters *c, enum pq_proxy_direction d, bool lost)
{
    add(&c->direction[d].streams_lost, lost);
    drop(&c->direction[d].open.streams);
}

void pq_metrics_in_flight(struct pq_proxy_counters *c, int64_t handshakes)
{
    atomic_store_explicit(&c->open.handshakes, (uint64_t)handshakes, memory_order_relaxed);
}

void pq_metrics_paused(struct pq_proxy_counters *c) { add(&c->pauses, 1); }
