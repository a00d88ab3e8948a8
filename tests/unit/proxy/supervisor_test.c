#include "proxy/supervisor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "proxy/listening.h"
#include "proxy/restart.h"

/* --- restarts ---------------------------------------------------------------------------------------------------- */
static void a_worker_is_started_at_once_and_then_later_and_later(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t lived_s, wait_s;
    } rows[] = {
        {"the first death", 3600, 0},   {"again at once", 0, 1},   {"doubled", 2, 2},
        {"and again", 59, 4},           {"and again", 1, 8},       {"and again", 1, 16},
        {"up to half a minute", 1, 30}, {"and no further", 1, 30}, {"a minute of life", 60, 0},
        {"begins anew", 1, 1},
    };
    struct pq_restart r = {0};
    int64_t now = 1000 * PQ_NS_PER_S;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        r.started = now;
        now += rows[i].lived_s * PQ_NS_PER_S;
        int64_t wait = pq_restart_died(&r, now);
        if (wait != rows[i].wait_s * PQ_NS_PER_S)
            fail_msg("row %zu, %s: waits %lld ns", i, rows[i].name, (long long)wait);
        now += wait;
    }
}

/* --- listening sockets ------------------------------------------------------------------------------------------- */
/* Another process may have taken the path over, for a restart without a gap. */
static void a_path_that_another_bound_stays(void **state)
{
    (void)state;
    for (int taken = 0; taken < 2; taken++) {
        DEFER(pq_closep) int other = -1;
        struct pq_listening l = {.fd = -1};
        struct pq_proxy_listener how = {.name = (char *)(uintptr_t)"a"};
        struct pq_why why = {""};
        char folder[] = "/tmp/pq-listening-XXXXXX", text[PQ_ADDRESS_TEXT];
        assert_non_null(mkdtemp(folder));
        snprintf(text, sizeof text, "unix:%s/s", folder);
        const char *path = text + strlen("unix:");
        assert_int_equal(pq_address_parse(text, &how.listen.at, NULL), 0);
        if (pq_listening_open(&how, &l, &why) < 0)
            fail_msg("%s", why.text);
        assert_int_equal(access(path, F_OK), 0);
        if (taken) {
            assert_int_equal(unlink(path), 0);
            assert_int_equal(pq_tcp_listen(&how.listen.at, 0, &other, &why), 0);
        }
        pq_listening_close(&l);
        assert_int_equal(l.fd, -1);
        assert_int_equal(access(path, F_OK), taken ? 0 : -1);
        unlink(path);
        assert_int_equal(rmdir(folder), 0);
    }
}

static void an_address_in_use_names_the_listener(void **state)
{
    (void)state;
    struct pq_listening one = {.fd = -1}, two = {.fd = -1};
    struct pq_proxy_listener how = {.name = (char *)(uintptr_t)"sbi", .listen.where = (char *)(uintptr_t)"p.yaml:3:4"};
    struct pq_why why = {""};
    assert_int_equal(pq_address_parse("127.0.0.1:0", &how.listen.at, NULL), 0);
    assert_int_equal(pq_listening_open(&how, &one, &why), 0);
    how.listen.at = pq_address_local(one.fd);
    assert_int_equal(pq_listening_open(&how, &two, &why), PQ_E_EXISTS);
    assert_int_equal(two.fd, -1);
    assert_non_null(strstr(why.text, "p.yaml:3:4: \"sbi\": can't listen on 127.0.0.1:"));
    pq_listening_close(&one);
    pq_listening_close(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_is_started_at_once_and_then_later_and_later),
        cmocka_unit_test(a_path_that_another_bound_stays),
        cmocka_unit_test(an_address_in_use_names_the_listener),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
