#include "net/namespace.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/cleanup.h"

/* Three processes take part:
 *   the caller   holds the life line (a socket) and reads the result;
 *   the keeper   its child: makes the namespaces, since a process can't move itself into a new pid namespace;
 *   the first    the keeper's child and process 1 in there: runs the body.
 * The keeper dies with the caller and the first with the keeper, by the kernel's parent-death signal; who was too late
 * to ask for that signal sees the life line's end instead. The death of process 1 ends all others of its namespace. */
struct outcome {
    int code;
    struct pq_why why;
};

static int system_error(struct pq_why *why, const char *what)
{
    int err = errno;
    return pq_why(why, pq_error_from_errno(err), "can't %s: %s", what, strerror(err));
}

static int put_file(const char *path, const char *text)
{
    DEFER(pq_closep) int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    return write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
}

static int die_with_parent(int life)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return -1;
    struct pollfd p = {.fd = life, .events = 0};
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR)) ? -1 : 0;
}

/* One uid and one gid are all that an ordinary user may map; they become root's inside. */
static int map_user(uid_t uid, gid_t gid, struct pq_why *why)
{
    char line[40];
    if (put_file("/proc/self/setgroups", "deny") < 0 && errno != ENOENT)
        return system_error(why, "write /proc/self/setgroups");
    snprintf(line, sizeof line, "0 %u 1", (unsigned)uid);
    if (put_file("/proc/self/uid_map", line) < 0)
        return system_error(why, "map the user into a user namespace");
    snprintf(line, sizeof line, "0 %u 1", (unsigned)gid);
    if (put_file("/proc/self/gid_map", line) < 0)
        return system_error(why, "map the group into a user namespace");
    return 0;
}

static int leave_host(struct pq_why *why)
{
    enum { PARTS = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS };
    uid_t uid = geteuid();
    gid_t gid = getegid();
    if (uid == 0 && unshare(PARTS) == 0)
        return 0;
    if (unshare(CLONE_NEWUSER | PARTS) < 0)
        return pq_why(
            why, PQ_E_PERMISSION,
            "this needs network namespaces of its own, and the system refuses them (%s): run it as root, or let "
            "users make user namespaces (sysctl user.max_user_namespaces, "
            "kernel.apparmor_restrict_unprivileged_userns)",
            strerror(errno));
    return map_user(uid, gid, why);
}

static int furnish(struct pq_why *why)
{
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return system_error(why, "make the mounts private");
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return pq_why(
            why, pq_error_from_errno(errno),
            "can't mount /proc in a pid namespace of its own (%s): inside a container, run it as root with its "
            "/proc unmasked, or outside",
            strerror(errno));
    if (mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0700") < 0)
        return system_error(why, "mount an empty /run");
    if (mkdir("/run/netns", 0755) < 0)
        return system_error(why, "make /run/netns");
    return 0;
}

static void report(int fd, const struct outcome *o)
{
    ssize_t n = write(fd, o, sizeof *o); /* less than PIPE_BUF: whole or not at all, and then the caller sees none */
    (void)n;
}

static _Noreturn void first(pq_namespace_body *body, void *context, int life, int result)
{
    struct outcome o = {.code = PQ_E_INTERRUPTED};
    if (die_with_parent(life) < 0)
        _exit(1);
    setsid(); /* a terminal's Ctrl-C is the caller's, who asks us to stop in order */
    /* What the keeper ignores, our children must not, not even before they have become another program. Process 1
     * itself is safe from signals that it has no handler for. */
    signal(SIGINT, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    o.code = furnish(&o.why);
    if (o.code == 0)
        o.code = body(context, life, &o.why);
    report(result, &o);
    fflush(NULL);
    _exit(0);
}

/* The signals come in blocked, and one that a terminal or kill(2) sent to the whole process group may be waiting by
 * now: only when they are ignored, mask restores what the caller had. */
static _Noreturn void keeper(pq_namespace_body *body, void *context, int life, int result, const sigset_t *mask)
{
    struct outcome o = {0};
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    sigprocmask(SIG_SETMASK, mask, NULL);
    o.code = leave_host(&o.why);
    /* After the credentials changed: a change clears the parent-death signal. */
    if (o.code == 0 && die_with_parent(life) < 0)
        _exit(1);
    pid_t pid = o.code == 0 ? fork() : -1;
    if (pid == 0)
        first(body, context, life, result);
    if (pid < 0) {
        if (o.code == 0)
            o.code = system_error(&o.why, "start a process");
        report(result, &o);
        _exit(0);
    }
    close(result);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : 0);
}

/* Reads the result; passes on what asks the caller to stop: first kindly, then by force. */
static int attend(pid_t keeper_pid, int signals, int life, int result, struct outcome *out)
{
    int asked = 0;
    for (;;) {
        struct pollfd p[] = {{.fd = result, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
        if (poll(p, 2, -1) < 0) {
            if (errno == EINTR)
                continue;
            kill(keeper_pid, SIGKILL);
            return -1;
        }
        struct signalfd_siginfo info;
        if (p[1].revents && read(signals, &info, sizeof info) == sizeof info) {
            if (++asked > 1 || send(life, "s", 1, MSG_NOSIGNAL) != 1)
                kill(keeper_pid, SIGKILL);
        }
        if (!p[0].revents)
            continue;
        if (read(result, out, sizeof *out) == sizeof *out)
            return 0;
        if (asked < 2)
            return -1;
        out->code = pq_why(&out->why, PQ_E_INTERRUPTED, "interrupted twice, so it was ended at once");
        return 0;
    }
}

struct ends {
    int life[2], result[2], signals;
    sigset_t before;
};

static void ends_close(struct ends *e)
{
    for (int i = 0; i < 2; i++) {
        pq_closep(&e->life[i]);
        pq_closep(&e->result[i]);
    }
    pq_closep(&e->signals);
    sigprocmask(SIG_SETMASK, &e->before, NULL);
}

static int ends_open(struct ends *e, struct pq_why *why)
{
    sigset_t asking;
    sigemptyset(&asking);
    sigaddset(&asking, SIGINT);
    sigaddset(&asking, SIGTERM);
    sigaddset(&asking, SIGHUP);
    sigprocmask(SIG_BLOCK, &asking, &e->before);
    e->signals = signalfd(-1, &asking, SFD_CLOEXEC);
    if (e->signals < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, e->life) < 0 ||
        pipe2(e->result, O_CLOEXEC) < 0)
        return system_error(why, "make a pipe or socket");
    return 0;
}

static int outcome_of(int status, bool reported, const struct outcome *o, struct pq_why *why)
{
    if (reported) {
        if (why && o->code < 0)
            *why = o->why;
        return o->code;
    }
    int signal_number = WIFSIGNALED(status)                              ? WTERMSIG(status)
                        : WIFEXITED(status) && WEXITSTATUS(status) > 128 ? WEXITSTATUS(status) - 128
                                                                         : 0;
    if (signal_number)
        return pq_why(why, PQ_E_LIMIT, "the process inside the namespaces was ended by signal %d (%s)", signal_number,
                      strsignal(signal_number));
    return pq_why(why, PQ_E_LIMIT, "the process inside the namespaces ended without a result");
}

int pq_namespace_run(pq_namespace_body *body, void *context, struct pq_why *why)
{
    DEFER(ends_close) struct ends e = {.life = {-1, -1}, .result = {-1, -1}, .signals = -1};
    sigprocmask(SIG_SETMASK, NULL, &e.before);
    TRY(ends_open(&e, why));
    fflush(NULL); /* else the child prints what is in the buffers again */
    pid_t pid = fork();
    if (pid < 0)
        return system_error(why, "start a process");
    if (pid == 0) {
        close(TAKE_FD(e.life[1]));
        close(TAKE_FD(e.result[0]));
        close(TAKE_FD(e.signals));
        keeper(body, context, e.life[0], e.result[1], &e.before);
    }
    close(TAKE_FD(e.life[0]));
    close(TAKE_FD(e.result[1]));
    struct outcome o = {0};
    bool reported = attend(pid, e.signals, e.life[1], e.result[0], &o) == 0;
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return outcome_of(status, reported, &o, why);
}

int pq_netns_enter(int fd, struct pq_why *why)
{
    return setns(fd, CLONE_NEWNET) < 0 ? system_error(why, "enter a network namespace") : 0;
}

static int own_netns(int *out, struct pq_why *why)
{
    *out = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    return *out < 0 ? system_error(why, "open /proc/thread-self/ns/net") : 0;
}

int pq_netns_within(int fd, int (*f)(void *context, struct pq_why *why), void *context, struct pq_why *why)
{
    DEFER(pq_closep) int own = -1;
    TRY(own_netns(&own, why));
    TRY(pq_netns_enter(fd, why));
    int e = f(context, why);
    TRY(pq_netns_enter(own, why));
    return e;
}

static int loopback_up(struct pq_why *why)
{
    DEFER(pq_closep) int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq r = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    if (s < 0 || ioctl(s, SIOCSIFFLAGS, &r) < 0)
        return system_error(why, "bring a loopback interface up");
    return 0;
}

static int furnish_netns(const char *name, struct pq_why *why)
{
    char path[64];
    int n = snprintf(path, sizeof path, "/run/netns/%s", name);
    if (n < 0 || (size_t)n >= sizeof path || strchr(name, '/'))
        return pq_why(why, PQ_E_INVALID, "\"%.40s\" is no name for a network namespace", name);
    DEFER(pq_closep) int at = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (at < 0 || mount("/proc/thread-self/ns/net", path, NULL, MS_BIND, NULL) < 0)
        return system_error(why, "name a network namespace under /run/netns");
    /* Neighbour discovery and multicast reports would be counted among an experiment's bytes. */
    if (put_file("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1") < 0 && errno != ENOENT)
        return system_error(why, "switch IPv6 off in a network namespace");
    /* What one connection learnt of a path must not speed up or slow down the next cell's. */
    if (put_file("/proc/sys/net/ipv4/tcp_no_metrics_save", "1") < 0)
        return system_error(why, "set tcp_no_metrics_save");
    return loopback_up(why);
}

int pq_netns_new(const char *name, int *out_fd, struct pq_why *why)
{
    DEFER(pq_closep) int own = -1;
    DEFER(pq_closep) int made = -1;
    TRY(own_netns(&own, why));
    if (unshare(CLONE_NEWNET) < 0)
        return system_error(why, "make a network namespace");
    int e = furnish_netns(name, why);
    if (e == 0)
        e = own_netns(&made, why);
    TRY(pq_netns_enter(own, why));
    if (e == 0)
        *out_fd = TAKE_FD(made);
    return e;
}
