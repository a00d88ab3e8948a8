#include "proxy/connection.h"

#include <ev.h>
#include <poll.h>
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

struct world {
    struct certs certs;
    char text[2048];
};

static void free_config(struct pq_proxy_config *c) { pq_proxy_config_free(c); }

static int make_world(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    certs_new(&w->certs);
    const struct cert *root = certs_make(&w->certs, (struct cert_how){.algorithm = "p384", .name = "root", .ca = true});
    const struct cert *leaf = certs_make(
        &w->certs, (struct cert_how){.algorithm = "p384", .name = "leaf", .issuer = root, .san = "DNS:leaf.example"});
    snprintf(
        w->text, sizeof w->text,
        "tls: {certificate: %s, key: %s, ca: %s, policy: {mode: classical, level: 3}}\n"
        "ingress: [{name: sbi, listen: '127.0.0.1:0', forward: '127.0.0.1:9'}]\n"
        "egress: [{name: nrf, listen: '127.0.0.1:0', connect: '127.0.0.1:9', peers: [leaf.example, '127.0.0.1']}]\n",
        leaf->chain, leaf->key_file, root->chain);
    *state = w;
    return 0;
}

static int free_world(void **state)
{
    certs_free(&((struct world *)*state)->certs);
    free(*state);
    return 0;
}

static void read_config(const struct world *w, struct pq_proxy_config *c)
{
    struct pq_why why = {""};
    if (pq_proxy_config_parse("p.yaml", w->text, strlen(w->text), c, &why) < 0 ||
        pq_proxy_config_resolve(c, &pq_lookup_system, &why) < 0)
        fail_msg("%s", why.text);
}

static void every_allocation_of_a_generation_may_fail(void **state)
{
    struct world *w = *state;
    for (long n = 1;; n++) {
        DEFER(free_config) struct pq_proxy_config config = {0};
        struct pq_generation *g = NULL;
        struct pq_why why = {""};
        read_config(w, &config);
        pq_alloc_fail_at(n);
        int e = pq_generation_new(w->certs.crypto, &config, &(struct pq_files *){NULL}, NULL, 7, &g, &why);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        if (!reached) {
            assert_int_equal(e, 0);
            assert_true(n > 2);
            assert_int_equal(g->number, 7);
            assert_int_equal(g->count, 2);
            assert_string_equal(g->routes[1].how->name, "nrf");
            assert_int_equal(config.ingress.count, 0);
            pq_generation_keep(g);
            pq_generation_free(g);
            pq_generation_free(g);
            break;
        }
        assert_int_equal(e, PQ_E_NOMEM);
        assert_null(g);
    }
}

static void names_that_no_certificate_shows_are_refused(void **state)
{
    struct world *w = *state;
    DEFER(free_config) struct pq_proxy_config config = {0};
    read_config(w, &config);
    struct pq_strings *peers = &pq_proxy_listener_at(&config, 1)->peers;
    free(peers->at[1]);
    peers->at[1] = strdup(".example");
    struct pq_generation *g = NULL;
    struct pq_why why = {""};
    assert_int_equal(pq_generation_new(w->certs.crypto, &config, &(struct pq_files *){NULL}, NULL, 1, &g, &why),
                     PQ_E_INVALID);
    assert_null(g);
    assert_non_null(strstr(why.text, "p.yaml:3:31: egress \"nrf\": peers: one of them is no name"));
}

/* --- one connection ------------------------------------------------------------------------------------------------
 */
static int closed_count;
static void count_closed(void *context)
{
    closed_count++;
    ev_break(context, EVBREAK_ALL);
}

/* Whatever allocation fails, one connection ends and says so; what comes here is plain text, so that one for which all
 * succeed ends too. */
static void every_allocation_of_a_connection_may_fail(void **state)
{
    struct world *w = *state;
    DEFER(free_config) struct pq_proxy_config config = {0};
    read_config(w, &config);
    struct pq_proxy_listener *how = pq_proxy_listener_at(&config, 0);
    struct pq_tls_settings settings = pq_proxy_listener_tls(&config, how);
    struct pq_route route = {.how = how};
    DEFER(pq_shared_freep) struct pq_shared *shared = NULL;
    assert_int_equal(pq_shared_new(&shared), 0);
    assert_int_equal(pq_tls_context_new(w->certs.crypto, PQ_TLS_SERVER, &settings, &route.tls, NULL), 0);
    struct ev_loop *loop = ev_loop_new(0);
    struct pq_connections set;
    assert_int_equal(pq_connections_init(&set, loop, &config, shared, 3, NULL), 0);
    const struct pq_direction_counters *counted = &set.counters->direction[PQ_PROXY_INGRESS];
    set.closed = count_closed;
    set.context = loop;
    uint64_t failures = 0;
    pq_log_set(PQ_LOG_ERROR - 1, PQ_LOG_LOGFMT);
    for (bool reached = true; reached;) {
        int pair[2];
        struct pq_address from = {.sa.ss_family = AF_UNIX};
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
        assert_int_equal(send(pair[1], "GET /", 5, 0), 5);
        pq_alloc_fail_at((long)failures + 1);
        pq_connection_accept(&set, &route, pair[0], &from);
        if (set.count)
            ev_run(loop, 0);
        reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        failures += reached;
        assert_int_equal(counted->ends[PQ_PROXY_MEMORY], failures);
        assert_int_equal(counted->tls[PQ_TLS_NOT_TLS], reached ? 0 : 1);
        assert_int_equal(set.count, 0);
        assert_int_equal(pq_shared_open(shared), 0);
        close(pair[1]);
    }
    assert_true(failures >= 2);
    assert_int_equal(counted->accepted, failures + 1);
    assert_int_equal(closed_count, failures); /* the first failure came before there was a connection */
    pq_log_set(PQ_LOG_INFO, PQ_LOG_LOGFMT);
    pq_connections_free(&set);
    ev_loop_destroy(loop);
    pq_tls_context_free(route.tls);
}

/* The end does not wait for the loop, which may not run any more. */
static void all_end_though_some_are_in_their_handshake(void **state)
{
    enum { COUNT = 5 };
    struct world *w = *state;
    DEFER(free_config) struct pq_proxy_config config = {0};
    read_config(w, &config);
    struct pq_proxy_listener *how = pq_proxy_listener_at(&config, 0);
    struct pq_tls_settings settings = pq_proxy_listener_tls(&config, how);
    struct pq_route route = {.how = how};
    assert_int_equal(pq_tls_context_new(w->certs.crypto, PQ_TLS_SERVER, &settings, &route.tls, NULL), 0);
    struct ev_loop *loop = ev_loop_new(0);
    struct pq_connections set;
    DEFER(pq_shared_freep) struct pq_shared *shared = NULL;
    assert_int_equal(pq_shared_new(&shared), 0);
    assert_int_equal(pq_connections_init(&set, loop, &config, shared, 0, NULL), 0);
    pq_log_set(PQ_LOG_ERROR, PQ_LOG_LOGFMT);
    int pairs[COUNT][2];
    struct pq_address from = {.sa.ss_family = AF_UNIX};
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pairs[i]), 0);
        pq_connection_accept(&set, &route, pairs[i][0], &from);
    }
    assert_int_equal(set.count, COUNT);
    pq_connections_end(&set, PQ_PROXY_DRAIN);
    assert_int_equal(set.count, 0);
    assert_int_equal(pq_shared_open(shared), 0);
    assert_int_equal(set.counters->direction[PQ_PROXY_INGRESS].ends[PQ_PROXY_DRAIN], COUNT);
    for (int i = 0; i < COUNT; i++) {
        char byte;
        assert_int_equal(recv(pairs[i][1], &byte, 1, MSG_DONTWAIT), 0);
        close(pairs[i][1]);
    }
    pq_log_set(PQ_LOG_INFO, PQ_LOG_LOGFMT);
    pq_connections_free(&set);
    ev_loop_destroy(loop);
    pq_tls_context_free(route.tls);
}

static void connections_of_all_workers_share_the_limit(void **state)
{
    struct world *w = *state;
    DEFER(free_config) struct pq_proxy_config config = {0};
    DEFER(pq_shared_freep) struct pq_shared *shared = NULL;
    DEFER(pq_generation_freep) struct pq_generation *g = NULL;
    read_config(w, &config);
    assert_int_equal(pq_shared_new(&shared), 0);
    assert_int_equal(pq_generation_new(w->certs.crypto, &config, &(struct pq_files *){NULL}, NULL, 1, &g, NULL), 0);
    g->config.limits.connections = 2;
    struct ev_loop *loop = ev_loop_new(0);
    struct pq_connections set;
    assert_int_equal(pq_connections_init(&set, loop, &g->config, shared, 0, NULL), 0);
    pq_shared_use(shared, 5);
    shared->worker[5].open = 1; /* another worker's */
    pq_log_set(PQ_LOG_ERROR - 1, PQ_LOG_LOGFMT);
    for (int i = 0; i < 2; i++) {
        int pair[2];
        struct pq_address from = {.sa.ss_family = AF_UNIX};
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
        pq_connection_accept(&set, &g->routes[0], pair[0], &from);
        assert_int_equal(set.count, 1);
        assert_int_equal(g->references, 2);
        assert_int_equal(set.counters->direction[PQ_PROXY_INGRESS].ends[PQ_PROXY_LIMIT], i);
        close(pair[1]);
    }
    pq_shared_clear(&shared->worker[5]);
    assert_int_equal(pq_shared_open(shared), 1);
    pq_connections_end(&set, PQ_PROXY_DRAIN);
    assert_int_equal(g->references, 1);
    shared->worker[5].counters.direction[PQ_PROXY_EGRESS].ends[PQ_PROXY_LIMIT] = 4;
    DEFER(pq_freep) struct pq_proxy_counters *sum = calloc(1, sizeof *sum);
    pq_shared_sum(shared, sum);
    assert_int_equal(sum->direction[PQ_PROXY_INGRESS].ends[PQ_PROXY_LIMIT], 1);
    assert_int_equal(sum->direction[PQ_PROXY_EGRESS].ends[PQ_PROXY_LIMIT], 4);
    assert_int_equal(sum->direction[PQ_PROXY_INGRESS].accepted, 2);
    pq_log_set(PQ_LOG_INFO, PQ_LOG_LOGFMT);
    pq_connections_free(&set);
    ev_loop_destroy(loop);
}

static void counters_are_told(void **state)
{
    (void)state;
    static struct pq_proxy_counters c;
    char text[200], little[8];
    pq_proxy_counters_text(&c, text, sizeof text);
    assert_string_equal(text, "");
    c.direction[0].ends[PQ_PROXY_END] = 12;
    c.direction[1].ends[PQ_PROXY_IDLE] = 1;
    c.direction[1].ends[PQ_PROXY_TLS] = 5;
    c.direction[1].tls[PQ_TLS_EXPIRED] = 2;
    c.direction[1].tls[PQ_TLS_POLICY_KEX] = 3;
    pq_proxy_counters_text(&c, text, sizeof text);
    assert_string_equal(text, "end=12 idle=1 expired=2 policy-pq-kex=3");
    pq_proxy_counters_text(&c, little, sizeof little);
    assert_string_equal(little, "end=12 ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_of_a_generation_may_fail),
        cmocka_unit_test(names_that_no_certificate_shows_are_refused),
        cmocka_unit_test(connections_of_all_workers_share_the_limit),
        cmocka_unit_test(every_allocation_of_a_connection_may_fail),
        cmocka_unit_test(all_end_though_some_are_in_their_handshake),
        cmocka_unit_test(counters_are_told),
    };
    return cmocka_run_group_tests(tests, make_world, free_world);
}
