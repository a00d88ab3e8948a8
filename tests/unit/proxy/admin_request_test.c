#include "proxy/admin_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../alloc.h"
#include "base/cleanup.h"

static void requests_and_verdicts(void **state)
{
    (void)state;
    static const struct {
        const char *method, *path;
        int status;
        enum pq_admin_action action;
        const char *allow;
    } rows[] = {
        {"GET", "/", 0, PQ_ADMIN_INDEX, NULL},
        {"GET", "/metrics", 0, PQ_ADMIN_METRICS, NULL},
        {"HEAD", "/metrics", 0, PQ_ADMIN_METRICS, NULL},
        {"GET", "/healthz", 0, PQ_ADMIN_HEALTHZ, NULL},
        {"GET", "/ready", 0, PQ_ADMIN_READY, NULL},
        {"GET", "/connections", 0, PQ_ADMIN_CONNECTIONS, NULL},
        {"GET", "/config", 0, PQ_ADMIN_CONFIG, NULL},
        {"POST", "/drain", 0, PQ_ADMIN_DRAIN, NULL},
        {"POST", "/reload", 0, PQ_ADMIN_RELOAD, NULL},
        {"GET", "/log-level", 0, PQ_ADMIN_LOG_LEVEL, NULL},
        {"PUT", "/log-level", 0, PQ_ADMIN_SET_LOG_LEVEL, NULL},
        {"GET", "/drain", 405, 0, "POST"},
        {"HEAD", "/reload", 405, 0, "POST"},
        {"POST", "/metrics", 405, 0, "GET, HEAD"},
        {"POST", "/log-level", 405, 0, "GET, HEAD, PUT"},
        {"OPTIONS", "/drain", 405, 0, "POST"},
        {"get", "/metrics", 405, 0, "GET, HEAD"},
        {"", "/metrics", 405, 0, "GET, HEAD"},
        {"GET", "", 404, 0, NULL},
        {"GET", "/metrics/", 404, 0, NULL},
        {"GET", "/Metrics", 404, 0, NULL},
        {"GET", "//metrics", 404, 0, NULL},
        {"GET", "*", 404, 0, NULL},
        {"POST", "/../drain", 404, 0, NULL},
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_admin_verdict v = pq_admin_judge(
            &(struct pq_admin_request){.method = rows[i].method, .path = rows[i].path, .host = "127.0.0.1:9901"});
        if (v.status != rows[i].status || (v.status == 0 && v.action != rows[i].action))
            fail_msg("%s %s: status %d, action %d", rows[i].method, rows[i].path, v.status, (int)v.action);
        assert_int_equal(v.error != NULL, v.status != 0);
        if (rows[i].allow)
            assert_string_equal(v.allow, rows[i].allow);
        else
            assert_null(v.allow);
    }
}

static void only_addresses_and_localhost_are_hosts(void **state)
{
    (void)state;
    static const struct {
        const char *host;
        int status;
    } rows[] = {
        {NULL, 0}, /* HTTP/1.0 */
        {"127.0.0.1", 0},
        {"127.0.0.1:9901", 0},
        {"10.1.2.3:1", 0},
        {"localhost", 0},
        {"LocalHost:9901", 0},
        {"[::1]", 0},
        {"[::1]:9901", 0},
        {"[fe80::1]:65535", 0},
        {"", 403},
        {":9901", 403},
        {"evil.example", 403},
        {"evil.example:9901", 403},
        {"localhost.evil.example", 403},
        {"127.0.0.1.evil.example", 403},
        {"127.0.0.1:9901.evil.example", 403},
        {"127.0.0.1:", 403},
        {"127.0.0.1:65536", 403},
        {"127.0.0.1:-0", 403},
        {"127.1", 403},
        {"2130706433", 403},
        {"0x7f.0.0.1", 403},
        {"::1", 403},
        {"[::1", 403},
        {"[127.0.0.1]", 403},
        {"[::1]evil", 403},
        {"[localhost", 403},
        {"user@127.0.0.1", 403},
        {" 127.0.0.1", 403},
        {"localhost.", 403},
        {"[0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000]", 403},
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_admin_request r = {.method = "GET", .path = "/metrics", .host = rows[i].host};
        if (pq_admin_judge(&r).status != rows[i].status)
            fail_msg("Host: %s", rows[i].host);
        r.unix_socket = true;
        assert_int_equal(pq_admin_judge(&r).status, 0);
    }
}

static void other_pages_change_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *host, *origin, *fetch_site;
        int status;
    } rows[] = {
        {"127.0.0.1:9901", NULL, NULL, 0},
        {"127.0.0.1:9901", "http://127.0.0.1:9901", NULL, 0},
        {"localhost:9901", "http://localhost:9901", "same-origin", 0},
        {"localhost:9901", NULL, "none", 0},
        {"127.0.0.1:9901", "http://127.0.0.1:80", NULL, 403},
        {"127.0.0.1:9901", "http://127.0.0.1", NULL, 403},
        {"127.0.0.1:9901", "http://localhost:9901", NULL, 403},
        {"127.0.0.1:9901", "https://127.0.0.1:9901", NULL, 403},
        {"127.0.0.1:9901", "https://evil.example", NULL, 403},
        {"127.0.0.1:9901", "null", NULL, 403},
        {"127.0.0.1:9901", "", NULL, 403},
        {NULL, "http://127.0.0.1:9901", NULL, 403},
        {"127.0.0.1:9901", NULL, "cross-site", 403},
        {"127.0.0.1:9901", NULL, "same-site", 403},
        {"127.0.0.1:9901", NULL, "", 403},
        {"127.0.0.1:9901", "http://127.0.0.1:9901", "cross-site", 403},
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++)
        for (int over_unix = 0; over_unix < 2; over_unix++) {
            struct pq_admin_request r = {.method = "POST",
                                         .path = "/drain",
                                         .host = rows[i].host,
                                         .origin = rows[i].origin,
                                         .fetch_site = rows[i].fetch_site,
                                         .unix_socket = over_unix};
            assert_int_equal(pq_admin_judge(&r).status, rows[i].status);
            r.method = "PUT";
            r.path = "/log-level";
            assert_int_equal(pq_admin_judge(&r).status, rows[i].status);
            r.method = "GET"; /* the browser keeps the answer from the page */
            assert_int_equal(pq_admin_judge(&r).status, 0);
        }
}

static void long_bodies_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *length;
        int status;
    } rows[] = {{"0", 0},    {"65536", 0}, {"65537", 413}, {"99999999999999999999", 413},
                {"-1", 413}, {"1,1", 413}, {"", 413},      {"+1", 413}};
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_admin_request r = {.method = "PUT", .path = "/log-level", .length = rows[i].length};
        assert_int_equal(pq_admin_judge(&r).status, rows[i].status);
    }
}

static void levels_as_text_and_json(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        int level;
    } rows[] = {
        {"debug", PQ_LOG_DEBUG},
        {"info\n", PQ_LOG_INFO},
        {"warn \r\n", PQ_LOG_WARN},
        {"{\"level\": \"error\"}", PQ_LOG_ERROR},
        {"{\"level\":\"debug\",\"more\":1}\n", PQ_LOG_DEBUG},
        {"", -1},
        {" ", -1},
        {"Debug", -1},
        {"debugging", -1},
        {"deb", -1},
        {" debug", -1},
        {"{", -1},
        {"{}", -1},
        {"{\"level\":1}", -1},
        {"{\"level\":null}", -1},
        {"{\"level\":\"loud\"}", -1},
        {"{\"level\":\"info\"} x", -1},
        {"[\"info\"]", -1},
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++)
        if (pq_admin_level(pq_span_text(rows[i].body)) != rows[i].level)
            fail_msg("%s", rows[i].body);
    assert_int_equal(pq_admin_level(pq_span(NULL, 0)), -1);
    assert_int_equal(pq_admin_level(pq_span("info\0", 5)), -1);
    assert_int_equal(pq_admin_level(pq_span("{\"level\":\"info\"}\0", 17)), -1);
    char large[PQ_ADMIN_BODY_MAX + 1];
    memset(large, 'i', sizeof large);
    for (size_t len = PQ_ADMIN_BODY_MAX - 1; len <= sizeof large; len++)
        assert_int_equal(pq_admin_level(pq_span(large, len)), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_and_verdicts),      cmocka_unit_test(only_addresses_and_localhost_are_hosts),
        cmocka_unit_test(other_pages_change_nothing), cmocka_unit_test(long_bodies_are_refused),
        cmocka_unit_test(levels_as_text_and_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
