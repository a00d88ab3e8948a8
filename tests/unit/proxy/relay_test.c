#include "proxy/relay.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "../alloc.h"
#include "base/cleanup.h"
#include "base/random.h"
#include "net/tcp.h"

/* A function and a peer, joined by a relay over two TCP connections of the loopback interface; both sides are plain. */
enum { FUNCTION, PEER };

struct bench {
    int outside[2]; /* what the function and the peer hold */
    int inside[2];  /* what the relay holds */
    struct pq_ring_pool pool;
    struct pq_relay relay;
};

static void connect_pair(int *outside, int *inside)
{
    struct pq_address any;
    int listener;
    assert_int_equal(pq_address_parse("127.0.0.1:0", &any, NULL), 0);
    assert_int_equal(pq_tcp_listen(&any, 0, &listener, NULL), 0);
    struct pq_address bound = pq_address_local(listener);
    int e = pq_tcp_connect(&bound, outside, NULL);
    assert_true(e == 0 || e == PQ_E_WANT_WRITE);
    struct pollfd p = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 5000), 1);
    assert_int_equal(pq_tcp_accept(listener, inside, NULL), 0);
    assert_int_equal(pq_tcp_connected(*outside), 0);
    close(listener);
}

static struct bench *bench_new(size_t buffer)
{
    struct bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->pool.size = buffer;
    for (int i = 0; i < 2; i++)
        connect_pair(&b->outside[i], &b->inside[i]);
    pq_relay_init(&b->relay, b->inside[PQ_RELAY_LOCAL], b->inside[PQ_RELAY_PEER], NULL, &b->pool);
    return b;
}

static void bench_free(struct bench *b)
{
    pq_relay_free(&b->relay);
    assert_int_equal(b->pool.lent, 0);
    pq_ring_pool_free(&b->pool);
    for (int i = 0; i < 2; i++) {
        pq_closep(&b->outside[i]);
        pq_closep(&b->inside[i]);
    }
    free(b);
}

static short events_of(unsigned wants)
{
    return (short)((wants & PQ_RELAY_READ ? POLLIN : 0) | (wants & PQ_RELAY_WRITE ? POLLOUT : 0));
}

/* Serves whatever is ready within ms; what the relay says last. */
static int serve(struct bench *b, int ms)
{
    int e = pq_relay_pump(&b->relay, PQ_RELAY_LOCAL, 0);
    while (e == 0) {
        struct pollfd p[2];
        for (int i = 0; i < 2; i++) {
            unsigned wants = pq_relay_wants(&b->relay, (enum pq_relay_side)i);
            /* As libev does: a descriptor that nothing is wanted of is not polled at all. */
            p[i] = (struct pollfd){.fd = wants ? b->inside[i] : -1, .events = events_of(wants)};
        }
        if (poll(p, 2, ms) == 0)
            return pq_relay_lingers(&b->relay) ? pq_relay_pump(&b->relay, PQ_RELAY_LOCAL, 0) : 0;
        for (int i = 0; i < 2 && e == 0; i++) {
            unsigned ready = (p[i].revents & (POLLIN | POLLHUP | POLLERR) ? PQ_RELAY_READ : 0) |
                             (p[i].revents & (POLLOUT | POLLHUP | POLLERR) ? PQ_RELAY_WRITE : 0);
            if (p[i].revents)
                e = pq_relay_pump(&b->relay, (enum pq_relay_side)i, ready);
        }
    }
    return e;
}

static void put(struct bench *b, int who, const char *text)
{
    assert_int_equal(send(b->outside[who], text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* What waits at one of them: the text, "" at an end of stream, "(nothing)", "(reset)". */
static const char *got(struct bench *b, int who)
{
    static char text[256];
    ssize_t n = recv(b->outside[who], text, sizeof text - 1, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN ? "(nothing)" : "(reset)";
    text[n] = '\0';
    return text;
}

/* Closes with RST what the relay held, as its owner does after an error. */
static void abort_inside(struct bench *b)
{
    for (int i = 0; i < 2; i++) {
        pq_tcp_abort_on_close(b->inside[i], true);
        pq_closep(&b->inside[i]);
    }
}

static void reset_outside(struct bench *b, int who)
{
    pq_tcp_abort_on_close(b->outside[who], true);
    pq_closep(&b->outside[who]);
}

static void bytes_go_both_ways(void **state)
{
    (void)state;
    struct bench *b = bench_new(4096);
    put(b, FUNCTION, "question");
    assert_int_equal(serve(b, 20), 0);
    assert_string_equal(got(b, PEER), "question");
    put(b, PEER, "answer");
    assert_int_equal(serve(b, 20), 0);
    assert_string_equal(got(b, FUNCTION), "answer");
    assert_string_equal(got(b, PEER), "(nothing)");
    assert_int_equal(b->relay.flow[PQ_RELAY_LOCAL].bytes, 8);
    assert_int_equal(b->relay.flow[PQ_RELAY_PEER].bytes, 6);
    bench_free(b);
}

static void one_end_leaves_the_other_direction_open(void **state)
{
    for (int first = 0; first < 2; first++) {
        struct bench *b = bench_new(4096);
        int second = !first;
        put(b, first, "last words");
        shutdown(b->outside[first], SHUT_WR);
        assert_int_equal(serve(b, 20), 0);
        assert_string_equal(got(b, second), "last words");
        assert_string_equal(got(b, second), "");
        put(b, second, "still here");
        assert_int_equal(serve(b, 20), 0);
        assert_string_equal(got(b, first), "still here");
        assert_string_equal(got(b, first), "(nothing)");
        shutdown(b->outside[second], SHUT_WR);
        assert_int_equal(serve(b, 20), PQ_E_CLOSED);
        assert_string_equal(got(b, first), "");
        assert_false(b->relay.lost);
        bench_free(b);
    }
    (void)state;
}

static void nothing_is_waited_for_where_nothing_can_come(void **state)
{
    (void)state;
    struct bench *b = bench_new(4096);
    shutdown(b->outside[FUNCTION], SHUT_WR);
    assert_int_equal(serve(b, 20), 0);
    assert_int_equal(pq_relay_wants(&b->relay, PQ_RELAY_LOCAL), 0);
    assert_int_equal(pq_relay_wants(&b->relay, PQ_RELAY_PEER), PQ_RELAY_READ);
    bench_free(b);
}

static void a_reset_is_no_end(void **state)
{
    (void)state;
    for (int who = 0; who < 2; who++) {
        struct bench *b = bench_new(4096);
        reset_outside(b, who);
        assert_int_equal(serve(b, 200), PQ_E_RESET);
        assert_int_equal(b->relay.failed, who);
        abort_inside(b);
        assert_string_equal(got(b, !who), "(reset)");
        bench_free(b);
    }
}

/* The write finds the reset first; a read after it would show an end of stream. */
static void a_reset_that_a_write_finds_is_no_end_either(void **state)
{
    (void)state;
    struct bench *b = bench_new(4096);
    assert_int_equal(serve(b, 10), 0);
    reset_outside(b, FUNCTION);
    put(b, PEER, "too late");
    struct pollfd p = {.fd = b->inside[PQ_RELAY_PEER], .events = POLLIN};
    assert_int_equal(poll(&p, 1, 5000), 1);
    b->relay.end[PQ_RELAY_LOCAL].can_read = false;
    assert_int_equal(pq_relay_pump(&b->relay, PQ_RELAY_PEER, PQ_RELAY_READ), PQ_E_RESET);
    assert_int_equal(b->relay.failed, PQ_RELAY_LOCAL);
    bench_free(b);
}

/* The function sends an answer and closes at once; the peer, slow, still sends. Nothing of the answer may be lost. */
static void what_was_sent_before_a_close_arrives(void **state)
{
    (void)state;
    enum { TOTAL = 60000, SLOW = 1000 };
    struct bench *b = bench_new(16384);
    uint8_t *block = malloc(TOTAL), *back = malloc(TOTAL + SLOW);
    int small = 20000, waiting = 1, e = 0;
    assert_non_null(block);
    assert_non_null(back);
    for (int i = 0; i < 2; i++) { /* the peer's side holds little, so that the rest waits before the relay */
        setsockopt(b->outside[PEER], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        setsockopt(b->inside[PEER], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    }
    struct pq_rng rng = pq_rng(1);
    for (size_t i = 0; i < TOTAL; i++)
        block[i] = (uint8_t)pq_rng_next(&rng);
    assert_int_equal(send(b->outside[FUNCTION], block, TOTAL, MSG_NOSIGNAL), TOTAL);
    while (waiting) /* what the function's own kernel still held would be lost without any relay, too */
        assert_int_equal(ioctl(b->outside[FUNCTION], SIOCOUTQ, &waiting), 0);
    pq_closep(&b->outside[FUNCTION]);
    assert_int_equal(serve(b, 1), 0);

    size_t received = 0;
    for (ssize_t n = 1; n != 0;) {
        (void)!send(b->outside[PEER], "more", 4, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (e == 0)
            e = serve(b, 1);
        n = recv(b->outside[PEER], back + received, SLOW, MSG_DONTWAIT);
        assert_true(n >= 0 || (errno == EAGAIN && e == 0));
        received += n > 0 ? (size_t)n : 0;
        assert_true(received <= TOTAL);
    }
    assert_int_equal(received, TOTAL);
    assert_memory_equal(block, back, TOTAL);
    /* Then the peer learns that what it sent was not taken. */
    for (int i = 0; i < 200 && e == 0; i++) {
        (void)!send(b->outside[PEER], "more", 4, MSG_NOSIGNAL | MSG_DONTWAIT);
        e = serve(b, 5);
    }
    assert_int_equal(e, PQ_E_RESET);
    assert_int_equal(b->relay.failed, PQ_RELAY_LOCAL);
    assert_true(b->relay.lost);
    free(block);
    free(back);
    bench_free(b);
}

/* A peer that sends for ever and takes nothing moves nothing: it must not keep the connection alive. */
static void what_is_dropped_is_no_progress(void **state)
{
    (void)state;
    enum { TOTAL = 60000 };
    static const char block[TOTAL];
    struct bench *b = bench_new(4096);
    int small = 20000;
    setsockopt(b->outside[PEER], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    setsockopt(b->inside[PEER], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    ssize_t n = send(b->outside[FUNCTION], block, TOTAL, MSG_NOSIGNAL | MSG_DONTWAIT);
    assert_int_equal(n, TOTAL);
    assert_int_equal(serve(b, 5), 0);
    for (int waiting = 1, i = 0; waiting && i < 1000; i++) {
        assert_int_equal(ioctl(b->outside[FUNCTION], SIOCOUTQ, &waiting), 0);
        poll(NULL, 0, 1);
    }
    pq_closep(&b->outside[FUNCTION]);
    for (int i = 0; i < 100 && b->relay.flow[PQ_RELAY_PEER].state != PQ_FLOW_BROKEN; i++) {
        put(b, PEER, "more");
        assert_int_equal(serve(b, 5), 0);
    }
    assert_int_equal(b->relay.flow[PQ_RELAY_PEER].state, PQ_FLOW_BROKEN);
    uint64_t before = b->relay.progress;
    for (int i = 0; i < 20; i++) {
        put(b, PEER, "more");
        assert_int_equal(serve(b, 1), 0);
    }
    int waiting = 1;
    assert_int_equal(ioctl(b->inside[PEER], FIONREAD, &waiting), 0);
    assert_int_equal(waiting, 0);
    assert_int_equal(b->relay.progress, before);
    for (int i = 0, e = 0; i < 100 && e == 0 && b->relay.progress == before; i++) { /* but what it takes is */
        (void)!recv(b->outside[PEER], (char[20000]){0}, 20000, MSG_DONTWAIT);
        e = serve(b, 5);
        assert_true(e == 0 || e == PQ_E_RESET);
    }
    assert_true(b->relay.progress > before);
    bench_free(b);
}

static void a_full_ring_stops_reading(void **state)
{
    (void)state;
    struct bench *b = bench_new(4096);
    static const char block[65536];
    size_t sent = 0, idle = 0;
    while (idle < 3) {
        ssize_t n = send(b->outside[FUNCTION], block, sizeof block, MSG_DONTWAIT | MSG_NOSIGNAL);
        idle = n < 0 ? idle + 1 : 0;
        sent += n > 0 ? (size_t)n : 0;
        assert_int_equal(serve(b, 5), 0);
    }
    assert_int_equal(pq_relay_wants(&b->relay, PQ_RELAY_LOCAL), 0);
    assert_int_equal(pq_relay_wants(&b->relay, PQ_RELAY_PEER), PQ_RELAY_READ | PQ_RELAY_WRITE);
    assert_true(b->relay.flow[PQ_RELAY_LOCAL].ring.len <= 4096);
    shutdown(b->outside[FUNCTION], SHUT_WR);
    size_t received = 0;
    static char sink[65536];
    for (ssize_t n = 1; n != 0;) {
        int waiting = 0;
        assert_int_equal(serve(b, 1), 0);
        assert_int_equal(ioctl(b->outside[PEER], FIONREAD, &waiting), 0);
        n = recv(b->outside[PEER], sink, sizeof sink, MSG_DONTWAIT);
        received += n > 0 ? (size_t)n : 0;
        assert_true(n >= 0 || errno == EAGAIN);
    }
    assert_int_equal(received, sent);
    bench_free(b);
}

static void without_memory_it_says_so(void **state)
{
    (void)state;
    struct bench *b = bench_new(4096);
    put(b, FUNCTION, "x");
    struct pollfd p = {.fd = b->inside[PQ_RELAY_LOCAL], .events = POLLIN};
    assert_int_equal(poll(&p, 1, 5000), 1);
    pq_alloc_fail_at(1);
    int e = pq_relay_pump(&b->relay, PQ_RELAY_LOCAL, PQ_RELAY_READ);
    bool reached = pq_alloc_failed();
    pq_alloc_fail_at(0);
    assert_true(reached);
    assert_int_equal(e, PQ_E_NOMEM);
    bench_free(b);
}

static void states_have_names(void **state)
{
    (void)state;
    assert_string_equal(pq_flow_state_names[PQ_FLOW_OPEN], "open");
    assert_string_equal(pq_flow_state_names[PQ_FLOW_FLUSHING], "flushing");
    assert_string_equal(pq_flow_state_names[PQ_FLOW_ENDING], "ending");
    assert_string_equal(pq_flow_state_names[PQ_FLOW_ENDED], "ended");
    assert_string_equal(pq_flow_state_names[PQ_FLOW_BROKEN], "broken");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_go_both_ways),
        cmocka_unit_test(one_end_leaves_the_other_direction_open),
        cmocka_unit_test(nothing_is_waited_for_where_nothing_can_come),
        cmocka_unit_test(a_reset_is_no_end),
        cmocka_unit_test(a_reset_that_a_write_finds_is_no_end_either),
        cmocka_unit_test(what_was_sent_before_a_close_arrives),
        cmocka_unit_test(what_is_dropped_is_no_progress),
        cmocka_unit_test(a_full_ring_stops_reading),
        cmocka_unit_test(without_memory_it_says_so),
        cmocka_unit_test(states_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
