/* Certificates of two kinds side by side, and a first flight that fits one segment. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "certs.h"
#include "pair.h"
#include "program.h"

/* The first bytes that our code sends, and how many they are. */
static size_t first_flight;
ssize_t __real_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags)
{
    first_flight = first_flight ? first_flight : len;
    return __real_send(fd, bytes, len, flags);
}

static struct certs world;
static const struct cert *root, *classical, *pq;

static const struct cert *leaf_of(const char *algorithm, const char *name)
{
    return certs_make(
        &world, (struct cert_how){
                    .algorithm = algorithm, .name = name, .issuer = root, .san = "DNS:leaf.example,IP:127.0.0.1"});
}

static int set_up(void **state)
{
    (void)state;
    first_flight = 0;
    certs_new(&world);
    root = certs_make(&world, (struct cert_how){.algorithm = "ML-DSA-65", .name = "root", .ca = true});
    classical = leaf_of("p384", "classical");
    pq = leaf_of("ML-DSA-65", "pq");
    return 0;
}
static int tear_down(void **state)
{
    (void)state;
    certs_free(&world);
    return 0;
}

#define ECDSA "ecdsa_secp384r1_sha384"

static char *text(const char *s) { return (char *)(uintptr_t)s; }

static struct pq_tls_settings both(struct pq_tls_identity ids[2], bool classical_first)
{
    struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 3, pq, root);
    ids[classical_first] = pq->identity;
    ids[!classical_first] = classical->identity;
    s.identities = ids;
    s.identity_count = 2;
    return s;
}

/* --- ours at both ends ---------------------------------------------------------------------------------------------
 */

static void who_can_gets_post_quantum(void **state)
{
    static const struct {
        const char *server, *client; /* sigalgs; NULL: the suite's */
        const char *shown;
    } rows[] = {
        {NULL, NULL, "mldsa65"},
        {NULL, ECDSA ":mldsa65", "mldsa65"},
        {NULL, ECDSA, ECDSA},
        {ECDSA ":mldsa65", NULL, "mldsa65"},
        {ECDSA ":mldsa65", ECDSA ":mldsa87:mldsa65", "mldsa65"},
        {ECDSA ":mldsa65", ECDSA ":mldsa87", ECDSA},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows) * 2; i++) {
        struct pq_tls_identity ids[2];
        struct pq_tls_settings server = both(ids, i % 2), client = pair_settings(PQ_MODE_HYBRID, 3, NULL, root);
        server.policy.sigalgs = text(rows[i / 2].server);
        server.verify_peer = false;
        client.policy.sigalgs = text(rows[i / 2].client);
        struct pair p;
        pair_new(&p, world.crypto, &client, &server, "leaf.example", PAIR_PLAIN);
        pair_expect_done(&p);
        assert_string_equal(pq_tls_info(p.server)->own_signature, rows[i / 2].shown);
        assert_string_equal(pq_tls_info(p.client)->signature, rows[i / 2].shown);
        assert_string_equal(pq_tls_info(p.client)->own_signature, "");
        assert_int_equal(pq_tls_info(p.client)->pq_auth, strcmp(rows[i / 2].shown, ECDSA) != 0);
        pair_free(&p);
    }
}

static void a_client_shows_what_the_server_takes(void **state)
{
    static const struct {
        const char *server, *shown;
    } rows[] = {{NULL, "mldsa65"}, {"mldsa87:mldsa65:" ECDSA, "mldsa65"}, {"mldsa44:" ECDSA, ECDSA}, {ECDSA, ECDSA}};
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows) * 2; i++) {
        struct pq_tls_identity ids[2], own[2];
        struct pq_tls_settings client = both(ids, i % 2), server = both(own, false);
        server.policy.sigalgs = text(rows[i / 2].server);
        client.policy.sigalgs = text("mldsa65:" ECDSA);
        if (rows[i / 2].server && !strstr(rows[i / 2].server, "mldsa65")) {
            server.identities = &classical->identity; /* one that its own list can sign with */
            server.identity_count = 1;
        }
        struct pair p;
        pair_new(&p, world.crypto, &client, &server, "leaf.example", PAIR_PLAIN);
        pair_expect_done(&p);
        assert_string_equal(pq_tls_info(p.client)->own_signature, rows[i / 2].shown);
        assert_string_equal(pq_tls_info(p.server)->signature, rows[i / 2].shown);
        pair_free(&p);
    }
}

static void refuse(const struct pq_tls_settings *s, const char *says)
{
    struct pq_why why = {{0}};
    struct pq_tls_context *t = NULL;
    assert_int_equal(pq_tls_context_new(world.crypto, PQ_TLS_SERVER, s, &t, &why), PQ_E_CONFIG);
    if (!strstr(why.text, says))
        fail_msg("\"%s\" (expected \"%s\")", why.text, says);
}

static void mistakes(void **state)
{
    (void)state;
    struct pq_tls_identity ids[2];
    struct pq_tls_settings s = both(ids, false);
    ids[1] = leaf_of("p256", "p256")->identity;
    refuse(&s, "the certificate's key is EC prime256v1, which the policy does not sign with (sigalgs mldsa65:mldsa87:"
               "ecdsa_secp384r1_sha384:ecdsa_secp521r1_sha512)");
    ids[1] = leaf_of("ML-DSA-65", "twin")->identity;
    refuse(&s, "another identity has a key of the same kind (ML-DSA-65)");
    ids[0] = classical->identity;
    ids[1] = leaf_of("p521", "p521")->identity;
    refuse(&s, "another identity has a key of the same kind (EC)");
    s = both(ids, true);
    s.policy.require_pq_auth = true;
    refuse(&s, "the policy requires pq-auth");
    s = both(ids, true);
    s.identities = &classical->identity;
    s.identity_count = 1;
    refuse(&s, "does not sign with (sigalgs mldsa65:mldsa87)"); /* alone it would be what hybrid is not */
}

/* --- OpenSSL's programs --------------------------------------------------------------------------------------------
 */

/* A server that holds both, and a client that lists its schemes and groups in this order. */
static void s_client_row(const char *sigalgs, const char *groups, const char *shown, bool retry)
{
    char address[64];
    DEFER(pq_closep) int listener = program_listen(address);
    const char *const arguments[] = {"openssl",  "s_client",  "-connect",
                                     address,    "-quiet",    "-tls1_3",
                                     "-CAfile",  root->chain, "-verify_return_error",
                                     "-sigalgs", sigalgs,     "-groups",
                                     groups,     NULL};
    struct program client = program_start(arguments);
    DEFER(pq_closep) int fd = program_accept(listener);
    struct pq_tls_identity ids[2];
    struct pq_tls_settings s = both(ids, true);
    s.verify_peer = false;
    s.policy.groups = text("x25519:X25519MLKEM768");
    struct pq_why why = {{0}};
    DEFER(pq_tls_context_freep) struct pq_tls_context *c = NULL;
    DEFER(pq_tls_freep) struct pq_tls *t = NULL;
    assert_int_equal(pq_tls_context_new(world.crypto, PQ_TLS_SERVER, &s, &c, &why), 0);
    assert_int_equal(pq_tls_new(c, fd, NULL, &t), 0);
    pair_shake(t, fd);
    assert_string_equal(pq_tls_info(t)->own_signature, shown);
    assert_string_equal(pq_tls_info(t)->group, strstr(groups, "MLKEM") ? "X25519MLKEM768" : "x25519");
    assert_int_equal(pq_tls_info(t)->hello_retry, retry);
    program_finish(&client, false);
}

static void s_client_never_ends_up_classical(void **state)
{
    (void)state;
    s_client_row("ECDSA+SHA384:mldsa65", "x25519:X25519MLKEM768", "mldsa65", true);
    s_client_row("rsa_pss_pss_sha256:ecdsa_secp384r1_sha384:mldsa87:mldsa44:mldsa65", "X25519MLKEM768:x25519",
                 "mldsa65", false);
    s_client_row("ECDSA+SHA384", "x25519", ECDSA, false);
    s_client_row("ECDSA+SHA384:mldsa44", "X25519MLKEM768", ECDSA, false);
}

/* A client that holds both, and a server that asks for a certificate by this list. */
static void s_server_row(const char *client_sigalgs, const char *shown)
{
    const char *const arguments[] = {"openssl",
                                     "s_server",
                                     "-accept",
                                     "127.0.0.1:0",
                                     "-naccept",
                                     "1",
                                     "-rev",
                                     "-tls1_3",
                                     "-cert",
                                     pq->chain,
                                     "-key",
                                     pq->key_file,
                                     "-CAfile",
                                     root->chain,
                                     "-Verify",
                                     "3",
                                     "-client_sigalgs",
                                     client_sigalgs,
                                     "-verify_return_error",
                                     NULL};
    struct program server = program_start(arguments);
    DEFER(pq_closep) int fd = program_dial(&server);
    struct pq_tls_identity ids[2];
    struct pq_tls_settings s = both(ids, true);
    struct pq_why why = {{0}};
    DEFER(pq_tls_context_freep) struct pq_tls_context *c = NULL;
    DEFER(pq_tls_freep) struct pq_tls *t = NULL;
    assert_int_equal(pq_tls_context_new(world.crypto, PQ_TLS_CLIENT, &s, &c, &why), 0);
    assert_int_equal(pq_tls_new(c, fd, NULL, &t), 0);
    pair_shake(t, fd);
    assert_string_equal(pq_tls_info(t)->own_signature, shown);
    program_finish(&server, false);
}

static void s_server_gets_post_quantum(void **state)
{
    (void)state;
    s_server_row("ECDSA+SHA384:mldsa65", "mldsa65");
    s_server_row("mldsa87:ECDSA+SHA384", ECDSA);
}

/* --- the first flight ----------------------------------------------------------------------------------------------
 */

enum { SEGMENT = 1400 };

static void first_flight_fits_a_segment(void **state)
{
    static const struct {
        const char *client, *server; /* groups; NULL: the suite's */
        bool require;
        const char *group; /* NULL: refused by the client */
        bool retry;
    } rows[] = {
        {NULL, NULL, true, "X25519MLKEM768", true},
        {NULL, "MLKEM768:SecP256r1MLKEM768:secp256r1", true, "SecP256r1MLKEM768", true},
        {"X25519MLKEM768:x25519", NULL, true, "X25519MLKEM768", true},
        {"X25519MLKEM768:secp256r1", NULL, false, "X25519MLKEM768", true},
        {NULL, "x25519", true, NULL, false},
        {NULL, "x25519", false, NULL, false}, /* no group of the policy */
        {"X25519MLKEM768:x25519", "x25519", true, NULL, false},
        {"X25519MLKEM768:x25519", "x25519", false, "x25519", false},
        {"X25519MLKEM768:secp256r1:x25519", "x25519", false, "x25519", true},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_tls_settings client = pair_settings(PQ_MODE_HYBRID, 3, pq, root),
                               server = pair_settings(PQ_MODE_HYBRID, 3, pq, root);
        client.first_flight_classical = true;
        client.alpn = &pair_both;
        client.policy.groups = text(rows[i].client);
        client.policy.require_pq_kex = rows[i].require;
        server.policy.groups = text(rows[i].server);
        struct pair p;
        first_flight = 0;
        pair_new(&p, world.crypto, &client, &server, "leaf.example", PAIR_PLAIN);
        pair_drive(&p);
        print_message("%s: %zu bytes in the first flight\n", rows[i].client ? rows[i].client : "hybrid-3",
                      first_flight);
        assert_uint_in_range(first_flight, 100, SEGMENT);
        if (rows[i].group) {
            assert_int_equal(p.client_result, 0);
            assert_string_equal(pq_tls_info(p.client)->group, rows[i].group);
            assert_int_equal(pq_tls_info(p.server)->hello_retry, rows[i].retry);
        } else {
            assert_int_equal(p.client_result, PQ_E_POLICY);
            assert_int_equal(pq_tls_reason(p.client), PQ_TLS_POLICY_KEX);
        }
        pair_free(&p);
    }
    struct pq_tls_settings whole = pair_settings(PQ_MODE_HYBRID, 3, pq, root);
    whole.policy.groups = text("SecP384r1MLKEM1024");
    struct pair p;
    first_flight = 0;
    pair_new(&p, world.crypto, &whole, &whole, "leaf.example", PAIR_PLAIN);
    pair_expect_done(&p);
    print_message("SecP384r1MLKEM1024: %zu bytes in the first flight\n", first_flight);
    assert_true(first_flight > SEGMENT); /* what it is good for */
    pair_free(&p);
    whole.first_flight_classical = true;
    whole.policy.groups = text("DEFAULT");
    struct pq_why why = {{0}};
    struct pq_tls_context *t = NULL;
    assert_int_equal(pq_tls_context_new(world.crypto, PQ_TLS_CLIENT, &whole, &t, &why), PQ_E_CONFIG);
    assert_non_null(strstr(why.text, "each group by its name"));
}

static void s_server_asks_again(void **state)
{
    static const struct {
        const char *groups;
        bool refused;
    } rows[] = {{"X25519MLKEM768 / x25519", false}, {"x25519:X25519MLKEM768", true}};
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        const char *const arguments[] = {"openssl", "s_server",   "-accept", "127.0.0.1:0",  "-naccept",
                                         "1",       "-rev",       "-tls1_3", "-cert",        pq->chain,
                                         "-key",    pq->key_file, "-groups", rows[i].groups, "-serverpref",
                                         NULL};
        struct program server = program_start(arguments);
        DEFER(pq_closep) int fd = program_dial(&server);
        struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 3, pq, root);
        s.first_flight_classical = true;
        struct pq_why why = {{0}};
        DEFER(pq_tls_context_freep) struct pq_tls_context *c = NULL;
        DEFER(pq_tls_freep) struct pq_tls *t = NULL;
        assert_int_equal(pq_tls_context_new(world.crypto, PQ_TLS_CLIENT, &s, &c, &why), 0);
        assert_int_equal(pq_tls_new(c, fd, NULL, &t), 0);
        int e = pair_try_shake(t, fd);
        assert_int_equal(e, rows[i].refused ? PQ_E_POLICY : 0);
        assert_int_equal(pq_tls_info(t)->hello_retry, !rows[i].refused);
        program_finish(&server, false);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(who_can_gets_post_quantum),
        TEST(a_client_shows_what_the_server_takes),
        TEST(mistakes),
        TEST(s_client_never_ends_up_classical),
        TEST(s_server_gets_post_quantum),
        TEST(first_flight_fits_a_segment),
        TEST(s_server_asks_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
