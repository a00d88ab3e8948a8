#include "report/number.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "report/axis.h"

static void figures_read_well(void **state)
{
    (void)state;
    static const struct {
        double v, low, high;
        const char *want;
    } rows[] = {
        {0.3117, 0.3077, 0.3154, "0.3117"},
        {3.601, 3.547, 3.637, "3.601"},
        {45.3, 44.1, 46.2, "45.3"},
        {1234, 1100, 1400, "1234"},
        {12345, 12000, 13000, "12,345"},
        {1234567, 1234567, 1234567, "1,234,567"},
        {0, -0.01, 0.02, "0.000"},
        {0, 0, 0, "0"},
        {-0.0001, -0.2, 0.2, "0.00"},
        {2600, 2600, 2600, "2600"},
        {3.5, 3.5, 3.5, "3.500"},
        {1e20, 1e20, 1e20, "1.000e+20"},
        {-12345.6, -12346, -12345, "-12,345.6"},
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_interval ci = {rows[i].low, rows[i].high};
        assert_string_equal(pq_number(rows[i].v, pq_decimals_of(rows[i].v, ci)).text, rows[i].want);
    }
    assert_string_equal(pq_number_signed(1.5, 1).text, "+1.5");
    assert_string_equal(pq_number_signed(-1.5, 1).text, "-1.5");
    assert_string_equal(pq_number(-0.001, 1).text, "0.0");
}

static void exact_figures_read_back(void **state)
{
    (void)state;
    static const double values[] = {0, 1, -1, 0.1, 1.0 / 3, 1e-300, 1e300, 123456789.125, DBL_MAX, DBL_MIN};
    for (size_t i = 0; i < PQ_COUNT(values); i++)
        assert_true(strtod(pq_number_exact(values[i]).text, NULL) == values[i]);
    assert_string_equal(pq_number_exact(0.1).text, "0.1");
    assert_string_equal(pq_number_exact(41.0).text, "41");
}

static void axes_have_round_figures(void **state)
{
    (void)state;
    static const struct {
        struct pq_axis axis;
        const char *want;
    } rows[] = {
        {{0, 10, false, 5},
         "set xrange [0:10]\nset xtics nomirror scale 0.4 (\"0\" 0, \"2\" 2, \"4\" 4, \"6\" 6, \"8\" 8, \"10\" 10)\n"},
        {{0.5, 120, true, 3},
         "set xrange [0.5:120]\nset logscale x 10\nset xtics nomirror scale 0.4 (\"1\" 1, \"10\" 10, \"100\" 100)\n"},
        {{1, 20, true, 8},
         "set xrange [1:20]\nset logscale x 10\nset xtics nomirror scale 0.4 (\"1\" 1, \"2\" 2, \"5\" 5, \"10\" 10, "
         "\"20\" 20)\n"},
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        DEFER(pq_out_free) struct pq_out o = {.buf.cap = 10000};
        pq_axis_write(&rows[i].axis, 'x', &o);
        assert_string_equal(pq_out_text(&o), rows[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_read_well),
        cmocka_unit_test(exact_figures_read_back),
        cmocka_unit_test(axes_have_round_figures),
    };
    return cmocka_run_group_tests_name("report/number", tests, NULL, NULL);
}
