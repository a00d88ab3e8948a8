/* Against OpenSSL's own programs, over TCP. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "certs.h"
#include "pair.h"
#include "program.h"

static struct certs world;
static const struct cert *root, *leaf;

static int set_up(void **state)
{
    (void)state;
    certs_new(&world);
    root = certs_make(&world, (struct cert_how){.algorithm = "SLH-DSA-SHA2-128f", .name = "root", .ca = true});
    leaf = certs_make(
        &world, (struct cert_how){
                    .algorithm = "ML-DSA-65", .name = "leaf", .issuer = root, .san = "DNS:leaf.example,IP:127.0.0.1"});
    return 0;
}
static int tear_down(void **state)
{
    (void)state;
    certs_free(&world);
    return 0;
}

static void s_server(void **state)
{
    (void)state;
    const char *const arguments[] = {"openssl",
                                     "s_server",
                                     "-accept",
                                     "127.0.0.1:0",
                                     "-naccept",
                                     "1",
                                     "-rev",
                                     "-tls1_3",
                                     "-cert",
                                     leaf->chain,
                                     "-key",
                                     leaf->key_file,
                                     "-CAfile",
                                     root->chain,
                                     "-Verify",
                                     "3",
                                     "-verify_return_error",
                                     "-groups",
                                     "X25519MLKEM768",
                                     NULL};
    struct program p = program_start(arguments);
    char in[64];
    DEFER(pq_closep) int fd = program_dial(&p);

    struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 3, leaf, root);
    s.policy.require_pq_auth = s.policy.require_pq_kex = true;
    struct pq_why why = {{0}};
    DEFER(pq_tls_context_freep) struct pq_tls_context *c = NULL;
    assert_int_equal(pq_tls_context_new(world.crypto, PQ_TLS_CLIENT, &s, &c, &why), 0);
    char *at[] = {(char[]){"leaf.example"}};
    struct pq_strings names = {at, 1};
    DEFER(pq_tls_freep) struct pq_tls *t = NULL;
    assert_int_equal(pq_tls_new(c, fd, &names, &t), 0);
    pair_shake(t, fd);
    assert_string_equal(pq_tls_info(t)->group, "X25519MLKEM768");
    assert_string_equal(pq_tls_info(t)->signature, "mldsa65");
    size_t n = 0;
    assert_int_equal(pq_tls_write(t, "hello\n", 6, &n), 0);
    assert_int_equal(pair_take(t, fd, in, sizeof in), 0);
    assert_string_equal(in, "olleh\n");
    assert_int_equal(pq_tls_close_notify(t), 0);
    shutdown(fd, SHUT_WR);
    program_finish(&p, false);
}

static void s_client(void **state)
{
    (void)state;
    char address[64], in[64];
    DEFER(pq_closep) int listener = program_listen(address);
    const char *const arguments[] = {"openssl",
                                     "s_client",
                                     "-connect",
                                     address,
                                     "-quiet",
                                     "-no_ign_eof",
                                     "-tls1_3",
                                     "-cert",
                                     leaf->chain,
                                     "-key",
                                     leaf->key_file,
                                     "-CAfile",
                                     root->chain,
                                     "-verify_return_error",
                                     "-verify_hostname",
                                     "leaf.example",
                                     "-groups",
                                     "x25519:X25519MLKEM768",
                                     NULL};
    struct program p = program_start(arguments);
    DEFER(pq_closep) int fd = program_accept(listener);

    struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 3, leaf, root);
    s.policy.require_pq_auth = s.policy.require_pq_kex = true;
    struct pq_why why = {{0}};
    DEFER(pq_tls_context_freep) struct pq_tls_context *c = NULL;
    assert_int_equal(pq_tls_context_new(world.crypto, PQ_TLS_SERVER, &s, &c, &why), 0);
    DEFER(pq_tls_freep) struct pq_tls *t = NULL;
    assert_int_equal(pq_tls_new(c, fd, NULL, &t), 0);
    pair_shake(t, fd);
    assert_true(pq_tls_info(t)->hello_retry);
    assert_true(pq_tls_info(t)->pq_auth);
    assert_string_equal(pq_tls_info(t)->peer, "CN=leaf");
    assert_int_equal(write(p.in, "ping\n", 5), 5);
    assert_int_equal(pair_take(t, fd, in, sizeof in), 0);
    assert_string_equal(in, "ping\n");
    close(p.in); /* s_client then sends close_notify */
    p.in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(pair_take(t, fd, in, sizeof in), PQ_E_CLOSED);
    assert_int_equal(pq_tls_close_notify(t), 0);
    shutdown(fd, SHUT_RDWR);
    assert_true(program_finish(&p, true));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {TEST(s_server), TEST(s_client)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
