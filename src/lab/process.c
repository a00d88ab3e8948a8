#include "lab/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "net/namespace.h"

enum { ARGV_MAX = 96, LOG_CAP = 64 << 20, LAST_WORDS = 500, NOT_STARTED = 126 };

static _Noreturn void become(const struct pq_process_start *how, const char *const *argv, int log, int ready)
{
    static const int defaults[] = {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGCHLD};
    struct pq_why why = {{0}};
    sigset_t none;
    sigemptyset(&none);
    for (size_t i = 0; i < PQ_COUNT(defaults); i++)
        signal(defaults[i], SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    int null = open("/dev/null", O_RDONLY);
    if (dup2(null, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0)
        _exit(NOT_STARTED);
    if (how->netns >= 0 && pq_netns_enter(how->netns, &why) < 0) {
        fprintf(stderr, "%s\n", why.text);
        _exit(NOT_STARTED);
    }
    if (chdir("/") < 0)
        _exit(NOT_STARTED);
    if (ready >= 0 && fcntl(ready, F_SETFD, 0) < 0)
        _exit(NOT_STARTED);
    execv(how->program, (char *const *)(uintptr_t)argv);
    fprintf(stderr, "can't run %s: %s\n", how->program, strerror(errno));
    _exit(NOT_STARTED);
}

static int with_ready(const struct pq_process_start *how, const char **argv, char *number, size_t size, int fd,
                      struct pq_why *why)
{
    size_t n = 0;
    for (; how->argv[n]; n++) {
        if (n + 3 >= ARGV_MAX)
            return pq_why(why, PQ_E_LIMIT, "%s would be started with more than %d arguments", how->name, ARGV_MAX - 4);
        argv[n] = how->argv[n];
    }
    if (how->ready) {
        snprintf(number, size, "%d", fd);
        argv[n++] = "--ready-fd";
        argv[n++] = number;
    }
    argv[n] = NULL;
    return 0;
}

static int no_start(struct pq_why *why, const char *name)
{
    int err = errno;
    return pq_why(why, pq_error_from_errno(err), "can't start the %s: %s", name, strerror(err));
}

int pq_process_start(struct pq_processes *set, const struct pq_process_start *how, struct pq_process **out,
                     struct pq_why *why)
{
    if (set->count == PQ_PROCESS_MAX)
        return pq_why(why, PQ_E_LIMIT, "a cell can have %d processes at most", PQ_PROCESS_MAX);
    DEFER(pq_closep) int log = open(how->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    DEFER(pq_closep) int ready_read = -1;
    DEFER(pq_closep) int ready_write = -1;
    int ends[2];
    if (log < 0)
        return no_start(why, how->name);
    if (how->ready) {
        if (pipe2(ends, O_CLOEXEC) < 0)
            return no_start(why, how->name);
        ready_read = ends[0];
        ready_write = ends[1];
    }
    const char *argv[ARGV_MAX];
    char number[16];
    TRY(with_ready(how, argv, number, sizeof number, ready_write, why));
    struct pq_process p = {.pid = -1, .pidfd = -1, .ready_fd = -1};
    snprintf(p.name, sizeof p.name, "%s", how->name);
    snprintf(p.log, sizeof p.log, "%s", how->log);
    fflush(NULL);
    p.pid = fork();
    if (p.pid == 0)
        become(how, argv, log, ready_write);
    if (p.pid < 0)
        return no_start(why, how->name);
    p.pidfd = pidfd_open(p.pid, 0);
    if (p.pidfd < 0) {
        int err = errno;
        kill(p.pid, SIGKILL);
        waitpid(p.pid, NULL, 0);
        errno = err;
        return no_start(why, how->name);
    }
    p.ready_fd = TAKE_FD(ready_read);
    set->at[set->count] = p;
    *out = &set->at[set->count++];
    return 0;
}

static void reap(struct pq_process *p)
{
    int status = 0;
    if (!p->ended && waitpid(p->pid, &status, WNOHANG) == p->pid) {
        p->ended = true;
        p->status = status;
    }
}

/* The end of what it wrote, as part of a sentence, in ASCII. */
static void last_words(const struct pq_process *p, char out[LAST_WORDS])
{
    DEFER(pq_buf_free) struct pq_buf b = {.cap = LOG_CAP};
    snprintf(out, LAST_WORDS, "it wrote nothing");
    if (pq_file_read(p->log, &b, NULL) < 0 || b.len == 0)
        return;
    while (b.len && (b.at[b.len - 1] == '\n' || b.at[b.len - 1] == ' '))
        b.len--;
    size_t from = b.len > LAST_WORDS - 20 ? b.len - (LAST_WORDS - 20) : 0;
    /* Three lines are enough to see why. */
    for (size_t i = b.len, lines = 0; i > from && lines < 3; i--)
        if (b.at[i - 1] == '\n' && ++lines == 3)
            from = i;
    snprintf(out, LAST_WORDS, "its last words: %.*s", (int)(b.len - from), (const char *)b.at + from);
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f)
            *c = *c == '\n' || *c == '\t' ? ' ' : '?';
}

static int why_ended(const struct pq_process *p, struct pq_why *why)
{
    char words[LAST_WORDS];
    last_words(p, words);
    if (WIFSIGNALED(p->status))
        return pq_why(why, PQ_E_CLOSED, "the %s was ended by signal %d (%s); %s", p->name, WTERMSIG(p->status),
                      strsignal(WTERMSIG(p->status)), words);
    return pq_why(why, PQ_E_CLOSED, "the %s ended with status %d; %s", p->name, WEXITSTATUS(p->status), words);
}

int pq_processes_check(struct pq_processes *set, struct pq_why *why)
{
    for (size_t i = 0; i < set->count; i++) {
        struct pq_process *p = &set->at[i];
        bool knew = p->ended;
        reap(p);
        if (p->ended && !knew)
            return why_ended(p, why);
    }
    return 0;
}

enum { WAIT_EXTRA = 2 };

/* Waits until fd is readable, a process of the set ends, the run is asked to stop, or the time is over. */
static int wait_for(struct pq_processes *set, int fd, int64_t deadline_ns, bool *readable)
{
    struct pollfd p[PQ_PROCESS_MAX + WAIT_EXTRA] = {{.fd = fd, .events = POLLIN},
                                                    {.fd = set->stop_fd, .events = POLLIN}};
    for (size_t i = 0; i < set->count; i++)
        p[i + WAIT_EXTRA] = (struct pollfd){.fd = set->at[i].ended ? -1 : set->at[i].pidfd, .events = POLLIN};
    int64_t left = deadline_ns - pq_clock_ns();
    if (left <= 0)
        return PQ_E_TIMEOUT;
    int n = poll(p, set->count + WAIT_EXTRA, (int)(left / PQ_NS_PER_MS) + 1);
    if (n < 0 && errno != EINTR)
        return PQ_E_IO;
    if (n > 0 && p[1].revents)
        return PQ_E_INTERRUPTED;
    *readable = n > 0 && p[0].revents;
    return 0;
}

static int stopped_waiting(int code, const struct pq_process *p, const char *what, int64_t timeout_ns,
                           struct pq_why *why)
{
    if (code == PQ_E_INTERRUPTED)
        return pq_why(why, code, "interrupted");
    if (code != PQ_E_TIMEOUT)
        return pq_why(why, code, "can't wait for the %s: %s", p->name, strerror(errno));
    char words[LAST_WORDS];
    last_words(p, words);
    return pq_why(why, code, "the %s %s within %.0f s; %s", p->name, what, (double)timeout_ns / PQ_NS_PER_S, words);
}

int pq_process_await_ready(struct pq_processes *set, struct pq_process *p, int64_t timeout_ns, struct pq_why *why)
{
    int64_t deadline = pq_clock_ns() + timeout_ns;
    size_t got = 0;
    while (p->ready_fd >= 0) {
        bool readable = false;
        int e = wait_for(set, p->ready_fd, deadline, &readable);
        if (e < 0)
            return stopped_waiting(e, p, "did not get ready", timeout_ns, why);
        if (!readable) {
            TRY(pq_processes_check(set, why));
            continue;
        }
        char chunk[512];
        ssize_t n = read(p->ready_fd, chunk, sizeof chunk);
        got += n > 0 ? (size_t)n : 0;
        if (n == 0 || (n < 0 && errno != EINTR))
            close(TAKE_FD(p->ready_fd));
    }
    if (got)
        return 0;
    /* It closed the descriptor without a word: it is about to end, and its end says more. */
    return pq_process_await_end(set, p, timeout_ns, why) < 0
               ? PQ_E_CLOSED
               : pq_why(why, PQ_E_CLOSED, "the %s ended before it was ready", p->name);
}

int pq_process_await_end(struct pq_processes *set, struct pq_process *p, int64_t timeout_ns, struct pq_why *why)
{
    int64_t deadline = pq_clock_ns() + timeout_ns;
    while (!p->ended) {
        bool readable = false;
        int e = wait_for(set, p->pidfd, deadline, &readable);
        if (e < 0)
            return stopped_waiting(e, p, "did not end", timeout_ns, why);
        reap(p);
        TRY(pq_processes_check(set, why));
    }
    return WIFEXITED(p->status) && WEXITSTATUS(p->status) == 0 ? 0 : why_ended(p, why);
}

static void forget(struct pq_processes *set)
{
    for (size_t i = 0; i < set->count; i++) {
        pq_closep(&set->at[i].pidfd);
        pq_closep(&set->at[i].ready_fd);
    }
    set->count = 0;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

/* Waits for the end of one, whatever its status. */
static void await_gone(struct pq_process *p, int64_t deadline_ns)
{
    while (!p->ended) {
        int64_t left = deadline_ns - pq_clock_ns();
        struct pollfd f = {.fd = p->pidfd, .events = POLLIN};
        if (poll(&f, 1, left > 0 ? (int)(left / PQ_NS_PER_MS) + 1 : 0) > 0)
            reap(p);
        if (left <= 0)
            return;
    }
}

static int stop_one(struct pq_process *p, int64_t grace_ns, struct pq_why *why)
{
    if (p->ended)
        return 0;
    pidfd_send_signal(p->pidfd, SIGTERM, NULL, 0);
    await_gone(p, pq_clock_ns() + grace_ns);
    if (!p->ended) {
        pidfd_send_signal(p->pidfd, SIGKILL, NULL, 0);
        await_gone(p, pq_clock_ns() + PQ_NS_PER_S);
        return pq_why(why, PQ_E_TIMEOUT, "the %s did not end within %.0f s of SIGTERM and was killed", p->name,
                      (double)grace_ns / PQ_NS_PER_S);
    }
    return WIFEXITED(p->status) && WEXITSTATUS(p->status) == 0 ? 0 : why_ended(p, why);
}

int pq_processes_stop(struct pq_processes *set, int64_t grace_ns, struct pq_why *why)
{
    int e = 0;
    /* Who came last uses those that were there before: a consumer goes first. */
    for (size_t i = set->count; i > 0; i--) {
        int stopped = stop_one(&set->at[i - 1], grace_ns, why);
        e = stopped < 0 ? stopped : e;
    }
    forget(set);
    return e;
}
