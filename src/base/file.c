#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/cleanup.h"

static int fail(struct pq_why *why, const char *verb, const char *path)
{
    int err = errno;
    return pq_why(why, pq_error_from_errno(err), "can't %s %s: %s", verb, path, strerror(err));
}

static int append_all(int fd, const char *path, struct pq_buf *out, struct pq_why *why)
{
    for (;;) {
        char chunk[16384];
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR)
            continue;
        int e = n < 0 ? fail(why, "read", path) : n > 0 ? pq_buf_append(out, chunk, (size_t)n) : 0;
        explicit_bzero(chunk, sizeof chunk);
        if (e == PQ_E_TOO_LONG)
            pq_why(why, e, "%s is larger than %zu bytes", path, out->cap);
        else if (e == PQ_E_NOMEM)
            pq_why(why, e, "out of memory while reading %s", path);
        if (e < 0 || n == 0)
            return e;
    }
}

static int read_regular(const char *path, bool secret, struct pq_buf *out, struct pq_why *why)
{
    /* O_NONBLOCK: opening a FIFO would wait for a writer */
    DEFER(pq_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return fail(why, "read", path);
    if (!S_ISREG(st.st_mode))
        return pq_why(why, PQ_E_IO, "can't read %s: it is no regular file", path);
    if (secret && (st.st_mode & (S_IRWXG | S_IRWXO)))
        return pq_why(why, PQ_E_CONFIG, "the key file %s has mode %04o, so others may read it: chmod 600 it", path,
                      (unsigned)(st.st_mode & 07777));
    size_t before = out->len;
    int e = append_all(fd, path, out, why);
    if (e < 0)
        out->len = before;
    return e;
}

int pq_file_read(const char *path, struct pq_buf *out, struct pq_why *why)
{
    return read_regular(path, false, out, why);
}

int pq_file_read_secret(const char *path, struct pq_buf *out, struct pq_why *why)
{
    return read_regular(path, true, out, why);
}

int pq_file_hold_standard(struct pq_why *why)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            return fail(why, "open", "/dev/null");
    return 0;
}

void pq_file_close(int fd)
{
    if (fd < 0)
        return;
    DEFER(pq_closep) int null = fd <= STDERR_FILENO ? open("/dev/null", O_RDWR | O_CLOEXEC) : -1;
    if (null < 0 || dup2(null, fd) < 0)
        close(fd);
}

static int write_all(int fd, struct pq_span bytes)
{
    while (bytes.len) {
        ssize_t n = write(fd, bytes.at, bytes.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        bytes.at += n;
        bytes.len -= (size_t)n;
    }
    return 0;
}

/* A device, pipe or socket is written to as it is: renaming a file over it would do away with it. */
static int write_through(const char *path, struct pq_span bytes, struct pq_why *why)
{
    DEFER(pq_closep) int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    return fd < 0 || write_all(fd, bytes) < 0 ? fail(why, "write", path) : 0;
}

/* Beside the target, under a name that no other process takes: process ids repeat between PID namespaces. */
static int name_beside(const char *path, char out[PATH_MAX], struct pq_why *why)
{
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return fail(why, "write", path);
    int n = snprintf(out, PATH_MAX, "%s.%016llx.new", path, (unsigned long long)random);
    if (n < 0 || n >= PATH_MAX)
        return pq_why(why, PQ_E_TOO_LONG, "the path %s is too long", path);
    return 0;
}

static int write_new(const char *path, const char *named, struct pq_span bytes, mode_t mode, struct pq_why *why)
{
    DEFER(pq_closep) int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0 && errno == EEXIST)
        return pq_why(why, PQ_E_EXISTS, "%s exists and is not overwritten: name another file or remove it first",
                      named);
    if (fd < 0)
        return fail(why, "write", named);
    if (write_all(fd, bytes) < 0 || fsync(fd) < 0) {
        int e = fail(why, "write", named);
        unlink(path);
        return e;
    }
    return 0;
}

static int replace(const char *path, struct pq_span bytes, mode_t mode, struct pq_why *why)
{
    struct stat st;
    char target[PATH_MAX], beside[PATH_MAX];
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return write_through(path, bytes, why);
    bool link = lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
    if (link && !realpath(path, target))
        return fail(why, "follow the link", path);
    const char *real = link ? target : path;
    TRY(name_beside(real, beside, why));
    TRY(write_new(beside, path, bytes, mode, why));
    if (rename(beside, real) < 0) {
        int e = fail(why, "write", path);
        unlink(beside);
        return e;
    }
    return 0;
}

int pq_file_write(const char *path, struct pq_span bytes, mode_t mode, enum pq_file_how how, struct pq_why *why)
{
    return how == PQ_FILE_REPLACE ? replace(path, bytes, mode, why) : write_new(path, path, bytes, mode, why);
}

int pq_file_make_folders(const char *path, mode_t mode, struct pq_why *why)
{
    char part[PATH_MAX];
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof part)
        return pq_why(why, PQ_E_INVALID, "\"%s\" is no usable folder name", path);
    for (size_t i = 1; i <= len; i++) {
        if (path[i] != '/' && path[i] != 0)
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, mode) < 0 && errno != EEXIST)
            return fail(why, "make the folder", part);
    }
    struct stat st;
    if (stat(path, &st) < 0)
        return fail(why, "make the folder", path);
    return S_ISDIR(st.st_mode) ? 0 : pq_why(why, PQ_E_EXISTS, "%s exists and is no folder", path);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

int pq_file_remove_tree(const char *path, struct pq_why *why)
{
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) < 0 && errno != ENOENT)
        return fail(why, "remove", path);
    return 0;
}
