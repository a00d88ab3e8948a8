#include "proxy/admin.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../alloc.h"
#include "base/clock.h"
#include "net/tcp.h"
#include "proxy/control.h"
#include "proxy/metrics.h"

/* The test plays the supervisor, and clients. */
struct world {
    struct pq_shared *shared;
    struct pq_control control;
    struct pq_address at;
    pid_t pid;
};

static void expect(struct world *w, enum pq_control_type type, struct pq_control_message *out)
{
    int e;
    struct pollfd p = {.fd = w->control.fd, .events = POLLIN};
    while ((e = pq_control_receive(&w->control, out)) == PQ_E_WANT_READ)
        assert_int_equal(poll(&p, 1, 20000), 1);
    assert_int_equal(e, 0);
    if (out->type != type)
        fail_msg("got %s: %s", pq_control_type_name(out->type), out->text);
}

static int begin(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct pq_why why = {""};
    struct pq_control_message m;
    int listening = -1, other = -1;
    assert_non_null(w);
    assert_int_equal(pq_shared_new(&w->shared), 0);
    assert_int_equal(pq_control_pair(&w->control, &other), 0);
    assert_int_equal(pq_address_parse("127.0.0.1:0", &w->at, &why), 0);
    assert_int_equal(pq_tcp_listen(&w->at, 0, &listening, &why), 0);
    w->at = pq_address_local(listening);
    fflush(stdout);
    w->pid = fork();
    if (w->pid == 0) {
        close(w->control.fd);
        _exit(pq_admin_run(&(struct pq_admin_how){
            .shared = w->shared, .control = other, .listening = listening, .log_fd = -1, .contain = NULL}));
    }
    close(listening);
    close(other);
    expect(w, PQ_CONTROL_READY, &m);
    w->shared->log_level = PQ_LOG_INFO;
    *state = w;
    return 0;
}

static int end(void **state)
{
    struct world *w = *state;
    int status;
    pq_control_free(&w->control); /* its end is the admin process's, too */
    assert_int_equal(waitpid(w->pid, &status, 0), w->pid);
    assert_int_equal(status, 0);
    pq_shared_free(w->shared);
    free(w);
    return 0;
}

static int client(const struct world *w)
{
    int fd = socket(w->at.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = 40};
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(fd, (const struct sockaddr *)&w->at.sa, w->at.len), 0);
    return fd;
}

static int asking(const struct world *w, const char *method, const char *path, const char *body)
{
    char text[1024];
    int fd = client(w);
    int n = snprintf(text, sizeof text,
                     "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s", method,
                     path, strlen(body), body);
    assert_int_equal(write(fd, text, (size_t)n), n);
    return fd;
}

/* The body; its status must be that. */
static const char *answer(int fd, int status)
{
    static char text[1 << 20];
    size_t len = 0;
    int got = 0;
    for (ssize_t n; (n = read(fd, text + len, sizeof text - 1 - len)) > 0;)
        len += (size_t)n;
    text[len] = '\0';
    close(fd);
    const char *body = strstr(text, "\r\n\r\n");
    if (sscanf(text, "HTTP/1.1 %d", &got) != 1 || got != status || !body)
        fail_msg("status %d, not %d: %s", got, status, text);
    return body + 4;
}

static const char *get(const struct world *w, const char *path, int status)
{
    return answer(asking(w, "GET", path, ""), status);
}

static int file_with(const char *text)
{
    int fd = memfd_create("file", MFD_CLOEXEC);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    return fd;
}

static void say(struct world *w, enum pq_control_type type, int64_t number, int status, const char *text, int fd)
{
    struct pq_control_message m = {.type = type, .status = status, .generation = number};
    snprintf(m.text, sizeof m.text, "%s", text);
    m.fd[0] = fd;
    m.fd_count = fd >= 0;
    assert_int_equal(pq_control_send(&w->control, &m), 0);
    pq_closep(&fd);
}

static void one_worker(struct world *w, bool ready)
{
    pq_shared_use(w->shared, 0);
    w->shared->worker[0].wanted = 1;
    w->shared->worker[0].pid = 123;
    w->shared->worker[0].ready = ready;
}

static void health_and_readiness_follow_the_workers(void **state)
{
    struct world *w = *state;
    assert_string_equal(get(w, "/healthz", 503), "{\"healthy\":false,\"reason\":\"no worker lives\",\"workers\":{"
                                                 "\"wanted\":0,\"up\":0,\"ready\":0}}\n");
    assert_non_null(strstr(get(w, "/ready", 503), "\"reason\":\"starting\""));
    one_worker(w, false);
    assert_string_equal(get(w, "/healthz", 200),
                        "{\"healthy\":true,\"workers\":{\"wanted\":1,\"up\":1,\"ready\":0}}\n");
    w->shared->state = PQ_SHARED_SERVING;
    assert_non_null(strstr(get(w, "/ready", 503), "\"reason\":\"no worker serves\""));
    one_worker(w, true);
    assert_string_equal(get(w, "/ready", 200), "{\"ready\":true,\"workers\":{\"wanted\":1,\"up\":1,\"ready\":1}}\n");
    w->shared->state = PQ_SHARED_DRAINING;
    assert_non_null(strstr(get(w, "/ready", 503), "\"reason\":\"draining\""));
    get(w, "/healthz", 200);
    pq_shared_clear(&w->shared->worker[0]);
    get(w, "/healthz", 503);
}

static void metrics_come_from_shared_memory(void **state)
{
    struct world *w = *state;
    one_worker(w, true);
    pq_metrics_accepted(&w->shared->worker[0].counters, PQ_PROXY_EGRESS);
    w->shared->worker[0].restarts = 2;
    w->shared->worker[0].log_dropped = 5;
    w->shared->generation = 4;
    w->shared->reloads_refused = 1;
    w->shared->reload_refused = 1;
    static const char *const lines[] = {
        "\npqplane_connections_open{direction=\"egress\"} 1\n",
        "\npqplane_worker_up{worker=\"0\"} 1\n",
        "\npqplane_worker_restarts_total{worker=\"0\"} 2\n",
        "\npqplane_log_lines_dropped_total 5\n",
        "\npqplane_config_generation 4\n",
        "\npqplane_config_reloads_total{result=\"refused\"} 1\n",
        "\npqplane_config_last_reload_successful 0\n",
        ",tls_library=\"OpenSSL 3.",
    };
    const char *text = get(w, "/metrics", 200);
    for (size_t i = 0; i < PQ_COUNT(lines); i++)
        if (!strstr(text, lines[i]))
            fail_msg("no %s", lines[i]);
}

static void the_view_is_the_config_and_its_certificates(void **state)
{
    struct world *w = *state;
    static const char view[] =
        "{\"generation\":1,\"certificates\":[{\"listener\":\"sbi\",\"direction\":\"ingress\","
        "\"identity\":0,\"algorithm\":\"ML-DSA-65\",\"until_unix\":1800000000}],\"authorities\":[{\"file\":\"ca\","
        "\"number\":1,\"name\":"
        "\"CN=r\",\"until_unix\":1900000000}],\"revocation_lists\":[{\"file\":\"l\",\"number\":0,"
        "\"name\":\"CN=i\",\"until_unix\":1700000000},{\"file\":\"l\",\"number\":1,\"name\":"
        "\"CN=endless\"}]}\n";
    static const char line[] = "pqplane_certificate_expiry_timestamp_seconds{direction=\"ingress\",listener=\"sbi\","
                               "identity=\"0\",algorithm=\"ML-DSA-65\"} 1800000000\n";
    get(w, "/config", 503);
    say(w, PQ_CONTROL_VIEW, 1, 0, "", file_with(view));
    assert_string_equal(get(w, "/config", 200), view);
    const char *text = get(w, "/metrics", 200);
    assert_non_null(strstr(text, line));
    assert_non_null(strstr(text, "\npqplane_authority_expiry_timestamp_seconds{file=\"ca\",number=\"1\",name=\"CN=r\"} "
                                 "1900000000\n"));
    assert_non_null(strstr(text, "\npqplane_crl_next_update_timestamp_seconds{file=\"l\",number=\"0\",name=\"CN=i\"} "
                                 "1700000000\n# "));
    say(w, PQ_CONTROL_VIEW, 2, 0, "", file_with("{\"certificates\":[]}"));
    assert_string_equal(get(w, "/config", 200), "{\"certificates\":[]}");
    assert_null(strstr(get(w, "/metrics", 200), line));
    static const char *const broken[] = {"", "{", "no"};
    for (size_t i = 0; i < PQ_COUNT(broken); i++) {
        say(w, PQ_CONTROL_VIEW, 3, 0, "", file_with(broken[i]));
        get(w, "/config", 503);
        get(w, "/metrics", 200);
    }
    say(w, PQ_CONTROL_VIEW, 4, 0, "", -1);
    get(w, "/config", 503);
    say(w, PQ_CONTROL_VIEW, 5, 0, "", file_with(view));
    get(w, "/config", 200);
}

static void the_log_level_is_everyones(void **state)
{
    struct world *w = *state;
    assert_string_equal(get(w, "/log-level", 200), "{\"level\":\"info\"}\n");
    assert_string_equal(answer(asking(w, "PUT", "/log-level", "debug"), 200), "{\"level\":\"debug\"}\n");
    assert_int_equal(w->shared->log_level, PQ_LOG_DEBUG);
    answer(asking(w, "PUT", "/log-level", "loud"), 400);
    answer(asking(w, "PUT", "/log-level", ""), 400);
    assert_int_equal(w->shared->log_level, PQ_LOG_DEBUG);
    answer(asking(w, "PUT", "/log-level", "{\"level\": \"error\"}"), 200);
    assert_int_equal(w->shared->log_level, PQ_LOG_ERROR);
}

static void requests_go_to_the_supervisor_and_back(void **state)
{
    struct world *w = *state;
    struct pq_control_message m;
    int reload = asking(w, "POST", "/reload", "");
    expect(w, PQ_CONTROL_RELOAD, &m);
    int64_t first = m.generation;
    int drain = asking(w, "POST", "/drain", "");
    expect(w, PQ_CONTROL_DRAIN, &m);
    assert_int_not_equal(m.generation, first);
    say(w, PQ_CONTROL_ANSWER, m.generation, 0, "", -1);
    assert_string_equal(answer(drain, 202), "{\"draining\":true}\n");
    w->shared->generation = 7;
    say(w, PQ_CONTROL_ANSWER, first, 0, "", -1);
    assert_string_equal(answer(reload, 200), "{\"generation\":7}\n");
    reload = asking(w, "POST", "/reload", "");
    expect(w, PQ_CONTROL_RELOAD, &m);
    say(w, PQ_CONTROL_ANSWER, m.generation, PQ_E_CONFIG, "p.yaml:1:2: \"x\" is wrong", -1);
    assert_string_equal(answer(reload, 422), "{\"error\":\"p.yaml:1:2: \\\"x\\\" is wrong\"}\n");
    say(w, PQ_CONTROL_ANSWER, 99999, 0, "", -1); /* to nobody */
    get(w, "/ready", 503);
}

/* Who asks meanwhile waits for the next ones, together with others. */
static void one_question_of_a_kind_at_a_time(void **state)
{
    struct world *w = *state;
    struct pq_control_message m;
    int first = asking(w, "GET", "/connections", ""), later[3];
    expect(w, PQ_CONTROL_CONNECTIONS, &m);
    for (size_t i = 0; i < PQ_COUNT(later); i++)
        later[i] = asking(w, "GET", "/connections", "");
    get(w, "/healthz", 503); /* behind them */
    assert_int_equal(pq_control_receive(&w->control, &(struct pq_control_message){0}), PQ_E_WANT_READ);
    say(w, PQ_CONTROL_ANSWER, m.generation, 0, "", file_with("{\"id\":1}\n{\"id\":2}\n"));
    assert_string_equal(answer(first, 200), "{\"id\":1}\n{\"id\":2}\n");
    expect(w, PQ_CONTROL_CONNECTIONS, &m);
    say(w, PQ_CONTROL_ANSWER, m.generation, 0, "", file_with("{\"id\":3}\n"));
    for (size_t i = 0; i < PQ_COUNT(later); i++)
        assert_string_equal(answer(later[i], 200), "{\"id\":3}\n");
    first = asking(w, "GET", "/connections", "");
    expect(w, PQ_CONTROL_CONNECTIONS, &m);
    say(w, PQ_CONTROL_ANSWER, m.generation, 0, "", file_with(""));
    assert_string_equal(answer(first, 200), "");
    first = asking(w, "GET", "/connections", "");
    expect(w, PQ_CONTROL_CONNECTIONS, &m);
    say(w, PQ_CONTROL_ANSWER, m.generation, 0, "", -1);
    answer(first, 503);
}

/* A listing that took long is not begun again at once, a reload only a second after the last one began. */
static void workers_get_a_rest(void **state)
{
    struct world *w = *state;
    static const struct {
        const char *method, *path;
        enum pq_control_type type;
        int64_t after_asked, after_answered;
    } rows[] = {{"GET", "/connections", PQ_CONTROL_CONNECTIONS, 0, 190 * PQ_NS_PER_MS},
                {"POST", "/reload", PQ_CONTROL_RELOAD, 990 * PQ_NS_PER_MS, 0}};
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_control_message m;
        int64_t asked = pq_clock_ns();
        int fd = asking(w, rows[i].method, rows[i].path, "");
        expect(w, rows[i].type, &m);
        usleep(200000);
        int64_t answered = pq_clock_ns();
        say(w, PQ_CONTROL_ANSWER, m.generation, 0, "", file_with(""));
        answer(fd, 200);
        fd = asking(w, rows[i].method, rows[i].path, "");
        expect(w, rows[i].type, &m);
        assert_true(pq_clock_ns() - asked >= rows[i].after_asked);
        assert_true(pq_clock_ns() - answered >= rows[i].after_answered);
        say(w, PQ_CONTROL_ANSWER, m.generation, 0, "", file_with(""));
        answer(fd, 200);
    }
}

static void who_asks_and_leaves_harms_nobody(void **state)
{
    struct world *w = *state;
    struct pq_control_message m;
    int left = asking(w, "POST", "/reload", "");
    expect(w, PQ_CONTROL_RELOAD, &m);
    close(left);
    say(w, PQ_CONTROL_ANSWER, m.generation, 0, "", -1);
    get(w, "/ready", 503);
}

/* The supervisor's end answers who still waits. */
static void an_end_answers_all(void **state)
{
    struct world *w = *state;
    struct pq_control_message m;
    int fd = asking(w, "POST", "/reload", "");
    expect(w, PQ_CONTROL_RELOAD, &m);
    say(w, PQ_CONTROL_END, 0, 0, "", -1);
    assert_string_equal(answer(fd, 503), "{\"error\":\"the sidecar ends\"}\n");
}

/* Its listening socket lives on elsewhere: who is connected already must not pay for that. */
static void who_is_connected_at_the_end_is_answered(void **state)
{
    struct world *w = *state;
    static const char request[] = "GET /log-level HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char text[1000];
    int quiet = client(w), kept = client(w);
    assert_int_equal(write(kept, request, sizeof request - 1), sizeof request - 1);
    assert_true(read(kept, text, sizeof text) > 0);
    say(w, PQ_CONTROL_END, 0, 0, "", -1);
    assert_int_equal(read(kept, text, sizeof text), 0);
    assert_int_equal(write(quiet, request, sizeof request - 1), sizeof request - 1);
    assert_true(read(quiet, text, sizeof text) > 0);
    assert_memory_equal(text, "HTTP/1.1 200", 12);
    close(quiet);
    close(kept);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(health_and_readiness_follow_the_workers, begin, end),
        cmocka_unit_test_setup_teardown(metrics_come_from_shared_memory, begin, end),
        cmocka_unit_test_setup_teardown(the_view_is_the_config_and_its_certificates, begin, end),
        cmocka_unit_test_setup_teardown(the_log_level_is_everyones, begin, end),
        cmocka_unit_test_setup_teardown(requests_go_to_the_supervisor_and_back, begin, end),
        cmocka_unit_test_setup_teardown(one_question_of_a_kind_at_a_time, begin, end),
        cmocka_unit_test_setup_teardown(workers_get_a_rest, begin, end),
        cmocka_unit_test_setup_teardown(who_asks_and_leaves_harms_nobody, begin, end),
        cmocka_unit_test_setup_teardown(an_end_answers_all, begin, end),
        cmocka_unit_test_setup_teardown(who_is_connected_at_the_end_is_answered, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
