#include "lab/sbi.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/file.h"
#include "lab/sbi_internal.h"

/* Classical is level 1 (X25519, ECDSA with P-256): what TS 33.210 asks for and operators run today. The PQ ones are
 * level 3 (ML-KEM-768, ML-DSA-65), as the published study's; they refuse a connection that negotiated less, so that no
 * cell measures anything but what its name says. */
static const struct pq_sbi_deployment deployments[] = {
    {"none", PQ_SBI_PLAIN, PQ_MODE_PLAIN, 0, false},
    {"native-tls", PQ_SBI_NATIVE, PQ_MODE_CLASSICAL, 1, false},
    {"sidecar-classical", PQ_SBI_SIDECAR, PQ_MODE_CLASSICAL, 1, false},
    {"sidecar-hybrid", PQ_SBI_SIDECAR, PQ_MODE_HYBRID, 3, true},
    {"sidecar-pqc", PQ_SBI_SIDECAR, PQ_MODE_PURE, 3, true},
};
static const char *const deployment_values[] = {"none",           "native-tls",  "sidecar-classical",
                                                "sidecar-hybrid", "sidecar-pqc", NULL};
static const char *const connection_values[] = {"kept", "new", NULL};
static const char *const option_values[] = {"standard", "nagle", "nagle-frames", "window-1", "chain", NULL};
static const char *const ca_values[] = {"mldsa65", "mldsa44", "mldsa87", "slhdsa128s", NULL};
static const struct pq_driver_factor factors[] = {{"deployment", deployment_values},
                                                  {"connection", connection_values},
                                                  {"option", option_values},
                                                  {"ca", ca_values},
                                                  {NULL, NULL}};

static const char *const workload_values[] = {"discovery", "authentication", NULL};
static const struct pq_driver_load loads[] = {
    [PQ_SBI_REQUESTS] = {"requests", 1, 1000000, 300, NULL},
    [PQ_SBI_NEW_CONNECTIONS] = {"new_connections", 1, 100000, 20, NULL},
    [PQ_SBI_WARMUP] = {"warmup", 1, 100000, 20, NULL},
    [PQ_SBI_NEW_WARMUP] = {"new_warmup", 1, 100000, 2, NULL},
    [PQ_SBI_BODY_BYTES] = {"body_bytes", 0, 1 << 20, 2048, NULL},
    [PQ_SBI_WORKLOAD] = {"workload", 0, 0, PQ_SBI_DISCOVERY, workload_values},
    {NULL, 0, 0, 0, NULL},
};

static const struct pq_driver_metric metrics[] = {
    {"request_ms", "ms"},
    {"first_request_ms", "ms"},
    {"tcp_ms", "ms"},
    {"tls_ms", "ms"},
    {"chain_ms", "ms"},
    {"http_ms", "ms"},
    {"memory_handshake_ms", "ms"},
    {"cpu_us_per_request.consumer", "us"},
    {"cpu_us_per_request.producer", "us"},
    {"cpu_us_per_request.egress", "us"},
    {"cpu_us_per_request.ingress", "us"},
    {"peak_rss_kib.producer", "KiB"},
    {"peak_rss_kib.egress", "KiB"},
    {"peak_rss_kib.ingress", "KiB"},
    {"wire_bytes", "B"},
    {NULL, NULL},
};

static const char *const pair_hosts[] = {"amf", "nrf", NULL};
static const char *const authentication_hosts[] = {"amf", "ausf", "udm", "udr", NULL};

static const char *factor(const struct pq_sbi *s, const struct pq_cell *cell, const char *name)
{
    const char *value = pq_cell_value(s->lab->x, cell, name);
    return value ? value : "";
}

/* The authentication service needs its three functions whatever the option is; option chain always means it. */
static void settle_topology(struct pq_sbi *s, struct pq_sbi_cell *c)
{
    bool four = c->workload == PQ_SBI_AUTHENTICATION;
    c->hosts = four ? authentication_hosts : pair_hosts;
    c->host_count = four ? PQ_COUNT(authentication_hosts) - 1 : PQ_COUNT(pair_hosts) - 1;
    c->topology = four ? s->chain : s->pair;
}

void pq_sbi_settle(struct pq_sbi *s, const struct pq_cell *cell, struct pq_sbi_cell *out)
{
    const int64_t *load = s->lab->x->load;
    const char *deployment = factor(s, cell, "deployment"), *option = factor(s, cell, "option"),
               *ca = factor(s, cell, "ca");
    struct pq_sbi_cell c = {.deployment = &deployments[0]};
    for (size_t i = 0; i < PQ_COUNT(deployments); i++)
        if (strcmp(deployments[i].name, deployment) == 0)
            c.deployment = &deployments[i];
    c.fresh = strcmp(factor(s, cell, "connection"), "new") == 0;
    c.nodelay = strcmp(option, "nagle") != 0;
    c.by_frame = strcmp(option, "nagle-frames") == 0;
    c.sidecar_nodelay = c.nodelay && !c.by_frame;
    c.chain = strcmp(option, "chain") == 0;
    c.window = strcmp(option, "window-1") == 0 ? 1 : 0;
    c.workload = c.chain ? PQ_SBI_AUTHENTICATION : (enum pq_sbi_workload)load[PQ_SBI_WORKLOAD];
    c.requests = load[c.fresh ? PQ_SBI_NEW_CONNECTIONS : PQ_SBI_REQUESTS];
    c.warmup = load[c.fresh ? PQ_SBI_NEW_WARMUP : PQ_SBI_WARMUP];
    c.body_bytes = load[PQ_SBI_BODY_BYTES];
    bool pq = c.deployment->mode == PQ_MODE_HYBRID || c.deployment->mode == PQ_MODE_PURE;
    c.authority = pq ? (*ca ? ca : ca_values[0]) : "classical";
    settle_topology(s, &c);
    *out = c;
}

static void finish(void *state)
{
    struct pq_sbi *s = state;
    pq_topology_free(s->pair);
    pq_topology_free(s->chain);
    pq_crypto_free(s->crypto);
    free(s);
}

static void finishp(struct pq_sbi **s)
{
    if (*s)
        finish(*s);
}

/* Topologies and keys that some cell needs. */
static int prepare_for(struct pq_sbi *s, const struct pq_cell *cell, struct pq_why *why)
{
    struct pq_sbi_cell c;
    pq_sbi_settle(s, cell, &c);
    struct pq_topology **t = c.workload == PQ_SBI_AUTHENTICATION ? &s->chain : &s->pair;
    if (!*t)
        TRY(pq_topology_new(t == &s->chain ? "chain" : "pair", c.hosts, c.host_count, t, why));
    return c.deployment->protection == PQ_SBI_PLAIN ? 0 : pq_sbi_authority(s, c.authority, why);
}

static int prepare(struct pq_lab *lab, void **state, struct pq_why *why)
{
    DEFER(finishp) struct pq_sbi *s = calloc(1, sizeof *s);
    if (!s)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    s->lab = lab;
    TRY(pq_crypto_new(&s->crypto, why));
    for (size_t i = 0; i < lab->x->cell_count; i++)
        TRY(prepare_for(s, &lab->x->cells[i], why));
    *state = TAKE(s);
    return 0;
}

/* --- one visit */

/* Requests of the short loads before their measured one: from the third on a connection, one costs as any later one,
 * and where each waits for a timer, more of them would take most of a visit's time. */
enum { SHORT_WARMUP = 2 };

enum role { PRODUCER, EGRESS, INGRESS, ROLES };
static const char *const role_names[ROLES] = {"producer", "egress", "ingress"};

/* What the running programs and the consumer's interface have counted so far. */
struct reading {
    int64_t cpu_ns[ROLES], peak_rss_kib[ROLES];
    bool there[ROLES];
    uint64_t wire_bytes;
};

static int add_cost(const struct pq_process *p, enum role role, struct reading *r, struct pq_why *why)
{
    struct pq_process_cost cost;
    if (!p)
        return 0;
    TRY(pq_process_cost(p, &cost, why));
    r->there[role] = true;
    r->cpu_ns[role] += cost.cpu_ns;
    r->peak_rss_kib[role] += cost.peak_rss_kib;
    return 0;
}

static int take_reading(const struct pq_sbi_cell *c, const struct pq_sbi_programs *p, struct reading *out,
                        struct pq_why *why)
{
    /* The last connection's end is still on its way through the sidecars when the load has gone. */
    poll(NULL, 0, 5);
    struct reading r = {.wire_bytes = 0};
    struct pq_link_counts counts;
    for (size_t i = 0; i < c->host_count; i++) {
        TRY(add_cost(p->function[i], PRODUCER, &r, why));
        TRY(add_cost(p->sidecar[i], i == 0 ? EGRESS : INGRESS, &r, why));
    }
    TRY(pq_link_counts(pq_topology_host(c->topology, c->hosts[0])->netns, PQ_HOST_DEVICE, &counts, why));
    r.wire_bytes = counts.bytes_in + counts.bytes_out;
    *out = r;
    return 0;
}

static int put(struct pq_visit *v, const char *metric, double value, int64_t at_ns, struct pq_why *why)
{
    int e = pq_record_sample(v->lab->record, metric, value, at_ns);
    return e < 0 ? pq_why(why, e, "%s of a sample: %s", metric, pq_error_text(e)) : 0;
}

static int put_role(struct pq_visit *v, const char *metric, const char *role, double value, struct pq_why *why)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", metric, role);
    return put(v, name, value, pq_clock_ns(), why);
}

/* What the measured load (after at[1]) cost above the load before it, per request. */
static int put_costs(struct pq_visit *v, const struct reading at[3], int64_t requests, struct pq_why *why)
{
    double n = (double)requests;
    for (int role = 0; role < ROLES; role++) {
        if (!at[0].there[role])
            continue;
        int64_t cpu_ns = (at[2].cpu_ns[role] - at[1].cpu_ns[role]) - (at[1].cpu_ns[role] - at[0].cpu_ns[role]);
        TRY(put_role(v, "cpu_us_per_request", role_names[role], (double)cpu_ns / PQ_NS_PER_US / n, why));
        TRY(put_role(v, "peak_rss_kib", role_names[role], (double)at[2].peak_rss_kib[role], why));
    }
    int64_t bytes = (int64_t)(at[2].wire_bytes - at[1].wire_bytes) - (int64_t)(at[1].wire_bytes - at[0].wire_bytes);
    return put(v, "wire_bytes", (double)bytes / n, pq_clock_ns(), why);
}

static int put_split(struct pq_visit *v, const struct pq_sbi_sample *s, double tcp_ms, double tls_ms, double chain_ms,
                     bool tls, struct pq_why *why)
{
    TRY(put(v, "tcp_ms", tcp_ms, s->at_ns, why));
    TRY(put(v, "http_ms", (double)s->total_ns / PQ_NS_PER_MS - tcp_ms - tls_ms, s->at_ns, why));
    if (tls) {
        TRY(put(v, "tls_ms", tls_ms, s->at_ns, why));
        TRY(put(v, "chain_ms", chain_ms, s->at_ns, why));
    }
    return 0;
}

/* Between sidecars only they see the handshake: the consumer's sidecar tells of each connection in its log. */
static int split_by_log(const struct pq_sbi_cell *c, struct pq_visit *v, const struct pq_sbi_load *l,
                        struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf b = {.cap = 64 << 20};
    DEFER(pq_freep) struct pq_sbi_connection *log = NULL;
    char path[PQ_SBI_PATH];
    size_t count = 0;
    snprintf(path, sizeof path, "%s/%s-sidecar.log", v->folder, c->hosts[0]);
    TRY(pq_file_read(path, &b, why));
    TRY(pq_sbi_log_parse((const char *)b.at, b.len, &log, &count, why));
    if (count < l->count)
        return pq_why(why, PQ_E_PROTOCOL, "the consumer's sidecar tells of %zu connections where %zu were made", count,
                      l->count);
    for (size_t i = 0; i < l->count; i++) {
        const struct pq_sbi_connection *k = &log[count - l->count + i];
        TRY(put_split(v, &l->samples[i], k->connect_ms, k->handshake_ms, k->chain_ms, true, why));
    }
    return 0;
}

static int split_by_load(const struct pq_sbi_cell *c, struct pq_visit *v, const struct pq_sbi_load *l,
                         struct pq_why *why)
{
    bool tls = c->deployment->protection == PQ_SBI_NATIVE;
    for (size_t i = 0; i < l->count; i++) {
        const struct pq_sbi_sample *s = &l->samples[i];
        TRY(put_split(v, s, (double)s->tcp_ns / PQ_NS_PER_MS, (double)s->tls_ns / PQ_NS_PER_MS,
                      (double)s->chain_ns / PQ_NS_PER_MS, tls, why));
    }
    return 0;
}

int pq_sbi_put_requests(const struct pq_sbi_cell *c, struct pq_visit *v, const struct pq_sbi_load *l,
                        struct pq_why *why)
{
    const char *metric = c->fresh ? "first_request_ms" : "request_ms";
    for (size_t i = 0; i < l->count; i++)
        TRY(put(v, metric, (double)l->samples[i].total_ns / PQ_NS_PER_MS, l->samples[i].at_ns, why));
    /* With failures nobody knows how much of the cost was theirs. */
    if (l->count == 0 || l->failed)
        return 0;
    return put_role(v, "cpu_us_per_request", "consumer", (double)l->cpu_ns / PQ_NS_PER_US / (double)l->count, why);
}

/* A load costs more than its requests: its connection, and the first requests on it. So a short load comes before the
 * measured one, and what the measured one cost above it is its further requests' own. A load before both takes what
 * only the first connection of a process costs. */
static int measure(struct pq_sbi *s, const struct pq_sbi_cell *c, struct pq_visit *v, const struct pq_sbi_programs *p,
                   struct pq_sbi_load *l, struct pq_why *why)
{
    struct reading at[3];
    int64_t warmup = c->warmup < SHORT_WARMUP ? c->warmup : SHORT_WARMUP;
    for (int i = 0; i < 2; i++) {
        DEFER(pq_sbi_load_free) struct pq_sbi_load before = {0};
        TRY(pq_sbi_run_load(s, c, v, warmup, 1, &before, why));
        if (before.count == 0)
            return pq_why(why, PQ_E_PROTOCOL, "the first requests failed: %s", before.reason);
        TRY(take_reading(c, p, &at[i], why));
    }
    TRY(pq_sbi_run_load(s, c, v, c->warmup, c->requests, l, why));
    TRY(take_reading(c, p, &at[2], why));
    TRY(pq_sbi_put_requests(c, v, l, why));
    int64_t more = c->warmup + c->requests - (warmup + 1);
    return l->failed || c->requests < 2 ? 0 : put_costs(v, at, more, why);
}

static int visit(void *state, struct pq_visit *v, struct pq_why *why)
{
    struct pq_sbi *s = state;
    struct pq_sbi_cell c;
    struct pq_sbi_programs p;
    pq_sbi_settle(s, v->cell, &c);
    TRY(pq_topology_window(c.topology, c.window, why));
    if (c.deployment->protection != PQ_SBI_PLAIN)
        TRY(pq_sbi_memory_handshakes(s, &c, v, why));
    TRY(pq_sbi_start(s, &c, v, &p, why));
    DEFER(pq_sbi_load_free) struct pq_sbi_load l = {0};
    TRY(measure(s, &c, v, &p, &l, why));
    /* A log is whole only when its process has ended. */
    TRY(pq_processes_stop(v->processes, 3 * PQ_NS_PER_S, why));
    if (!c.fresh || l.failed)
        return 0;
    return c.deployment->protection == PQ_SBI_SIDECAR ? split_by_log(&c, v, &l, why) : split_by_load(&c, v, &l, why);
}

const struct pq_driver pq_driver_sbi = {.interface = "sbi",
                                        .factors = factors,
                                        .loads = loads,
                                        .metrics = metrics,
                                        .prepare = prepare,
                                        .visit = visit,
                                        .finish = finish};
