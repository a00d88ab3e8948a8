#include "tool.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/config.h"
#include "base/stats.h"

void tool_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

/* --- options ----------------------------------------------------------------------------------------------------- */
static void set_option(const struct tool_option *o, const char *value)
{
    struct pq_why why;
    if (o->text)
        *o->text = value;
    else if (pq_int_parse(value, 0, INT64_MAX, o->number, &why) < 0)
        tool_fail("--%s: %s", o->name, why.text);
}

void tool_options(int argc, char **argv, const struct tool_option *options, size_t count)
{
    signal(SIGPIPE, SIG_IGN);
    for (int i = 1; i < argc; i += 2) {
        size_t k = 0;
        while (k < count && (strncmp(argv[i], "--", 2) != 0 || strcmp(argv[i] + 2, options[k].name) != 0))
            k++;
        if (k == count || i + 1 == argc)
            tool_fail("%s: no such option, or no value", argv[i]);
        set_option(&options[k], argv[i + 1]);
    }
}

/* --- sockets ----------------------------------------------------------------------------------------------------- */
struct pq_address tool_address(const char *text)
{
    struct pq_address a;
    struct pq_why why;
    if (!text || pq_address_parse(text, &a, &why) < 0)
        tool_fail("%s", text ? why.text : "an address is missing");
    return a;
}

static void bind_source(int fd, int64_t number)
{
    uint32_t host = (uint32_t)(number / 254) << 8 | (uint32_t)(number % 254 + 1);
    struct sockaddr_in source = {.sin_family = AF_INET, .sin_addr = {htonl(0x7f010000u + host)}};
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &(int){1}, sizeof(int));
    if (bind(fd, (struct sockaddr *)&source, sizeof source) < 0)
        tool_fail("source address %lld can't be had: %s", (long long)number, strerror(errno));
}

int tool_socket(int64_t from, int64_t sources, bool blocking)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (blocking ? 0 : SOCK_NONBLOCK), 0);
    if (fd < 0)
        tool_fail("no socket to be had: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (sources)
        bind_source(fd, from % sources);
    return fd;
}

/* --- what is said at the end ------------------------------------------------------------------------------------- */
void tool_latency(struct tool_latencies *l, int64_t ns)
{
    if (l->count == l->room) {
        l->room = l->room ? 2 * l->room : 4096;
        l->ns = realloc(l->ns, l->room * sizeof *l->ns);
        if (!l->ns)
            tool_fail("out of memory for %zu latencies", l->room);
    }
    l->ns[l->count++] = ns;
}

void tool_latencies_free(struct tool_latencies *l)
{
    free(l->ns);
    *l = (struct tool_latencies){0};
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void tool_print_latencies(FILE *out, struct tool_latencies *l)
{
    DEFER(pq_freep) double *us = calloc(l->count + 1, sizeof *us);
    if (!us)
        tool_fail("out of memory for %zu latencies", l->count);
    for (size_t i = 0; i < l->count; i++)
        us[i] = (double)l->ns[i] / 1e3;
    qsort(us, l->count, sizeof *us, ascending);
    fprintf(out, "\"latencies\":{\"n\":%zu", l->count);
    if (l->count)
        fprintf(out, ",\"median_us\":%.2f,\"p90_us\":%.2f,\"p99_us\":%.2f,\"max_us\":%.2f",
                pq_quantile(us, l->count, 0.5), pq_quantile(us, l->count, 0.9), pq_quantile(us, l->count, 0.99),
                us[l->count - 1]);
    fputc('}', out);
}

enum tool_failure tool_failure_of(int err)
{
    switch (err) {
    case 0:
        return TOOL_ENDED;
    case ECONNREFUSED:
        return TOOL_REFUSED;
    case ECONNRESET:
    case EPIPE:
        return TOOL_RESET;
    case ETIMEDOUT:
        return TOOL_LATE;
    default:
        return TOOL_OTHER;
    }
}

void tool_print_failures(FILE *out, const int64_t counts[TOOL_FAILURES])
{
    static const char *const names[] = {"refused", "reset", "ended", "late", "other"};
    int64_t sum = 0;
    fprintf(out, "\"errors\":{");
    for (size_t i = 0; i < TOOL_FAILURES; i++) {
        fprintf(out, "%s\"%s\":%lld", i ? "," : "", names[i], (long long)counts[i]);
        sum += counts[i];
    }
    fprintf(out, "},\"failed\":%lld", (long long)sum);
}

/* --- HTTP -------------------------------------------------------------------------------------------------------- */
const char tool_request[] = "GET /nnrf-disc/v1/nf-instances?target-nf-type=AUSF&requester-nf-type=AMF HTTP/1.1\r\n"
                            "host: nrf.5gc.example\r\nuser-agent: AMF-4947a69a-f61b-4bc1-b9da-47c9c5d14b64\r\n"
                            "accept: application/json, application/problem+json\r\n\r\n";
const size_t tool_request_size = sizeof tool_request - 1;

void tool_answer_start(struct tool_answer *a)
{
    a->head_size = 0;
    a->body_left = -1;
}

static int read_head(struct tool_answer *a)
{
    static const char name[] = "\r\ncontent-length:";
    if (strncmp(a->head, "HTTP/1.1 200", 12) != 0)
        return -1;
    for (const char *c = a->head; *c; c++)
        if (strncasecmp(c, name, sizeof name - 1) == 0) {
            a->body_left = strtoll(c + sizeof name - 1, NULL, 10);
            return 0;
        }
    return -1;
}

int tool_answer_feed(struct tool_answer *a, const char *bytes, size_t size)
{
    while (size && a->body_left < 0) {
        if (a->head_size == sizeof a->head - 1)
            return -1;
        a->head[a->head_size++] = *bytes++;
        size--;
        a->head[a->head_size] = '\0';
        if (a->head_size >= 4 && memcmp(a->head + a->head_size - 4, "\r\n\r\n", 4) == 0 && read_head(a) < 0)
            return -1;
    }
    if (a->body_left < 0)
        return 0;
    if (size > (uint64_t)a->body_left)
        return -1;
    a->body_left -= (int64_t)size;
    return a->body_left == 0;
}
