#include "program.h"

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

extern char **environ;

enum { WAIT_MS = 20000 };

struct program program_start(const char *const arguments[])
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
bool program_finish(struct program *p, bool wait_for_it)
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
void program_read_until(struct program *p, const char *mark, char *line, size_t size)
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

static int step(int fd, int e)
{
    if (e != PQ_E_WANT_READ && e != PQ_E_WANT_WRITE)
        return 0;
    struct pollfd f = {fd, e == PQ_E_WANT_READ ? POLLIN : POLLOUT, 0};
    assert_int_equal(poll(&f, 1, WAIT_MS), 1);
    return 1;
}
int pair_try_shake(struct pq_tls *t, int fd)
{
    int e;
    do
        e = pq_tls_handshake(t);
    while (step(fd, e));
    return e;
}

void pair_shake(struct pq_tls *t, int fd)
{
    int e = pair_try_shake(t, fd);
    if (e < 0)
        fail_msg("%s: %s", pq_error_name(e), pq_tls_failure(t));
}
int pair_take(struct pq_tls *t, int fd, char *out, size_t size)
{
    int e;
    size_t n = 0;
    do
        e = pq_tls_read(t, out, size - 1, &n);
    while (step(fd, e));
    out[n] = 0;
    return e;
}

static struct sockaddr_in local(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

int program_port(int fd)
{
    struct sockaddr_in to;
    socklen_t len = sizeof to;
    assert_int_equal(getpeername(fd, (struct sockaddr *)&to, &len), 0);
    return ntohs(to.sin_port);
}

int program_dial(struct program *server)
{
    char line[256];
    program_read_until(server, "ACCEPT ", line, sizeof line);
    return program_dial_port((int)strtol(strrchr(line, ':') + 1, NULL, 10));
}

int program_dial_port(int port)
{
    struct sockaddr_in to = local((uint16_t)port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

int program_listen(char address[64])
{
    struct sockaddr_in here = local(0);
    socklen_t len = sizeof here;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&here, sizeof here), 0);
    assert_int_equal(listen(fd, 8), 0);
    getsockname(fd, (struct sockaddr *)&here, &len);
    snprintf(address, 64, "127.0.0.1:%d", ntohs(here.sin_port));
    return fd;
}

int program_accept(int listener)
{
    struct pollfd f = {listener, POLLIN, 0};
    assert_int_equal(poll(&f, 1, WAIT_MS), 1);
    return accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}
