#include "proxy/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "net/message.h"

static const char *const names[] = {
#define X(name, label) label,
    PQ_CONTROL_TYPES(X)
#undef X
};
const char *pq_control_type_name(enum pq_control_type t) { return names[t]; }

struct header {
    uint32_t type;
    int32_t status;
    int64_t generation;
};

struct pq_control_waiting {
    struct pq_control_waiting *next;
    struct header header;
    int fd[PQ_CONTROL_FDS]; /* copies */
    size_t fd_count, len;
    char text[];
};

int pq_control_pair(struct pq_control *out, int *other_fd)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
        return pq_error_from_errno(errno);
    pq_control_init(out, pair[0]);
    *other_fd = pair[1];
    return 0;
}

void pq_control_init(struct pq_control *c, int fd) { *c = (struct pq_control){.fd = fd}; }

/* --- sending ----------------------------------------------------------------------------------------------------- */
static void close_all(const int *fd, size_t count)
{
    for (size_t i = 0; i < count; i++)
        close(fd[i]);
}

static void drop_first(struct pq_control *c)
{
    struct pq_control_waiting *w = c->first;
    c->first = w->next;
    c->waiting--;
    close_all(w->fd, w->fd_count);
    free(w);
}

void pq_control_free(struct pq_control *c)
{
    while (c->first)
        drop_first(c);
    pq_closep(&c->fd);
}

static int send_now(int fd, const struct header *h, const char *text, size_t len, const int *fds, size_t fd_count)
{
    struct iovec parts[] = {{(void *)(uintptr_t)h, sizeof *h}, {(void *)(uintptr_t)text, len}};
    return pq_message_send(fd, parts, PQ_COUNT(parts), fds, fd_count);
}

static int copy_fds(const struct pq_control_message *m, struct pq_control_waiting *w)
{
    for (; w->fd_count < m->fd_count; w->fd_count++) {
        w->fd[w->fd_count] = fcntl(m->fd[w->fd_count], F_DUPFD_CLOEXEC, 0);
        if (w->fd[w->fd_count] < 0) {
            close_all(w->fd, w->fd_count);
            return PQ_E_LIMIT;
        }
    }
    return 0;
}

static int wait_to_send(struct pq_control *c, const struct header *h, const struct pq_control_message *m, size_t len)
{
    if (c->waiting == PQ_CONTROL_WAITING_MAX)
        return PQ_E_LIMIT;
    DEFER(pq_freep) struct pq_control_waiting *w = calloc(1, sizeof *w + len);
    if (!w)
        return PQ_E_NOMEM;
    w->header = *h;
    w->len = len;
    memcpy(w->text, m->text, len);
    TRY(copy_fds(m, w));
    if (!c->first)
        c->last = &c->first;
    *c->last = w;
    c->last = &w->next;
    c->waiting++;
    w = NULL; /* the channel's now */
    return 0;
}

int pq_control_send(struct pq_control *c, const struct pq_control_message *m)
{
    struct header h = {.type = m->type, .status = m->status, .generation = m->generation};
    size_t len = strnlen(m->text, sizeof m->text);
    if (c->fd < 0)
        return PQ_E_CLOSED;
    if (m->fd_count > PQ_CONTROL_FDS)
        return PQ_E_LIMIT;
    if (len == sizeof m->text)
        return PQ_E_TOO_LONG;
    int e = c->first ? PQ_E_WANT_WRITE : send_now(c->fd, &h, m->text, len, m->fd, m->fd_count);
    return e == PQ_E_WANT_WRITE ? wait_to_send(c, &h, m, len) : e;
}

int pq_control_flush(struct pq_control *c)
{
    while (c->first) {
        const struct pq_control_waiting *w = c->first;
        int e = send_now(c->fd, &w->header, w->text, w->len, w->fd, w->fd_count);
        if (e == PQ_E_WANT_WRITE)
            return 0;
        if (e < 0)
            return e;
        drop_first(c);
    }
    return 0;
}

/* --- receiving --------------------------------------------------------------------------------------------------- */
int pq_control_receive(struct pq_control *c, struct pq_control_message *out)
{
    struct header h = {0};
    size_t len = 0;
    if (c->fd < 0)
        return PQ_E_CLOSED;
    *out = (struct pq_control_message){.fd_count = 0};
    struct iovec parts[] = {{&h, sizeof h}, {out->text, sizeof out->text - 1}};
    int e = pq_message_receive(c->fd, parts, PQ_COUNT(parts), &len, out->fd, PQ_CONTROL_FDS, &out->fd_count);
    if (e < 0)
        return e == PQ_E_TOO_LONG ? PQ_E_PROTOCOL : e;
    if (len < sizeof h || h.type >= PQ_CONTROL_TYPE_COUNT) {
        pq_control_drop(out);
        return PQ_E_PROTOCOL;
    }
    out->type = (enum pq_control_type)h.type;
    out->status = h.status;
    out->generation = h.generation;
    return 0;
}

void pq_control_drop(struct pq_control_message *m)
{
    close_all(m->fd, m->fd_count);
    m->fd_count = 0;
}
