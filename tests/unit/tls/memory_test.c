/* What a peer can make us hold: at every point of a handshake where it may stop, and at the peak. Counted is what our
 * code and OpenSSL allocate for one side of a connection, as malloc(3) rounds it; what is shared (contexts) is not. */
#include <malloc.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "certs.h"
#include "pair.h"
#include "tls/internal.h"

/* --- the counting allocator --------------------------------------------------------------------------------------- */

enum side { NOBODY, CLIENT, SERVER };
static enum side at_work;
static long held[3], peak[3];

static void count(long bytes)
{
    held[at_work] += bytes;
    if (held[at_work] > peak[at_work])
        peak[at_work] = held[at_work];
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);

static void *counted(void *p)
{
    if (p)
        count((long)malloc_usable_size(p));
    return p;
}
void *__wrap_malloc(size_t n) { return counted(__real_malloc(n)); }
void *__wrap_calloc(size_t n, size_t size) { return counted(__real_calloc(n, size)); }
void __wrap_free(void *p)
{
    if (p)
        count(-(long)malloc_usable_size(p));
    __real_free(p);
}
/* As realloc(3) may do it: both are there for a moment. */
void *__wrap_realloc(void *p, size_t n)
{
    long before = p ? (long)malloc_usable_size(p) : 0;
    void *to = __real_realloc(p, n);
    if (to || n == 0) {
        count(to ? (long)malloc_usable_size(to) : 0);
        count(-before);
    }
    return to;
}

static void *ossl_malloc(size_t n, const char *f, int l) { return (void)f, (void)l, __wrap_malloc(n); }
static void *ossl_realloc(void *p, size_t n, const char *f, int l) { return (void)f, (void)l, __wrap_realloc(p, n); }
static void ossl_free(void *p, const char *f, int l) { (void)f, (void)l, __wrap_free(p); }

/* --- a handshake in small pieces ------------------------------------------------------------------------------------
 */

enum {
    PIECE = 97,
    PEAK_MAX = 256 << 10,
    IDLE_MAX = 28 << 10,
};

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

struct seen {
    long stranger; /* held while the peer has shown no valid certificate, without as many bytes as it sent itself */
    long stalled;  /* held at any point where it may stop */
    long peak, idle;
};

static bool waits(int e) { return e == PQ_E_WANT_READ || e == PQ_E_WANT_WRITE; }

static int step(enum side side, struct pq_tls *t, int e)
{
    at_work = side;
    e = waits(e) ? pq_tls_handshake(t) : e;
    at_work = NOBODY;
    return e;
}

/* One piece from one end of a stream to another; false when there is none. */
static bool carry(int from, int to)
{
    char piece[PIECE];
    ssize_t n = recv(from, piece, sizeof piece, MSG_DONTWAIT);
    return n > 0 && send(to, piece, (size_t)n, MSG_NOSIGNAL) == n;
}

static void more(long *most, long now) { *most = now > *most ? now : *most; }

static void note(struct seen seen[3], struct pq_tls *const t[3])
{
    for (int side = CLIENT; side <= SERVER; side++) {
        more(&seen[side].stalled, held[side]);
        if (!t[side]->path.len)
            more(&seen[side].stranger, held[side] - (long)t[side]->transport.received);
    }
}

static void exchange(enum side from, struct pq_tls *sender, enum side to, struct pq_tls *receiver, size_t size)
{
    static char bytes[16384], in[16384];
    size_t n = 0;
    at_work = from;
    assert_int_equal(pq_tls_write(sender, bytes, size, &n), 0);
    at_work = to;
    assert_int_equal(pq_tls_read(receiver, in, sizeof in, &n), 0);
    assert_int_equal(n, size);
    assert_int_equal(pq_tls_read(receiver, in, sizeof in, &n), PQ_E_WANT_READ);
    at_work = NOBODY;
}

static void measure(struct pair *p, struct seen seen[3])
{
    int a[2], b[2];
    memset(seen, 0, 3 * sizeof seen[0]);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, a), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, b), 0);
    memset(held, 0, sizeof held);
    memset(peak, 0, sizeof peak);
    DEFER(pq_tls_freep) struct pq_tls *client = NULL;
    DEFER(pq_tls_freep) struct pq_tls *server = NULL;
    char *at[] = {(char[]){"leaf.example"}};
    struct pq_strings names = {at, 1};
    at_work = CLIENT;
    assert_int_equal(pq_tls_new(p->client_context, a[0], &names, &client), 0);
    at_work = SERVER;
    assert_int_equal(pq_tls_new(p->server_context, b[0], NULL, &server), 0);
    int c = PQ_E_WANT_READ, s = PQ_E_WANT_READ;
    for (bool moved = true; moved;) {
        c = step(CLIENT, client, c);
        s = step(SERVER, server, s);
        note(seen, (struct pq_tls *const[]){NULL, client, server});
        moved = carry(a[1], b[1]) | carry(b[1], a[1]);
    }
    assert_true(c == 0 && s == 0);
    close(a[1]);
    close(b[1]);
    close(a[0]);
    close(b[0]);
    for (int side = CLIENT; side <= SERVER; side++)
        seen[side].peak = peak[side];
    /* And over a stream without pieces, after data went both ways. */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, a), 0);
    client->transport.fd = a[0];
    server->transport.fd = a[1];
    for (size_t size = 1; size <= 16384; size *= 4) {
        exchange(CLIENT, client, SERVER, server, size);
        exchange(SERVER, server, CLIENT, client, size);
    }
    for (int side = CLIENT; side <= SERVER; side++)
        seen[side].idle = held[side];
    close(a[0]);
    close(a[1]);
}

static const char *const side_names[] = {"", "client", "server"};

static void expect(long bytes, long kib)
{
    if (kib > 4)
        assert_true(bytes <= kib << 10);
}

static void every_stall(void **state)
{
    static const struct {
        enum pq_mode mode;
        int level;
        const char *root, *between, *leaf;
        int issuers;                  /* between leaf and root */
        long stranger, stalled, peak; /* at most, KiB; the first at a server. 0: only told, for SLH-DSA's longest */
    } rows[] = {
        {PQ_MODE_CLASSICAL, 3, "p384", "p384", "p384", 1, 64, 64, 256},
        {PQ_MODE_HYBRID, 3, "ML-DSA-65", "ML-DSA-65", "ML-DSA-65", 1, 64, 88, 256},
        {PQ_MODE_HYBRID, 5, "ML-DSA-87", "ML-DSA-87", "ML-DSA-87", 1, 64, 88, 256},
        {PQ_MODE_HYBRID, 5, "ML-DSA-87", "ML-DSA-87", "ML-DSA-87", 2, 72, 104, 256}, /* for our own list's sake */
        {PQ_MODE_HYBRID, 3, "SLH-DSA-SHA2-128s", "ML-DSA-65", "ML-DSA-65", 1, 64, 88, 256},
        {PQ_MODE_HYBRID, 5, "SLH-DSA-SHA2-256f", "SLH-DSA-SHA2-256f", "ML-DSA-87", 1, 0, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        const struct cert *root =
            certs_make(&world, (struct cert_how){.algorithm = rows[i].root, .name = "root", .ca = true});
        const struct cert *issuer = root;
        for (int k = 0; k < rows[i].issuers; k++)
            issuer = certs_make(&world, (struct cert_how){.algorithm = rows[i].between,
                                                          .name = (const char *const[]){"a", "b", "c"}[k],
                                                          .issuer = issuer,
                                                          .ca = true});
        const struct cert *leaf = certs_make(
            &world,
            (struct cert_how){.algorithm = rows[i].leaf, .name = "leaf", .issuer = issuer, .san = "DNS:leaf.example"});
        struct pq_tls_settings s = pair_settings(rows[i].mode, rows[i].level, leaf, root);
        struct pair p;
        struct seen seen[3];
        pair_new(&p, world.crypto, &s, &s, NULL, PAIR_PLAIN);
        measure(&p, seen); /* what is made once is made now */
        measure(&p, seen);
        pair_free(&p);
        for (int side = CLIENT; side <= SERVER; side++) {
            print_message("%s, %d x %s, %s, %s: stranger %ld, stalled %ld, peak %ld, idle %ld bytes\n", rows[i].leaf,
                          rows[i].issuers, rows[i].between, rows[i].root, side_names[side], seen[side].stranger,
                          seen[side].stalled, seen[side].peak, seen[side].idle);
            assert_true(seen[side].idle <= IDLE_MAX);
            expect(seen[side].peak, rows[i].peak);
            expect(seen[side].stalled, rows[i].stalled);
            /* A client holds its own ML-KEM key besides; and whom it calls is no stranger. */
            expect(seen[side].stranger, side == SERVER ? rows[i].stranger : rows[i].stranger + 4);
        }
    }
}

/* --- many certificates in one list ---------------------------------------------------------------------------------
 */

/* OpenSSL as a client that shows its leaf and then this certificate, again and again. */
static SSL *crowd(SSL_CTX *ctx, const struct cert *leaf, const struct cert *filler, int times, int fd)
{
    assert_true(SSL_CTX_use_certificate(ctx, leaf->x) && SSL_CTX_use_PrivateKey(ctx, leaf->key));
    SSL_CTX_set_mode(ctx, SSL_MODE_NO_AUTO_CHAIN);
    for (int i = 0; i < times; i++)
        assert_true(SSL_CTX_add1_chain_cert(ctx, filler->x));
    SSL *ssl = SSL_new(ctx);
    assert_true(ssl && SSL_set_fd(ssl, fd));
    SSL_set_connect_state(ssl);
    return ssl;
}

static void a_list_of_small_certificates(void **state)
{
    (void)state;
    const struct cert *root = certs_make(&world, (struct cert_how){.algorithm = "p384", .name = "root", .ca = true});
    const struct cert *leaf =
        certs_make(&world, (struct cert_how){.algorithm = "p384", .name = "leaf", .issuer = root});
    const struct cert *filler =
        certs_make(&world, (struct cert_how){.algorithm = "ED25519", .name = "f", .small = true});
    int size = i2d_X509(filler->x, NULL);
    struct pq_tls_settings s = pair_settings(PQ_MODE_CLASSICAL, 3, leaf, root);
    struct pair p;
    pair_new(&p, world.crypto, &s, &s, NULL, PAIR_PLAIN);
    for (int times = 100; times < 200; times += 90) { /* below and above the cap in bytes */
        int fd[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
        SSL_CTX *ctx = SSL_CTX_new_ex(pq_crypto_libctx(world.crypto), NULL, TLS_client_method());
        SSL *client = crowd(ctx, leaf, filler, times, fd[0]);
        memset(held, 0, sizeof held);
        memset(peak, 0, sizeof peak);
        struct pq_tls *server = NULL;
        assert_int_equal(pq_tls_new(p.server_context, fd[1], NULL, &server), 0);
        int e = PQ_E_WANT_READ;
        for (int i = 0; i < 50 && waits(e); i++) {
            SSL_do_handshake(client);
            ERR_clear_error();
            e = step(SERVER, server, e);
        }
        print_message("%d certificates of %d bytes: peak %ld bytes, %s\n", times, size, peak[SERVER],
                      pq_tls_failure(server));
        assert_int_equal(pq_tls_reason(server), PQ_TLS_CERTIFICATES_TOO_LONG);
        assert_true(peak[SERVER] <= PEAK_MAX);
        pq_tls_free(server);
        SSL_free(client);
        SSL_CTX_free(ctx);
        close(fd[0]);
        close(fd[1]);
    }
    pair_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_stall, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_list_of_small_certificates, set_up, tear_down),
    };
    if (!CRYPTO_set_mem_functions(ossl_malloc, ossl_realloc, ossl_free))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
