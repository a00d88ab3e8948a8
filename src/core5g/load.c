#include "core5g/load.h"

#include <ev.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "core5g/load_record.h"
#include "core5g/sbi.h"
#include "http2/client.h"
#include "http2/uri.h"

enum { BODY_MAX = 64 * 1024 * 1024 };

const char *const pq_load_workload_names[] = {"discovery", "authentication", NULL};

/* CALIBRATE (discovery with --body-bytes) -> WARMUP -> MEASURE. */
enum phase { PHASE_CALIBRATE_ONE, PHASE_CALIBRATE_TWO, PHASE_WARMUP, PHASE_MEASURE };

struct load {
    const struct pq_load_settings *how;
    struct ev_loop *loop;
    struct pq_sbi_tls tls;
    struct pq_http2_client *client;
    char authority[PQ_URI_AUTHORITY_MAX];
    char path[1024];
    char body[256];
    enum phase phase;
    int64_t count; /* requests of this phase so far */
    size_t one;    /* bytes of an answer with one profile */
    int64_t limit; /* profiles asked for; 0: all */
    int64_t began_ns, began_cpu_ns;
    struct pq_load_record record;
    struct pq_why why;
    int code;
    bool stopped;
    ev_timer next;
    ev_signal signals[2];
};

static void on_drained(void *context)
{
    struct load *l = context;
    ev_break(l->loop, EVBREAK_ALL);
}

/* Ends the run; connections are closed in order first, so that no peer sees a reset. */
static void stop(struct load *l, int code)
{
    if (l->stopped)
        return;
    l->stopped = true;
    l->code = code;
    l->record.cpu_ns = l->phase == PHASE_MEASURE ? pq_clock_process_cpu_ns() - l->began_cpu_ns : 0;
    l->record.wall_ns = l->phase == PHASE_MEASURE ? pq_clock_ns() - l->began_ns : 0;
    ev_timer_stop(l->loop, &l->next);
    if (code == 0)
        pq_http2_client_drain(l->client, on_drained, l);
    else
        ev_break(l->loop, EVBREAK_ALL);
}

/* --- what is asked ------------------------------------------------------------------------------------------------ */

static const struct pq_http2_field discovery_fields[] = {{"accept", "application/json"}, {"user-agent", "AMF"}};
static const struct pq_http2_field authentication_fields[] = {
    {"accept", "application/3gppHal+json, application/problem+json"},
    {"content-type", "application/json"},
    {"user-agent", "AMF"}};

static void write_discovery(struct load *l, struct pq_http2_call *call)
{
    int n = snprintf(l->path, sizeof l->path, "/nnrf-disc/v1/nf-instances?target-nf-type=%s&requester-nf-type=AMF",
                     l->how->nf_type);
    if (l->limit)
        snprintf(l->path + n, sizeof l->path - (size_t)n, "&limit=%" PRId64, l->limit);
    call->method = "GET";
    call->fields = discovery_fields;
    call->field_count = PQ_COUNT(discovery_fields);
}

static void write_authentication(struct load *l, struct pq_http2_call *call)
{
    int64_t i = l->count % l->how->subscribers;
    snprintf(l->path, sizeof l->path, "/nausf-auth/v1/ue-authentications");
    int n = snprintf(l->body, sizeof l->body,
                     "{\"supiOrSuci\":\"suci-0-001-01-0000-0-0-%010" PRId64
                     "\",\"servingNetworkName\":\"5G:mnc001.mcc001.3gppnetwork.org\"}",
                     i + 1);
    call->method = "POST";
    call->fields = authentication_fields;
    call->field_count = PQ_COUNT(authentication_fields);
    call->body = pq_span(l->body, (size_t)n);
}

static void on_response(void *context, const struct pq_http2_result *r);

static void ask(struct load *l)
{
    struct pq_http2_call call = {
        .authority = l->authority, .path = l->path, .timeout = l->how->timeout_ns, .done = on_response, .context = l};
    if (l->how->workload == PQ_LOAD_DISCOVERY)
        write_discovery(l, &call);
    else
        write_authentication(l, &call);
    int e = pq_http2_client_call(l->client, &call, &l->why);
    if (e < 0)
        stop(l, e);
}

/* --- what comes back ---------------------------------------------------------------------------------------------- */

/* How many profiles come nearest to the size that is wanted. */
static int64_t choose_limit(const struct load *l, size_t two)
{
    int64_t each = (int64_t)two - (int64_t)l->one, rest = l->how->body_bytes - (int64_t)l->one;
    if (each <= 0 || rest <= 0)
        return 1;
    return 1 + (rest + each / 2) / each;
}

static void begin_phase(struct load *l, enum phase phase)
{
    l->phase = phase;
    l->count = 0;
    if (phase == PHASE_CALIBRATE_ONE || phase == PHASE_CALIBRATE_TWO)
        l->limit = phase == PHASE_CALIBRATE_ONE ? 1 : 2;
    if (phase == PHASE_MEASURE) {
        l->began_ns = pq_clock_ns();
        l->began_cpu_ns = pq_clock_process_cpu_ns();
    }
}

static void calibrate(struct load *l, size_t bytes)
{
    if (l->phase == PHASE_CALIBRATE_ONE) {
        l->one = bytes;
        begin_phase(l, PHASE_CALIBRATE_TWO);
        return;
    }
    l->limit = choose_limit(l, bytes);
    begin_phase(l, PHASE_WARMUP);
}

static bool is_good(const struct load *l, const struct pq_http2_result *r)
{
    return r->error == 0 && r->response->status == (l->how->workload == PQ_LOAD_DISCOVERY ? 200 : 201);
}

static void keep(struct load *l, const struct pq_http2_result *r)
{
    const struct pq_http2_timing *t = &r->timing;
    char reason[64];
    if (!is_good(l, r)) {
        if (r->error)
            snprintf(reason, sizeof reason, "%s", r->label);
        else
            snprintf(reason, sizeof reason, "status %d", r->response->status);
        if (pq_load_record_error(&l->record, reason) < 0)
            stop(l, PQ_E_NOMEM);
        return;
    }
    int64_t up = t->tls ? t->tls : t->tcp; /* the transport's end, where this request opened it */
    const struct pq_load_sample s = {
        .at_ns = t->start - l->began_ns,
        .total_ns = t->end - t->start,
        .tcp_ns = t->tcp ? t->tcp - t->connect : 0,
        .tls_ns = t->tls ? t->tls - t->tcp : 0,
        .chain_ns = t->chain_ns,
        .http_ns = t->end - (up ? up : t->start),
        .status = r->response->status,
        .bytes = r->response->body.len,
    };
    if (pq_load_record_sample(&l->record, &s) < 0)
        stop(l, PQ_E_NOMEM);
}

/* A failure before measuring is no figure's business, but one that stays is a person's. */
static void note_failure(const struct load *l, const struct pq_http2_result *r)
{
    if (r->error)
        pq_log(PQ_LOG_WARN, "request failed", "phase", pq_i(l->phase), "reason", pq_s(r->label), "detail",
               pq_s(r->reason), NULL);
    else
        pq_log(PQ_LOG_WARN, "request failed", "phase", pq_i(l->phase), "status", pq_i(r->response->status), "detail",
               pq_s(r->response->body.len ? (const char *)r->response->body.at : ""), NULL);
}

static void on_response(void *context, const struct pq_http2_result *r)
{
    struct load *l = context;
    bool good = is_good(l, r);
    if (!good)
        note_failure(l, r);
    if (l->phase == PHASE_MEASURE)
        keep(l, r);
    else if (l->phase < PHASE_WARMUP && good)
        calibrate(l, r->response->body.len);
    else if (l->phase < PHASE_WARMUP)
        stop(l, pq_why(&l->why, r->error ? r->error : PQ_E_PROTOCOL, "%s answers no discovery%s%s", l->how->target,
                       r->error ? ": " : "", r->error ? r->reason : ""));
    if (l->phase >= PHASE_WARMUP && ++l->count >= l->how->warmup && l->phase == PHASE_WARMUP)
        begin_phase(l, PHASE_MEASURE);
    else if (l->phase == PHASE_MEASURE && l->count >= l->how->requests)
        stop(l, 0);
    if (!l->stopped)
        ev_timer_start(l->loop, &l->next);
}

/* The next request starts from the loop, when the last one's connection had its turn. */
static void on_next(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop, (void)events;
    ask(w->data);
}

static void on_signal(struct ev_loop *loop, ev_signal *w, int events)
{
    (void)loop, (void)events;
    stop(w->data, PQ_E_INTERRUPTED);
}

/* --- the run ------------------------------------------------------------------------------------------------------ */

static int read_target(struct load *l, struct pq_why *why)
{
    struct pq_uri u;
    if (pq_uri_parse(l->how->target, &u) < 0 || u.path.len > 1 || u.query.len)
        return pq_why(why, PQ_E_USAGE, "--target %s: give http://HOST:PORT or https://HOST:PORT", l->how->target);
    if (u.tls != (l->tls.client != NULL))
        return pq_why(why, PQ_E_USAGE, "--target %s: %s", l->how->target,
                      u.tls ? "https needs --certificate, --key and --ca"
                            : "http is plain: leave --certificate, --key and --ca out");
    return pq_uri_authority(&u, l->authority, sizeof l->authority);
}

static int open_client(struct load *l)
{
    char *name = (char *)(uintptr_t)l->how->name;
    const struct pq_strings names = {.at = &name, .count = 1};
    const struct pq_http2_client_settings s = {.tls = l->tls.client,
                                               .names = name ? &names : NULL,
                                               .fresh = l->how->fresh,
                                               .nagle = l->how->nagle,
                                               .limits = {.body = BODY_MAX},
                                               .timeouts = {.request = l->how->timeout_ns, .idle = 60 * PQ_NS_PER_S}};
    return pq_http2_client_new(l->loop, &s, &l->client);
}

static void watch(struct load *l)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    for (size_t i = 0; i < PQ_COUNT(numbers); i++) {
        ev_signal_init(&l->signals[i], on_signal, numbers[i]);
        l->signals[i].data = l;
        ev_signal_start(l->loop, &l->signals[i]);
    }
    ev_timer_init(&l->next, on_next, 0., 0.);
    l->next.data = l;
    signal(SIGPIPE, SIG_IGN);
}

static int measure(struct load *l, struct pq_buf *out, struct pq_why *why)
{
    TRY(pq_sbi_tls_open(&l->how->security, false, true, &l->tls, why));
    TRY(read_target(l, why));
    TRY(open_client(l));
    watch(l);
    begin_phase(l, l->how->workload == PQ_LOAD_DISCOVERY && l->how->body_bytes ? PHASE_CALIBRATE_ONE
                   : l->how->warmup                                            ? PHASE_WARMUP
                                                                               : PHASE_MEASURE);
    ask(l);
    if (!l->stopped)
        ev_run(l->loop, 0);
    l->record.workload = pq_load_workload_names[l->how->workload];
    l->record.connection = l->how->fresh ? "new" : "kept";
    if (l->code < 0 && l->code != PQ_E_INTERRUPTED)
        return pq_why(why, l->code, "%s", l->why.text[0] ? l->why.text : pq_error_text(l->code));
    TRY(pq_load_record_write(&l->record, out));
    return l->code;
}

static void close_all(struct load *l)
{
    pq_http2_client_free(l->client);
    pq_sbi_tls_close(&l->tls);
    for (size_t i = 0; i < PQ_COUNT(l->signals); i++)
        if (l->signals[i].data)
            ev_signal_stop(l->loop, &l->signals[i]);
    ev_timer_stop(l->loop, &l->next);
    pq_load_record_free(&l->record);
    ev_loop_destroy(l->loop);
}

int pq_load_run(const struct pq_load_settings *how, struct pq_buf *out, struct pq_why *why)
{
    struct load l = {.how = how, .loop = ev_loop_new(EVFLAG_AUTO)};
    if (!l.loop)
        return pq_why(why, PQ_E_LIMIT, "no event loop: too many open files?");
    int e = measure(&l, out, why);
    close_all(&l);
    return e;
}
