/* Handshakes that fail: each reason, seen from the side that found it and from the other. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "certs.h"
#include "pair.h"
#include "refused.h"

/* Lets the kernel report an error that no test can wait for. */
static int recv_errno;
ssize_t __real_recv(int fd, void *out, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *out, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *out, size_t size, int flags)
{
    if (!recv_errno)
        return __real_recv(fd, out, size, flags);
    errno = recv_errno;
    return -1;
}

static struct certs world;

static int set_up(void **state)
{
    (void)state;
    recv_errno = 0;
    certs_new(&world);
    return 0;
}
static int tear_down(void **state)
{
    (void)state;
    certs_free(&world);
    return 0;
}

static const struct cert *root_of(const char *algorithm)
{
    return certs_make(&world, (struct cert_how){.algorithm = algorithm, .name = "root", .ca = true});
}
static const struct cert *leaf_of(const struct cert *root, const char *algorithm)
{
    return certs_make(
        &world, (struct cert_how){.algorithm = algorithm, .name = "leaf", .issuer = root, .san = "DNS:leaf.example"});
}

static void run(const struct pq_tls_settings *client, const struct pq_tls_settings *server, const char *name,
                struct expected at_client, struct expected at_server)
{
    refused_run(world.crypto, client, server, name, at_client, at_server);
}

/* --- the peer's certificate -----------------------------------------------------------------------------------------
 */

static void check_dates(long from_s, long to_s, enum pq_tls_reason reason, const char *says, const char *alert_text)
{
    const struct cert *root = root_of("ML-DSA-65");
    const struct cert *good = leaf_of(root, "ML-DSA-65");
    const struct cert *bad = certs_make(&world, (struct cert_how){.algorithm = "ML-DSA-65",
                                                                  .name = "bad",
                                                                  .issuer = root,
                                                                  .san = "DNS:leaf.example",
                                                                  .from_s = from_s,
                                                                  .to_s = to_s});
    struct pq_tls_settings with_good = pair_settings(PQ_MODE_HYBRID, 3, good, root),
                           with_bad = pair_settings(PQ_MODE_HYBRID, 3, bad, root);
    struct expected found = {PQ_E_AUTH, reason, says};
    run(&with_good, &with_bad, "leaf.example", found, refused_alert(alert_text));
    run(&with_bad, &with_good, "leaf.example", refused_alert(alert_text), found);
}
static void expired(void **state)
{
    (void)state;
    check_dates(-7200, -3600, PQ_TLS_EXPIRED, "the peer's certificate (CN=bad) expired on 2", "certificate expired");
}
static void not_yet_valid(void **state)
{
    (void)state;
    check_dates(3600, 7200, PQ_TLS_NOT_YET_VALID, "the peer's certificate (CN=bad) is not valid before 2",
                "bad certificate");
}
static void issuer_expired(void **state)
{
    (void)state;
    const struct cert *root = root_of("p384");
    const struct cert *between = certs_make(
        &world,
        (struct cert_how){
            .algorithm = "p384", .name = "between", .issuer = root, .ca = true, .from_s = -7200, .to_s = -3600});
    const struct cert *leaf = leaf_of(between, "p384");
    struct pq_tls_settings s = pair_settings(PQ_MODE_CLASSICAL, 3, leaf, NULL),
                           c = pair_settings(PQ_MODE_CLASSICAL, 3, NULL, root);
    run(&c, &s, "leaf.example",
        (struct expected){PQ_E_AUTH, PQ_TLS_EXPIRED, "the peer's issuer's certificate (CN=between) expired"},
        refused_alert("certificate expired"));
}
static void wrong_name(void **state)
{
    (void)state;
    const struct cert *root = root_of("p384"), *leaf = leaf_of(root, "p384");
    struct pq_tls_settings s = pair_settings(PQ_MODE_CLASSICAL, 3, leaf, NULL),
                           c = pair_settings(PQ_MODE_CLASSICAL, 3, NULL, root);
    run(&c, &s, "other.example",
        (struct expected){PQ_E_AUTH, PQ_TLS_WRONG_NAME, "(CN=leaf) does not show the name other.example"},
        refused_alert("bad certificate"));
}
static void untrusted(void **state)
{
    (void)state;
    const struct cert *root = root_of("p384"), *leaf = leaf_of(root, "p384");
    const struct cert *other = certs_make(&world, (struct cert_how){.algorithm = "p384", .name = "other", .ca = true});
    const struct cert *alone =
        certs_make(&world, (struct cert_how){.algorithm = "p384", .name = "alone", .san = "DNS:leaf.example"});
    const struct cert *impostor =
        certs_make(&world, (struct cert_how){.algorithm = "p384", .name = "root", .ca = true});
    struct pq_tls_settings s = pair_settings(PQ_MODE_CLASSICAL, 3, leaf, NULL),
                           c = pair_settings(PQ_MODE_CLASSICAL, 3, NULL, other);
    struct expected e = {PQ_E_AUTH, PQ_TLS_UNTRUSTED, "leads to no trust anchor"};
    run(&c, &s, "leaf.example", e, refused_alert("unknown CA"));
    c = pair_settings(PQ_MODE_CLASSICAL, 3, NULL, impostor);
    run(&c, &s, "leaf.example", e, refused_alert("unknown CA"));
    c.ca = NULL;
    run(&c, &s, "leaf.example", e, refused_alert("unknown CA"));
    c = pair_settings(PQ_MODE_CLASSICAL, 3, NULL, root);
    s = pair_settings(PQ_MODE_CLASSICAL, 3, alone, NULL);
    run(&c, &s, "leaf.example", (struct expected){PQ_E_AUTH, PQ_TLS_UNTRUSTED, "(CN=alone) is self-signed"},
        refused_alert("unknown CA"));
    /* And a client that the server does not trust, which says so only after the client thinks that it is connected. */
    root = root_of("p384");
    leaf = leaf_of(root, "p384");
    s = pair_settings(PQ_MODE_CLASSICAL, 3, leaf, other);
    c = pair_settings(PQ_MODE_CLASSICAL, 3, leaf, root);
    run(&c, &s, "leaf.example", refused_alert("it does not trust our certificate's authority"), e);
}
static void wrong_key_usage(void **state)
{
    (void)state;
    const struct cert *root = root_of("p384");
    const struct cert *leaf = certs_make(
        &world,
        (struct cert_how){
            .algorithm = "p384", .name = "leaf", .issuer = root, .san = "DNS:leaf.example", .eku = "clientAuth"});
    struct pq_tls_settings s = pair_settings(PQ_MODE_CLASSICAL, 3, leaf, NULL),
                           c = pair_settings(PQ_MODE_CLASSICAL, 3, NULL, root);
    run(&c, &s, "leaf.example", (struct expected){PQ_E_AUTH, PQ_TLS_BAD_CERTIFICATE, "unsuitable certificate purpose"},
        refused_alert("unsupported certificate"));
    /* Issued by a leaf: */
    const struct cert *below = leaf_of(leaf, "p384");
    s = pair_settings(PQ_MODE_CLASSICAL, 3, below, NULL);
    run(&c, &s, "leaf.example", (struct expected){PQ_E_AUTH, PQ_TLS_BAD_CERTIFICATE, "is not acceptable"},
        refused_alert(""));
}
static void too_weak(void **state)
{
    (void)state;
    const struct cert *root = root_of("p384");
    const struct cert *between =
        certs_make(&world, (struct cert_how){.algorithm = "rsa1024", .name = "between", .issuer = root, .ca = true});
    const struct cert *leaf = leaf_of(between, "p384");
    struct pq_tls_settings s = pair_settings(PQ_MODE_CLASSICAL, 3, leaf, NULL),
                           c = pair_settings(PQ_MODE_CLASSICAL, 3, NULL, root);
    struct pq_tls_context *t = NULL;
    struct pq_why why = {{0}};
    assert_int_equal(pq_tls_context_new(world.crypto, PQ_TLS_SERVER, &s, &t, &why), PQ_E_CONFIG);
    assert_non_null(strstr(why.text, "too small"));
    (void)c;
}

/* --- what both have to agree on
 * --------------------------------------------------------------------------------------- */

static void no_certificate(void **state)
{
    (void)state;
    const struct cert *root = root_of("ML-DSA-65"), *leaf = leaf_of(root, "ML-DSA-65");
    const struct cert *weaker =
        certs_make(&world, (struct cert_how){.algorithm = "ML-DSA-44", .name = "weaker", .issuer = root});
    struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 3, leaf, root),
                           c = pair_settings(PQ_MODE_HYBRID, 3, NULL, root);
    struct expected found = {PQ_E_AUTH, PQ_TLS_NO_CERTIFICATE, "mldsa65:mldsa87"};
    run(&c, &s, "leaf.example", refused_alert("certificate required"), found);
    c = pair_settings(PQ_MODE_HYBRID, 1, weaker, root); /* has one that the server's sigalgs do not take */
    c.policy.ciphersuites = (char *)(uintptr_t)"TLS_AES_256_GCM_SHA384";
    run(&c, &s, "leaf.example", refused_alert("certificate required"), found);
}
static void certificates_too_long(void **state)
{
    (void)state;
    const struct cert *root = root_of("SLH-DSA-SHA2-256f"), *leaf = leaf_of(root, "ML-DSA-65");
    struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 3, leaf, NULL),
                           c = pair_settings(PQ_MODE_HYBRID, 3, NULL, root);
    c.max_certificate_list = 50000;
    run(&c, &s, "leaf.example", (struct expected){PQ_E_PROTOCOL, PQ_TLS_CERTIFICATES_TOO_LONG, "cap"},
        (struct expected){PQ_E_PROTOCOL, PQ_TLS_PEER_ALERT, "illegal parameter"});
}
static void no_shared_group(void **state)
{
    (void)state;
    const struct cert *root = root_of("ML-DSA-65"), *leaf = leaf_of(root, "ML-DSA-65");
    struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 3, leaf, NULL),
                           c = pair_settings(PQ_MODE_PURE, 3, NULL, root);
    run(&c, &s, "leaf.example", refused_handshake(),
        (struct expected){PQ_E_PROTOCOL, PQ_TLS_NO_SHARED_GROUP,
                          "give the peer one of X25519MLKEM768:SecP256r1MLKEM768"});
}
static void no_shared_sigalg(void **state)
{
    (void)state;
    const struct cert *root = root_of("ML-DSA-65"), *leaf = leaf_of(root, "ML-DSA-65");
    struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 3, leaf, NULL),
                           c = pair_settings(PQ_MODE_HYBRID, 3, NULL, root);
    c.policy.sigalgs = (char *)(uintptr_t)"ecdsa_secp384r1_sha384";
    run(&c, &s, "leaf.example", refused_handshake(),
        (struct expected){PQ_E_PROTOCOL, PQ_TLS_NO_SHARED_SIGALG, "give the peer one of mldsa65:mldsa87"});
}
static void no_shared_cipher(void **state)
{
    (void)state;
    const struct cert *root = root_of("ML-DSA-65"), *leaf = leaf_of(root, "ML-DSA-65");
    struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 3, leaf, NULL),
                           c = pair_settings(PQ_MODE_HYBRID, 3, NULL, root);
    c.policy.ciphersuites = (char *)(uintptr_t)"TLS_AES_128_GCM_SHA256";
    run(&c, &s, "leaf.example", refused_handshake(),
        (struct expected){PQ_E_PROTOCOL, PQ_TLS_NO_SHARED_CIPHER, "cipher"});
}
static void other_application_protocol(void **state)
{
    (void)state;
    const struct cert *root = root_of("p384"), *leaf = leaf_of(root, "p384");
    struct pq_tls_settings s = pair_settings(PQ_MODE_CLASSICAL, 3, leaf, NULL),
                           c = pair_settings(PQ_MODE_CLASSICAL, 3, NULL, root);
    s.alpn = &pair_h2;
    c.alpn = &pair_http1;
    run(&c, &s, "leaf.example", (struct expected){PQ_E_PROTOCOL, PQ_TLS_ALPN, "application protocol"},
        (struct expected){PQ_E_PROTOCOL, PQ_TLS_PROTOCOL, "application protocol"});
}

/* --- policy ----------------------------------------------------------------------------------------------------------
 */

static void policy_kex(void **state)
{
    (void)state;
    const struct cert *root = root_of("ML-DSA-65"), *leaf = leaf_of(root, "ML-DSA-65");
    struct expected refused = {PQ_E_POLICY, PQ_TLS_POLICY_KEX, "the key exchange is x25519"};
    for (int mutual = 0; mutual < 2; mutual++) {
        struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 3, leaf, mutual ? root : NULL);
        struct pq_tls_settings c = pair_settings(PQ_MODE_HYBRID, 3, leaf, root);
        c.policy.groups = (char *)(uintptr_t)"x25519";
        s.policy.groups = (char *)(uintptr_t)"X25519MLKEM768:x25519";
        s.policy.require_pq_kex = true;
        run(&c, &s, "leaf.example", refused_handshake(), refused);
        s.policy.require_pq_kex = false;
        c.policy.require_pq_kex = true;
        run(&c, &s, "leaf.example", refused, refused_handshake());
    }
    /* A client that can do better is asked for it, and then it holds. */
    struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 3, leaf, NULL),
                           c = pair_settings(PQ_MODE_HYBRID, 3, NULL, root);
    struct pair p;
    c.policy.groups = (char *)(uintptr_t)"x25519:X25519MLKEM768";
    s.policy.groups = (char *)(uintptr_t)"X25519MLKEM768:x25519";
    s.policy.require_pq_kex = c.policy.require_pq_kex = true;
    pair_new(&p, world.crypto, &c, &s, "leaf.example", PAIR_PLAIN);
    pair_expect_done(&p);
    assert_true(pq_tls_info(p.server)->pq_kex && pq_tls_info(p.server)->hello_retry);
    pair_free(&p);
}
static void policy_auth(void **state)
{
    static const struct {
        const char *root, *between, *leaf;
        bool refused;
    } rows[] = {
        {"ML-DSA-65", "ML-DSA-65", "ML-DSA-65", false}, {"SLH-DSA-SHA2-128f", "ML-DSA-65", "ML-DSA-65", false},
        {"p384", "ML-DSA-65", "ML-DSA-65", true},       {"ML-DSA-65", "p384", "ML-DSA-65", true},
        {"ML-DSA-65", "ML-DSA-65", "p384", true},       {"rsa2048", "p384", "p384", true},
    };
    (void)state;
    struct expected refused = {PQ_E_POLICY, PQ_TLS_POLICY_AUTH,
                               "path of the peer's certificate (CN=leaf) is not post-quantum"};
    const struct cert *good_root =
        certs_make(&world, (struct cert_how){.algorithm = "ML-DSA-65", .name = "good-root", .ca = true});
    const struct cert *good = certs_make(
        &world,
        (struct cert_how){.algorithm = "ML-DSA-65", .name = "good", .issuer = good_root, .san = "DNS:leaf.example"});
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        const struct cert *root = root_of(rows[i].root);
        const struct cert *between = certs_make(
            &world, (struct cert_how){.algorithm = rows[i].between, .name = "between", .issuer = root, .ca = true});
        const struct cert *leaf = leaf_of(between, rows[i].leaf);
        struct pq_tls_settings judged = pair_settings(PQ_MODE_HYBRID, 3, leaf, good_root),
                               judge = pair_settings(PQ_MODE_HYBRID, 3, good, root);
        judge.policy.require_pq_auth = true;
        judge.policy.sigalgs = judged.policy.sigalgs = (char *)(uintptr_t)"mldsa65:ecdsa_secp384r1_sha384";
        if (rows[i].refused) {
            run(&judge, &judged, "leaf.example", refused, refused_handshake());
            run(&judged, &judge, "leaf.example", refused_handshake(), refused);
            continue;
        }
        struct pair p;
        pair_new(&p, world.crypto, &judge, &judged, "leaf.example", PAIR_PLAIN);
        pair_expect_done(&p);
        pair_free(&p);
        pair_new(&p, world.crypto, &judged, &judge, "leaf.example", PAIR_PLAIN);
        pair_expect_done(&p);
        assert_true(pq_tls_info(p.server)->pq_auth);
        pair_free(&p);
    }
}

/* --- peers that are not ours
 * ------------------------------------------------------------------------------------------ */

/* OpenSSL alone, at a version, on the other end; mode as the role that it plays. */
static SSL *raw_peer(bool server, int version, int fd, const struct cert *own)
{
    SSL_CTX *c = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    assert_true(SSL_CTX_set_max_proto_version(c, version) && SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION));
    if (own)
        assert_true(SSL_CTX_use_certificate(c, own->x) && SSL_CTX_use_PrivateKey(c, own->key));
    SSL *s = SSL_new(c);
    SSL_CTX_free(c);
    SSL_set_fd(s, fd);
    if (server)
        SSL_set_accept_state(s);
    else
        SSL_set_connect_state(s);
    return s;
}

struct lone {
    struct pair p;
    struct pq_tls *t;
    int fd;
};
/* One of ours, the other end of its socket in the test's hands. */
static struct lone lone_in(enum pq_mode mode, int level, const char *key, bool server)
{
    const struct cert *root = root_of(key), *leaf = leaf_of(root, key);
    struct pq_tls_settings s = pair_settings(mode, level, leaf, NULL), c = pair_settings(mode, level, NULL, root);
    struct lone l;
    pair_new(&l.p, world.crypto, &c, &s, "leaf.example", PAIR_PLAIN);
    l.t = server ? l.p.server : l.p.client;
    l.fd = server ? l.p.client_fd : l.p.server_fd;
    return l;
}

static struct lone lone(bool server) { return lone_in(PQ_MODE_CLASSICAL, 1, "p256", server); }

static void old_version(void **state)
{
    (void)state;
    for (int server = 0; server < 2; server++) {
        struct lone l = lone(server);
        SSL *peer = raw_peer(!server, TLS1_2_VERSION, l.fd, server ? NULL : world.all[1]);
        int e = PQ_E_WANT_READ;
        for (int i = 0; i < 4 && e == PQ_E_WANT_READ; i++) {
            if (server)
                SSL_do_handshake(peer);
            e = pq_tls_handshake(l.t);
            if (!server)
                SSL_do_handshake(peer);
        }
        refused_expect(server ? "server" : "client", l.t, e,
                       (struct expected){PQ_E_PROTOCOL, PQ_TLS_VERSION, "enable TLS 1.3"});
        SSL_free(peer);
        pair_free(&l.p);
    }
    ERR_clear_error();
}
static void plain_text(void **state)
{
    static const char *const texts[] = {"GET / HTTP/1.1\r\nHost: leaf.example\r\n\r\n",
                                        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                                        "220 mail.example ESMTP\r\n",
                                        "HTTP/1.1 400 Bad Request\r\n\r\n",
                                        "\x04\x00\x00\x08\x00\x00\x00\x01",
                                        "\x80\x2e\x01\x03\x01 and so on",
                                        "CONNECT leaf.example:443 HTTP/1.1\r\n\r\n"};
    (void)state;
    for (size_t i = 0; i < 2 * PQ_COUNT(texts); i++) {
        struct lone l = lone(i % 2);
        assert_int_equal(pq_tls_handshake(l.t), PQ_E_WANT_READ);
        size_t len = i / 2 == 4 ? 8 : strlen(texts[i / 2]);
        assert_int_equal(send(l.fd, texts[i / 2], len, 0), len);
        refused_expect(texts[i / 2], l.t, pq_tls_handshake(l.t),
                       (struct expected){PQ_E_PROTOCOL, PQ_TLS_NOT_TLS, "does not speak TLS"});
        pair_free(&l.p);
    }
}
static void short_plain_text(void **state)
{
    (void)state;
    struct lone l = lone(true);
    assert_int_equal(send(l.fd, "h", 1, 0), 1);
    refused_expect("server", l.t, pq_tls_handshake(l.t), (struct expected){PQ_E_PROTOCOL, PQ_TLS_NOT_TLS, ""});
    pair_free(&l.p);
}
static void broken_protocol(void **state)
{
    static const unsigned char record[] = {22, 3, 1, 0, 6, 14, 0, 0, 2, 1, 1}; /* no ClientHello */
    (void)state;
    struct lone l = lone(true);
    assert_int_equal(send(l.fd, record, sizeof record, 0), sizeof record);
    refused_expect("server", l.t, pq_tls_handshake(l.t),
                   (struct expected){PQ_E_PROTOCOL, PQ_TLS_PROTOCOL, "broke the protocol"});
    unsigned char answer[7];
    assert_int_equal(recv(l.fd, answer, sizeof answer, 0), 7);
    assert_int_equal(answer[0], 21); /* an alert, and it is fatal */
    assert_int_equal(answer[5], 2);
    pair_free(&l.p);
}
/* The cap of the certificate list is no reason before a certificate can have come. */
static void a_first_message_that_is_too_long(void **state)
{
    static const unsigned char record[] = {22, 3, 1, 0, 5, 1, 0xff, 0xff, 0xff, 0};
    (void)state;
    struct lone l = lone(true);
    assert_int_equal(send(l.fd, record, sizeof record, 0), sizeof record);
    refused_expect("server", l.t, pq_tls_handshake(l.t),
                   (struct expected){PQ_E_PROTOCOL, PQ_TLS_PROTOCOL, "longer than TLS allows"});
    pair_free(&l.p);
}
/* Coefficients of an ML-KEM key beyond the modulus (FIPS 203, 7.2) are the peer's fault, not our library's. */
static void a_key_share_that_is_no_key(void **state)
{
    static const unsigned char share[] = {0x11, 0xec, 0x04, 0xc0}; /* X25519MLKEM768, 1216 bytes */
    (void)state;
    struct lone l = lone_in(PQ_MODE_HYBRID, 3, "mldsa65", true);
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    assert_int_equal(SSL_CTX_set1_groups_list(context, "X25519MLKEM768"), 1);
    SSL *ssl = SSL_new(context);
    BIO *out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), out);
    SSL_set_connect_state(ssl);
    SSL_do_handshake(ssl);
    unsigned char *hello;
    long len = BIO_get_mem_data(out, &hello);
    unsigned char *at = memmem(hello, (size_t)len, share, sizeof share);
    assert_non_null(at);
    memset(at + sizeof share, 0xff, 30);
    assert_int_equal(send(l.fd, hello, (size_t)len, 0), len);
    refused_expect("server", l.t, pq_tls_handshake(l.t),
                   (struct expected){PQ_E_PROTOCOL, PQ_TLS_PROTOCOL, "the peer broke the protocol"});
    SSL_free(ssl);
    SSL_CTX_free(context);
    ERR_clear_error();
    pair_free(&l.p);
}
static void end_during_the_handshake(void **state)
{
    (void)state;
    for (int server = 0; server < 2; server++) {
        struct lone l = lone(server);
        assert_int_equal(pq_tls_handshake(l.t), PQ_E_WANT_READ);
        shutdown(l.fd, SHUT_WR);
        refused_expect("end", l.t, pq_tls_handshake(l.t),
                       (struct expected){PQ_E_RESET, PQ_TLS_RESET, "closed the connection during the handshake"});
        pair_free(&l.p);
    }
}
static void errors_of_the_kernel(void **state)
{
    static const struct {
        int err;
        struct expected e;
    } rows[] = {
        {ETIMEDOUT, {PQ_E_TIMEOUT, PQ_TLS_TIMEOUT, "no longer answers"}},
        {ECONNRESET, {PQ_E_RESET, PQ_TLS_RESET, "reset the connection during the handshake"}},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct lone l = lone(true);
        recv_errno = rows[i].err;
        refused_expect("server", l.t, pq_tls_handshake(l.t), rows[i].e);
        recv_errno = 0;
        pair_free(&l.p);
    }
}
/* The write fails because the server is gone; its alert, which came first, says why. */
static void alert_is_read_when_a_write_fails(void **state)
{
    (void)state;
    const struct cert *root = root_of("p384"), *leaf = leaf_of(root, "p384");
    struct pq_tls_settings s = pair_settings(PQ_MODE_CLASSICAL, 3, leaf, root),
                           c = pair_settings(PQ_MODE_CLASSICAL, 3, NULL, root);
    struct pair p;
    size_t n = 0;
    pair_new(&p, world.crypto, &c, &s, "leaf.example", PAIR_PLAIN);
    pair_drive(&p);
    assert_int_equal(p.client_result, 0);
    assert_int_equal(pq_tls_reason(p.server), PQ_TLS_NO_CERTIFICATE);
    close(p.server_fd);
    p.server_fd = -1;
    refused_expect("client", p.client, pq_tls_write(p.client, "x", 1, &n), refused_alert("certificate required"));
    pair_free(&p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(expired),
        TEST(not_yet_valid),
        TEST(issuer_expired),
        TEST(wrong_name),
        TEST(untrusted),
        TEST(wrong_key_usage),
        TEST(too_weak),
        TEST(no_certificate),
        TEST(certificates_too_long),
        TEST(no_shared_group),
        TEST(no_shared_sigalg),
        TEST(no_shared_cipher),
        TEST(other_application_protocol),
        TEST(policy_kex),
        TEST(policy_auth),
        TEST(old_version),
        TEST(plain_text),
        TEST(short_plain_text),
        TEST(broken_protocol),
        TEST(a_first_message_that_is_too_long),
        TEST(a_key_share_that_is_no_key),
        TEST(end_during_the_handshake),
        TEST(errors_of_the_kernel),
        TEST(alert_is_read_when_a_write_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
