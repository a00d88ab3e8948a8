#include "proxy/admin_http.h"

#include <ev.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "../alloc.h"
#include "net/tcp.h"

/* A server on a thread of its own; tests are clients. */
struct world {
    struct ev_loop *loop;
    struct pq_admin_http *http;
    struct pq_address at;
    pthread_t thread;
    ev_async stop, later;
    struct pq_admin_exchange *held;
    enum pq_admin_action last;
    char body[PQ_ADMIN_BODY_MAX + 1];
};

static void ask(void *context, struct pq_admin_exchange *x, enum pq_admin_action action, struct pq_span body)
{
    struct world *w = context;
    w->last = action;
    snprintf(w->body, sizeof w->body, "%.*s", (int)body.len, (const char *)body.at);
    if (action == PQ_ADMIN_RELOAD) {
        w->held = x;
    } else if (action == PQ_ADMIN_CONNECTIONS) {
        int fd = memfd_create("rows", MFD_CLOEXEC);
        assert_int_equal(write(fd, "a row\n", 6), 6);
        pq_admin_answer_file(x, "application/x-ndjson", fd, 6);
    } else {
        pq_admin_answer(x, 200, "text/plain", pq_span_text("fine\n"));
    }
}

static void on_stop(struct ev_loop *loop, ev_async *a, int revents)
{
    (void)a, (void)revents;
    ev_break(loop, EVBREAK_ALL);
}

static void on_later(struct ev_loop *loop, ev_async *a, int revents)
{
    (void)loop, (void)revents;
    struct world *w = a->data;
    if (w->held)
        pq_admin_answer_error(TAKE(w->held), 503, "later \"on\"");
}

static void *serve(void *context)
{
    struct world *w = context;
    ev_run(w->loop, 0);
    return NULL;
}

static void begin(struct world *w, const char *address, int exchange_s)
{
    struct pq_why why = {""};
    int fd = -1;
    memset(w, 0, sizeof *w);
    w->loop = ev_loop_new(0);
    assert_int_equal(pq_address_parse(address, &w->at, &why), 0);
    assert_int_equal(pq_tcp_listen(&w->at, 0, &fd, &why), 0);
    w->at = pq_address_local(fd);
    struct pq_admin_http_how how = {.loop = w->loop, .fd = fd, .ask = ask, .context = w, .exchange_s = exchange_s};
    if (pq_admin_http_new(&how, &w->http, &why) < 0)
        fail_msg("%s", why.text);
    ev_async_init(&w->stop, on_stop);
    ev_async_init(&w->later, on_later);
    w->later.data = w;
    ev_async_start(w->loop, &w->stop);
    ev_async_start(w->loop, &w->later);
    assert_int_equal(pthread_create(&w->thread, NULL, serve, w), 0);
}

static void end(struct world *w)
{
    ev_async_send(w->loop, &w->stop);
    pthread_join(w->thread, NULL);
    pq_admin_http_free(w->http);
    ev_loop_destroy(w->loop);
}

static int client(const struct world *w)
{
    int fd = socket(w->at.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = 20};
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(fd, (const struct sockaddr *)&w->at.sa, w->at.len), 0);
    return fd;
}

static void say(int fd, const char *text) { assert_int_equal(write(fd, text, strlen(text)), strlen(text)); }

/* All until the server closes. */
static const char *hear(int fd)
{
    static char text[65536];
    size_t len = 0;
    for (ssize_t n; (n = read(fd, text + len, sizeof text - 1 - len)) > 0;)
        len += (size_t)n;
    text[len] = '\0';
    close(fd);
    return text;
}

static const char *answer_to(const struct world *w, const char *request)
{
    int fd = client(w);
    say(fd, request);
    return hear(fd);
}

#define CLOSE "Host: localhost\r\nConnection: close\r\n"

static void an_answer_has_its_fields(void **state)
{
    (void)state;
    struct world w;
    begin(&w, "127.0.0.1:0", 0);
    const char *text = answer_to(&w, "GET /metrics HTTP/1.1\r\n" CLOSE "\r\n");
    assert_memory_equal(text, "HTTP/1.1 200 OK\r\n", 17);
    assert_non_null(strstr(text, "\r\nContent-Type: text/plain\r\n"));
    assert_non_null(strstr(text, "\r\nCache-Control: no-store\r\n"));
    assert_non_null(strstr(text, "\r\nX-Content-Type-Options: nosniff\r\n"));
    assert_non_null(strstr(text, "\r\n\r\nfine\n"));
    assert_int_equal(w.last, PQ_ADMIN_METRICS);
    text = answer_to(&w, "HEAD /metrics HTTP/1.1\r\n" CLOSE "\r\n");
    assert_memory_equal(text, "HTTP/1.1 200 OK\r\n", 17);
    assert_null(strstr(text, "fine"));
    text = answer_to(&w, "GET /connections HTTP/1.0\r\n\r\n");
    assert_non_null(strstr(text, "\r\n\r\na row\n"));
    end(&w);
}

static void refusals_are_json(void **state)
{
    (void)state;
    struct world w;
    begin(&w, "127.0.0.1:0", 0);
    const char *text = answer_to(&w, "GET /drain HTTP/1.1\r\n" CLOSE "\r\n");
    assert_memory_equal(text, "HTTP/1.1 405 ", 13);
    assert_non_null(strstr(text, "\r\nAllow: POST\r\n"));
    assert_non_null(strstr(text, "\r\nContent-Type: application/json\r\n"));
    assert_non_null(strstr(text, "\r\n\r\n{\"error\":\""));
    text = answer_to(&w, "GET /x HTTP/1.1\r\n" CLOSE "\r\n");
    assert_memory_equal(text, "HTTP/1.1 404 ", 13);
    text = answer_to(&w, "GET /metrics HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    assert_memory_equal(text, "HTTP/1.1 403 ", 13);
    text = answer_to(&w, "GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_memory_equal(text, "HTTP/1.1 400 ", 13);
    text = answer_to(&w, "\x16\x03\x01 what\r\n\r\n");
    assert_null(strstr(text, " 200 "));
    end(&w);
}

static void bodies_come_whole_or_are_refused(void **state)
{
    (void)state;
    struct world w;
    begin(&w, "127.0.0.1:0", 0);
    const char *text = answer_to(&w, "PUT /log-level HTTP/1.1\r\n" CLOSE "Content-Length: 5\r\n\r\ndebug");
    assert_memory_equal(text, "HTTP/1.1 200 OK\r\n", 17);
    assert_string_equal(w.body, "debug");
    text = answer_to(&w, "PUT /log-level HTTP/1.1\r\n" CLOSE
                         "Transfer-Encoding: chunked\r\n\r\n2\r\nde\r\n3\r\nbug\r\n0\r\n\r\n");
    assert_memory_equal(text, "HTTP/1.1 200 OK\r\n", 17);
    assert_string_equal(w.body, "debug");
    text = answer_to(&w, "PUT /log-level HTTP/1.1\r\n" CLOSE "Content-Length: 65537\r\n\r\n");
    assert_memory_equal(text, "HTTP/1.1 413 ", 13);
    char chunks[2048] = "PUT /log-level HTTP/1.1\r\n" CLOSE "Transfer-Encoding: chunked\r\n\r\n101\r\n";
    size_t head = strlen(chunks);
    memset(chunks + head, 'x', 257);
    snprintf(chunks + head + 257, sizeof chunks - head - 257, "\r\n0\r\n\r\n");
    text = answer_to(&w, chunks);
    assert_memory_equal(text, "HTTP/1.1 413 ", 13);
    /* Without end: not even read. */
    int fd = client(&w);
    say(fd, "POST /nothing HTTP/1.1\r\n" CLOSE "Transfer-Encoding: chunked\r\n\r\n");
    snprintf(chunks, sizeof chunks, "400\r\n%1024s\r\n", "");
    while (send(fd, chunks, strlen(chunks), MSG_NOSIGNAL) > 0)
        ;
    assert_null(strstr(hear(fd), " 200 "));
    end(&w);
}

static void an_answer_may_come_later(void **state)
{
    (void)state;
    struct world w;
    begin(&w, "127.0.0.1:0", 0);
    int fd = client(&w), other = client(&w);
    say(fd, "POST /reload HTTP/1.1\r\n" CLOSE "\r\n");
    while (!__atomic_load_n(&w.held, __ATOMIC_ACQUIRE))
        usleep(1000);
    say(other, "GET /metrics HTTP/1.1\r\n" CLOSE "\r\n");
    assert_non_null(strstr(hear(other), "fine"));
    ev_async_send(w.loop, &w.later);
    const char *text = hear(fd);
    assert_memory_equal(text, "HTTP/1.1 503 ", 13);
    assert_non_null(strstr(text, "{\"error\":\"later \\\"on\\\"\"}"));
    /* One that does not wait for its answer harms nobody. */
    fd = client(&w);
    say(fd, "POST /reload HTTP/1.1\r\n" CLOSE "\r\n");
    while (!__atomic_load_n(&w.held, __ATOMIC_ACQUIRE))
        usleep(1000);
    close(fd);
    ev_async_send(w.loop, &w.later);
    assert_non_null(strstr(answer_to(&w, "GET /metrics HTTP/1.1\r\n" CLOSE "\r\n"), "fine"));
    end(&w);
}

static void a_connection_takes_several_requests(void **state)
{
    (void)state;
    struct world w;
    begin(&w, "127.0.0.1:0", 0);
    int fd = client(&w);
    say(fd, "GET /metrics HTTP/1.1\r\nHost: [::1]:5\r\n\r\nGET /ready HTTP/1.1\r\n" CLOSE "\r\n");
    const char *text = hear(fd);
    const char *second = strstr(text + 1, "HTTP/1.1 200 OK");
    assert_memory_equal(text, "HTTP/1.1 200 OK\r\n", 17);
    assert_non_null(second);
    assert_int_equal(w.last, PQ_ADMIN_READY);
    end(&w);
}

/* As many as there is room for, each sending a byte now and then: they are cut, and who waits behind them is served. */
static void who_is_slow_loses_its_place(void **state)
{
    (void)state;
    struct world w;
    int slow[PQ_ADMIN_CLIENTS_MAX];
    begin(&w, "127.0.0.1:0", 1);
    for (size_t i = 0; i < PQ_COUNT(slow); i++) {
        slow[i] = client(&w);
        say(slow[i], "GET /metrics HTTP/1.1\r\nA: ");
    }
    int last = client(&w);
    say(last, "GET /metrics HTTP/1.1\r\n" CLOSE "\r\n");
    struct timeval little = {.tv_usec = 200000};
    setsockopt(last, SOL_SOCKET, SO_RCVTIMEO, &little, sizeof little);
    for (char byte; recv(last, &byte, 1, MSG_PEEK) != 1;)
        for (size_t i = 0; i < PQ_COUNT(slow); i++)
            (void)!send(slow[i], "a", 1, MSG_NOSIGNAL);
    assert_non_null(strstr(hear(last), "fine"));
    for (size_t i = 0; i < PQ_COUNT(slow); i++)
        close(slow[i]);
    end(&w);
}

static void a_large_header_is_refused(void **state)
{
    (void)state;
    struct world w;
    static char request[2 * PQ_ADMIN_MEMORY_MAX];
    begin(&w, "127.0.0.1:0", 0);
    int n = snprintf(request, sizeof request, "GET /metrics HTTP/1.1\r\n" CLOSE "A: ");
    memset(request + n, 'a', sizeof request - (size_t)n - 1);
    int fd = client(&w);
    (void)!send(fd, request, sizeof request - 1, MSG_NOSIGNAL);
    assert_null(strstr(hear(fd), "fine"));
    assert_non_null(strstr(answer_to(&w, "GET /metrics HTTP/1.1\r\n" CLOSE "\r\n"), "fine"));
    end(&w);
}

static void a_unix_socket_takes_any_host(void **state)
{
    (void)state;
    struct world w;
    char path[64];
    snprintf(path, sizeof path, "unix:/tmp/pqplane-admin-test.%d", (int)getpid());
    begin(&w, path, 0);
    const char *text = answer_to(&w, "GET /metrics HTTP/1.1\r\nHost: whatever.example\r\nConnection: close\r\n\r\n");
    assert_memory_equal(text, "HTTP/1.1 200 OK\r\n", 17);
    end(&w);
    unlink(path + strlen("unix:"));
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct world w = {.loop = ev_loop_new(0)};
    struct pq_why why = {""};
    assert_int_equal(pq_address_parse("127.0.0.1:0", &w.at, &why), 0);
    int listening = -1;
    assert_int_equal(pq_tcp_listen(&w.at, 0, &listening, &why), 0);
    struct pq_admin_http_how how = {.loop = w.loop, .fd = listening, .ask = ask, .context = &w};
    pq_alloc_fail_at(1);
    assert_int_equal(pq_admin_http_new(&how, &w.http, &why), PQ_E_NOMEM);
    pq_alloc_fail_at(0);
    close(listening);
    ev_loop_destroy(w.loop);
    /* A request that there is no memory for ends its connection; the next one is served. */
    for (long n = 1;; n++) {
        struct world s;
        begin(&s, "127.0.0.1:0", 0);
        int fd = client(&s);
        pq_alloc_fail_at(n);
        say(fd, "GET /nothing HTTP/1.1\r\n" CLOSE "\r\n");
        const char *text = hear(fd);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        assert_true(text[0] == '\0' || strncmp(text, "HTTP/1.1 404 ", 13) == 0);
        assert_non_null(strstr(answer_to(&s, "GET /metrics HTTP/1.1\r\n" CLOSE "\r\n"), "fine"));
        end(&s);
        if (!reached)
            break;
    }
}

static int ignore_sigpipe(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_has_its_fields),
        cmocka_unit_test(refusals_are_json),
        cmocka_unit_test(bodies_come_whole_or_are_refused),
        cmocka_unit_test(an_answer_may_come_later),
        cmocka_unit_test(a_connection_takes_several_requests),
        cmocka_unit_test(who_is_slow_loses_its_place),
        cmocka_unit_test(a_large_header_is_refused),
        cmocka_unit_test(a_unix_socket_takes_any_host),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, ignore_sigpipe, NULL);
}
