#include "proxy/refusal.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

static struct pq_proxy_counters counters;
static char log_text[4096];
static int log_pipe[2];

static const char *logged(void)
{
    ssize_t n = read(log_pipe[0], log_text, sizeof log_text - 1);
    log_text[n > 0 ? n : 0] = '\0';
    return log_text;
}

static void refuse(struct pq_refusals *r, const char *from, enum pq_proxy_end why)
{
    static char name[] = "sbi";
    static const struct pq_proxy_listener how = {.name = name, .direction = PQ_PROXY_INGRESS};
    struct pq_address a;
    int fd[2];
    char byte;
    assert_int_equal(pq_address_parse(from, &a, NULL), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    pq_refuse(r, &how, fd[0], &a, why, 7);
    assert_int_equal(recv(fd[1], &byte, 1, 0), 0);
    close(fd[1]);
}

static void a_flood_is_one_line_a_second(void **state)
{
    (void)state;
    struct ev_loop *loop = ev_loop_new(0);
    struct pq_refusals r;
    assert_int_equal(pipe2(log_pipe, O_NONBLOCK), 0);
    pq_log_to(log_pipe[1]);
    pq_refusals_init(&r, loop, &counters);
    refuse(&r, "192.0.2.1:1", PQ_PROXY_SOURCE_RATE);
    assert_non_null(strstr(logged(), "event=\"connection refused\" route=sbi direction=ingress from=192.0.2.1:1 "
                                     "count=1 open=7 reason=source-rate\n"));
    for (int i = 0; i < 100; i++)
        refuse(&r, i < 99 ? "192.0.2.1:1" : "192.0.2.9:9", PQ_PROXY_SOURCE_RATE);
    assert_string_equal(logged(), "");
    refuse(&r, "192.0.2.1:1", PQ_PROXY_HANDSHAKES);
    assert_non_null(strstr(logged(), "count=1 open=7 reason=handshakes\n"));
    ev_run(loop, EVRUN_ONCE);
    assert_non_null(strstr(logged(), "from=192.0.2.9:9 count=100 open=7 reason=source-rate\n"));
    assert_null(strstr(log_text, "handshakes"));
    assert_true(ev_is_active(&r.timer));
    ev_run(loop, 0); /* ends: nothing came within a second */
    assert_string_equal(logged(), "");
    refuse(&r, "192.0.2.1:1", PQ_PROXY_SOURCE_RATE);
    assert_non_null(strstr(logged(), "count=1 open=7 reason=source-rate\n"));
    refuse(&r, "192.0.2.1:1", PQ_PROXY_SOURCE_RATE);
    pq_refusals_stop(&r);
    assert_non_null(strstr(logged(), "count=1 open=7 reason=source-rate\n"));
    assert_int_equal(counters.direction[PQ_PROXY_INGRESS].ends[PQ_PROXY_SOURCE_RATE], 103);
    pq_log_to(STDERR_FILENO);
    for (int i = 0; i < 2; i++)
        close(log_pipe[i]);
    ev_loop_destroy(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_flood_is_one_line_a_second)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
