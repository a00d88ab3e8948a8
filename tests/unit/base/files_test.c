#include "base/files.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "../alloc.h"
#include "base/file.h"

static char folder[64], certificate[128], key[128];

static void write_file(const char *path, const char *text, mode_t mode)
{
    assert_int_equal(pq_file_write(path, pq_span_text(text), mode, PQ_FILE_REPLACE, NULL), 0);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/pqplane-files-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(certificate, sizeof certificate, "%s/a.crt", folder);
    snprintf(key, sizeof key, "%s/a.key", folder);
    write_file(certificate, "certificate", 0644);
    write_file(key, "secret", 0600);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return pq_file_remove_tree(folder, NULL);
}

static struct pq_files *set_of(const char *names)
{
    struct pq_files *f = NULL;
    char path[2] = "";
    assert_int_equal(pq_files_new(&f), 0);
    for (; *names; names++) {
        path[0] = *names;
        assert_int_equal(pq_files_put(f, path, false, pq_span_text("text"), NULL), 0);
    }
    return f;
}

static void expect(const struct pq_files *f, const char *path, const char *text)
{
    struct pq_span got;
    assert_int_equal(pq_files_get(f, path, &got), 0);
    assert_true(pq_span_equal(got, pq_span_text(text)));
}

static void a_file_is_read_once(void **state)
{
    (void)state;
    DEFER(pq_files_freep) struct pq_files *f = NULL;
    struct pq_span none = {NULL, 99};
    assert_int_equal(pq_files_new(&f), 0);
    assert_int_equal(pq_files_add(f, key, true, NULL), 0);
    assert_int_equal(pq_files_add(f, certificate, false, NULL), 0);
    write_file(certificate, "another", 0644);
    assert_int_equal(pq_files_add(f, certificate, false, NULL), 0);
    expect(f, certificate, "certificate");
    expect(f, key, "secret");
    assert_int_equal(pq_files_count(f), 2);
    assert_string_equal(pq_files_path(f, 0), certificate);
    assert_int_equal(pq_files_get(f, "elsewhere", &none), PQ_E_NOT_FOUND);
    assert_int_equal(none.len, 99);
}

static void what_can_t_be_had_is_said(void **state)
{
    (void)state;
    struct pq_why why = {{0}};
    DEFER(pq_files_freep) struct pq_files *f = set_of("a");
    DEFER(pq_freep) char *big = calloc(1, PQ_FILES_FILE_MAX + 1);
    char path[PQ_FILES_PATH_MAX + 2];
    memset(path, 'p', sizeof path);
    path[sizeof path - 1] = 0;
    assert_int_equal(chmod(key, 0640), 0);
    assert_int_equal(pq_files_add(f, key, true, &why), PQ_E_CONFIG);
    assert_non_null(strstr(why.text, "has mode 0640, so others may read it: chmod 600 it"));
    assert_int_equal(pq_files_add(f, key, false, &why), 0);
    assert_int_equal(pq_files_add(f, key, true, &why), PQ_E_CONFIG);
    assert_int_equal(pq_files_add(f, "/nowhere/x", false, &why), PQ_E_NOENT);
    assert_non_null(strstr(why.text, "/nowhere/x"));
    assert_int_equal(pq_files_add(f, folder, false, &why), PQ_E_IO);
    assert_int_equal(pq_files_put(f, "a", false, pq_span_text("other"), &why), PQ_E_EXISTS);
    assert_int_equal(pq_files_put(f, "a", true, pq_span_text("text"), &why), 0);
    assert_int_equal(pq_files_put(f, "", false, pq_span_text("text"), &why), PQ_E_INVALID);
    assert_int_equal(pq_files_put(f, path, false, pq_span_text("text"), &why), PQ_E_TOO_LONG);
    assert_int_equal(pq_files_put(f, path + 1, false, pq_span_text("text"), &why), 0);
    assert_int_equal(pq_files_put(f, "big", false, pq_span(big, PQ_FILES_FILE_MAX + 1), &why), PQ_E_TOO_LONG);
    assert_int_equal(pq_files_put(f, "big", false, pq_span(big, PQ_FILES_FILE_MAX), &why), 0);
    assert_int_equal(pq_files_count(f), 4);
}

static void sets_are_equal_when_all_their_files_are(void **state)
{
    (void)state;
    DEFER(pq_files_freep) struct pq_files *a = set_of("xyz"), *b = NULL, *c = NULL, *d = NULL;
    b = set_of("zxy");
    c = set_of("xy");
    d = set_of("xy");
    assert_true(pq_files_equal(a, b));
    assert_false(pq_files_equal(a, c));
    assert_int_equal(pq_files_put(d, "z", false, pq_span_text("texT"), NULL), 0);
    assert_false(pq_files_equal(a, d));
    assert_int_equal(pq_files_put(c, "w", false, pq_span_text("text"), NULL), 0);
    assert_false(pq_files_equal(a, c));
}

static void a_set_goes_through_a_descriptor(void **state)
{
    (void)state;
    struct pq_why why = {{0}};
    DEFER(pq_files_freep) struct pq_files *f = set_of("za"), *back = NULL, *again = NULL;
    DEFER(pq_closep) int fd = -1;
    assert_int_equal(pq_files_add(f, key, true, NULL), 0);
    assert_int_equal(pq_files_put(f, "empty", false, pq_span("", 0), NULL), 0);
    assert_int_equal(pq_files_pack(f, &fd, &why), 0);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(pq_files_unpack(fd, &back, &why), 0);
    assert_true(pq_files_equal(f, back));
    expect(back, key, "secret");
    assert_int_equal(pwrite(fd, "x", 1, 0), -1);
    assert_int_equal(ftruncate(fd, 1), -1);
    assert_int_equal(pq_files_unpack(fd, &again, &why), 0);
}

static void what_may_still_change_is_not_unpacked(void **state)
{
    (void)state;
    struct pq_why why = {{0}};
    struct pq_files *out = NULL;
    DEFER(pq_closep) int open_memory = memfd_create("test", MFD_ALLOW_SEALING), empty = -1, regular = -1;
    assert_int_equal(pq_files_unpack(open_memory, &out, &why), PQ_E_INVALID);
    assert_non_null(strstr(why.text, "no sealed memory"));
    assert_int_equal(pq_files_unpack(regular = open(certificate, O_RDONLY), &out, &why), PQ_E_INVALID);
    assert_int_equal(pq_files_unpack(-1, &out, &why), PQ_E_INVALID);
    empty = memfd_create("test", MFD_ALLOW_SEALING);
    assert_int_equal(fcntl(empty, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
    assert_int_equal(pq_files_unpack(empty, &out, &why), PQ_E_TRUNCATED);
    assert_int_equal(write(open_memory, "PQF1\0\0\0\1", 8), 8);
    assert_int_equal(fcntl(open_memory, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
    assert_int_equal(pq_files_unpack(open_memory, &out, &why), PQ_E_TRUNCATED);
    assert_non_null(strstr(why.text, "can't be read: message ends early"));
    assert_null(out);
}

#define TEXT(literal) literal, sizeof(literal) - 1

static const struct {
    const char *name, *bytes;
    size_t len;
    int want;
} rows[] = {
    {"nothing", TEXT(""), PQ_E_TRUNCATED},
    {"no file", TEXT("PQF1\0\0\0\0"), 0},
    {"one", TEXT("PQF1\0\0\0\1\0\1a\0\0\0\2hi"), 0},
    {"two", TEXT("PQF1\0\0\0\2\0\1a\0\0\0\2hi\0\1b\1\0\0\0"), 0},
    {"another mark", TEXT("PQF2\0\0\0\0"), PQ_E_TYPE},
    {"a byte more", TEXT("PQF1\0\0\0\0\0"), PQ_E_SYNTAX},
    {"two, out of order", TEXT("PQF1\0\0\0\2\0\1b\0\0\0\0\0\1a\0\0\0\0"), PQ_E_SYNTAX},
    {"the same twice", TEXT("PQF1\0\0\0\2\0\1a\0\0\0\0\0\1a\0\0\0\0"), PQ_E_SYNTAX},
    {"no path", TEXT("PQF1\0\0\0\1\0\0\0\0\0\0"), PQ_E_SYNTAX},
    {"a NUL in the path", TEXT("PQF1\0\0\0\1\0\2a\0\0\0\0\0"), PQ_E_SYNTAX},
    {"an unknown flag", TEXT("PQF1\0\0\0\1\0\1a\2\0\0\0"), PQ_E_SYNTAX},
    {"a path past its cap", TEXT("PQF1\0\0\0\1\x10\0a\0\0\0\0"), PQ_E_TOO_LONG},
    {"a file past its cap", TEXT("PQF1\0\0\0\1\0\1a\0\x40\0\1"), PQ_E_TOO_LONG},
    {"a file at its cap, cut", TEXT("PQF1\0\0\0\1\0\1a\0\x40\0\0"), PQ_E_TRUNCATED},
    {"too many", TEXT("PQF1\0\0\x40\1"), PQ_E_TOO_LONG},
    {"as many as may be, cut", TEXT("PQF1\0\0\x40\0"), PQ_E_TRUNCATED},
};

/* The outcome of decoding an exact-size copy. */
static int decode(const char *bytes, size_t len)
{
    DEFER(pq_freep) char *exact = malloc(len ? len : 1);
    DEFER(pq_files_freep) struct pq_files *f = NULL;
    memcpy(exact, bytes, len);
    int e = pq_files_decode(pq_span(exact, len), &f);
    assert_true(e == 0 ? f != NULL : f == NULL);
    return e;
}

static void the_packed_form(void **state)
{
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        int e = decode(rows[i].bytes, rows[i].len);
        if (e != rows[i].want)
            fail_msg("%s: %s", rows[i].name, pq_error_name(e));
        for (size_t len = 0; rows[i].want == 0 && len < rows[i].len; len++)
            assert_int_equal(decode(rows[i].bytes, len), PQ_E_TRUNCATED);
    }
}

static void a_writer_that_is_too_small_is_not_touched(void **state)
{
    (void)state;
    char out[64];
    DEFER(pq_files_freep) struct pq_files *f = set_of("ab");
    struct pq_writer w = pq_writer(out, pq_files_encoded_size(f) - 1);
    assert_int_equal(pq_files_encode(f, &w), PQ_E_TOO_LONG);
    assert_int_equal(w.len, 0);
    w = pq_writer(out, pq_files_encoded_size(f));
    assert_int_equal(pq_files_encode(f, &w), 0);
    assert_int_equal(w.len, pq_files_encoded_size(f));
}

static int make(struct pq_files **out)
{
    DEFER(pq_files_freep) struct pq_files *f = NULL;
    struct pq_why why;
    DEFER(pq_closep) int fd = -1;
    TRY(pq_files_new(&f));
    TRY(pq_files_add(f, key, true, &why));
    for (char name[2] = "a"; name[0] < 'k'; name[0]++)
        TRY(pq_files_put(f, name, false, pq_span_text("text"), &why));
    TRY(pq_files_pack(f, &fd, &why));
    return pq_files_unpack(fd, out, &why);
}

static void failing_allocations(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        struct pq_files *f = NULL;
        pq_alloc_fail_at(n);
        int e = make(&f);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        pq_files_free(f);
        if (!reached) {
            assert_int_equal(e, 0);
            break;
        }
        assert_int_equal(e, PQ_E_NOMEM);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_is_read_once),
        TEST(what_can_t_be_had_is_said),
        TEST(sets_are_equal_when_all_their_files_are),
        TEST(a_set_goes_through_a_descriptor),
        TEST(what_may_still_change_is_not_unpacked),
        cmocka_unit_test(the_packed_form),
        cmocka_unit_test(a_writer_that_is_too_small_is_not_touched),
        TEST(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
