/* What a contained process can't do, tried by one; and what it must still be able to. */
#include "proxy/contain.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../tls/certs.h"
#include "../tls/pair.h"
#include "base/log.h"
#include "net/tcp.h"

enum { NOBODY = 65534 };

static void skip_where_relaxed(void)
{
    if (PQ_CONTAIN_RELAXED[0]) {
        print_message("a build with %s can't work contained\n", PQ_CONTAIN_RELAXED);
        skip();
    }
}

/* Root with other users to become: not so in a user namespace of its own. */
static bool is_root(void)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(geteuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0 ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status == 0;
}

static void skip_without_root(void)
{
    if (!is_root()) {
        print_message("needs root, and users that root can become\n");
        skip();
    }
}

/* --- a contained child ------------------------------------------------------------------------------------------- */
struct child {
    struct pq_contain how;
    bool ordinary; /* started by an ordinary user */
    int (*body)(void *context);
    void *context;
};

static int child_main(const struct child *c)
{
    struct pq_contain how = c->how;
    struct pq_why why = {""};
    if (c->ordinary)
        (void)!setresuid(NOBODY, NOBODY, NOBODY);
    if (pq_contain_user(NULL, &how, &why) < 0 || pq_contain_worker(&how, &why) < 0) {
        fprintf(stderr, "%s\n", why.text);
        return 121;
    }
    return c->body(c->context);
}

static int run(const struct child *c)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(child_main(c));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* --- what is refused --------------------------------------------------------------------------------------------- */
static int result(long r) { return r < 0 ? errno : 0; }
static int close_result(int fd)
{
    int e = fd < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return e;
}
static int child_result(pid_t pid)
{
    if (pid == 0)
        _exit(0);
    return result(pid);
}

static int try_execve(void)
{
    char *argv[] = {(char *)(uintptr_t)"true", NULL};
    return result(execve("/bin/true", argv, argv + 1));
}
static int try_execveat(void)
{
    char *argv[] = {(char *)(uintptr_t)"true", NULL};
    return result(syscall(SYS_execveat, AT_FDCWD, "/bin/true", argv, argv + 1, 0));
}
static int try_fork(void) { return child_result(fork()); }
static int try_raw_fork(void) { return child_result((pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL)); }
static int try_thread_in_namespace(void)
{
    return result(syscall(SYS_clone, CLONE_THREAD | CLONE_SIGHAND | CLONE_VM | CLONE_NEWNET, NULL, NULL, NULL, NULL));
}
static int try_unshare(void) { return result(unshare(CLONE_NEWUSER)); }
static int try_setns(void) { return result(setns(0, 0)); }
static int try_ptrace_parent(void) { return result(ptrace(PTRACE_ATTACH, getppid(), NULL, NULL)); }
static int try_ptrace_me(void) { return result(ptrace(PTRACE_TRACEME, 0, NULL, NULL)); }
static int try_read_parent(void)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {&byte, 1};
    return result(process_vm_readv(getppid(), &here, 1, &there, 1, 0));
}
static int try_signal_parent(void) { return result(kill(getppid(), SIGCONT)); }
static int try_packet_socket(void) { return close_result(socket(AF_PACKET, SOCK_RAW, 0)); }
static int try_raw_socket(void) { return close_result(socket(AF_INET, SOCK_RAW, IPPROTO_TCP)); }
static int try_raw_socket_6(void) { return close_result(socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6)); }
static int try_datagram_socket(void) { return close_result(socket(AF_INET, SOCK_DGRAM, 0)); }
static int try_unix_datagram(void) { return close_result(socket(AF_UNIX, SOCK_DGRAM, 0)); }
static int try_netlink_socket(void) { return close_result(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE)); }
static int try_sctp_socket(void) { return close_result(socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP)); }
static int try_vsock(void) { return close_result(socket(AF_VSOCK, SOCK_STREAM, 0)); }
static int try_bind(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd < 0 ? 0 : result(bind(fd, (const struct sockaddr *)&any, sizeof any));
}
static int try_listen(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd < 0 ? 0 : result(listen(fd, 1));
}
static int try_read_file(void) { return close_result(open("/etc/passwd", O_RDONLY)); }
static int try_read_folder(void) { return close_result(open("/", O_RDONLY | O_DIRECTORY)); }
static int try_write_file(void) { return close_result(open("/tmp", O_TMPFILE | O_WRONLY, 0600)); }
static int try_create_file(void) { return close_result(creat("/tmp/pqplane-contain-test", 0600)); }
static int try_write_proc(void) { return close_result(open("/proc/self/oom_score_adj", O_WRONLY)); }
static int try_read_memory(void) { return close_result(open("/proc/self/mem", O_RDWR)); }
static int try_unlink(void) { return result(unlink("/tmp/pqplane-contain-test")); }
static int try_mkdir(void) { return result(mkdir("/tmp/pqplane-contain-test", 0700)); }
static int try_rename(void) { return result(rename("/tmp/pqplane-contain-a", "/tmp/pqplane-contain-b")); }
static int try_link(void) { return result(symlink("/", "/tmp/pqplane-contain-test")); }
static int try_chmod(void) { return result(chmod("/tmp/pqplane-contain-test", 0777)); }
static int try_chdir(void) { return result(chdir("/")); }
static int try_chroot(void) { return result(chroot("/")); }
static int try_mount(void) { return result(mount("none", "/tmp", "tmpfs", 0, NULL)); }
static int try_root_again(void) { return result(setuid(0)); }
static int try_root_group(void) { return result(setgid(0)); }
static int try_bpf(void) { return result(syscall(SYS_bpf, 0, NULL, 0)); }
static int try_perf(void) { return result(syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0)); }
static int try_keyring(void) { return result(syscall(SYS_keyctl, 0, -1, 0)); }
static int try_userfaultfd(void) { return close_result((int)syscall(SYS_userfaultfd, 0)); }
static int try_io_uring(void)
{
    char parameters[128] = {0};
    return close_result((int)syscall(SYS_io_uring_setup, 1, parameters));
}
static int try_memfd(void) { return close_result(memfd_create("x", 0)); }
static int try_module(void) { return result(syscall(SYS_init_module, NULL, 0, "")); }
static int try_code_page(void)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? errno : 0;
}
static int try_making_code(void)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? 0 : result(mprotect(p, 4096, PROT_READ | PROT_EXEC));
}
static int try_core_limit(void)
{
    struct rlimit some = {1 << 20, 1 << 20};
    return result(setrlimit(RLIMIT_CORE, &some));
}
static int try_tracing_me(void) { return result(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)); }
static int try_priority_class(void) { return result(syscall(SYS_ioprio_set, 1, 0, 0)); }

#define ATTEMPT(name) {#name, try_##name}
static const struct attempt {
    const char *name;
    int (*it)(void); /* errno, or 0 where it could be done */
} attempts[] = {
    ATTEMPT(execve),
    ATTEMPT(execveat),
    ATTEMPT(fork),
    ATTEMPT(raw_fork),
    ATTEMPT(unshare),
    ATTEMPT(setns),
    ATTEMPT(ptrace_parent),
    ATTEMPT(ptrace_me),
    ATTEMPT(read_parent),
    ATTEMPT(signal_parent),
    ATTEMPT(packet_socket),
    ATTEMPT(raw_socket),
    ATTEMPT(raw_socket_6),
    ATTEMPT(datagram_socket),
    ATTEMPT(unix_datagram),
    ATTEMPT(netlink_socket),
    ATTEMPT(sctp_socket),
    ATTEMPT(vsock),
    ATTEMPT(bind),
    ATTEMPT(listen),
    ATTEMPT(read_file),
    ATTEMPT(read_folder),
    ATTEMPT(write_file),
    ATTEMPT(create_file),
    ATTEMPT(write_proc),
    ATTEMPT(read_memory),
    ATTEMPT(unlink),
    ATTEMPT(mkdir),
    ATTEMPT(rename),
    ATTEMPT(link),
    ATTEMPT(chmod),
    ATTEMPT(chdir),
    ATTEMPT(chroot),
    ATTEMPT(mount),
    ATTEMPT(root_again),
    ATTEMPT(root_group),
    ATTEMPT(bpf),
    ATTEMPT(perf),
    ATTEMPT(keyring),
    ATTEMPT(userfaultfd),
    ATTEMPT(io_uring),
    ATTEMPT(memfd),
    ATTEMPT(module),
    ATTEMPT(code_page),
    ATTEMPT(making_code),
    ATTEMPT(core_limit),
    ATTEMPT(tracing_me),
    ATTEMPT(priority_class),
    ATTEMPT(thread_in_namespace),
};

static int attempt_body(void *context)
{
    int e = ((const struct attempt *)context)->it();
    return e == EPERM || e == EACCES ? 0 : e == 0 ? 100 : e;
}

static void expect_all_refused(bool ordinary, enum pq_contain_profile profile)
{
    for (size_t i = 0; i < PQ_COUNT(attempts); i++) {
        struct attempt a = attempts[i];
        int status = run(
            &(struct child){.how = {.profile = profile}, .ordinary = ordinary, .body = attempt_body, .context = &a});
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail_msg("%s: status %x (exit 100: could be done; else errno)", a.name, (unsigned)status);
    }
}

static void a_worker_is_refused_what_it_has_no_use_for(void **state)
{
    (void)state;
    skip_where_relaxed();
    expect_all_refused(false, PQ_CONTAIN_RELAY);
}

static void so_is_one_started_by_an_ordinary_user(void **state)
{
    (void)state;
    skip_where_relaxed();
    expect_all_refused(true, PQ_CONTAIN_RELAY);
}

static int admin_body(void *context)
{
    (void)context;
    return socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == EPERM && socket(AF_UNIX, SOCK_STREAM, 0) < 0 &&
                   errno == EPERM && connect(0, NULL, 0) < 0 && errno == EPERM
               ? 0
               : 1;
}

static void the_admin_process_can_not_connect_either(void **state)
{
    (void)state;
    skip_where_relaxed();
    assert_int_equal(run(&(struct child){.how = {.profile = PQ_CONTAIN_ADMIN}, .body = admin_body}), 0);
}

/* --- what goes on working ---------------------------------------------------------------------------------------- */
struct world {
    int listener, control[2], memory;
    char unix_path[64];
    struct certs certs;
    struct pair pair;
};

#define NEED(what)                                                                                                     \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno));                                    \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static int tcp_works(struct world *w)
{
    struct pq_address at = pq_address_local(w->listener);
    int out = -1, in = -1;
    char text[8] = "";
    size_t n;
    int e = pq_tcp_connect(&at, &out, NULL);
    NEED(e == 0 || e == PQ_E_WANT_WRITE);
    for (int i = 0; i < 1000 && pq_tcp_accept(w->listener, &in, &at) == PQ_E_WANT_READ; i++)
        usleep(1000);
    NEED(in >= 0 && pq_tcp_connected(out) == 0);
    NEED(pq_tcp_write(out, "hello", 5, &n) == 0 && n == 5);
    for (int i = 0; i < 1000 && pq_tcp_read(in, text, sizeof text, &n) == PQ_E_WANT_READ; i++)
        usleep(1000);
    NEED(strcmp(text, "hello") == 0);
    NEED(pq_tcp_abort_on_close(in, true) == 0);
    struct pq_tcp_counts counts;
    NEED(pq_tcp_counts(out, &counts) == 0);
    close(in);
    close(out);
    return 0;
}

static int unix_works(const struct world *w)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    memcpy(un.sun_path, w->unix_path, strlen(w->unix_path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    NEED(fd >= 0 && connect(fd, (const struct sockaddr *)&un, sizeof un) == 0);
    close(fd);
    return 0;
}

/* A descriptor that comes over the control socket, and the memory behind it. */
static int control_works(const struct world *w)
{
    char byte, space[CMSG_SPACE(sizeof(int))];
    struct iovec bytes = {&byte, 1};
    struct msghdr m = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    int fd;
    NEED(recvmsg(w->control[1], &m, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&m));
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    struct stat st;
    NEED(fstat(fd, &st) == 0 && st.st_size == 6);
    char *at = mmap(NULL, 6, PROT_READ, MAP_PRIVATE, fd, 0);
    NEED(at != MAP_FAILED && memcmp(at, "bundle", 6) == 0);
    return 0;
}

static void *thread_body(void *context)
{
    char *p = malloc(64 << 20); /* an arena of its own, and a mapping */
    if (p)
        memset(p, 1, 64 << 20);
    free(p);
    *(bool *)context = p;
    return NULL;
}

static int threads_work(void)
{
    bool done[4] = {false};
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        NEED(pthread_create(&t[i], NULL, thread_body, &done[i]) == 0);
    for (int i = 0; i < 4; i++)
        NEED(pthread_join(t[i], NULL) == 0 && done[i]);
    NEED(setpriority(PRIO_PROCESS, 0, 5) == 0);
    NEED(sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0}) == 0);
    return 0;
}

static int tls_works(struct world *w)
{
    size_t n;
    char text[16] = "";
    pair_drive(&w->pair);
    NEED(w->pair.client_result == 0 && w->pair.server_result == 0);
    NEED(pq_tls_write(w->pair.client, "question", 8, &n) == 0);
    NEED(pair_read(&w->pair, w->pair.server, text, sizeof text, &n) == 0 && strcmp(text, "question") == 0);
    pair_free(&w->pair);
    return 0;
}

static int working_body(void *context)
{
    struct world *w = context;
    struct timespec t;
    NEED(tcp_works(w) == 0);
    NEED(unix_works(w) == 0);
    NEED(control_works(w) == 0);
    NEED(tls_works(w) == 0);
    NEED(threads_work() == 0);
    NEED(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0);
    pq_log(PQ_LOG_INFO, "a contained process logs", "pid", pq_i(getpid()), NULL);
    return 0;
}

static void send_memory(struct world *w)
{
    char byte = 0, space[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec bytes = {&byte, 1};
    struct msghdr m = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(c), &w->memory, sizeof w->memory);
    assert_int_equal(sendmsg(w->control[0], &m, 0), 1);
}

static void make_world(struct world *w)
{
    struct pq_address at;
    char text[80];
    int unix_listener;
    assert_int_equal(pq_address_parse("127.0.0.1:0", &at, NULL), 0);
    assert_int_equal(pq_tcp_listen(&at, 0, &w->listener, NULL), 0);
    certs_new(&w->certs);
    snprintf(w->unix_path, sizeof w->unix_path, "%.40s/function.sock", w->certs.folder);
    snprintf(text, sizeof text, "unix:%s", w->unix_path);
    assert_int_equal(pq_address_parse(text, &at, NULL), 0);
    assert_int_equal(pq_tcp_listen(&at, 0, &unix_listener, NULL), 0);
    /* As an operator would: workers may reach the function's socket. */
    chmod(w->certs.folder, 0755);
    chmod(w->unix_path, 0777);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, w->control), 0);
    w->memory = memfd_create("bundle", MFD_ALLOW_SEALING);
    assert_int_equal(write(w->memory, "bundle", 6), 6);
    assert_int_equal(fcntl(w->memory, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW), 0);
    const struct cert *root =
        certs_make(&w->certs, (struct cert_how){.algorithm = "ML-DSA-65", .name = "r", .ca = true});
    const struct cert *leaf = certs_make(
        &w->certs, (struct cert_how){.algorithm = "ML-DSA-65", .name = "l", .issuer = root, .san = "DNS:leaf.example"});
    struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 3, leaf, root);
    pair_new(&w->pair, w->certs.crypto, &s, &s, "leaf.example", PAIR_PLAIN);
}

static void traffic_tls_threads_and_control_go_on(void **state)
{
    (void)state;
    struct world w;
    make_world(&w);
    for (int ordinary = 0; ordinary < 2; ordinary++) {
        send_memory(&w);
        int status = run(&(struct child){.ordinary = ordinary, .body = working_body, .context = &w});
        assert_int_equal(status, 0);
    }
    unlink(w.unix_path);
    pair_free(&w.pair);
    certs_free(&w.certs);
    close(w.listener);
    close(w.memory);
}

/* --- a token's files --------------------------------------------------------------------------------------------- */
struct token {
    char module[80], folder[80], lock[96], other[80];
};

static int token_body(void *context)
{
    const struct token *t = context;
    char byte;
    int fd = open(t->module, O_RDONLY | O_CLOEXEC);
    NEED(fd >= 0 && read(fd, &byte, 1) == 1);
    NEED(open(t->module, O_RDWR) < 0 && (errno == EACCES || errno == EPERM));
    fd = open(t->lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct flock whole = {.l_type = F_WRLCK};
    NEED(fd >= 0 && fcntl(fd, F_SETLK, &whole) == 0 && write(fd, "x", 1) == 1);
    NEED(open(t->other, O_RDONLY) < 0 && (errno == EACCES || errno == EPERM));
    NEED(open("/tmp", O_TMPFILE | O_WRONLY, 0600) < 0);
    return 0;
}

static int reader_body(void *context)
{
    const struct token *t = context;
    NEED(open(t->module, O_RDONLY | O_CLOEXEC) >= 0);
    NEED(open(t->lock, O_RDWR | O_CREAT, 0600) < 0 && (errno == EACCES || errno == EPERM));
    NEED(open(t->other, O_RDONLY) < 0 && (errno == EACCES || errno == EPERM));
    return 0;
}

static void named_files_stay_within_reach_and_no_others(void **state)
{
    (void)state;
    skip_where_relaxed();
    char folder[] = "/tmp/pqplane-token-XXXXXX";
    struct token t;
    assert_non_null(mkdtemp(folder));
    chmod(folder, 0755);
    snprintf(t.module, sizeof t.module, "%s/module.so", folder);
    snprintf(t.other, sizeof t.other, "%s/other", folder);
    snprintf(t.folder, sizeof t.folder, "%s/tokens", folder);
    snprintf(t.lock, sizeof t.lock, "%s/lock", t.folder);
    close(open(t.other, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    int fd = open(t.module, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_int_equal(write(fd, "m", 1), 1);
    close(fd);
    mkdir(t.folder, 0777);
    chmod(t.folder, 0777);
    struct pq_contain how = {
        .reads = {t.module, "/nonexistent/file"}, .read_count = 2, .writes = {t.folder}, .write_count = 1};
    assert_int_equal(run(&(struct child){.how = how, .body = token_body, .context = &t}), 0);
    how.write_count = 0;
    unlink(t.lock);
    assert_int_equal(run(&(struct child){.how = how, .body = reader_body, .context = &t}), 0);
    unlink(t.module);
    unlink(t.other);
    rmdir(t.folder);
    rmdir(folder);
}

/* --- who it is, and what it leaves ------------------------------------------------------------------------------- */
static long field(pid_t pid, const char *file, const char *name, int base)
{
    char path[64], line[256];
    long value = -1;
    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, name, strlen(name)) == 0)
            value = strtol(line + strlen(name), NULL, base);
    fclose(f);
    return value;
}

static int waiting_body(void *context)
{
    int *pipe_end = context;
    char byte = 0;
    if (write(pipe_end[1], &byte, 1) != 1)
        return 1;
    pause(); /* refused: an idle worker waits in epoll */
    for (;;)
        nanosleep(&(struct timespec){60, 0}, NULL);
}

static void look_at_child(pid_t pid)
{
    assert_int_equal(field(pid, "status", "NoNewPrivs:", 10), 1);
    assert_int_equal(field(pid, "status", "Seccomp:", 10), 2);
    assert_int_equal(field(pid, "status", "CapPrm:", 16), 0);
    assert_int_equal(field(pid, "status", "CapEff:", 16), 0);
    assert_int_equal(field(pid, "status", "CapInh:", 16), 0);
    assert_int_equal(field(pid, "status", "CapAmb:", 16), 0);
    if (is_root()) {
        assert_int_equal(field(pid, "status", "CapBnd:", 16), 0);
        assert_int_equal(field(pid, "status", "Uid:", 10), NOBODY);
        assert_int_equal(field(pid, "status", "Gid:", 10), NOBODY);
        assert_int_equal(field(pid, "status", "Groups:", 10), NOBODY);
    }
    assert_int_equal(field(pid, "limits", "Max core file size", 10), 0);
}

static void it_is_nobody_without_privileges_and_leaves_no_core(void **state)
{
    (void)state;
    skip_where_relaxed();
    int ends[2], status;
    char byte;
    struct child c = {.body = waiting_body, .context = ends};
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        alarm(60); /* lest it outlive a test that failed */
        _exit(child_main(&c));
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    look_at_child(pid);
    assert_int_equal(kill(pid, SIGSEGV), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV && !WCOREDUMP(status));
    close(ends[0]);
    close(ends[1]);
}

static int off_body(void *context)
{
    (void)context;
    int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    NEED(fd >= 0);
    NEED(geteuid() != 0 && setuid(0) < 0);
    return 0;
}

static void contain_false_leaves_files_and_still_changes_the_user(void **state)
{
    (void)state;
    skip_where_relaxed();
    skip_without_root();
    assert_int_equal(run(&(struct child){.how = {.off = true}, .body = off_body}), 0);
}

static void a_user_that_is_not_there_is_told(void **state)
{
    (void)state;
    struct pq_contain how = {0};
    struct pq_why why = {""};
    skip_without_root();
    assert_int_equal(pq_contain_user("nosuchuser", &how, &why), PQ_E_CONFIG);
    assert_non_null(strstr(why.text, "no user \"nosuchuser\""));
    assert_int_equal(pq_contain_user("root", &how, &why), 0);
    assert_false(how.change_user);
    assert_int_equal(pq_contain_user("daemon", &how, &why), 0);
    assert_true(how.change_user && how.uid == 1 && how.gid == 1 && how.group_count >= 1);
}

static void *idle_thread(void *context)
{
    char byte;
    (void)!read(*(int *)context, &byte, 1);
    return NULL;
}

static void a_process_with_threads_is_not_contained(void **state)
{
    (void)state;
    int ends[2], status;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        pthread_t t;
        struct pq_contain how = {0};
        _exit(pthread_create(&t, NULL, idle_thread, &ends[0]) == 0 && pq_contain_worker(&how, NULL) == PQ_E_INVALID
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_is_refused_what_it_has_no_use_for),
        cmocka_unit_test(so_is_one_started_by_an_ordinary_user),
        cmocka_unit_test(the_admin_process_can_not_connect_either),
        cmocka_unit_test(traffic_tls_threads_and_control_go_on),
        cmocka_unit_test(named_files_stay_within_reach_and_no_others),
        cmocka_unit_test(it_is_nobody_without_privileges_and_leaves_no_core),
        cmocka_unit_test(contain_false_leaves_files_and_still_changes_the_user),
        cmocka_unit_test(a_user_that_is_not_there_is_told),
        cmocka_unit_test(a_process_with_threads_is_not_contained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
