/* replay.c - strangers that replay one ClientHello, made once, from many source addresses: each connects, sends it,
 * waits for the first bytes of an answer or for a refusal, and resets. Costs the sender next to nothing and a server
 * that answers a signature. Ends with one line of JSON.
 *
 *   replay --to ADDRESS --group G --seconds S [--sources 1000] [--rate R] [--flight 1000] [--wait-ms M]
 *
 * At most N are under way; without a rate as fast as that allows. An attempt that was not answered within M ms is given
 * up. "answered": got bytes; "refused": reset or closed before any.
 */
#include <errno.h>
#include <openssl/ssl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "tool.h"

enum { EVENTS = 256 };

struct attempt {
    int fd;
    bool sent;
    int64_t since;
    struct attempt *next; /* among the free ones */
};

static struct {
    const char *to_text, *group;
    int64_t seconds, sources, rate, flight, wait_ms;
    struct pq_address to;
} how = {.sources = 1000, .flight = 1000, .wait_ms = 5000, .group = "X25519MLKEM768"};

static char hello[16 << 10];
static size_t hello_size;
static struct attempt *attempts, *available;
static int loop;
static struct {
    int64_t begun, answered, refused, given_up;
} counts;

static void make_hello(void)
{
    SSL_CTX *c = SSL_CTX_new(TLS_client_method());
    SSL *s = c && SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) == 1 && SSL_CTX_set1_groups_list(c, how.group) == 1
                 ? SSL_new(c)
                 : NULL;
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    if (!s || !in || !out)
        tool_fail("no ClientHello with group %s can be made", how.group);
    SSL_set_bio(s, in, out);
    SSL_connect(s);
    int n = BIO_read(out, hello, sizeof hello);
    if (n <= 0)
        tool_fail("libssl made no ClientHello");
    hello_size = (size_t)n;
    SSL_free(s);
    SSL_CTX_free(c);
}

static void finish(struct attempt *a)
{
    const struct linger now = {1, 0};
    setsockopt(a->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(a->fd);
    a->fd = -1;
    a->next = available;
    available = a;
}

static void begin(void)
{
    struct attempt *a = available;
    available = a->next;
    *a = (struct attempt){.fd = tool_socket(counts.begun, how.sources, false), .since = pq_clock_ns()};
    counts.begun++;
    if (connect(a->fd, (const struct sockaddr *)&how.to.sa, how.to.len) < 0 && errno != EINPROGRESS) {
        counts.refused++;
        finish(a);
    } else if (epoll_ctl(loop, EPOLL_CTL_ADD, a->fd, &(struct epoll_event){EPOLLOUT, {a}}) < 0) {
        tool_fail("epoll_ctl failed");
    }
}

static void on_event(struct attempt *a)
{
    char block[4096];
    if (!a->sent) {
        if (write(a->fd, hello, hello_size) != (ssize_t)hello_size) {
            counts.refused++;
            finish(a);
            return;
        }
        a->sent = true;
        if (epoll_ctl(loop, EPOLL_CTL_MOD, a->fd, &(struct epoll_event){EPOLLIN, {a}}) < 0)
            tool_fail("epoll_ctl failed");
        return;
    }
    if (read(a->fd, block, sizeof block) > 0)
        counts.answered++;
    else
        counts.refused++;
    finish(a);
}

static void give_up_old(int64_t now)
{
    for (int64_t i = 0; i < how.flight; i++)
        if (attempts[i].fd >= 0 && now - attempts[i].since > how.wait_ms * PQ_NS_PER_MS) {
            counts.given_up++;
            finish(&attempts[i]);
        }
}

static void run(int64_t start, int64_t end)
{
    int64_t looked = start;
    for (int64_t now = start; now < end; now = pq_clock_ns()) {
        struct epoll_event events[EVENTS];
        while (available && (!how.rate || counts.begun < (now - start) * how.rate / PQ_NS_PER_S))
            begin();
        struct timespec t = {0, how.rate ? PQ_NS_PER_MS : 10 * PQ_NS_PER_MS};
        int n = epoll_pwait2(loop, events, EVENTS, &t, NULL);
        for (int i = 0; i < n; i++)
            on_event(events[i].data.ptr);
        if (now - looked > 100 * PQ_NS_PER_MS) {
            give_up_old(now);
            looked = now;
        }
    }
}

int main(int argc, char **argv)
{
    const struct tool_option options[] = {
        {"to", NULL, &how.to_text},      {"group", NULL, &how.group}, {"seconds", &how.seconds, NULL},
        {"sources", &how.sources, NULL}, {"rate", &how.rate, NULL},   {"flight", &how.flight, NULL},
        {"wait-ms", &how.wait_ms, NULL},
    };
    tool_options(argc, argv, options, sizeof options / sizeof options[0]);
    how.to = tool_address(how.to_text);
    make_hello();
    loop = epoll_create1(EPOLL_CLOEXEC);
    attempts = calloc((size_t)how.flight, sizeof *attempts);
    if (!attempts || !how.sources)
        tool_fail("out of memory, or no sources");
    for (int64_t i = 0; i < how.flight; i++) {
        attempts[i] = (struct attempt){.fd = -1, .next = available};
        available = &attempts[i];
    }
    int64_t start = pq_clock_ns();
    run(start, start + how.seconds * PQ_NS_PER_S);
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    printf(
        "{\"attempts\":%lld,\"answered\":%lld,\"refused\":%lld,\"given_up\":%lld,\"hello_bytes\":%zu,\"sources\":%lld,"
        "\"seconds\":%.3f,\"cpu_seconds\":%.4f}\n",
        (long long)counts.begun, (long long)counts.answered, (long long)counts.refused, (long long)counts.given_up,
        hello_size, (long long)how.sources, (double)(pq_clock_ns() - start) / 1e9,
        (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
    free(attempts);
    return 0;
}
