/* function.c - the smallest network function: answers every HTTP/1.1 request with the same 512 bytes, on one loop.
 *
 *   function PORT        of 127.0.0.1
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tool.h"

enum { EVENTS = 256, BODY = 512 };

struct client {
    int fd;
    int matched; /* of "\r\n\r\n" */
    size_t owed; /* bytes of answers not yet written */
    uint32_t watched;
};

static char answer[1024];
static size_t answer_size;
static int loop;

static size_t requests_in(struct client *c, const char *bytes, size_t size)
{
    static const char end[] = "\r\n\r\n";
    size_t seen = 0;
    for (size_t i = 0; i < size; i++) {
        c->matched = bytes[i] == end[c->matched] ? c->matched + 1 : bytes[i] == '\r';
        if (c->matched == 4) {
            c->matched = 0;
            seen++;
        }
    }
    return seen;
}

/* false: the connection is over. */
static bool pay(struct client *c)
{
    while (c->owed) {
        size_t rest = c->owed % answer_size ? c->owed % answer_size : answer_size;
        ssize_t n = write(c->fd, answer + answer_size - rest, rest);
        if (n < 0)
            return errno == EAGAIN;
        c->owed -= (size_t)n;
    }
    return true;
}

static bool turn(struct client *c, uint32_t ready)
{
    static char in[64 << 10];
    if (ready & (EPOLLIN | EPOLLERR | EPOLLHUP)) {
        ssize_t n = read(c->fd, in, sizeof in);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            return false;
        if (n > 0)
            c->owed += requests_in(c, in, (size_t)n) * answer_size;
    }
    if (!pay(c))
        return false;
    uint32_t want = c->owed ? EPOLLOUT : EPOLLIN;
    if (want != c->watched && epoll_ctl(loop, EPOLL_CTL_MOD, c->fd, &(struct epoll_event){want, {c}}) < 0)
        tool_fail("epoll_ctl failed");
    c->watched = want;
    return true;
}

static void take(int listener)
{
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        struct client *c = calloc(1, sizeof *c);
        if (!c)
            tool_fail("out of memory");
        *c = (struct client){.fd = fd, .watched = EPOLLIN};
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        if (epoll_ctl(loop, EPOLL_CTL_ADD, fd, &(struct epoll_event){EPOLLIN, {c}}) < 0)
            tool_fail("epoll_ctl failed");
    }
}

static int listen_on(const char *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)strtol(port, NULL, 10)),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || listen(fd, 4096) < 0 ||
        epoll_ctl(loop, EPOLL_CTL_ADD, fd, &(struct epoll_event){EPOLLIN, {NULL}}) < 0)
        tool_fail("port %s can't be listened on", port);
    return fd;
}

static void make_answer(void)
{
    int head = snprintf(answer, sizeof answer,
                        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n", BODY);
    memset(answer + head, 'x', BODY);
    answer_size = (size_t)head + BODY;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        tool_fail("usage: function PORT");
    signal(SIGPIPE, SIG_IGN); /* a client that went away ends its connection, not this */
    make_answer();
    loop = epoll_create1(EPOLL_CLOEXEC);
    int listener = listen_on(argv[1]);
    for (;;) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(loop, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            struct client *c = events[i].data.ptr;
            if (!c) {
                take(listener);
            } else if (!turn(c, events[i].events)) {
                close(c->fd);
                free(c);
            }
        }
    }
}
