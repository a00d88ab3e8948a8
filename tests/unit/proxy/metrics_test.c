#include "proxy/metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../alloc.h"
#include "base/clock.h"

enum { TEXT_CAP = 4 << 20 };

static struct pq_proxy_counters *some_counters(void)
{
    struct pq_proxy_counters *c = calloc(1, sizeof *c);
    assert_non_null(c);
    return c;
}

static struct pq_tls_info info(const char *group, const char *signature)
{
    return (struct pq_tls_info){.group = group, .signature = signature, .own_signature = "ecdsa", .cpu_ns = 1500000};
}

/* The text of so many workers' counters. */
static char *text_of(struct pq_proxy_counters **workers, size_t count)
{
    struct pq_metrics_worker w[8] = {{0}};
    for (size_t i = 0; i < count; i++)
        w[i] = (struct pq_metrics_worker){.counters = workers[i], .wanted = i < 2, .up = i == 0, .restarts = i};
    const struct pq_metrics_certificate certificates[] = {{"sbi", "ingress", "mldsa65", 0, 1800000000},
                                                          {"a\"b\\c\nd", "egress", "p384", 1, 1700000000}};
    const struct pq_metrics m = {.workers = w,
                                 .worker_count = count,
                                 .certificates = certificates,
                                 .certificate_count = PQ_COUNT(certificates),
                                 .tls_library = "OpenSSL 3.6.0",
                                 .started = 1790000000,
                                 .generation = 7,
                                 .reloads = 5,
                                 .reloads_refused = 2,
                                 .reload_refused = true,
                                 .log_lines_dropped = 3};
    struct pq_buf out = {.cap = TEXT_CAP};
    assert_int_equal(pq_metrics_text(&m, &out), 0);
    return (char *)out.at;
}

static void assert_line(const char *text, const char *line)
{
    const char *at = strstr(text, line);
    size_t len = strlen(line);
    while (at && ((at != text && at[-1] != '\n') || at[len] != '\n'))
        at = strstr(at + 1, line);
    if (!at)
        fail_msg("no line %s", line);
}

static void a_connection_counts_from_accept_to_end(void **state)
{
    (void)state;
    DEFER(pq_freep) struct pq_proxy_counters *c = some_counters();
    struct pq_tls_info i = info("X25519MLKEM768", "mldsa65");
    pq_metrics_accepted(c, PQ_PROXY_EGRESS);
    pq_metrics_connected(c, PQ_PROXY_EGRESS, 300000);
    pq_metrics_handshake(c, PQ_PROXY_EGRESS, &i, PQ_TLS_NONE, 4 * PQ_NS_PER_MS);
    pq_metrics_established(c, PQ_PROXY_EGRESS);
    pq_metrics_bytes(c, PQ_PROXY_EGRESS, 100, 2);
    pq_metrics_bytes(c, PQ_PROXY_EGRESS, 10, 0);
    DEFER(pq_freep) char *open = text_of(&c, 1);
    assert_line(open, "pqplane_connections_open{direction=\"egress\"} 1");
    pq_metrics_ended(c, PQ_PROXY_EGRESS, PQ_PROXY_END, PQ_TLS_NONE, 90 * PQ_NS_PER_S);
    DEFER(pq_freep) char *text = text_of(&c, 1);
    static const char *const lines[] = {
        "pqplane_connections_accepted_total{direction=\"egress\"} 1",
        "pqplane_connections_accepted_total{direction=\"ingress\"} 0",
        "pqplane_connections_established_total{direction=\"egress\"} 1",
        "pqplane_connections_open{direction=\"egress\"} 0",
        "pqplane_connections_ended_total{direction=\"egress\",reason=\"end\"} 1",
        "pqplane_bytes_total{direction=\"egress\",flow=\"up\"} 110",
        "pqplane_bytes_total{direction=\"egress\",flow=\"down\"} 2",
        ("pqplane_handshakes_total{direction=\"egress\",group=\"X25519MLKEM768\",signature=\"mldsa65\",own_signature="
         "\"ecdsa\",resumed=\"false\",hello_retry=\"false\",result=\"ok\",reason=\"ok\"} 1"),
        "pqplane_handshake_cpu_seconds_total{direction=\"egress\"} 0.001500000",
        "pqplane_connect_duration_seconds_bucket{direction=\"egress\",le=\"0.00025\"} 0",
        "pqplane_connect_duration_seconds_bucket{direction=\"egress\",le=\"0.0005\"} 1",
        "pqplane_connect_duration_seconds_bucket{direction=\"egress\",le=\"+Inf\"} 1",
        "pqplane_connect_duration_seconds_sum{direction=\"egress\"} 0.000300000",
        "pqplane_connect_duration_seconds_count{direction=\"egress\"} 1",
        "pqplane_handshake_duration_seconds_bucket{direction=\"egress\",resumed=\"false\",le=\"0.0025\"} 0",
        "pqplane_handshake_duration_seconds_bucket{direction=\"egress\",resumed=\"false\",le=\"0.005\"} 1",
        "pqplane_connection_duration_seconds_bucket{direction=\"egress\",le=\"60\"} 0",
        "pqplane_connection_duration_seconds_bucket{direction=\"egress\",le=\"300\"} 1",
    };
    for (size_t k = 0; k < PQ_COUNT(lines); k++)
        assert_line(text, lines[k]);
}

static void failures_have_their_reason(void **state)
{
    (void)state;
    DEFER(pq_freep) struct pq_proxy_counters *c = some_counters();
    struct pq_tls_info i = info("X25519", "");
    i.hello_retry = true;
    pq_metrics_accepted(c, PQ_PROXY_INGRESS);
    pq_metrics_handshake(c, PQ_PROXY_INGRESS, &i, PQ_TLS_POLICY_KEX, PQ_NS_PER_MS);
    pq_metrics_ended(c, PQ_PROXY_INGRESS, PQ_PROXY_TLS, PQ_TLS_POLICY_KEX, PQ_NS_PER_MS);
    pq_metrics_accepted(c, PQ_PROXY_INGRESS);
    pq_metrics_refused(c, PQ_PROXY_INGRESS, PQ_PROXY_LIMIT);
    pq_metrics_handshake(c, PQ_PROXY_EGRESS, NULL, PQ_TLS_TIMEOUT, PQ_NS_PER_MS);
    pq_metrics_rechecked(c, PQ_PROXY_EGRESS, PQ_TLS_REVOKED);
    pq_metrics_rechecked(c, PQ_PROXY_EGRESS, PQ_TLS_POLICY_AUTH);
    DEFER(pq_freep) char *text = text_of(&c, 1);
    static const char *const lines[] = {
        "pqplane_connections_accepted_total{direction=\"ingress\"} 2",
        "pqplane_connections_open{direction=\"ingress\"} 0",
        "pqplane_connections_ended_total{direction=\"ingress\",reason=\"policy-pq-kex\"} 1",
        "pqplane_connections_ended_total{direction=\"ingress\",reason=\"limit\"} 1",
        "pqplane_admission_refused_total{direction=\"ingress\",reason=\"limit\"} 1",
        "pqplane_policy_refusals_total{direction=\"ingress\",requirement=\"pq-kex\"} 1",
        "pqplane_policy_refusals_total{direction=\"egress\",requirement=\"pq-auth\"} 1",
        "pqplane_rechecks_refused_total{direction=\"egress\",reason=\"revoked\"} 1",
        ("pqplane_handshakes_total{direction=\"ingress\",group=\"X25519\",signature=\"\",own_signature=\"ecdsa\","
         "resumed="
         "\"false\",hello_retry=\"true\",result=\"failed\",reason=\"policy-pq-kex\"} 1"),
        ("pqplane_handshakes_total{direction=\"egress\",group=\"\",signature=\"\",own_signature=\"\",resumed=\"false\","
         "hello_retry=\"false\",result=\"failed\",reason=\"timeout\"} 1"),
        "pqplane_handshake_duration_seconds_count{direction=\"ingress\",resumed=\"false\"} 0",
    };
    for (size_t k = 0; k < PQ_COUNT(lines); k++)
        assert_line(text, lines[k]);
    assert_null(strstr(text, "reason=\"tls\""));
}

static void gauges_go_down_and_never_below_zero(void **state)
{
    (void)state;
    DEFER(pq_freep) struct pq_proxy_counters *c = some_counters();
    pq_metrics_tunnel_opened(c, PQ_PROXY_EGRESS);
    pq_metrics_stream_opened(c, PQ_PROXY_EGRESS);
    pq_metrics_stream_opened(c, PQ_PROXY_EGRESS);
    pq_metrics_stream_ended(c, PQ_PROXY_EGRESS, true);
    pq_metrics_tunnel_ended(c, PQ_PROXY_EGRESS, true);
    pq_metrics_stream_ended(c, PQ_PROXY_INGRESS, false); /* as if the opening was not seen yet */
    pq_metrics_in_flight(c, 12);
    pq_metrics_paused(c);
    DEFER(pq_freep) char *text = text_of(&c, 1);
    static const char *const lines[] = {
        "pqplane_tunnels_open{direction=\"egress\"} 0",
        "pqplane_tunnels_opened_total{direction=\"egress\"} 1",
        "pqplane_tunnels_lost_total{direction=\"egress\"} 1",
        "pqplane_tunnel_streams_open{direction=\"egress\"} 1",
        "pqplane_tunnel_streams_open{direction=\"ingress\"} 0",
        "pqplane_tunnel_streams_lost_total{direction=\"egress\"} 1",
        "pqplane_tunnel_streams_lost_total{direction=\"ingress\"} 0",
        "pqplane_handshakes_in_flight 12",
        "pqplane_accept_pauses_total 1",
    };
    for (size_t k = 0; k < PQ_COUNT(lines); k++)
        assert_line(text, lines[k]);
}

static void what_is_not_a_workers_is_told_too(void **state)
{
    (void)state;
    struct pq_proxy_counters *c[] = {some_counters(), some_counters(), some_counters()};
    DEFER(pq_freep) char *text = text_of(c, 3);
    static const char *const lines[] = {
        "pqplane_start_time_seconds 1790000000",
        "pqplane_config_generation 7",
        "pqplane_config_reloads_total{result=\"ok\"} 5",
        "pqplane_config_reloads_total{result=\"refused\"} 2",
        "pqplane_config_last_reload_successful 0",
        "pqplane_log_lines_dropped_total 3",
        "pqplane_worker_up{worker=\"0\"} 1",
        "pqplane_worker_up{worker=\"1\"} 0",
        "pqplane_worker_restarts_total{worker=\"0\"} 0",
        "pqplane_worker_restarts_total{worker=\"2\"} 2",
        ("pqplane_certificate_expiry_timestamp_seconds{direction=\"ingress\",listener=\"sbi\",identity=\"0\",algorithm="
         "\"mldsa65\"} 1800000000"),
        ("pqplane_certificate_expiry_timestamp_seconds{direction=\"egress\",listener=\"a\\\"b\\\\c\\nd\",identity="
         "\"1\","
         "algorithm=\"p384\"} 1700000000"),
    };
    for (size_t k = 0; k < PQ_COUNT(lines); k++)
        assert_line(text, lines[k]);
    assert_null(strstr(text, "pqplane_worker_up{worker=\"2\"}"));
    for (size_t i = 0; i < PQ_COUNT(c); i++)
        free(c[i]);
}

static void workers_are_summed(void **state)
{
    (void)state;
    struct pq_proxy_counters *c[] = {some_counters(), some_counters(), some_counters()};
    struct pq_tls_info same = info("X25519MLKEM768", "mldsa65"), other = info("MLKEM1024", "mldsa87");
    for (size_t i = 0; i < PQ_COUNT(c); i++) {
        pq_metrics_accepted(c[i], PQ_PROXY_INGRESS);
        pq_metrics_handshake(c[i], PQ_PROXY_INGRESS, i == 1 ? &other : &same, PQ_TLS_NONE, PQ_NS_PER_S);
    }
    pq_metrics_handshake(c[1], PQ_PROXY_INGRESS, &same, PQ_TLS_NONE, PQ_NS_PER_S);
    pq_proxy_counters_close(c[2]); /* it died */
    DEFER(pq_freep) char *text = text_of(c, 3);
    assert_line(text, "pqplane_connections_accepted_total{direction=\"ingress\"} 3");
    assert_line(text, "pqplane_connections_open{direction=\"ingress\"} 2");
    assert_line(text, "pqplane_handshakes_total{direction=\"ingress\",group=\"X25519MLKEM768\",signature=\"mldsa65\","
                      "own_signature=\"ecdsa\",resumed=\"false\",hello_retry=\"false\",result=\"ok\",reason=\"ok\"} 3");
    assert_line(text, "pqplane_handshakes_total{direction=\"ingress\",group=\"MLKEM1024\",signature=\"mldsa87\","
                      "own_signature=\"ecdsa\",resumed=\"false\",hello_retry=\"false\",result=\"ok\",reason=\"ok\"} 1");
    assert_line(text, "pqplane_handshake_duration_seconds_count{direction=\"ingress\",resumed=\"false\"} 4");
    for (size_t i = 0; i < PQ_COUNT(c); i++)
        free(c[i]);
}

static void series_beyond_the_table_count_as_other(void **state)
{
    (void)state;
    DEFER(pq_freep) struct pq_proxy_counters *c = some_counters();
    char group[100];
    for (int i = 0; i < PQ_SERIES_MAX + 3; i++) {
        snprintf(group, sizeof group, "group-%d", i);
        struct pq_tls_info one = info(group, "mldsa65");
        pq_metrics_handshake(c, PQ_PROXY_INGRESS, &one, PQ_TLS_NONE, 1);
        pq_metrics_handshake(c, PQ_PROXY_INGRESS, &one, PQ_TLS_NONE, 1);
    }
    memset(group, 'g', sizeof group);
    group[sizeof group - 1] = '\0';
    struct pq_tls_info long_name = info(group, "mldsa65");
    pq_metrics_handshake(c, PQ_PROXY_EGRESS, &long_name, PQ_TLS_EXPIRED, 1);
    DEFER(pq_freep) char *text = text_of(&c, 1);
    static const char rest[] =
        "signature=\"mldsa65\",own_signature=\"ecdsa\",resumed=\"false\",hello_retry=\"false\",result="
        "\"ok\",reason=\"ok\"} 2";
    char line[400];
    for (int i = 0; i < PQ_SERIES_MAX; i++) {
        snprintf(line, sizeof line, "pqplane_handshakes_total{direction=\"ingress\",group=\"group-%d\",%s", i, rest);
        assert_line(text, line);
    }
    assert_null(strstr(text, "group-256"));
    assert_line(text,
                "pqplane_handshakes_total{direction=\"ingress\",group=\"other\",signature=\"other\",own_signature="
                "\"other\",resumed=\"other\",hello_retry=\"other\",result=\"ok\",reason=\"ok\"} 6");
    assert_line(text, "pqplane_handshakes_total{direction=\"egress\",group=\"other\",signature=\"other\",own_signature="
                      "\"other\",resumed=\"other\",hello_retry=\"other\",result=\"failed\",reason=\"expired\"} 1");
}

/* A name of any length makes one series. */
static void long_names_are_cut(void **state)
{
    (void)state;
    DEFER(pq_freep) struct pq_proxy_counters *c = some_counters();
    char group[PQ_SERIES_TEXT + 10];
    memset(group, 'g', sizeof group - 1);
    group[sizeof group - 1] = '\0';
    struct pq_tls_info i = info(group, "");
    pq_metrics_handshake(c, PQ_PROXY_INGRESS, &i, PQ_TLS_NONE, 1);
    assert_int_equal(strlen(c->series[0].key.group), PQ_SERIES_TEXT - 1);
    pq_metrics_handshake(c, PQ_PROXY_INGRESS, &i, PQ_TLS_NONE, 1);
    assert_int_equal(c->series_count, 1);
}

/* One sample a name and set of labels, and no reason that two causes share. */
static void no_line_stands_twice(void **state)
{
    (void)state;
    struct pq_proxy_counters *c = some_counters();
    DEFER(pq_freep) char *text = text_of(&c, 1);
    for (char *line = text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        assert_non_null(end);
        const char *space = memrchr(line, ' ', (size_t)(end - line));
        size_t len = (size_t)(space - line) + 1;
        for (char *other = end + 1; *line != '#' && *other; other = strchr(other, '\n') + 1)
            if (strncmp(line, other, len) == 0)
                fail_msg("twice: %.*s", (int)len, line);
    }
    free(c);
}

static void every_allocation_may_fail_and_every_cap_be_met(void **state)
{
    (void)state;
    DEFER(pq_freep) struct pq_proxy_counters *c = some_counters();
    const struct pq_metrics_worker worker = {.counters = c, .wanted = true};
    const struct pq_metrics m = {.workers = &worker, .worker_count = 1, .tls_library = ""};
    struct pq_tls_info i = info("g", "s");
    pq_metrics_handshake(c, PQ_PROXY_INGRESS, &i, PQ_TLS_NONE, 1);
    size_t whole = 0;
    for (long n = 1;; n++) {
        struct pq_buf out = {.cap = TEXT_CAP};
        pq_alloc_fail_at(n);
        int e = pq_metrics_text(&m, &out);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        assert_int_equal(e, reached ? PQ_E_NOMEM : 0);
        whole = out.len;
        assert_int_equal(whole != 0, !reached);
        pq_buf_free(&out);
        if (!reached)
            break;
    }
    for (size_t cap = whole - 400; cap <= whole; cap += 40) {
        struct pq_buf out = {.cap = cap};
        assert_int_equal(pq_metrics_text(&m, &out), cap < whole ? PQ_E_TOO_LONG : 0);
        pq_buf_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_counts_from_accept_to_end),
        cmocka_unit_test(failures_have_their_reason),
        cmocka_unit_test(gauges_go_down_and_never_below_zero),
        cmocka_unit_test(what_is_not_a_workers_is_told_too),
        cmocka_unit_test(workers_are_summed),
        cmocka_unit_test(series_beyond_the_table_count_as_other),
        cmocka_unit_test(long_names_are_cut),
        cmocka_unit_test(no_line_stands_twice),
        cmocka_unit_test(every_allocation_may_fail_and_every_cap_be_met),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
