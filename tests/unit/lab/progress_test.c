#include "lab/progress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"

static const int64_t now = 60 * PQ_NS_PER_S;

static struct pq_progress half_way(void)
{
    struct pq_progress p;
    pq_progress_begin(&p, true, 10, 88, 0);
    p.round = 6;
    p.cell = 0;
    p.failures = 12345;
    return p;
}

static void a_line_is_narrower_than_the_terminal(void **state)
{
    (void)state;
    struct pq_progress p = half_way();
    char line[PQ_PROGRESS_LINE];
    for (size_t columns = 0; columns < 300; columns++) {
        memset(line, 'x', sizeof line);
        pq_progress_line(&p, now, columns, line);
        if (strlen(line) > (columns ? columns - 1 : 0))
            fail_msg("%zu columns: \"%s\"", columns, line);
    }
}

static void the_bar_shrinks_then_goes_then_words_go(void **state)
{
    (void)state;
    static const struct {
        size_t columns;
        const char *line;
    } rows[] = {
        {300, "[###############...............] round 6/10, cell 0/88, 1 min 0 s left, 12345 failed"},
        {65, "[#####.....] round 6/10, cell 0/88, 1 min 0 s left, 12345 failed"},
        {54, "round 6/10, cell 0/88, 1 min 0 s left, 12345 failed"},
        {40, "[######.......] 6/10 0/88, 12345 failed"},
        {20, "6/10 0/88, 12345 fa"},
        {1, ""},
    };
    struct pq_progress p = half_way();
    char line[PQ_PROGRESS_LINE];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pq_progress_line(&p, now, rows[i].columns, line);
        assert_string_equal(line, rows[i].line);
    }
}

static void nothing_done_has_no_time_left(void **state)
{
    (void)state;
    struct pq_progress p;
    char line[PQ_PROGRESS_LINE];
    pq_progress_begin(&p, true, 2, 3, 0);
    p.round = 1;
    pq_progress_line(&p, now, 80, line);
    assert_string_equal(line, "[..............................] round 1/2, cell 0/3, ? left");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_narrower_than_the_terminal),
        cmocka_unit_test(the_bar_shrinks_then_goes_then_words_go),
        cmocka_unit_test(nothing_done_has_no_time_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
