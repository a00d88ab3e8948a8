#include "proxy/control.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../alloc.h"
#include "base/cleanup.h"

struct ends {
    struct pq_control a, b;
};

static void open_ends(struct ends *x)
{
    int other;
    assert_int_equal(pq_control_pair(&x->a, &other), 0);
    pq_control_init(&x->b, other);
}

static void close_ends(struct ends *x)
{
    pq_control_free(&x->a);
    pq_control_free(&x->b);
}

static void a_message_arrives_as_it_was(void **state)
{
    (void)state;
    DEFER(close_ends) struct ends x;
    open_ends(&x);
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    struct pq_control_message m = {.type = PQ_CONTROL_REFUSED, .status = -7, .generation = INT64_MAX}, got;
    snprintf(m.text, sizeof m.text, "why not");
    m.fd[m.fd_count++] = pipes[1];
    assert_int_equal(pq_control_send(&x.a, &m), 0);
    assert_int_equal(close(pipes[1]), 0); /* the message holds its own */
    assert_int_equal(pq_control_receive(&x.b, &got), 0);
    assert_int_equal(got.type, PQ_CONTROL_REFUSED);
    assert_int_equal(got.status, -7);
    assert_true(got.generation == INT64_MAX);
    assert_string_equal(got.text, "why not");
    assert_int_equal(got.fd_count, 1);
    assert_int_equal(write(got.fd[0], "x", 1), 1);
    pq_control_drop(&got);
    char byte[2];
    assert_int_equal(read(pipes[0], byte, 2), 1);
    assert_int_equal(read(pipes[0], byte, 2), 0);
    close(pipes[0]);
    assert_int_equal(pq_control_receive(&x.b, &got), PQ_E_WANT_READ);
    pq_control_free(&x.a);
    assert_int_equal(pq_control_receive(&x.b, &got), PQ_E_CLOSED);
    m.fd_count = 0;
    assert_int_equal(pq_control_send(&x.b, &m), PQ_E_CLOSED);
}

static void the_longest_text_goes_and_one_more_does_not(void **state)
{
    (void)state;
    DEFER(close_ends) struct ends x;
    open_ends(&x);
    static struct pq_control_message m = {.type = PQ_CONTROL_DONE}, got;
    memset(m.text, 'x', sizeof m.text);
    assert_int_equal(pq_control_send(&x.a, &m), PQ_E_TOO_LONG);
    m.text[sizeof m.text - 1] = '\0';
    assert_int_equal(pq_control_send(&x.a, &m), 0);
    assert_int_equal(pq_control_receive(&x.b, &got), 0);
    assert_string_equal(got.text, m.text);
    m.fd_count = PQ_CONTROL_FDS + 1;
    assert_int_equal(pq_control_send(&x.a, &m), PQ_E_LIMIT);
}

/* Nobody takes messages for a while: none is lost, and their order stays. */
static void what_is_not_taken_waits(void **state)
{
    (void)state;
    DEFER(close_ends) struct ends x;
    open_ends(&x);
    struct pq_control_message m = {.type = PQ_CONTROL_DONE}, got;
    struct stat want, have;
    assert_int_equal(fstat(STDERR_FILENO, &want), 0);
    memset(m.text, 'y', 1000);
    m.fd[m.fd_count++] = STDERR_FILENO;
    int64_t sent = 0, received = 0;
    while (x.a.waiting < 5) {
        m.generation = ++sent;
        assert_int_equal(pq_control_send(&x.a, &m), 0);
    }
    while (received < sent) {
        int e = pq_control_receive(&x.b, &got);
        if (e == PQ_E_WANT_READ) {
            assert_true(pq_control_waits(&x.a));
            assert_int_equal(pq_control_flush(&x.a), 0);
            continue;
        }
        assert_int_equal(e, 0);
        assert_true(got.generation == ++received);
        assert_int_equal(got.fd_count, 1);
        assert_int_equal(fstat(got.fd[0], &have), 0);
        assert_true(have.st_ino == want.st_ino && have.st_dev == want.st_dev);
        pq_control_drop(&got);
    }
    assert_false(pq_control_waits(&x.a));
    m.fd_count = 0;
    while (x.a.waiting < PQ_CONTROL_WAITING_MAX)
        assert_int_equal(pq_control_send(&x.a, &m), 0);
    assert_int_equal(pq_control_send(&x.a, &m), PQ_E_LIMIT);
}

static void what_is_no_message_is_refused(void **state)
{
    (void)state;
    DEFER(close_ends) struct ends x;
    open_ends(&x);
    struct pq_control_message got;
    const struct {
        uint32_t type;
        int32_t status;
        int64_t generation;
    } header = {.type = PQ_CONTROL_TYPE_COUNT}, good = {.type = PQ_CONTROL_DRAIN};
    for (size_t len = 1; len <= sizeof header; len++) {
        assert_int_equal(send(x.a.fd, &header, len, 0), len);
        assert_int_equal(pq_control_receive(&x.b, &got), PQ_E_PROTOCOL);
        assert_int_equal(got.fd_count, 0);
    }
    assert_int_equal(send(x.a.fd, &good, sizeof good, 0), sizeof good);
    assert_int_equal(pq_control_receive(&x.b, &got), 0);
    assert_int_equal(got.type, PQ_CONTROL_DRAIN);
    assert_string_equal(got.text, "");
    static char large[sizeof good + PQ_CONTROL_TEXT];
    assert_int_equal(send(x.a.fd, large, sizeof large, 0), sizeof large);
    assert_int_equal(pq_control_receive(&x.b, &got), PQ_E_PROTOCOL);
}

static void an_allocation_may_fail(void **state)
{
    (void)state;
    DEFER(close_ends) struct ends x;
    open_ends(&x);
    struct pq_control_message m = {.type = PQ_CONTROL_DONE};
    while (!x.a.waiting)
        assert_int_equal(pq_control_send(&x.a, &m), 0);
    pq_alloc_fail_at(1);
    int e = pq_control_send(&x.a, &m);
    pq_alloc_fail_at(0);
    assert_int_equal(e, PQ_E_NOMEM);
    assert_int_equal(x.a.waiting, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_arrives_as_it_was), cmocka_unit_test(the_longest_text_goes_and_one_more_does_not),
        cmocka_unit_test(what_is_not_taken_waits),     cmocka_unit_test(what_is_no_message_is_refused),
        cmocka_unit_test(an_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
