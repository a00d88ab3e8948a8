#include "lab/experiment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "../alloc.h"

#define HEAD "name: x\nwhy: because\ninterface: sbi\n"
#define TAIL "repetitions: 3\nmetrics: [request_ms]\n"

static int parse(const char *text, bool quick, struct pq_experiment **out, struct pq_why *why)
{
    return pq_experiment_parse("x.yaml", text, strlen(text), quick, out, why);
}

/* --- which cells there are: rows of factors and exclude, and the cells they make, one a line */
static const struct {
    const char *name, *text, *cells;
} cell_rows[] = {
    {"one factor", "factors: {connection: [kept, new]}", "connection=kept\nconnection=new\n"},
    {"a single value is a list of one", "factors: {connection: new}", "connection=new\n"},
    {"two factors, the last the fastest", "factors: {connection: [kept, new], option: [nagle, chain]}",
     "connection=kept option=nagle\nconnection=kept option=chain\nconnection=new option=nagle\nconnection=new "
     "option=chain\n"},
    {"an absent factor makes one cell",
     "factors: {deployment: [none, sidecar-pqc], ca: {values: [mldsa44, mldsa87], when: {deployment: sidecar-pqc}}}",
     "deployment=none\ndeployment=sidecar-pqc ca=mldsa44\ndeployment=sidecar-pqc ca=mldsa87\n"},
    {"when with several values",
     "factors: {deployment: [none, sidecar-hybrid, sidecar-pqc], ca: {values: [mldsa44], when: {deployment: "
     "[sidecar-hybrid, sidecar-pqc]}}}",
     "deployment=none\ndeployment=sidecar-hybrid ca=mldsa44\ndeployment=sidecar-pqc ca=mldsa44\n"},
    {"when in a middle factor",
     "factors: {deployment: [none, sidecar-pqc], ca: {values: [mldsa44, mldsa87], when: {deployment: sidecar-pqc}}, "
     "connection: [kept, new]}",
     "deployment=none connection=kept\ndeployment=none connection=new\ndeployment=sidecar-pqc ca=mldsa44 "
     "connection=kept\n"
     "deployment=sidecar-pqc ca=mldsa44 connection=new\ndeployment=sidecar-pqc ca=mldsa87 connection=kept\n"
     "deployment=sidecar-pqc ca=mldsa87 connection=new\n"},
    {"when on a factor that is itself absent",
     "factors: {deployment: [none, sidecar-pqc], ca: {values: [mldsa44, mldsa65], when: {deployment: sidecar-pqc}}, "
     "option: {values: [nagle, chain], when: {ca: mldsa65}}}",
     "deployment=none\ndeployment=sidecar-pqc ca=mldsa44\ndeployment=sidecar-pqc ca=mldsa65 option=nagle\n"
     "deployment=sidecar-pqc ca=mldsa65 option=chain\n"},
    {"exclude needs all of its keys",
     "factors: {connection: [kept, new], option: [nagle, chain]}\nexclude: [{connection: new, option: chain}]",
     "connection=kept option=nagle\nconnection=kept option=chain\nconnection=new option=nagle\n"},
    {"exclude by a list", "factors: {option: [standard, nagle, chain]}\nexclude: [{option: [nagle, chain]}]",
     "option=standard\n"},
    {"exclude does not match an absent factor",
     "factors: {deployment: [none, sidecar-pqc], ca: {values: [mldsa44, mldsa87], when: {deployment: "
     "sidecar-pqc}}}\nexclude: [{ca: mldsa44}]",
     "deployment=none\ndeployment=sidecar-pqc ca=mldsa87\n"},
    {"one of several entries is enough",
     "factors: {option: [standard, nagle, chain]}\nexclude: [{option: nagle}, {option: chain}]", "option=standard\n"},
};

static void cells_follow_factors_when_and_exclude(void **state)
{
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(cell_rows); i++) {
        DEFER(pq_experiment_freep) struct pq_experiment *x = NULL;
        struct pq_why why = {{0}};
        char text[2000], got[2000] = "";
        snprintf(text, sizeof text, HEAD "%s\n" TAIL, cell_rows[i].text);
        if (parse(text, false, &x, &why) < 0)
            fail_msg("%s: %s", cell_rows[i].name, why.text);
        for (size_t c = 0; c < x->cell_count; c++) {
            char one[200];
            pq_cell_text(x, &x->cells[c], one, sizeof one);
            size_t len = strlen(got);
            snprintf(got + len, sizeof got - len, "%s\n", one);
        }
        if (strcmp(got, cell_rows[i].cells) != 0)
            fail_msg("%s:\n%swanted:\n%s", cell_rows[i].name, got, cell_rows[i].cells);
    }
}

/* --- mistakes, each with the place and a part of the sentence */
static const struct {
    const char *name, *text, *sentence;
} mistakes[] = {
    {"no factors", HEAD TAIL, "x.yaml:1:1: an experiment needs \"factors\""},
    {"unknown key", HEAD "factors: {connection: new}\ncolour: red\n" TAIL,
     "x.yaml:5:9: an experiment has no \"colour\""},
    {"unknown interface", "name: x\nwhy: w\ninterface: n7\nfactors: {connection: new}\n" TAIL,
     "x.yaml:3:12: interface: \"n7\" can't be measured"},
    {"unknown factor", HEAD "factors: {colour: [red]}\n" TAIL,
     "x.yaml:4:19: the interface sbi has no factor \"colour\"; it has deployment,"},
    {"unknown value", HEAD "factors:\n  deployment: [none, ipsec]\n" TAIL,
     "x.yaml:5:22: deployment: \"ipsec\" is none of none, native-tls,"},
    {"value twice", HEAD "factors: {connection: [new, new]}\n" TAIL, "x.yaml:4:29: connection names \"new\" twice"},
    {"no values", HEAD "factors: {connection: []}\n" TAIL, "connection has no values"},
    {"values are maps", HEAD "factors: {connection: [{a: b}]}\n" TAIL, "connection must be a list of single values"},
    {"factor without values", HEAD "factors: {connection: {when: {option: chain}}}\n" TAIL,
     "the factor connection needs \"values\""},
    {"when names what comes later",
     HEAD "factors: {ca: {values: [mldsa44], when: {deployment: none}}, deployment: [none]}\n" TAIL,
     "x.yaml:4:54: when: there is no factor \"deployment\" above"},
    {"when names itself", HEAD "factors: {ca: {values: [mldsa44], when: {ca: mldsa44}}}\n" TAIL,
     "there is no factor \"ca\" above"},
    {"when names no value",
     HEAD "factors: {deployment: [none], ca: {values: [mldsa44], when: {deployment: sidecar-pqc}}}\n" TAIL,
     "when: the factor deployment has no value \"sidecar-pqc\""},
    {"exclude names no factor", HEAD "factors: {connection: new}\nexclude: [{option: chain}]\n" TAIL,
     "x.yaml:5:20: exclude: there is no factor \"option\" above"},
    {"exclude leaves nothing", HEAD "factors: {connection: new}\nexclude: [{connection: new}]\n" TAIL,
     "exclude leaves no cell to measure"},
    {"exclude is a map", HEAD "factors: {connection: new}\nexclude: {connection: new}\n" TAIL,
     "exclude must be a list"},
    {"repetitions 0", HEAD "factors: {connection: new}\nrepetitions: 0\nmetrics: [request_ms]\n",
     "x.yaml:5:14: repetitions:"},
    {"repetitions in words", HEAD "factors: {connection: new}\nrepetitions: many\nmetrics: [request_ms]\n",
     "x.yaml:5:14: repetitions:"},
    {"unknown metric", HEAD "factors: {connection: new}\nrepetitions: 1\nmetrics: [request_ms, speed]\n",
     "x.yaml:6:23: metrics: \"speed\" is none of request_ms,"},
    {"no metric", HEAD "factors: {connection: new}\nrepetitions: 1\nmetrics: []\n", "metrics has no values"},
    {"unknown load", HEAD "factors: {connection: new}\nload: {speed: 3}\n" TAIL,
     "x.yaml:5:15: the load of the interface sbi has no \"speed\"; it has requests,"},
    {"load beyond its range", HEAD "factors: {connection: new}\nload: {requests: 0}\n" TAIL, "x.yaml:5:18: requests:"},
    {"unknown workload", HEAD "factors: {connection: new}\nload: {workload: browsing}\n" TAIL,
     "workload: \"browsing\" is none of discovery, authentication"},
    {"workload is a list", HEAD "factors: {connection: new}\nload: {workload: [discovery]}\n" TAIL,
     "workload must be a single value"},
    {"quick has its own mistakes", HEAD "factors: {connection: new}\nquick: {repetitions: 0}\n" TAIL,
     "x.yaml:5:22: repetitions:"},
    {"quick's load too", HEAD "factors: {connection: new}\nquick: {load: {speed: 1}}\n" TAIL, "has no \"speed\""},
    {"unknown part of quick", HEAD "factors: {connection: new}\nquick: {metrics: [request_ms]}\n" TAIL,
     "quick has no \"metrics\""},
    {"questions are a list", HEAD "factors: {connection: new}\nquestions: {ask: why}\n" TAIL,
     "questions must be a list"},
    {"name with a slash", "name: ../x\nwhy: w\ninterface: sbi\nfactors: {connection: new}\n" TAIL,
     "x.yaml:1:7: name: \"../x\" must be"},
    {"two documents' worth of nonsense", "[1, 2]\n", "must be written as a map"},
    {"empty", "", "x.yaml"},
};

static void mistakes_are_named_with_their_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(mistakes); i++) {
        struct pq_experiment *x = NULL;
        struct pq_why why = {{0}};
        int e = parse(mistakes[i].text, false, &x, &why);
        if (e != PQ_E_CONFIG || !strstr(why.text, mistakes[i].sentence))
            fail_msg("%s: %d, \"%s\"", mistakes[i].name, e, why.text);
        assert_null(x);
    }
}

static void quick_overlays_what_it_names(void **state)
{
    (void)state;
    const char *text = HEAD "factors: {connection: new}\nload: {requests: 300, warmup: 7}\nrepetitions: 20\n"
                            "quick: {repetitions: 5, load: {requests: 10}}\nmetrics: [request_ms]\n";
    for (int quick = 0; quick < 2; quick++) {
        DEFER(pq_experiment_freep) struct pq_experiment *x = NULL;
        struct pq_why why = {{0}};
        assert_int_equal(parse(text, quick, &x, &why), 0);
        assert_int_equal(x->repetitions, quick ? 5 : 20);
        assert_int_equal(x->load[0], quick ? 10 : 300); /* requests */
        assert_int_equal(x->load[2], 7);                /* warmup */
    }
}

static void a_factor_left_out_has_the_drivers_value(void **state)
{
    (void)state;
    DEFER(pq_experiment_freep) struct pq_experiment *x = NULL;
    assert_int_equal(parse(HEAD "factors: {connection: new}\n" TAIL, false, &x, NULL), 0);
    assert_string_equal(pq_cell_value(x, &x->cells[0], "connection"), "new");
    assert_string_equal(pq_cell_value(x, &x->cells[0], "deployment"), "none");
    assert_string_equal(pq_cell_value(x, &x->cells[0], "option"), "standard");
    assert_null(pq_cell_value(x, &x->cells[0], "colour"));
}

enum { ORDER_CELLS = 16 };

static void a_seed_and_round_fix_the_order(void **state)
{
    (void)state;
    DEFER(pq_experiment_freep) struct pq_experiment *x = NULL;
    assert_int_equal(parse(HEAD "factors: {deployment: [none, native-tls], connection: [kept, new], option: [standard, "
                                "nagle, window-1, chain]}\n" TAIL,
                           false, &x, NULL),
                     0);
    assert_int_equal(x->cell_count, ORDER_CELLS);
    size_t a[ORDER_CELLS], b[ORDER_CELLS], other_round[ORDER_CELLS], other_seed[ORDER_CELLS], seen[ORDER_CELLS] = {0};
    pq_cell_order(x, 7, 1, a);
    pq_cell_order(x, 7, 1, b);
    pq_cell_order(x, 7, 2, other_round);
    pq_cell_order(x, 8, 1, other_seed);
    assert_memory_equal(a, b, sizeof a);
    assert_memory_not_equal(a, other_round, sizeof a);
    assert_memory_not_equal(a, other_seed, sizeof a);
    for (size_t i = 0; i < ORDER_CELLS; i++)
        seen[a[i]]++;
    for (size_t i = 0; i < ORDER_CELLS; i++)
        assert_int_equal(seen[i], 1);
}

static void every_failed_allocation_of_ours_is_an_error(void **state)
{
    (void)state;
    const char *text = HEAD "title: t\nfactors: {deployment: [none, sidecar-pqc], ca: {values: [mldsa44], when: "
                            "{deployment: sidecar-pqc}}}\n"
                            "exclude: [{ca: mldsa87}]\nload: {requests: 3}\nquick: {repetitions: 1}\n" TAIL;
    const char *good = HEAD "title: t\nfactors: {deployment: [none, sidecar-pqc], ca: {values: [mldsa44], when: "
                            "{deployment: sidecar-pqc}}}\n"
                            "exclude: [{deployment: none}]\nload: {requests: 3}\nquick: {repetitions: 1}\n" TAIL;
    struct pq_experiment *x = NULL;
    assert_int_equal(parse(text, true, &x, NULL), PQ_E_CONFIG);
    for (long n = 1;; n++) {
        pq_alloc_fail_at(n);
        int e = parse(good, true, &x, NULL);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        assert_int_equal(e, reached ? PQ_E_NOMEM : 0);
        if (!reached)
            break;
    }
    pq_experiment_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_follow_factors_when_and_exclude),
        cmocka_unit_test(mistakes_are_named_with_their_place),
        cmocka_unit_test(quick_overlays_what_it_names),
        cmocka_unit_test(a_factor_left_out_has_the_drivers_value),
        cmocka_unit_test(a_seed_and_round_fix_the_order),
        cmocka_unit_test(every_failed_allocation_of_ours_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
