#include "proxy/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What stat(2) said; all zero but err where it failed. */
struct state {
    int err;
    dev_t device;
    ino_t inode;
    mode_t mode;
    off_t size;
    struct timespec written, changed;
};

struct file {
    char *path;
    struct state state;
};

struct pq_watch {
    struct file *files;
    size_t count;
    bool unsettled;
};

static struct state state_of(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return (struct state){.err = errno};
    return (struct state){0, st.st_dev, st.st_ino, st.st_mode, st.st_size, st.st_mtim, st.st_ctim};
}

static bool same_time(struct timespec a, struct timespec b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

static bool same(const struct state *a, const struct state *b)
{
    return a->err == b->err && a->device == b->device && a->inode == b->inode && a->mode == b->mode &&
           a->size == b->size && same_time(a->written, b->written) && same_time(a->changed, b->changed);
}

int pq_watch_new(struct pq_watch **out)
{
    struct pq_watch *w = calloc(1, sizeof *w);
    if (!w)
        return PQ_E_NOMEM;
    *out = w;
    return 0;
}

static void forget(struct pq_watch *w)
{
    for (size_t i = 0; i < w->count; i++)
        free(w->files[i].path);
    free(w->files);
    *w = (struct pq_watch){0};
}

void pq_watch_free(struct pq_watch *w)
{
    if (!w)
        return;
    forget(w);
    free(w);
}

static const struct file *find(const struct pq_watch *w, const char *path)
{
    for (size_t i = 0; i < w->count; i++)
        if (strcmp(w->files[i].path, path) == 0)
            return &w->files[i];
    return NULL;
}

int pq_watch_set(struct pq_watch *w, const struct pq_strings *paths)
{
    struct pq_watch next = {.files = calloc(paths->count + 1, sizeof next.files[0]), .unsettled = w->unsettled};
    if (!next.files)
        return PQ_E_NOMEM;
    for (; next.count < paths->count; next.count++) {
        struct file *f = &next.files[next.count];
        f->path = strdup(paths->at[next.count]);
        if (!f->path) {
            forget(&next);
            return PQ_E_NOMEM;
        }
        const struct file *before = find(w, f->path);
        f->state = before ? before->state : state_of(f->path);
    }
    forget(w);
    *w = next;
    return 0;
}

bool pq_watch_look(struct pq_watch *w)
{
    bool changed = false;
    for (size_t i = 0; i < w->count; i++) {
        struct state now = state_of(w->files[i].path);
        changed |= !same(&now, &w->files[i].state);
        w->files[i].state = now;
    }
    bool settled = w->unsettled && !changed;
    w->unsettled = changed;
    return settled;
}
