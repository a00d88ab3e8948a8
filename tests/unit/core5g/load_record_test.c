#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>
#include <yyjson.h>

#include "../alloc.h"
#include "core5g/load_record.h"

static void form(void **state)
{
    struct pq_load_record r = {.workload = "discovery", .connection = "new", .cpu_ns = 7, .wall_ns = 8};
    struct pq_buf out = {.cap = 1 << 20};
    (void)state;
    for (int i = 0; i < 3000; i++) {
        const struct pq_load_sample s = {.at_ns = i,
                                         .total_ns = 2,
                                         .tcp_ns = 3,
                                         .tls_ns = 4,
                                         .chain_ns = 5,
                                         .http_ns = 6,
                                         .status = 200,
                                         .bytes = 9};
        assert_int_equal(pq_load_record_sample(&r, &s), 0);
    }
    for (int i = 0; i < 100; i++) {
        char reason[16];
        snprintf(reason, sizeof reason, "reason %d", i);
        assert_int_equal(pq_load_record_error(&r, reason), 0);
        assert_int_equal(pq_load_record_error(&r, "reason 0"), 0);
    }
    assert_int_equal(pq_load_record_write(&r, &out), 0);
    yyjson_doc *d = yyjson_read((const char *)out.at, out.len, 0);
    assert_non_null(d);
    yyjson_val *root = yyjson_doc_get_root(d), *samples = yyjson_obj_get(root, "samples"),
               *errors = yyjson_obj_get(root, "errors");
    assert_int_equal(yyjson_arr_size(samples), 3000);
    assert_int_equal(yyjson_get_int(yyjson_obj_get(yyjson_arr_get(samples, 2999), "at_ns")), 2999);
    assert_int_equal(yyjson_get_int(yyjson_obj_get(root, "cpu_ns")), 7);
    assert_int_equal(yyjson_arr_size(errors), PQ_LOAD_REASONS);
    assert_int_equal(yyjson_get_int(yyjson_obj_get(yyjson_arr_get(errors, 0), "count")), 101);
    /* Reasons without a place of their own are gathered, none is lost. */
    int64_t sum = 0;
    yyjson_arr_iter it = yyjson_arr_iter_with(errors);
    for (yyjson_val *v; (v = yyjson_arr_iter_next(&it));)
        sum += yyjson_get_int(yyjson_obj_get(v, "count"));
    assert_int_equal(sum, 200);
    yyjson_doc_free(d);
    pq_buf_free(&out);
    pq_load_record_free(&r);
}

static void without_memory(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        struct pq_load_record r = {.workload = "discovery", .connection = "kept"};
        struct pq_buf out = {.cap = 1 << 20};
        pq_alloc_fail_at(n);
        int e = pq_load_record_sample(&r, &(struct pq_load_sample){0});
        e = e < 0 ? e : pq_load_record_error(&r, "x");
        e = e < 0 ? e : pq_load_record_write(&r, &out);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        pq_buf_free(&out);
        pq_load_record_free(&r);
        assert_int_equal(e, reached ? PQ_E_NOMEM : 0);
        if (!reached)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(form), cmocka_unit_test(without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
