#include "lab/sbi_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *name, *json;
    int want;
    size_t samples;
    uint64_t failed;
} loads[] = {
    {"one sample", "{\"wall_ns\":100,\"cpu_ns\":7,\"samples\":[{\"at_ns\":10,\"total_ns\":5}],\"errors\":[]}", 0, 1, 0},
    {"failures",
     "{\"wall_ns\":1,\"samples\":[],\"errors\":[{\"reason\":\"timeout\",\"count\":3},{\"reason\":\"reset\",\"count\":1}"
     "]}",
     0, 0, 4},
    {"no samples", "{\"errors\":[]}", PQ_E_SYNTAX, 0, 0},
    {"no errors", "{\"samples\":[]}", PQ_E_SYNTAX, 0, 0},
    {"cut short", "{\"samples\":[", PQ_E_SYNTAX, 0, 0},
    {"a list", "[]", PQ_E_SYNTAX, 0, 0},
    {"empty", "", PQ_E_SYNTAX, 0, 0},
    {"no duration", "{\"samples\":[{\"at_ns\":1}],\"errors\":[]}", PQ_E_SYNTAX, 0, 0},
    {"a negative part", "{\"samples\":[{\"total_ns\":1,\"tls_ns\":-1}],\"errors\":[]}", PQ_E_SYNTAX, 0, 0},
    {"an error without a reason", "{\"samples\":[],\"errors\":[{\"count\":3}]}", PQ_E_SYNTAX, 0, 0},
    {"an error that never happened", "{\"samples\":[],\"errors\":[{\"reason\":\"x\",\"count\":0}]}", PQ_E_SYNTAX, 0, 0},
};

static void a_loads_report_is_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(loads); i++) {
        struct pq_sbi_load l = {0};
        struct pq_why why = {{0}};
        int e = pq_sbi_load_parse(loads[i].json, strlen(loads[i].json), 1000, NULL, &l, &why);
        if (e != loads[i].want || l.count != loads[i].samples || l.failed != loads[i].failed)
            fail_msg("%s: %d, %zu samples, %llu failed, \"%s\"", loads[i].name, e, l.count,
                     (unsigned long long)l.failed, why.text);
        if (l.count)
            assert_int_equal(l.samples[0].at_ns, 910);
        pq_sbi_load_free(&l);
    }
}

#define LINE(time, direction, handshake, duration)                                                                     \
    "{\"time\":\"" time "\",\"level\":\"info\",\"event\":\"connection closed\",\"direction\":\"" direction             \
    "\",\"connect_ms\":0.1,\"handshake_ms\":" handshake ",\"chain_ms\":0.5,\"duration_ms\":" duration "}\n"

static void a_sidecars_log_is_read_in_the_order_of_opening(void **state)
{
    (void)state;
    static const char text[] = "not JSON at all\n"
                               "{\"event\":\"listening\"}\n" LINE("2026-11-30T13:00:00.500Z", "egress", "2.0", "100")
                                   LINE("2026-11-30T13:00:00.600Z", "egress", "1.0", "500")
                                       LINE("2026-11-30T13:00:00.700Z", "ingress", "9.0", "1")
                                           LINE("2026-11-30T13:00:00.700Z", "egress", "0", "1")
                                               LINE("2026-12-01T00:00:00.000Z", "egress", "3.0", "1");
    struct pq_sbi_connection *c = NULL;
    size_t n = 0;
    assert_int_equal(pq_sbi_log_parse(text, sizeof text - 1, &c, &n, NULL), 0);
    assert_int_equal(n, 3);
    for (size_t i = 0; i < n; i++)
        assert_true(c[i].handshake_ms == (double)(i + 1));
    assert_true(c[1].opened_ms - c[0].opened_ms == 300);
    free(c);
}

static void a_line_without_a_time_is_a_mistake(void **state)
{
    (void)state;
    static const char text[] = LINE("yesterday", "egress", "2.0", "100");
    struct pq_sbi_connection *c = NULL;
    size_t n = 0;
    assert_int_equal(pq_sbi_log_parse(text, sizeof text - 1, &c, &n, NULL), PQ_E_SYNTAX);
    assert_null(c);
    assert_int_equal(pq_sbi_log_parse("", 0, &c, &n, NULL), 0);
    assert_int_equal(n, 0);
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loads_report_is_read),
        cmocka_unit_test(a_sidecars_log_is_read_in_the_order_of_opening),
        cmocka_unit_test(a_line_without_a_time_is_a_mistake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
