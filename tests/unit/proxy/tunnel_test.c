#include "proxy/tunnel.h"

#include <ev.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "../alloc.h"
#include "base/log.h"
#include "proxy/shared.h"
#include "proxy/upstream.h"

/* An ingress's end of a tunnel, without TLS, in front of a function that echoes what comes first and closes. */
struct world {
    struct ev_loop *loop;
    struct pq_proxy_config config;
    struct pq_shared *shared;
    struct pq_connections set;
    struct pq_route route;
    int function;
};

static int make_world(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct pq_address any, bound;
    char text[512], at[PQ_ADDRESS_TEXT];
    assert_non_null(w);
    pq_log_set(PQ_LOG_ERROR - 1, PQ_LOG_LOGFMT);
    assert_int_equal(pq_address_parse("127.0.0.1:0", &any, NULL), 0);
    assert_int_equal(pq_tcp_listen(&any, 0, &w->function, NULL), 0);
    bound = pq_address_local(w->function);
    pq_address_text(&bound, at);
    snprintf(text, sizeof text,
             "tls: {certificate: a, key: b, ca: c}\nlimits: {buffer: 4KiB, connections: 3}\n"
             "ingress: [{name: f, listen: '127.0.0.1:0', forward: '%s', authorities: [nrf]}]\n",
             at);
    w->loop = ev_loop_new(EVFLAG_AUTO);
    assert_non_null(w->loop);
    assert_int_equal(pq_proxy_config_parse("f.yaml", text, strlen(text), &w->config, NULL), 0);
    assert_int_equal(pq_proxy_config_resolve(&w->config, &pq_lookup_system, NULL), 0);
    assert_int_equal(pq_shared_new(&w->shared), 0);
    assert_int_equal(pq_connections_init(&w->set, w->loop, &w->config, w->shared, 0, NULL), 0);
    w->route.how = pq_proxy_listener_at(&w->config, 0);
    assert_int_equal(pq_upstream_new(&w->route.how->target, &w->route.upstream), 0);
    *state = w;
    return 0;
}

static int free_world(void **state)
{
    struct world *w = *state;
    pq_connections_end(&w->set, PQ_PROXY_DRAIN);
    assert_int_equal(pq_tunnel_count(&w->set), 0);
    assert_int_equal(w->set.count, 0);
    pq_connections_free(&w->set);
    pq_upstream_free(w->route.upstream);
    pq_shared_free(w->shared);
    pq_proxy_config_free(&w->config);
    ev_loop_destroy(w->loop);
    close(w->function);
    free(w);
    return 0;
}

static void serve(struct world *w)
{
    char bytes[4096];
    int fd;
    while (pq_tcp_accept(w->function, &fd, NULL) == 0) {
        ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n > 0)
            assert_true(send(fd, bytes, (size_t)n, MSG_NOSIGNAL) == n);
        close(fd);
    }
}

/* What the tunnel said meanwhile is put into out, as far as it fits. */
static size_t turns(struct world *w, int fd, int count, uint8_t *out, size_t size)
{
    size_t len = 0;
    for (int i = 0; i < count; i++) {
        uint8_t bytes[4096];
        ssize_t n;
        ev_run(w->loop, EVRUN_NOWAIT);
        serve(w);
        while ((n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
            for (ssize_t k = 0; k < n && len < size; k++)
                out[len++] = bytes[k];
    }
    return len;
}

static int open_tunnel(struct world *w)
{
    const struct pq_address from = {.sa.ss_family = AF_UNIX};
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    pq_tunnel_serve(&w->set, &w->route, ends[0], NULL, &from);
    return ends[1];
}

static void close_tunnel(struct world *w, int fd)
{
    close(fd);
    for (int i = 0; i < 1000 && pq_tunnel_count(&w->set); i++) {
        ev_run(w->loop, EVRUN_NOWAIT);
        serve(w);
    }
    assert_int_equal(pq_tunnel_count(&w->set), 0);
}

/* --- frames ------------------------------------------------------------------------------------------------------- */
#define MAGIC    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define SETTINGS "\0\0\0\4\0\0\0\0\0"
#define METHOD   "\0\7:method\7CONNECT"
#define NRF      "\0\12:authority\3nrf"
#define AMF      "\0\12:authority\3amf"
#define CONNECT  "\0\0\41\1\4\0\0\0\1" METHOD NRF
#define HELLO    "\0\0\5\0\1\0\0\0\1hello"

struct talk {
    const char *name, *bytes;
    size_t len;
    int times;             /* how often bytes come, after magic and SETTINGS */
    enum pq_proxy_end end; /* that is counted for it, once */
};
#define ROW(name, bytes, times, end) {name, bytes, sizeof bytes - 1, times, PQ_PROXY_##end}
static const struct talk talks[] = {
    ROW("a whole connection", CONNECT HELLO, 1, END),
    ROW("a reset", CONNECT "\0\0\4\3\0\0\0\0\1\0\0\0\10", 1, RESET_BY_PEER),
    ROW("an authority that is not allowed", "\0\0\41\1\4\0\0\0\1" METHOD AMF, 1, CONNECT_FORBIDDEN),
    ROW("another method", "\0\0\23\1\5\0\0\0\1\202\207\204" NRF, 1, BAD_REQUEST),
    ROW("no authority", "\0\0\21\1\5\0\0\0\1" METHOD, 1, BAD_REQUEST),
    ROW("HEADERS in mid-stream", CONNECT "\0\0\5\1\5\0\0\0\1\0\1a\1b", 1, RESET_BY_PEER),
    ROW("more PINGs than anybody needs", "\0\0\10\6\0\0\0\0\0pingpong", 5000, TUNNEL_FLOOD),
    ROW("SETTINGS for ever", SETTINGS, 5000, TUNNEL_FLOOD),
    ROW("WINDOW_UPDATE for ever", "\0\0\4\10\0\0\0\0\0\0\0\0\1", 5000, TUNNEL_FLOOD),
};

static void send_all(struct world *w, int fd, const void *bytes, size_t len)
{
    size_t sent = 0;
    while (sent < len && pq_tunnel_count(&w->set)) {
        ssize_t n = send(fd, (const uint8_t *)bytes + sent, len - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0)
            sent += (size_t)n;
        turns(w, fd, 1, NULL, 0);
    }
}

static uint64_t counted(const struct world *w, enum pq_proxy_end end)
{
    return w->set.counters->direction[PQ_PROXY_INGRESS].ends[end];
}

static void each_talk_ends_as_it_should(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < PQ_COUNT(talks); i++) {
        uint64_t before = counted(w, talks[i].end);
        int fd = open_tunnel(w);
        send_all(w, fd, MAGIC SETTINGS, sizeof MAGIC SETTINGS - 1);
        for (int k = 0; k < talks[i].times; k++)
            send_all(w, fd, talks[i].bytes, talks[i].len);
        for (int k = 0; k < 1000 && counted(w, talks[i].end) == before; k++)
            turns(w, fd, 1, NULL, 0);
        if (counted(w, talks[i].end) != before + 1)
            fail_msg("%s: not counted as %s", talks[i].name, pq_proxy_end_label(talks[i].end));
        close_tunnel(w, fd);
        assert_int_equal(w->set.count, 0);
    }
}

static void what_the_function_answers_comes_back(void **state)
{
    struct world *w = *state;
    static const char talk[] = MAGIC SETTINGS CONNECT HELLO;
    uint8_t out[4096];
    int fd = open_tunnel(w);
    assert_int_equal(send(fd, talk, sizeof talk - 1, MSG_NOSIGNAL), sizeof talk - 1);
    size_t len = turns(w, fd, 200, out, sizeof out);
    assert_non_null(memmem(out, len, "hello", 5));
    close_tunnel(w, fd);
}

static void any_part_of_a_talk_may_be_all_there_is(void **state)
{
    struct world *w = *state;
    static const char talk[] = MAGIC SETTINGS CONNECT HELLO;
    for (size_t len = 0; len < sizeof talk; len++) {
        int fd = open_tunnel(w);
        uint8_t *exact = malloc(len ? len : 1);
        assert_non_null(exact);
        memcpy(exact, talk, len);
        send_all(w, fd, exact, len);
        free(exact);
        close_tunnel(w, fd);
        for (int i = 0; i < 1000 && w->set.count; i++)
            turns(w, fd, 1, NULL, 0);
    }
}

static void limits_connections_holds(void **state)
{
    struct world *w = *state;
    char talk[] = CONNECT;
    int fd = open_tunnel(w);
    send_all(w, fd, MAGIC SETTINGS, sizeof MAGIC SETTINGS - 1);
    for (int i = 0; i < 5; i++) {
        talk[8] = (char)(1 + 2 * i);
        send_all(w, fd, talk, sizeof talk - 1);
    }
    assert_int_equal(w->set.count, 3);
    close_tunnel(w, fd);
}

static void every_allocation_may_fail(void **state)
{
    struct world *w = *state;
    static const char talk[] = MAGIC SETTINGS CONNECT HELLO;
    for (long n = 1;; n++) {
        pq_tunnel_free_all(&w->set);
        pq_alloc_fail_at(n);
        int fd = open_tunnel(w);
        send_all(w, fd, talk, sizeof talk - 1);
        turns(w, fd, 50, NULL, 0);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        close_tunnel(w, fd);
        for (int i = 0; i < 1000 && w->set.count; i++)
            turns(w, fd, 1, NULL, 0);
        assert_int_equal(w->set.count, 0);
        if (!reached) {
            assert_true(n > 4);
            break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_talk_ends_as_it_should),
        cmocka_unit_test(what_the_function_answers_comes_back),
        cmocka_unit_test(any_part_of_a_talk_may_be_all_there_is),
        cmocka_unit_test(limits_connections_holds),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_world, free_world);
}
