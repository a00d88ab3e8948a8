/* Resumption: what makes it happen, what forbids it, and what is known of the peer after it. */
#include <openssl/err.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "certs.h"
#include "pair.h"
#include "program.h"
#include "tls/internal.h"

/* Our clock, put forward; OpenSSL has its own. */
static int64_t later_s;
int64_t __real_pq_clock_wall_ns(void);
int64_t __wrap_pq_clock_wall_ns(void);
int64_t __wrap_pq_clock_wall_ns(void) { return __real_pq_clock_wall_ns() + later_s * PQ_NS_PER_S; }

enum { DAY = 24 * 3600 };

static struct certs world;
static const struct cert *root, *leaf, *peer;
static struct pq_tls_ticket_keys keys;
static struct pq_tls_settings for_client, for_server;

static const struct cert *issue(const char *name, const char *san)
{
    return certs_make(
        &world,
        (struct cert_how){
            .algorithm = "ML-DSA-65", .name = name, .issuer = root, .san = san, .from_s = -60, .to_s = 3 * DAY});
}

static int set_up(void **state)
{
    (void)state;
    later_s = 0;
    certs_new(&world);
    root = certs_make(
        &world,
        (struct cert_how){.algorithm = "ML-DSA-65", .name = "root", .ca = true, .from_s = -60, .to_s = 9 * DAY});
    leaf = issue("leaf", "DNS:leaf.example");
    peer = issue("peer", "DNS:peer.example,DNS:other.example");
    keys = (struct pq_tls_ticket_keys){0};
    assert_int_equal(pq_tls_ticket_keys_rotate(&keys, pq_clock_ns()), 0);
    for_client = pair_settings(PQ_MODE_HYBRID, 3, peer, root);
    for_server = pair_settings(PQ_MODE_HYBRID, 3, leaf, root);
    for_client.resume = for_server.resume = true;
    for_server.tickets = &keys;
    for_client.policy.require_pq_auth = for_client.policy.require_pq_kex = true;
    for_server.policy.require_pq_auth = for_server.policy.require_pq_kex = true;
    return 0;
}
static int tear_down(void **state)
{
    (void)state;
    certs_free(&world);
    return 0;
}

static struct pq_tls_context *context(enum pq_tls_role role, const struct pq_tls_settings *how)
{
    struct pq_tls_context *c = NULL;
    struct pq_why why = {{0}};
    if (pq_tls_context_new(world.crypto, role, how, &c, &why) < 0)
        fail_msg("%s", why.text);
    return c;
}

/* Both contexts of a test. */
struct both {
    struct pq_tls_context *client, *server;
};
static struct both both(void)
{
    return (struct both){context(PQ_TLS_CLIENT, &for_client), context(PQ_TLS_SERVER, &for_server)};
}
static void both_free(struct both *b)
{
    pq_tls_context_free(b->client);
    pq_tls_context_free(b->server);
}

/* Shakes hands; expected is the name that the server wants to see, or NULL. */
static void shake(struct pair *p, const struct both *b, const char *expected)
{
    char *at[] = {(char *)(uintptr_t)expected};
    struct pq_strings names = {at, 1};
    assert_true(pair_try(p, b->client, b->server, "leaf.example"));
    pq_tls_free(p->server);
    assert_int_equal(pq_tls_new(b->server, p->server_fd, expected ? &names : NULL, &p->server), 0);
    pair_drive(p);
}

/* The ticket comes with the first read. */
static void read_ticket(struct pair *p)
{
    char in[16];
    size_t n = 0;
    assert_int_equal(pq_tls_read(p->client, in, sizeof in, &n), PQ_E_WANT_READ);
}

static void expect(struct pair *p, bool resumed)
{
    if (p->client_result < 0 || p->server_result < 0)
        fail_msg("client: %s; server: %s", pq_tls_failure(p->client), pq_tls_failure(p->server));
    assert_int_equal(pq_tls_info(p->client)->resumed, resumed);
    assert_int_equal(pq_tls_info(p->server)->resumed, resumed);
}

static bool visit(const struct both *b, const char *expected)
{
    struct pair p;
    shake(&p, b, expected);
    if (p.client_result < 0 || p.server_result < 0)
        fail_msg("client: %s; server: %s", pq_tls_failure(p.client), pq_tls_failure(p.server));
    bool resumed = pq_tls_info(p.client)->resumed;
    assert_int_equal(pq_tls_info(p.server)->resumed, resumed);
    read_ticket(&p);
    pair_free(&p);
    return resumed;
}

/* --- what it is -----------------------------------------------------------------------------------------------------
 */

static void expect_known(const struct pq_tls *t, const char *name)
{
    const struct pq_tls_info *i = pq_tls_info(t);
    assert_string_equal(i->peer, name);
    assert_string_equal(i->signature, "");
    assert_string_equal(i->own_signature, "");
    assert_string_equal(i->group, "X25519MLKEM768");
    assert_true(i->pq_kex && i->pq_auth);
    assert_int_equal(i->chain_ns, 0);
    assert_int_in_range(i->not_after - pq_clock_wall_ns() / PQ_NS_PER_S, 3 * DAY - 600, 3 * DAY);
    assert_true(pq_tls_accepted(t));
}

static void a_session_is_resumed(void **state)
{
    (void)state;
    struct both b = both();
    struct pair p;
    shake(&p, &b, "peer.example");
    expect(&p, false);
    assert_false(pq_tls_accepted(p.client));
    read_ticket(&p);
    assert_true(pq_tls_accepted(p.client));
    const unsigned char *ticket;
    size_t size = 0;
    SSL_SESSION_get0_ticket(SSL_get_session(p.client->ssl), &ticket, &size);
    print_message("a ticket of a client with a certificate of ML-DSA-65 has %zu bytes\n", size);
    assert_uint_in_range(size, 300, 1000);
    pair_free(&p);
    for (int i = 0; i < 3; i++) { /* each brings a ticket for the next */
        shake(&p, &b, "peer.example");
        expect(&p, true);
        expect_known(p.client, "CN=leaf");
        expect_known(p.server, "CN=peer");
        enum pq_tls_reason reason;
        struct pq_why why;
        assert_int_equal(pq_tls_recheck(p.server, b.server, &p.server->names, &reason, &why), 0);
        read_ticket(&p);
        pair_free(&p);
    }
    both_free(&b);
}

static void a_ticket_is_used_once(void **state)
{
    (void)state;
    struct both b = both();
    struct pair p;
    assert_false(visit(&b, NULL));
    shake(&p, &b, NULL);
    expect(&p, true);
    pair_free(&p); /* its own ticket was not read */
    assert_false(visit(&b, NULL));
    both_free(&b);
}

static void processes_share_keys(void **state)
{
    (void)state;
    struct both b = both();
    assert_false(visit(&b, NULL));
    pq_tls_context_free(b.server);
    b.server = context(PQ_TLS_SERVER, &for_server); /* as another worker makes it */
    assert_true(visit(&b, NULL));
    both_free(&b);
}

static void a_client_without_certificate(void **state)
{
    (void)state;
    for_client.identity_count = 0;
    for_server.verify_peer = for_server.policy.require_pq_auth = false;
    struct both b = both();
    assert_false(visit(&b, NULL));
    assert_true(visit(&b, NULL));
    both_free(&b);
}

static void peers_are_told_apart(void **state)
{
    (void)state;
    struct both b = both();
    struct pair p;
    assert_false(visit(&b, NULL));
    for_server.identities = &issue("twin", "DNS:leaf.example,DNS:twin.example")->identity;
    pq_tls_context_free(b.server);
    b.server = context(PQ_TLS_SERVER, &for_server);
    assert_true(pair_try(&p, b.client, b.server, "twin.example")); /* a ticket of leaf.example must not open it */
    pair_expect_done(&p);
    assert_false(pq_tls_info(p.client)->resumed);
    pair_free(&p);
    both_free(&b);
}

static void the_store_is_bounded(void **state)
{
    (void)state;
    struct both b = both();
    struct pair p[40];
    for (size_t i = 0; i < PQ_COUNT(p); i++) {
        shake(&p[i], &b, NULL);
        expect(&p[i], false);
    }
    for (size_t i = 0; i < PQ_COUNT(p); i++) {
        read_ticket(&p[i]);
        pair_free(&p[i]);
    }
    int resumed = 0;
    for (bool more = true; more; resumed += more) {
        shake(&p[0], &b, NULL);
        more = pq_tls_info(p[0].client)->resumed;
        pair_free(&p[0]); /* without its new ticket */
    }
    assert_int_equal(resumed, 32);
    both_free(&b);
}

/* --- what forbids it ------------------------------------------------------------------------------------------------
 */

static void only_where_both_are_told_to(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        for_client.resume = i != 0;
        for_server.resume = i != 1;
        for_server.tickets = i != 2 ? &keys : NULL;
        struct both b = both();
        assert_false(visit(&b, NULL));
        assert_false(visit(&b, NULL));
        both_free(&b);
    }
}

static void keys_that_are_gone(void **state)
{
    (void)state;
    struct both b = both();
    assert_false(visit(&b, NULL));
    pq_tls_ticket_keys_wipe(&keys);
    assert_false(visit(&b, NULL)); /* and no ticket is made */
    assert_int_equal(pq_tls_ticket_keys_rotate(&keys, pq_clock_ns()), 0);
    assert_false(visit(&b, NULL));
    assert_true(visit(&b, NULL));
    both_free(&b);
}

static void other_names_are_expected(void **state)
{
    (void)state;
    struct both b = both();
    struct pair p;
    assert_false(visit(&b, "peer.example"));
    assert_true(visit(&b, "other.example")); /* it shows both */
    shake(&p, &b, "third.example");
    assert_int_equal(p.server_result, PQ_E_AUTH);
    assert_int_equal(pq_tls_reason(p.server), PQ_TLS_WRONG_NAME); /* a full handshake found that */
    pair_free(&p);
    both_free(&b);
}

/* At the server; a client's sessions live and die with its context. */
static void the_policy_changed(void **state)
{
    (void)state;
    struct {
        const char *what;
        struct pq_tls_settings how;
        enum pq_tls_reason refused;
    } rows[] = {{"nothing", for_server, PQ_TLS_NONE},           {"a list", for_server, PQ_TLS_NONE},
                {"a list with it", for_server, PQ_TLS_REVOKED}, {"what a stale list means", for_server, PQ_TLS_NONE},
                {"the groups", for_server, PQ_TLS_NONE},        {"the schemes", for_server, PQ_TLS_NONE},
                {"what is required", for_server, PQ_TLS_NONE},  {"another root besides", for_server, PQ_TLS_NONE}};
    const char *crl = certs_crl(&world, "crl", root, NULL, -60, 3600),
               *with = certs_crl(&world, "with", root, peer, -60, 3600);
    const struct cert *second =
        certs_make(&world, (struct cert_how){.algorithm = "ML-DSA-65", .name = "second", .ca = true});
    char roots[32768] = "";
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(i ? second->chain : root->chain, "r");
        size_t len = strlen(roots);
        roots[len + fread(roots + len, 1, sizeof roots - len - 1, f)] = 0;
        fclose(f);
    }
    rows[1].how.crl = (char *)(uintptr_t)crl;
    rows[2].how.crl = (char *)(uintptr_t)with;
    rows[3].how.crl_stale = PQ_TLS_CRL_WARN;
    rows[4].how.policy.groups = (char[]){"X25519MLKEM768"};
    rows[5].how.policy.sigalgs = (char[]){"mldsa65"};
    rows[6].how.policy.require_pq_kex = false;
    rows[7].how.ca = (char *)(uintptr_t)certs_file(&world, "roots", roots, 0600);
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct both b = both();
        struct pair p;
        assert_false(visit(&b, NULL));
        pq_tls_context_free(b.server);
        b.server = context(PQ_TLS_SERVER, &rows[i].how);
        shake(&p, &b, NULL);
        if (pq_tls_reason(p.server) != rows[i].refused || pq_tls_info(p.server)->resumed != (i == 0))
            fail_msg("%s: %s, %s", rows[i].what, pq_tls_info(p.server)->resumed ? "resumed" : "full",
                     pq_tls_failure(p.server));
        pair_free(&p);
        both_free(&b);
    }
}

/* Each end by itself: the other is told nothing. */
static void time_passed(void **state)
{
    static const struct {
        const char *what;
        int64_t later_s, to_s;
        bool resumed;
    } rows[] = {
        {"certificates hold", 3000, 3 * DAY, true},
        {"a day, after which certificates are due again", DAY + 1, 3 * DAY, false},
        {"an expired certificate", 7200, 3600, false},
        {"a clock that went back", -3600, 3 * DAY, false},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        const struct cert *own = certs_make(&world, (struct cert_how){.algorithm = "ML-DSA-65",
                                                                      .name = "own",
                                                                      .issuer = root,
                                                                      .san = "DNS:leaf.example",
                                                                      .from_s = -4000,
                                                                      .to_s = rows[i].to_s});
        for (int expired = PQ_TLS_CLIENT; expired <= PQ_TLS_SERVER; expired++) {
            for_client.identities = &(expired == PQ_TLS_CLIENT ? own : peer)->identity;
            for_server.identities = &(expired == PQ_TLS_SERVER ? own : leaf)->identity;
            struct both b = both();
            assert_false(visit(&b, NULL));
            later_s = rows[i].later_s;
            bool resumed = visit(&b, NULL);
            later_s = 0;
            if (resumed != rows[i].resumed)
                fail_msg("%s: %s", rows[i].what, resumed ? "resumed" : "full");
            both_free(&b);
        }
    }
}

/* Resumed again and again, a peer still has to show its certificate once a day. */
static void a_day_passed(void **state)
{
    (void)state;
    struct both b = both();
    assert_false(visit(&b, NULL));
    for (later_s = 3000; later_s < DAY; later_s += 3000)
        assert_true(visit(&b, NULL));
    assert_false(visit(&b, NULL));
    assert_true(visit(&b, NULL));
    both_free(&b);
}

/* --- the key exchange is a new one ----------------------------------------------------------------------------------
 */

/* OpenSSL as a server whose tickets two contexts share: at first with the one group, then with the other. */
static SSL_CTX *foreign(const char *group)
{
    SSL_CTX *ctx = SSL_CTX_new_ex(pq_crypto_libctx(world.crypto), NULL, TLS_server_method());
    unsigned char ticket_keys[80] = {1, 2, 3};
    assert_true(SSL_CTX_use_certificate(ctx, leaf->x) && SSL_CTX_use_PrivateKey(ctx, leaf->key));
    assert_true(SSL_CTX_set1_groups_list(ctx, group) &&
                SSL_CTX_set_tlsext_ticket_keys(ctx, ticket_keys, sizeof ticket_keys));
    assert_true(SSL_CTX_set_session_id_context(ctx, (const unsigned char *)"one", 3));
    return ctx;
}

static int visit_foreign(struct pq_tls_context *c, SSL_CTX *ctx, bool *resumed, enum pq_tls_reason *reason)
{
    int fd[2], e = PQ_E_WANT_READ;
    char in[16], *at[] = {(char[]){"leaf.example"}};
    size_t n = 0;
    struct pq_strings names = {at, 1};
    DEFER(pq_tls_freep) struct pq_tls *t = NULL;
    SSL *server = SSL_new(ctx);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
    assert_true(server && SSL_set_fd(server, fd[1]));
    SSL_set_accept_state(server);
    assert_int_equal(pq_tls_new(c, fd[0], &names, &t), 0);
    for (int i = 0; i < 10 && e == PQ_E_WANT_READ; i++) {
        e = pq_tls_handshake(t);
        SSL_do_handshake(server);
        ERR_clear_error();
    }
    if (e == 0)
        assert_int_equal(pq_tls_read(t, in, sizeof in, &n), PQ_E_WANT_READ);
    *resumed = SSL_session_reused(server);
    *reason = pq_tls_reason(t);
    SSL_free(server);
    close(fd[0]);
    close(fd[1]);
    return e;
}

static void a_server_resumes_with_another_group(void **state)
{
    (void)state;
    bool resumed = false;
    enum pq_tls_reason reason;
    for_client.policy.groups = (char[]){"X25519MLKEM768:x25519"};
    SSL_CTX *pq = foreign("X25519MLKEM768"), *classical = foreign("x25519");
    for (int require = 0; require < 2; require++) {
        for_client.policy.require_pq_kex = require;
        struct pq_tls_context *c = context(PQ_TLS_CLIENT, &for_client);
        assert_int_equal(visit_foreign(c, pq, &resumed, &reason), 0);
        assert_false(resumed);
        assert_int_equal(visit_foreign(c, pq, &resumed, &reason), 0);
        assert_true(resumed);
        assert_int_equal(visit_foreign(c, classical, &resumed, &reason), require ? PQ_E_POLICY : 0);
        assert_true(resumed); /* as the server has it */
        assert_int_equal(reason, require ? PQ_TLS_POLICY_KEX : PQ_TLS_NONE);
        pq_tls_context_free(c);
    }
    SSL_CTX_free(pq);
    SSL_CTX_free(classical);
}

static void wait_for(const char *file)
{
    struct stat s = {0};
    for (int i = 0; i < 2000 && (stat(file, &s) < 0 || s.st_size < 100); i++)
        usleep(10000);
    assert_true(s.st_size >= 100);
}

static int serve(struct pq_tls_context *c, int listener, struct pq_tls **out)
{
    static int fd = -1;
    if (fd >= 0)
        close(fd);
    fd = program_accept(listener);
    assert_int_equal(pq_tls_new(c, fd, NULL, out), 0);
    return pair_try_shake(*out, fd);
}

static void s_client_resumes_with_another_group(void **state)
{
    (void)state;
    char address[64], session[300];
    snprintf(session, sizeof session, "%s/session", world.folder);
    DEFER(pq_closep) int listener = program_listen(address);
    for_server.policy.groups = (char[]){"X25519MLKEM768:x25519"};
    DEFER(pq_tls_context_freep) struct pq_tls_context *c = context(PQ_TLS_SERVER, &for_server);
    static const struct {
        const char *groups;
        bool in; /* with the session of the one before */
        int result;
    } rows[] = {{"X25519MLKEM768", false, 0}, {"X25519MLKEM768", true, 0}, {"x25519", true, PQ_E_POLICY}};
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        const char *const arguments[] = {"openssl",      "s_client",
                                         "-connect",     address,
                                         "-tls1_3",      "-cert",
                                         peer->chain,    "-key",
                                         peer->key_file, "-CAfile",
                                         root->chain,    "-groups",
                                         rows[i].groups, rows[i].in ? "-sess_in" : "-sess_out",
                                         session,        NULL};
        struct program client = program_start(arguments);
        DEFER(pq_tls_freep) struct pq_tls *t = NULL;
        assert_int_equal(serve(c, listener, &t), rows[i].result);
        if (rows[i].result == 0) {
            assert_int_equal(pq_tls_info(t)->resumed, rows[i].in);
            assert_string_equal(pq_tls_info(t)->peer, "CN=peer");
            assert_true(pq_tls_info(t)->pq_auth);
            wait_for(session);
        } else {
            assert_int_equal(pq_tls_reason(t), PQ_TLS_POLICY_KEX);
        }
        program_finish(&client, false);
    }
}

static void s_server_is_resumed(void **state)
{
    (void)state;
    const char *const arguments[] = {"openssl",
                                     "s_server",
                                     "-accept",
                                     "127.0.0.1:0",
                                     "-naccept",
                                     "3",
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
                                     "-groups",
                                     "X25519MLKEM768",
                                     "-verify_return_error",
                                     NULL};
    struct program server = program_start(arguments);
    DEFER(pq_tls_context_freep) struct pq_tls_context *c = context(PQ_TLS_CLIENT, &for_client);
    char *at[] = {(char[]){"leaf.example"}};
    struct pq_strings names = {at, 1};
    int port = 0;
    for (int i = 0; i < 3; i++) {
        char in[16];
        size_t n = 0;
        DEFER(pq_closep) int fd = i ? program_dial_port(port) : program_dial(&server);
        port = program_port(fd);
        DEFER(pq_tls_freep) struct pq_tls *t = NULL;
        assert_int_equal(pq_tls_new(c, fd, &names, &t), 0);
        pair_shake(t, fd);
        assert_int_equal(pq_tls_info(t)->resumed, i > 0);
        assert_string_equal(pq_tls_info(t)->peer, "CN=leaf");
        assert_true(pq_tls_info(t)->pq_auth);
        assert_int_equal(pq_tls_write(t, "hello\n", 6, &n), 0);
        assert_int_equal(pair_take(t, fd, in, sizeof in), 0);
        assert_string_equal(in, "olleh\n");
        assert_int_equal(pq_tls_close_notify(t), 0);
    }
    program_finish(&server, false);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_session_is_resumed),
        TEST(a_ticket_is_used_once),
        TEST(processes_share_keys),
        TEST(a_client_without_certificate),
        TEST(peers_are_told_apart),
        TEST(the_store_is_bounded),
        TEST(only_where_both_are_told_to),
        TEST(keys_that_are_gone),
        TEST(other_names_are_expected),
        TEST(the_policy_changed),
        TEST(time_passed),
        TEST(a_day_passed),
        TEST(a_server_resumes_with_another_group),
        TEST(s_client_resumes_with_another_group),
        TEST(s_server_is_resumed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
