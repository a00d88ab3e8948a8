/* traffic.c - clients of the function: requests one after the other, at a rate, each on a connection of its own, or
 * connections that are only held. Ends with one line of JSON.
 *
 *   traffic --to ADDRESS --count N                          one kept connection, one request after the other
 *   traffic --to ADDRESS --connections 0 --count N          the same, each on a new connection
 *   traffic --to ADDRESS --connections C --seconds S        C kept connections, each as fast as it can
 *   traffic --to ADDRESS --connections C --rate R --seconds S    R requests a second, whatever comes back
 *   traffic --to ADDRESS --connections 0 --rate R --seconds S    R new connections a second
 *   traffic --to ADDRESS --hold 1       reads numbers: holds so many connections (one request each); prints "held N"
 *
 * At a rate a request's time starts when it was due, not when it could be sent, so that waiting counts.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "tool.h"

enum { EVENTS = 256, BLOCK = 64 << 10 };
enum state { IDLE, CONNECTING, WAITING };

struct client {
    int fd;
    enum state state;
    int64_t due;
    size_t sent;
    uint32_t watched;
    struct tool_answer answer;
    struct client *next; /* among the idle ones */
};

static struct {
    int64_t connections, rate, count, seconds, sources, hold, patience_ms;
    const char *to_text;
    struct pq_address to;
} how = {.connections = 1, .patience_ms = 10000};

static int loop;
static char block[BLOCK];
static struct tool_latencies latencies;
static int64_t failures[TOOL_FAILURES];
static int64_t opened, open_now; /* requests begun, under way */

/* --- one after the other, blocking: no loop between the request and its answer ------------------------------------ */
static int open_blocking(void)
{
    int fd = tool_socket(opened, how.sources, true);
    if (connect(fd, (const struct sockaddr *)&how.to.sa, how.to.len) < 0) {
        failures[tool_failure_of(errno)]++;
        close(fd);
        return -1;
    }
    return fd;
}

static bool ask_blocking(int fd)
{
    struct tool_answer a;
    tool_answer_start(&a);
    if (write(fd, tool_request, tool_request_size) != (ssize_t)tool_request_size) {
        failures[tool_failure_of(errno)]++;
        return false;
    }
    for (;;) {
        ssize_t n = read(fd, block, sizeof block);
        int whole = n > 0 ? tool_answer_feed(&a, block, (size_t)n) : -1;
        if (whole > 0)
            return true;
        if (whole < 0) {
            failures[n < 0 ? tool_failure_of(errno) : n == 0 ? TOOL_ENDED : TOOL_OTHER]++;
            return false;
        }
    }
}

static void sequence(int64_t until)
{
    int fd = -1;
    for (; (how.count ? opened < how.count : pq_clock_ns() < until); opened++) {
        int64_t start = pq_clock_ns();
        if (fd < 0)
            fd = open_blocking();
        if (fd < 0)
            continue;
        bool answered = ask_blocking(fd);
        if (answered)
            tool_latency(&latencies, pq_clock_ns() - start);
        if (!answered || how.connections == 0) {
            close(fd);
            fd = -1;
        }
    }
    if (fd >= 0)
        close(fd);
}

/* --- many at once ------------------------------------------------------------------------------------------------ */
static struct client *idle;

static void watch(struct client *c, uint32_t want)
{
    int what = c->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (want != c->watched && epoll_ctl(loop, what, c->fd, &(struct epoll_event){want, {c}}) < 0)
        tool_fail("epoll_ctl failed");
    c->watched = want;
}

static void drop(struct client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    c->watched = 0;
}

static void finish(struct client *c, bool answered)
{
    open_now--;
    c->state = IDLE;
    if (answered)
        tool_latency(&latencies, pq_clock_ns() - c->due);
    if (!answered || how.connections == 0)
        drop(c);
    c->next = idle;
    idle = c;
}

static void failed(struct client *c, int err)
{
    failures[tool_failure_of(err)]++;
    finish(c, false);
}

static void send_some(struct client *c)
{
    ssize_t n = write(c->fd, tool_request + c->sent, tool_request_size - c->sent);
    if (n < 0 && errno != EAGAIN) {
        failed(c, errno);
        return;
    }
    c->sent += n > 0 ? (size_t)n : 0;
    c->state = WAITING;
    watch(c, c->sent < tool_request_size ? EPOLLOUT : EPOLLIN);
}

static void begin(struct client *c, int64_t due)
{
    idle = c->next;
    opened++;
    open_now++;
    c->due = due;
    c->sent = 0;
    tool_answer_start(&c->answer);
    if (c->fd >= 0) {
        send_some(c);
        return;
    }
    c->fd = tool_socket(opened, how.sources, false);
    c->state = CONNECTING;
    if (connect(c->fd, (const struct sockaddr *)&how.to.sa, how.to.len) < 0 && errno != EINPROGRESS)
        failed(c, errno);
    else
        watch(c, EPOLLOUT);
}

static void on_event(struct client *c, uint32_t ready)
{
    if (c->state == IDLE) { /* a kept connection that the other side ended */
        drop(c);
        return;
    }
    if (ready & EPOLLOUT) {
        int err = 0;
        getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &(socklen_t){sizeof err});
        if (err)
            failed(c, err);
        else
            send_some(c);
        return;
    }
    ssize_t n = read(c->fd, block, sizeof block);
    if (n < 0 && errno == EAGAIN)
        return;
    int whole = n > 0 ? tool_answer_feed(&c->answer, block, (size_t)n) : -1;
    if (whole > 0)
        finish(c, true);
    else if (whole < 0)
        failed(c, n < 0 ? errno : n == 0 ? 0 : EPROTO);
}

static void wait_events(int64_t timeout_ns)
{
    struct epoll_event events[EVENTS];
    struct timespec t = {timeout_ns / PQ_NS_PER_S, timeout_ns % PQ_NS_PER_S};
    int n = epoll_pwait2(loop, events, EVENTS, &t, NULL);
    for (int i = 0; i < n; i++)
        on_event(events[i].data.ptr, events[i].events);
}

static void make_clients(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct client *c = calloc(1, sizeof *c);
        if (!c)
            tool_fail("out of memory");
        c->fd = -1;
        c->next = idle;
        idle = c;
    }
}

/* What was due and found nobody free waits; it is begun late, its time counted from when it was due. */
static void at_rate(int64_t start, int64_t until)
{
    int64_t due = 0;
    for (int64_t now = pq_clock_ns(); now < until; now = pq_clock_ns()) {
        int64_t next = start + due * PQ_NS_PER_S / how.rate;
        for (; next <= now; next = start + due * PQ_NS_PER_S / how.rate) {
            if (!idle && how.connections == 0)
                make_clients(64);
            if (!idle)
                break;
            begin(idle, next);
            due++;
        }
        wait_events(next > now ? next - now : PQ_NS_PER_MS);
    }
}

static void at_speed(int64_t until)
{
    while (pq_clock_ns() < until && (!how.count || opened < how.count)) {
        while (idle && (!how.count || opened < how.count))
            begin(idle, pq_clock_ns());
        wait_events(10 * PQ_NS_PER_MS);
    }
}

static void wait_for_rest(void)
{
    int64_t end = pq_clock_ns() + how.patience_ms * PQ_NS_PER_MS;
    while (open_now > 0 && pq_clock_ns() < end)
        wait_events(10 * PQ_NS_PER_MS);
    failures[TOOL_LATE] += open_now;
}

/* --- held -------------------------------------------------------------------------------------------------------- */
static void hold(void)
{
    char line[64];
    int64_t want;
    how.connections = 1;
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (pq_int_parse(line, 0, 1000000, &want, NULL) < 0)
            tool_fail("\"%s\" is no number", line);
        int64_t end = pq_clock_ns() + 300 * PQ_NS_PER_S;
        while ((int64_t)latencies.count < want && pq_clock_ns() < end) {
            /* At most so many at once, or the backlogs on the way run over. */
            while (open_now < 64 && opened < want) {
                idle = NULL;
                make_clients(1);
                begin(idle, pq_clock_ns());
            }
            wait_events(10 * PQ_NS_PER_MS);
            if (opened - open_now > (int64_t)latencies.count)
                break;
        }
        printf("held %zu\n", latencies.count);
        fflush(stdout);
    }
}

static void print(double seconds)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    double cpu =
        (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
    printf("{\"requests\":%lld,\"answered\":%zu,\"seconds\":%.6f,\"per_second\":%.1f,\"cpu_seconds\":%.4f,",
           (long long)opened, latencies.count, seconds, (double)latencies.count / seconds, cpu);
    tool_print_failures(stdout, failures);
    putchar(',');
    tool_print_latencies(stdout, &latencies);
    printf("}\n");
}

int main(int argc, char **argv)
{
    const struct tool_option options[] = {
        {"to", NULL, &how.to_text},  {"connections", &how.connections, NULL}, {"rate", &how.rate, NULL},
        {"count", &how.count, NULL}, {"seconds", &how.seconds, NULL},         {"sources", &how.sources, NULL},
        {"hold", &how.hold, NULL},   {"patience-ms", &how.patience_ms, NULL},
    };
    tool_options(argc, argv, options, sizeof options / sizeof options[0]);
    how.to = tool_address(how.to_text);
    loop = epoll_create1(EPOLL_CLOEXEC);
    if (how.hold) {
        hold();
        return 0;
    }
    int64_t start = pq_clock_ns(), until = how.seconds ? start + how.seconds * PQ_NS_PER_S : INT64_MAX;
    if (!how.rate && how.connections <= 1) {
        sequence(until);
    } else {
        make_clients(how.connections ? (size_t)how.connections : 64);
        if (how.rate)
            at_rate(start, until);
        else
            at_speed(until);
    }
    int64_t end = pq_clock_ns();
    wait_for_rest();
    print((double)(end - start) / 1e9);
    tool_latencies_free(&latencies);
    return 0;
}
