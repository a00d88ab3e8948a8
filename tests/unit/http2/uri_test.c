#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "http2/uri.h"

static void assert_span(struct pq_span s, const char *text)
{
    assert_int_equal(s.len, strlen(text));
    assert_memory_equal(s.at, text, s.len);
}

static void parses(void **state)
{
    static const struct {
        const char *text;
        bool tls;
        const char *host;
        uint16_t port;
        const char *path, *query, *authority;
    } rows[] = {
        {"http://127.0.0.1:8000", false, "127.0.0.1", 8000, "", "", "127.0.0.1:8000"},
        {"https://nrf.5gc.example", true, "nrf.5gc.example", 443, "", "", "nrf.5gc.example:443"},
        {"http://nrf/", false, "nrf", 80, "/", "", "nrf:80"},
        {"https://[2001:db8::1]:65535/a/b?c=d&e", true, "2001:db8::1", 65535, "/a/b", "c=d&e", "[2001:db8::1]:65535"},
        {"http://h?x=1", false, "h", 80, "", "x=1", "h:80"},
        {"http://h/p?q?r", false, "h", 80, "/p", "q?r", "h:80"},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_uri u;
        char authority[PQ_URI_AUTHORITY_MAX];
        assert_int_equal(pq_uri_parse(rows[i].text, &u), 0);
        assert_int_equal(u.tls, rows[i].tls);
        assert_span(u.host, rows[i].host);
        assert_int_equal(u.port, rows[i].port);
        assert_span(u.path, rows[i].path);
        assert_span(u.query, rows[i].query);
        assert_int_equal(pq_uri_authority(&u, authority, sizeof authority), 0);
        assert_string_equal(authority, rows[i].authority);
        assert_int_equal(pq_uri_authority(&u, authority, strlen(rows[i].authority)), PQ_E_TOO_LONG);
    }
}

static void refuses(void **state)
{
    static const char *const rows[] = {
        "",
        "http",
        "http:/h",
        "http://",
        "ftp://h",
        "HTTP://h",
        "http://user@h",
        "http://h:",
        "http://h:0",
        "http://h:65536",
        "http://h:1x",
        "http://h:123456",
        "http://[::1",
        "http://[]",
        "http://[g::]",
        "http://h/a b",
        "http://h/a#b",
        "http://h?a b",
        "http://h\x7f",
        "http://-\x01",
        "//h",
        "http://h:80:80",
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_uri u = {.port = 4711};
        assert_int_equal(pq_uri_parse(rows[i], &u), PQ_E_SYNTAX);
        assert_int_equal(u.port, 4711);
    }
}

/* Every prefix in an exact-size heap buffer: parsed or refused, never read beyond. */
static void prefixes(void **state)
{
    static const char whole[] = "https://[2001:db8::1]:8443/a%20b/c?d=%7B%22e%22%3A1%7D&f=g";
    (void)state;
    for (size_t n = 0; n < sizeof whole; n++) {
        struct pq_uri u;
        char *copy = malloc(n + 1);
        assert_non_null(copy);
        memcpy(copy, whole, n);
        copy[n] = '\0';
        int e = pq_uri_parse(copy, &u);
        assert_true(e == 0 || e == PQ_E_SYNTAX);
        assert_true(e == 0 || n < 21 || (n == 22)); /* "https://[2001:db8::1]" is whole; "...]:" is not */
        free(copy);
    }
}

static void length_cap(void **state)
{
    static char text[PQ_URI_MAX + 2];
    struct pq_span path, query;
    struct pq_uri u;
    (void)state;
    memset(text, 'a', sizeof text - 1);
    text[0] = '/';
    text[PQ_URI_MAX] = '\0';
    assert_int_equal(pq_uri_split_path(text, &path, &query), 0);
    text[PQ_URI_MAX] = 'a';
    assert_int_equal(pq_uri_split_path(text, &path, &query), PQ_E_TOO_LONG);
    assert_int_equal(pq_uri_parse(text, &u), PQ_E_TOO_LONG);
}

static void splits_paths(void **state)
{
    static const struct {
        const char *text;
        int want;
        const char *path, *query;
    } rows[] = {
        {"/", 0, "/", ""},
        {"/a/b?c", 0, "/a/b", "c"},
        {"/?", 0, "/", ""},
        {"*", PQ_E_SYNTAX, NULL, NULL},
        {"", PQ_E_SYNTAX, NULL, NULL},
        {"a/b", PQ_E_SYNTAX, NULL, NULL},
        {"/a#b", PQ_E_SYNTAX, NULL, NULL},
        {"/a\tb", PQ_E_SYNTAX, NULL, NULL},
        {"/\x80", PQ_E_SYNTAX, NULL, NULL},
        {"/n?p={\"mcc\":\"001\"}", 0, "/n", "p={\"mcc\":\"001\"}"},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_span path, query;
        assert_int_equal(pq_uri_split_path(rows[i].text, &path, &query), rows[i].want);
        if (rows[i].want)
            continue;
        assert_span(path, rows[i].path);
        assert_span(query, rows[i].query);
    }
}

static void decodes(void **state)
{
    static const struct {
        const char *in;
        int want;
        const char *out;
    } rows[] = {
        {"", 0, ""},
        {"abc", 0, "abc"},
        {"a%20b", 0, "a b"},
        {"%7b%7D", 0, "{}"},
        {"a+b", 0, "a+b"},
        {"%", PQ_E_SYNTAX, NULL},
        {"%4", PQ_E_SYNTAX, NULL},
        {"%g0", PQ_E_SYNTAX, NULL},
        {"%0g", PQ_E_SYNTAX, NULL},
        {"%00", PQ_E_SYNTAX, NULL},
        {"%2F", 0, "/"},
        {"%c3%a4", 0, "\xc3\xa4"},
        {"12345678", PQ_E_TOO_LONG, NULL},
        {"%31234567", 0, "1234567"},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        char out[8] = "before";
        size_t n = strlen(rows[i].in);
        char *copy = malloc(n ? n : 1);
        assert_non_null(copy);
        memcpy(copy, rows[i].in, n);
        assert_int_equal(pq_uri_decode(pq_span(copy, n), out, sizeof out), rows[i].want);
        assert_string_equal(out, rows[i].want ? "before" : rows[i].out);
        free(copy);
    }
    char none;
    assert_int_equal(pq_uri_decode(pq_span("", 0), &none, 0), PQ_E_TOO_LONG);
}

/* What is encoded decodes to itself, for every byte but NUL. */
static void round_trip(void **state)
{
    char all[256], back[256];
    (void)state;
    for (int i = 0; i < 255; i++)
        all[i] = (char)(i + 1);
    all[255] = '\0';
    struct pq_buf b = {.cap = 1024};
    assert_int_equal(pq_uri_encode(&b, all), 0);
    assert_int_equal(pq_uri_decode(pq_span(b.at, b.len), back, sizeof back), 0);
    assert_string_equal(all, back);
    pq_buf_free(&b);
    struct pq_buf small = {.cap = 4};
    assert_int_equal(pq_uri_encode(&small, "ab "), PQ_E_TOO_LONG);
    assert_int_equal(small.len, 0);
    pq_buf_free(&small);
}

static void parameters(void **state)
{
    static const struct {
        const char *query;
        size_t count;
        int end;
        const char *names, *values;
    } rows[] = {
        {"", 0, PQ_E_NOT_FOUND, "", ""},
        {"a=1", 1, PQ_E_NOT_FOUND, "a,", "1,"},
        {"a=1&b=&c&d=e=f", 4, PQ_E_NOT_FOUND, "a,b,c,d,", "1,,,e=f,"},
        {"&&a=1&&", 1, PQ_E_NOT_FOUND, "a,", "1,"},
        {"=x", 0, PQ_E_SYNTAX, "", ""},
        {"a&=x", 1, PQ_E_SYNTAX, "a,", ","},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_span query = pq_span_text(rows[i].query), name, value;
        char names[32] = "", values[32] = "";
        size_t count = 0;
        int e;
        while ((e = pq_uri_next_parameter(&query, &name, &value)) == 0) {
            snprintf(names + strlen(names), sizeof names - strlen(names), "%.*s,", (int)name.len,
                     (const char *)name.at);
            snprintf(values + strlen(values), sizeof values - strlen(values), "%.*s,", (int)value.len,
                     (const char *)value.at);
            count++;
        }
        assert_int_equal(e, rows[i].end);
        assert_int_equal(count, rows[i].count);
        assert_string_equal(names, rows[i].names);
        assert_string_equal(values, rows[i].values);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses),     cmocka_unit_test(refuses),      cmocka_unit_test(prefixes),
        cmocka_unit_test(length_cap), cmocka_unit_test(splits_paths), cmocka_unit_test(decodes),
        cmocka_unit_test(round_trip), cmocka_unit_test(parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
