/* One context for several threads: handshakes at once, and connections handed from the thread that shook hands to the
 * one that moves data. Built with -Db_sanitize=thread it shows races. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "certs.h"
#include "pair.h"

enum { THREADS = 3, ROUNDS = 8 };

static struct certs world;

static int set_up(void **state)
{
    (void)state;
    certs_new(&world);
    return 0;
}
static int tear_down(void **state)
{
    (void)state;
    certs_free(&world);
    return 0;
}

struct hand_over {
    struct pair pair; /* the contexts are the test's, shared */
    pthread_t relay;
    _Atomic bool failed;
};

static _Atomic int resumed;

/* Assertions of cmocka are for its own thread. */
static void *relay(void *context)
{
    struct hand_over *h = context;
    char in[16];
    size_t n = 0;
    atomic_fetch_add(&resumed, pq_tls_info(h->pair.client)->resumed);
    if (pq_tls_write(h->pair.client, "question", 8, &n) < 0 || pq_tls_read(h->pair.server, in, sizeof in, &n) < 0 ||
        n != 8 || pq_tls_close_notify(h->pair.server) < 0 ||
        pq_tls_read(h->pair.client, in, sizeof in, &n) != PQ_E_CLOSED)
        h->failed = true;
    pair_free(&h->pair);
    return NULL;
}

struct thread {
    pthread_t id;
    struct pq_tls_context *client, *server;
    struct hand_over round[ROUNDS];
    int started;
    bool failed;
};

static void *handshakes(void *context)
{
    struct thread *t = context;
    for (int i = 0; i < ROUNDS && !t->failed; i++) {
        struct hand_over *h = &t->round[i];
        t->failed = !pair_try(&h->pair, t->client, t->server, "leaf.example");
        if (!t->failed)
            pair_drive(&h->pair);
        t->failed |=
            h->pair.client_result < 0 || h->pair.server_result < 0 || pthread_create(&h->relay, NULL, relay, h) != 0;
        t->started += !t->failed;
    }
    pq_tls_context_free(t->client);
    pq_tls_context_free(t->server);
    return NULL;
}

static void one_context_for_several_threads(void **state)
{
    (void)state;
    static struct thread threads[THREADS];
    const struct cert *root =
        certs_make(&world, (struct cert_how){.algorithm = "ML-DSA-44", .name = "root", .ca = true});
    const struct cert *leaf = certs_make(
        &world, (struct cert_how){.algorithm = "ML-DSA-44", .name = "leaf", .issuer = root, .san = "DNS:leaf.example"});
    struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 1, leaf, root);
    s.crl = (char *)(uintptr_t)certs_crl(&world, "crl", root, NULL, -60, 3600);
    s.alpn = &pair_h2;
    static struct pq_tls_ticket_keys keys;
    assert_int_equal(pq_tls_ticket_keys_rotate(&keys, pq_clock_ns()), 0);
    s.tickets = &keys;
    s.resume = true;
    struct pair p;
    pair_new(&p, world.crypto, &s, &s, NULL, PAIR_PLAIN);
    for (int i = 0; i < THREADS; i++) {
        threads[i] = (struct thread){.client = pq_tls_context_ref(p.client_context),
                                     .server = pq_tls_context_ref(p.server_context)};
        assert_int_equal(pthread_create(&threads[i].id, NULL, handshakes, &threads[i]), 0);
    }
    pair_free(&p); /* the threads' references are what keeps the contexts */
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i].id, NULL), 0);
        assert_false(threads[i].failed);
        for (int k = 0; k < threads[i].started; k++) {
            assert_int_equal(pthread_join(threads[i].round[k].relay, NULL), 0);
            assert_false(threads[i].round[k].failed);
        }
    }
    print_message("%d of %d handshakes resumed a session that some thread had left\n", resumed, THREADS * ROUNDS);
    assert_true(resumed > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_context_for_several_threads, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
