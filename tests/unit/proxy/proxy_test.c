#include "proxy/proxy.h"

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
#include "proxy/connection.h"

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
    if (pq_proxy_config_parse("p.yaml", w->text, strlen(w->text), c, &why) < 0 || pq_proxy_config_resolve(c, &why) < 0)
        fail_msg("%s", why.text);
}

static void it_listens_and_tells_where(void **state)
{
    struct world *w = *state;
    DEFER(free_config) struct pq_proxy_config config = {0};
    DEFER(pq_proxy_freep) struct pq_proxy *p = NULL;
    DEFER(pq_freep) char *text = NULL;
    struct pq_why why = {""};
    size_t size;
    read_config(w, &config);
    if (pq_proxy_new(w->certs.crypto, &config, &p, &why) < 0 || pq_proxy_listen(p, &why) < 0)
        fail_msg("%s", why.text);
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    assert_int_equal(pq_proxy_ready(p, out), 0);
    fclose(out);
    int ports[2];
    assert_int_equal(sscanf(text, "ready sbi 127.0.0.1:%d\nready nrf 127.0.0.1:%d\n", &ports[0], &ports[1]), 2);
    assert_true(ports[0] > 0 && ports[1] > 0);
}

static void every_allocation_of_a_proxy_may_fail(void **state)
{
    struct world *w = *state;
    DEFER(free_config) struct pq_proxy_config config = {0};
    read_config(w, &config);
    for (long n = 1;; n++) {
        struct pq_proxy *p = NULL;
        struct pq_why why = {""};
        pq_alloc_fail_at(n);
        int e = pq_proxy_new(w->certs.crypto, &config, &p, &why);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        if (!reached) {
            assert_int_equal(e, 0);
            assert_true(n > 2);
            pq_proxy_free(p);
            break;
        }
        assert_int_equal(e, PQ_E_NOMEM);
        assert_null(p);
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
    struct pq_proxy *p = NULL;
    struct pq_why why = {""};
    assert_int_equal(pq_proxy_new(w->certs.crypto, &config, &p, &why), PQ_E_INVALID);
    assert_non_null(strstr(why.text, "p.yaml:3:31: egress \"nrf\": peers: one of them is no name"));
}

/* Another process may have taken the path over, for a restart without a gap. */
static void a_path_that_another_bound_stays(void **state)
{
    struct world *w = *state;
    for (int taken = 0; taken < 2; taken++) {
        DEFER(free_config) struct pq_proxy_config config = {0};
        DEFER(pq_closep) int other = -1;
        struct pq_proxy *p = NULL;
        struct pq_why why = {""};
        char folder[] = "/tmp/pq-proxy-XXXXXX", text[PQ_ADDRESS_TEXT];
        struct pq_address at;
        read_config(w, &config);
        assert_non_null(mkdtemp(folder));
        snprintf(text, sizeof text, "unix:%s/s", folder);
        const char *path = text + strlen("unix:");
        assert_int_equal(pq_address_parse(text, &at, NULL), 0);
        pq_proxy_listener_at(&config, 1)->listen.at = at;
        if (pq_proxy_new(w->certs.crypto, &config, &p, &why) < 0 || pq_proxy_listen(p, &why) < 0)
            fail_msg("%s", why.text);
        assert_int_equal(access(path, F_OK), 0);
        if (taken) {
            assert_int_equal(unlink(path), 0);
            assert_int_equal(pq_tcp_listen(&at, 0, &other, &why), 0);
        }
        pq_proxy_free(p);
        assert_int_equal(access(path, F_OK), taken ? 0 : -1);
        unlink(path);
        assert_int_equal(rmdir(folder), 0);
    }
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
    assert_int_equal(pq_tls_context_new(w->certs.crypto, PQ_TLS_SERVER, &settings, &route.tls, NULL), 0);
    struct ev_loop *loop = ev_loop_new(0);
    struct pq_connections set;
    static struct pq_proxy_counters counters;
    const struct pq_direction_counters *counted = &counters.direction[PQ_PROXY_INGRESS];
    assert_int_equal(pq_connections_init(&set, loop, &config, &counters, NULL), 0);
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
    static struct pq_proxy_counters counters;
    assert_int_equal(pq_connections_init(&set, loop, &config, &counters, NULL), 0);
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
    assert_int_equal(counters.direction[PQ_PROXY_INGRESS].ends[PQ_PROXY_DRAIN], COUNT);
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
        cmocka_unit_test(it_listens_and_tells_where),
        cmocka_unit_test(every_allocation_of_a_proxy_may_fail),
        cmocka_unit_test(names_that_no_certificate_shows_are_refused),
        cmocka_unit_test(a_path_that_another_bound_stays),
        cmocka_unit_test(every_allocation_of_a_connection_may_fail),
        cmocka_unit_test(all_end_though_some_are_in_their_handshake),
        cmocka_unit_test(counters_are_told),
    };
    return cmocka_run_group_tests(tests, make_world, free_world);
}
