#include "net/message.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union ancillary {
    struct cmsghdr header;
    char space[CMSG_SPACE(PQ_MESSAGE_FDS * sizeof(int))];
};

int pq_message_send(int socket, struct iovec *parts, size_t count, const int *fds, size_t fd_count)
{
    union ancillary a = {0};
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = count};
    if (fd_count > PQ_MESSAGE_FDS)
        return PQ_E_LIMIT;
    if (fd_count) {
        m.msg_control = a.space;
        m.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        a.header = (struct cmsghdr){CMSG_LEN(fd_count * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&a.header), fds, fd_count * sizeof(int));
    }
    if (sendmsg(socket, &m, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
        return 0;
    switch (errno) {
    case EAGAIN:
    case EINTR:
    case ENOBUFS:
    case ETOOMANYREFS:
        return PQ_E_WANT_WRITE;
    case EPIPE:
    case ECONNRESET:
        return PQ_E_CLOSED;
    default:
        return pq_error_from_errno(errno);
    }
}

static void close_all(const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
}

/* All that came, however many the message claims: the kernel gives no more than fit into the ancillary data. */
static size_t take_fds(struct msghdr *m, int fds[sizeof(union ancillary) / sizeof(int)])
{
    size_t taken = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds + taken, CMSG_DATA(c), count * sizeof(int));
        taken += count;
    }
    return taken;
}

int pq_message_receive(int socket, struct iovec *parts, size_t count, size_t *len, int *fds, size_t room,
                       size_t *fd_count)
{
    union ancillary a;
    int got[sizeof a / sizeof(int)];
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = count, .msg_control = a.space, .msg_controllen = sizeof a.space};
    ssize_t n = recvmsg(socket, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? PQ_E_WANT_READ
               : errno == ECONNRESET             ? PQ_E_CLOSED
                                                 : pq_error_from_errno(errno);
    size_t taken = take_fds(&m, got);
    bool whole = n > 0 && taken <= room && !(m.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
    if (!whole) {
        close_all(got, taken);
        return n == 0 ? PQ_E_CLOSED : PQ_E_TOO_LONG;
    }
    memcpy(fds, got, taken * sizeof(int));
    *fd_count = taken;
    *len = (size_t)n;
    return 0;
}
