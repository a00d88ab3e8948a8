#include "base/stats.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../alloc.h"
#include "base/cleanup.h"
#include "base/random.h"

#define NEAR(a, b) assert_true(fabs((a) - (b)) < 1e-9)

/* R 4: quantile(c(1, 2, 3, 4, 10), c(.25, .5, .75, .95, .99)), type 7. */
static void quantiles_are_r_type_7(void **state)
{
    (void)state;
    static const double v[] = {1, 2, 3, 4, 10};
    NEAR(pq_quantile(v, 5, 0), 1);
    NEAR(pq_quantile(v, 5, 0.25), 2);
    NEAR(pq_quantile(v, 5, 0.5), 3);
    NEAR(pq_quantile(v, 5, 0.75), 4);
    NEAR(pq_quantile(v, 5, 0.95), 8.8);
    NEAR(pq_quantile(v, 5, 0.99), 9.76);
    NEAR(pq_quantile(v, 5, 1), 10);
    NEAR(pq_quantile(v, 1, 0.5), 1);
    NEAR(pq_quantile(v, 2, 0.5), 1.5);
}

static void a_summary_is_what_r_says(void **state)
{
    (void)state;
    static const double v[] = {10, 1, 3, 2, 4};
    struct pq_summary s;
    assert_int_equal(pq_summarize((struct pq_samples){v, NULL, 5}, 1, &s), 0);
    assert_int_equal(s.n, 5);
    NEAR(s.median, 3);
    NEAR(s.mean, 4);
    NEAR(s.min, 1);
    NEAR(s.max, 10);
    NEAR(s.iqr, 2);
    NEAR(s.sd, sqrt(12.5));
    NEAR(s.cv, sqrt(12.5) / 4);
    assert_true(s.median_ci.low >= 1 && s.median_ci.low <= 3 && s.median_ci.high >= 3 && s.median_ci.high <= 10);
    assert_int_equal(pq_summarize((struct pq_samples){v, NULL, 0}, 1, &s), PQ_E_INVALID);
}

static double difference(const double *m, const void *context)
{
    (void)context;
    return m[0] - m[1];
}

/* Draws from a known distribution: the 95 % interval must hold the true difference in about 95 of 100 runs. */
static void intervals_cover_what_they_claim(void **state)
{
    (void)state;
    struct pq_rng rng = pq_rng(7);
    int covered = 0, same = 0;
    for (int run = 0; run < 200; run++) {
        double a[400], b[400];
        int64_t round[400];
        for (int i = 0; i < 400; i++) {
            round[i] = i / 20;
            a[i] = 5 + pq_rng_unit(&rng) + pq_rng_unit(&rng);
            b[i] = 4.5 + pq_rng_unit(&rng) + pq_rng_unit(&rng);
        }
        struct pq_samples cells[] = {{a, round, 400}, {b, round, 400}};
        struct pq_estimate e, again;
        assert_int_equal(pq_bootstrap(cells, 2, difference, NULL, (uint64_t)run, &e), 0);
        assert_int_equal(pq_bootstrap(cells, 2, difference, NULL, (uint64_t)run, &again), 0);
        same += e.value == again.value && e.ci.low == again.ci.low && e.ci.high == again.ci.high;
        covered += pq_interval_contains(e.ci, 0.5);
    }
    assert_int_equal(same, 200);
    assert_int_in_range(covered, 178, 200);
}

/* A machine that drifts by 10 from round to round: paired resampling still sees a difference of 0.1. */
static void drift_cancels_between_cells_of_the_same_rounds(void **state)
{
    (void)state;
    struct pq_rng rng = pq_rng(3);
    double a[200], b[200];
    int64_t round[200];
    for (int i = 0; i < 200; i++) {
        round[i] = i / 10;
        double drift = 10.0 * (i / 10);
        a[i] = drift + 0.1 + 0.01 * pq_rng_unit(&rng);
        b[i] = drift + 0.01 * pq_rng_unit(&rng);
    }
    struct pq_samples cells[] = {{a, round, 200}, {b, round, 200}};
    struct pq_estimate e;
    assert_int_equal(pq_bootstrap(cells, 2, difference, NULL, 1, &e), 0);
    assert_true(e.ci.low > 0.05 && e.ci.high < 0.15);
}

/* The one-walk weighted median against sorting, on rounds of unequal size. */
static void the_resampled_median_is_a_median(void **state)
{
    (void)state;
    static const double v[] = {1, 1, 1, 9, 9};
    static const int64_t round[] = {0, 0, 0, 1, 1};
    struct pq_estimate e;
    struct pq_samples s = {v, round, 5};
    double zero[] = {0};
    struct pq_samples both[] = {s, {zero, NULL, 1}};
    assert_int_equal(pq_bootstrap(both, 2, difference, NULL, 1, &e), 0);
    NEAR(e.value, 1);
    NEAR(e.ci.low, 1);
    NEAR(e.ci.high, 9);
}

static void intervals_compare(void **state)
{
    (void)state;
    assert_true(pq_interval_contains((struct pq_interval){1, 2}, 2));
    assert_false(pq_interval_contains((struct pq_interval){1, 2}, 2.1));
    assert_true(pq_intervals_overlap((struct pq_interval){1, 2}, (struct pq_interval){2, 3}));
    assert_false(pq_intervals_overlap((struct pq_interval){1, 2}, (struct pq_interval){2.1, 3}));
}

static void every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    static const double v[] = {1, 2, 3};
    for (long n = 1;; n++) {
        struct pq_summary s = {.n = 77};
        pq_alloc_fail_at(n);
        int e = pq_summarize((struct pq_samples){v, NULL, 3}, 1, &s);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        assert_int_equal(e, reached ? PQ_E_NOMEM : 0);
        assert_int_equal(s.n, reached ? 77 : 3);
        if (!reached)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_r_type_7),
        cmocka_unit_test(a_summary_is_what_r_says),
        cmocka_unit_test(intervals_cover_what_they_claim),
        cmocka_unit_test(drift_cancels_between_cells_of_the_same_rounds),
        cmocka_unit_test(the_resampled_median_is_a_median),
        cmocka_unit_test(intervals_compare),
        cmocka_unit_test(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
