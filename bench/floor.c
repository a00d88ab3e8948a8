/* floor.c - the smallest plain TCP relay: one epoll loop, no TLS, no log, no limits. Two in a row are what a pair of
 * proxies costs at least on this machine; nothing here is fit for anything else.
 *
 *   floor LISTEN TARGET        two ports of 127.0.0.1
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BUFFER = 64 << 10, EVENTS = 256 };

/* What it could not pass on at once waits in its sink. */
struct end {
    int fd;
    struct end *other;
    uint32_t watched;
    bool ended, gone;
    char *waiting;
    size_t start, len;
};

static int loop, target;
static char buffer[BUFFER];

static int fail(const char *what)
{
    perror(what);
    exit(1);
}

static void watch(struct end *e)
{
    bool full = e->other->len > 0;
    uint32_t want = (e->ended || full ? 0 : (uint32_t)EPOLLIN) | (e->len ? (uint32_t)EPOLLOUT : 0);
    if (want != e->watched && epoll_ctl(loop, EPOLL_CTL_MOD, e->fd, &(struct epoll_event){want, {e}}) < 0)
        fail("epoll_ctl");
    e->watched = want;
}

/* Freed only when both are closed: an event of this turn may still name the other. */
static void drop(struct end *e)
{
    close(e->fd);
    close(e->other->fd);
    e->gone = e->other->gone = true;
}

static ssize_t put(struct end *sink, const char *bytes, size_t n)
{
    ssize_t sent = write(sink->fd, bytes, n);
    return sent >= 0 ? sent : errno == EAGAIN ? 0 : -1;
}

/* false: the connection is over. */
static bool flush(struct end *sink)
{
    ssize_t sent = put(sink, sink->waiting + sink->start, sink->len);
    if (sent < 0)
        return false;
    sink->start += (size_t)sent;
    sink->len -= (size_t)sent;
    if (sink->len)
        return true;
    free(sink->waiting);
    sink->waiting = NULL;
    if (sink->other->ended)
        shutdown(sink->fd, SHUT_WR);
    return true;
}

static bool take(struct end *source)
{
    struct end *sink = source->other;
    ssize_t n = read(source->fd, buffer, sizeof buffer);
    if (n < 0)
        return errno == EAGAIN;
    source->ended = n == 0;
    if (n == 0)
        return shutdown(sink->fd, SHUT_WR) == 0;
    ssize_t sent = put(sink, buffer, (size_t)n);
    if (sent < 0 || sent == n)
        return sent == n;
    sink->waiting = malloc((size_t)(n - sent));
    if (!sink->waiting)
        return false;
    sink->start = 0;
    sink->len = (size_t)(n - sent);
    memcpy(sink->waiting, buffer + sent, sink->len);
    return true;
}

static bool turn(struct end *e, uint32_t ready)
{
    if (e->len && (ready & (EPOLLOUT | EPOLLERR | EPOLLHUP)) && !flush(e))
        return false;
    if (!e->ended && !e->other->len && (ready & (EPOLLIN | EPOLLERR | EPOLLHUP)) && !take(e))
        return false;
    if ((e->ended && e->other->ended && !e->len && !e->other->len) || (ready & EPOLLERR))
        return false;
    watch(e);
    watch(e->other);
    return true;
}

static void open_pair(int fd)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)target), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct end *both = calloc(2, sizeof *both);
    if (!both)
        fail("calloc");
    both[0] = (struct end){.fd = fd, .other = &both[1], .watched = EPOLLIN};
    both[1] = (struct end){
        .fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), .other = &both[0], .watched = EPOLLIN};
    if (both[1].fd < 0)
        fail("socket");
    if (connect(both[1].fd, (struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS)
        fail("connect");
    for (int i = 0; i < 2; i++) {
        setsockopt(both[i].fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        if (epoll_ctl(loop, EPOLL_CTL_ADD, both[i].fd, &(struct epoll_event){EPOLLIN, {&both[i]}}) < 0)
            fail("epoll_ctl");
    }
}

static int listen_on(int port)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || listen(fd, 4096) < 0)
        fail("listen");
    if (epoll_ctl(loop, EPOLL_CTL_ADD, fd, &(struct epoll_event){EPOLLIN, {NULL}}) < 0)
        fail("epoll_ctl");
    return fd;
}

/* Both ends of a connection lie in one allocation, the first in front. */
static void sweep(struct epoll_event *events, int n)
{
    for (int i = 0; i < n; i++) {
        struct end *e = events[i].data.ptr;
        if (!e || !e->gone)
            continue;
        struct end *first = e < e->other ? e : e->other;
        for (int k = i + 1; k < n; k++)
            if (events[k].data.ptr == &first[0] || events[k].data.ptr == &first[1])
                events[k].data.ptr = NULL;
        free(first[0].waiting);
        free(first[1].waiting);
        free(first);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: floor LISTEN TARGET (ports of 127.0.0.1)\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN); /* a client that went away ends its connection, not this */
    loop = epoll_create1(EPOLL_CLOEXEC);
    target = (int)strtol(argv[2], NULL, 10);
    int listener = listen_on((int)strtol(argv[1], NULL, 10));
    for (;;) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(loop, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            struct end *e = events[i].data.ptr;
            if (!e)
                for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;)
                    open_pair(fd);
            else if (!e->gone && !turn(e, events[i].events))
                drop(e);
        }
        sweep(events, n);
    }
}
