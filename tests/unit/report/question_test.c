#include "report/question.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char experiment[] = "factors:\n"
                                 "  d: [none, classical, pqc]\n"
                                 "  c: [kept, new]\n"
                                 "  ca: {values: [a, b], when: {d: [pqc]}}\n"
                                 "exclude:\n"
                                 "  - {d: classical, c: new}\n"
                                 "metrics: [m, other]\n";
static const char published[] =
    "title: t\nsource: s\nlow_ms: 3\ng: {unit: us, x: 1, y: [1, 2]}\nh: {x: {value: 4, what: w}}\nyear: 2020\n";

#define CELL "{d: pqc, c: new, ca: a}"
#define OF   "{metric: m, cell: " CELL "}"
#define DIFF "{metric: m, cell: " CELL ", minus: {d: none}}"

static int check(const char *questions, bool whole, struct pq_why *why)
{
    DEFER(pq_document_freep) struct pq_document *q = NULL;
    DEFER(pq_document_freep) struct pq_document *x = NULL;
    DEFER(pq_document_freep) struct pq_document *p = NULL;
    assert_int_equal(pq_document_parse("q", questions, strlen(questions), &q, why), 0);
    assert_int_equal(pq_document_parse("x", experiment, strlen(experiment), &x, why), 0);
    assert_int_equal(pq_document_parse("p", published, strlen(published), &p, why), 0);
    return pq_question_check(pq_document_root(q), whole ? pq_document_root(x) : NULL,
                             whole ? pq_document_root(p) : NULL, why);
}

static void good_questions_pass(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "[]",
        "- {ask: a, ratio: {of: " OF ", to: " OF "}, at_most: 1.05, or_contains: 1, holds: h, fails: f, because: b}",
        "- {ask: a, difference: " DIFF ", at_least: -1, at_most: 1}",
        "- {ask: a, difference: {metric: m, cell: " CELL ", minus: {d: none, c: kept}}, at_most: 1}",
        "- {ask: a, reaches: {published: low_ms, within_factor: 2, options: [{name: n, difference: " DIFF "}]}}",
        "- {ask: a, reaches: {published: g.x, options: [{name: n, difference: " OF "}]}}",
        "- {ask: a, reaches: {published: y, options: [{name: n, difference: " OF "}]}}",
        "- {ask: a, varies: {metric: m, cells: [" CELL ", {d: pqc, c: new, ca: b}], labels: [x, y]}}",
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_why why = {{0}};
        if (check(rows[i], true, &why) != 0)
            fail_msg("row %zu: %s", i, why.text);
    }
    assert_int_equal(pq_question_check(NULL, NULL, NULL, NULL), 0);
}

static void mistakes_have_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"{}", "questions must be a list"},
        {"- a", "a question must be a map"},
        {"- {ask: a}", "exactly one of ratio:"},
        {"- {ask: a, ratio: {of: " OF ", to: " OF "}, difference: " DIFF ", at_most: 1}", "exactly one of"},
        {"- {ratio: {of: " OF ", to: " OF "}, at_most: 1}", "ask: is missing"},
        {"- {ask: [a], difference: " DIFF ", at_most: 1}", "ask must be a text"},
        {"- {ask: a, ratio: {of: " OF ", to: " OF "}}", "a ratio needs at_most:"},
        {"- {ask: a, ratio: {of: " OF "}, at_most: 1}", "to: is missing"},
        {"- {ask: a, ratio: {of: " OF ", to: " OF ", x: 1}, at_most: 1}", "ratio has no key \"x\""},
        {"- {ask: a, difference: " DIFF "}", "a difference needs at_most:"},
        {"- {ask: a, difference: " OF ", at_most: 1}", "a difference needs minus:"},
        {"- {ask: a, difference: " DIFF ", at_most: much}", "at_most must be a number"},
        {"- {ask: a, difference: " DIFF ", at_most: nan}", "at_most must be a number"},
        {"- {ask: a, difference: " DIFF ", at_most: 0x10}", "at_most must be a number"},
        {"- {ask: a, difference: " DIFF ", at_most: 1, at_least: 2}", "nothing could hold"},
        {"- {ask: a, difference: " DIFF ", at_most: 1, or_contains: 1}", "or_contains: belongs to a ratio"},
        {"- {ask: a, difference: {metric: m, minus: {d: none}}, at_most: 1}", "cell: is missing"},
        {"- {ask: a, difference: {metric: m, cell: pqc, minus: {d: none}}, at_most: 1}", "cell must be a map"},
        {"- {ask: a, difference: {metric: m, cell: {d: [pqc]}, minus: {d: none}}, at_most: 1}",
         "d in cell must be one value"},
        {"- {ask: a, difference: {cell: " CELL ", minus: {d: none}}, at_most: 1}", "metric: is missing"},
        {"- {ask: a, reaches: {options: [{name: n, difference: " DIFF "}]}}", "published: is missing"},
        {"- {ask: a, reaches: {published: low_ms, options: []}}", "options must be a list of 1 to"},
        {"- {ask: a, reaches: {published: low_ms, within_factor: 0.5, options: [{name: n, difference: " DIFF "}]}}",
         "1 or more"},
        {"- {ask: a, reaches: {published: low_ms, options: [{difference: " DIFF "}]}}", "name: is missing"},
        {"- {ask: a, at_most: 1, reaches: {published: low_ms, options: [{name: n, difference: " DIFF "}]}}",
         "do not belong to reaches"},
        {"- {ask: a, varies: {metric: m, cells: [" CELL "]}}", "cells must be a list of 2 to"},
        {"- {ask: a, varies: {metric: m, cells: [" CELL ", " CELL "], labels: [x, y, z]}}", "3 labels for 2 cells"},
        /* against the experiment */
        {"- {ask: a, difference: {metric: z, cell: " CELL ", minus: {d: none}}, at_most: 1}", "does not measure \"z\""},
        {"- {ask: a, difference: {metric: m, cell: {d: pqc, c: new}, minus: {d: none}}, at_most: 1}",
         "the factor ca is missing here"},
        {"- {ask: a, difference: {metric: m, cell: {d: none, c: new, ca: a}, minus: {d: pqc, ca: a}}, at_most: 1}",
         "no factor ca"},
        {"- {ask: a, difference: {metric: m, cell: " CELL ", minus: {d: ipsec}}, at_most: 1}",
         "the factor d has no value \"ipsec\""},
        {"- {ask: a, difference: {metric: m, cell: " CELL ", minus: {z: 1}}, at_most: 1}", "no factor \"z\""},
        {"- {ask: a, difference: {metric: m, cell: " CELL ", minus: {d: classical}}, at_most: 1}",
         "the experiment excludes this cell"},
        {"- {ask: a, reaches: {published: high_ms, options: [{name: n, difference: " DIFF "}]}}",
         "no figure \"high_ms\""},
        {"- {ask: a, reaches: {published: year, options: [{name: n, difference: " DIFF "}]}}", "no figure \"year\""},
        {"- {ask: a, reaches: {published: x, options: [{name: n, difference: " DIFF "}]}}",
         "several published figures end in \"x\""},
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_why why = {{0}};
        assert_int_equal(check(rows[i].text, true, &why), PQ_E_CONFIG);
        if (!strstr(why.text, rows[i].says) || strncmp(why.text, "q:1:", 4) != 0)
            fail_msg("row %zu says \"%s\", not \"%s\"", i, why.text, rows[i].says);
    }
}

static void without_an_experiment_only_the_form_is_checked(void **state)
{
    (void)state;
    struct pq_why why = {{0}};
    assert_int_equal(check("- {ask: a, difference: {metric: z, cell: {q: 1}, minus: {q: 2}}, at_most: 1}", false, &why),
                     0);
}

static void published_figures_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        int want;
        double low, high;
        const char *unit;
    } rows[] = {
        {"low_ms", 0, 3, 3, "ms"},
        {"g.y", 0, 1, 2, "us"},
        {"y", 0, 1, 2, "us"},
        {"h.x", 0, 4, 4, ""},
        {"x", PQ_E_CONFIG, 0, 0, ""},
        {"year", PQ_E_NOT_FOUND, 0, 0, ""},
        {"title", PQ_E_NOT_FOUND, 0, 0, ""},
        {"", PQ_E_NOT_FOUND, 0, 0, ""},
    };
    DEFER(pq_document_freep) struct pq_document *p = NULL;
    assert_int_equal(pq_document_parse("p", published, strlen(published), &p, NULL), 0);
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_published f = {.low = -9};
        assert_int_equal(pq_published_find(pq_document_root(p), rows[i].key, &f), rows[i].want);
        if (rows[i].want) {
            assert_true(f.low == -9);
            continue;
        }
        assert_true(f.low == rows[i].low && f.high == rows[i].high);
        assert_string_equal(f.unit, rows[i].unit);
    }
    char source[100];
    pq_published_source(pq_document_root(p), source, sizeof source);
    assert_string_equal(source, "t, 2020, s");
    pq_published_source(pq_document_root(p), source, 5);
    assert_string_equal(source, "t, 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_questions_pass),
        cmocka_unit_test(mistakes_have_their_place),
        cmocka_unit_test(without_an_experiment_only_the_form_is_checked),
        cmocka_unit_test(published_figures_are_found),
    };
    return cmocka_run_group_tests_name("report/question", tests, NULL, NULL);
}
