#include "proxy/listing.h"

#include <ev.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yyjson.h>

#include <cmocka.h>

#include "../alloc.h"
#include "../tls/certs.h"

enum { COUNT = 250 }; /* many turns */

/* Connections that wait for a handshake's first byte. */
struct world {
    struct certs certs;
    struct pq_proxy_config config;
    struct pq_route route;
    struct pq_shared *shared;
    struct ev_loop *loop;
    struct pq_connections set;
    int peers[COUNT];
    int done; /* what a listing said at its end; 1: nothing yet */
};

static int make_world(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct pq_why why = {""};
    char text[2048];
    certs_new(&w->certs);
    const struct cert *root = certs_make(&w->certs, (struct cert_how){.algorithm = "p384", .name = "root", .ca = true});
    const struct cert *leaf =
        certs_make(&w->certs, (struct cert_how){.algorithm = "p384", .name = "leaf", .issuer = root});
    snprintf(text, sizeof text,
             "limits: {handshakes: 1000, handshakes_per_source: 100000, strangers: 100000}\n"
             "tls: {certificate: %s, key: %s, ca: %s, policy: {mode: classical, level: 3}}\n"
             "ingress: [{name: sbi, listen: '127.0.0.1:0', forward: '127.0.0.1:9'}]\n",
             leaf->chain, leaf->key_file, root->chain);
    if (pq_proxy_config_parse("p.yaml", text, strlen(text), &w->config, &why) < 0 ||
        pq_proxy_config_resolve(&w->config, &pq_lookup_system, &why) < 0)
        fail_msg("%s", why.text);
    w->route.how = pq_proxy_listener_at(&w->config, 0);
    struct pq_tls_settings settings = pq_proxy_listener_tls(&w->config, w->route.how);
    assert_int_equal(pq_tls_context_new(w->certs.crypto, PQ_TLS_SERVER, &settings, &w->route.tls, NULL), 0);
    w->loop = ev_loop_new(0);
    assert_int_equal(pq_shared_new(&w->shared), 0);
    assert_int_equal(pq_connections_init(&w->set, w->loop, &w->config, w->shared, 3, NULL), 0);
    pq_log_set(PQ_LOG_ERROR, PQ_LOG_LOGFMT);
    for (int i = 0; i < COUNT; i++) {
        int pair[2];
        struct pq_address from = {.sa.ss_family = AF_UNIX};
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
        pq_connection_accept(&w->set, &w->route, pair[0], &from);
        w->peers[i] = pair[1];
    }
    assert_int_equal(w->set.count, COUNT);
    *state = w;
    return 0;
}

static int free_world(void **state)
{
    struct world *w = *state;
    pq_connections_end(&w->set, PQ_PROXY_DRAIN);
    pq_connections_free(&w->set);
    for (int i = 0; i < COUNT; i++)
        close(w->peers[i]);
    ev_loop_destroy(w->loop);
    pq_shared_free(w->shared);
    pq_tls_context_free(w->route.tls);
    pq_proxy_config_free(&w->config);
    certs_free(&w->certs);
    free(w);
    return 0;
}

static void on_done(void *context, int e)
{
    struct world *w = context;
    w->done = e;
    ev_break(w->loop, EVBREAK_ALL);
}

static struct pq_listing *start(struct world *w, int *file)
{
    struct pq_listing *l;
    *file = memfd_create("rows", MFD_CLOEXEC);
    w->done = 1;
    assert_int_equal(pq_listing_start(&w->set, dup(*file), on_done, w, &l), 0);
    return l;
}

/* How many lines there are, each of them JSON, with ids that go down by one or more. */
static int count_rows(int file)
{
    struct stat st;
    assert_int_equal(fstat(file, &st), 0);
    char *text = calloc(1, (size_t)st.st_size + 1), *line = text;
    assert_int_equal(pread(file, text, (size_t)st.st_size, 0), st.st_size);
    int count = 0;
    for (uint64_t id, last = UINT64_MAX; *line; line = strchr(line, '\n') + 1, last = id, count++) {
        yyjson_doc *d = yyjson_read(line, (size_t)(strchr(line, '\n') - line), 0);
        yyjson_val *row = yyjson_doc_get_root(d);
        id = yyjson_get_uint(yyjson_obj_get(row, "id"));
        assert_true(id > 0 && id < last);
        assert_int_equal(yyjson_get_uint(yyjson_obj_get(row, "worker")), 3);
        assert_string_equal(yyjson_get_str(yyjson_obj_get(row, "route")), "sbi");
        assert_string_equal(yyjson_get_str(yyjson_obj_get(row, "direction")), "ingress");
        assert_string_equal(yyjson_get_str(yyjson_obj_get(row, "state")), "handshake");
        assert_string_equal(yyjson_get_str(yyjson_obj_get(row, "local")), "127.0.0.1:9");
        assert_string_equal(yyjson_get_str(yyjson_obj_get(row, "group")), "");
        assert_true(yyjson_is_null(yyjson_obj_get(row, "tunnel")));
        assert_true(yyjson_get_real(yyjson_obj_get(row, "age_s")) >= 0);
        yyjson_doc_free(d);
    }
    free(text);
    close(file);
    return count;
}

static void each_connection_has_a_line(void **state)
{
    struct world *w = *state;
    int file;
    (void)start(w, &file);
    ev_run(w->loop, 0);
    assert_int_equal(w->done, 0);
    assert_int_equal(count_rows(file), COUNT);
}

static void connections_may_end_and_begin_meanwhile(void **state)
{
    struct world *w = *state;
    int file, left = COUNT;
    (void)start(w, &file);
    while (lseek(file, 0, SEEK_END) == 0)
        ev_run(w->loop, EVRUN_ONCE);
    /* Those that come next, older ones, and one that was told of. */
    for (int i = 0; i < COUNT - PQ_LISTING_ROWS / 2; i += 3, left--)
        assert_int_equal(send(w->peers[i], "GET /", 5, 0), 5);
    while (w->set.count > left)
        ev_run(w->loop, EVRUN_ONCE);
    int pair[2];
    struct pq_address from = {.sa.ss_family = AF_UNIX};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    pq_connection_accept(&w->set, &w->route, pair[0], &from);
    while (w->done == 1)
        ev_run(w->loop, EVRUN_ONCE);
    assert_int_equal(w->done, 0);
    int rows = count_rows(file);
    assert_true(rows >= left - 1 && rows <= COUNT);
    close(pair[1]);
}

static void all_may_end_meanwhile(void **state)
{
    struct world *w = *state;
    int file;
    (void)start(w, &file);
    ev_run(w->loop, EVRUN_ONCE);
    pq_connections_end(&w->set, PQ_PROXY_DRAIN);
    while (w->done == 1)
        ev_run(w->loop, EVRUN_ONCE);
    assert_int_equal(w->done, 0);
    close(file);
    struct pq_listing *l = start(w, &file);
    pq_listing_free(l); /* without done() */
    assert_int_equal(w->done, 1);
    close(file);
}

static void a_full_file_and_want_of_memory_are_told(void **state)
{
    struct world *w = *state;
    int file = memfd_create("rows", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct pq_listing *l;
    assert_int_equal(fcntl(file, F_ADD_SEALS, F_SEAL_GROW), 0);
    assert_int_equal(pq_listing_start(&w->set, file, on_done, w, &l), 0);
    ev_run(w->loop, 0);
    assert_true(w->done < 0);
    for (long n = 1;; n++) {
        pq_alloc_fail_at(n);
        int fd = memfd_create("rows", MFD_CLOEXEC);
        int e = pq_listing_start(&w->set, fd, on_done, w, &l);
        if (e < 0)
            close(fd);
        else
            ev_run(w->loop, 0);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        assert_int_equal(e < 0 ? e : w->done, reached ? PQ_E_NOMEM : 0);
        if (!reached)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_connection_has_a_line, make_world, free_world),
        cmocka_unit_test_setup_teardown(connections_may_end_and_begin_meanwhile, make_world, free_world),
        cmocka_unit_test_setup_teardown(all_may_end_meanwhile, make_world, free_world),
        cmocka_unit_test_setup_teardown(a_full_file_and_want_of_memory_are_told, make_world, free_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
