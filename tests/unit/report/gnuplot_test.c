#include "report/gnuplot.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/file.h"

/* A "gnuplot" that tells which signals it ignores: bit 12 of the mask is SIGPIPE. */
static void it_does_not_ignore_a_broken_pipe_as_we_do(void **state)
{
    (void)state;
    static const char script[] = "#!/bin/sh\nsed -n 's/^SigIgn:[[:space:]]*//p' /proc/$$/status\n";
    char folder[] = "/tmp/gnuplot-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/gnuplot", folder);
    assert_int_equal(pq_file_write(path, pq_span(script, sizeof script - 1), 0755, PQ_FILE_NEW, NULL), 0);
    DEFER(pq_freep) char *before = strdup(getenv("PATH"));
    setenv("PATH", folder, 1);
    signal(SIGPIPE, SIG_IGN);
    DEFER(pq_buf_free) struct pq_buf said = {.cap = 1000};
    struct pq_why why = {{0}};
    int e = pq_gnuplot(pq_span("", 0), &said, &why);
    signal(SIGPIPE, SIG_DFL);
    setenv("PATH", before, 1);
    assert_int_equal(pq_file_remove_tree(folder, NULL), 0);
    if (e != 0)
        fail_msg("%s", why.text);
    assert_true(said.len >= 16);
    assert_int_equal(strtoull((const char *)said.at, NULL, 16) >> (SIGPIPE - 1) & 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_does_not_ignore_a_broken_pipe_as_we_do)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
