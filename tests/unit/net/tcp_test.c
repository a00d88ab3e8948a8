#include "net/tcp.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"

static void addresses_are_read_and_written(void **state)
{
    (void)state;
    static const struct {
        const char *text, *again;
        int want;
    } rows[] = {
        {"127.0.0.1:80", "127.0.0.1:80", 0},
        {"[::1]:8080", "[::1]:8080", 0},
        {"unix:/run/x.sock", "unix:/run/x.sock", 0},
        {"198.18.0.1:0", "198.18.0.1:0", 0},
        {"localhost:65535", NULL, 0},
        {"127.0.0.1", NULL, PQ_E_INVALID},
        {"127.0.0.1:", NULL, PQ_E_INVALID},
        {":80", NULL, PQ_E_INVALID},
        {"127.0.0.1:65536", NULL, PQ_E_INVALID},
        {"127.0.0.1:080", NULL, PQ_E_INVALID},
        {"::1:80", NULL, PQ_E_INVALID},
        {"unix:", NULL, PQ_E_INVALID},
        {"", NULL, PQ_E_INVALID},
        {"no such host:80", NULL, PQ_E_NOT_FOUND},
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_address a = {.len = 77};
        struct pq_why why = {{0}};
        int e = pq_address_parse(rows[i].text, &a, &why);
        if (e != rows[i].want)
            print_error("row %zu (%s): %d %s\n", i, rows[i].text, e, why.text);
        assert_int_equal(e, rows[i].want);
        assert_int_equal(why.text[0] != 0, e != 0);
        char text[PQ_ADDRESS_TEXT];
        if (e == 0 && rows[i].again) {
            pq_address_text(&a, text);
            assert_string_equal(text, rows[i].again);
        }
        if (e != 0)
            assert_int_equal(a.len, 77);
    }
    char path[200] = "unix:/";
    memset(path + 6, 'x', 150);
    struct pq_address a;
    assert_int_equal(pq_address_parse(path, &a, NULL), PQ_E_INVALID);
    path[5 + 107] = 0;
    assert_int_equal(pq_address_parse(path, &a, NULL), 0);
}

static void ready(int fd, short events)
{
    struct pollfd p = {fd, events, 0};
    assert_int_equal(poll(&p, 1, 5000), 1);
}

static void connect_pair(const char *where, int *listener, int *client, int *server)
{
    struct pq_address a, peer;
    struct pq_why why;
    assert_int_equal(pq_address_parse(where, &a, &why), 0);
    assert_int_equal(pq_tcp_listen(&a, 0, listener, &why), 0);
    a = pq_address_local(*listener);
    assert_int_equal(pq_tcp_accept(*listener, server, &peer), PQ_E_WANT_READ);
    int e = pq_tcp_connect(&a, client, &why);
    assert_true(e == 0 || e == PQ_E_WANT_WRITE);
    ready(*client, POLLOUT);
    assert_int_equal(pq_tcp_connected(*client), 0);
    ready(*listener, POLLIN);
    assert_int_equal(pq_tcp_accept(*listener, server, &peer), 0);
}

static void a_stream_keeps_its_end_and_its_reset_apart(void **state)
{
    (void)state;
    static const char *const where[] = {"127.0.0.1:0", "[::1]:0"};
    for (size_t i = 0; i < PQ_COUNT(where); i++) {
        for (int reset = 0; reset < 2; reset++) {
            int listener, client, server;
            connect_pair(where[i], &listener, &client, &server);
            assert_true(pq_address_port(&(struct pq_address){0}) == 0);
            struct pq_address seen = pq_address_peer(client), own = pq_address_local(listener);
            assert_int_equal(pq_address_port(&seen), pq_address_port(&own));
            size_t n = 0;
            char buf[8];
            assert_int_equal(pq_tcp_read(server, buf, sizeof buf, &n), PQ_E_WANT_READ);
            assert_int_equal(pq_tcp_write(client, "abc", 3, &n), 0);
            assert_int_equal(n, 3);
            ready(server, POLLIN);
            assert_int_equal(pq_tcp_read(server, buf, sizeof buf, &n), 0);
            assert_memory_equal(buf, "abc", 3);
            struct pq_tcp_counts counts;
            assert_int_equal(pq_tcp_counts(client, &counts), 0);
            assert_int_equal(counts.bytes_sent, 3);
            assert_int_equal(pq_tcp_counts(server, &counts), 0);
            assert_int_equal(counts.bytes_received, 3);
            assert_int_equal(pq_tcp_abort_on_close(client, reset), 0);
            close(client);
            ready(server, POLLIN);
            assert_int_equal(pq_tcp_read(server, buf, sizeof buf, &n), reset ? PQ_E_RESET : PQ_E_CLOSED);
            close(server);
            close(listener);
        }
    }
}

static void a_dead_port_refuses_and_a_taken_one_says_so(void **state)
{
    (void)state;
    struct pq_address a;
    struct pq_why why = {{0}};
    int listener, other, client = -1;
    assert_int_equal(pq_address_parse("127.0.0.1:0", &a, &why), 0);
    assert_int_equal(pq_tcp_listen(&a, 5, &listener, &why), 0);
    a = pq_address_local(listener);
    assert_int_equal(pq_tcp_listen(&a, 5, &other, &why), PQ_E_EXISTS);
    assert_non_null(strstr(why.text, "another program does"));
    close(listener);
    int e = pq_tcp_connect(&a, &client, &why);
    if (e == PQ_E_WANT_WRITE) {
        ready(client, POLLOUT);
        e = pq_tcp_connected(client);
        close(client);
    }
    assert_int_equal(e, PQ_E_REFUSED);
}

static void a_stale_unix_socket_is_replaced_and_a_live_one_is_not(void **state)
{
    (void)state;
    char where[64];
    snprintf(where, sizeof where, "unix:/tmp/pqplane-tcp-test-%ld", (long)getpid());
    struct pq_address a;
    struct pq_why why;
    int first, second;
    assert_int_equal(pq_address_parse(where, &a, &why), 0);
    assert_int_equal(pq_tcp_listen(&a, 5, &first, &why), 0);
    assert_int_equal(pq_tcp_listen(&a, 5, &second, &why), PQ_E_EXISTS);
    close(first);
    assert_int_equal(pq_tcp_listen(&a, 5, &second, &why), 0);
    close(second);
    unlink(where + 5);
}

static void what_is_no_socket_is_kept(void **state)
{
    (void)state;
    char where[64];
    snprintf(where, sizeof where, "unix:/tmp/pqplane-tcp-file-%ld", (long)getpid());
    const char *path = where + 5;
    static const mode_t kinds[] = {S_IFREG, S_IFIFO, S_IFLNK, S_IFDIR};
    for (size_t i = 0; i < PQ_COUNT(kinds); i++) {
        struct pq_address a;
        struct pq_why why = {{0}};
        struct stat st = {0};
        int fd = -1;
        if (kinds[i] == S_IFLNK)
            assert_int_equal(symlink("/nowhere", path), 0);
        else if (kinds[i] == S_IFDIR)
            assert_int_equal(mkdir(path, 0700), 0);
        else
            assert_int_equal(mknod(path, kinds[i] | 0600, 0), 0);
        assert_int_equal(pq_address_parse(where, &a, &why), 0);
        int e = pq_tcp_listen(&a, 5, &fd, &why), there = lstat(path, &st);
        remove(path);
        assert_int_equal(e, PQ_E_EXISTS);
        assert_non_null(strstr(why.text, "exists and is no socket"));
        assert_non_null(strstr(why.text, path));
        assert_int_equal(fd, -1);
        assert_int_equal(there, 0);
        assert_int_equal(st.st_mode & S_IFMT, kinds[i]);
    }
}

static void a_full_queue_refuses(void **state)
{
    (void)state;
    char where[64];
    snprintf(where, sizeof where, "unix:/tmp/pqplane-tcp-queue-%ld", (long)getpid());
    struct pq_address a;
    struct pq_why why = {{0}};
    int listener, clients[16], count = 0, e = 0;
    assert_int_equal(pq_address_parse(where, &a, &why), 0);
    assert_int_equal(pq_tcp_listen(&a, 1, &listener, &why), 0);
    while (count < 16 && (e = pq_tcp_connect(&a, &clients[count], &why)) == 0)
        count++;
    while (count > 0)
        close(clients[--count]);
    close(listener);
    unlink(where + 5);
    assert_int_equal(e, PQ_E_REFUSED);
    assert_non_null(strstr(why.text, "its queue is full"));
}

static void no_descriptor_left_is_a_limit(void **state)
{
    (void)state;
    struct pq_address a;
    int listener, client, server = -1;
    assert_int_equal(pq_address_parse("127.0.0.1:0", &a, NULL), 0);
    assert_int_equal(pq_tcp_listen(&a, 5, &listener, NULL), 0);
    a = pq_address_local(listener);
    int e = pq_tcp_connect(&a, &client, NULL);
    assert_true(e == 0 || e == PQ_E_WANT_WRITE);
    ready(listener, POLLIN);
    struct rlimit old, none;
    getrlimit(RLIMIT_NOFILE, &old);
    none = old;
    none.rlim_cur = 3;
    setrlimit(RLIMIT_NOFILE, &none);
    assert_int_equal(pq_tcp_accept(listener, &server, NULL), PQ_E_LIMIT);
    int another = -1;
    assert_int_equal(pq_tcp_connect(&a, &another, NULL), PQ_E_LIMIT);
    setrlimit(RLIMIT_NOFILE, &old);
    assert_int_equal(pq_tcp_accept(listener, &server, NULL), 0);
    close(server);
    close(client);
    close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_read_and_written),
        cmocka_unit_test(a_stream_keeps_its_end_and_its_reset_apart),
        cmocka_unit_test(a_dead_port_refuses_and_a_taken_one_says_so),
        cmocka_unit_test(a_stale_unix_socket_is_replaced_and_a_live_one_is_not),
        cmocka_unit_test(what_is_no_socket_is_kept),
        cmocka_unit_test(a_full_queue_refuses),
        cmocka_unit_test(no_descriptor_left_is_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
