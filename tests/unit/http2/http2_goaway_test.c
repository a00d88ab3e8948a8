/* A server of raw frames says GOAWAY, REFUSED_STREAM or nothing; what the client makes of it. */
#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "talk.h"

enum { CONNECTIONS = 6 };

#define SETTINGS "\0\0\0\4\0\0\0\0\0"
#define GOAWAY(last)                                                                                                   \
    "\0\0\x08\7\0\0\0\0\0"                                                                                             \
    "\0\0\0" last "\0\0\0\0"
#define REFUSED                                                                                                        \
    "\0\0\4\3\0\0\0\0\1"                                                                                               \
    "\0\0\0\7"
#define CANCEL                                                                                                         \
    "\0\0\4\3\0\0\0\0\1"                                                                                               \
    "\0\0\0\x08"
#define OK_EMPTY                                                                                                       \
    "\0\0\1\1\5\0\0\0\1"                                                                                               \
    "\x88" /* :status 200, END_STREAM | END_HEADERS, stream 1 */

/* What the n-th connection answers to its first request. */
struct script {
    struct {
        const char *bytes;
        size_t len;
        bool close;
    } at[CONNECTIONS];
    size_t count;
};

struct raw {
    struct talk talk;
    const struct script *script;
    int listener;
    ev_io accept;
    struct connection {
        ev_io io;
        int fd;
        struct raw *raw;
        size_t n, received;
        bool answered;
    } connections[CONNECTIONS];
    size_t count;
};

static void on_readable(struct ev_loop *loop, ev_io *w, int events)
{
    (void)events;
    struct connection *c = w->data;
    uint8_t bytes[4096];
    size_t n = 0;
    int e = pq_tcp_read(c->fd, bytes, sizeof bytes, &n);
    if (e == PQ_E_WANT_READ)
        return;
    if (e < 0) {
        ev_io_stop(loop, &c->io);
        return;
    }
    c->received += n;
    if (c->answered || c->received < 24 + 9 + 9 + 4) /* preface, SETTINGS, the head of what follows */
        return;
    c->answered = true;
    const struct script *s = c->raw->script;
    size_t i = c->n < s->count ? c->n : s->count - 1;
    assert_int_equal(pq_tcp_write(c->fd, s->at[i].bytes, s->at[i].len, &n), 0);
    assert_int_equal(n, s->at[i].len);
    if (s->at[i].close)
        shutdown(c->fd, SHUT_WR);
}

static void on_accept(struct ev_loop *loop, ev_io *w, int events)
{
    (void)events;
    struct raw *r = w->data;
    struct pq_address peer;
    int fd;
    while (pq_tcp_accept(r->listener, &fd, &peer) == 0) {
        assert_true(r->count < CONNECTIONS);
        struct connection *c = &r->connections[r->count];
        *c = (struct connection){.fd = fd, .raw = r, .n = r->count};
        r->count++;
        ev_io_init(&c->io, on_readable, fd, EV_READ);
        c->io.data = c;
        ev_io_start(loop, &c->io);
    }
}

static void open_raw(struct raw *r, const struct script *script, bool fresh)
{
    struct pq_address a = loopback();
    *r = (struct raw){.talk = {.loop = ev_loop_new(EVFLAG_AUTO)}, .script = script, .listener = -1};
    assert_int_equal(pq_tcp_listen(&a, 0, &r->listener, NULL), 0);
    a = pq_address_local(r->listener);
    pq_address_text(&a, r->talk.authority);
    ev_io_init(&r->accept, on_accept, r->listener, EV_READ);
    r->accept.data = r;
    ev_io_start(r->talk.loop, &r->accept);
    const struct pq_http2_client_settings c = {.fresh = fresh, .timeouts = {.request = 2 * PQ_NS_PER_S}};
    assert_int_equal(pq_http2_client_new(r->talk.loop, &c, &r->talk.client), 0);
}

static void close_raw(struct raw *r)
{
    pq_http2_client_free(r->talk.client);
    for (size_t i = 0; i < r->count; i++) {
        ev_io_stop(r->talk.loop, &r->connections[i].io);
        close(r->connections[i].fd);
    }
    ev_io_stop(r->talk.loop, &r->accept);
    close(r->listener);
    ev_loop_destroy(r->talk.loop);
}

#define SAY(text, end) {text, sizeof(text) - 1, end}

static void retries(void **state)
{
    static const struct {
        const char *name;
        struct script script;
        int error, status, attempts;
        size_t connections;
    } rows[] = {
        {"answered at once", {{SAY(SETTINGS OK_EMPTY, false)}, 1}, 0, 200, 1, 1},
        {"GOAWAY below the stream, then another connection",
         {{SAY(SETTINGS GOAWAY("\0"), false), SAY(SETTINGS OK_EMPTY, false)}, 2},
         0,
         200,
         2,
         2},
        {"GOAWAY below the stream and the end",
         {{SAY(SETTINGS GOAWAY("\0"), true), SAY(SETTINGS OK_EMPTY, false)}, 2},
         0,
         200,
         2,
         2},
        {"GOAWAY that includes the stream, which is answered",
         {{SAY(SETTINGS GOAWAY("\1") OK_EMPTY, true)}, 1},
         0,
         200,
         1,
         1},
        {"GOAWAY that includes the stream, and then the end",
         {{SAY(SETTINGS GOAWAY("\1"), true)}, 1},
         PQ_E_CLOSED,
         0,
         1,
         1},
        {"REFUSED_STREAM, tried again there, then GOAWAY",
         {{SAY(SETTINGS REFUSED GOAWAY("\1"), false), SAY(SETTINGS OK_EMPTY, false)}, 2},
         0,
         200,
         3,
         2},
        {"CANCEL is no retry", {{SAY(SETTINGS CANCEL, false)}, 1}, PQ_E_RESET, 0, 1, 1},
        {"GOAWAY on each attempt", {{SAY(SETTINGS GOAWAY("\0"), false)}, 1}, PQ_E_REFUSED, 0, 4, 4},
        {"the end without GOAWAY", {{SAY(SETTINGS, true)}, 1}, PQ_E_CLOSED, 0, 1, 1},
        {"HTTP/1 text", {{SAY("HTTP/1.1 400 Bad Request\r\n\r\n", true)}, 1}, PQ_E_PROTOCOL, 0, 1, 1},
        {"a frame above the limit", {{SAY(SETTINGS "\xff\xff\xff\0\0\0\0\0\1", false)}, 1}, PQ_E_PROTOCOL, 0, 1, 1},
        {"a field with CR", {{SAY(SETTINGS "\0\0\x08\1\5\0\0\0\1\x88\0\1x\3a\rb", false)}, 1}, PQ_E_PROTOCOL, 0, 1, 1},
        {"a field with NUL", {{SAY(SETTINGS "\0\0\x08\1\5\0\0\0\1\x88\0\1x\3a\0b", false)}, 1}, PQ_E_PROTOCOL, 0, 1, 1},
        {"an answer without :status", {{SAY(SETTINGS "\0\0\1\1\5\0\0\0\1\x82", false)}, 1}, PQ_E_PROTOCOL, 0, 1, 1},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++)
        for (int fresh = 0; fresh < 2; fresh++) {
            struct raw r;
            struct outcome o;
            open_raw(&r, &rows[i].script, fresh);
            ask(&r.talk, "GET", "/", pq_span("", 0), &o);
            run(&r.talk);
            int attempts = fresh ? (int)rows[i].connections : rows[i].attempts;
            if (o.error != rows[i].error || o.status != rows[i].status || o.attempts != attempts ||
                r.count != rows[i].connections)
                fail_msg("%s (%s): error %s status %d attempts %d connections %zu", rows[i].name,
                         fresh ? "fresh" : "kept", pq_error_name(o.error), o.status, o.attempts, r.count);
            close_raw(&r);
        }
}

/* Raw answers cut off at each byte: an error each time, never a success, a hang or a crash. */
static void truncated(void **state)
{
    static const char whole[] = SETTINGS OK_EMPTY;
    (void)state;
    for (size_t n = 0; n + 1 < sizeof whole; n++) {
        char *copy = malloc(n ? n : 1);
        assert_non_null(copy);
        memcpy(copy, whole, n);
        const struct script s = {{{copy, n, true}}, 1};
        struct raw r;
        struct outcome o;
        if (n == 0) {
            free(copy);
            continue; /* nothing to write */
        }
        open_raw(&r, &s, false);
        ask(&r.talk, "GET", "/", pq_span("", 0), &o);
        run(&r.talk);
        assert_int_equal(o.error, PQ_E_CLOSED);
        close_raw(&r);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(retries), cmocka_unit_test(truncated)};
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
