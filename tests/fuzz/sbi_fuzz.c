/* JSON bodies and paths of the network functions: the first byte picks the function and route, a line the path, the
 * rest is the body. Requests go through a real connection; each must be answered. */
#include <ev.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "core5g/ausf.h"
#include "core5g/nrf.h"
#include "core5g/udm.h"
#include "core5g/udr.h"
#include "http2/client.h"
#include "http2/server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FUNCTIONS = 4, PATH_SIZE = 1024 };

static struct ev_loop *loop;
static struct pq_http2_client *client;
static struct pq_directory directory;
static struct {
    struct pq_function function;
    struct pq_sbi_router router;
    struct pq_http2_server *server;
    char authority[PQ_ADDRESS_TEXT];
} at[FUNCTIONS];

static const struct {
    int function;
    const char *method, *type, *path;
} routes[] = {
    {0, "PUT", "application/json", "/nnrf-nfm/v1/nf-instances/5b9e4b10-0000-4000-8000-000000000001"},
    {0, "PATCH", "application/json-patch+json", "/nnrf-nfm/v1/nf-instances/5b9e4b10-0000-4000-8000-000000000001"},
    {0, "GET", NULL, "/nnrf-disc/v1/nf-instances?target-nf-type=UDM&requester-nf-type=AMF&"},
    {0, "GET", NULL, "/"},
    {1, "PATCH", "application/json-patch+json",
     "/nudr-dr/v2/subscription-data/imsi-001010000000001/authentication-data/authentication-subscription"},
    {1, "PUT", "application/json",
     "/nudr-dr/v2/subscription-data/imsi-001010000000001/authentication-data/authentication-status"},
    {1, "PUT", "application/json", "/nudr-dr/v2/subscription-data/imsi-001010000000001/context-data/amf-3gpp-access"},
    {2, "POST", "application/json", "/nudm-ueau/v1/imsi-001010000000001/security-information/generate-auth-data"},
    {2, "POST", "application/json", "/nudm-ueau/v1/imsi-001010000000001/auth-events"},
    {2, "PUT", "application/json", "/nudm-uecm/v1/imsi-001010000000001/registrations/amf-3gpp-access"},
    {2, "GET", NULL, "/nudm-sdm/v2/imsi-001010000000001/am-data?plmn-id="},
    {3, "POST", "application/json", "/nausf-auth/v1/ue-authentications"},
    {3, "PUT", "application/json",
     "/nausf-auth/v1/ue-authentications/00000000000000000000000000000000/5g-aka-confirmation"},
};

static void serve(int i)
{
    struct pq_http2_server_settings s = {
        .name = "fuzz", .request = pq_sbi_serve, .context = &at[i].router, .limits = {.body = PQ_SBI_BODY_MAX}};
    if (pq_address_parse("127.0.0.1:0", &s.address, NULL) < 0)
        abort();
    at[i].router = (struct pq_sbi_router){at[i].function.routes, at[i].function.route_count, at[i].function.self};
    if (pq_http2_server_new(loop, &s, &at[i].server, NULL) < 0)
        abort();
    struct pq_address a = pq_http2_server_address(at[i].server);
    pq_address_text(&a, at[i].authority);
}

static void set_up(void)
{
    const struct pq_nrf_settings nrf = {.heartbeat_ns = 1000000000, .instances = 3, .instance_type = "UDM"};
    signal(SIGPIPE, SIG_IGN);
    pq_log_set(PQ_LOG_ERROR, PQ_LOG_LOGFMT);
    loop = ev_loop_new(EVFLAG_AUTO);
    if (!loop || pq_http2_client_new(loop, &(struct pq_http2_client_settings){0}, &client) < 0)
        abort();
    if (pq_nrf_new(&nrf, &at[0].function, NULL) < 0 || pq_udr_new(3, &at[1].function) < 0 ||
        pq_udm_new(&directory, "u", &at[2].function) < 0 || pq_ausf_new(&directory, "a", &at[3].function) < 0)
        abort();
    for (int i = 0; i < FUNCTIONS; i++)
        serve(i);
    directory = (struct pq_directory){.client = client, .requester = "AUSF"};
    for (int i = 1; i < 3; i++) { /* UDR and UDM are asked by others */
        struct pq_directory_entry *e = &directory.at[i == 1 ? PQ_NF_UDR : PQ_NF_UDM];
        e->fixed = true;
        memcpy(e->authority, at[i].authority, sizeof at[i].authority);
    }
}

static void on_answer(void *context, const struct pq_http2_result *r)
{
    /* A path that HTTP/2 itself refuses ends its stream; everything else is answered. */
    if (r->error && r->error != PQ_E_RESET && r->error != PQ_E_PROTOCOL)
        abort();
    if (!r->error && (r->response->status < 200 || r->response->status > 599))
        abort();
    *(bool *)context = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[PATH_SIZE];
    bool done = false;
    if (!client)
        set_up();
    if (size == 0 || size > PQ_SBI_BODY_MAX)
        return 0;
    const uint8_t *line = data + 1, *end = memchr(line, '\n', size - 1);
    const size_t pick = data[0] % (sizeof routes / sizeof routes[0]);
    const char *base = routes[pick].path;
    size_t n = strlen(base), more = end ? (size_t)(end - line) : 0;
    if (n + more >= sizeof path)
        return 0;
    memcpy(path, base, n);
    memcpy(path + n, line, more);
    path[n + more] = '\0';
    const uint8_t *body = end ? end + 1 : line;
    const struct pq_http2_field field = {"content-type", routes[pick].type};
    const struct pq_http2_call call = {.method = routes[pick].method,
                                       .authority = at[routes[pick].function].authority,
                                       .path = path,
                                       .fields = &field,
                                       .field_count = field.value != NULL,
                                       .body = pq_span(body, size - (size_t)(body - data)),
                                       .done = on_answer,
                                       .context = &done};
    if (pq_http2_client_call(client, &call, NULL) < 0)
        abort();
    while (!done)
        ev_run(loop, EVRUN_ONCE);
    return 0;
}
