#include "report/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../alloc.h"
#include "inputs.h"

static const struct input_cell cells[] = {
    {"\"d\":\"none\",\"c\":\"kept\"", "request_ms", "ms", 1, 0.05, 10, 0},
    {"\"d\":\"pqc\",\"c\":\"kept\"", "request_ms", "ms", 3, 0.05, 10, 0},
    {"\"d\":\"=pqc,\\\"x\\\"\",\"c\":\"new\"", "other", "us", 3, 0.05, 2, 0},
};
static const char experiment[] =
    "title: T\nwhy: W\nmetrics: [other, request_ms]\n"
    "questions: [{ask: Q, difference: {metric: request_ms, cell: {d: pqc, c: kept}, minus: {d: none}}, at_most: 5}]\n";

static struct pq_report *make(const struct input_cell *c, size_t count, const char *text)
{
    struct pq_report *r = NULL;
    struct pq_why why = {{0}};
    DEFER(pq_out_free) struct pq_out json = {.buf.cap = 1 << 20};
    input_results(&json, text, NULL, c, count);
    if (pq_report_parse("r", pq_span(json.buf.at, json.buf.len), &r, &why) != 0)
        fail_msg("%s", why.text);
    return r;
}

static char *printed(struct pq_report *r, unsigned width)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    assert_non_null(f);
    assert_int_equal(pq_report_print(&r, 1, f, width, false), 0);
    fclose(f);
    return text;
}

static void the_table_and_findings(void **state)
{
    (void)state;
    DEFER(pq_report_freep) struct pq_report *r = make(cells, 3, experiment);
    DEFER(pq_freep) char *wide = printed(r, 120);
    DEFER(pq_freep) char *narrow = printed(r, 60);
    assert_string_equal(r->title, "T");
    assert_string_equal(r->metrics[0].name, "other");
    assert_non_null(strstr(wide, "none · kept"));
    assert_non_null(strstr(wide, "! a note\n"));
    assert_non_null(strstr(wide, "✓ Q\n  within limit: The whole interval"));
    assert_null(strchr(wide, '\x1b'));
    assert_non_null(strstr(wide, "=pqc,\"x\" · new"));
    for (const char *line = narrow; *line; line += strcspn(line, "\n") + 1) {
        size_t n = 0;
        for (size_t i = 0; i < strcspn(line, "\n"); i++)
            n += (line[i] & 0xc0) != 0x80;
        assert_true(n <= 80); /* the table's figures can't be narrower */
    }
}

static void csv_has_every_sample(void **state)
{
    (void)state;
    DEFER(pq_report_freep) struct pq_report *r = make(cells, 3, experiment);
    DEFER(pq_out_free) struct pq_out o = {.buf.cap = 1 << 20};
    assert_int_equal(pq_report_csv(&r, 1, &o), 0);
    const char *text = pq_out_text(&o);
    assert_ptr_equal(strstr(text, "experiment,d,c,metric,unit,value,round,at_ms\r\nx,none,kept,request_ms,ms,"), text);
    assert_non_null(strstr(text, "\r\nx,\"'=pqc,\"\"x\"\"\",new,other,us,"));
    size_t rows = 0;
    for (const char *c = text; *c; c++)
        rows += *c == '\n';
    assert_int_equal(rows, 1 + 30 + 30 + 6);
}

static void the_same_input_gives_the_same_bytes(void **state)
{
    (void)state;
    DEFER(pq_report_freep) struct pq_report *a = make(cells, 3, experiment);
    DEFER(pq_report_freep) struct pq_report *b = make(cells, 3, experiment);
    DEFER(pq_freep) char *x = printed(a, 100);
    DEFER(pq_freep) char *y = printed(b, 100);
    assert_string_equal(x, y);
}

static void broken_texts_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"a: [", "can't be read: experiment:"},
        {"questions: [{ask: a}]", "the questions can't be answered: experiment:1:13:"},
        {"questions: 5", "questions must be a list"},
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        DEFER(pq_report_freep) struct pq_report *r = make(cells, 3, rows[i].text);
        assert_int_equal(r->problem_count, 1);
        if (!strstr(r->problems[0].text, rows[i].says))
            fail_msg("%s", r->problems[0].text);
        assert_string_equal(r->title, "x");
    }
}

static int compare(struct pq_report *a, struct pq_report *b, char **text, struct pq_why *why)
{
    size_t len;
    FILE *f = open_memstream(text, &len);
    assert_non_null(f);
    int e = pq_report_compare(a, b, f, why);
    fclose(f);
    return e;
}

static void runs_are_compared(void **state)
{
    (void)state;
    struct input_cell moved[3] = {cells[0], cells[1], cells[2]};
    moved[1].value = 9;
    DEFER(pq_report_freep) struct pq_report *a = make(cells, 3, experiment);
    DEFER(pq_report_freep) struct pq_report *b = make(moved, 3, experiment);
    DEFER(pq_report_freep) struct pq_report *c = make(cells, 1, experiment);
    DEFER(pq_report_freep) struct pq_report *d = make(&cells[2], 1, experiment);
    DEFER(pq_freep) char *same = NULL;
    DEFER(pq_freep) char *half = NULL;
    DEFER(pq_freep) char *part = NULL;
    DEFER(pq_freep) char *none = NULL;
    struct pq_why why = {{0}};
    assert_int_equal(compare(a, a, &same, &why), 0);
    assert_string_equal(same, "intervals overlap in 100 % of 2 cells×metrics; 1 have too few rounds for an interval\n"
                              "compare overlap=1.0000 cells=2\n");
    assert_int_equal(compare(a, b, &half, &why), 0);
    assert_non_null(strstr(half, "pqc · kept"));
    assert_non_null(strstr(half, "compare overlap=0.5000 cells=2\n"));
    assert_int_equal(compare(a, c, &part, &why), 0);
    assert_non_null(strstr(part, "2 are in one run only"));
    assert_int_equal(compare(a, d, &none, &why), PQ_E_INVALID);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    DEFER(pq_out_free) struct pq_out json = {.buf.cap = 1 << 20};
    input_results(&json, experiment, "x_ms: 1\n", cells, 3);
    for (long n = 1;; n++) {
        struct pq_report *r = NULL;
        struct pq_why why = {{0}};
        DEFER(pq_out_free) struct pq_out csv = {.buf.cap = 1 << 20};
        pq_alloc_fail_at(n);
        int e = pq_report_parse("r", pq_span(json.buf.at, json.buf.len), &r, &why);
        if (e == 0)
            e = pq_report_csv(&r, 1, &csv);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        pq_report_free(r);
        if (!reached) {
            assert_int_equal(e, 0);
            break;
        }
        if (e != PQ_E_NOMEM)
            fail_msg("allocation %ld: %d %s", n, e, why.text);
    }
}

static void caps_on_names_hold(void **state)
{
    (void)state;
    enum { CELLS = PQ_RESULTS_MAX_METRICS + 1 };
    static struct input_cell many[CELLS];
    static char factors[CELLS][32], metrics[CELLS][32];
    for (size_t i = 0; i < CELLS; i++) {
        snprintf(factors[i], sizeof factors[i], "\"d\":\"%zu\"", i);
        snprintf(metrics[i], sizeof metrics[i], "m%zu", i);
        many[i] = (struct input_cell){factors[i], metrics[i], "ms", 1, 0, 1, 0};
    }
    for (size_t past = 0; past < 2; past++) {
        DEFER(pq_out_free) struct pq_out json = {.buf.cap = 4 << 20};
        DEFER(pq_report_freep) struct pq_report *r = NULL;
        struct pq_why why = {{0}};
        input_results(&json, "", NULL, many, CELLS - 1 + past);
        assert_int_equal(pq_report_parse("r", pq_span(json.buf.at, json.buf.len), &r, &why), past ? PQ_E_CONFIG : 0);
        assert_true(!past || strstr(why.text, "more than 256 different metrics"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_and_findings),
        cmocka_unit_test(csv_has_every_sample),
        cmocka_unit_test(the_same_input_gives_the_same_bytes),
        cmocka_unit_test(broken_texts_are_told),
        cmocka_unit_test(runs_are_compared),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(caps_on_names_hold),
    };
    return cmocka_run_group_tests_name("report/report", tests, NULL, NULL);
}
