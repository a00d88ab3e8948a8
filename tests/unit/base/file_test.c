#include "base/file.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
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

static void what_is_no_file_is_written_to_and_stays(void **state)
{
    (void)state;
    struct pq_why why = {{0}};
    struct stat st;
    char fifo[128], link[128], target[128];
    snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    snprintf(target, sizeof target, "%s/target", folder);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    int reader = open(fifo, O_RDONLY | O_NONBLOCK);
    assert_int_equal(pq_file_write(fifo, pq_span("abc", 3), 0600, PQ_FILE_REPLACE, &why), 0);
    char in[4] = "";
    assert_int_equal(read(reader, in, sizeof in), 3);
    assert_string_equal(in, "abc");
    assert_int_equal(lstat(fifo, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    close(reader);
    assert_int_equal(pq_file_write("/dev/full", pq_span("x", 1), 0600, PQ_FILE_REPLACE, &why), PQ_E_LIMIT);
    assert_int_equal(lstat("/dev/full", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    assert_int_equal(symlink(target, link), 0);
    assert_int_equal(pq_file_write(link, pq_span("x", 1), 0600, PQ_FILE_REPLACE, &why), PQ_E_NOENT);
    assert_int_equal(pq_file_write(target, pq_span("old", 3), 0600, PQ_FILE_NEW, &why), 0);
    assert_int_equal(pq_file_write(link, pq_span("new", 3), 0600, PQ_FILE_REPLACE, &why), 0);
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    DEFER(pq_buf_free) struct pq_buf b = {.cap = 10};
    assert_int_equal(pq_file_read(target, &b, &why), 0);
    assert_string_equal((char *)b.at, "new");
}

static void only_regular_files_are_read(void **state)
{
    (void)state;
    char pipe[128], link[128], target[128], sentence[256];
    struct pq_why why = {{0}};
    DEFER(pq_buf_free) struct pq_buf b = {.cap = 10};
    snprintf(pipe, sizeof pipe, "%s/nobody-writes", folder);
    snprintf(target, sizeof target, "%s/regular", folder);
    snprintf(link, sizeof link, "%s/to-regular", folder);
    snprintf(sentence, sizeof sentence, "can't read %s: it is no regular file", pipe);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    alarm(20); /* opening it would wait for a writer */
    assert_int_equal(pq_file_read(pipe, &b, &why), PQ_E_IO);
    alarm(0);
    assert_string_equal(why.text, sentence);
    assert_int_equal(pq_file_read("/dev/zero", &b, &why), PQ_E_IO);
    assert_string_equal(why.text, "can't read /dev/zero: it is no regular file");
    assert_int_equal(pq_file_read("/tmp", &b, &why), PQ_E_IO);
    assert_string_equal(why.text, "can't read /tmp: it is no regular file");
    assert_int_equal(b.len, 0);
    assert_int_equal(pq_file_write(target, pq_span("abc", 3), 0600, PQ_FILE_NEW, &why), 0);
    assert_int_equal(symlink("regular", link), 0);
    assert_int_equal(pq_file_read(link, &b, &why), 0);
    assert_string_equal((char *)b.at, "abc");
}

static bool is_null(int fd)
{
    struct stat null, st;
    return stat("/dev/null", &null) == 0 && fstat(fd, &st) == 0 && st.st_rdev == null.st_rdev;
}

/* 0, or which step failed; in a child, as it closes the standard descriptors. */
static int standard_descriptors(void)
{
    close(0);
    close(2);
    if (pq_file_hold_standard(NULL) < 0 || !is_null(0) || !is_null(2))
        return 1;
    int next = open("/dev/null", O_RDONLY), copy = dup(next);
    if (next <= 2 || copy <= 2)
        return 2;
    pq_file_close(copy);
    if (fcntl(copy, F_GETFD) >= 0)
        return 3;
    for (int fd = 0; fd <= 2; fd++) {
        pq_file_close(fd);
        if (!is_null(fd) || fcntl(fd, F_GETFD) != 0)
            return 4;
    }
    pq_file_close(-1);
    return 0;
}

static void the_standard_descriptors_are_never_free(void **state)
{
    (void)state;
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(standard_descriptors());
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_reads_and_never_overwrites),
        cmocka_unit_test(failures_say_what_and_where),
        cmocka_unit_test(only_regular_files_are_read),
        cmocka_unit_test(the_standard_descriptors_are_never_free),
        cmocka_unit_test(what_is_no_file_is_written_to_and_stays),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
