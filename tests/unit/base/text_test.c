/* error.h, log.h, table.h, clock.h: what a person reads. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "../alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/table.h"

static void every_code_has_a_name_a_text_and_a_blame(void **state)
{
    (void)state;
    for (int code = PQ_E_BASE + 1; code < PQ_E_END; code++) {
        assert_true(strlen(pq_error_name(code)) > 1);
        assert_string_not_equal(pq_error_text(code), "unknown error");
    }
    assert_string_equal(pq_error_text(0), "success");
    assert_string_equal(pq_error_text(-5), "unknown error");
    assert_string_equal(pq_error_name(PQ_E_NOMEM), "NOMEM");
    assert_int_equal(pq_error_blame(PQ_E_RESET), PQ_BLAME_PEER);
    assert_int_equal(pq_error_blame(PQ_E_NOMEM), PQ_BLAME_RESOURCE);
    assert_int_equal(pq_error_blame(PQ_E_CONFIG), PQ_BLAME_US);
    assert_int_equal(pq_error_from_errno(EMFILE), PQ_E_LIMIT);
    assert_int_equal(pq_error_from_errno(EIO), PQ_E_IO);
}

static void a_sentence_keeps_its_context_and_its_bound(void **state)
{
    (void)state;
    struct pq_why why;
    assert_int_equal(pq_why(&why, PQ_E_IO, "%s is broken", "it"), PQ_E_IO);
    assert_int_equal(pq_why_in(&why, PQ_E_IO, "while %s", "testing"), PQ_E_IO);
    assert_string_equal(why.text, "while testing: it is broken");
    char large[3000];
    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = 0;
    pq_why(&why, PQ_E_IO, "%s", large);
    assert_int_equal(strlen(why.text), sizeof why.text - 1);
    assert_int_equal(pq_why(NULL, PQ_E_IO, "unread"), PQ_E_IO);
}

static char *logged(enum pq_log_format format, const char *event, const char *value)
{
    static char line[8192];
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pq_log_to(fds[1]);
    pq_log_set(PQ_LOG_INFO, format);
    pq_log(PQ_LOG_DEBUG, "unseen", NULL);
    pq_log(PQ_LOG_WARN, event, "value", pq_s(value), "n", pq_i(-5), "ms", pq_f(1.5), NULL);
    close(fds[1]);
    ssize_t n = read(fds[0], line, sizeof line - 1);
    close(fds[0]);
    pq_log_to(2);
    assert_true(n > 0);
    line[n] = 0;
    return line;
}

static void log_lines_can_not_be_forged(void **state)
{
    (void)state;
    static const struct {
        enum pq_log_format format;
        const char *value, *tail;
    } rows[] = {
        {PQ_LOG_LOGFMT, "plain", " level=warn event=e value=plain n=-5 ms=1.500\n"},
        {PQ_LOG_LOGFMT, "", " level=warn event=e value=\"\" n=-5 ms=1.500\n"},
        {PQ_LOG_LOGFMT, "two words", " level=warn event=e value=\"two words\" n=-5 ms=1.500\n"},
        {PQ_LOG_LOGFMT, "a\nlevel=error", " level=warn event=e value=\"a\\nlevel=error\" n=-5 ms=1.500\n"},
        {PQ_LOG_LOGFMT, "q\"\\\x01\x1b[31m",
         " level=warn event=e value=\"q\\\"\\\\\\u0001\\u001b[31m\" n=-5 ms=1.500\n"},
        {PQ_LOG_LOGFMT, "\xc2\x9b[31m", " value=\"\\u009b[31m\" n=-5 ms=1.500\n"},
        {PQ_LOG_LOGFMT, "a\xe2\x80\xae", " value=\"a\\u202e\" n=-5 ms=1.500\n"},
        {PQ_LOG_LOGFMT, "a\xff(", " value=\"a\xef\xbf\xbd(\" n=-5 ms=1.500\n"},
        {PQ_LOG_LOGFMT, "\xc3\xa9", " value=\xc3\xa9 n=-5 ms=1.500\n"},
        {PQ_LOG_JSON, "\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaa\xe2\x80\xae",
         "\"value\":\"\\u2028\\u2029\\u202a\\u202e\",\"n\":-5,\"ms\":1.500}\n"},
        {PQ_LOG_JSON, "\xe2\x81\xa6\xe2\x81\xa9\xe2\x80\x8e\xe2\x80\x8f\xd8\x9c\x7f\xc2\x80\xc2\x9f",
         "\"value\":\"\\u2066\\u2069\\u200e\\u200f\\u061c\\u007f\\u0080\\u009f\",\"n\":-5,\"ms\":1.500}\n"},
        {PQ_LOG_JSON, "\xe2\x80\x8d\xe2\x80\xaf\xc2\xa0",
         "\"value\":\"\xe2\x80\x8d\xe2\x80\xaf\xc2\xa0\",\"n\":-5,\"ms\":1.500}\n"},
        {PQ_LOG_JSON, "\xc3(\xed\xa0\xe2\x82",
         "\"value\":\"\xef\xbf\xbd(\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\",\"n\":-5,\"ms\":1.500}\n"},
        {PQ_LOG_JSON, "a\"b\n", "\"level\":\"warn\",\"event\":\"e\",\"value\":\"a\\\"b\\n\",\"n\":-5,\"ms\":1.500}\n"},
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        char *line = logged(rows[i].format, "e", rows[i].value);
        size_t len = strlen(line), tail = strlen(rows[i].tail);
        assert_true(len > tail);
        assert_string_equal(line + len - tail, rows[i].tail);
    }
}

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), n = strlen(end);
    return len >= n && strcmp(text + len - n, end) == 0;
}

/* Whatever the line's length: it ends between two characters, and closed. */
static void a_line_that_is_cut_is_whole(void **state)
{
    (void)state;
    static const struct {
        const char *unit, *shown;
    } rows[] = {
        {"y", "y"},     {"\xc3\xa9", "\xc3\xa9"}, {"\xf0\x9f\x99\x82", "\xf0\x9f\x99\x82"},
        {"\"", "\\\""}, {"\x01", "\\u0001"},      {"\xff", "\xef\xbf\xbd"},
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        for (size_t shift = 0; shift < 8; shift++) {
            char large[9000] = "", end[16];
            memset(large, 'x', shift);
            size_t n = strlen(rows[i].unit);
            for (size_t at = shift; at + n < sizeof large; at += n)
                memcpy(large + at, rows[i].unit, n);
            char *line = logged(PQ_LOG_JSON, "e", large);
            assert_true(strlen(line) <= 4096);
            assert_true(strlen(line) > 4096 - 8);
            snprintf(end, sizeof end, "%s\"}\n", rows[i].shown);
            assert_true(ends_with(line, end));
            line = logged(PQ_LOG_LOGFMT, "e", large);
            assert_true(strlen(line) <= 4096);
            assert_true(strlen(line) > 4096 - 8);
            snprintf(end, sizeof end, "%s\"\n", rows[i].shown);
            assert_true(ends_with(line, end));
        }
    }
}

/* The pair whose key or number no longer fits is left out with all that follow. */
static void pairs_that_do_not_fit_are_left_out(void **state)
{
    (void)state;
    size_t base = strlen(logged(PQ_LOG_JSON, "e", "")) - strlen(",\"n\":-5,\"ms\":1.500}\n");
    bool seen[3] = {false};
    for (size_t room = 0; room < 24; room++) {
        char large[4200] = "";
        memset(large, 'z', 4096 - 3 - base - room);
        char *line = logged(PQ_LOG_JSON, "e", large);
        assert_true(strlen(line) <= 4096);
        bool none = ends_with(line, "z\"}\n"), one = ends_with(line, "z\",\"n\":-5}\n"),
             both = ends_with(line, "z\",\"n\":-5,\"ms\":1.500}\n");
        assert_true(none || one || both);
        seen[0] |= none;
        seen[1] |= one;
        seen[2] |= both;
    }
    assert_true(seen[0] && seen[1] && seen[2]);
}

static void a_line_that_can_not_be_written_is_counted(void **state)
{
    (void)state;
    uint64_t before = pq_log_dropped();
    int full = open("/dev/full", O_WRONLY);
    assert_true(full >= 0);
    pq_log_to(full);
    pq_log_set(PQ_LOG_INFO, PQ_LOG_LOGFMT);
    pq_log(PQ_LOG_INFO, "lost", NULL);
    pq_log_to(2);
    close(full);
    assert_int_equal(pq_log_dropped(), before + 1);
}

static void a_full_pipe_does_not_stop_the_process(void **state)
{
    (void)state;
    uint64_t before = pq_log_dropped();
    int fds[2], size;
    assert_int_equal(pipe(fds), 0);
    size = fcntl(fds[1], F_SETPIPE_SZ, 4096);
    assert_true(size >= 4096);
    pq_log_to(fds[1]);
    pq_log_set(PQ_LOG_INFO, PQ_LOG_LOGFMT);
    alarm(20);
    for (int i = 0; i < size / 40; i++)
        pq_log(PQ_LOG_INFO, "many", "line", pq_i(i), NULL);
    alarm(0);
    assert_true(pq_log_dropped() > before);
    char *text = calloc(1, (size_t)size);
    assert_non_null(text);
    ssize_t n = read(fds[0], text, (size_t)size);
    assert_true(n > 0 && text[n - 1] == '\n'); /* no half line */
    free(text);
    before = pq_log_dropped();
    pq_log(PQ_LOG_INFO, "again", NULL);
    assert_int_equal(pq_log_dropped(), before);
    close(fds[0]);
    pq_log(PQ_LOG_INFO, "nobody reads", NULL);
    assert_int_equal(pq_log_dropped(), before + 1);
    pq_log_to(2);
    close(fds[1]);
}

static void tables_align_and_hide_control_bytes(void **state)
{
    (void)state;
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    struct pq_table *t = NULL;
    assert_int_equal(pq_table_new("lr", &t), 0);
    static const char *const cells[] = {"name", "ms", "é", "1.5", "a\x1b[31m", "100"};
    for (size_t i = 0; i < PQ_COUNT(cells); i++)
        pq_table_cell(t, "%s", cells[i]);
    assert_int_equal(pq_table_print(t, out), 0);
    fclose(out);
    assert_string_equal(text, "name     ms\né       1.5\na?[31m  100\n");
    free(text);
    pq_table_free(t);
}

static int make_table(FILE *out)
{
    DEFER(pq_table_freep) struct pq_table *t = NULL;
    TRY(pq_table_new("ll", &t));
    for (int i = 0; i < 100; i++)
        pq_table_cell(t, "%d", i);
    return pq_table_print(t, out);
}

static void every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    FILE *out = fopen("/dev/null", "w");
    assert_non_null(out);
    for (long n = 1;; n++) {
        pq_alloc_fail_at(n);
        int e = make_table(out);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        assert_int_equal(e, reached ? PQ_E_NOMEM : 0);
        if (!reached)
            break;
    }
    fclose(out);
}

static void times_are_rfc_3339(void **state)
{
    (void)state;
    char text[32];
    pq_clock_rfc3339(1796044339123456789LL, text, sizeof text);
    assert_string_equal(text, "2026-11-30T13:12:19.123Z");
    assert_true(pq_clock_ns() <= pq_clock_ns());
    int64_t cpu = pq_clock_thread_cpu_ns();
    volatile unsigned spin = 0;
    while (spin < 1000000)
        spin = spin + 1;
    assert_true(pq_clock_thread_cpu_ns() > cpu);
    assert_true(pq_clock_process_cpu_ns() >= cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_a_name_a_text_and_a_blame),
        cmocka_unit_test(a_sentence_keeps_its_context_and_its_bound),
        cmocka_unit_test(log_lines_can_not_be_forged),
        cmocka_unit_test(a_line_that_can_not_be_written_is_counted),
        cmocka_unit_test(a_line_that_is_cut_is_whole),
        cmocka_unit_test(pairs_that_do_not_fit_are_left_out),
        cmocka_unit_test(a_full_pipe_does_not_stop_the_process),
        cmocka_unit_test(tables_align_and_hide_control_bytes),
        cmocka_unit_test(every_failed_allocation_is_an_error),
        cmocka_unit_test(times_are_rfc_3339),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
