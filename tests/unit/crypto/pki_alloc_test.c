/* The n-th allocation fails, OpenSSL's own included: whatever the answer, nothing leaks and no half of an authority
 * stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <string.h>

#include "../alloc.h"
#include "base/file.h"
#include "crypto/pki.h"
#include "crypto/pki_show.h"

static struct pq_crypto *crypto;
static char top[64], dir[96];
static struct pq_why why;

static int setup(void **state)
{
    (void)state;
    snprintf(top, sizeof top, "/tmp/pqplane-alloc-XXXXXX");
    return !mkdtemp(top) || pq_crypto_new(&crypto, &why) < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    pq_crypto_free(crypto);
    return pq_file_remove_tree(top, NULL);
}

static size_t files_in(const char *folder)
{
    size_t n = 0;
    DEFER(pq_closedirp) DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    return n;
}

static int make_authority(void)
{
    struct pq_pki_init how = {.folder = dir, .root = "ed25519", .intermediate = "ed25519", .valid_s = 86400};
    return pq_pki_init(crypto, &how, &why);
}

static int make_leaf(void)
{
    const char *san[] = {"DNS:amf.example", "IP:198.18.0.1", "NF:4947a69a-f61b-4bc1-b9da-47c9c5d14b64"};
    struct pq_pki_issue how = {
        .folder = dir, .name = "amf", .algorithm = "ed25519", .san = {(char **)san, PQ_COUNT(san)}};
    return pq_pki_issue(crypto, &how, &why);
}

static int make_list(void)
{
    const char *revoke[] = {"amf", "1234"};
    struct pq_pki_crl how = {.folder = dir, .revoke = {(char **)revoke, 2}, .valid_s = 60};
    return pq_pki_crl(crypto, &how, &why);
}

static int show_all(void)
{
    static const char *const names[] = {"amf.crt", "amf.key", "crl.pem"};
    for (size_t i = 0; i < PQ_COUNT(names); i++) {
        DEFER(pq_buf_free) struct pq_buf out = {.cap = 1 << 16};
        char path[160];
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        int e = pq_pki_show_file(crypto, path, 0, &out, &why);
        if (e < 0)
            return e;
    }
    return 0;
}

/* Runs f with the n-th allocation failing, for each n until none is reached; without(n) and with() are the files there
 * are to be after a failure and a success. */
static void exhaust(int (*f)(void), size_t before, size_t after, void (*clean)(void))
{
    bool reached = true;
    size_t failures = 0;
    for (long n = 1; reached; n++) {
        pq_alloc_fail_at(n);
        int e = f();
        reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        assert_int_equal(ERR_peek_error(), 0);
        assert_int_equal(files_in(dir), e == 0 ? after : before);
        if (e < 0)
            failures++;
        if (!reached)
            assert_int_equal(e, 0);
        if (e == 0)
            clean();
        assert_true(n < 100000);
    }
    assert_true(failures > 10);
}

static void drop_authority(void) { assert_int_equal(pq_file_remove_tree(dir, NULL), 0); }

static void drop_leaf(void)
{
    char path[160];
    snprintf(path, sizeof path, "%s/amf.crt", dir);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/amf.key", dir);
    assert_int_equal(unlink(path), 0);
}

static void drop_nothing(void) {}

static void an_authority(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "%s/a", top);
    exhaust(make_authority, 0, 5, drop_authority);
    assert_int_equal(access(dir, F_OK), -1);
}

static void a_leaf(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "%s/b", top);
    assert_int_equal(make_authority(), 0);
    exhaust(make_leaf, 5, 7, drop_leaf);
}

static void a_list_and_what_is_shown(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "%s/c", top);
    assert_int_equal(make_authority(), 0);
    assert_int_equal(make_leaf(), 0);
    exhaust(make_list, 7, 7, drop_nothing);
    exhaust(show_all, 7, 7, drop_nothing);
}

int main(void)
{
    if (!pq_alloc_hook_openssl()) {
        printf("1..0 # SKIP OpenSSL's allocator can't be replaced\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_authority),
        cmocka_unit_test(a_leaf),
        cmocka_unit_test(a_list_and_what_is_shown),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
