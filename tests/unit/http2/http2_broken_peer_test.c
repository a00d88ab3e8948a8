/* A client of raw frames breaks off or breaks the rules; what the server makes of it. */
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

enum { TRIES = 50, MS = 1000 * 1000 };

#define PREFACE  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define SETTINGS "\0\0\0\4\0\0\0\0\0"
/* HPACK: :method GET, :scheme http, :path / from the static table, then a literal :authority "a" */
#define HEAD                                                                                                           \
    "\x82\x86\x84\x01\x01"                                                                                             \
    "a"

struct place {
    struct talk talk;
    struct pq_http2_exchange *held[2]; /* where answers come later: each exchange is owed one */
    bool hold, kill_first, ended;
    int served, client;
};

/* As a killed client: what it had not read yet becomes a reset. */
static void kill_client(struct place *p)
{
    const struct linger now = {.l_onoff = 1};
    setsockopt(p->client, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(p->client);
    p->client = -1;
}

static void answer(struct pq_http2_exchange *x)
{
    struct pq_buf body = {.cap = 1000};
    assert_int_equal(pq_buf_reserve(&body, 1000), 0);
    body.len = 1000;
    memset(body.at, 'a', body.len);
    pq_http2_respond(x, &(struct pq_http2_answer){.status = 200, .body = &body});
    pq_buf_free(&body);
}

static void serve(void *context, struct pq_http2_exchange *x)
{
    struct place *p = context;
    p->served++;
    if (p->hold) {
        p->held[p->served - 1] = x;
        return;
    }
    if (p->kill_first && p->client >= 0)
        kill_client(p);
    answer(x);
}

static void open_place(struct place *p)
{
    *p = (struct place){.talk = {.loop = ev_loop_new(EVFLAG_AUTO)}, .client = -1};
    const struct pq_http2_server_settings s = {
        .name = "test", .address = loopback(), .request = serve, .context = p, .timeouts = {.drain = 20 * PQ_NS_PER_S}};
    assert_int_equal(pq_http2_server_new(p->talk.loop, &s, &p->talk.server, NULL), 0);
    struct pq_address a = pq_http2_server_address(p->talk.server);
    p->client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(p->client, (struct sockaddr *)&a.sa, a.len), 0);
}

static void close_place(struct place *p)
{
    if (p->client >= 0)
        close(p->client);
    pq_http2_server_free(p->talk.server);
    ev_loop_destroy(p->talk.loop);
}

static void say(const struct place *p, const void *bytes, size_t len)
{
    assert_int_equal(send(p->client, bytes, len, MSG_NOSIGNAL), len);
}

static void request(const struct place *p, const char *block, size_t len, uint8_t stream)
{
    const uint8_t head[] = {0, 0, (uint8_t)len, 1, 5, 0, 0, 0, stream};
    say(p, head, sizeof head);
    say(p, block, len);
}

static void turn_until(struct place *p, const bool *done, int64_t ns)
{
    int64_t until = pq_clock_ns() + ns;
    while (!*done && pq_clock_ns() < until)
        ev_run(p->talk.loop, EVRUN_NOWAIT);
}

static void on_drained(void *context) { *(bool *)context = true; }

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* What can be sent no more was once waited for without end. */
static void drain_ends(void **state)
{
    static const struct {
        const char *name;
        bool kill_first, hold;
    } rows[] = {
        {"killed before the answer is sent", true, false},
        {"killed while the answer is computed", false, true},
        {"killed at some time", false, false},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++)
        for (int n = 0; n < TRIES; n++) {
            struct place p;
            open_place(&p);
            p.kill_first = rows[i].kill_first;
            p.hold = rows[i].hold;
            say(&p, PREFACE SETTINGS, sizeof PREFACE SETTINGS - 1);
            request(&p, HEAD, sizeof HEAD - 1, 1);
            request(&p, HEAD, sizeof HEAD - 1, 3);
            for (int turns = 0; rows[i].kill_first ? !p.served : turns < n % 10; turns++)
                ev_run(p.talk.loop, EVRUN_NOWAIT);
            while (rows[i].hold && p.served < 2)
                ev_run(p.talk.loop, EVRUN_NOWAIT);
            if (p.client >= 0)
                kill_client(&p);
            if (p.held[1] && n % 2) /* before the server hears of the client's end */
                answer(TAKE(p.held[1]));
            pq_http2_server_drain(p.talk.server, on_drained, &p.ended);
            turn_until(&p, &p.ended, 900 * MS);
            if (!p.ended)
                fail_msg("%s, try %d: the drain does not end", rows[i].name, n);
            for (size_t h = 0; h < PQ_COUNT(p.held); h++)
                if (p.held[h])
                    answer(p.held[h]);
            close_place(&p);
        }
}

/* --- fields ------------------------------------------------------------------------------------------------------- */

/* The error code of the RST_STREAM for stream 1 among the frames; -1: none. */
static int reset_code(const uint8_t *at, size_t len)
{
    while (len >= 9) {
        size_t n = (size_t)at[0] << 16 | (size_t)at[1] << 8 | at[2];
        if (len < 9 + n)
            return -1;
        if (at[3] == 3 && at[8] == 1)
            return at[12];
        at += 9 + n;
        len -= 9 + n;
    }
    return -1;
}

#define FIELD(name, value) HEAD "\x00" name value
#define ROW(text)          text, sizeof(text) - 1

/* RFC 9113, 8.2.1. */
static void malformed_fields(void **state)
{
    static const struct {
        const char *name, *block;
        size_t len;
        bool good;
    } rows[] = {
        {"plain",
         ROW(FIELD("\x01"
                   "x",
                   "\x03"
                   "a b")),
         true},
        {"tab inside",
         ROW(FIELD("\x01"
                   "x",
                   "\x03"
                   "a\tb")),
         true},
        {"high octets",
         ROW(FIELD("\x01"
                   "x",
                   "\x02"
                   "\xc3\xa9")),
         true},
        {"empty",
         ROW(FIELD("\x01"
                   "x",
                   "\x00")),
         true},
        {"CR",
         ROW(FIELD("\x01"
                   "x",
                   "\x03"
                   "a\rb")),
         false},
        {"LF",
         ROW(FIELD("\x01"
                   "x",
                   "\x03"
                   "a\nb")),
         false},
        {"NUL",
         ROW(FIELD("\x01"
                   "x",
                   "\x03"
                   "a\0b")),
         false},
        {"CR LF and a field",
         ROW(FIELD("\x01"
                   "x",
                   "\x06"
                   "a\r\nb:c")),
         false},
        {"space in front",
         ROW(FIELD("\x01"
                   "x",
                   "\x02"
                   " a")),
         false},
        {"tab at the end",
         ROW(FIELD("\x01"
                   "x",
                   "\x02"
                   "a\t")),
         false},
        {"LF in the name",
         ROW(FIELD("\x02"
                   "x\n",
                   "\x01"
                   "a")),
         false},
        {"NUL in the name",
         ROW(FIELD("\x02"
                   "x\0",
                   "\x01"
                   "a")),
         false},
        {"space in the name",
         ROW(FIELD("\x02"
                   "x ",
                   "\x01"
                   "a")),
         false},
        {"upper case",
         ROW(FIELD("\x01"
                   "X",
                   "\x01"
                   "a")),
         false},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct place p;
        uint8_t bytes[4096];
        size_t len = 0;
        open_place(&p);
        say(&p, PREFACE SETTINGS, sizeof PREFACE SETTINGS - 1);
        request(&p, rows[i].block, rows[i].len, 1);
        request(&p, HEAD, sizeof HEAD - 1, 3); /* the others on the connection are served */
        int want = rows[i].good ? 2 : 1;
        for (int64_t until = pq_clock_ns() + 2 * PQ_NS_PER_S; pq_clock_ns() < until;) {
            ev_run(p.talk.loop, EVRUN_NOWAIT);
            ssize_t n = recv(p.client, bytes + len, sizeof bytes - len, MSG_DONTWAIT);
            if (n > 0)
                len += (size_t)n;
            if (p.served >= want && (rows[i].good || reset_code(bytes, len) >= 0))
                break;
        }
        int code = reset_code(bytes, len);
        if (p.served != want || code != (rows[i].good ? -1 : 1 /* PROTOCOL_ERROR */))
            fail_msg("%s: served %d, reset %d", rows[i].name, p.served, code);
        close_place(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(drain_ends), cmocka_unit_test(malformed_fields)};
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
