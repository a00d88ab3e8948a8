#include "core5g/nf.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "core5g/nf_parts.h"
#include "core5g/nrf.h"
#include "core5g/register.h"
#include "http2/client.h"
#include "http2/server.h"
#include "http2/uri.h"

/* --- the parts ---------------------------------------------------------------------------------------------------- */

static int make_function(struct pq_nf *nf, struct pq_why *why)
{
    const struct pq_nf_settings *how = nf->how;
    const struct pq_nrf_settings nrf = {
        .heartbeat_ns = how->heartbeat_ns, .instances = (size_t)how->instances, .instance_type = how->instance_type};
    switch (how->kind) {
    case PQ_NF_NRF:
        return pq_nrf_new(&nrf, &nf->function, why);
    case PQ_NF_AUSF:
        return pq_ausf_new(&nf->directory, nf->instance, &nf->function);
    case PQ_NF_UDM:
        return pq_udm_new(&nf->directory, nf->instance, &nf->function);
    case PQ_NF_UDR:
        return pq_udr_new((uint64_t)how->subscribers, &nf->function);
    default:
        return PQ_E_INVALID;
    }
}

static int make_server(struct pq_nf *nf, struct pq_why *why)
{
    struct pq_http2_server_settings s = {.name = pq_nf_kind_names[nf->how->kind],
                                         .tls = nf->tls.server,
                                         .nagle = nf->how->nagle,
                                         .by_frame = nf->how->by_frame,
                                         .limits = {.body = PQ_SBI_BODY_MAX},
                                         .timeouts = {.idle = nf->how->idle_ns},
                                         .request = pq_sbi_serve,
                                         .context = &nf->router};
    TRY(pq_address_parse(nf->how->listen, &s.address, why));
    nf->router = (struct pq_sbi_router){nf->function.routes, nf->function.route_count, nf->function.self};
    return pq_http2_server_new(nf->loop, &s, &nf->server, why);
}

static int make_client(struct pq_nf *nf)
{
    const struct pq_http2_client_settings s = {.tls = nf->tls.client,
                                               .fresh = nf->how->fresh,
                                               .nagle = nf->how->nagle,
                                               .timeouts = {.idle = nf->how->idle_ns, .request = nf->how->timeout_ns}};
    return pq_http2_client_new(nf->loop, &s, &nf->client);
}

static int make_directory(struct pq_nf *nf, struct pq_why *why)
{
    const struct pq_nf_settings *how = nf->how;
    const struct pq_directory_settings s = {
        .client = nf->client,
        .requester = pq_nf_type_names[how->kind],
        .nrf = how->nrf,
        .uri = {[PQ_NF_NRF] = how->nrf, [PQ_NF_AUSF] = how->ausf, [PQ_NF_UDM] = how->udm, [PQ_NF_UDR] = how->udr},
        .tls = nf->tls.client != NULL};
    return pq_directory_init(&nf->directory, &s, why);
}

static int make_registration(struct pq_nf *nf, struct pq_why *why)
{
    if (!nf->how->registers)
        return 0;
    if (!nf->how->nrf)
        return pq_why(why, PQ_E_USAGE, "--register needs --nrf URI: name the NRF to register with");
    const struct pq_registration_settings s = {.loop = nf->loop,
                                               .directory = &nf->directory,
                                               .instance = nf->instance,
                                               .kind = nf->how->kind,
                                               .fqdn = nf->how->fqdn,
                                               .address = pq_http2_server_address(nf->server),
                                               .tls = nf->tls.server != NULL};
    return pq_registration_new(&s, &nf->registration, why);
}

/* --- the end: deregister, then finish what is under way, then the connections to others --------------------------- */

static void on_client_drained(void *context)
{
    struct pq_nf *nf = context;
    ev_break(nf->loop, EVBREAK_ALL);
}

static void on_server_drained(void *context)
{
    struct pq_nf *nf = context;
    pq_http2_client_drain(nf->client, on_client_drained, nf);
}

static void on_deregistered(void *context)
{
    struct pq_nf *nf = context;
    pq_http2_server_drain(nf->server, on_server_drained, nf);
}

static void on_signal(struct ev_loop *loop, ev_signal *w, int events)
{
    (void)events;
    struct pq_nf *nf = w->data;
    if (nf->ending) {
        ev_break(loop, EVBREAK_ALL);
        return;
    }
    nf->ending = true;
    pq_log(PQ_LOG_INFO, "ending", "signal", pq_i(w->signum), NULL);
    if (nf->registration)
        pq_registration_end(nf->registration, on_deregistered, nf);
    else
        on_deregistered(nf);
}

/* --- the run ------------------------------------------------------------------------------------------------------ */

static int tell_ready(const struct pq_nf *nf)
{
    const char *name = pq_nf_kind_names[nf->how->kind];
    char text[PQ_ADDRESS_TEXT];
    struct pq_address a = pq_http2_server_address(nf->server);
    pq_address_text(&a, text);
    pq_log(PQ_LOG_INFO, "listening", "function", pq_s(name), "address", pq_s(text), "tls", pq_i(nf->tls.server != NULL),
           "instance", pq_s(nf->instance), NULL);
    if (nf->how->ready_fd < 0)
        return 0;
    int n = dprintf(nf->how->ready_fd, "ready %s %s\n", name, text);
    pq_file_close(nf->how->ready_fd);
    return n < 0 ? PQ_E_IO : 0;
}

static int make(struct pq_nf *nf, struct pq_why *why)
{
    TRY(pq_uuid_choose(nf->how->instance, nf->instance, why));
    TRY(pq_sbi_tls_open(&nf->how->security, true, true, &nf->tls, why));
    TRY(make_client(nf));
    TRY(make_directory(nf, why));
    TRY(make_function(nf, why));
    TRY(make_server(nf, why));
    return make_registration(nf, why);
}

static void watch_signals(struct pq_nf *nf)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    for (size_t i = 0; i < PQ_COUNT(numbers); i++) {
        ev_signal_init(&nf->signals[i], on_signal, numbers[i]);
        nf->signals[i].data = nf;
        ev_signal_start(nf->loop, &nf->signals[i]);
    }
    signal(SIGPIPE, SIG_IGN);
}

static void report_counts(const struct pq_nf *nf)
{
    struct pq_http2_counts c = pq_http2_server_counts(nf->server);
    pq_log(PQ_LOG_INFO, "ended", "connections", pq_i((int64_t)c.connections), "requests", pq_i((int64_t)c.requests),
           "answers", pq_i((int64_t)c.answers), "failed_handshakes", pq_i((int64_t)c.failed_handshakes), NULL);
}

/* A signal that comes while all is being freed has nothing left to do. */
static void block_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

static void end(struct pq_nf *nf)
{
    block_signals();
    pq_registration_free(nf->registration);
    pq_http2_server_free(nf->server);
    pq_http2_client_free(nf->client);
    pq_directory_clear(&nf->directory);
    if (nf->function.free)
        nf->function.free(nf->function.self);
    pq_sbi_tls_close(&nf->tls);
    for (size_t i = 0; i < PQ_COUNT(nf->signals); i++)
        if (nf->signals[i].data)
            ev_signal_stop(nf->loop, &nf->signals[i]);
    ev_loop_destroy(nf->loop);
}

int pq_nf_run(const struct pq_nf_settings *how, struct pq_why *why)
{
    struct pq_nf nf = {.how = how, .loop = ev_loop_new(EVFLAG_AUTO)};
    if (!nf.loop)
        return pq_why(why, PQ_E_LIMIT, "no event loop: too many open files?");
    int e = make(&nf, why);
    if (e == 0) {
        watch_signals(&nf);
        e = tell_ready(&nf);
    }
    if (e == 0) {
        if (nf.registration)
            pq_registration_begin(nf.registration);
        ev_run(nf.loop, 0);
        report_counts(&nf);
    }
    end(&nf);
    return e;
}
