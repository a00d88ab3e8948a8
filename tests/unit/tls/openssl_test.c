/* Against OpenSSL's own programs, over TCP. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "certs.h"
#include "pair.h"

extern char **environ;

enum { WAIT_MS = 20000 };

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

struct program {
    pid_t pid;
    int in, out; /* its standard input and output */
};

static struct program start(const char *const arguments[])
{
    struct program p;
    int to[2], from[2];
    assert_int_equal(pipe2(to, O_CLOEXEC), 0);
    assert_int_equal(pipe2(from, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    posix_spawn_file_actions_adddup2(&actions, from[1], 2);
    int e = posix_spawnp(&p.pid, "openssl", &actions, NULL, (char *const *)(uintptr_t)arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    p.in = to[1];
    p.out = from[0];
    if (e) {
        print_message("no openssl program here: skipped\n");
        skip();
    }
    return p;
}

/* Ends it if it did not end; true when it ended well by itself. */
static bool finish(struct program *p, bool wait_for_it)
{
    int status = 0;
    close(p->in);
    char rest[4096];
    while (wait_for_it && read(p->out, rest, sizeof rest) > 0)
        ;
    close(p->out);
    if (!wait_for_it)
        kill(p->pid, SIGTERM);
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Reads its output up to what follows mark, to the end of that line. */
static void read_until(struct program *p, const char *mark, char *line, size_t size)
{
    char all[16384] = "";
    size_t len = 0;
    for (;;) {
        struct pollfd f = {p->out, POLLIN, 0};
        assert_int_equal(poll(&f, 1, WAIT_MS), 1);
        ssize_t n = read(p->out, all + len, 1);
        if (n <= 0)
            fail_msg("openssl said: %s", all);
        len += (size_t)n;
        assert_true(len < sizeof all - 1);
        all[len] = 0;
        const char *at = strstr(all, mark);
        if (at && all[len - 1] == '\n') {
            snprintf(line, size, "%s", at + strlen(mark));
            return;
        }
    }
}

static int step(struct pq_tls *t, int fd, int e)
{
    (void)t;
    if (e != PQ_E_WANT_READ && e != PQ_E_WANT_WRITE)
        return 0;
    struct pollfd f = {fd, e == PQ_E_WANT_READ ? POLLIN : POLLOUT, 0};
    assert_int_equal(poll(&f, 1, WAIT_MS), 1);
    return 1;
}
static void shake(struct pq_tls *t, int fd)
{
    int e;
    do
        e = pq_tls_handshake(t);
    while (step(t, fd, e));
    if (e < 0)
        fail_msg("%s: %s", pq_error_name(e), pq_tls_failure(t));
}
static int take(struct pq_tls *t, int fd, char *out, size_t size)
{
    int e;
    size_t n = 0;
    do
        e = pq_tls_read(t, out, size - 1, &n);
    while (step(t, fd, e));
    out[n] = 0;
    return e;
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
    struct program p = start(arguments);
    char line[256], in[64];
    read_until(&p, "ACCEPT ", line, sizeof line);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)strtol(strrchr(line, ':') + 1, NULL, 10)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    DEFER(pq_closep) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);

    struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 3, leaf, root);
    s.policy.require_pq_auth = s.policy.require_pq_kex = true;
    struct pq_why why = {{0}};
    DEFER(pq_tls_context_freep) struct pq_tls_context *c = NULL;
    assert_int_equal(pq_tls_context_new(world.crypto, PQ_TLS_CLIENT, &s, &c, &why), 0);
    char *at[] = {(char[]){"leaf.example"}};
    struct pq_strings names = {at, 1};
    DEFER(pq_tls_freep) struct pq_tls *t = NULL;
    assert_int_equal(pq_tls_new(c, fd, &names, &t), 0);
    shake(t, fd);
    assert_string_equal(pq_tls_info(t)->group, "X25519MLKEM768");
    assert_string_equal(pq_tls_info(t)->signature, "mldsa65");
    size_t n = 0;
    assert_int_equal(pq_tls_write(t, "hello\n", 6, &n), 0);
    assert_int_equal(take(t, fd, in, sizeof in), 0);
    assert_string_equal(in, "olleh\n");
    assert_int_equal(pq_tls_close_notify(t), 0);
    shutdown(fd, SHUT_WR);
    finish(&p, false);
}

static void s_client(void **state)
{
    (void)state;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof here;
    DEFER(pq_closep) int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&here, sizeof here), 0);
    assert_int_equal(listen(listener, 1), 0);
    getsockname(listener, (struct sockaddr *)&here, &len);
    char address[64], in[64];
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(here.sin_port));
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
    struct program p = start(arguments);
    struct pollfd f = {listener, POLLIN, 0};
    assert_int_equal(poll(&f, 1, WAIT_MS), 1);
    DEFER(pq_closep) int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 3, leaf, root);
    s.policy.require_pq_auth = s.policy.require_pq_kex = true;
    struct pq_why why = {{0}};
    DEFER(pq_tls_context_freep) struct pq_tls_context *c = NULL;
    assert_int_equal(pq_tls_context_new(world.crypto, PQ_TLS_SERVER, &s, &c, &why), 0);
    DEFER(pq_tls_freep) struct pq_tls *t = NULL;
    assert_int_equal(pq_tls_new(c, fd, NULL, &t), 0);
    shake(t, fd);
    assert_true(pq_tls_info(t)->hello_retry);
    assert_true(pq_tls_info(t)->pq_auth);
    assert_string_equal(pq_tls_info(t)->peer, "CN=leaf");
    assert_int_equal(write(p.in, "ping\n", 5), 5);
    assert_int_equal(take(t, fd, in, sizeof in), 0);
    assert_string_equal(in, "ping\n");
    close(p.in); /* s_client then sends close_notify */
    p.in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(take(t, fd, in, sizeof in), PQ_E_CLOSED);
    assert_int_equal(pq_tls_close_notify(t), 0);
    shutdown(fd, SHUT_RDWR);
    assert_true(finish(&p, true));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {TEST(s_server), TEST(s_client)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
