#include "base/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "../alloc.h"

static int write_some(struct pq_buf *out)
{
    struct pq_json j = pq_json(out);
    pq_json_open(&j, NULL, '{');
    pq_json_text(&j, "name", "a \"b\" \\ \n\x7f \xc3\xbc \xff.");
    pq_json_text(&j, "none", NULL);
    pq_json_open(&j, "list", '[');
    pq_json_whole(&j, NULL, INT64_MIN);
    pq_json_whole(&j, NULL, 7);
    pq_json_open(&j, NULL, '{');
    pq_json_close(&j, '}');
    pq_json_close(&j, ']');
    pq_json_real(&j, "ms", 1.23456);
    pq_json_real(&j, "nan", NAN);
    pq_json_bool(&j, "yes", true);
    pq_json_bool(&j, "no", false);
    pq_json_close(&j, '}');
    return j.failed;
}

static const char expected[] = "{\"name\":\"a \\\"b\\\" \\\\ \\u000a\\u007f \xc3\xbc \xef\xbf\xbd.\",\"none\":null,"
                               "\"list\":[-9223372036854775808,7,{}],\"ms\":1.235,\"nan\":null,\"yes\":true,\"no\":"
                               "false}";

static void values_lists_and_maps(void **state)
{
    (void)state;
    struct pq_buf out = {.cap = 1000};
    assert_int_equal(write_some(&out), 0);
    assert_string_equal((char *)out.at, expected);
    pq_buf_free(&out);
}

static void the_first_error_stays(void **state)
{
    (void)state;
    for (size_t cap = 0; cap <= sizeof expected - 1; cap++) {
        struct pq_buf out = {.cap = cap};
        assert_int_equal(write_some(&out), cap < sizeof expected - 1 ? PQ_E_TOO_LONG : 0);
        assert_true(out.len <= cap);
        pq_buf_free(&out);
    }
    for (long n = 1;; n++) {
        struct pq_buf out = {.cap = 1000};
        pq_alloc_fail_at(n);
        int e = write_some(&out);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        assert_int_equal(e, reached ? PQ_E_NOMEM : 0);
        pq_buf_free(&out);
        if (!reached)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_lists_and_maps),
                                       cmocka_unit_test(the_first_error_stays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
