#include "net/namespace.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "net/links.h"

static int nothing(void *context, int stop_fd, struct pq_why *why)
{
    (void)context, (void)stop_fd, (void)why;
    return 0;
}

static void skip_without_namespaces(void)
{
    struct pq_why why = {{0}};
    int e = pq_namespace_run(nothing, NULL, &why);
    if (e == PQ_E_PERMISSION) {
        print_message("no namespaces here: %s\n", why.text);
        skip();
    }
    assert_int_equal(e, 0);
}

static int look_around(void *context, int stop_fd, struct pq_why *why)
{
    (void)context, (void)stop_fd;
    if (getpid() != 1)
        return pq_why(why, PQ_E_INVALID, "process %d", (int)getpid());
    if (access("/run/netns", F_OK) < 0 || access("/proc/1/exe", F_OK) < 0)
        return pq_why(why, PQ_E_INVALID, "/run or /proc is not furnished");
    struct pq_link_counts c;
    TRY(pq_link_counts(-1, "lo", &c, why));
    return pq_link_counts(-1, "eth0", &c, NULL) == PQ_E_NOT_FOUND
               ? 0
               : pq_why(why, PQ_E_INVALID, "the host's interfaces are visible");
}

static void the_inside_is_private(void **state)
{
    (void)state;
    skip_without_namespaces();
    struct pq_why why = {{0}};
    if (pq_namespace_run(look_around, NULL, &why) != 0)
        fail_msg("%s", why.text);
    assert_int_not_equal(getpid(), 1);
}

static int fails(void *context, int stop_fd, struct pq_why *why)
{
    (void)stop_fd;
    return pq_why(why, PQ_E_POLICY, "no: %s", (const char *)context);
}

static void an_error_inside_comes_out_with_its_sentence(void **state)
{
    (void)state;
    skip_without_namespaces();
    struct pq_why why = {{0}};
    char word[] = "never";
    assert_int_equal(pq_namespace_run(fails, word, &why), PQ_E_POLICY);
    assert_string_equal(why.text, "no: never");
}

static int kills_itself(void *context, int stop_fd, struct pq_why *why)
{
    (void)context, (void)stop_fd, (void)why;
    _exit(0);
}

static void an_end_without_a_result_is_told(void **state)
{
    (void)state;
    skip_without_namespaces();
    struct pq_why why = {{0}};
    assert_int_equal(pq_namespace_run(kills_itself, NULL, &why), PQ_E_LIMIT);
    assert_non_null(strstr(why.text, "without a result"));
}

static int two_hosts(void *context, int stop_fd, struct pq_why *why)
{
    (void)context, (void)stop_fd;
    DEFER(pq_closep) int a = -1;
    DEFER(pq_closep) int b = -1;
    char batch[200];
    struct pq_link_counts before, after;
    TRY(pq_netns_new("a", &a, why));
    TRY(pq_netns_new("b", &b, why));
    snprintf(batch, sizeof batch,
             "link add name va type veth peer name vb netns /proc/%d/fd/%d\nlink set va up\naddress add 198.18.0.1/24 "
             "dev va\n",
             (int)getpid(), b);
    TRY(pq_ip_batch(a, batch, why));
    TRY(pq_ip_batch(b, "link set vb up\naddress add 198.18.0.2/24 dev vb\n", why));
    TRY(pq_link_no_offload(a, "va", why));
    TRY(pq_link_counts(a, "va", &before, why));
    TRY(pq_netns_enter(a, why));
    DEFER(pq_closep) int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    /* 198.18.0.2, port 9: an ARP request goes out at least */
    const unsigned char to[16] = {AF_INET, 0, 0, 9, 198, 18, 0, 2};
    struct sockaddr_storage sa = {0};
    memcpy(&sa, to, sizeof to);
    sa.ss_family = AF_INET;
    if (sendto(s, "x", 1, 0, (struct sockaddr *)&sa, sizeof to) != 1)
        return pq_why(why, PQ_E_IO, "sendto: %s", strerror(errno));
    TRY(pq_link_counts(a, "va", &after, why));
    return after.bytes_out > before.bytes_out ? 0 : pq_why(why, PQ_E_INVALID, "the interface counted nothing");
}

static void two_hosts_share_a_cable_and_its_bytes_are_counted(void **state)
{
    (void)state;
    skip_without_namespaces();
    struct pq_why why = {{0}};
    if (pq_namespace_run(two_hosts, NULL, &why) != 0)
        fail_msg("%s", why.text);
}

static int bad_batch(void *context, int stop_fd, struct pq_why *why)
{
    (void)context, (void)stop_fd;
    return pq_ip_batch(-1, "link set dev nowhere up\n", why);
}

static void what_ip_says_becomes_the_sentence(void **state)
{
    (void)state;
    skip_without_namespaces();
    struct pq_why why = {{0}};
    assert_true(pq_namespace_run(bad_batch, NULL, &why) < 0);
    assert_non_null(strstr(why.text, "nowhere"));
    assert_null(strchr(why.text, '\n'));
}

/* Tells that it is there, then waits for the word to stop. */
static int wait_for_stop(void *context, int stop_fd, struct pq_why *why)
{
    const int *told = context;
    if (write(*told, "1", 1) != 1)
        return PQ_E_IO;
    struct pollfd p = {.fd = stop_fd, .events = POLLIN};
    return poll(&p, 1, 20000) == 1 ? pq_why(why, PQ_E_INTERRUPTED, "stopped") : 0;
}

static void a_signal_asks_the_inside_to_stop(void **state)
{
    (void)state;
    skip_without_namespaces();
    int told[2];
    char one;
    assert_int_equal(pipe(told), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(pq_namespace_run(wait_for_stop, &told[1], NULL) == PQ_E_INTERRUPTED ? 42 : 1);
    assert_int_equal(read(told[0], &one, 1), 1);
    assert_int_equal(kill(pid, SIGINT), 0);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    close(told[0]);
    close(told[1]);
}

/* A grandchild in there holds a pipe's end: its end of file is the death of all. */
static int hold_forever(void *context, int stop_fd, struct pq_why *why)
{
    (void)stop_fd, (void)why;
    const int *held = context;
    if (fork() == 0) {
        setsid();
        for (;;)
            pause();
    }
    if (write(*held, "1", 1) != 1)
        return PQ_E_IO;
    for (;;)
        pause();
}

static void killing_the_caller_ends_everything_inside(void **state)
{
    (void)state;
    skip_without_namespaces();
    int held[2];
    char one;
    assert_int_equal(pipe(held), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(pq_namespace_run(hold_forever, &held[1], NULL) == 0);
    close(held[1]);
    assert_int_equal(read(held[0], &one, 1), 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    struct pollfd p = {.fd = held[0], .events = POLLIN};
    assert_int_equal(poll(&p, 1, 10000), 1);
    assert_int_equal(read(held[0], &one, 1), 0);
    close(held[0]);
}

static bool signal_the_forked;

static void in_the_forked(void)
{
    if (signal_the_forked)
        raise(SIGINT);
}

/* As Ctrl-C does that comes between fork() and the child's first step. */
static void a_signal_to_the_whole_group_does_not_end_what_has_just_begun(void **state)
{
    (void)state;
    skip_without_namespaces();
    struct pq_why why = {{0}};
    assert_int_equal(pthread_atfork(NULL, NULL, in_the_forked), 0);
    signal_the_forked = true;
    int e = pq_namespace_run(nothing, NULL, &why);
    signal_the_forked = false;
    if (e != 0)
        fail_msg("%s", why.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_inside_is_private),
        cmocka_unit_test(an_error_inside_comes_out_with_its_sentence),
        cmocka_unit_test(an_end_without_a_result_is_told),
        cmocka_unit_test(two_hosts_share_a_cable_and_its_bytes_are_counted),
        cmocka_unit_test(what_ip_says_becomes_the_sentence),
        cmocka_unit_test(a_signal_asks_the_inside_to_stop),
        cmocka_unit_test(a_signal_to_the_whole_group_does_not_end_what_has_just_begun),
        cmocka_unit_test(killing_the_caller_ends_everything_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
