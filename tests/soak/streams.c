/* streams.c - both ends of streams that know each of their bytes, to see whether what is between them loses, doubles,
 * mixes up or fakes anything.
 *
 *   streams serve                       on a free port of 127.0.0.1; prints "ready PORT"
 *   streams load --to PORT[,PORT...] --streams N [--count N | --seconds S] [--up BYTES --down BYTES | --most BYTES]
 *                [--kind half|at-once|both|any] [--slow PERCENT] [--seed N]
 *
 * A client tells in a header which stream it is, how much goes each way and who ends first; the bytes follow from the
 * stream's number and their position. Each end checks what it gets, and that an end of stream comes after the last byte
 * and not before.
 *   half      the client sends and half-closes, then the server does
 *   at-once   the server closes the moment it has sent all
 *   both      at the same time
 * Lines on standard output are JSON: one for each stream that was not whole,
 * {"outcome":..,"id":..,"began":..,"ended":..} (CLOCK_MONOTONIC, ns), and {"totals":..} for each line on standard input
 * and at the end. Outcomes: whole     all bytes both ways, ends in order refused   no connection, or reset before a
 * byte came cut       an error: reset, aborted short     an end of stream before the last byte: somebody faked it wrong
 * other bytes than were sent, or more stuck     nothing moved for a minute Input lines to "load": "pause" (no new
 * streams; answers when the running ones are over), "go", "stop".
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/random.h"

enum { EVENTS = 256, BLOCK = 256 << 10, PORTS_MAX = 16, SLOW_BUFFER = 8 << 10 };
static const uint64_t MAGIC = 0x7071706c616e6531u;
static const int64_t STUCK = 60 * PQ_NS_PER_S;

enum kind { HALF, AT_ONCE, BOTH, ANY };
static const char *const kind_names[] = {"half", "at-once", "both", "any"};
enum outcome { WHOLE, REFUSED, CUT, SHORT, WRONG, STUCK_FAST, OUTCOMES };
static const char *const outcome_names[] = {"whole", "refused", "cut", "short", "wrong", "stuck"};

struct header {
    uint64_t magic, id, up, down, kind;
};

struct stream {
    int fd;
    bool client, connecting, headed, got_end, sent_end, slow;
    struct header h;
    size_t header_done;
    uint64_t sent, got;
    size_t chunk;                /* bytes at a time */
    int64_t began, moved, again; /* again: when a slow one reads next; 0: not waiting */
    uint32_t watched;
    struct stream *next, *previous;
};

static int loop, listener = -1;
static struct stream *streams;
static int64_t open_now;
static uint64_t outcomes[OUTCOMES], bytes_checked;
static char block[BLOCK], expected[BLOCK];

static struct {
    int64_t streams, count, seconds, up, down, most, slow, seed;
    enum kind kind;
    int ports[PORTS_MAX], port_count;
} how = {.streams = 10, .up = -1, .down = -1, .most = 1 << 20, .kind = ANY};
static struct pq_rng dice;
static int64_t begun;
static bool paused, stopped;
static int64_t not_before; /* after a refusal the next attempts wait */

_Noreturn static void fail(const char *what)
{
    fprintf(stderr, "streams: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* --- bytes ------------------------------------------------------------------------------------------------------- */
static uint64_t word(uint64_t seed, uint64_t i) { return (seed ^ i) * 0x9e3779b97f4a7c15u ^ i; }

static void make_bytes(uint64_t seed, uint64_t position, char *out, size_t size)
{
    for (size_t done = 0; done < size;) {
        uint64_t w = word(seed, (position + done) / 8);
        size_t skip = (position + done) % 8, n = 8 - skip < size - done ? 8 - skip : size - done;
        memcpy(out + done, (const char *)&w + skip, n);
        done += n;
        if (skip == 0 && n == 8) /* the rest in whole words */
            for (; size - done >= 8; done += 8) {
                w = word(seed, (position + done) / 8);
                memcpy(out + done, &w, 8);
            }
    }
}

/* Each direction of each stream has bytes of its own. */
static uint64_t seed_of(const struct stream *s, bool up) { return (s->h.id * 2 + up + 1) * 0xd1342543de82ef95u; }
static uint64_t to_send(const struct stream *s) { return s->client ? s->h.up : s->h.down; }
static uint64_t to_get(const struct stream *s) { return s->client ? s->h.down : s->h.up; }

/* --- ends -------------------------------------------------------------------------------------------------------- */
static void finish(struct stream *s, enum outcome o, int err)
{
    outcomes[o]++;
    if (o != WHOLE) {
        printf("{\"outcome\":\"%s\",\"side\":\"%s\",\"id\":%llu,\"kind\":\"%s\",\"sent\":%llu,\"of\":%llu,\"got\":%llu,"
               "\"from\":%llu,"
               "\"began\":%lld,\"ended\":%lld,\"error\":\"%s\"}\n",
               outcome_names[o], s->client ? "client" : "server", (unsigned long long)s->h.id,
               kind_names[s->h.kind & 3], (unsigned long long)s->sent, (unsigned long long)to_send(s),
               (unsigned long long)s->got, (unsigned long long)to_get(s), (long long)s->began, (long long)pq_clock_ns(),
               err ? strerror(err) : "");
        fflush(stdout);
        not_before = pq_clock_ns() + 20 * PQ_NS_PER_MS;
    }
    close(s->fd);
    if (s->previous)
        s->previous->next = s->next;
    else
        streams = s->next;
    if (s->next)
        s->next->previous = s->previous;
    open_now--;
    free(s);
}

static void watch(struct stream *s)
{
    bool sends = s->connecting || (s->client && s->header_done < sizeof s->h) ||
                 (s->headed && s->sent < to_send(s) &&
                  (s->client || s->h.kind == BOTH || (s->got == to_get(s) && (s->h.kind == AT_ONCE || s->got_end))));
    uint32_t want =
        (s->got_end || s->again || s->connecting ? 0 : (uint32_t)EPOLLIN) | (sends ? (uint32_t)EPOLLOUT : 0);
    if (want != s->watched && epoll_ctl(loop, EPOLL_CTL_MOD, s->fd, &(struct epoll_event){want, {s}}) < 0)
        fail("epoll_ctl");
    s->watched = want;
}

static struct stream *add(int fd, uint32_t events)
{
    struct stream *s = calloc(1, sizeof *s);
    if (!s)
        fail("calloc");
    *s = (struct stream){.fd = fd, .next = streams, .began = pq_clock_ns(), .watched = events, .chunk = BLOCK};
    s->moved = s->began;
    if (streams)
        streams->previous = s;
    streams = s;
    open_now++;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (epoll_ctl(loop, EPOLL_CTL_ADD, fd, &(struct epoll_event){events, {s}}) < 0)
        fail("epoll_ctl");
    return s;
}

/* --- moving: true while the stream lives -------------------------------------------------------------------------- */
static bool broke(struct stream *s, int err)
{
    finish(s, s->client && s->got == 0 && s->header_done < sizeof s->h ? REFUSED : CUT, err);
    return false;
}

static bool send_header(struct stream *s)
{
    ssize_t n = write(s->fd, (const char *)&s->h + s->header_done, sizeof s->h - s->header_done);
    if (n < 0)
        return errno == EAGAIN || broke(s, errno);
    s->header_done += (size_t)n;
    s->headed = s->header_done == sizeof s->h;
    return true;
}

static bool send_some(struct stream *s)
{
    for (int turn = 0; turn < 4 && s->sent < to_send(s); turn++) {
        size_t size = s->chunk < to_send(s) - s->sent ? s->chunk : (size_t)(to_send(s) - s->sent);
        make_bytes(seed_of(s, s->client), s->sent, block, size);
        ssize_t n = write(s->fd, block, size);
        if (n < 0)
            return errno == EAGAIN || broke(s, errno);
        s->sent += (uint64_t)n;
        s->moved = pq_clock_ns();
        if ((size_t)n < size)
            return true;
    }
    return true;
}

/* An end goes out once all is sent; what the server may close at once it closes. */
static bool end_some(struct stream *s)
{
    if (!s->headed || s->sent < to_send(s))
        return true;
    bool at_once = s->h.kind == AT_ONCE;
    if (!s->client && at_once && s->got == to_get(s)) {
        finish(s, WHOLE, 0);
        return false;
    }
    bool may = s->client ? !at_once : s->h.kind == BOTH || s->got_end;
    if (may && !s->sent_end) {
        if (shutdown(s->fd, SHUT_WR) < 0)
            return broke(s, errno);
        s->sent_end = true;
    }
    if (s->got_end && (s->sent_end || at_once)) {
        finish(s, WHOLE, 0);
        return false;
    }
    return true;
}

static bool take_header(struct stream *s)
{
    ssize_t n = read(s->fd, (char *)&s->h + s->header_done, sizeof s->h - s->header_done);
    if (n < 0)
        return errno == EAGAIN || broke(s, errno);
    s->header_done += (size_t)n;
    if (n == 0 || (s->header_done == sizeof s->h && (s->h.magic != MAGIC || s->h.kind >= ANY))) {
        finish(s, n == 0 ? SHORT : WRONG, 0);
        return false;
    }
    s->headed = s->header_done == sizeof s->h;
    return true;
}

static bool check_bytes(struct stream *s, size_t n)
{
    if (n > to_get(s) - s->got)
        return false;
    make_bytes(seed_of(s, !s->client), s->got, expected, n);
    if (memcmp(expected, block, n) != 0)
        return false;
    s->got += n;
    bytes_checked += n;
    return true;
}

static bool take_some(struct stream *s)
{
    if (!s->headed)
        return take_header(s);
    ssize_t n = read(s->fd, block, s->chunk);
    if (n < 0)
        return errno == EAGAIN || broke(s, errno);
    s->moved = pq_clock_ns();
    if (n == 0) {
        s->got_end = true;
        if (s->got == to_get(s))
            return true;
        finish(s, SHORT, 0);
        return false;
    }
    if (!check_bytes(s, (size_t)n)) {
        finish(s, WRONG, 0);
        return false;
    }
    if (s->slow)
        s->again = s->moved + (int64_t)pq_rng_below(&dice, 6 * PQ_NS_PER_MS);
    return true;
}

static bool connected(struct stream *s)
{
    int err = 0;
    getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &err, &(socklen_t){sizeof err});
    s->connecting = false;
    if (!err)
        return true;
    finish(s, REFUSED, err);
    return false;
}

static void turn(struct stream *s, uint32_t ready)
{
    if (s->connecting && !connected(s))
        return;
    if (s->client && !s->headed && !send_header(s))
        return;
    if ((ready & (EPOLLIN | EPOLLERR | EPOLLHUP)) && !s->got_end && !s->again && !take_some(s))
        return;
    watch(s);
    if ((s->watched & EPOLLOUT) && s->headed && !send_some(s))
        return;
    if (end_some(s))
        watch(s);
}

/* --- the client --------------------------------------------------------------------------------------------------- */
static uint64_t some_size(int64_t fixed)
{
    if (fixed >= 0)
        return (uint64_t)fixed;
    /* Small ones are many: the exponent is uniform. */
    uint64_t most = (uint64_t)how.most, limit = 1ull << pq_rng_below(&dice, 64 - (uint64_t)__builtin_clzll(most | 1));
    return pq_rng_below(&dice, (limit < most ? limit : most) + 1);
}

static void begin(void)
{
    static const size_t chunks[] = {300, 4096, BLOCK, BLOCK};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)how.ports[begun % how.port_count]),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool slow = (int64_t)pq_rng_below(&dice, 100) < how.slow;
    if (fd < 0)
        fail("socket");
    if (slow)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){SLOW_BUFFER}, sizeof(int));
    int e = connect(fd, (struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS ? errno : 0;
    struct stream *s = add(fd, EPOLLOUT);
    s->client = s->connecting = true;
    s->slow = slow;
    s->h = (struct header){MAGIC, (uint64_t)how.seed << 32 | (uint64_t)++begun, some_size(how.up), some_size(how.down),
                           how.kind == ANY ? pq_rng_below(&dice, ANY) : how.kind};
    if (slow && how.down < 0)
        s->h.down %= 300000;
    s->chunk = slow ? 4096 : how.up >= 0 ? BLOCK : chunks[pq_rng_below(&dice, 4)];
    if (e)
        finish(s, REFUSED, e);
}

static bool more(int64_t now, int64_t end)
{
    return !paused && !stopped && now < end && now >= not_before && (!how.count || begun < how.count);
}

static bool over(int64_t now, int64_t end)
{
    return open_now == 0 && (stopped || now >= end || (how.count && begun >= how.count));
}

/* --- both --------------------------------------------------------------------------------------------------------- */
static void totals(const char *what)
{
    printf("{\"totals\":\"%s\",\"open\":%lld,\"bytes\":%llu", what, (long long)open_now,
           (unsigned long long)bytes_checked);
    for (int i = 0; i < OUTCOMES; i++)
        printf(",\"%s\":%llu", outcome_names[i], (unsigned long long)outcomes[i]);
    printf("}\n");
    fflush(stdout);
}

static const char *on_input(void)
{
    static char line[64];
    static size_t len;
    ssize_t n = read(STDIN_FILENO, line + len, 1);
    if (n <= 0) {
        stopped = true;
        epoll_ctl(loop, EPOLL_CTL_DEL, STDIN_FILENO, NULL);
        return listener >= 0 ? "end" : NULL;
    }
    if (line[len] != '\n') {
        len += len < sizeof line - 1;
        return NULL;
    }
    line[len] = '\0';
    len = 0;
    paused = strcmp(line, "pause") == 0;
    stopped |= strcmp(line, "stop") == 0;
    return paused ? NULL : line;
}

static void take(void)
{
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;)
        (void)add(fd, EPOLLIN);
}

/* Who reads slowly is looked at again when it is time; who stands still for too long is told of. */
static bool look_at_all(int64_t now)
{
    bool waiting = false;
    for (struct stream *s = streams, *next; s; s = next) {
        next = s->next;
        if (s->again && s->again <= now) {
            s->again = 0;
            watch(s);
        } else if (now - s->moved > STUCK) {
            finish(s, STUCK_FAST, 0);
            continue;
        }
        waiting |= s->again != 0;
    }
    return waiting;
}

static void wait_events(int timeout_ms)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(loop, events, EVENTS, timeout_ms);
    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr == &listener) {
            take();
        } else if (events[i].data.ptr == &loop) {
            const char *said = on_input();
            if (said)
                totals(said);
        } else {
            turn(events[i].data.ptr, events[i].events);
        }
    }
}

static void serve(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) < 0 || listen(listener, 4096) < 0 ||
        getsockname(listener, (struct sockaddr *)&at, &(socklen_t){sizeof at}) < 0 ||
        epoll_ctl(loop, EPOLL_CTL_ADD, listener, &(struct epoll_event){EPOLLIN, {&listener}}) < 0)
        fail("listen");
    printf("ready %d\n", ntohs(at.sin_port));
    fflush(stdout);
    while (!stopped) {
        wait_events(1000);
        (void)look_at_all(pq_clock_ns());
    }
}

static void load(void)
{
    int64_t start = pq_clock_ns(), end = how.seconds ? start + how.seconds * PQ_NS_PER_S : INT64_MAX;
    for (int64_t now = start; !over(now, end); now = pq_clock_ns()) {
        while (open_now < how.streams && more(now, end))
            begin();
        bool soon = look_at_all(now);
        wait_events(soon ? 1 : 20);
        if (paused && open_now == 0) {
            totals("pause");
            while (paused && !stopped)
                wait_events(-1);
        }
    }
    totals("end");
}

/* --- arguments ---------------------------------------------------------------------------------------------------- */
static void read_ports(const char *text)
{
    for (char *end; *text; text = *end ? end + 1 : end) {
        long port = strtol(text, &end, 10);
        if (end == text || port < 1 || port > 65535 || how.port_count == PORTS_MAX) {
            errno = EINVAL;
            fail("--to");
        }
        how.ports[how.port_count++] = (int)port;
    }
}

static bool read_option(const char *name, const char *value)
{
    const struct {
        const char *name;
        int64_t *to;
    } numbers[] = {{"--streams", &how.streams}, {"--count", &how.count}, {"--seconds", &how.seconds},
                   {"--up", &how.up},           {"--down", &how.down},   {"--most", &how.most},
                   {"--slow", &how.slow},       {"--seed", &how.seed}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (strcmp(name, numbers[i].name) == 0)
            return pq_int_parse(value, 0, INT64_MAX, numbers[i].to, NULL) == 0;
    if (strcmp(name, "--to") == 0) {
        read_ports(value);
        return true;
    }
    for (int k = 0; strcmp(name, "--kind") == 0 && k <= ANY; k++)
        if (strcmp(value, kind_names[k]) == 0) {
            how.kind = (enum kind)k;
            return true;
        }
    return false;
}

int main(int argc, char **argv)
{
    bool server = argc == 2 && strcmp(argv[1], "serve") == 0;
    for (int i = 2; i < argc; i += 2)
        if (i + 1 == argc || !read_option(argv[i], argv[i + 1])) {
            fprintf(stderr, "streams: %s: no such option, or no value for it\n", argv[i]);
            return 2;
        }
    if (!server && (argc < 2 || strcmp(argv[1], "load") != 0 || how.port_count == 0)) {
        fprintf(stderr, "usage: streams serve | streams load --to PORT[,PORT...] [OPTION VALUE]...\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN); /* a stream that was reset is an outcome */
    dice = pq_rng((uint64_t)how.seed + 1);
    loop = epoll_create1(EPOLL_CLOEXEC);
    /* A file or /dev/null can't be watched: then nobody says anything. */
    (void)epoll_ctl(loop, EPOLL_CTL_ADD, STDIN_FILENO, &(struct epoll_event){EPOLLIN, {&loop}});
    if (server)
        serve();
    else
        load();
    return 0;
}
