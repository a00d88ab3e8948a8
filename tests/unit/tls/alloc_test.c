/* Fails each allocation once, ours and OpenSSL's: an error, no crash, no leak, and never a connection that was not
 * verified. */
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "../alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "certs.h"
#include "pair.h"

static struct certs world;
static const struct cert *root, *leaf;
static const char *crl;

static int set_up(void **state)
{
    (void)state;
    certs_new(&world);
    root = certs_make(&world, (struct cert_how){.algorithm = "ML-DSA-44", .name = "root", .ca = true});
    leaf = certs_make(
        &world, (struct cert_how){
                    .algorithm = "ML-DSA-44", .name = "leaf", .issuer = root, .san = "DNS:leaf.example,URI:urn:a"});
    crl = certs_crl(&world, "crl", root, NULL, -60, 3600);
    return 0;
}
static int tear_down(void **state)
{
    (void)state;
    certs_free(&world);
    return 0;
}

static struct pq_tls_settings settings(void)
{
    struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 1, leaf, root);
    s.crl = (char *)(uintptr_t)crl;
    s.alpn = &pair_h2;
    s.policy.require_pq_kex = s.policy.require_pq_auth = true;
    s.policy.groups = (char *)(uintptr_t)"X25519MLKEM768:x25519";
    return s;
}

static void crypto(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        struct pq_crypto *c = NULL;
        struct pq_why why = {{0}};
        pq_alloc_fail_at(n);
        int e = pq_crypto_new(&c, &why);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        assert_true(e == 0 || (!c && why.text[0]));
        pq_crypto_free(c);
        if (!reached) {
            assert_int_equal(e, 0);
            break;
        }
    }
}

static void context(void **state)
{
    (void)state;
    struct pq_tls_settings s = settings();
    long failures = 0, n = 1;
    for (;; n++) {
        struct pq_tls_context *t = NULL;
        struct pq_why why = {{0}};
        pq_alloc_fail_at(n);
        int e = pq_tls_context_new(world.crypto, PQ_TLS_SERVER, &s, &t, &why);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        assert_true(e == 0 ? t != NULL : !t && why.text[0] != 0);
        failures += e < 0;
        pq_tls_context_free(t);
        if (!reached) {
            assert_int_equal(e, 0);
            break;
        }
    }
    print_message("context: %ld allocations failed in turn, %ld of them were errors\n", n - 1, failures);
    assert_true(failures > n / 2);
}

/* A whole connection with the n-th allocation failing. True when there were fewer. */
static bool connection(struct pq_tls_context *client, struct pq_tls_context *server, long n, long *failures,
                       long *named)
{
    struct pq_tls_memory_cost cost;
    struct pq_why why = {{0}};
    pq_alloc_fail_at(n);
    int e = pq_tls_memory_handshake(client, server, &cost, &why);
    bool reached = pq_alloc_failed();
    pq_alloc_fail_at(0);
    assert_true(e == 0 || why.text[0]);
    *failures += e < 0;
    *named += e == PQ_E_NOMEM;
    if (!reached)
        assert_int_equal(e, 0);
    return !reached;
}

static void handshake(void **state)
{
    (void)state;
    struct pq_tls_settings s = settings();
    struct pair p;
    long failures = 0, named = 0, n = 1;
    pair_new(&p, world.crypto, &s, &s, NULL, PAIR_PLAIN);
    while (!connection(p.client_context, p.server_context, n, &failures, &named))
        n++;
    print_message("handshake: %ld allocations failed in turn, %ld of them were errors, %ld said \"out of memory\"\n",
                  n - 1, failures, named);
    assert_true(failures > n / 2 && named > failures * 4 / 5); /* OpenSSL hides some of its own */
    pair_free(&p);
}

/* Of one context, so that there is something to resume. True: a ticket was left for the next. */
static bool visit(struct pair *of, long fail_at, bool *reached, bool *resumed)
{
    struct pair p;
    char in[8];
    size_t n;
    pq_alloc_fail_at(fail_at);
    bool made = pair_try(&p, of->client_context, of->server_context, "leaf.example");
    if (made)
        pair_drive(&p);
    bool done = made && p.client_result == 0 && p.server_result == 0;
    bool read = done && pq_tls_read(p.client, in, sizeof in, &n) == PQ_E_WANT_READ;
    *reached = pq_alloc_failed();
    pq_alloc_fail_at(0);
    *resumed = done && pq_tls_info(p.client)->resumed;
    if (made && p.client_result == 0)
        assert_true(pq_tls_info(p.client)->pq_auth && pq_tls_info(p.client)->pq_kex);
    if (made && p.server_result == 0)
        assert_true(pq_tls_info(p.server)->pq_auth && pq_tls_info(p.server)->pq_kex);
    pair_free(&p);
    return read;
}

static void resumption(void **state)
{
    (void)state;
    static struct pq_tls_ticket_keys keys;
    struct pq_tls_settings s = settings();
    struct pair p;
    bool reached = true, resumed;
    assert_int_equal(pq_tls_ticket_keys_rotate(&keys, pq_clock_ns()), 0);
    s.resume = true;
    s.tickets = &keys;
    pair_new(&p, world.crypto, &s, &s, NULL, PAIR_PLAIN);
    long n = 0;
    while (reached) {
        assert_true(visit(&p, 0, &reached, &resumed)); /* leaves a session for the next */
        visit(&p, ++n, &reached, &resumed);
    }
    print_message("resumption: %ld allocations failed in turn\n", n - 1);
    assert_true(resumed && n > 100);
    pair_free(&p);
}

static void connection_with_names(void **state)
{
    (void)state;
    struct pq_tls_settings s = settings();
    char *at[] = {(char[]){"urn:a"}, (char[]){"leaf.example"}};
    struct pq_strings names = {at, 2};
    struct pair p;
    pair_new(&p, world.crypto, &s, &s, NULL, PAIR_PLAIN);
    for (long n = 1;; n++) {
        struct pq_tls *t = NULL;
        pq_alloc_fail_at(n);
        int e = pq_tls_new(p.client_context, p.client_fd, &names, &t);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        assert_true(e == 0 ? t != NULL : e == PQ_E_NOMEM && !t);
        pq_tls_free(t);
        if (!reached)
            break;
    }
    pair_free(&p);
}

static void recheck(void **state)
{
    (void)state;
    struct pq_tls_settings s = settings();
    char *at[] = {(char[]){"urn:b"}, (char[]){"leaf.example"}};
    struct pq_strings names = {at, 2};
    struct pair p;
    pair_new(&p, world.crypto, &s, &s, NULL, PAIR_PLAIN);
    pair_expect_done(&p);
    for (long n = 1;; n++) {
        struct pq_why why = {{0}};
        enum pq_tls_reason reason = PQ_TLS_NONE;
        pq_alloc_fail_at(n);
        int e = pq_tls_recheck(p.server, p.server_context, &names, &reason, &why);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        if (e != 0 && (e != PQ_E_NOMEM || reason != PQ_TLS_INTERNAL || !why.text[0]))
            fail_msg("allocation %ld: %s, %s: %s", n, pq_error_name(e), pq_tls_reason_label(reason), why.text);
        if (!reached) {
            assert_int_equal(e, 0);
            break;
        }
    }
    pair_free(&p);
}

/* A certificate that must be refused is refused whichever allocation fails. */
static void failing_allocations_let_nobody_in(void **state)
{
    (void)state;
    const struct cert *strange =
        certs_make(&world, (struct cert_how){.algorithm = "ML-DSA-44", .name = "strange", .ca = true});
    struct pq_tls_settings s = settings(), c = pair_settings(PQ_MODE_HYBRID, 1, leaf, strange);
    struct pair p;
    pair_new(&p, world.crypto, &c, &s, NULL, PAIR_PLAIN);
    for (long n = 1;; n++) {
        struct pq_tls_memory_cost cost;
        struct pq_why why = {{0}};
        pq_alloc_fail_at(n);
        int e = pq_tls_memory_handshake(p.client_context, p.server_context, &cost, &why);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        assert_true(e < 0);
        if (!reached) {
            assert_int_equal(e, PQ_E_AUTH);
            break;
        }
    }
    pair_free(&p);
}

static void policy(void **state)
{
    (void)state;
    static const char yaml[] =
        "{mode: pure, level: 5, groups: [MLKEM1024, MLKEM768], sigalgs: mldsa87, require: [pq-kex]}";
    for (long n = 1;; n++) {
        struct pq_tls_policy p = {0};
        struct pq_why why = {{0}};
        pq_alloc_fail_at(n);
        int e = pq_config_parse("p", yaml, sizeof yaml - 1, &pq_tls_policy_schema, &p, &why);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        if (e == 0)
            pq_config_free(&pq_tls_policy_schema, &p);
        if (!reached) {
            assert_int_equal(e, 0);
            break;
        }
        assert_int_equal(e, PQ_E_NOMEM);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(crypto),
        TEST(context),
        TEST(handshake),
        TEST(resumption),
        TEST(connection_with_names),
        TEST(failing_allocations_let_nobody_in),
        TEST(recheck),
        TEST(policy),
    };
    if (!pq_alloc_hook_openssl())
        return 1;
    pq_log_set(PQ_LOG_ERROR, PQ_LOG_LOGFMT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
