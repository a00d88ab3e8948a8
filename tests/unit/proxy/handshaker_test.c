#include "proxy/handshaker.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "../alloc.h"
#include "../tls/certs.h"
#include "../tls/pair.h"
#include "base/clock.h"

/* --- what stands in for two functions ------------------------------------------------------------------------------
 * The thread stops before its first step where a test says so; the order of the steps is written down. */
static struct {
    atomic_bool hold, holds;
    sem_t go;
    atomic_int steps;
    struct pq_tls *order[64];
} gate;

int __real_pq_tls_handshake(struct pq_tls *t);
int __wrap_pq_tls_handshake(struct pq_tls *t);
int __wrap_pq_tls_handshake(struct pq_tls *t)
{
    int step = atomic_fetch_add(&gate.steps, 1);
    if (step < (int)PQ_COUNT(gate.order))
        gate.order[step] = t;
    if (atomic_exchange(&gate.hold, false)) {
        atomic_store(&gate.holds, true);
        sem_wait(&gate.go);
    }
    return __real_pq_tls_handshake(t);
}

static bool no_thread;
int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *context);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *context);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *context)
{
    return no_thread ? EAGAIN : __real_pthread_create(t, a, f, context);
}

/* --- the world: two contexts, a loop, a handshaker ------------------------------------------------------------------
 */
struct world {
    struct certs certs;
    struct pair pair;
    struct ev_loop *loop;
    struct pq_handshaker *handshaker;
};
static struct world world;

struct one {
    struct pq_handshake handshake;
    int fd[2]; /* the handshaker's, the test's */
    int calls, result, order;
    struct pq_tls *tls;
};
static int done_count;

static int make_world(void **state)
{
    (void)state;
    certs_new(&world.certs);
    const struct cert *root =
        certs_make(&world.certs, (struct cert_how){.algorithm = "ML-DSA-44", .name = "root", .ca = true});
    const struct cert *leaf =
        certs_make(&world.certs,
                   (struct cert_how){.algorithm = "ML-DSA-44", .name = "leaf", .issuer = root, .san = "DNS:a.example"});
    struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 1, leaf, root);
    pair_new(&world.pair, world.certs.crypto, &s, &s, NULL, PAIR_PLAIN);
    return 0;
}

static int free_world(void **state)
{
    (void)state;
    pair_free(&world.pair);
    certs_free(&world.certs);
    return 0;
}

static int begin(void **state)
{
    (void)state;
    done_count = 0;
    memset(&gate, 0, sizeof gate);
    sem_init(&gate.go, 0, 0);
    world.loop = ev_loop_new(EVBACKEND_EPOLL);
    assert_non_null(world.loop);
    assert_int_equal(pq_handshaker_new(world.loop, &world.handshaker, NULL), 0);
    return 0;
}

static int finish(void **state)
{
    (void)state;
    pq_handshaker_free(world.handshaker);
    ev_loop_destroy(world.loop);
    sem_destroy(&gate.go);
    return 0;
}

static void on_done(struct pq_handshake *h, int e)
{
    struct one *o = (struct one *)(void *)h;
    o->calls++;
    o->result = e;
    o->order = done_count++;
    o->tls = h->tls;
    ev_break(world.loop, EVBREAK_ALL);
}

static void one_new(struct one *o, struct pq_tls_context *context)
{
    *o = (struct one){.handshake = {.context = context, .timeout = 60 * PQ_NS_PER_S, .done = on_done}, .result = 1};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, o->fd), 0);
    o->handshake.fd = o->fd[0];
}

static void one_free(struct one *o)
{
    pq_tls_free(o->tls);
    for (int i = 0; i < 2; i++)
        pq_closep(&o->fd[i]);
}

static void submit(struct one *o) { pq_handshaker_submit(world.handshaker, &o->handshake); }

static void wait_for(int count)
{
    while (done_count < count)
        ev_run(world.loop, EVRUN_ONCE);
}

/* A client and a server of one stream. */
static void two_new(struct one *client, struct one *server)
{
    one_new(client, world.pair.client_context);
    one_new(server, world.pair.server_context);
    pq_closep(&server->fd[0]);
    server->fd[0] = TAKE_FD(client->fd[1]);
    server->handshake.fd = server->fd[0];
}

static void expect_data(struct one *client, struct one *server)
{
    char in[16];
    size_t n = 0;
    assert_int_equal(pq_tls_write(client->tls, "question", 8, &n), 0);
    assert_int_equal(pq_tls_read(server->tls, in, sizeof in, &n), 0);
    assert_int_equal(n, 8);
}

/* --- tests --------------------------------------------------------------------------------------------------------
 */
static void both_roles_finish_and_the_owner_goes_on(void **state)
{
    (void)state;
    struct one client, server;
    two_new(&client, &server);
    submit(&server);
    submit(&client);
    assert_int_equal(pq_handshaker_in_flight(world.handshaker), 2);
    wait_for(2);
    assert_int_equal(pq_handshaker_in_flight(world.handshaker), 0);
    assert_int_equal(client.result, 0);
    assert_int_equal(server.result, 0);
    assert_string_equal(pq_tls_info(server.tls)->signature, "mldsa44");
    expect_data(&client, &server);
    one_free(&client);
    one_free(&server);
}

static void many_at_once(void **state)
{
    (void)state;
    enum { PAIRS = 40 };
    static struct one client[PAIRS], server[PAIRS];
    int cancelled = 0;
    for (int i = 0; i < PAIRS; i++) {
        two_new(&client[i], &server[i]);
        server[i].handshake.known = i % 3 == 0;
        submit(&client[i]);
        submit(&server[i]);
        if (i % 5 == 4)
            pq_handshaker_cancel(world.handshaker, &server[i].handshake);
    }
    /* Whose server is gone would wait until its timeout. */
    pq_handshaker_settle(world.handshaker);
    for (int i = 4; i < PAIRS; i += 5) {
        assert_int_equal(server[i].calls, 1);
        cancelled += server[i].result == PQ_E_INTERRUPTED;
        shutdown(server[i].fd[0], SHUT_RDWR);
    }
    wait_for(2 * PAIRS);
    for (int i = 0; i < PAIRS; i++) {
        assert_int_equal(client[i].calls, 1);
        assert_int_equal(server[i].calls, 1);
        if (i % 5 != 4) {
            assert_int_equal(client[i].result, 0);
            assert_int_equal(server[i].result, 0);
            expect_data(&client[i], &server[i]);
        }
        one_free(&client[i]);
        one_free(&server[i]);
    }
    assert_true(cancelled > 0);
}

static void a_failure_comes_with_its_reason(void **state)
{
    (void)state;
    struct one o;
    one_new(&o, world.pair.server_context);
    assert_int_equal(send(o.fd[1], "GET / HTTP/1.1\r\n", 16, 0), 16);
    submit(&o);
    wait_for(1);
    assert_int_equal(o.result, PQ_E_PROTOCOL);
    assert_int_equal(pq_tls_reason(o.tls), PQ_TLS_NOT_TLS);
    one_free(&o);
    one_new(&o, world.pair.server_context);
    pq_closep(&o.fd[1]);
    submit(&o);
    wait_for(2);
    assert_int_equal(o.result, PQ_E_RESET);
    assert_int_equal(pq_tls_reason(o.tls), PQ_TLS_RESET);
    one_free(&o);
}

/* A peer that never sends anything costs no TLS connection. */
static void who_stays_silent_is_given_up(void **state)
{
    (void)state;
    struct one silent, half;
    one_new(&silent, world.pair.server_context);
    one_new(&half, world.pair.server_context);
    assert_int_equal(send(half.fd[1], "\x16\x03\x01", 3, 0), 3);
    silent.handshake.timeout = half.handshake.timeout = PQ_NS_PER_MS;
    submit(&silent);
    wait_for(1);
    assert_int_equal(silent.result, PQ_E_TIMEOUT);
    assert_null(silent.tls);
    half.handshake.timeout = 200 * PQ_NS_PER_MS;
    submit(&half);
    wait_for(2);
    assert_int_equal(half.result, PQ_E_TIMEOUT);
    assert_int_equal(pq_handshaker_in_flight(world.handshaker), 0);
    one_free(&silent);
    one_free(&half);
}

static void hold_the_thread(struct one *first)
{
    atomic_store(&gate.hold, true);
    one_new(first, world.pair.server_context);
    assert_int_equal(send(first->fd[1], "\x16", 1, 0), 1);
    submit(first);
    while (!atomic_load(&gate.holds))
        sched_yield();
}

/* However long the thread is busy with others, that is not the peer's fault. */
static void the_wait_for_the_thread_does_not_count(void **state)
{
    (void)state;
    struct one first, client, server;
    hold_the_thread(&first);
    two_new(&client, &server);
    client.handshake.timeout = server.handshake.timeout = PQ_NS_PER_S;
    submit(&client);
    submit(&server);
    const struct timespec longer = {.tv_sec = 1, .tv_nsec = 200 * PQ_NS_PER_MS};
    nanosleep(&longer, NULL);
    sem_post(&gate.go);
    wait_for(2);
    assert_int_equal(client.result, 0);
    assert_int_equal(server.result, 0);
    pq_handshaker_cancel(world.handshaker, &first.handshake);
    pq_handshaker_settle(world.handshaker);
    one_free(&first);
    one_free(&client);
    one_free(&server);
}

static bool was_known(const struct one *all, int count, const struct pq_tls *t)
{
    for (int i = 0; i < count; i++)
        if (all[i].tls == t)
            return all[i].handshake.known;
    fail_msg("a step of nobody");
    return false;
}

static void known_ones_go_first_and_strangers_now_and_then(void **state)
{
    (void)state;
    enum { STRANGERS = 20, KNOWN = 20, ALL = STRANGERS + KNOWN, IN_A_ROW = 8 };
    static struct one all[ALL];
    struct one first;
    hold_the_thread(&first);
    for (int i = 0; i < ALL; i++) {
        one_new(&all[i], world.pair.server_context);
        all[i].handshake.known = i >= STRANGERS;
        assert_int_equal(send(all[i].fd[1], "x", 1, 0), 1);
        submit(&all[i]);
    }
    sem_post(&gate.go);
    wait_for(ALL);
    for (int i = 0, known = 0; i < ALL; i++) {
        bool turn = was_known(all, ALL, gate.order[1 + i]);
        assert_int_equal(turn, known < KNOWN && i % (IN_A_ROW + 1) != IN_A_ROW);
        known += turn;
    }
    pq_handshaker_cancel(world.handshaker, &first.handshake);
    pq_handshaker_settle(world.handshaker);
    one_free(&first);
    for (int i = 0; i < ALL; i++)
        one_free(&all[i]);
}

static void a_cancelled_one_comes_back_once(void **state)
{
    (void)state;
    struct one first, waits, queued, over;
    hold_the_thread(&first);
    one_new(&waits, world.pair.server_context);
    one_new(&queued, world.pair.client_context);
    one_new(&over, world.pair.server_context);
    assert_int_equal(send(over.fd[1], "x", 1, 0), 1);
    submit(&waits);
    submit(&queued);
    submit(&over);
    pq_handshaker_cancel(world.handshaker, &waits.handshake);
    pq_handshaker_cancel(world.handshaker, &waits.handshake);
    pq_handshaker_cancel(world.handshaker, &queued.handshake);
    sem_post(&gate.go);
    pq_handshaker_settle(world.handshaker);
    assert_int_equal(waits.calls, 1);
    assert_int_equal(waits.result, PQ_E_INTERRUPTED);
    assert_int_equal(queued.calls, 1);
    assert_int_equal(queued.result, PQ_E_INTERRUPTED);
    wait_for(3);
    assert_int_equal(over.calls, 1);
    assert_int_equal(over.result, PQ_E_PROTOCOL);
    assert_int_equal(pq_handshaker_in_flight(world.handshaker), 1);
    pq_handshaker_cancel(world.handshaker, &first.handshake);
    pq_handshaker_settle(world.handshaker);
    one_free(&first);
    one_free(&waits);
    one_free(&queued);
    one_free(&over);
}

static struct one again;
static void submit_again(struct pq_handshake *h, int e)
{
    on_done(h, e);
    submit(&again);
}

static void the_end_ends_all(void **state)
{
    (void)state;
    struct one a, b;
    one_new(&a, world.pair.server_context);
    one_new(&b, world.pair.client_context);
    one_new(&again, world.pair.client_context);
    a.handshake.done = submit_again;
    submit(&a);
    submit(&b);
    pq_handshaker_free(world.handshaker);
    world.handshaker = NULL;
    assert_int_equal(a.result, PQ_E_INTERRUPTED);
    assert_int_equal(b.result, PQ_E_INTERRUPTED);
    assert_int_equal(again.result, PQ_E_INTERRUPTED);
    assert_int_equal(a.calls + b.calls + again.calls, 3);
    one_free(&a);
    one_free(&b);
    one_free(&again);
}

static void no_thread_is_told(void **state)
{
    (void)state;
    struct pq_handshaker *h = NULL;
    struct pq_why why = {""};
    no_thread = true;
    int e = pq_handshaker_new(world.loop, &h, &why);
    no_thread = false;
    assert_int_equal(e, PQ_E_LIMIT);
    assert_null(h);
    assert_non_null(strstr(why.text, "can't start the thread for handshakes: "));
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct pq_handshaker *h = NULL;
    pq_alloc_fail_at(1);
    int e = pq_handshaker_new(world.loop, &h, NULL);
    pq_alloc_fail_at(0);
    assert_int_equal(e, PQ_E_NOMEM);
    assert_null(h);
    int failures = 0;
    for (bool reached = true; reached; failures += reached) {
        struct one o;
        one_new(&o, world.pair.server_context);
        assert_int_equal(send(o.fd[1], "x", 1, 0), 1);
        pq_alloc_fail_at(failures + 1);
        submit(&o);
        wait_for(failures + 1);
        reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        assert_int_equal(o.result, reached ? PQ_E_NOMEM : PQ_E_PROTOCOL);
        one_free(&o);
    }
    assert_true(failures > 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(both_roles_finish_and_the_owner_goes_on),
        TEST(many_at_once),
        TEST(a_failure_comes_with_its_reason),
        TEST(who_stays_silent_is_given_up),
        TEST(known_ones_go_first_and_strangers_now_and_then),
        TEST(the_wait_for_the_thread_does_not_count),
        TEST(a_cancelled_one_comes_back_once),
        TEST(the_end_ends_all),
        TEST(no_thread_is_told),
        TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_world, free_world);
}
