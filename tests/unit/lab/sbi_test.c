#include "lab/sbi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lab/experiment.h"
#include "lab/sbi_internal.h"

static const char text[] = "name: x\nwhy: because\ninterface: sbi\nfactors: {deployment: [sidecar-pqc], "
                           "option: [standard, nagle, nagle-frames, window-1, chain]}\nrepetitions: 3\n"
                           "metrics: [request_ms, cpu_us_per_request.consumer]\n";

struct part {
    struct pq_experiment *x;
    struct pq_record *record;
    struct pq_lab lab;
    struct pq_sbi sbi;
};

static void part_begin(struct part *p)
{
    *p = (struct part){.x = NULL};
    assert_int_equal(pq_experiment_parse("x.yaml", text, sizeof text - 1, false, &p->x, NULL), 0);
    assert_int_equal(pq_record_new(p->x, 0, &p->record), 0);
    p->lab = (struct pq_lab){.x = p->x, .stop_fd = -1, .record = p->record};
    p->sbi.lab = &p->lab;
}

static void part_end(struct part *p)
{
    pq_record_free(p->record);
    pq_experiment_free(p->x);
}

static void an_option_settles_who_sends_how(void **state)
{
    (void)state;
    static const struct {
        const char *option;
        bool nodelay, sidecar_nodelay, by_frame;
        unsigned window;
        size_t hosts;
    } rows[] = {
        {"standard", true, true, false, 0, 2},     {"nagle", false, false, false, 0, 2},
        {"nagle-frames", true, false, true, 0, 2}, {"window-1", true, true, false, 1, 2},
        {"chain", true, true, false, 0, 4},
    };
    DEFER(part_end) struct part p;
    part_begin(&p);
    assert_int_equal(p.x->cell_count, PQ_COUNT(rows));
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_sbi_cell c;
        pq_sbi_settle(&p.sbi, &p.x->cells[i], &c);
        assert_string_equal(pq_cell_value(p.x, &p.x->cells[i], "option"), rows[i].option);
        if (c.nodelay != rows[i].nodelay || c.sidecar_nodelay != rows[i].sidecar_nodelay ||
            c.by_frame != rows[i].by_frame || c.window != rows[i].window || c.host_count != rows[i].hosts)
            fail_msg("%s", rows[i].option);
        assert_string_equal(c.authority, "mldsa65");
    }
}

static char *record_of(struct part *p, uint64_t failed)
{
    static const struct pq_record_facts facts = {.version = "1", .command = ""};
    struct pq_sbi_sample samples[2] = {{.at_ns = 1, .total_ns = 1000000}, {.at_ns = 2, .total_ns = 2000000}};
    struct pq_sbi_load load = {.samples = samples, .count = 2, .cpu_ns = 5000000, .failed = failed};
    struct pq_visit v = {.lab = &p->lab, .cell = p->x->cells, .round = 1};
    struct pq_sbi_cell c;
    char *json = NULL;
    size_t len;
    pq_sbi_settle(&p->sbi, v.cell, &c);
    pq_record_begin(p->record, 0, 1);
    assert_int_equal(pq_sbi_put_requests(&c, &v, &load, NULL), 0);
    assert_int_equal(pq_record_json(p->record, &facts, &json, &len, NULL), 0);
    pq_record_undo(p->record);
    return json;
}

/* What the failed ones cost is in the figure too, and they are not in its divisor. */
static void a_visit_with_failures_has_times_but_no_cost_per_request(void **state)
{
    (void)state;
    DEFER(part_end) struct part p;
    part_begin(&p);
    DEFER(pq_freep) char *clean = record_of(&p, 0);
    DEFER(pq_freep) char *failed = record_of(&p, 1);
    assert_non_null(strstr(clean, "\"cpu_us_per_request.consumer\":{\"unit\":\"us\",\"samples\":[2500.0]"));
    assert_non_null(strstr(failed, "\"request_ms\":{\"unit\":\"ms\",\"samples\":[1.0,2.0]"));
    assert_null(strstr(failed, "\"cpu_us_per_request.consumer\":{"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_option_settles_who_sends_how),
        cmocka_unit_test(a_visit_with_failures_has_times_but_no_cost_per_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
