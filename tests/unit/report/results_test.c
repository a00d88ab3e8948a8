#include "report/results.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "report/text.h"

#define HEAD        "\"schema\":1,\"pqplane\":\"0\",\"seed\":7,\"started\":\"s\",\"complete\":true,"
#define EXPERIMENT  "\"experiment\":{\"name\":\"x\",\"text\":\"\"},"
#define HOST        "\"host\":{},"
#define METRIC      "\"m\":{\"unit\":\"ms\",\"samples\":[1,2.5],\"rounds\":[0,1],\"at_ms\":[0,1]}"
#define CELL        "{\"factors\":{\"d\":\"a\"},\"metrics\":{" METRIC "}}"
#define WITH(cells) "{" HEAD EXPERIMENT HOST "\"cells\":[" cells "]}"
#define METRICS(m)  WITH("{\"factors\":{},\"metrics\":{" m "}}")

static int parse(const char *text, size_t len, struct pq_results **out, struct pq_why *why)
{
    /* Exactly as large as it is, so that reading past the end is seen. */
    DEFER(pq_freep) char *exact = malloc(len ? len : 1);
    assert_non_null(exact);
    memcpy(exact, text, len);
    return pq_results_parse(pq_span(exact, len), out, why);
}

static void numbers_at_the_ends_of_the_range(void **state)
{
    (void)state;
    static const char text[] = METRICS("\"m\":{\"unit\":\"ms\",\"samples\":[1e15,-1e15,1e-12,5e-324,-9e-13],"
                                       "\"rounds\":[0,1,2,3,4],\"at_ms\":[0,1,2,3,4]}");
    static const double want[] = {1e15, -1e15, 1e-12, 0, 0};
    DEFER(pq_results_freep) struct pq_results *r = NULL;
    assert_int_equal(parse(text, sizeof text - 1, &r, NULL), 0);
    for (size_t i = 0; i < PQ_COUNT(want); i++)
        assert_true(r->cells[0].metrics[0].value[i] == want[i]);
}

static void mistakes_are_one_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int want;
        const char *says;
    } rows[] = {
        {"", PQ_E_CONFIG, "no JSON"},
        {"[1,", PQ_E_CONFIG, "no JSON"},
        {"[]", PQ_E_CONFIG, "must be an object"},
        {"{}", PQ_E_CONFIG, "schema: is missing"},
        {"{\"schema\":\"1\"}", PQ_E_CONFIG, "schema: must be a whole number"},
        {"{\"schema\":0}", PQ_E_CONFIG, "schema: there was never such a schema"},
        {"{\"schema\":2}", PQ_E_UNSUPPORTED, "made by a newer pqplane: its schema is 2 and this program reads 1"},
        {"{\"schema\":1}", PQ_E_CONFIG, "pqplane: is missing"},
        {"{\"schema\":1,\"pqplane\":1}", PQ_E_CONFIG, "pqplane: must be a text"},
        {"{\"schema\":1,\"pqplane\":\"0\"}", PQ_E_CONFIG, "seed: is missing"},
        {"{\"schema\":1,\"pqplane\":\"0\",\"seed\":-1}", PQ_E_CONFIG, "seed: must be a whole number"},
        {"{\"schema\":1,\"pqplane\":\"0\",\"seed\":1}", PQ_E_CONFIG, "started: is missing"},
        {"{\"schema\":1,\"pqplane\":\"0\",\"seed\":1,\"started\":\"\"}", PQ_E_CONFIG, "complete: is missing"},
        {"{" HEAD "\"cells\":[]}", PQ_E_CONFIG, "experiment: is missing"},
        {"{" HEAD "\"experiment\":{\"text\":\"\"}}", PQ_E_CONFIG, "experiment.name: is missing"},
        {"{" HEAD "\"experiment\":{\"name\":\"x\"}}", PQ_E_CONFIG, "experiment.text: is missing"},
        {"{" HEAD "\"experiment\":{\"name\":\"x\",\"text\":\"\",\"published\":{}}}", PQ_E_CONFIG,
         "experiment.published.file: is missing"},
        {"{" HEAD EXPERIMENT "\"cells\":[]}", PQ_E_CONFIG, "host: is missing"},
        {"{" HEAD EXPERIMENT "\"host\":[]}", PQ_E_CONFIG, "host: must be an object"},
        {"{" HEAD EXPERIMENT HOST "\"quick\":1}", PQ_E_CONFIG, "quick: must be true or false"},
        {"{" HEAD EXPERIMENT HOST "\"notes\":[1],\"cells\":[]}", PQ_E_CONFIG, "notes[0]: must be a text"},
        {"{" HEAD EXPERIMENT HOST "\"notes\":{},\"cells\":[]}", PQ_E_CONFIG, "notes: must be a list"},
        {"{" HEAD EXPERIMENT HOST "\"calibration\":[{\"round\":0}],\"cells\":[]}", PQ_E_CONFIG,
         "calibration[0].at_ms: is missing"},
        {"{" HEAD EXPERIMENT HOST "\"calibration\":[{\"round\":0.5}],\"cells\":[]}", PQ_E_CONFIG,
         "calibration[0].round: must be a whole number"},
        {"{" HEAD EXPERIMENT HOST "\"notes\":[]}", PQ_E_CONFIG, "cells: is missing"},
        {WITH("1"), PQ_E_CONFIG, "cells[0]: must be an object"},
        {WITH("{}"), PQ_E_CONFIG, "cells[0].factors: is missing"},
        {WITH("{\"factors\":{\"d\":null},\"metrics\":{}}"), PQ_E_CONFIG, "cells[0].factors.d: must be a text"},
        {WITH("{\"factors\":{\"d\":\"a\",\"d\":\"b\"},\"metrics\":{}}"), PQ_E_CONFIG,
         "cells[0].factors.d: stands here twice"},
        {WITH("{\"factors\":{}}"), PQ_E_CONFIG, "cells[0].metrics: is missing"},
        {WITH("{\"factors\":{},\"metrics\":{},\"errors\":{}}"), PQ_E_CONFIG, "cells[0].errors: must be a list"},
        {WITH("{\"factors\":{},\"metrics\":{},\"errors\":[{\"reason\":\"x\"}]}"), PQ_E_CONFIG,
         "cells[0].errors[0].count: is missing"},
        {WITH("{\"factors\":{},\"metrics\":{},\"errors\":[{\"reason\":\"x\",\"count\":-1}]}"), PQ_E_CONFIG,
         "count: must be a whole number"},
        {METRICS(METRIC "," METRIC), PQ_E_CONFIG, "cells[0].metrics.m: stands here twice"},
        {METRICS("\"m\":{\"unit\":\"ms\",\"samples\":[1,1e308],\"rounds\":[0,1],\"at_ms\":[0,1]}"), PQ_E_CONFIG,
         "cells[0].metrics.m.samples[1]: lies beyond 1e15"},
        {METRICS("\"m\":{\"unit\":\"ms\",\"samples\":[-1.1e15],\"rounds\":[0],\"at_ms\":[0]}"), PQ_E_CONFIG,
         "cells[0].metrics.m.samples[0]: lies beyond 1e15"},
        {METRICS("\"m\":{\"unit\":\"ms\",\"samples\":[1],\"rounds\":[0],\"at_ms\":[1e16]}"), PQ_E_CONFIG,
         "cells[0].metrics.m.at_ms[0]: lies beyond 1e15"},
        {METRICS("\"m\":{}"), PQ_E_CONFIG, "cells[0].metrics.m.unit: is missing"},
        {METRICS("\"m\":{\"unit\":\"ms\"}"), PQ_E_CONFIG, "cells[0].metrics.m.samples: is missing"},
        {METRICS("\"m\":{\"unit\":\"ms\",\"samples\":[1],\"rounds\":[0,1],\"at_ms\":[0]}"), PQ_E_CONFIG,
         "samples has 1 items, rounds 2 and at_ms 1; they must be equally many"},
        {METRICS("\"m\":{\"unit\":\"ms\",\"samples\":[\"1\"],\"rounds\":[0],\"at_ms\":[0]}"), PQ_E_CONFIG,
         "samples[0]: must be a number"},
        {METRICS("\"m\":{\"unit\":\"ms\",\"samples\":[null],\"rounds\":[0],\"at_ms\":[0]}"), PQ_E_CONFIG,
         "samples[0]: must be a number"},
        {METRICS("\"m\":{\"unit\":\"ms\",\"samples\":[1e999],\"rounds\":[0],\"at_ms\":[0]}"), PQ_E_CONFIG, "no JSON"},
        {METRICS("\"m\":{\"unit\":\"ms\",\"samples\":[NaN],\"rounds\":[0],\"at_ms\":[0]}"), PQ_E_CONFIG, "no JSON"},
        {METRICS("\"m\":{\"unit\":\"ms\",\"samples\":[1],\"rounds\":[-1],\"at_ms\":[0]}"), PQ_E_CONFIG,
         "rounds[0]: must be a whole number"},
        {METRICS("\"m\":{\"unit\":\"ms\",\"samples\":[1],\"rounds\":[18446744073709551615],\"at_ms\":[0]}"),
         PQ_E_CONFIG, "rounds[0]"},
        {METRICS("\"m\\u0000\":{\"unit\":\"ms\",\"samples\":[],\"rounds\":[],\"at_ms\":[]}"), PQ_E_CONFIG,
         "holds a NUL character"},
        {WITH(CELL "," CELL), PQ_E_CONFIG, "cells[0] and cells[1] have the same factors"},
        {WITH(CELL ",{\"factors\":{\"d\":\"b\"},\"metrics\":{\"m\":{\"unit\":\"us\",\"samples\":[],\"rounds\":[],\"at_"
                   "ms\":[]}}}"),
         PQ_E_CONFIG, "the metric m has the unit"},
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_results *untouched = NULL;
        struct pq_why why = {{0}};
        assert_int_equal(parse(rows[i].text, strlen(rows[i].text), &untouched, &why), rows[i].want);
        assert_null(untouched);
        if (!strstr(why.text, rows[i].says))
            fail_msg("row %zu says \"%s\", not \"%s\"", i, why.text, rows[i].says);
    }
}

static const char whole[] =
    "{" HEAD
    "\"finished\":\"f\",\"command\":\"c\",\"quick\":true,\"experiment\":{\"name\":\"x\",\"text\":\"t\",\"published\":"
    "{\"file\":\"f\",\"text\":\"p\"}},\"host\":{\"cores\":2,\"virtual\":true,\"list\":[1]},\"libraries\":{\"openssl\":"
    "\"3\"},"
    "\"unknown\":{\"is\":\"passed "
    "over\"},\"notes\":[\"n\"],\"calibration\":[{\"round\":0,\"at_ms\":1,\"work_ms\":2,\"steal_ms\":3}],"
    "\"cells\":[{\"factors\":{\"d\":\"a\",\"n\":5},\"metrics\":{" METRIC
    "},\"errors\":[{\"reason\":\"r\",\"count\":4}]}]}";

static void everything_is_read(void **state)
{
    (void)state;
    DEFER(pq_results_freep) struct pq_results *r = NULL;
    struct pq_why why = {{0}};
    assert_int_equal(parse(whole, sizeof whole - 1, &r, &why), 0);
    assert_string_equal(r->experiment, "x");
    assert_string_equal(r->published_text, "p");
    assert_string_equal(r->finished, "f");
    assert_true(r->complete && r->quick);
    assert_int_equal(r->seed, 7);
    assert_string_equal(pq_fact(r->host, "cores"), "2");
    assert_string_equal(pq_fact(r->host, "virtual"), "true");
    assert_string_equal(pq_fact(r->host, "list"), "[1]");
    assert_int_equal(r->cell_count, 1);
    assert_string_equal(pq_fact(r->cells[0].factors, "n"), "5");
    const struct pq_result_metric *m = pq_result_metric(&r->cells[0], "m");
    assert_non_null(m);
    assert_int_equal(m->count, 2);
    assert_int_equal(m->rounds, 2);
    assert_true(m->value[1] == 2.5);
    assert_int_equal(r->cells[0].errors[0].count, 4);
    assert_true(r->calibration[0].steal_ms == 3);
    assert_string_equal(r->notes[0], "n");
}

static void every_prefix_is_refused(void **state)
{
    (void)state;
    for (size_t len = 0; len + 1 < sizeof whole - 1; len++) {
        struct pq_results *r = NULL;
        struct pq_why why = {{0}};
        assert_int_equal(parse(whole, len, &r, &why), PQ_E_CONFIG);
        assert_null(r);
    }
}

/* A list at its cap is read and one past it refused. */
static void caps_hold(void **state)
{
    (void)state;
    for (size_t past = 0; past < 2; past++) {
        DEFER(pq_out_free) struct pq_out o = {.buf.cap = 64 << 20};
        DEFER(pq_results_freep) struct pq_results *r = NULL;
        struct pq_why why = {{0}};
        pq_out(&o, "{" HEAD EXPERIMENT HOST "\"cells\":[");
        for (size_t i = 0; i < PQ_RESULTS_MAX_CELLS + past; i++)
            pq_outf(&o, "%s{\"factors\":{\"d\":\"%zu\"},\"metrics\":{}}", i ? "," : "", i);
        pq_out(&o, "]}");
        assert_int_equal(o.error, 0);
        assert_int_equal(pq_results_parse(pq_span(o.buf.at, o.buf.len), &r, &why), past ? PQ_E_CONFIG : 0);
        assert_true(!past || strstr(why.text, "cells: has more items"));
    }
    for (size_t past = 0; past < 2; past++) {
        DEFER(pq_out_free) struct pq_out o = {.buf.cap = 64 << 20};
        DEFER(pq_results_freep) struct pq_results *r = NULL;
        pq_out(&o, "{" HEAD EXPERIMENT HOST "\"cells\":[{\"factors\":{\"d\":\"");
        for (size_t i = 0; i < PQ_RESULTS_MAX_TEXT + past; i++)
            pq_out(&o, "x");
        pq_out(&o, "\"},\"metrics\":{}}]}");
        assert_int_equal(pq_results_parse(pq_span(o.buf.at, o.buf.len), &r, NULL), past ? PQ_E_CONFIG : 0);
    }
    struct pq_results *r = NULL;
    assert_int_equal(pq_results_parse((struct pq_span){(const uint8_t *)"", (size_t)PQ_RESULTS_MAX_FILE + 1}, &r, NULL),
                     PQ_E_TOO_LONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_are_one_sentence),
        cmocka_unit_test(numbers_at_the_ends_of_the_range),
        cmocka_unit_test(everything_is_read),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(caps_hold),
    };
    return cmocka_run_group_tests_name("report/results", tests, NULL, NULL);
}
