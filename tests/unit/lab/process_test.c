#include "lab/process.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"

static char log_path[] = "/tmp/pqplane-process-test.XXXXXX";

static const int64_t soon = 10 * PQ_NS_PER_S;

/* /bin/sh -c SCRIPT; with ready, $0 is --ready-fd and $1 the descriptor. */
static struct pq_process *shell(struct pq_processes *set, const char *script, bool ready)
{
    const char *argv[] = {"sh", "-c", script, NULL};
    struct pq_process_start how = {
        .name = "shell", .log = log_path, .program = "/bin/sh", .argv = argv, .netns = -1, .ready = ready};
    struct pq_process *p = NULL;
    struct pq_why why = {{0}};
    assert_int_equal(truncate(log_path, 0), 0);
    if (pq_process_start(set, &how, &p, &why) < 0)
        fail_msg("%s", why.text);
    return p;
}

static void it_gets_ready_and_ends_when_told(void **state)
{
    (void)state;
    struct pq_processes set = {.stop_fd = -1};
    struct pq_why why = {{0}};
    struct pq_process *p = shell(
        &set, "trap 'kill $!; exit 0' TERM; echo ready a 127.0.0.1:1 >&$1; eval \"sleep 100 $1>&- & exec $1>&-\"; wait",
        true);
    pid_t pid = p->pid;
    assert_int_equal(pq_process_await_ready(&set, p, soon, &why), 0);
    assert_int_equal(pq_processes_check(&set, &why), 0);
    assert_int_equal(pq_processes_stop(&set, soon, &why), 0);
    assert_int_equal(set.count, 0);
    assert_int_equal(kill(pid, 0), -1);
}

static void its_end_before_readiness_is_told_with_its_last_words(void **state)
{
    (void)state;
    struct pq_processes set = {.stop_fd = -1};
    struct pq_why why = {{0}};
    struct pq_process *p = shell(&set, "echo one; echo the port is taken >&2; exit 3", true);
    assert_int_equal(pq_process_await_ready(&set, p, soon, &why), PQ_E_CLOSED);
    assert_non_null(strstr(why.text, "the shell ended with status 3"));
    assert_non_null(strstr(why.text, "the port is taken"));
    pq_processes_stop(&set, soon, NULL);
}

static void a_death_while_another_is_awaited_is_an_error(void **state)
{
    (void)state;
    struct pq_processes set = {.stop_fd = -1};
    struct pq_why why = {{0}};
    shell(&set, "kill -SEGV $$", false);
    struct pq_process *load = shell(&set, "exec sleep 100", false);
    assert_int_equal(pq_process_await_end(&set, load, soon, &why), PQ_E_CLOSED);
    assert_non_null(strstr(why.text, "signal 11"));
    pq_processes_stop(&set, soon, NULL);
}

static void who_does_not_get_ready_in_time_is_told(void **state)
{
    (void)state;
    struct pq_processes set = {.stop_fd = -1};
    struct pq_why why = {{0}};
    struct pq_process *p = shell(&set, "exec sleep 100", true);
    assert_int_equal(pq_process_await_ready(&set, p, 20 * PQ_NS_PER_MS, &why), PQ_E_TIMEOUT);
    assert_non_null(strstr(why.text, "did not get ready"));
    pq_processes_stop(&set, soon, NULL);
}

static void who_ignores_sigterm_is_killed(void **state)
{
    (void)state;
    struct pq_processes set = {.stop_fd = -1};
    struct pq_why why = {{0}};
    struct pq_process *p =
        shell(&set, "trap '' TERM; echo ready a b >&$1; eval \"exec $1>&-\"; while :; do sleep 100; done", true);
    assert_int_equal(pq_process_await_ready(&set, p, soon, &why), 0);
    pid_t group = p->pid;
    assert_int_equal(pq_processes_stop(&set, 50 * PQ_NS_PER_MS, &why), PQ_E_TIMEOUT);
    kill(-group, SIGKILL);
    assert_non_null(strstr(why.text, "was killed"));
    assert_int_equal(set.count, 0);
}

static void a_request_to_stop_ends_the_wait(void **state)
{
    (void)state;
    int stop[2];
    assert_int_equal(pipe2(stop, O_CLOEXEC), 0);
    struct pq_processes set = {.stop_fd = stop[0]};
    struct pq_process *p = shell(&set, "exec sleep 100", false);
    assert_int_equal(write(stop[1], "s", 1), 1);
    assert_int_equal(pq_process_await_end(&set, p, soon, NULL), PQ_E_INTERRUPTED);
    pq_processes_stop(&set, soon, NULL);
    close(stop[0]);
    close(stop[1]);
}

static void a_failing_status_is_an_error_and_0_is_none(void **state)
{
    (void)state;
    struct pq_processes set = {.stop_fd = -1};
    struct pq_why why = {{0}};
    assert_int_equal(pq_process_await_end(&set, shell(&set, "exit 0", false), soon, &why), 0);
    assert_int_equal(pq_process_await_end(&set, shell(&set, "exit 1", false), soon, &why), PQ_E_CLOSED);
    assert_int_equal(pq_processes_stop(&set, soon, &why), 0);
}

/* A child burns CPU and is reaped, another burns and lives: the tree has both. */
static void cost_counts_the_whole_tree(void **state)
{
    (void)state;
    struct pq_processes set = {.stop_fd = -1};
    struct pq_why why = {{0}};
    struct pq_process_cost cost;
    static const char burn[] =
        "burn() { i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; };"
        "(burn) & wait $!;"
        "(burn; echo ready a b >&$1; eval \"exec $1>&-\"; sleep 100) & eval \"exec $1>&-\"; sleep 100; :";
    struct pq_process *p = shell(&set, burn, true);
    assert_int_equal(pq_process_await_ready(&set, p, soon, &why), 0);
    assert_int_equal(pq_process_cost(p, &cost, &why), 0);
    /* Each loop takes 20 ms or more anywhere; one tick may be lost on the one that was reaped. */
    assert_true(cost.cpu_ns > 20 * PQ_NS_PER_MS);
    assert_true(cost.cpu_ns < 60 * PQ_NS_PER_S);
    assert_true(cost.peak_rss_kib > 1000);
    struct pq_process_cost again;
    assert_int_equal(pq_process_cost(p, &again, &why), 0);
    assert_true(again.cpu_ns >= cost.cpu_ns);
    pid_t group = p->pid;
    pq_processes_stop(&set, soon, NULL);
    kill(-group, SIGKILL);
}

static void a_program_that_is_not_there_is_told(void **state)
{
    (void)state;
    struct pq_processes set = {.stop_fd = -1};
    struct pq_why why = {{0}};
    const char *argv[] = {"nothing", NULL};
    struct pq_process_start how = {
        .name = "nothing", .log = log_path, .program = "/nowhere/nothing", .argv = argv, .netns = -1, .ready = true};
    struct pq_process *p = NULL;
    assert_int_equal(truncate(log_path, 0), 0);
    assert_int_equal(pq_process_start(&set, &how, &p, &why), 0);
    assert_int_equal(pq_process_await_ready(&set, p, soon, &why), PQ_E_CLOSED);
    assert_non_null(strstr(why.text, "can't run /nowhere/nothing: No such file"));
    pq_processes_stop(&set, soon, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_gets_ready_and_ends_when_told),
        cmocka_unit_test(its_end_before_readiness_is_told_with_its_last_words),
        cmocka_unit_test(a_death_while_another_is_awaited_is_an_error),
        cmocka_unit_test(who_does_not_get_ready_in_time_is_told),
        cmocka_unit_test(who_ignores_sigterm_is_killed),
        cmocka_unit_test(a_request_to_stop_ends_the_wait),
        cmocka_unit_test(a_failing_status_is_an_error_and_0_is_none),
        cmocka_unit_test(cost_counts_the_whole_tree),
        cmocka_unit_test(a_program_that_is_not_there_is_told),
    };
    int fd = mkstemp(log_path);
    if (fd < 0)
        return 1;
    close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(log_path);
    return failed;
}
