/* strangers.c - TLS clients that do a full mutual handshake each, ask once and leave. Ends with one line of JSON.
 *
 *   strangers --to ADDRESS --certificate F --key F --ca F --name N --group G --count N
 *   strangers ... --rate R --seconds S --sources K      R a second, from K source addresses in turn
 *
 * Nothing is resumed. The line names what was negotiated, so that who compares servers sees that they did the same.
 */
#include <errno.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tool.h"

enum { THREADS_MAX = 64 };

static struct {
    const char *to_text, *certificate, *key, *ca, *name, *group;
    int64_t count, rate, seconds, sources, threads, patience_ms;
    struct pq_address to;
} how = {.threads = 1, .patience_ms = 10000};

static SSL_CTX *context;
static int64_t start;
static char negotiated[256];
static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER;

struct worker {
    pthread_t thread;
    int64_t number, begun;
    struct tool_latencies latencies;
    int64_t failures[TOOL_FAILURES];
};

static void make_context(void)
{
    context = SSL_CTX_new(TLS_client_method());
    if (!context || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_use_certificate_chain_file(context, how.certificate) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, how.key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_load_verify_locations(context, how.ca, NULL) != 1 || SSL_CTX_set1_groups_list(context, how.group) != 1)
        tool_fail("the client's TLS can't be set up: %s", ERR_reason_error_string(ERR_get_error()));
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context, SSL_MODE_AUTO_RETRY);
}

static void note_negotiated(SSL *s)
{
    const char *ours = NULL, *theirs = NULL, *group = SSL_get0_group_name(s);
    SSL_get0_signature_name(s, &ours);
    SSL_get0_peer_signature_name(s, &theirs);
    pthread_mutex_lock(&first);
    if (!negotiated[0])
        snprintf(negotiated, sizeof negotiated,
                 "\"version\":\"%s\",\"group\":\"%s\",\"server_signature\":\"%s\",\"client_signature\":\"%s\","
                 "\"cipher\":\"%s\",\"resumed\":%d",
                 SSL_get_version(s), group ? group : "", theirs ? theirs : "", ours ? ours : "", SSL_get_cipher_name(s),
                 SSL_session_reused(s));
    pthread_mutex_unlock(&first);
}

/* 0, or what failed. */
static int ask(SSL *s)
{
    char block[16 << 10];
    struct tool_answer a;
    tool_answer_start(&a);
    if (SSL_write(s, tool_request, (int)tool_request_size) != (int)tool_request_size)
        return errno ? errno : EPROTO;
    for (int whole = 0; whole == 0;) {
        errno = 0;
        int n = SSL_read(s, block, sizeof block);
        whole = n > 0 ? tool_answer_feed(&a, block, (size_t)n) : -1;
        if (whole < 0)
            return errno ? errno : SSL_get_error(s, n) == SSL_ERROR_SSL ? EPROTO : ECONNABORTED;
    }
    return 0;
}

static int talk(int fd)
{
    SSL *s = SSL_new(context);
    if (!s || SSL_set_fd(s, fd) != 1 || SSL_set_tlsext_host_name(s, how.name) != 1 || SSL_set1_host(s, how.name) != 1)
        tool_fail("no TLS connection to be had");
    errno = 0;
    int e = SSL_connect(s) == 1 ? 0 : errno ? errno : EPROTO;
    if (e == 0)
        e = ask(s);
    if (e == 0) {
        note_negotiated(s);
        SSL_shutdown(s);
    }
    SSL_free(s);
    ERR_clear_error();
    return e;
}

static int one(int64_t number)
{
    int fd = tool_socket(number, how.sources, true);
    struct timeval patience = {how.patience_ms / 1000, how.patience_ms % 1000 * 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    int e = connect(fd, (const struct sockaddr *)&how.to.sa, how.to.len) == 0 ? talk(fd) : errno;
    close(fd);
    return e == EAGAIN ? ETIMEDOUT : e == ECONNABORTED ? 0 - 1 : e;
}

static void until(int64_t at)
{
    struct timespec t = {at / PQ_NS_PER_S, at % PQ_NS_PER_S};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

static void *work(void *argument)
{
    struct worker *w = argument;
    int64_t last = how.rate ? how.rate * how.seconds : how.count;
    for (int64_t i = w->number; i < last; i += how.threads) {
        int64_t due = start + (how.rate ? i * PQ_NS_PER_S / how.rate : 0);
        if (how.rate)
            until(due);
        else
            due = pq_clock_ns();
        w->begun++;
        int e = one(i);
        if (e == 0)
            tool_latency(&w->latencies, pq_clock_ns() - due);
        else
            w->failures[e < 0 ? TOOL_ENDED : tool_failure_of(e)]++;
    }
    return NULL;
}

static void print(struct worker *workers, double seconds)
{
    struct tool_latencies all = {0};
    int64_t failures[TOOL_FAILURES] = {0}, begun = 0;
    for (int64_t i = 0; i < how.threads; i++) {
        struct worker *w = &workers[i];
        begun += w->begun;
        for (size_t k = 0; k < w->latencies.count; k++)
            tool_latency(&all, w->latencies.ns[k]);
        for (int k = 0; k < TOOL_FAILURES; k++)
            failures[k] += w->failures[k];
        tool_latencies_free(&w->latencies);
    }
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    printf("{\"requests\":%lld,\"answered\":%zu,\"seconds\":%.6f,\"per_second\":%.1f,\"cpu_seconds\":%.4f,",
           (long long)begun, all.count, seconds, (double)all.count / seconds,
           (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
    tool_print_failures(stdout, failures);
    printf(",\"negotiated\":{%s},", negotiated);
    tool_print_latencies(stdout, &all);
    printf("}\n");
    tool_latencies_free(&all);
}

int main(int argc, char **argv)
{
    const struct tool_option options[] = {
        {"to", NULL, &how.to_text},      {"certificate", NULL, &how.certificate},
        {"key", NULL, &how.key},         {"ca", NULL, &how.ca},
        {"name", NULL, &how.name},       {"group", NULL, &how.group},
        {"count", &how.count, NULL},     {"rate", &how.rate, NULL},
        {"seconds", &how.seconds, NULL}, {"sources", &how.sources, NULL},
        {"threads", &how.threads, NULL}, {"patience-ms", &how.patience_ms, NULL},
    };
    static struct worker workers[THREADS_MAX];
    tool_options(argc, argv, options, sizeof options / sizeof options[0]);
    if (how.threads < 1 || how.threads > THREADS_MAX || !how.certificate || !how.key || !how.ca || !how.name ||
        !how.group)
        tool_fail("name --certificate, --key, --ca, --name and --group, and 1 to %d --threads", THREADS_MAX);
    how.to = tool_address(how.to_text);
    make_context();
    start = pq_clock_ns();
    for (int64_t i = 0; i < how.threads; i++) {
        workers[i].number = i;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            tool_fail("no thread to be had");
    }
    for (int64_t i = 0; i < how.threads; i++)
        pthread_join(workers[i].thread, NULL);
    print(workers, (double)(pq_clock_ns() - start) / 1e9);
    SSL_CTX_free(context);
    return 0;
}
