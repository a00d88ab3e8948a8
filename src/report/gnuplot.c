#include "report/gnuplot.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "report/text.h"

enum { PATIENCE_MS = 60000 };

struct child {
    pid_t pid; /* 0: none */
};

static void child_end(struct child *c)
{
    if (c->pid <= 0)
        return;
    kill(c->pid, SIGKILL);
    while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    c->pid = 0;
}

static int fail(struct pq_why *why, const char *what)
{
    int err = errno;
    return pq_why(why, pq_error_from_errno(err), "can't run gnuplot: %s: %s", what, strerror(err));
}

/* A file without a name that holds the bytes, at its beginning. */
static int unnamed(struct pq_span bytes, int *out, struct pq_why *why)
{
    DEFER(pq_closep) int fd = memfd_create("plot", MFD_CLOEXEC);
    if (fd < 0)
        return fail(why, "memfd_create");
    while (bytes.len) {
        ssize_t n = write(fd, bytes.at, bytes.len);
        if (n < 0 && errno != EINTR)
            return fail(why, "write");
        bytes.at += n > 0 ? n : 0;
        bytes.len -= n > 0 ? (size_t)n : 0;
    }
    if (lseek(fd, 0, SEEK_SET) < 0)
        return fail(why, "lseek");
    *out = TAKE_FD(fd);
    return 0;
}

/* gnuplot starts as a shell would start it: our own ignoring of a broken pipe is not its. */
static int spawn_like_a_shell(pid_t *pid, const char *name, const posix_spawn_file_actions_t *a, char **argv,
                              char **env)
{
    posix_spawnattr_t how;
    sigset_t defaults;
    int err = posix_spawnattr_init(&how);
    if (err)
        return err;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    err = posix_spawnattr_setsigdefault(&how, &defaults);
    if (err == 0)
        err = posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGDEF);
    if (err == 0)
        err = posix_spawnp(pid, name, a, &how, argv, env);
    posix_spawnattr_destroy(&how);
    return err;
}

static int spawn(int script, int picture, int messages, pid_t *pid, struct pq_why *why)
{
    char name[] = "gnuplot", defaults[] = "-d", path[] = "PATH=/usr/local/bin:/usr/bin:/bin", lang[] = "LC_ALL=C";
    char *argv[] = {name, defaults, NULL}, *env[] = {path, lang, NULL};
    posix_spawn_file_actions_t a;
    if (posix_spawn_file_actions_init(&a) != 0)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    int err = posix_spawn_file_actions_adddup2(&a, script, STDIN_FILENO);
    if (err == 0)
        err = posix_spawn_file_actions_adddup2(&a, picture, STDOUT_FILENO);
    if (err == 0)
        err = posix_spawn_file_actions_adddup2(&a, messages, STDERR_FILENO);
    if (err == 0)
        err = spawn_like_a_shell(pid, name, &a, argv, env);
    posix_spawn_file_actions_destroy(&a);
    if (err == ENOENT)
        return pq_why(why, PQ_E_UNSUPPORTED,
                      "gnuplot is not installed, and it draws the plots of the page: install gnuplot "
                      "(Debian: gnuplot-nox), or leave out --html");
    errno = err;
    return err ? fail(why, "posix_spawnp") : 0;
}

static int receive(int fd, struct pq_buf *picture, struct pq_why *why)
{
    int64_t until = pq_clock_ns() + PATIENCE_MS * PQ_NS_PER_MS;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int64_t left = (until - pq_clock_ns()) / PQ_NS_PER_MS;
        int ready = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready < 0)
            return fail(why, "poll");
        if (ready == 0)
            return pq_why(why, PQ_E_TIMEOUT, "gnuplot drew for more than %d s and was ended", PATIENCE_MS / 1000);
        char chunk[16384];
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno != EINTR)
            return fail(why, "read");
        if (n == 0)
            return 0;
        if (n > 0 && pq_buf_append(picture, chunk, (size_t)n) < 0)
            return pq_why(why, PQ_E_TOO_LONG, "gnuplot drew more than %zu bytes", picture->cap);
    }
}

/* Its exit status decides; its first words of complaint are passed on. */
static int judge(struct child *c, int messages, struct pq_why *why)
{
    int status;
    while (waitpid(c->pid, &status, 0) < 0)
        if (errno != EINTR)
            return fail(why, "waitpid");
    c->pid = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return pq_why(why, PQ_E_UNSUPPORTED, "gnuplot can't be run here: install gnuplot, or leave out --html");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    char text[400];
    ssize_t n = pread(messages, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    return pq_why(why, PQ_E_IO, "gnuplot failed (status %d): %s", status, pq_short(text + strspn(text, " ^\n")).text);
}

int pq_gnuplot(struct pq_span script, struct pq_buf *picture, struct pq_why *why)
{
    DEFER(child_end) struct child c = {0};
    DEFER(pq_closep) int in = -1;
    DEFER(pq_closep) int messages = -1;
    DEFER(pq_closep) int ours = -1;
    DEFER(pq_closep) int theirs = -1;
    int ends[2];
    TRY(unnamed(script, &in, why));
    TRY(unnamed((struct pq_span){0}, &messages, why));
    if (pipe2(ends, O_CLOEXEC) < 0)
        return fail(why, "pipe2");
    ours = ends[0];
    theirs = ends[1];
    TRY(spawn(in, theirs, messages, &c.pid, why));
    pq_closep(&theirs);
    TRY(receive(ours, picture, why));
    return judge(&c, messages, why);
}
