/* Routes, bodies and problems of an SBI server, through a real connection. */
#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../http2/talk.h"
#include "core5g/nrf.h"
#include "core5g/udr.h"

struct answer {
    int status;
    char type[64], allow[64], accept[64], location[256], cause[64];
    char body[4096];
    bool done;
    struct ev_loop *loop;
};

static void copy(char *out, size_t size, const char *text) { snprintf(out, size, "%s", text ? text : ""); }

static void on_answer(void *context, const struct pq_http2_result *r)
{
    struct answer *a = context;
    a->done = true;
    ev_break(a->loop, EVBREAK_ALL);
    if (r->error)
        return;
    a->status = r->response->status;
    copy(a->type, sizeof a->type, pq_http2_get(r->response, "content-type"));
    copy(a->allow, sizeof a->allow, pq_http2_get(r->response, "allow"));
    copy(a->location, sizeof a->location, pq_http2_get(r->response, "location"));
    const char *accept = pq_http2_get(r->response, "accept");
    copy(a->accept, sizeof a->accept, accept ? accept : pq_http2_get(r->response, "accept-patch"));
    copy(a->body, sizeof a->body, r->response->body.len ? (const char *)r->response->body.at : "");
    yyjson_doc *d = yyjson_read(a->body, strlen(a->body), 0);
    copy(a->cause, sizeof a->cause, yyjson_get_str(yyjson_obj_get(yyjson_doc_get_root(d), "cause")));
    yyjson_doc_free(d);
}

struct service {
    struct talk talk;
    struct pq_function function;
    struct pq_sbi_router router;
};

static int64_t frozen(void) { return 0; }

static void start(struct service *s, bool udr)
{
    const struct pq_nrf_settings how = {
        .heartbeat_ns = 10 * 1000000000LL, .instances = 3, .instance_type = "UDM", .now = frozen};
    *s = (struct service){.talk = {.loop = ev_loop_new(EVFLAG_AUTO)}};
    assert_int_equal(udr ? pq_udr_new(10, &s->function) : pq_nrf_new(&how, &s->function, NULL), 0);
    s->router = (struct pq_sbi_router){s->function.routes, s->function.route_count, s->function.self};
    const struct pq_http2_server_settings server = {.name = "test",
                                                    .address = loopback(),
                                                    .limits = {.body = PQ_SBI_BODY_MAX},
                                                    .request = pq_sbi_serve,
                                                    .context = &s->router};
    assert_int_equal(pq_http2_server_new(s->talk.loop, &server, &s->talk.server, NULL), 0);
    struct pq_address a = pq_http2_server_address(s->talk.server);
    pq_address_text(&a, s->talk.authority);
    assert_int_equal(pq_http2_client_new(s->talk.loop, &(struct pq_http2_client_settings){0}, &s->talk.client), 0);
}

static void end(struct service *s)
{
    pq_http2_client_free(s->talk.client);
    pq_http2_server_free(s->talk.server);
    s->function.free(s->function.self);
    ev_loop_destroy(s->talk.loop);
}

static struct answer call(struct service *s, const char *method, const char *path, const char *type, const char *body)
{
    struct answer a = {.loop = s->talk.loop};
    const struct pq_http2_field field = {"content-type", type};
    const struct pq_http2_call c = {.method = method,
                                    .authority = s->talk.authority,
                                    .path = path,
                                    .fields = &field,
                                    .field_count = type != NULL,
                                    .body = pq_span_text(body),
                                    .done = on_answer,
                                    .context = &a};
    assert_int_equal(pq_http2_client_call(s->talk.client, &c, NULL), 0);
    while (!a.done)
        ev_run(s->talk.loop, EVRUN_ONCE);
    return a;
}

#define NF      "/nnrf-nfm/v1/nf-instances"
#define DISC    "/nnrf-disc/v1/nf-instances"
#define ID      "aaaaaaaa-0000-4000-8000-000000000001"
#define JSON    "application/json"
#define PATCH   "application/json-patch+json"
#define PROFILE "{\"nfInstanceId\":\"" ID "\",\"nfType\":\"UDM\",\"nfStatus\":\"REGISTERED\",\"fqdn\":\"a.example\"}"

static void routes(void **state)
{
    static const struct {
        const char *method, *path, *type, *body;
        int status;
        const char *cause, *allow;
    } rows[] = {
        {"GET", DISC "?target-nf-type=UDM&requester-nf-type=AMF", NULL, "", 200, "", ""},
        {"HEAD", DISC "?target-nf-type=UDM&requester-nf-type=AMF", NULL, "", 200, "", ""},
        {"GET", DISC, NULL, "", 400, "MANDATORY_QUERY_PARAM_MISSING", ""},
        {"DELETE", DISC, NULL, "", 405, "", "GET"},
        {"POST", NF "/" ID, JSON, "{}", 405, "", "GET, PUT, PATCH, DELETE"},
        {"BREW", NF, NULL, "", 501, "", ""},
        {"get", NF, NULL, "", 501, "", ""},
        {"GET", "/", NULL, "", 404, "RESOURCE_URI_STRUCTURE_NOT_FOUND", ""},
        {"GET", "/nnrf-nfm/v1", NULL, "", 404, "RESOURCE_URI_STRUCTURE_NOT_FOUND", ""},
        {"GET", "/nnrf-nfm/v1/other", NULL, "", 404, "RESOURCE_URI_STRUCTURE_NOT_FOUND", ""},
        {"GET", NF "/", NULL, "", 404, "RESOURCE_URI_STRUCTURE_NOT_FOUND", ""},
        {"GET", NF "/a/b", NULL, "", 404, "RESOURCE_URI_STRUCTURE_NOT_FOUND", ""},
        {"GET", "/nnrf-nfm/v2/nf-instances", NULL, "", 400, "INVALID_API", ""},
        {"GET", "/nausf-auth/v1/x", NULL, "", 400, "INVALID_API", ""},
        {"GET", NF "/%", NULL, "", 400, "INVALID_MSG_FORMAT", ""},
        {"GET", NF "/%00", NULL, "", 400, "INVALID_MSG_FORMAT", ""},
        {"GET", NF "/" ID, NULL, "", 404, "CONTEXT_NOT_FOUND", ""},
        {"PUT", NF "/" ID, JSON, PROFILE, 201, "", ""},
        {"PUT", NF "/" ID, "Application/JSON; charset=utf-8", PROFILE, 200, "", ""},
        {"PUT", NF "/" ID, "text/plain", PROFILE, 415, "", ""},
        {"PUT", NF "/" ID, "application/jsonx", PROFILE, 415, "", ""},
        {"PUT", NF "/" ID, NULL, PROFILE, 415, "", ""},
        {"PUT", NF "/" ID, JSON, "{", 400, "INVALID_MSG_FORMAT", ""},
        {"PUT", NF "/" ID, JSON, "", 400, "INVALID_MSG_FORMAT", ""},
        {"PUT", NF "/" ID, JSON, "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]", 400,
         "INVALID_MSG_FORMAT", ""},
        {"PUT", NF "/" ID, JSON, "{}", 400, "MANDATORY_IE_MISSING", ""},
        {"PATCH", NF "/" ID, PATCH, "[{\"op\":\"replace\",\"path\":\"/nfStatus\",\"value\":\"REGISTERED\"}]", 204, "",
         ""},
        {"PATCH", NF "/" ID, PATCH, "[{\"op\":\"add\",\"path\":\"/capacity\",\"value\":1}]", 200, "", ""},
        {"PATCH", NF "/" ID, PATCH, "{}", 400, "INVALID_MSG_FORMAT", ""},
        {"PATCH", NF "/" ID, PATCH, "[]", 400, "INVALID_MSG_FORMAT", ""},
        {"PATCH", NF "/" ID, PATCH, "[{\"op\":\"remove\",\"path\":\"/nfType\"}]", 400, "MANDATORY_IE_MISSING", ""},
        {"PATCH", NF "/" ID, "application/merge-patch+json", "{}", 415, "", ""},
        {"GET", NF "/" ID, NULL, "", 200, "", ""},
        {"GET", NF "?nf-type=UDM&limit=2", NULL, "", 200, "", ""},
        {"GET", NF "?nf-type=nope", NULL, "", 400, "OPTIONAL_QUERY_PARAM_INCORRECT", ""},
        {"GET", NF "?limit=0", NULL, "", 400, "OPTIONAL_QUERY_PARAM_INCORRECT", ""},
        {"DELETE", NF "/" ID, NULL, "", 204, "", ""},
        {"DELETE", NF "/" ID, NULL, "", 404, "CONTEXT_NOT_FOUND", ""},
        {"GET", "/nnrf-disc/v1/searches/0123456789abcdef", NULL, "", 404, "CONTEXT_NOT_FOUND", ""},
    };
    struct service s;
    (void)state;
    start(&s, false);
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct answer a = call(&s, rows[i].method, rows[i].path, rows[i].type, rows[i].body);
        if (a.status != rows[i].status || strcmp(a.cause, rows[i].cause) != 0 || strcmp(a.allow, rows[i].allow) != 0)
            fail_msg("%s %s: %d %s allow \"%s\"", rows[i].method, rows[i].path, a.status, a.cause, a.allow);
        if (a.status >= 400)
            assert_string_equal(a.type, "application/problem+json");
        if (a.status == 415)
            assert_string_equal(a.accept, strcmp(rows[i].method, "PATCH") == 0 ? PATCH : JSON);
        if (a.status == 201)
            assert_non_null(strstr(a.location, NF "/" ID));
    }
    end(&s);
}

/* One more than the largest body, and the largest. */
static void body_cap(void **state)
{
    struct service s;
    (void)state;
    start(&s, false);
    for (int over = 0; over < 2; over++) {
        size_t n = PQ_SBI_BODY_MAX + (size_t)over;
        char *body = malloc(n + 1);
        assert_non_null(body);
        memset(body, ' ', n);
        body[n] = '\0';
        struct answer a = call(&s, "PUT", NF "/" ID, JSON, body);
        assert_int_equal(a.status, over ? 413 : 400);
        free(body);
    }
    end(&s);
}

/* A limited search can be read again, and then in full. */
static void stored_searches(void **state)
{
    struct service s;
    char path[128], search[17];
    (void)state;
    start(&s, false);
    struct answer a = call(&s, "GET", DISC "?target-nf-type=UDM&requester-nf-type=AMF&limit=1", NULL, "");
    const char *id = strstr(a.body, "\"searchId\":\"");
    assert_non_null(id);
    assert_non_null(strstr(a.body, "\"numNfInstComplete\":3"));
    snprintf(search, sizeof search, "%.16s", id + 12);
    snprintf(path, sizeof path, "/nnrf-disc/v1/searches/%s", search);
    a = call(&s, "GET", path, NULL, "");
    assert_int_equal(a.status, 200);
    assert_null(strstr(a.body, "000000000002"));
    snprintf(path, sizeof path, "/nnrf-disc/v1/searches/%s/complete", search);
    a = call(&s, "GET", path, NULL, "");
    assert_int_equal(a.status, 200);
    assert_non_null(strstr(a.body, "000000000002"));
    end(&s);
}

#define UE   "/nudr-dr/v2/subscription-data/imsi-001010000000001"
#define AUTH UE "/authentication-data/authentication-subscription"

/* Each copy of the whole doubles it. */
static void patch_bombs(void **state)
{
    enum { COPIES = 12 }; /* refused as any number is; run, they would not fill this machine's memory */
    static const char *const from[] = {"", "/sequenceNumber", "/fqdn"};
    static const char *const path[] = {"", "/sequenceNumber"};
    (void)state;
    for (int udr = 0; udr < 2; udr++)
        for (size_t i = 0; i < PQ_COUNT(from); i++)
            for (int move = 0; move < 2; move++) {
                struct service s;
                struct pq_buf bomb = {.cap = PQ_SBI_BODY_MAX};
                start(&s, udr);
                for (int k = 0; k < COPIES; k++)
                    assert_int_equal(pq_buf_printf(&bomb, "%s{\"op\":\"%s\",\"from\":\"%s\",\"path\":\"%s/k%d\"}",
                                                   k ? "," : "[", move ? "move" : "copy", from[i], path[udr], k),
                                     0);
                assert_int_equal(pq_buf_append(&bomb, "]", 2), 0);
                if (!udr)
                    call(&s, "PUT", NF "/" ID, JSON, PROFILE);
                struct answer a = call(&s, "PATCH", udr ? AUTH : NF "/" ID, PATCH, (const char *)bomb.at);
                assert_int_equal(a.status, udr ? 403 : 400);
                assert_string_equal(a.cause, udr ? "MODIFICATION_NOT_ALLOWED" : "MANDATORY_IE_INCORRECT");
                assert_string_equal(a.type, "application/problem+json");
                a = call(&s, "GET", udr ? AUTH : NF "/" ID, NULL, "");
                assert_int_equal(a.status, 200);
                assert_null(strstr(a.body, "k0"));
                pq_buf_free(&bomb);
                end(&s);
            }
}

/* The SQN's path alone; the cap of operations and one more. */
static void udr_patches(void **state)
{
    static const struct {
        const char *operation;
        int count, status;
    } rows[] = {
        {"{\"op\":\"replace\",\"path\":\"/sequenceNumber/sqn\",\"value\":\"0000000000a0\"}", PQ_SBI_PATCH_OPERATIONS,
         204},
        {"{\"op\":\"replace\",\"path\":\"/sequenceNumber/sqn\",\"value\":\"0000000000a0\"}",
         PQ_SBI_PATCH_OPERATIONS + 1, 400},
        {"{\"op\":\"add\",\"path\":\"/sequenceNumber/sqn\",\"value\":\"0000000000a0\"}", 1, 403},
        {"{\"op\":\"remove\",\"path\":\"/sequenceNumber/sqn\"}", 1, 403},
        {"{\"op\":\"copy\",\"from\":\"/encPermanentKey\",\"path\":\"/sequenceNumber/sqn\"}", 1, 403},
        {"{\"op\":\"replace\",\"path\":\"/sequenceNumber\",\"value\":{\"sqn\":\"0000000000a0\"}}", 1, 403},
        {"{\"op\":\"replace\",\"path\":\"/sequenceNumber/indLength\",\"value\":6}", 1, 403},
        {"{\"op\":\"replace\",\"path\":\"/sequenceNumberX\",\"value\":6}", 1, 403},
        {"{\"path\":\"/sequenceNumber/sqn\"}", 1, 403},
        {"7", 1, 403},
    };
    struct service s;
    (void)state;
    start(&s, true);
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_buf text = {.cap = PQ_SBI_BODY_MAX};
        for (int k = 0; k < rows[i].count; k++)
            assert_int_equal(pq_buf_printf(&text, "%s%s", k ? "," : "[", rows[i].operation), 0);
        assert_int_equal(pq_buf_append(&text, "]", 2), 0);
        struct answer a = call(&s, "PATCH", AUTH, PATCH, (const char *)text.at);
        if (a.status != rows[i].status)
            fail_msg("%s, %d times: %d %s", rows[i].operation, rows[i].count, a.status, a.body);
        pq_buf_free(&text);
    }
    end(&s);
}

static void udr(void **state)
{
    static const char event[] =
        "{\"nfInstanceId\":\"" ID "\",\"success\":true,\"timeStamp\":\"2026-11-30T00:00:00Z\",\"authType\":\"5G_AKA\","
        "\"servingNetworkName\":\"5G:mnc001.mcc001.3gppnetwork.org\"}";
    static const struct {
        const char *method, *path, *type, *body;
        int status;
        const char *cause, *holds;
    } rows[] = {
        {"GET", UE "/authentication-data/authentication-subscription", NULL, "", 200, "", "\"sqn\":\"000000000000\""},
        {"PATCH", UE "/authentication-data/authentication-subscription", PATCH,
         "[{\"op\":\"test\",\"path\":\"/sequenceNumber/sqn\",\"value\":\"000000000000\"},"
         "{\"op\":\"replace\",\"path\":\"/sequenceNumber/sqn\",\"value\":\"0000000000a0\"}]",
         204, "", ""},
        {"PATCH", UE "/authentication-data/authentication-subscription", PATCH,
         "[{\"op\":\"test\",\"path\":\"/sequenceNumber/sqn\",\"value\":\"000000000000\"},"
         "{\"op\":\"replace\",\"path\":\"/sequenceNumber/sqn\",\"value\":\"0000000000c0\"}]",
         409, "", ""},
        {"PATCH", UE "/authentication-data/authentication-subscription", PATCH,
         "[{\"op\":\"replace\",\"path\":\"/sequenceNumber/sqn\",\"value\":\"xyz\"}]", 400, "MANDATORY_IE_INCORRECT",
         ""},
        {"PATCH", UE "/authentication-data/authentication-subscription", PATCH,
         "[{\"op\":\"replace\",\"path\":\"/encPermanentKey\",\"value\":\"00\"}]", 403, "MODIFICATION_NOT_ALLOWED", ""},
        {"GET", UE "/authentication-data/authentication-subscription", NULL, "", 200, "", "\"sqn\":\"0000000000a0\""},
        {"GET", UE "/authentication-data/authentication-status", NULL, "", 404, "DATA_NOT_FOUND", ""},
        {"PUT", UE "/authentication-data/authentication-status", JSON, "{}", 400, "MANDATORY_IE_MISSING", ""},
        {"PUT", UE "/authentication-data/authentication-status", JSON, event, 201, "", ""},
        {"PUT", UE "/authentication-data/authentication-status", JSON, event, 204, "", ""},
        {"GET", UE "/authentication-data/authentication-status", NULL, "", 200, "", "5G_AKA"},
        {"GET", UE "/00101/provisioned-data/am-data", NULL, "", 200, "", "msisdn-0000000001"},
        {"GET", UE "/00101/provisioned-data/sm-data", NULL, "", 200, "", "internet"},
        {"GET", UE "/00101/provisioned-data/smf-selection-subscription-data", NULL, "", 200, "", "01010203"},
        {"GET", UE "/99999/provisioned-data/am-data", NULL, "", 404, "DATA_NOT_FOUND", ""},
        {"GET", "/nudr-dr/v2/subscription-data/imsi-001010000000011/00101/provisioned-data/am-data", NULL, "", 404,
         "USER_NOT_FOUND", ""},
        {"GET", "/nudr-dr/v2/subscription-data/nobody/00101/provisioned-data/am-data", NULL, "", 400,
         "INVALID_MSG_FORMAT", ""},
    };
    struct service s;
    (void)state;
    start(&s, true);
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct answer a = call(&s, rows[i].method, rows[i].path, rows[i].type, rows[i].body);
        if (a.status != rows[i].status || strcmp(a.cause, rows[i].cause) != 0 || !strstr(a.body, rows[i].holds))
            fail_msg("%s %s: %d %s %s", rows[i].method, rows[i].path, a.status, a.cause, a.body);
    }
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(routes),          cmocka_unit_test(body_cap),
                                       cmocka_unit_test(stored_searches), cmocka_unit_test(udr),
                                       cmocka_unit_test(patch_bombs),     cmocka_unit_test(udr_patches)};
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
