#include "net/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/config.h"

static int parse_unix(const char *path, struct pq_address *out, struct pq_why *why)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof un.sun_path)
        return pq_why(why, PQ_E_INVALID, "a unix socket's path has 1 to %zu characters", sizeof un.sun_path - 1);
    memcpy(un.sun_path, path, len);
    *out = (struct pq_address){.len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + 1)};
    memcpy(&out->sa, &un, sizeof un);
    return 0;
}

static int resolve(const char *text, const char *host, const char *port, struct pq_address *out, size_t room,
                   size_t *count, struct pq_why *why)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found = NULL;
    int e = getaddrinfo(host, port, &hints, &found);
    if (e == EAI_MEMORY)
        return PQ_E_NOMEM;
    if (e != 0)
        return pq_why(why, PQ_E_NOT_FOUND, "the name in %s can't be resolved: %s", text,
                      e == EAI_SYSTEM ? strerror(errno) : gai_strerror(e));
    *count = 0;
    for (const struct addrinfo *i = found; i && *count < room; i = i->ai_next) {
        out[*count] = (struct pq_address){.len = i->ai_addrlen};
        memcpy(&out[(*count)++].sa, i->ai_addr, i->ai_addrlen);
    }
    freeaddrinfo(found);
    return 0;
}

int pq_address_resolve(const char *text, struct pq_address *out, size_t room, size_t *count, struct pq_why *why)
{
    if (strncmp(text, "unix:", 5) == 0) {
        TRY(parse_unix(text + 5, out, why));
        *count = 1;
        return 0;
    }
    const char *colon = strrchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : 0;
    bool bracketed = len >= 2 && text[0] == '[' && text[len - 1] == ']';
    char host[256];
    int64_t port;
    if (!colon || len == 0 || len >= sizeof host || (!bracketed && memchr(text, ':', len)) ||
        pq_int_parse(colon + 1, 0, 65535, &port, NULL) < 0)
        return pq_why(
            why, PQ_E_INVALID,
            "\"%.80s\" is no address: write host:port, [IPv6]:port or unix:/path, with a port from 0 to 65535", text);
    snprintf(host, sizeof host, "%.*s", (int)(bracketed ? len - 2 : len), text + bracketed);
    return resolve(text, host, colon + 1, out, room, count, why);
}

int pq_address_parse(const char *text, struct pq_address *out, struct pq_why *why)
{
    size_t count;
    return pq_address_resolve(text, out, 1, &count, why);
}

void pq_address_text(const struct pq_address *a, char out[PQ_ADDRESS_TEXT])
{
    char host[INET6_ADDRSTRLEN] = "";
    if (a->sa.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)&a->sa;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        snprintf(out, PQ_ADDRESS_TEXT, "%s:%u", host, ntohs(in->sin_port));
    } else if (a->sa.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const void *)&a->sa;
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
        snprintf(out, PQ_ADDRESS_TEXT, "[%s]:%u", host, ntohs(in6->sin6_port));
    } else if (a->sa.ss_family == AF_UNIX) {
        const struct sockaddr_un *un = (const void *)&a->sa;
        size_t room =
            a->len > offsetof(struct sockaddr_un, sun_path) ? a->len - offsetof(struct sockaddr_un, sun_path) : 0;
        snprintf(out, PQ_ADDRESS_TEXT, "unix:%.*s", (int)strnlen(un->sun_path, room), un->sun_path);
    } else {
        snprintf(out, PQ_ADDRESS_TEXT, "-");
    }
}

struct pq_address pq_address_local(int fd)
{
    struct pq_address a = {.len = sizeof a.sa};
    if (getsockname(fd, (struct sockaddr *)&a.sa, &a.len) < 0)
        a = (struct pq_address){.len = 0};
    return a;
}

struct pq_address pq_address_peer(int fd)
{
    struct pq_address a = {.len = sizeof a.sa};
    if (getpeername(fd, (struct sockaddr *)&a.sa, &a.len) < 0)
        a = (struct pq_address){.len = 0};
    return a;
}

uint16_t pq_address_port(const struct pq_address *a)
{
    if (a->sa.ss_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)(const void *)&a->sa)->sin_port);
    if (a->sa.ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)(const void *)&a->sa)->sin6_port);
    return 0;
}

struct pq_address pq_address_plain(const struct pq_address *a)
{
    const struct sockaddr_in6 *in6 = (const void *)&a->sa;
    if (a->sa.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
        return *a;
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = in6->sin6_port};
    struct pq_address out = {.len = sizeof in};
    memcpy(&in.sin_addr, &in6->sin6_addr.s6_addr[12], sizeof in.sin_addr);
    memcpy(&out.sa, &in, sizeof in);
    return out;
}

bool pq_address_equal(const struct pq_address *a, const struct pq_address *b)
{
    struct pq_address x = pq_address_plain(a), y = pq_address_plain(b);
    const struct sockaddr_in *p = (const void *)&x.sa, *q = (const void *)&y.sa;
    const struct sockaddr_in6 *p6 = (const void *)&x.sa, *q6 = (const void *)&y.sa;
    if (x.sa.ss_family != y.sa.ss_family || pq_address_port(&x) != pq_address_port(&y))
        return false;
    return x.sa.ss_family == AF_INET    ? p->sin_addr.s_addr == q->sin_addr.s_addr
           : x.sa.ss_family == AF_INET6 ? IN6_ARE_ADDR_EQUAL(&p6->sin6_addr, &q6->sin6_addr)
           : x.sa.ss_family == AF_UNIX  ? x.len == y.len && memcmp(&x.sa, &y.sa, x.len) == 0
                                        : false;
}

static int open_socket(int family, int *out_fd, struct pq_why *why)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return pq_why(why, pq_error_from_errno(errno), "no socket to be had: %s", strerror(errno));
    *out_fd = fd;
    return 0;
}

/* A socket that nobody answers on is what a killed process left. Connecting to any other file is refused as well. */
static int remove_stale(const struct pq_address *a, struct pq_why *why)
{
    const char *path = ((const struct sockaddr_un *)(const void *)&a->sa)->sun_path;
    struct stat st;
    if (a->sa.ss_family != AF_UNIX || lstat(path, &st) < 0)
        return 0;
    if (!S_ISSOCK(st.st_mode))
        return pq_why(why, PQ_E_EXISTS,
                      "can't listen on unix:%s: it exists and is no socket; choose another path or remove it", path);
    DEFER(pq_closep) int fd = -1;
    TRY(open_socket(AF_UNIX, &fd, why));
    if (connect(fd, (const struct sockaddr *)&a->sa, a->len) < 0 && errno == ECONNREFUSED)
        unlink(path);
    return 0;
}

int pq_tcp_listen(const struct pq_address *a, int backlog, int *out_fd, struct pq_why *why)
{
    char text[PQ_ADDRESS_TEXT];
    pq_address_text(a, text);
    TRY(remove_stale(a, why));
    DEFER(pq_closep) int fd = -1;
    TRY(open_socket(a->sa.ss_family, &fd, why));
    int on = 1;
    if (a->sa.ss_family != AF_UNIX)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (const struct sockaddr *)&a->sa, a->len) < 0 || listen(fd, backlog ? backlog : 1024) < 0) {
        if (errno == EADDRINUSE)
            return pq_why(why, PQ_E_EXISTS,
                          "can't listen on %s: another program does; choose another address or stop it", text);
        return pq_why(why, pq_error_from_errno(errno), "can't listen on %s: %s", text, strerror(errno));
    }
    *out_fd = TAKE_FD(fd);
    return 0;
}

int pq_tcp_accept(int listener, int *out_fd, struct pq_address *peer)
{
    struct pq_address a = {.len = sizeof a.sa};
    int fd = accept4(listener, (struct sockaddr *)&a.sa, &a.len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
            return PQ_E_WANT_READ;
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            return PQ_E_LIMIT;
        return PQ_E_RESET; /* accept(2): errors that were pending on the new connection */
    }
    pq_tcp_nodelay(fd, true);
    if (peer)
        *peer = a;
    *out_fd = fd;
    return 0;
}

int pq_tcp_connect(const struct pq_address *a, int *out_fd, struct pq_why *why)
{
    DEFER(pq_closep) int fd = -1;
    TRY(open_socket(a->sa.ss_family, &fd, why));
    pq_tcp_nodelay(fd, true);
    int e = 0;
    if (connect(fd, (const struct sockaddr *)&a->sa, a->len) < 0) {
        if (errno != EINPROGRESS && errno != EINTR) {
            char text[PQ_ADDRESS_TEXT];
            int err = errno;
            pq_address_text(a, text);
            if (err == EAGAIN && a->sa.ss_family == AF_UNIX) /* connect(2): the listener's backlog is full */
                return pq_why(why, PQ_E_REFUSED, "can't connect to %s: its queue is full", text);
            return pq_why(why, err == EAGAIN ? PQ_E_LIMIT : pq_error_from_errno(err), "can't connect to %s: %s", text,
                          strerror(err));
        }
        e = PQ_E_WANT_WRITE;
    }
    *out_fd = TAKE_FD(fd);
    return e;
}

int pq_tcp_connected(int fd)
{
    int err = 0;
    socklen_t len = sizeof err;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
        err = errno;
    return err ? pq_error_from_errno(err) : 0;
}

int pq_tcp_read(int fd, void *out, size_t size, size_t *n)
{
    ssize_t got = recv(fd, out, size, 0);
    if (got > 0) {
        *n = (size_t)got;
        return 0;
    }
    if (got == 0)
        return PQ_E_CLOSED;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? PQ_E_WANT_READ : PQ_E_RESET;
}

int pq_tcp_write(int fd, const void *bytes, size_t size, size_t *n)
{
    ssize_t put = send(fd, bytes, size, MSG_NOSIGNAL);
    if (put >= 0) {
        *n = (size_t)put;
        return 0;
    }
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? PQ_E_WANT_WRITE : PQ_E_RESET;
}

int pq_tcp_nodelay(int fd, bool on)
{
    int value = on;
    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value) < 0 ? PQ_E_UNSUPPORTED : 0;
}

int pq_tcp_abort_on_close(int fd, bool on)
{
    struct linger l = {.l_onoff = on, .l_linger = 0};
    return setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l) < 0 ? PQ_E_UNSUPPORTED : 0;
}

int pq_tcp_counts(int fd, struct pq_tcp_counts *out)
{
    struct tcp_info i = {0};
    socklen_t len = sizeof i;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &len) < 0)
        return PQ_E_UNSUPPORTED;
    *out = (struct pq_tcp_counts){.bytes_sent = i.tcpi_bytes_sent - i.tcpi_bytes_retrans,
                                  .bytes_received = i.tcpi_bytes_received,
                                  .segments_out = i.tcpi_segs_out,
                                  .segments_in = i.tcpi_segs_in,
                                  .retransmitted = i.tcpi_total_retrans,
                                  .rtt_us = i.tcpi_rtt};
    return 0;
}
