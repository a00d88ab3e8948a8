#include "lab/record.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <yyjson.h>

#include "../alloc.h"
#include "base/clock.h"

static const char text[] = "name: x\nwhy: because\ninterface: sbi\nfactors: {deployment: [none, sidecar-pqc], "
                           "ca: {values: [mldsa44], when: {deployment: sidecar-pqc}}}\nrepetitions: 3\n"
                           "metrics: [request_ms, wire_bytes]\n";

static const struct pq_record_facts facts = {
    .version = "1", .command = "pqplane lab run x", .seed = UINT64_MAX, .complete = true, .rounds = 2};

static struct pq_experiment *experiment(void)
{
    struct pq_experiment *x = NULL;
    assert_int_equal(pq_experiment_parse("x.yaml", text, sizeof text - 1, false, &x, NULL), 0);
    return x;
}

static void fill(struct pq_record *r)
{
    pq_record_begin(r, 0, 1);
    assert_int_equal(pq_record_sample(r, "request_ms", 1.25, 5 * PQ_NS_PER_MS), 0);
    assert_int_equal(pq_record_sample(r, "not asked for", 9, 0), 0);
    assert_int_equal(pq_record_error(r, "request: timeout", 2), 0);
    assert_int_equal(pq_record_error(r, "request: timeout", 1), 0);
    pq_record_begin(r, 1, 2);
    for (int i = 0; i < 100; i++)
        assert_int_equal(pq_record_sample(r, "wire_bytes", i, i * PQ_NS_PER_MS), 0);
    assert_int_equal(pq_record_calibration(r, 1, 0, 12.5, 0), 0);
    assert_int_equal(pq_record_note(r, "a \"note\"\n"), 0);
    assert_int_equal(pq_record_note(r, "a \"note\"\n"), 0);
}

static size_t length(yyjson_val *metric, const char *key) { return yyjson_arr_size(yyjson_obj_get(metric, key)); }

static void results_are_json_with_every_sample(void **state)
{
    (void)state;
    DEFER(pq_experiment_freep) struct pq_experiment *x = experiment();
    DEFER(pq_record_freep) struct pq_record *r = NULL;
    DEFER(pq_freep) char *json = NULL;
    size_t len = 0;
    assert_int_equal(pq_record_new(x, 0, &r), 0);
    fill(r);
    assert_int_equal(pq_record_errors(r), 3);
    assert_int_equal(pq_record_json(r, &facts, &json, &len, NULL), 0);
    yyjson_doc *d = yyjson_read(json, len, 0);
    assert_non_null(d);
    yyjson_val *root = yyjson_doc_get_root(d), *cells = yyjson_obj_get(root, "cells");
    assert_int_equal(yyjson_get_int(yyjson_obj_get(root, "schema")), 1);
    assert_true(yyjson_get_uint(yyjson_obj_get(root, "seed")) == UINT64_MAX);
    assert_true(yyjson_is_null(yyjson_obj_get(yyjson_obj_get(root, "experiment"), "published")));
    assert_string_equal(yyjson_get_str(yyjson_obj_get(yyjson_obj_get(root, "experiment"), "text")), text);
    assert_int_equal(yyjson_arr_size(cells), 2);
    yyjson_val *none = yyjson_arr_get(cells, 0), *pqc = yyjson_arr_get(cells, 1);
    assert_int_equal(yyjson_obj_size(yyjson_obj_get(none, "factors")), 1); /* no ca where there is none */
    assert_string_equal(yyjson_get_str(yyjson_obj_get(yyjson_obj_get(pqc, "factors"), "ca")), "mldsa44");
    yyjson_val *request = yyjson_obj_get(yyjson_obj_get(none, "metrics"), "request_ms");
    assert_string_equal(yyjson_get_str(yyjson_obj_get(request, "unit")), "ms");
    assert_true(yyjson_get_real(yyjson_arr_get(yyjson_obj_get(request, "samples"), 0)) == 1.25);
    assert_true(yyjson_get_real(yyjson_arr_get(yyjson_obj_get(request, "at_ms"), 0)) == 5.0);
    assert_null(yyjson_obj_get(yyjson_obj_get(none, "metrics"), "wire_bytes")); /* nothing measured: no metric */
    yyjson_val *wire = yyjson_obj_get(yyjson_obj_get(pqc, "metrics"), "wire_bytes");
    assert_int_equal(length(wire, "samples"), 100);
    assert_int_equal(length(wire, "rounds"), 100);
    assert_int_equal(length(wire, "at_ms"), 100);
    yyjson_val *error = yyjson_arr_get(yyjson_obj_get(none, "errors"), 0);
    assert_int_equal(yyjson_get_int(yyjson_obj_get(error, "count")), 3);
    assert_int_equal(yyjson_arr_size(yyjson_obj_get(root, "notes")), 1);
    assert_int_equal(yyjson_arr_size(yyjson_obj_get(root, "calibration")), 1);
    yyjson_doc_free(d);
}

static size_t samples_of_cell_0(struct pq_record *r)
{
    DEFER(pq_freep) char *json = NULL;
    size_t len = 0;
    assert_int_equal(pq_record_json(r, &facts, &json, &len, NULL), 0);
    yyjson_doc *d = yyjson_read(json, len, 0);
    yyjson_val *cell = yyjson_arr_get(yyjson_obj_get(yyjson_doc_get_root(d), "cells"), 0);
    size_t n = length(yyjson_obj_get(yyjson_obj_get(cell, "metrics"), "request_ms"), "samples");
    yyjson_doc_free(d);
    return n;
}

static void a_failed_visit_leaves_no_samples_but_its_errors(void **state)
{
    (void)state;
    DEFER(pq_experiment_freep) struct pq_experiment *x = experiment();
    DEFER(pq_record_freep) struct pq_record *r = NULL;
    assert_int_equal(pq_record_new(x, 0, &r), 0);
    pq_record_begin(r, 0, 1);
    assert_int_equal(pq_record_sample(r, "request_ms", 1, 0), 0);
    pq_record_begin(r, 0, 2);
    for (int i = 0; i < 40; i++)
        assert_int_equal(pq_record_sample(r, "request_ms", 2, 0), 0);
    assert_int_equal(pq_record_error(r, "the nrf ended", 1), 0);
    assert_int_equal(samples_of_cell_0(r), 41);
    pq_record_undo(r);
    assert_int_equal(samples_of_cell_0(r), 1);
    assert_int_equal(pq_record_errors(r), 1);
}

static void a_value_that_is_no_number_is_refused(void **state)
{
    (void)state;
    DEFER(pq_experiment_freep) struct pq_experiment *x = experiment();
    DEFER(pq_record_freep) struct pq_record *r = NULL;
    assert_int_equal(pq_record_new(x, 0, &r), 0);
    pq_record_begin(r, 0, 1);
    assert_int_equal(pq_record_sample(r, "request_ms", NAN, 0), PQ_E_INVALID);
    assert_int_equal(pq_record_sample(r, "request_ms", INFINITY, 0), PQ_E_INVALID);
}

static int record_and_print(const struct pq_experiment *x)
{
    DEFER(pq_record_freep) struct pq_record *r = NULL;
    TRY(pq_record_new(x, 0, &r));
    pq_record_begin(r, 0, 1);
    for (int i = 0; i < 20; i++)
        TRY(pq_record_sample(r, "request_ms", i, i));
    TRY(pq_record_error(r, "because", 1));
    TRY(pq_record_note(r, "so"));
    return pq_record_calibration(r, 1, 0, 1, 1);
}

static void every_failed_allocation_of_ours_is_an_error(void **state)
{
    (void)state;
    DEFER(pq_experiment_freep) struct pq_experiment *x = experiment();
    for (long n = 1;; n++) {
        pq_alloc_fail_at(n);
        int e = record_and_print(x);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        assert_int_equal(e, reached ? PQ_E_NOMEM : 0);
        if (!reached)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_json_with_every_sample),
        cmocka_unit_test(a_failed_visit_leaves_no_samples_but_its_errors),
        cmocka_unit_test(a_value_that_is_no_number_is_refused),
        cmocka_unit_test(every_failed_allocation_of_ours_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
