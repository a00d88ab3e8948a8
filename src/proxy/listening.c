#include "proxy/listening.h"

#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static const char *unix_path(const struct pq_address *a)
{
    return a->sa.ss_family == AF_UNIX ? ((const struct sockaddr_un *)(const void *)&a->sa)->sun_path : NULL;
}

int pq_listening_open(const struct pq_proxy_listener *l, struct pq_listening *out, struct pq_why *why)
{
    struct pq_listening opened = {.at = l->listen.at, .fd = -1};
    const char *path = unix_path(&opened.at);
    struct stat bound;
    int e = pq_tcp_listen(&opened.at, 0, &opened.fd, why);
    if (e < 0)
        return pq_why_in(why, e, "%s: \"%s\"", l->listen.where, l->name);
    if (path && lstat(path, &bound) == 0) {
        opened.device = bound.st_dev;
        opened.inode = bound.st_ino;
    }
    *out = opened;
    return 0;
}

/* While the socket is open, nobody else can have its inode's number. */
static void remove_path(const struct pq_listening *l)
{
    const char *path = unix_path(&l->at);
    struct stat now;
    if (path && l->inode && lstat(path, &now) == 0 && now.st_dev == l->device && now.st_ino == l->inode)
        unlink(path);
}

void pq_listening_close(struct pq_listening *l)
{
    if (l->fd < 0)
        return;
    remove_path(l);
    pq_closep(&l->fd);
}
