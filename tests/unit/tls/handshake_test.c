/* Handshakes that succeed: every suite, every kind of chain, every way that bytes may arrive. */
#include <errno.h>
#include <openssl/x509.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "base/clock.h"
#include "certs.h"
#include "pair.h"
#include "tls/internal.h"

/* Counts what our code sends; limits how much one call takes. */
static long sends;
static size_t send_most;
ssize_t __real_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags)
{
    static bool full;
    sends++;
    assert_true(flags & MSG_NOSIGNAL);
    if (send_most && (full = !full)) {
        errno = EAGAIN;
        return -1;
    }
    return __real_send(fd, bytes, send_most && len > send_most ? send_most : len, flags);
}

static long receives;
ssize_t __real_recv(int fd, void *out, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *out, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *out, size_t size, int flags)
{
    receives++;
    return __real_recv(fd, out, size, flags);
}

static struct certs world;

static int set_up(void **state)
{
    (void)state;
    send_most = 0;
    certs_new(&world);
    return 0;
}
static int tear_down(void **state)
{
    (void)state;
    certs_free(&world);
    return 0;
}

static void exchange(struct pair *p)
{
    char in[64] = "";
    size_t n = 0;
    assert_int_equal(pq_tls_write(p->client, "question", 8, &n), 0);
    assert_int_equal(n, 8);
    assert_int_equal(pair_read(p, p->server, in, sizeof in, &n), 0);
    assert_memory_equal(in, "question", 8);
    assert_int_equal(pq_tls_write(p->server, "answer", 6, &n), 0);
    assert_int_equal(pair_read(p, p->client, in, sizeof in, &n), 0);
    assert_memory_equal(in, "answer", 6);
}

static const struct {
    enum pq_mode mode;
    int level;
    const char *root, *leaf, *group, *signature, *cipher;
    bool pq;
} suites[] = {
    {PQ_MODE_CLASSICAL, 1, "p256", "p256", "x25519", "ecdsa_secp256r1_sha256", "TLS_AES_128_GCM_SHA256", false},
    {PQ_MODE_CLASSICAL, 3, "p384", "p384", "secp384r1", "ecdsa_secp384r1_sha384", "TLS_AES_256_GCM_SHA384", false},
    {PQ_MODE_CLASSICAL, 5, "p521", "p521", "secp521r1", "ecdsa_secp521r1_sha512", "TLS_AES_256_GCM_SHA384", false},
    {PQ_MODE_HYBRID, 1, "ML-DSA-44", "ML-DSA-44", "X25519MLKEM768", "mldsa44", "TLS_AES_128_GCM_SHA256", true},
    {PQ_MODE_HYBRID, 3, "ML-DSA-65", "ML-DSA-65", "X25519MLKEM768", "mldsa65", "TLS_AES_256_GCM_SHA384", true},
    {PQ_MODE_HYBRID, 5, "ML-DSA-87", "ML-DSA-87", "SecP384r1MLKEM1024", "mldsa87", "TLS_AES_256_GCM_SHA384", true},
    {PQ_MODE_PURE, 1, "ML-DSA-44", "ML-DSA-44", "MLKEM512", "mldsa44", "TLS_AES_128_GCM_SHA256", true},
    {PQ_MODE_PURE, 3, "ML-DSA-65", "ML-DSA-65", "MLKEM768", "mldsa65", "TLS_AES_256_GCM_SHA384", true},
    {PQ_MODE_PURE, 5, "ML-DSA-87", "ML-DSA-87", "MLKEM1024", "mldsa87", "TLS_AES_256_GCM_SHA384", true},
};

static void expect_info(const struct pq_tls *t, size_t row, const char *peer)
{
    const struct pq_tls_info *i = pq_tls_info(t);
    assert_string_equal(i->version, "TLSv1.3");
    assert_string_equal(i->group, suites[row].group);
    assert_string_equal(i->signature, suites[row].signature);
    assert_string_equal(i->cipher, suites[row].cipher);
    assert_string_equal(i->peer, peer);
    assert_string_equal(i->alpn, "h2");
    assert_false(i->resumed);
    assert_false(i->hello_retry);
    assert_int_equal(i->pq_kex, suites[row].pq);
    assert_int_equal(i->pq_auth, suites[row].pq);
    assert_true(i->chain_ns > 0 && i->cpu_ns > 0);
    assert_int_equal(pq_tls_reason(t), PQ_TLS_NONE);
}

static void every_suite(void **state)
{
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(suites); i++) {
        const struct cert *root =
            certs_make(&world, (struct cert_how){.algorithm = suites[i].root, .name = "root", .ca = true});
        const struct cert *leaf = certs_make(
            &world, (struct cert_how){
                        .algorithm = suites[i].leaf, .name = "nrf", .issuer = root, .san = "DNS:nrf.5gc.example"});
        const struct cert *peer = certs_make(
            &world, (struct cert_how){
                        .algorithm = suites[i].leaf, .name = "amf", .issuer = root, .san = "DNS:amf.5gc.example"});
        struct pq_tls_settings client = pair_settings(suites[i].mode, suites[i].level, peer, root);
        struct pq_tls_settings server = pair_settings(suites[i].mode, suites[i].level, leaf, root);
        client.alpn = server.alpn = &pair_h2;
        client.policy.require_pq_kex = client.policy.require_pq_auth = suites[i].pq;
        server.policy.require_pq_kex = server.policy.require_pq_auth = suites[i].pq;
        struct pair p;
        pair_new(&p, world.crypto, &client, &server, "nrf.5gc.example", PAIR_PLAIN);
        sends = 0;
        pair_expect_done(&p);
        assert_int_equal(sends, 3); /* ClientHello, the server's flight, the client's */
        expect_info(p.client, i, "CN=nrf");
        expect_info(p.server, i, "CN=amf");
        exchange(&p);
        pair_free(&p);
    }
}

/* A root and a leaf under it. */
struct authority {
    const struct cert *root, *leaf;
};
static struct authority authority(const char *root, const char *leaf, const char *san)
{
    struct authority a;
    a.root = certs_make(&world, (struct cert_how){.algorithm = root, .name = "root", .ca = true});
    a.leaf = certs_make(&world, (struct cert_how){.algorithm = leaf, .name = "leaf", .issuer = a.root, .san = san});
    return a;
}

static void chains_of_other_algorithms(void **state)
{
    static const struct {
        enum pq_mode mode;
        const char *root, *intermediate, *leaf;
        bool pq;
    } rows[] = {
        {PQ_MODE_HYBRID, "ML-DSA-87", NULL, "ML-DSA-65", true},
        {PQ_MODE_HYBRID, "ML-DSA-44", NULL, "ML-DSA-65",
         true}, /* weaker than the level: the lists judge the handshake only */
        {PQ_MODE_HYBRID, "SLH-DSA-SHA2-128f", NULL, "ML-DSA-65", true},
        {PQ_MODE_PURE, "SLH-DSA-SHAKE-192f", "ML-DSA-87", "ML-DSA-65", true},
        {PQ_MODE_HYBRID, "SLH-DSA-SHA2-256f", "SLH-DSA-SHA2-128f", "ML-DSA-87", true},
        {PQ_MODE_HYBRID, "p256", NULL, "ML-DSA-65", false},
        {PQ_MODE_HYBRID, "rsa2048", "ML-DSA-65", "ML-DSA-65", false},
        {PQ_MODE_CLASSICAL, "ML-DSA-65", NULL, "p384", false},
        {PQ_MODE_CLASSICAL, "rsa2048", NULL, "p384", false},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        const struct cert *root =
            certs_make(&world, (struct cert_how){.algorithm = rows[i].root, .name = "root", .ca = true});
        const struct cert *issuer = root;
        if (rows[i].intermediate)
            issuer = certs_make(
                &world,
                (struct cert_how){.algorithm = rows[i].intermediate, .name = "between", .issuer = root, .ca = true});
        const struct cert *leaf = certs_make(
            &world,
            (struct cert_how){.algorithm = rows[i].leaf, .name = "leaf", .issuer = issuer, .san = "DNS:leaf.example"});
        struct pq_tls_settings s = pair_settings(rows[i].mode, 3, leaf, root);
        struct pair p;
        pair_new(&p, world.crypto, &s, &s, "leaf.example", PAIR_PLAIN);
        pair_expect_done(&p);
        assert_int_equal(pq_tls_info(p.client)->pq_auth, rows[i].pq);
        assert_int_equal(pq_tls_info(p.server)->pq_auth, rows[i].pq);
        pair_free(&p);
    }
}

/* Trust may stand on an intermediate: then its key is the anchor's, and the root's algorithm does not matter. */
static void anchor_need_not_be_a_root(void **state)
{
    (void)state;
    const struct cert *root = certs_make(&world, (struct cert_how){.algorithm = "p256", .name = "root", .ca = true});
    const struct cert *between =
        certs_make(&world, (struct cert_how){.algorithm = "ML-DSA-65", .name = "between", .issuer = root, .ca = true});
    const struct cert *leaf = certs_make(
        &world,
        (struct cert_how){.algorithm = "ML-DSA-65", .name = "leaf", .issuer = between, .san = "DNS:leaf.example"});
    struct pq_tls_settings server = pair_settings(PQ_MODE_HYBRID, 3, leaf, NULL),
                           client = pair_settings(PQ_MODE_HYBRID, 3, NULL, between);
    client.policy.require_pq_auth = true;
    struct pair p;
    pair_new(&p, world.crypto, &client, &server, "leaf.example", PAIR_PLAIN);
    pair_expect_done(&p);
    assert_true(pq_tls_info(p.client)->pq_auth);
    assert_false(pq_tls_info(p.server)->pq_auth); /* no certificate, no authentication */
    assert_string_equal(pq_tls_info(p.server)->peer, "");
    assert_string_equal(pq_tls_info(p.server)->signature, "");
    pair_free(&p);
}

static void unverified_peer_is_accepted_but_never_pq_auth(void **state)
{
    (void)state;
    struct authority a = authority("ML-DSA-65", "ML-DSA-65", "DNS:leaf.example");
    struct pq_tls_settings client = pair_settings(PQ_MODE_HYBRID, 3, NULL, NULL),
                           server = pair_settings(PQ_MODE_HYBRID, 3, a.leaf, NULL);
    struct pair p;
    pair_new(&p, world.crypto, &client, &server, "other.example", PAIR_PLAIN);
    pair_expect_done(&p);
    assert_false(pq_tls_info(p.client)->pq_auth);
    assert_string_equal(pq_tls_info(p.client)->peer, "CN=leaf");
    pair_free(&p);
}

static void root_is_not_sent(void **state)
{
    (void)state;
    const struct cert *root =
        certs_make(&world, (struct cert_how){.algorithm = "SLH-DSA-SHA2-256f", .name = "root", .ca = true});
    const struct cert *leaf = certs_make(
        &world,
        (struct cert_how){
            .algorithm = "ML-DSA-65", .name = "leaf", .issuer = root, .san = "DNS:leaf.example", .whole_chain = true});
    struct pq_tls_settings server = pair_settings(PQ_MODE_HYBRID, 3, leaf, NULL),
                           client = pair_settings(PQ_MODE_HYBRID, 3, NULL, root);
    client.max_certificate_list = 60000; /* the leaf holds a 49 856 byte signature; the root, another */
    struct pair p;
    pair_new(&p, world.crypto, &client, &server, "leaf.example", PAIR_PLAIN);
    pair_expect_done(&p);
    pair_free(&p);
}

static void names(void **state)
{
    static const char san[] = "DNS:nrf.5gc.example,DNS:*.wild.example,IP:198.18.0.1,IP:fd00::1,"
                              "URI:urn:uuid:4947a69a-f61b-4bc1-b9da-47c9c5d14b64";
    static const struct {
        const char *name;
        bool shown;
    } rows[] = {
        {"nrf.5gc.example", true},
        {"NRF.5gc.EXAMPLE", true},
        {"nrf.5gc.example.", true},
        {"a.wild.example", true},
        {"a.b.wild.example", false},
        {"wild.example", false},
        {"leaf", false}, /* the common name is no name (RFC 9525, section 2) */
        {"198.18.0.1", true},
        {"198.18.0.2", false},
        {"fd00::1", true},
        {"fd00:0:0::1", true},
        {"fd00::2", false},
        {"urn:uuid:4947a69a-f61b-4bc1-b9da-47c9c5d14b64", true},
        {"URN:UUID:4947A69A-F61B-4BC1-B9DA-47C9C5D14B64", true},
        {"spiffe://example/amf", false},
        {"urn:uuid:4947a69a-f61b-4bc1-b9da-47c9c5d14b6", false},
        {"urn:uuid:4947a69a-f61b-4bc1-b9da-47c9c5d14b64a", false},
        {"example", false},
    };
    (void)state;
    struct authority a = authority("p384", "p384", san);
    struct pq_tls_settings client = pair_settings(PQ_MODE_CLASSICAL, 3, NULL, a.root),
                           server = pair_settings(PQ_MODE_CLASSICAL, 3, a.leaf, NULL);
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pair p;
        pair_new(&p, world.crypto, &client, &server, rows[i].name, PAIR_PLAIN);
        pair_drive(&p);
        if ((p.client_result == 0) != rows[i].shown)
            fail_msg("%s: %s %s", rows[i].name, pq_error_name(p.client_result), pq_tls_failure(p.client));
        if (!rows[i].shown)
            assert_int_equal(pq_tls_reason(p.client), PQ_TLS_WRONG_NAME);
        pair_free(&p);
    }
}

static void alternative_names(void **state)
{
    (void)state;
    struct authority a = authority("p384", "p384", "DNS:b.example,IP:198.18.0.1");
    struct pq_tls_settings client = pair_settings(PQ_MODE_CLASSICAL, 3, NULL, a.root),
                           server = pair_settings(PQ_MODE_CLASSICAL, 3, a.leaf, NULL);
    char *alternatives[] = {(char[]){"198.18.0.9"}, (char[]){"a.example"}, (char[]){"b.example"}};
    struct pq_strings list = {alternatives, 3};
    struct pair p;
    pair_new(&p, world.crypto, &client, &server, NULL, PAIR_PLAIN);
    pq_tls_free(p.client);
    p.client = NULL;
    assert_int_equal(pq_tls_new(p.client_context, p.client_fd, &list, &p.client), 0);
    pair_expect_done(&p);
    pair_free(&p);
    char *bad[] = {(char[]){".example"}};
    struct pq_strings bad_list = {bad, 1};
    struct pq_tls *t = NULL;
    pair_new(&p, world.crypto, &client, &server, NULL, PAIR_PLAIN);
    assert_int_equal(pq_tls_new(p.client_context, p.client_fd, &bad_list, &t), PQ_E_INVALID);
    bad[0][0] = '\0';
    assert_int_equal(pq_tls_new(p.client_context, p.client_fd, &bad_list, &t), PQ_E_INVALID);
    assert_null(t);
    pair_free(&p);
}

static void post_quantum_group_costs_a_retry(void **state)
{
    (void)state;
    struct authority a = authority("ML-DSA-65", "ML-DSA-65", "DNS:leaf.example");
    struct pq_tls_settings client = pair_settings(PQ_MODE_HYBRID, 3, NULL, a.root),
                           server = pair_settings(PQ_MODE_HYBRID, 3, a.leaf, NULL);
    static const struct {
        const char *client, *server, *group;
        bool retry;
    } rows[] = {
        {"x25519:X25519MLKEM768", "X25519MLKEM768:x25519", "X25519MLKEM768", true},
        {"x25519:X25519MLKEM768", "X25519MLKEM768:SecP256r1MLKEM768:x25519:secp256r1", "X25519MLKEM768", true},
        {"SecP256r1MLKEM768:X25519MLKEM768", "X25519MLKEM768:SecP256r1MLKEM768", "SecP256r1MLKEM768", false},
        {"x25519", "X25519MLKEM768:x25519", "x25519", false},
        {"X25519MLKEM768:x25519", "X25519MLKEM768:x25519", "X25519MLKEM768", false},
        {"x25519:MLKEM768", "x25519/MLKEM768", "x25519", false}, /* tuples of one's own stay */
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        client.policy.groups = (char *)(uintptr_t)rows[i].client;
        server.policy.groups = (char *)(uintptr_t)rows[i].server;
        struct pair p;
        pair_new(&p, world.crypto, &client, &server, "leaf.example", PAIR_PLAIN);
        pair_expect_done(&p);
        assert_string_equal(pq_tls_info(p.client)->group, rows[i].group);
        assert_string_equal(pq_tls_info(p.server)->group, rows[i].group);
        assert_int_equal(pq_tls_info(p.client)->hello_retry, rows[i].retry);
        assert_int_equal(pq_tls_info(p.server)->hello_retry, rows[i].retry);
        pair_free(&p);
    }
}

/* A server's flight of more than 60 KB: eight intermediates of ML-DSA-87. */
static const struct cert *long_chain(const struct cert **root)
{
    static const char *const at[] = {"i1", "i2", "i3", "i4", "i5", "i6", "i7", "i8"};
    *root = certs_make(&world, (struct cert_how){.algorithm = "ML-DSA-87", .name = "root", .ca = true});
    const struct cert *issuer = *root;
    for (size_t i = 0; i < PQ_COUNT(at); i++)
        issuer = certs_make(&world,
                            (struct cert_how){.algorithm = "ML-DSA-87", .name = at[i], .issuer = issuer, .ca = true});
    return certs_make(
        &world,
        (struct cert_how){.algorithm = "ML-DSA-87", .name = "leaf", .issuer = issuer, .san = "DNS:leaf.example"});
}

static void long_flight_byte_by_byte(void **state)
{
    (void)state;
    const struct cert *root, *leaf = long_chain(&root);
    struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 5, leaf, root);
    s.max_certificate_list = 80000;
    struct pair p;
    pair_new(&p, world.crypto, &s, &s, "leaf.example", PAIR_ONE_BYTE);
    pair_expect_done(&p);
    assert_true(p.moved > 2 * 60000);
    exchange(&p);
    pair_free(&p);
}

/* Each second send finds no room, and the others take 1000 bytes. */
static void long_flight_through_a_narrow_socket(void **state)
{
    (void)state;
    const struct cert *root, *leaf = long_chain(&root);
    struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 5, leaf, root);
    s.max_certificate_list = 80000;
    struct pair p;
    pair_new(&p, world.crypto, &s, &s, "leaf.example", PAIR_PLAIN);
    send_most = 1000;
    pair_expect_done(&p);
    char out[40000], in[40000];
    size_t sent = 0, got = 0, n = 0;
    for (size_t i = 0; i < sizeof out; i++)
        out[i] = (char)(i * 7);
    for (bool waited = false; got < sizeof in;) {
        char moved[sizeof out]; /* after a wait the same bytes may come from elsewhere */
        memcpy(moved, out, sizeof out);
        int e = sent < sizeof out ? pq_tls_write(p.client, (waited ? moved : out) + sent, sizeof out - sent, &n)
                                  : PQ_E_WANT_READ;
        waited = e == PQ_E_WANT_WRITE;
        assert_true(e == 0 || e == PQ_E_WANT_WRITE || e == PQ_E_WANT_READ);
        if (waited)
            assert_int_equal(pq_tls_close_notify(p.client), PQ_E_USAGE);
        sent += e == 0 ? n : 0;
        e = pq_tls_read(p.server, in + got, sizeof in - got, &n);
        assert_true(e == 0 || e == PQ_E_WANT_READ);
        got += e == 0 ? n : 0;
    }
    send_most = 0;
    assert_memory_equal(in, out, sizeof out);
    pair_free(&p);
}

static struct pair ready_pair(void)
{
    struct authority a = authority("p256", "p256", "DNS:leaf.example");
    struct pq_tls_settings client = pair_settings(PQ_MODE_CLASSICAL, 1, NULL, a.root),
                           server = pair_settings(PQ_MODE_CLASSICAL, 1, a.leaf, NULL);
    struct pair p;
    pair_new(&p, world.crypto, &client, &server, "leaf.example", PAIR_PLAIN);
    pair_expect_done(&p);
    return p;
}

static void half_close(struct pq_tls *ender, struct pq_tls *other)
{
    char in[64];
    size_t n = 0;
    assert_int_equal(pq_tls_write(ender, "last", 4, &n), 0);
    assert_int_equal(pq_tls_close_notify(ender), 0);
    assert_int_equal(pq_tls_close_notify(ender), 0);
    assert_int_equal(pq_tls_write(ender, "more", 4, &n), PQ_E_USAGE);
    assert_int_equal(pq_tls_read(other, in, sizeof in, &n), 0);
    assert_int_equal(pq_tls_read(other, in, sizeof in, &n), PQ_E_CLOSED);
    assert_int_equal(pq_tls_read(other, in, sizeof in, &n), PQ_E_CLOSED);
    assert_int_equal(pq_tls_read(ender, in, sizeof in, &n), PQ_E_WANT_READ);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pq_tls_write(other, "answer", 6, &n), 0);
        assert_int_equal(pq_tls_read(ender, in, sizeof in, &n), 0);
        assert_memory_equal(in, "answer", 6);
    }
    assert_int_equal(pq_tls_close_notify(other), 0);
    assert_int_equal(pq_tls_read(ender, in, sizeof in, &n), PQ_E_CLOSED);
    assert_int_equal(pq_tls_reason(ender), PQ_TLS_NONE);
}

/* A flood of KeyUpdates must not keep one read busy: it hands back after each. */
static void update_keys(struct pq_tls *t, int times)
{
    for (int i = 0; i < times; i++) {
        assert_int_equal(SSL_key_update(t->ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
        assert_int_equal(SSL_do_handshake(t->ssl), 1);
    }
}

/* All that came in one piece is read without waiting for more: no event would tell of it. */
static void data_behind_key_updates_is_not_left_lying(void **state)
{
    (void)state;
    struct pair p = ready_pair();
    char in[8];
    size_t n = 0;
    update_keys(p.client, 64);
    assert_int_equal(pq_tls_write(p.client, "end", 3, &n), 0);
    assert_int_equal(pq_tls_read(p.server, in, sizeof in, &n), 0);
    assert_int_equal(n, 3);
    assert_int_equal(pq_tls_read(p.server, in, sizeof in, &n), PQ_E_WANT_READ);
    pair_free(&p);
}

static void key_updates_without_end(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct pair p = ready_pair();
        struct pq_tls *flood = i ? p.server : p.client, *suffers = i ? p.client : p.server;
        char in[8];
        size_t n = 0;
        update_keys(flood, 64);
        assert_int_equal(pq_tls_read(suffers, in, sizeof in, &n), PQ_E_WANT_READ);
        update_keys(flood, 1);
        assert_int_equal(pq_tls_read(suffers, in, sizeof in, &n), PQ_E_PROTOCOL);
        assert_int_equal(pq_tls_reason(suffers), PQ_TLS_KEY_UPDATES);
        assert_string_equal(pq_tls_reason_label(PQ_TLS_KEY_UPDATES), "key-updates");
        assert_int_equal(pq_tls_read(suffers, in, sizeof in, &n), PQ_E_PROTOCOL);
        pair_free(&p);
    }
}

/* Data between them, or time, lets more come. */
static void key_updates_now_and_then(void **state)
{
    (void)state;
    struct pair p = ready_pair();
    static char bulk[16384], in[16384];
    size_t n = 0;
    for (int round = 0; round < 4; round++) {
        update_keys(p.client, 40);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(pq_tls_write(p.client, bulk, sizeof bulk, &n), 0);
            assert_int_equal(pq_tls_read(p.server, in, sizeof in, &n), 0);
            assert_int_equal(n, sizeof bulk);
        }
    }
    for (int i = 0; i < 200; i++) { /* one a second */
        update_keys(p.client, 1);
        p.server->idle_talk.last -= PQ_NS_PER_S;
        assert_int_equal(pq_tls_read(p.server, in, sizeof in, &n), PQ_E_WANT_READ);
    }
    pair_free(&p);
}

static void several_records_come_at_once(void **state)
{
    (void)state;
    struct pair p = ready_pair();
    char in[64];
    size_t n = 0;
    for (int i = 0; i < 8; i++)
        assert_int_equal(pq_tls_write(p.client, "0123456789", 10, &n), 0);
    receives = 0;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(pq_tls_read(p.server, in, sizeof in, &n), 0);
        assert_int_equal(n, 10);
        assert_int_equal(pq_tls_pending(p.server) > 0, i < 7);
    }
    assert_int_equal(receives, 1);
    assert_int_equal(pq_tls_read(p.server, in, sizeof in, &n), PQ_E_WANT_READ);
    pair_free(&p);
}

/* What a turn leaves in the socket an event tells of; it leaves nothing elsewhere. */
static void held_reads_take_only_what_came(void **state)
{
    (void)state;
    struct pair p = ready_pair();
    char in[64];
    size_t n = 0;
    assert_int_equal(pq_tls_write(p.client, "one", 3, &n), 0);
    assert_int_equal(pq_tls_write(p.client, "two", 3, &n), 0);
    pq_tls_hold(p.server, true);
    assert_int_equal(pq_tls_read(p.server, in, sizeof in, &n), PQ_E_WANT_READ);
    pq_tls_hold(p.server, false);
    assert_int_equal(pq_tls_read(p.server, in, sizeof in, &n), 0);
    assert_int_equal(pq_tls_write(p.client, "three", 5, &n), 0);
    pq_tls_hold(p.server, true);
    assert_int_equal(pq_tls_read(p.server, in, sizeof in, &n), 0);
    assert_memory_equal(in, "two", 3);
    assert_int_equal(pq_tls_read(p.server, in, sizeof in, &n), PQ_E_WANT_READ);
    assert_int_equal(pq_tls_pending(p.server), 0);
    pq_tls_hold(p.server, false);
    assert_int_equal(pq_tls_read(p.server, in, sizeof in, &n), 0);
    assert_memory_equal(in, "three", 5);
    pair_free(&p);
}

static void a_client_learns_that_it_is_accepted(void **state)
{
    (void)state;
    struct pair p = ready_pair();
    char in[64];
    size_t n = 0;
    assert_true(pq_tls_accepted(p.server));
    assert_false(pq_tls_accepted(p.client));
    assert_int_equal(pq_tls_read(p.client, in, sizeof in, &n), PQ_E_WANT_READ);
    assert_false(pq_tls_accepted(p.client));
    assert_int_equal(pq_tls_write(p.server, "welcome", 7, &n), 0);
    assert_int_equal(pq_tls_read(p.client, in, sizeof in, &n), 0);
    assert_true(pq_tls_accepted(p.client));
    pair_free(&p);
}

static void half_close_by_client(void **state)
{
    (void)state;
    struct pair p = ready_pair();
    half_close(p.client, p.server);
    pair_free(&p);
}
static void half_close_by_server(void **state)
{
    (void)state;
    struct pair p = ready_pair();
    half_close(p.server, p.client);
    pair_free(&p);
}

static void end_without_close_notify_is_a_reset(void **state)
{
    (void)state;
    struct pair p = ready_pair();
    char in[64];
    size_t n = 0;
    assert_int_equal(pq_tls_write(p.server, "cut", 3, &n), 0);
    shutdown(p.server_fd, SHUT_WR);
    assert_int_equal(pq_tls_read(p.client, in, sizeof in, &n), 0);
    assert_int_equal(pq_tls_read(p.client, in, sizeof in, &n), PQ_E_RESET);
    assert_int_equal(pq_tls_reason(p.client), PQ_TLS_RESET);
    assert_int_equal(pq_tls_read(p.client, in, sizeof in, &n), PQ_E_RESET);
    pair_free(&p);
}

static void write_to_a_closed_peer_is_a_reset(void **state)
{
    (void)state;
    struct pair p = ready_pair();
    size_t n = 0;
    close(p.server_fd);
    p.server_fd = -1;
    assert_int_equal(pq_tls_write(p.client, "lost", 4, &n), PQ_E_RESET);
    assert_int_equal(pq_tls_reason(p.client), PQ_TLS_RESET);
    pair_free(&p);
}

static void damaged_record_is_the_peers_failure(void **state)
{
    (void)state;
    struct pair p = ready_pair();
    static const unsigned char record[] = {23, 3,  3,  0,  20, 1,  2,  3,  4,  5,  6,  7, 8,
                                           9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
    char in[64];
    size_t n = 0;
    assert_int_equal(__real_send(p.server_fd, record, sizeof record, 0), sizeof record);
    assert_int_equal(pq_tls_read(p.client, in, sizeof in, &n), PQ_E_PROTOCOL);
    assert_int_equal(pq_tls_reason(p.client), PQ_TLS_PROTOCOL);
    assert_int_equal(pq_tls_read(p.server, in, sizeof in, &n), PQ_E_PROTOCOL);
    assert_int_equal(pq_tls_reason(p.server), PQ_TLS_PEER_ALERT);
    pair_free(&p);
}

static void pending_tells_of_decrypted_bytes(void **state)
{
    (void)state;
    struct pair p = ready_pair();
    char in[4];
    size_t n = 0;
    assert_int_equal(pq_tls_write(p.client, "0123456789", 10, &n), 0);
    assert_int_equal(pq_tls_pending(p.server), 0);
    assert_int_equal(pq_tls_read(p.server, in, sizeof in, &n), 0);
    assert_int_equal(n, 4);
    assert_int_equal(pq_tls_pending(p.server), 6);
    pair_free(&p);
}

static void data_before_the_handshake_is_wrong_usage(void **state)
{
    (void)state;
    struct authority a = authority("p256", "p256", "DNS:leaf.example");
    struct pq_tls_settings client = pair_settings(PQ_MODE_CLASSICAL, 1, NULL, a.root),
                           server = pair_settings(PQ_MODE_CLASSICAL, 1, a.leaf, NULL);
    struct pair p;
    char in[4];
    size_t n = 0;
    pair_new(&p, world.crypto, &client, &server, "leaf.example", PAIR_PLAIN);
    assert_int_equal(pq_tls_write(p.client, "early", 5, &n), PQ_E_USAGE);
    assert_int_equal(pq_tls_read(p.client, in, sizeof in, &n), PQ_E_USAGE);
    assert_int_equal(pq_tls_close_notify(p.client), PQ_E_USAGE);
    pair_expect_done(&p);
    assert_int_equal(pq_tls_handshake(p.client), 0);
    pair_free(&p);
}

static void application_protocols(void **state)
{
    static const struct {
        const struct pq_strings *client, *server;
        bool optional;
        const char *agreed; /* NULL: refused */
    } rows[] = {
        {&pair_h2, &pair_h2, false, "h2"},     {&pair_both, &pair_http1, false, "http/1.1"},
        {&pair_both, &pair_both, false, "h2"}, {&pair_http1, &pair_both, false, "http/1.1"},
        {&pair_http1, &pair_h2, false, NULL},  {&pair_http1, &pair_h2, true, ""},
        {NULL, &pair_h2, false, ""},           {NULL, &pair_h2, true, ""},
        {&pair_h2, NULL, false, ""},
    };
    (void)state;
    struct authority a = authority("p384", "p384", "DNS:leaf.example");
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_tls_settings client = pair_settings(PQ_MODE_CLASSICAL, 3, NULL, a.root),
                               server = pair_settings(PQ_MODE_CLASSICAL, 3, a.leaf, NULL);
        client.alpn = rows[i].client;
        server.alpn = rows[i].server;
        server.alpn_optional = rows[i].optional;
        struct pair p;
        pair_new(&p, world.crypto, &client, &server, "leaf.example", PAIR_PLAIN);
        pair_drive(&p);
        assert_int_equal(p.client_result == 0, rows[i].agreed != NULL);
        if (rows[i].agreed) {
            assert_string_equal(pq_tls_info(p.client)->alpn, rows[i].agreed);
            assert_string_equal(pq_tls_info(p.server)->alpn, rows[i].agreed);
        }
        pair_free(&p);
    }
}

static void memory_handshake(void **state)
{
    (void)state;
    struct authority a = authority("ML-DSA-65", "ML-DSA-65", "DNS:leaf.example");
    struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 3, a.leaf, a.root);
    struct pair p;
    pair_new(&p, world.crypto, &s, &s, NULL, PAIR_PLAIN);
    struct pq_tls_memory_cost cost = {0};
    struct pq_why why = {{0}};
    for (int i = 0; i < 3; i++)
        assert_int_equal(pq_tls_memory_handshake(p.client_context, p.server_context, &cost, &why), 0);
    assert_true(cost.client_cpu_ns > 0 && cost.server_cpu_ns > 0);
    assert_true(cost.total_ns > 0);
    /* ClientHello with an ML-KEM-768 key (1184), certificate and signature of ML-DSA-65 (1952 + 2 x 3309). */
    assert_uint_in_range(cost.client_bytes, 1184 + 8570, 1184 + 8570 + 1500);
    assert_uint_in_range(cost.server_bytes, 1088 + 8570, 1088 + 8570 + 1500);
    assert_int_equal(pq_tls_memory_handshake(p.server_context, p.client_context, &cost, &why), PQ_E_USAGE);
    pair_free(&p);
    /* Trusting nobody: */
    struct pq_tls_settings client = s;
    client.ca = NULL;
    pair_new(&p, world.crypto, &client, &s, NULL, PAIR_PLAIN);
    assert_int_equal(pq_tls_memory_handshake(p.client_context, p.server_context, &cost, &why), PQ_E_AUTH);
    pair_free(&p);
}

static void every_reason_has_a_label(void **state)
{
    (void)state;
    assert_string_equal(pq_tls_reason_label(PQ_TLS_NONE), "ok");
    assert_string_equal(pq_tls_reason_label(PQ_TLS_INTERNAL), "internal-error");
    assert_string_equal(pq_tls_reason_label(PQ_TLS_REASON_COUNT), "unknown");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_suite),
        TEST(chains_of_other_algorithms),
        TEST(anchor_need_not_be_a_root),
        TEST(unverified_peer_is_accepted_but_never_pq_auth),
        TEST(root_is_not_sent),
        TEST(names),
        TEST(alternative_names),
        TEST(post_quantum_group_costs_a_retry),
        TEST(long_flight_byte_by_byte),
        TEST(long_flight_through_a_narrow_socket),
        TEST(data_behind_key_updates_is_not_left_lying),
        TEST(key_updates_without_end),
        TEST(key_updates_now_and_then),
        TEST(several_records_come_at_once),
        TEST(held_reads_take_only_what_came),
        TEST(a_client_learns_that_it_is_accepted),
        TEST(half_close_by_client),
        TEST(half_close_by_server),
        TEST(end_without_close_notify_is_a_reset),
        TEST(write_to_a_closed_peer_is_a_reset),
        TEST(damaged_record_is_the_peers_failure),
        TEST(pending_tells_of_decrypted_bytes),
        TEST(data_before_the_handshake_is_wrong_usage),
        TEST(application_protocols),
        TEST(memory_handshake),
        cmocka_unit_test(every_reason_has_a_label),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
