#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "proxy/metrics.h"
#include "version.h"

static uint64_t get(const _Atomic uint64_t *c) { return atomic_load_explicit(c, memory_order_relaxed); }

struct report {
    const struct pq_metrics *from;
    struct pq_proxy_counters sum;
    struct pq_handshake_series *series; /* of all workers, equal ones added, in order */
    size_t series_count;
};

struct family {
    const char *name, *type, *help;
    int (*put)(const struct family *f, const struct report *r, struct pq_buf *out);
    size_t offset; /* of the counter in the struct that put() knows */
    const int64_t *bounds;
};

static uint64_t counter_at(const void *of, size_t offset)
{
    return get((const _Atomic uint64_t *)(const void *)((const char *)of + offset));
}

/* Only names of algorithms, listeners and libraries get here, but whatever they hold must not break the format. */
static int put_label(struct pq_buf *out, const char *name, const char *value)
{
    TRY(pq_buf_printf(out, "%s=\"", name));
    for (const char *c = value; *c; c++)
        if (*c == '\n')
            TRY(pq_buf_text(out, "\\n"));
        else if (*c == '"' || *c == '\\')
            TRY(pq_buf_printf(out, "\\%c", *c));
        else
            TRY(pq_buf_append(out, c, 1));
    return pq_buf_text(out, "\"");
}

static int put_labelled(const struct family *f, const char *direction, const char *label, const char *value, uint64_t n,
                        struct pq_buf *out)
{
    return pq_buf_printf(out, "%s{direction=\"%s\",%s=\"%s\"} %" PRIu64 "\n", f->name, direction, label, value, n);
}

static const struct pq_direction_counters *of(const struct report *r, int d) { return &r->sum.direction[d]; }

/* Gauges wrap around below zero when a worker's are read while they change; never show that. */
static uint64_t shown(const struct family *f, uint64_t n)
{
    return strcmp(f->type, "gauge") == 0 && n > INT64_MAX ? 0 : n;
}

static int put_one(const struct family *f, const struct report *r, struct pq_buf *out)
{
    return pq_buf_printf(out, "%s %" PRIu64 "\n", f->name, shown(f, counter_at(&r->sum, f->offset)));
}

static int put_given(const struct family *f, const struct report *r, struct pq_buf *out)
{
    uint64_t n;
    memcpy(&n, (const char *)r->from + f->offset, sizeof n);
    return pq_buf_printf(out, "%s %" PRIu64 "\n", f->name, n);
}

static int put_each_direction(const struct family *f, const struct report *r, struct pq_buf *out)
{
    for (int d = 0; d < PQ_PROXY_DIRECTIONS; d++)
        TRY(pq_buf_printf(out, "%s{direction=\"%s\"} %" PRIu64 "\n", f->name, pq_proxy_direction_names[d],
                          shown(f, counter_at(of(r, d), f->offset))));
    return 0;
}

static int put_ns(struct pq_buf *out, uint64_t ns)
{
    const uint64_t second = PQ_NS_PER_S;
    return pq_buf_printf(out, "%" PRIu64 ".%09" PRIu64 "\n", ns / second, ns % second);
}

static int put_seconds(const struct family *f, const struct report *r, struct pq_buf *out)
{
    for (int d = 0; d < PQ_PROXY_DIRECTIONS; d++) {
        TRY(pq_buf_printf(out, "%s{direction=\"%s\"} ", f->name, pq_proxy_direction_names[d]));
        TRY(put_ns(out, counter_at(of(r, d), f->offset)));
    }
    return 0;
}

static int put_bytes(const struct family *f, const struct report *r, struct pq_buf *out)
{
    for (int d = 0; d < PQ_PROXY_DIRECTIONS; d++) {
        TRY(put_labelled(f, pq_proxy_direction_names[d], "flow", "up", get(&of(r, d)->bytes_up), out));
        TRY(put_labelled(f, pq_proxy_direction_names[d], "flow", "down", get(&of(r, d)->bytes_down), out));
    }
    return 0;
}

static int put_tls_reasons(const struct family *f, const _Atomic uint64_t *counts, int d, struct pq_buf *out)
{
    for (int i = PQ_TLS_NONE + 1; i < PQ_TLS_REASON_COUNT; i++)
        TRY(put_labelled(f, pq_proxy_direction_names[d], "reason", pq_tls_reason_label((enum pq_tls_reason)i),
                         get(&counts[i]), out));
    return 0;
}

static int put_ends(const struct family *f, const struct report *r, struct pq_buf *out)
{
    for (int d = 0; d < PQ_PROXY_DIRECTIONS; d++) {
        for (int i = 0; i < PQ_PROXY_END_COUNT; i++)
            if (i != PQ_PROXY_TLS)
                TRY(put_labelled(f, pq_proxy_direction_names[d], "reason", pq_proxy_end_label((enum pq_proxy_end)i),
                                 get(&of(r, d)->ends[i]), out));
        TRY(put_tls_reasons(f, of(r, d)->tls, d, out));
    }
    return 0;
}

/* Refused right after accept: nothing was done for them. */
static int put_admission(const struct family *f, const struct report *r, struct pq_buf *out)
{
    static const enum pq_proxy_end reasons[] = {PQ_PROXY_SOURCE_RATE, PQ_PROXY_STRANGER_RATE, PQ_PROXY_HANDSHAKES,
                                                PQ_PROXY_LIMIT};
    for (int d = 0; d < PQ_PROXY_DIRECTIONS; d++)
        for (size_t i = 0; i < PQ_COUNT(reasons); i++)
            TRY(put_labelled(f, pq_proxy_direction_names[d], "reason", pq_proxy_end_label(reasons[i]),
                             get(&of(r, d)->ends[reasons[i]]), out));
    return 0;
}

static int put_policy(const struct family *f, const struct report *r, struct pq_buf *out)
{
    for (int d = 0; d < PQ_PROXY_DIRECTIONS; d++) {
        TRY(put_labelled(f, pq_proxy_direction_names[d], "requirement", "pq-kex", get(&of(r, d)->policy_kex), out));
        TRY(put_labelled(f, pq_proxy_direction_names[d], "requirement", "pq-auth", get(&of(r, d)->policy_auth), out));
    }
    return 0;
}

static int put_rechecks(const struct family *f, const struct report *r, struct pq_buf *out)
{
    for (int d = 0; d < PQ_PROXY_DIRECTIONS; d++)
        TRY(put_tls_reasons(f, of(r, d)->rechecks, d, out));
    return 0;
}

static const char *yes(int flag) { return flag ? "true" : "false"; }

static int put_handshake(const struct family *f, const char *direction, const char *group, const char *signature,
                         const char *own, const char *resumed, const char *hello_retry, int reason, uint64_t n,
                         struct pq_buf *out)
{
    const struct {
        const char *name, *value;
    } labels[] = {{"direction", direction},
                  {"group", group},
                  {"signature", signature},
                  {"own_signature", own},
                  {"resumed", resumed},
                  {"hello_retry", hello_retry},
                  {"result", reason == PQ_TLS_NONE ? "ok" : "failed"},
                  {"reason", pq_tls_reason_label((enum pq_tls_reason)reason)}};
    TRY(pq_buf_text(out, f->name));
    for (size_t i = 0; i < PQ_COUNT(labels); i++) {
        TRY(pq_buf_text(out, i ? "," : "{"));
        TRY(put_label(out, labels[i].name, labels[i].value));
    }
    return pq_buf_printf(out, "} %" PRIu64 "\n", n);
}

static int put_handshakes(const struct family *f, const struct report *r, struct pq_buf *out)
{
    for (size_t i = 0; i < r->series_count; i++) {
        const struct pq_handshake_key *k = &r->series[i].key;
        TRY(put_handshake(f, pq_proxy_direction_names[k->direction], k->group, k->signature, k->own_signature,
                          yes(k->resumed), yes(k->hello_retry), k->reason, get(&r->series[i].count), out));
    }
    for (int d = 0; d < PQ_PROXY_DIRECTIONS; d++)
        for (int i = 0; i < PQ_TLS_REASON_COUNT; i++)
            if (get(&of(r, d)->other[i]))
                TRY(put_handshake(f, pq_proxy_direction_names[d], "other", "other", "other", "other", "other", i,
                                  get(&of(r, d)->other[i]), out));
    return 0;
}

static int put_buckets(const struct family *f, const char *labels, const struct pq_histogram *h, struct pq_buf *out)
{
    uint64_t so_far = 0;
    for (int i = 0; i < PQ_HISTOGRAM_BOUNDS; i++) {
        so_far += get(&h->bucket[i]);
        TRY(pq_buf_printf(out, "%s_bucket{%s,le=\"%.9g\"} %" PRIu64 "\n", f->name, labels, (double)f->bounds[i] / 1e9,
                          so_far));
    }
    so_far += get(&h->bucket[PQ_HISTOGRAM_BOUNDS]);
    TRY(pq_buf_printf(out, "%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n", f->name, labels, so_far));
    TRY(pq_buf_printf(out, "%s_sum{%s} ", f->name, labels));
    TRY(put_ns(out, get(&h->sum_ns)));
    return pq_buf_printf(out, "%s_count{%s} %" PRIu64 "\n", f->name, labels, so_far);
}

static int put_histogram(const struct family *f, const struct report *r, struct pq_buf *out)
{
    char labels[64];
    for (int d = 0; d < PQ_PROXY_DIRECTIONS; d++) {
        snprintf(labels, sizeof labels, "direction=\"%s\"", pq_proxy_direction_names[d]);
        const void *h = (const char *)of(r, d) + f->offset;
        TRY(put_buckets(f, labels, h, out));
    }
    return 0;
}

static int put_handshake_histogram(const struct family *f, const struct report *r, struct pq_buf *out)
{
    char labels[64];
    for (int d = 0; d < PQ_PROXY_DIRECTIONS; d++)
        for (int resumed = 0; resumed < 2; resumed++) {
            snprintf(labels, sizeof labels, "direction=\"%s\",resumed=\"%s\"", pq_proxy_direction_names[d],
                     yes(resumed));
            TRY(put_buckets(f, labels, &of(r, d)->handshake[resumed], out));
        }
    return 0;
}

static int put_workers_up(const struct family *f, const struct report *r, struct pq_buf *out)
{
    for (size_t i = 0; i < r->from->worker_count; i++)
        if (r->from->workers[i].wanted)
            TRY(pq_buf_printf(out, "%s{worker=\"%zu\"} %d\n", f->name, i, r->from->workers[i].up));
    return 0;
}

static int put_restarts(const struct family *f, const struct report *r, struct pq_buf *out)
{
    for (size_t i = 0; i < r->from->worker_count; i++)
        if (r->from->workers[i].wanted || r->from->workers[i].restarts)
            TRY(pq_buf_printf(out, "%s{worker=\"%zu\"} %" PRIu64 "\n", f->name, i, r->from->workers[i].restarts));
    return 0;
}

static int put_reloads(const struct family *f, const struct report *r, struct pq_buf *out)
{
    return pq_buf_printf(out, "%s{result=\"ok\"} %" PRIu64 "\n%s{result=\"refused\"} %" PRIu64 "\n", f->name,
                         r->from->reloads, f->name, r->from->reloads_refused);
}

static int put_reload_refused(const struct family *f, const struct report *r, struct pq_buf *out)
{
    return pq_buf_printf(out, "%s %d\n", f->name, !r->from->reload_refused);
}

static int put_certificates(const struct family *f, const struct report *r, struct pq_buf *out)
{
    for (size_t i = 0; i < r->from->certificate_count; i++) {
        const struct pq_metrics_certificate *c = &r->from->certificates[i];
        TRY(pq_buf_printf(out, "%s{direction=\"%s\",", f->name, c->direction));
        TRY(put_label(out, "listener", c->listener));
        TRY(pq_buf_printf(out, ",identity=\"%zu\",", c->identity));
        TRY(put_label(out, "algorithm", c->algorithm));
        TRY(pq_buf_printf(out, "} %" PRId64 "\n", c->not_after));
    }
    return 0;
}

static int put_dates(const struct family *f, const struct pq_metrics_date *dates, size_t count, struct pq_buf *out)
{
    for (size_t i = 0; i < count; i++) {
        TRY(pq_buf_printf(out, "%s{", f->name));
        TRY(put_label(out, "file", dates[i].file));
        TRY(pq_buf_printf(out, ",number=\"%zu\",", dates[i].number));
        TRY(put_label(out, "name", dates[i].name));
        TRY(pq_buf_printf(out, "} %" PRId64 "\n", dates[i].at));
    }
    return 0;
}

static int put_authorities(const struct family *f, const struct report *r, struct pq_buf *out)
{
    return put_dates(f, r->from->authorities, r->from->authority_count, out);
}

static int put_revocation_lists(const struct family *f, const struct report *r, struct pq_buf *out)
{
    return put_dates(f, r->from->revocation_lists, r->from->revocation_list_count, out);
}

static int put_build(const struct family *f, const struct report *r, struct pq_buf *out)
{
    TRY(pq_buf_printf(out, "%s{", f->name));
    TRY(put_label(out, "version", PQ_VERSION));
    TRY(pq_buf_text(out, ","));
    TRY(put_label(out, "tls_library", r->from->tls_library));
    return pq_buf_text(out, "} 1\n");
}

#define ONE(member)       offsetof(struct pq_proxy_counters, member)
#define DIRECTION(member) offsetof(struct pq_direction_counters, member)
#define GIVEN(member)     offsetof(struct pq_metrics, member)

static const struct family families[] = {
    {"pqplane_build_info", "gauge", "The version that runs, and its TLS library; always 1.", put_build, 0, NULL},
    {"pqplane_start_time_seconds", "gauge", "When the supervisor started, as Unix time.", put_given, GIVEN(started),
     NULL},
    {"pqplane_worker_up", "gauge", "Whether the worker lives.", put_workers_up, 0, NULL},
    {"pqplane_worker_restarts_total", "counter", "Workers started anew because the one before died.", put_restarts, 0,
     NULL},
    {"pqplane_config_generation", "gauge", "Number of the configuration in force; each accepted reload adds one.",
     put_given, GIVEN(generation), NULL},
    {"pqplane_config_reloads_total", "counter", "Reloads, by whether the new configuration was taken.", put_reloads, 0,
     NULL},
    {"pqplane_config_last_reload_successful", "gauge",
     "0 where the latest reload was refused and the old one serves on.", put_reload_refused, 0, NULL},
    {"pqplane_certificate_expiry_timestamp_seconds", "gauge",
     "When the first certificate of an own chain expires, as Unix time.", put_certificates, 0, NULL},
    {"pqplane_authority_expiry_timestamp_seconds", "gauge", "When a certificate of ca expires, as Unix time.",
     put_authorities, 0, NULL},
    {"pqplane_crl_next_update_timestamp_seconds", "gauge",
     "When the next issue of a revocation list is due, as Unix time; after that it is stale.", put_revocation_lists, 0,
     NULL},
    {"pqplane_log_lines_dropped_total", "counter", "Log lines that could not be written at once.", put_given,
     GIVEN(log_lines_dropped), NULL},
    {"pqplane_connections_accepted_total", "counter", "Connections taken from a listener.", put_each_direction,
     DIRECTION(accepted), NULL},
    {"pqplane_connections_established_total", "counter", "Connections with both sides connected and the policy met.",
     put_each_direction, DIRECTION(established), NULL},
    {"pqplane_connections_ended_total", "counter", "Connections that ended, by the reason that the log gives.",
     put_ends, 0, NULL},
    {"pqplane_connections_open", "gauge", "Connections that are open now.", put_each_direction,
     DIRECTION(open.connections), NULL},
    {"pqplane_connection_duration_seconds", "histogram", "From accept to the end of a connection.", put_histogram,
     DIRECTION(connection), pq_histogram_lasting},
    {"pqplane_connect_duration_seconds", "histogram", "TCP connects to the function or peer that succeeded.",
     put_histogram, DIRECTION(connect), pq_histogram_brief},
    {"pqplane_bytes_total", "counter", "Plain bytes carried: up comes from the function, down goes to it.", put_bytes,
     0, NULL},
    {"pqplane_admission_refused_total", "counter", "Connections refused right after accept.", put_admission, 0, NULL},
    {"pqplane_accept_pauses_total", "counter", "Times that accepting paused because descriptors ran out.", put_one,
     ONE(pauses), NULL},
    {"pqplane_handshakes_total", "counter", "TLS handshakes that ended, by what was negotiated and how they ended.",
     put_handshakes, 0, NULL},
    {"pqplane_handshakes_in_flight", "gauge", "TLS handshakes under way.", put_one, ONE(open.handshakes), NULL},
    {"pqplane_handshake_duration_seconds", "histogram", "TLS handshakes that succeeded.", put_handshake_histogram, 0,
     pq_histogram_brief},
    {"pqplane_handshake_cpu_seconds_total", "counter", "CPU time of TLS handshakes on this side.", put_seconds,
     DIRECTION(handshake_cpu_ns), NULL},
    {"pqplane_policy_refusals_total", "counter",
     "Handshakes and open connections refused for less than require demands.", put_policy, 0, NULL},
    {"pqplane_rechecks_refused_total", "counter", "Open connections that a reload's rules no longer allow.",
     put_rechecks, 0, NULL},
    {"pqplane_tunnels_open", "gauge", "Tunnels that are open now.", put_each_direction, DIRECTION(open.tunnels), NULL},
    {"pqplane_tunnels_opened_total", "counter", "Tunnels opened.", put_each_direction, DIRECTION(tunnels_opened), NULL},
    {"pqplane_tunnels_lost_total", "counter", "Tunnels that broke instead of being closed in order.",
     put_each_direction, DIRECTION(tunnels_lost), NULL},
    {"pqplane_tunnel_streams_open", "gauge", "Connections inside tunnels that are open now.", put_each_direction,
     DIRECTION(open.streams), NULL},
    {"pqplane_tunnel_streams_opened_total", "counter", "Connections opened inside tunnels.", put_each_direction,
     DIRECTION(streams_opened), NULL},
    {"pqplane_tunnel_streams_lost_total", "counter", "Connections that died with their tunnel.", put_each_direction,
     DIRECTION(streams_lost), NULL},
};

/* --- the sum of all workers -------------------------------------------------------------------------------------- */
static int by_key(const void *a, const void *b)
{
    const struct pq_handshake_series *x = a, *y = b;
    return memcmp(&x->key, &y->key, sizeof x->key);
}

static size_t series_count(const struct pq_proxy_counters *c)
{
    uint64_t n = atomic_load_explicit(&c->series_count, memory_order_acquire);
    return n < PQ_SERIES_MAX ? (size_t)n : PQ_SERIES_MAX;
}

static void merge_equal(struct report *r)
{
    size_t kept = 0;
    for (size_t i = 0; i < r->series_count; i++)
        if (kept && by_key(&r->series[kept - 1], &r->series[i]) == 0)
            atomic_fetch_add(&r->series[kept - 1].count, get(&r->series[i].count));
        else
            memmove(&r->series[kept++], &r->series[i], sizeof r->series[i]);
    r->series_count = kept;
}

static int collect(struct report *r)
{
    size_t most = 0;
    for (size_t i = 0; i < r->from->worker_count; i++) {
        pq_proxy_counters_add(&r->sum, r->from->workers[i].counters);
        most += series_count(r->from->workers[i].counters);
    }
    r->series = calloc(most + 1, sizeof *r->series);
    if (!r->series)
        return PQ_E_NOMEM;
    for (size_t i = 0; i < r->from->worker_count; i++) {
        const struct pq_proxy_counters *c = r->from->workers[i].counters;
        for (size_t k = 0; k < series_count(c) && r->series_count < most; k++) {
            struct pq_handshake_series *to = &r->series[r->series_count++];
            to->key = c->series[k].key;
            atomic_store_explicit(&to->count, get(&c->series[k].count), memory_order_relaxed);
        }
    }
    qsort(r->series, r->series_count, sizeof *r->series, by_key);
    merge_equal(r);
    return 0;
}

static int put_families(const struct report *r, struct pq_buf *out)
{
    for (size_t i = 0; i < PQ_COUNT(families); i++) {
        const struct family *f = &families[i];
        TRY(pq_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", f->name, f->help, f->name, f->type));
        TRY(f->put(f, r, out));
    }
    return 0;
}

static void free_report(struct report **r)
{
    if (*r)
        free((*r)->series);
    free(*r);
}

int pq_metrics_text(const struct pq_metrics *m, struct pq_buf *out)
{
    DEFER(free_report) struct report *r = calloc(1, sizeof *r);
    size_t before = out->len;
    if (!r)
        return PQ_E_NOMEM;
    r->from = m;
    TRY(collect(r));
    int e = put_families(r, out);
    if (e < 0)
        out->len = before;
    return e;
}
