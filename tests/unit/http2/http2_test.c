#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../alloc.h"
#include "base/clock.h"
#include "talk.h"

enum { MS = 1000 * 1000 };

static struct pq_http2_exchange *held; /* by "/hold" */
static int served;

static void answer_body(struct pq_http2_exchange *x, int status, size_t len, bool trailers)
{
    static const struct pq_http2_field fields[] = {{"content-type", "text/plain"}};
    static const struct pq_http2_field trailer[] = {{"checksum", "7"}, {"other", ""}};
    struct pq_buf body = {.cap = len};
    assert_int_equal(pq_buf_reserve(&body, len), 0);
    for (size_t i = 0; i < len; i++)
        body.at[body.len++] = (uint8_t)('a' + i % 26);
    pq_http2_respond(x, &(struct pq_http2_answer){.status = status,
                                                  .fields = fields,
                                                  .field_count = 1,
                                                  .body = &body,
                                                  .trailers = trailer,
                                                  .trailer_count = trailers ? 2 : 0});
    pq_buf_free(&body);
}

/* "/N": a body of N bytes; "/trailers"; "/echo"; "/hold": answered later. */
static void serve(void *context, struct pq_http2_exchange *x)
{
    (void)context;
    const char *path = x->request.path;
    served++;
    if (x->refused) {
        pq_http2_respond(x, &(struct pq_http2_answer){.status = x->refused});
    } else if (strcmp(path, "/hold") == 0) {
        assert_null(held);
        held = x;
    } else if (strcmp(path, "/echo") == 0) {
        struct pq_buf body = x->request.body;
        x->request.body = (struct pq_buf){.cap = body.cap};
        pq_http2_respond(x, &(struct pq_http2_answer){.status = 200, .body = &body});
    } else {
        answer_body(x, 200, strcmp(path, "/trailers") == 0 ? 5 : (size_t)strtoul(path + 1, NULL, 10),
                    strcmp(path, "/trailers") == 0);
    }
}

static void open_talk(struct talk *t, struct pq_http2_server_settings s, struct pq_http2_client_settings c)
{
    *t = (struct talk){.loop = ev_loop_new(EVFLAG_AUTO)};
    s.name = "test";
    s.address = loopback();
    s.request = serve;
    served = 0;
    assert_int_equal(pq_http2_server_new(t->loop, &s, &t->server, NULL), 0);
    struct pq_address a = pq_http2_server_address(t->server);
    pq_address_text(&a, t->authority);
    assert_int_equal(pq_http2_client_new(t->loop, &c, &t->client), 0);
}

static void close_talk(struct talk *t)
{
    pq_http2_client_free(t->client);
    pq_http2_server_free(t->server);
    ev_loop_destroy(t->loop);
}

static void turn(struct talk *t, int64_t ns)
{
    int64_t until = pq_clock_ns() + ns;
    while (pq_clock_ns() < until)
        ev_run(t->loop, EVRUN_NOWAIT);
}

static void bodies(void **state)
{
    static const size_t sizes[] = {0, 1, 16383, 16384, 65535, 65536, 300000, 1000000};
    struct talk t;
    (void)state;
    open_talk(&t, (struct pq_http2_server_settings){0}, (struct pq_http2_client_settings){0});
    for (size_t i = 0; i < PQ_COUNT(sizes); i++) {
        struct outcome down, up;
        char path[32];
        uint8_t *bytes = malloc(sizes[i] + 1);
        assert_non_null(bytes);
        memset(bytes, 'x', sizes[i] + 1);
        if (sizes[i])
            bytes[sizes[i] - 1] = 'z';
        snprintf(path, sizeof path, "/%zu", sizes[i]);
        ask(&t, "GET", path, pq_span("", 0), &down);
        ask(&t, "POST", "/echo", pq_span(bytes, sizes[i]), &up);
        run(&t);
        free(bytes);
        assert_int_equal(down.error, 0);
        assert_int_equal(down.status, 200);
        assert_int_equal(down.body_len, sizes[i]);
        assert_int_equal(up.error, 0);
        assert_int_equal(up.body_len, sizes[i]);
        if (sizes[i]) {
            assert_int_equal(down.last, 'a' + (sizes[i] - 1) % 26);
            assert_int_equal(up.last, 'z');
        }
    }
    assert_int_equal(pq_http2_server_counts(t.server).connections, 1);
    close_talk(&t);
}

/* Windows of one byte in both directions: slow, but whole. */
static void tiny_windows(void **state)
{
    struct talk t;
    struct outcome down, up;
    uint8_t bytes[3000];
    (void)state;
    open_talk(&t, (struct pq_http2_server_settings){.limits = {.window = 1}},
              (struct pq_http2_client_settings){.limits = {.window = 1}});
    ask(&t, "GET", "/3000", pq_span("", 0), &down);
    ask(&t, "POST", "/echo", pq_span(memset(bytes, 'q', sizeof bytes), sizeof bytes), &up);
    run(&t);
    assert_int_equal(down.body_len, 3000);
    assert_int_equal(up.body_len, 3000);
    assert_int_equal(up.last, 'q');
    close_talk(&t);
}

static void trailers_and_head(void **state)
{
    struct talk t;
    struct outcome trailers, head;
    (void)state;
    open_talk(&t, (struct pq_http2_server_settings){0}, (struct pq_http2_client_settings){0});
    ask(&t, "GET", "/trailers", pq_span("", 0), &trailers);
    ask(&t, "HEAD", "/100", pq_span("", 0), &head);
    run(&t);
    assert_int_equal(trailers.body_len, 5);
    assert_int_equal(trailers.field_count, 4); /* date, content-type, two trailers */
    assert_int_equal(trailers.trailer_at, 2);
    assert_int_equal(head.status, 200);
    assert_int_equal(head.body_len, 0);
    assert_int_equal(head.field_count, 3); /* date, content-type, content-length */
    close_talk(&t);
}

static void limits(void **state)
{
    struct talk t;
    struct outcome fits, over, down;
    static const uint8_t bytes[1001];
    (void)state;
    open_talk(&t, (struct pq_http2_server_settings){.limits = {.body = 1000}},
              (struct pq_http2_client_settings){.limits = {.body = 1000}});
    ask(&t, "POST", "/echo", pq_span(bytes, 1000), &fits);
    run(&t);
    ask(&t, "POST", "/echo", pq_span(bytes, 1001), &over);
    run(&t);
    ask(&t, "GET", "/1001", pq_span("", 0), &down);
    run(&t);
    assert_int_equal(fits.status, 200);
    assert_int_equal(fits.body_len, 1000);
    assert_int_equal(over.status, 413);
    assert_int_equal(down.error, PQ_E_TOO_LONG);
    close_talk(&t);
}

static void header_list_limit(void **state)
{
    struct talk t;
    struct outcome fits, over;
    static char path[PQ_HTTP2_MAX_HEADER_LIST];
    (void)state;
    open_talk(&t, (struct pq_http2_server_settings){0}, (struct pq_http2_client_settings){0});
    memset(path, '0', sizeof path - 1);
    path[0] = '/';
    path[20000] = '\0';
    ask(&t, "GET", path, pq_span("", 0), &fits);
    path[20000] = '0';
    path[PQ_HTTP2_MAX_HEADER_LIST - 100] = '\0'; /* over it with the names and 32 a field */
    ask(&t, "GET", path, pq_span("", 0), &over);
    run(&t);
    assert_int_equal(fits.status, 200);
    assert_int_equal(over.status, 431);
    close_talk(&t);
}

static void fresh_connections_have_times(void **state)
{
    struct talk t;
    struct outcome o[3];
    (void)state;
    open_talk(&t, (struct pq_http2_server_settings){0}, (struct pq_http2_client_settings){.fresh = true});
    for (int i = 0; i < 3; i++)
        ask(&t, "GET", "/5", pq_span("", 0), &o[i]);
    run(&t);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(o[i].status, 200);
        assert_true(o[i].timing.start <= o[i].timing.connect && o[i].timing.connect < o[i].timing.tcp &&
                    o[i].timing.tcp < o[i].timing.end);
        assert_int_equal(o[i].timing.tls, 0);
    }
    assert_int_equal(pq_http2_server_counts(t.server).connections, 3);
    turn(&t, 50 * MS);
    assert_int_equal(pq_http2_server_counts(t.server).open, 0);
    close_talk(&t);
}

static void kept_connections_have_times_once(void **state)
{
    struct talk t;
    struct outcome first, second;
    (void)state;
    open_talk(&t, (struct pq_http2_server_settings){0}, (struct pq_http2_client_settings){0});
    ask(&t, "GET", "/5", pq_span("", 0), &first);
    run(&t);
    ask(&t, "GET", "/5", pq_span("", 0), &second);
    run(&t);
    assert_true(first.timing.tcp > 0);
    assert_int_equal(second.timing.tcp, 0);
    close_talk(&t);
}

/* Each side's idle end is orderly: the next request makes a new connection and none is lost. */
static void idle(void **state)
{
    static const struct {
        int64_t server, client;
    } rows[] = {{2 * MS, 0}, {0, 2 * MS}};
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct talk t;
        struct outcome o;
        open_talk(&t, (struct pq_http2_server_settings){.timeouts = {.idle = rows[i].server}},
                  (struct pq_http2_client_settings){.timeouts = {.idle = rows[i].client}});
        for (int n = 0; n < 5; n++) {
            ask(&t, "GET", "/5", pq_span("", 0), &o);
            run(&t);
            assert_int_equal(o.status, 200);
            turn(&t, 20 * MS);
            assert_int_equal(pq_http2_server_counts(t.server).open, 0);
        }
        assert_int_equal(pq_http2_server_counts(t.server).connections, 5);
        close_talk(&t);
    }
}

static void timeouts(void **state)
{
    struct talk t;
    struct outcome slow, next;
    (void)state;
    open_talk(&t, (struct pq_http2_server_settings){0},
              (struct pq_http2_client_settings){.timeouts = {.request = 30 * MS}});
    ask(&t, "GET", "/hold", pq_span("", 0), &slow);
    run(&t);
    assert_int_equal(slow.error, PQ_E_TIMEOUT);
    assert_string_equal(slow.label, "TIMEOUT");
    turn(&t, 5 * MS);
    /* The stream is gone: the late answer is dropped. */
    answer_body(held, 200, 10, false);
    held = NULL;
    ask(&t, "GET", "/5", pq_span("", 0), &next);
    run(&t);
    assert_int_equal(next.status, 200);
    assert_int_equal(pq_http2_server_counts(t.server).connections, 1);
    close_talk(&t);
}

static void nobody_listens(void **state)
{
    struct talk t;
    struct outcome o[2];
    (void)state;
    for (int fresh = 0; fresh < 2; fresh++) {
        open_talk(&t, (struct pq_http2_server_settings){0}, (struct pq_http2_client_settings){.fresh = fresh});
        pq_http2_server_free(t.server);
        t.server = NULL;
        ask(&t, "GET", "/5", pq_span("", 0), &o[0]);
        ask(&t, "GET", "/5", pq_span("", 0), &o[1]);
        run(&t);
        assert_int_equal(o[0].error, PQ_E_REFUSED);
        assert_int_equal(o[1].error, PQ_E_REFUSED);
        close_talk(&t);
    }
}

static void freed_client_ends_calls(void **state)
{
    struct talk t;
    struct outcome o[2];
    (void)state;
    open_talk(&t, (struct pq_http2_server_settings){0}, (struct pq_http2_client_settings){0});
    ask(&t, "GET", "/hold", pq_span("", 0), &o[0]);
    turn(&t, 10 * MS);
    assert_non_null(held);
    ask(&t, "GET", "/5", pq_span("", 0), &o[1]);
    pq_http2_client_free(t.client);
    t.client = NULL;
    assert_int_equal(o[0].error, PQ_E_INTERRUPTED);
    assert_int_equal(o[1].error, PQ_E_INTERRUPTED);
    pq_http2_server_free(t.server);
    t.server = NULL;
    answer_body(held, 200, 1, false); /* also after the server's end */
    held = NULL;
    ev_loop_destroy(t.loop);
}

static void on_drained(void *context) { *(bool *)context = true; }

/* What runs is finished, what comes later is refused, and done() is told once all is over. */
static void drain(void **state)
{
    struct talk t;
    struct outcome slow, big, late;
    bool done = false;
    (void)state;
    open_talk(&t, (struct pq_http2_server_settings){0}, (struct pq_http2_client_settings){0});
    ask(&t, "GET", "/hold", pq_span("", 0), &slow);
    turn(&t, 10 * MS);
    ask(&t, "GET", "/900000", pq_span("", 0), &big);
    pq_http2_server_drain(t.server, on_drained, &done);
    turn(&t, 20 * MS);
    assert_false(done);
    assert_true(big.done && big.body_len == 900000);
    answer_body(held, 200, 10, false);
    held = NULL;
    run(&t);
    assert_int_equal(slow.status, 200);
    turn(&t, 20 * MS);
    assert_true(done);
    ask(&t, "GET", "/5", pq_span("", 0), &late);
    run(&t);
    assert_int_equal(late.error, PQ_E_REFUSED);
    close_talk(&t);
}

/* Many calls at once share connections within the limits of both sides. */
static void many_at_once(void **state)
{
    enum { MANY = 1000 };
    static struct outcome o[MANY];
    struct talk t;
    (void)state;
    open_talk(&t, (struct pq_http2_server_settings){.limits = {.streams = 10}},
              (struct pq_http2_client_settings){.limits = {.connections = 3}});
    for (int i = 0; i < MANY; i++)
        ask(&t, "GET", "/1000", pq_span("", 0), &o[i]);
    run(&t);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(o[i].status, 200);
    assert_uint_in_range(pq_http2_server_counts(t.server).connections, 1, 3);
    assert_int_equal(served, MANY);
    close_talk(&t);
}

static void too_many_connections(void **state)
{
    struct talk t;
    struct outcome o[2];
    (void)state;
    open_talk(&t, (struct pq_http2_server_settings){.limits = {.connections = 1}},
              (struct pq_http2_client_settings){.fresh = true});
    ask(&t, "GET", "/hold", pq_span("", 0), &o[0]);
    turn(&t, 10 * MS);
    ask(&t, "GET", "/5", pq_span("", 0), &o[1]);
    turn(&t, 20 * MS);
    assert_true(o[1].done && o[1].error != 0);
    assert_int_equal(pq_http2_server_counts(t.server).refused_connections, 1);
    answer_body(held, 200, 1, false);
    held = NULL;
    run(&t);
    assert_int_equal(o[0].status, 200);
    close_talk(&t);
}

/* The n-th allocation of ours fails: a clean error or a failed call, no crash and no leak. */
static void without_memory(void **state)
{
    (void)state;
    for (long n = 1; n < 200; n++) {
        struct talk t = {.loop = ev_loop_new(EVFLAG_AUTO)};
        struct pq_http2_server_settings s = {
            .name = "test", .address = loopback(), .request = serve, .timeouts = {.request = 20 * MS}};
        struct pq_http2_client_settings c = {.timeouts = {.request = 20 * MS}};
        struct pq_http2_call call = {
            .method = "GET", .path = "/echo", .done = on_outcome}; /* allocates nothing of the test's */
        struct outcome o = {.talk = &t};
        ev_now_update(t.loop);
        pq_alloc_fail_at(n);
        int e = pq_http2_server_new(t.loop, &s, &t.server, NULL);
        if (e == 0) {
            struct pq_address a = pq_http2_server_address(t.server);
            pq_address_text(&a, t.authority);
            call.authority = t.authority;
            call.context = &o;
            e = pq_http2_client_new(t.loop, &c, &t.client);
        }
        if (e == 0) {
            t.pending = 1;
            e = pq_http2_client_call(t.client, &call, NULL);
            if (e < 0)
                t.pending = 0;
            run(&t);
        }
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        close_talk(&t);
        if (e < 0)
            assert_int_equal(e, PQ_E_NOMEM);
        if (!reached) {
            assert_int_equal(o.status, 200);
            return;
        }
    }
    fail_msg("the call never ran without meeting a failing allocation");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies),
        cmocka_unit_test(tiny_windows),
        cmocka_unit_test(trailers_and_head),
        cmocka_unit_test(limits),
        cmocka_unit_test(header_list_limit),
        cmocka_unit_test(fresh_connections_have_times),
        cmocka_unit_test(kept_connections_have_times_once),
        cmocka_unit_test(idle),
        cmocka_unit_test(timeouts),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(freed_client_ends_calls),
        cmocka_unit_test(drain),
        cmocka_unit_test(many_at_once),
        cmocka_unit_test(too_many_connections),
        cmocka_unit_test(without_memory),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
