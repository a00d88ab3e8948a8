#include <asm/termbits.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <ucontext.h>
#include <unistd.h>

#include "proxy/contain_parts.h"

enum {
    RELAY = 1 << PQ_CONTAIN_RELAY,
    ADMIN = 1 << PQ_CONTAIN_ADMIN,
    BOTH = RELAY | ADMIN,
    READS = 1 << 2, /* only where there are files to read */
    WRITES = 1 << 3 /* only where there are files to write */
};

/* Those whose arguments don't matter. The kernel answers these from a bitmap, without running the filter. */
static const struct {
    int call;
    unsigned who;
} plain[] = {
    /* descriptors that are there */
    {SCMP_SYS(read), BOTH},
    {SCMP_SYS(readv), BOTH},
    {SCMP_SYS(pread64), BOTH},
    {SCMP_SYS(write), BOTH},
    {SCMP_SYS(writev), BOTH},
    {SCMP_SYS(pwrite64), BOTH},
    {SCMP_SYS(lseek), BOTH},
    {SCMP_SYS(ftruncate), BOTH},
    {SCMP_SYS(close), BOTH},
    {SCMP_SYS(close_range), BOTH},
    {SCMP_SYS(dup), BOTH},
    {SCMP_SYS(dup2), BOTH},
    {SCMP_SYS(dup3), BOTH},
    {SCMP_SYS(fcntl), BOTH},
    {SCMP_SYS(fstat), BOTH},
    {SCMP_SYS(pipe2), BOTH},
    {SCMP_SYS(sendfile), ADMIN},
    /* sockets */
    {SCMP_SYS(accept), BOTH},
    {SCMP_SYS(accept4), BOTH},
    {SCMP_SYS(connect), RELAY},
    {SCMP_SYS(recvfrom), BOTH},
    {SCMP_SYS(recvmsg), BOTH},
    {SCMP_SYS(sendto), BOTH},
    {SCMP_SYS(sendmsg), BOTH},
    {SCMP_SYS(shutdown), BOTH},
    {SCMP_SYS(getsockopt), BOTH},
    {SCMP_SYS(setsockopt), BOTH},
    {SCMP_SYS(getsockname), BOTH},
    {SCMP_SYS(getpeername), BOTH},
    /* waiting */
    {SCMP_SYS(epoll_create1), BOTH},
    {SCMP_SYS(epoll_ctl), BOTH},
    {SCMP_SYS(epoll_wait), BOTH},
    {SCMP_SYS(epoll_pwait), BOTH},
    {SCMP_SYS(epoll_pwait2), BOTH},
    {SCMP_SYS(poll), BOTH},
    {SCMP_SYS(ppoll), BOTH},
    {SCMP_SYS(select), BOTH},
    {SCMP_SYS(pselect6), BOTH},
    {SCMP_SYS(eventfd2), BOTH},
    {SCMP_SYS(timerfd_create), BOTH},
    {SCMP_SYS(timerfd_settime), BOTH},
    {SCMP_SYS(signalfd4), BOTH},
    {SCMP_SYS(nanosleep), BOTH},
    {SCMP_SYS(clock_nanosleep), BOTH},
    {SCMP_SYS(restart_syscall), BOTH},
    /* memory and threads */
    {SCMP_SYS(brk), BOTH},
    {SCMP_SYS(munmap), BOTH},
    {SCMP_SYS(mremap), BOTH},
    {SCMP_SYS(madvise), BOTH},
    {SCMP_SYS(mlock), BOTH},
    {SCMP_SYS(mlock2), BOTH},
    {SCMP_SYS(munlock), BOTH},
    {SCMP_SYS(futex), BOTH},
    {SCMP_SYS(rseq), BOTH},
    {SCMP_SYS(set_robust_list), BOTH},
    {SCMP_SYS(set_tid_address), BOTH},
    {SCMP_SYS(membarrier), BOTH},
    {SCMP_SYS(sched_yield), BOTH},
    {SCMP_SYS(sched_getaffinity), BOTH},
    {SCMP_SYS(sched_getparam), BOTH},
    {SCMP_SYS(sched_getscheduler), BOTH},
    {SCMP_SYS(sched_setscheduler), BOTH},
    {SCMP_SYS(setpriority), BOTH},
    {SCMP_SYS(getpriority), BOTH},
    {SCMP_SYS(exit), BOTH},
    {SCMP_SYS(exit_group), BOTH},
    /* signals to itself */
    {SCMP_SYS(rt_sigaction), BOTH},
    {SCMP_SYS(rt_sigprocmask), BOTH},
    {SCMP_SYS(rt_sigpending), BOTH},
    {SCMP_SYS(rt_sigreturn), BOTH},
    {SCMP_SYS(rt_sigtimedwait), BOTH},
    {SCMP_SYS(sigaltstack), BOTH},
    /* who, when, how much */
    {SCMP_SYS(getpid), BOTH},
    {SCMP_SYS(getppid), BOTH},
    {SCMP_SYS(gettid), BOTH},
    {SCMP_SYS(getuid), BOTH},
    {SCMP_SYS(geteuid), BOTH},
    {SCMP_SYS(getgid), BOTH},
    {SCMP_SYS(getegid), BOTH},
    {SCMP_SYS(getrandom), BOTH},
    {SCMP_SYS(clock_gettime), BOTH},
    {SCMP_SYS(clock_getres), BOTH},
    {SCMP_SYS(gettimeofday), BOTH},
    {SCMP_SYS(time), BOTH},
    {SCMP_SYS(times), BOTH},
    {SCMP_SYS(getrusage), BOTH},
    {SCMP_SYS(getcpu), BOTH},
    {SCMP_SYS(sysinfo), BOTH},
    {SCMP_SYS(uname), BOTH},
    /* files of a token */
    {SCMP_SYS(stat), READS | WRITES},
    {SCMP_SYS(lstat), READS | WRITES},
    {SCMP_SYS(newfstatat), READS | WRITES},
    {SCMP_SYS(statx), READS | WRITES},
    {SCMP_SYS(access), READS | WRITES},
    {SCMP_SYS(faccessat), READS | WRITES},
    {SCMP_SYS(faccessat2), READS | WRITES},
    {SCMP_SYS(readlink), READS | WRITES},
    {SCMP_SYS(readlinkat), READS | WRITES},
    {SCMP_SYS(getdents64), READS | WRITES},
    {SCMP_SYS(flock), READS | WRITES},
    {SCMP_SYS(open), WRITES},
    {SCMP_SYS(openat), WRITES},
    {SCMP_SYS(fsync), WRITES},
    {SCMP_SYS(fdatasync), WRITES},
    {SCMP_SYS(unlink), WRITES},
    {SCMP_SYS(unlinkat), WRITES},
};

enum {
    STREAM_BITS = 0xf, /* of a socket's type, without SOCK_NONBLOCK and SOCK_CLOEXEC */
    OPEN_CHANGES = O_ACCMODE | O_CREAT | O_TRUNC | __O_TMPFILE,
    CLONE_NEW =
        CLONE_NEWNS | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP,
};
#define IS(n, value)           {n, SCMP_CMP_EQ, value, 0}
#define MASKED(n, mask, value) {n, SCMP_CMP_MASKED_EQ, mask, value}
#define SOCKET(family, protocol)                                                                                       \
    SCMP_SYS(socket), 3, { IS(0, family), MASKED(1, STREAM_BITS, SOCK_STREAM), IS(2, protocol) }

/* Those that are allowed with these arguments; of several rows for one call any will do. */
static const struct {
    unsigned who;
    int call;
    unsigned count;
    struct scmp_arg_cmp arg[3];
} argued[] = {
    {RELAY, SOCKET(AF_INET, 0)},
    {RELAY, SOCKET(AF_INET, IPPROTO_TCP)},
    {RELAY, SOCKET(AF_INET6, 0)},
    {RELAY, SOCKET(AF_INET6, IPPROTO_TCP)},
    {RELAY, SOCKET(AF_UNIX, 0)},
    {BOTH, SCMP_SYS(socketpair), 1, {IS(0, AF_UNIX)}},
    {BOTH, SCMP_SYS(ioctl), 1, {IS(1, SIOCOUTQ)}},
    {BOTH, SCMP_SYS(ioctl), 1, {IS(1, FIONREAD)}},
    {BOTH, SCMP_SYS(ioctl), 1, {IS(1, FIONBIO)}},
    {BOTH, SCMP_SYS(ioctl), 1, {IS(1, TCGETS)}}, /* libraries ask whether standard error is a terminal */
    {BOTH, SCMP_SYS(ioctl), 1, {IS(1, TCGETS2)}},
    /* no page that is code comes in, and none becomes it */
    {BOTH, SCMP_SYS(mmap), 1, {MASKED(2, PROT_EXEC, 0)}},
    {BOTH, SCMP_SYS(mprotect), 1, {MASKED(2, PROT_EXEC, 0)}},
    {BOTH, SCMP_SYS(clone), 1, {MASKED(0, CLONE_THREAD | CLONE_NEW, CLONE_THREAD)}},
    {BOTH, SCMP_SYS(prctl), 1, {IS(0, PR_SET_NAME)}},
    {BOTH, SCMP_SYS(prctl), 1, {IS(0, PR_SET_VMA)}},
    {BOTH, SCMP_SYS(prlimit64), 1, {IS(2, 0)}}, /* asks, does not set */
    {READS, SCMP_SYS(open), 1, {MASKED(1, OPEN_CHANGES, O_RDONLY)}},
    {READS, SCMP_SYS(openat), 1, {MASKED(2, OPEN_CHANGES, O_RDONLY)}},
};

static unsigned roles(const struct pq_contain *how)
{
    return 1u << how->profile | (how->write_count ? WRITES : how->read_count ? READS : 0);
}

static int fill(scmp_filter_ctx f, unsigned who)
{
    /* Its flags lie in memory, where no filter sees them; glibc then takes clone(2). */
    int e = seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    for (size_t i = 0; e == 0 && i < PQ_COUNT(plain); i++)
        if (plain[i].who & who)
            e = seccomp_rule_add(f, SCMP_ACT_ALLOW, plain[i].call, 0);
    for (size_t i = 0; e == 0 && i < PQ_COUNT(argued); i++)
        if (argued[i].who & who)
            e = seccomp_rule_add_array(f, SCMP_ACT_ALLOW, argued[i].call, argued[i].count, argued[i].arg);
    /* abort(3) ends in this. */
    if (e == 0)
        e = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1, SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid(), 0));
    return e;
}

/* --- a test build tells what it refuses -------------------------------------------------------------------------- */
#if PQ_CONTAIN_TRACE && defined(__x86_64__)
static const bool can_trace = true;
static void give_result(ucontext_t *u, long result) { u->uc_mcontext.gregs[REG_RAX] = result; }
#elif PQ_CONTAIN_TRACE && defined(__aarch64__)
static const bool can_trace = true;
static void give_result(ucontext_t *u, long result) { u->uc_mcontext.regs[0] = (unsigned long long)result; }
#else
static const bool can_trace = false;
static void give_result(ucontext_t *u, long result) { (void)u, (void)result; }
#endif

static void on_refused(int signal, siginfo_t *i, void *context)
{
    static bool told[1024];
    char line[] = "level=warn event=\"system call refused\" number=0000\n";
    unsigned number = (unsigned)i->si_syscall;
    (void)signal;
    give_result(context, -EPERM);
    if (number >= PQ_COUNT(told) || told[number])
        return;
    told[number] = true;
    char *digit = line + sizeof line - 3;
    for (unsigned left = number; left; left /= 10)
        *digit-- = (char)('0' + left % 10);
    (void)!write(STDERR_FILENO, line, sizeof line - 1);
}

static uint32_t refusal(void)
{
    if (!can_trace || !getenv("PQPLANE_TRACE_REFUSED"))
        return SCMP_ACT_ERRNO(EPERM);
    struct sigaction s = {.sa_sigaction = on_refused, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSYS, &s, NULL);
    return SCMP_ACT_TRAP;
}

/* --- interface --------------------------------------------------------------------------------------------------- */
static void releasep(scmp_filter_ctx *f)
{
    if (*f)
        seccomp_release(*f);
}

int pq_contain_calls(const struct pq_contain *how, bool apply, struct pq_why *why)
{
    DEFER(releasep) scmp_filter_ctx f = seccomp_init(refusal());
    if (!f)
        return PQ_E_NOMEM;
    int e = fill(f, roles(how));
    if (e == -ENOMEM)
        return PQ_E_NOMEM;
    if (e == 0 && apply)
        e = seccomp_load(f);
    if (e < 0)
        return pq_why(why, PQ_E_UNSUPPORTED,
                      "the kernel takes no filter of system calls (%s): it needs seccomp, or set contain: false and "
                      "contain the process otherwise",
                      strerror(-e));
    return 0;
}
