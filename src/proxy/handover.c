#include "proxy/handover.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

union ancillary {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int))];
};

int pq_handover_send(int channel, const char *text, int fd)
{
    union ancillary a = {0};
    struct iovec part = {(void *)(uintptr_t)text, strlen(text)};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    if (part.iov_len >= PQ_HANDOVER_TEXT)
        return PQ_E_TOO_LONG;
    if (fd >= 0) {
        a.header = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&a.header), &fd, sizeof fd);
        m.msg_control = a.space;
        m.msg_controllen = sizeof a.space;
    }
    if (sendmsg(channel, &m, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
        return 0;
    return errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ETOOMANYREFS ? PQ_E_WANT_WRITE
           : errno == EPIPE || errno == ECONNRESET                                        ? PQ_E_CLOSED
                                                                                          : pq_error_from_errno(errno);
}

int pq_handover_receive(int channel, char text[PQ_HANDOVER_TEXT], int *fd)
{
    union ancillary a;
    struct iovec part = {text, PQ_HANDOVER_TEXT - 1};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = a.space, .msg_controllen = sizeof a.space};
    *fd = -1;
    ssize_t n = recvmsg(channel, &m, MSG_CMSG_CLOEXEC);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? PQ_E_WANT_READ
               : errno == ECONNRESET             ? PQ_E_CLOSED
                                                 : pq_error_from_errno(errno);
    if (n == 0)
        return PQ_E_CLOSED;
    text[n] = '\0';
    const struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof *fd))
        memcpy(fd, CMSG_DATA(c), sizeof *fd);
    if (!(m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) && strlen(text) == (size_t)n)
        return 0;
    pq_closep(fd);
    return PQ_E_SYNTAX;
}

/* --- a socket ---------------------------------------------------------------------------------------------------- */
int pq_handover_socket_write(const struct pq_listening *l, char *out, size_t size)
{
    char address[PQ_ADDRESS_TEXT];
    pq_address_text(&l->at, address);
    int n =
        snprintf(out, size, "%s %s %" PRIu64 " %" PRIu64, l->name, address, (uint64_t)l->device, (uint64_t)l->inode);
    return n < 0 || (size_t)n >= size ? PQ_E_TOO_LONG : 0;
}

/* The last word of a text: *at is cut before it. NULL where there is but one. */
static char *last_word(char *at)
{
    char *space = strrchr(at, ' ');
    if (!space)
        return NULL;
    *space = '\0';
    return space + 1;
}

/* A path may hold spaces; a listener's name does not. */
int pq_handover_socket_read(const char *text, struct pq_listening *out)
{
    DEFER(pq_freep) char *copy = strdup(text);
    if (!copy)
        return PQ_E_NOMEM;
    struct pq_listening l = {.fd = -1};
    int64_t device, inode;
    const char *inode_text = last_word(copy), *device_text = inode_text ? last_word(copy) : NULL;
    char *address = device_text ? strchr(copy, ' ') : NULL;
    if (!address || address == copy || pq_int_parse(inode_text, 0, INT64_MAX, &inode, NULL) < 0 ||
        pq_int_parse(device_text, 0, INT64_MAX, &device, NULL) < 0)
        return PQ_E_SYNTAX;
    *address++ = '\0';
    if (pq_address_parse(address, &l.at, NULL) < 0)
        return PQ_E_SYNTAX;
    l.device = (dev_t)device;
    l.inode = (ino_t)inode;
    l.name = strdup(copy);
    if (!l.name)
        return PQ_E_NOMEM;
    *out = l;
    return 0;
}

/* --- keys -------------------------------------------------------------------------------------------------------- */
void pq_handover_keys_write(const uint8_t *keys, size_t size, char *out)
{
    for (size_t i = 0; i < size; i++)
        snprintf(out + 2 * i, 3, "%02x", keys[i]);
}

static int digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

int pq_handover_keys_read(const char *text, uint8_t *out, size_t size)
{
    if (strlen(text) != 2 * size)
        return PQ_E_SYNTAX;
    for (size_t i = 0; i < 2 * size; i++)
        if (digit(text[i]) < 0)
            return PQ_E_SYNTAX;
    for (size_t i = 0; i < size; i++)
        out[i] = (uint8_t)(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
    return 0;
}
