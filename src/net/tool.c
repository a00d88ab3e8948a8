#include "net/tool.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "net/namespace.h"

enum { NOT_THERE = 127, NOT_STARTED = 126 };

static _Noreturn void become(const struct pq_tool *t, int in, int out, int err)
{
    static const char *const folders[] = {"/usr/sbin", "/sbin", "/usr/bin", "/bin"};
    char path[64];
    char *const *argv = (char *const *)(uintptr_t)t->argv;
    signal(SIGPIPE, SIG_DFL);
    if (dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0)
        _exit(NOT_STARTED);
    if (t->netns >= 0 && pq_netns_enter(t->netns, NULL) < 0)
        _exit(NOT_STARTED);
    execvp(argv[0], argv);
    for (size_t i = 0; i < PQ_COUNT(folders); i++) {
        snprintf(path, sizeof path, "%s/%s", folders[i], argv[0]);
        execv(path, argv);
    }
    _exit(NOT_THERE);
}

static int make_file(int *out, struct pq_why *why)
{
    *out = memfd_create("pqplane", MFD_CLOEXEC);
    return *out < 0 ? pq_why(why, pq_error_from_errno(errno), "no file in memory to be had: %s", strerror(errno)) : 0;
}

static int put(int fd, const char *text)
{
    for (size_t done = 0, len = text ? strlen(text) : 0; done < len;) {
        ssize_t n = write(fd, text + done, len - done);
        if (n < 0 && errno != EINTR)
            return pq_error_from_errno(errno);
        done += n > 0 ? (size_t)n : 0;
    }
    return lseek(fd, 0, SEEK_SET) < 0 ? PQ_E_IO : 0;
}

static int take(int fd, struct pq_buf *out)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return PQ_E_IO;
    size_t len = (size_t)st.st_size;
    TRY(pq_buf_reserve(out, len));
    ssize_t n = pread(fd, out->at + out->len, len, 0);
    if (n < 0 || (size_t)n != len)
        return PQ_E_IO;
    out->len += len;
    out->at[out->len] = '\0';
    return 0;
}

int pq_tool_run(const struct pq_tool *t, int *status, struct pq_buf *output, struct pq_buf *errors, struct pq_why *why)
{
    DEFER(pq_closep) int in = -1;
    DEFER(pq_closep) int out = -1;
    DEFER(pq_closep) int err = -1;
    TRY(make_file(&in, why));
    TRY(make_file(&out, why));
    TRY(make_file(&err, why));
    TRY(put(in, t->input));
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        become(t, in, out, errors ? err : out);
    if (pid < 0)
        return pq_why(why, PQ_E_LIMIT, "can't start %s: %s", t->argv[0], strerror(errno));
    while (waitpid(pid, status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(*status) && WEXITSTATUS(*status) == NOT_THERE)
        return pq_why(why, PQ_E_NOENT, "there is no program \"%s\" here", t->argv[0]);
    if (WIFEXITED(*status) && WEXITSTATUS(*status) == NOT_STARTED)
        return pq_why(why, PQ_E_IO, "can't start %s", t->argv[0]);
    int e = take(out, output);
    if (e == 0 && errors)
        e = take(err, errors);
    return e < 0 ? pq_why(why, e, "what %s said can't be read: %s", t->argv[0], pq_error_text(e)) : 0;
}
