#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../alloc.h"
#include "base/cleanup.h"

static char folder[64], path[128];

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/pqplane-file-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/a/b/c.txt", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return pq_file_remove_tree(folder, NULL);
}

static void writes_reads_and_never_overwrites(void **state)
{
    (void)state;
    struct pq_why why = {{0}};
    char sub[128];
    snprintf(sub, sizeof sub, "%s/a/b", folder);
    assert_int_equal(pq_file_make_folders(sub, 0700, &why), 0);
    assert_int_equal(pq_file_make_folders(sub, 0700, &why), 0);
    assert_int_equal(pq_file_write(path, pq_span("one", 3), 0600, PQ_FILE_NEW, &why), 0);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(pq_file_write(path, pq_span("two", 3), 0600, PQ_FILE_NEW, &why), PQ_E_EXISTS);
    assert_non_null(strstr(why.text, "exists and is not overwritten"));
    DEFER(pq_buf_free) struct pq_buf b = {.cap = 3};
    assert_int_equal(pq_file_read(path, &b, &why), 0);
    assert_string_equal((char *)b.at, "one");
    assert_int_equal(pq_file_write(path, pq_span("four", 4), 0640, PQ_FILE_REPLACE, &why), 0);
    DEFER(pq_buf_free) struct pq_buf c = {.cap = 3};
    assert_int_equal(pq_file_read(path, &c, &why), PQ_E_TOO_LONG);
    assert_non_null(strstr(why.text, "larger than 3 bytes"));
    assert_int_equal(c.len, 0);
}

static void failures_say_what_and_where(void **state)
{
    (void)state;
    struct pq_why why = {{0}};
    DEFER(pq_buf_free) struct pq_buf b = {.cap = 10};
    assert_int_equal(pq_file_read("/nowhere/x", &b, &why), PQ_E_NOENT);
    assert_string_equal(why.text, "can't read /nowhere/x: No such file or directory");
    assert_int_equal(pq_file_read("/tmp", &b, &why), PQ_E_IO);
    assert_int_equal(pq_file_write("/nowhere/x", pq_span("x", 1), 0600, PQ_FILE_REPLACE, &why), PQ_E_NOENT);
    assert_int_equal(pq_file_make_folders("/dev/null/x", 0700, &why), PQ_E_NOENT);
    assert_int_equal(pq_file_make_folders("/dev/null", 0700, &why), PQ_E_EXISTS);
    assert_int_equal(pq_file_make_folders("", 0700, &why), PQ_E_INVALID);
    assert_int_equal(pq_file_remove_tree("/nowhere/x", &why), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_reads_and_never_overwrites),
        cmocka_unit_test(failures_say_what_and_where),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
