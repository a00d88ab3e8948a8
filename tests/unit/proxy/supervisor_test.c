#include "proxy/supervisor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "proxy/bundle.h"
#include "proxy/handover.h"
#include "proxy/listening.h"
#include "proxy/restart.h"
#include "proxy/watch.h"

/* --- restarts ---------------------------------------------------------------------------------------------------- */
static void a_worker_is_started_at_once_and_then_later_and_later(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t lived_s, wait_s;
    } rows[] = {
        {"the first death", 3600, 0},   {"again at once", 0, 1},   {"doubled", 2, 2},
        {"and again", 59, 4},           {"and again", 1, 8},       {"and again", 1, 16},
        {"up to half a minute", 1, 30}, {"and no further", 1, 30}, {"a minute of life", 60, 0},
        {"begins anew", 1, 1},
    };
    struct pq_restart r = {0};
    int64_t now = 1000 * PQ_NS_PER_S;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        r.started = now;
        now += rows[i].lived_s * PQ_NS_PER_S;
        int64_t wait = pq_restart_died(&r, now);
        if (wait != rows[i].wait_s * PQ_NS_PER_S)
            fail_msg("row %zu, %s: waits %lld ns", i, rows[i].name, (long long)wait);
        now += wait;
    }
}

/* --- listening sockets ------------------------------------------------------------------------------------------- */
static void free_config(struct pq_proxy_config *c) { pq_proxy_config_free(c); }

/* An egress for each "NAME ADDRESS". */
static void read_config(struct pq_proxy_config *c, const char *const listeners[][2], size_t count)
{
    DEFER(pq_buf_free) struct pq_buf b = {.cap = 4096};
    struct pq_why why = {""};
    assert_int_equal(pq_buf_text(&b, "tls: {certificate: a, key: b, ca: c}\negress:\n"), 0);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(pq_buf_printf(&b, "  - {name: %s, listen: '%s', connect: '127.0.0.1:9', peers: [x]}\n",
                                       listeners[i][0], listeners[i][1]),
                         0);
    if (pq_proxy_config_parse("p.yaml", (const char *)b.at, b.len, c, &why) < 0)
        fail_msg("%s", why.text);
}

static int plan(const struct pq_listening_set *set, const char *const listeners[][2], size_t count,
                struct pq_listening_set *out, struct pq_why *why)
{
    DEFER(free_config) struct pq_proxy_config c = {0};
    read_config(&c, listeners, count);
    return pq_listening_plan(set, &c, out, why);
}

static void take(struct pq_listening_set *set, struct pq_listening_set *next)
{
    struct pq_listening_set removed = {0};
    pq_listening_take(set, next, &removed);
    pq_listening_close(&removed);
}

/* Another process may have taken the path over, for a restart without a gap. */
static void a_path_that_another_bound_stays(void **state)
{
    (void)state;
    for (int taken = 0; taken < 2; taken++) {
        DEFER(pq_closep) int other = -1;
        struct pq_listening_set set = {0}, next;
        struct pq_address at;
        char folder[] = "/tmp/pq-listening-XXXXXX", text[PQ_ADDRESS_TEXT];
        assert_non_null(mkdtemp(folder));
        snprintf(text, sizeof text, "unix:%s/s", folder);
        const char *path = text + strlen("unix:");
        assert_int_equal(plan(&set, (const char *const[][2]){{"a", text}}, 1, &next, NULL), 0);
        take(&set, &next);
        assert_int_equal(access(path, F_OK), 0);
        if (taken) {
            assert_int_equal(unlink(path), 0);
            assert_int_equal(pq_address_parse(text, &at, NULL), 0);
            assert_int_equal(pq_tcp_listen(&at, 0, &other, NULL), 0);
        }
        pq_listening_close(&set);
        assert_int_equal(set.count, 0);
        assert_int_equal(access(path, F_OK), taken ? 0 : -1);
        unlink(path);
        assert_int_equal(rmdir(folder), 0);
    }
}

static void a_reload_keeps_the_sockets_of_addresses_that_stay(void **state)
{
    (void)state;
    struct pq_listening_set set = {0}, next;
    char folder[] = "/tmp/pq-listening-XXXXXX", stays[PQ_ADDRESS_TEXT], goes[PQ_ADDRESS_TEXT];
    assert_non_null(mkdtemp(folder));
    snprintf(stays, sizeof stays, "unix:%s/stays", folder);
    snprintf(goes, sizeof goes, "unix:%s/goes", folder);
    const char *const before[][2] = {{"a", "127.0.0.1:0"}, {"b", stays}, {"c", goes}, {"d", "127.0.0.1:0"}};
    assert_int_equal(plan(&set, before, 4, &next, NULL), 0);
    take(&set, &next);
    int a = set.at[0].fd, b = set.at[1].fd;
    const char *const after[][2] = {{"renamed", stays}, {"e", "[::1]:0"}, {"a", "127.0.0.1:0"}, {"f", "127.0.0.1:0"}};
    assert_int_equal(plan(&set, after, 4, &next, NULL), 0);
    assert_int_equal(set.count, 4);
    take(&set, &next);
    assert_int_equal(set.count, 4);
    assert_int_equal(set.at[0].fd, b);
    assert_string_equal(set.at[0].name, "renamed");
    assert_int_equal(set.at[2].fd, a);
    static const uint64_t numbers[] = {2, 5, 1, 6}; /* a port that the kernel chose goes by the name */
    for (size_t i = 0; i < 4; i++)
        assert_true(set.at[i].number == numbers[i]);
    assert_true(set.last == 6);
    assert_int_equal(access(stays + 5, F_OK), 0);
    assert_int_equal(access(goes + 5, F_OK), -1);
    pq_listening_close(&set);
    assert_int_equal(rmdir(folder), 0);
}

static void a_plan_that_fails_or_is_dropped_changes_nothing(void **state)
{
    (void)state;
    struct pq_listening_set set = {0}, next = {0};
    struct pq_why why = {""};
    char folder[] = "/tmp/pq-listening-XXXXXX", ours[PQ_ADDRESS_TEXT], new[PQ_ADDRESS_TEXT], taken[PQ_ADDRESS_TEXT];
    assert_non_null(mkdtemp(folder));
    snprintf(ours, sizeof ours, "unix:%s/ours", folder);
    snprintf(new, sizeof new, "unix:%s/new", folder);
    struct pq_address at;
    DEFER(pq_closep) int other = -1;
    assert_int_equal(pq_address_parse("127.0.0.1:0", &at, NULL), 0);
    assert_int_equal(pq_tcp_listen(&at, 0, &other, NULL), 0);
    at = pq_address_local(other);
    pq_address_text(&at, taken);
    assert_int_equal(plan(&set, (const char *const[][2]){{"a", ours}}, 1, &next, NULL), 0);
    take(&set, &next);
    const char *const bad[][2] = {{"a", ours}, {"b", new}, {"c", taken}};
    assert_int_equal(plan(&set, bad, 3, &next, &why), PQ_E_EXISTS);
    assert_non_null(strstr(why.text, ": \"c\": can't listen on 127.0.0.1:"));
    assert_int_equal(access(new + 5, F_OK), -1);
    assert_int_equal(plan(&set, bad, 2, &next, &why), 0);
    assert_int_equal(access(new + 5, F_OK), 0);
    pq_listening_drop(&next);
    assert_int_equal(access(new + 5, F_OK), -1);
    assert_int_equal(access(ours + 5, F_OK), 0);
    int client = -1;
    assert_int_equal(pq_tcp_connect(&set.at[0].at, &client, NULL), 0);
    close(client);
    pq_listening_close(&set);
    assert_int_equal(rmdir(folder), 0);
}

static void every_allocation_of_a_plan_may_fail(void **state)
{
    (void)state;
    DEFER(free_config) struct pq_proxy_config c = {0};
    read_config(&c, (const char *const[][2]){{"a", "127.0.0.1:0"}, {"b", "127.0.0.1:0"}}, 2);
    for (long n = 1;; n++) {
        struct pq_listening_set set = {0}, next = {0};
        pq_alloc_fail_at(n);
        int e = pq_listening_plan(&set, &c, &next, NULL);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        pq_listening_close(&next);
        assert_int_equal(e, reached ? PQ_E_NOMEM : 0);
        if (!reached) {
            assert_int_equal(n, 4);
            break;
        }
    }
}

/* --- files that change ------------------------------------------------------------------------------------------- */
struct folder {
    char at[32];
    struct pq_watch *watch;
};

static void write_in(const struct folder *f, const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", f->at, name);
    if (pq_file_make_folders(f->at, 0700, NULL) < 0 ||
        pq_file_write(path, pq_span_text(text), 0600, PQ_FILE_REPLACE, NULL) < 0)
        fail_msg("%s", path);
}

static void link_in(const struct folder *f, const char *name, const char *to)
{
    char path[128], beside[128];
    snprintf(path, sizeof path, "%s/%s", f->at, name);
    snprintf(beside, sizeof beside, "%s/new", f->at);
    assert_int_equal(symlink(to, beside), 0);
    assert_int_equal(rename(beside, path), 0);
}

static void watch_in(struct folder *f, const char *const *names, size_t count)
{
    char path[4][128], *at[4];
    struct pq_strings all = {at, count};
    for (size_t i = 0; i < count; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s", f->at, names[i]);
        at[i] = path[i];
    }
    assert_int_equal(pq_watch_set(f->watch, &all), 0);
}

static void make_folder(struct folder *f)
{
    *f = (struct folder){.at = "/tmp/pq-watch-XXXXXX"};
    assert_non_null(mkdtemp(f->at));
    assert_int_equal(pq_watch_new(&f->watch), 0);
}

static void remove_folder(struct folder *f)
{
    pq_watch_free(f->watch);
    assert_int_equal(pq_file_remove_tree(f->at, NULL), 0);
}

/* The first look sees it, the second that it has settled. */
#define assert_changed(f)                                                                                              \
    do {                                                                                                               \
        assert_false(pq_watch_look((f).watch));                                                                        \
        assert_true(pq_watch_look((f).watch));                                                                         \
        assert_false(pq_watch_look((f).watch));                                                                        \
    } while (0)

static void each_way_to_change_a_file_is_seen(void **state)
{
    (void)state;
    DEFER(remove_folder) struct folder f;
    char path[128];
    make_folder(&f);
    snprintf(path, sizeof path, "%s/a", f.at);
    write_in(&f, "a", "1");
    watch_in(&f, (const char *const[]){"a", "none"}, 2);
    assert_false(pq_watch_look(f.watch));
    assert_false(pq_watch_look(f.watch));
    for (int i = 0; i < 5; i++) { /* renamed over it, many times over */
        write_in(&f, "a", "2");
        assert_changed(f);
    }
    FILE *out = fopen(path, "a"); /* in place */
    assert_non_null(out);
    fputs("more", out);
    fclose(out);
    assert_changed(f);
    assert_int_equal(chmod(path, 0644), 0);
    assert_changed(f);
    assert_int_equal(unlink(path), 0);
    assert_changed(f);
    write_in(&f, "a", "3");
    assert_changed(f);
    write_in(&f, "none", "there");
    assert_changed(f);
}

static void a_link_turned_on_the_way_is_seen(void **state)
{
    (void)state;
    DEFER(remove_folder) struct folder f;
    char one[64], two[64];
    make_folder(&f);
    snprintf(one, sizeof one, "%s/1", f.at);
    snprintf(two, sizeof two, "%s/2", f.at);
    assert_int_equal(mkdir(one, 0700), 0);
    assert_int_equal(mkdir(two, 0700), 0);
    write_in(&f, "1/a", "same");
    write_in(&f, "2/a", "same");
    link_in(&f, "..data", "1");
    link_in(&f, "a", "..data/a");
    watch_in(&f, (const char *const[]){"a"}, 1);
    for (int i = 0; i < 4; i++) {
        link_in(&f, "..data", i % 2 ? "1" : "2");
        assert_changed(f);
    }
}

static void what_goes_on_changing_is_not_settled(void **state)
{
    (void)state;
    DEFER(remove_folder) struct folder f;
    make_folder(&f);
    write_in(&f, "a", "1");
    write_in(&f, "b", "1");
    watch_in(&f, (const char *const[]){"a", "b"}, 2);
    for (int i = 0; i < 3; i++) {
        write_in(&f, i % 2 ? "a" : "b", "2");
        assert_false(pq_watch_look(f.watch));
    }
    /* Set anew in between, nothing is forgotten of what stays. */
    write_in(&f, "c", "1");
    watch_in(&f, (const char *const[]){"b", "c"}, 2);
    assert_true(pq_watch_look(f.watch));
    write_in(&f, "a", "3");
    assert_false(pq_watch_look(f.watch));
    assert_false(pq_watch_look(f.watch));
    write_in(&f, "b", "3");
    watch_in(&f, (const char *const[]){"c", "b", "a"}, 3);
    assert_changed(f);
}

static void every_allocation_of_a_watch_may_fail(void **state)
{
    (void)state;
    DEFER(remove_folder) struct folder f;
    char *at[] = {(char *)(uintptr_t)"/a", (char *)(uintptr_t)"/b"};
    struct pq_strings all = {at, 2};
    make_folder(&f);
    for (long n = 1; n <= 4; n++) {
        pq_alloc_fail_at(n);
        int e = pq_watch_set(f.watch, &all);
        pq_alloc_fail_at(0);
        assert_int_equal(e, n < 4 ? PQ_E_NOMEM : 0);
    }
}

/* --- a configuration with its files ------------------------------------------------------------------------------ */
static void write_bundle(const struct folder *f)
{
    write_in(f, "p.yaml",
             "tls: {certificate: crt, key: key, ca: root, crl: crl}\n"
             "ingress: [{name: i, listen: '127.0.0.1:0', forward: 'localhost:80'}]\n"
             "egress: [{name: e, listen: '127.0.0.1:0', connect: 'unix:far', peers: [x],\n"
             "  tls: {certificate: other, key: key}}]\n");
    write_in(f, "crt", "certificate");
    write_in(f, "key", "key");
    write_in(f, "root", "root");
    write_in(f, "crl", "crl");
    write_in(f, "other", "");
}

static int read_bundle(const struct folder *f, struct pq_bundle *out, struct pq_why *why)
{
    char path[64];
    snprintf(path, sizeof path, "%s/p.yaml", f->at);
    TRY(pq_bundle_open(path, out, why));
    return pq_bundle_fill(out, why);
}

static void a_bundle_arrives_as_it_was(void **state)
{
    (void)state;
    DEFER(remove_folder) struct folder f;
    DEFER(pq_bundle_free) struct pq_bundle b = {0}, got = {0};
    DEFER(pq_closep) int packed = -1;
    struct pq_why why = {""};
    static const uint64_t sockets[] = {7, 1ull << 40};
    make_folder(&f);
    write_bundle(&f);
    if (read_bundle(&f, &b, &why) < 0 || pq_bundle_pack(&b, sockets, &packed, &why) < 0)
        fail_msg("%s", why.text);
    assert_int_equal(b.named.count, 6);
    assert_int_equal(pq_file_remove_tree(f.at, NULL), 0);
    if (pq_bundle_unpack(packed, &got, &why) < 0)
        fail_msg("%s", why.text);
    const struct pq_proxy_listener *i = pq_proxy_listener_at(&got.config, 0);
    struct pq_tls_settings s = pq_proxy_listener_tls(&got.config, i);
    struct pq_span key;
    assert_int_equal(pq_files_get(got.files, s.identities[0].key, &key), 0);
    assert_true(pq_span_equal(key, pq_span_text("key")));
    const struct pq_proxy_target *sent = &pq_proxy_listener_at(&b.config, 0)->target;
    assert_true(sent->count > 0 && i->target.count == sent->count);
    for (size_t k = 0; k < sent->count; k++)
        assert_true(pq_address_equal(&i->target.places[k].at, &sent->places[k].at));
    assert_int_equal(pq_proxy_listener_at(&got.config, 1)->target.places[0].at.sa.ss_family, AF_UNIX);
    assert_memory_equal(got.sockets, sockets, sizeof sockets);
    assert_int_equal(mkdir(f.at, 0700), 0);
}

static void a_bundle_knows_whether_something_changed(void **state)
{
    (void)state;
    DEFER(remove_folder) struct folder f;
    DEFER(pq_closep) int packed = -1;
    static const char *const names[] = {"key", "crl", "p.yaml"};
    make_folder(&f);
    for (size_t i = 0; i <= PQ_COUNT(names); i++) {
        DEFER(pq_bundle_free) struct pq_bundle b = {0};
        write_bundle(&f);
        if (i > 0)
            write_in(&f, names[i - 1],
                     i < 3 ? "another"
                           : "tls: {certificate: crt, key: key, ca: root}\n"
                             "ingress: [{name: i, listen: '127.0.0.1:0', forward: '127.0.0.1:80'}]\n");
        assert_int_equal(read_bundle(&f, &b, NULL), 0);
        if (i == 0)
            assert_int_equal(pq_bundle_pack(&b, (const uint64_t[]){1, 2}, &packed, NULL), 0);
        assert_int_equal(pq_bundle_equal(&b, packed), i == 0);
    }
}

static void a_bundle_that_can_not_be_read_names_its_files(void **state)
{
    (void)state;
    DEFER(remove_folder) struct folder f;
    DEFER(pq_bundle_free) struct pq_bundle b = {0};
    struct pq_why why = {""};
    char path[64];
    make_folder(&f);
    write_bundle(&f);
    snprintf(path, sizeof path, "%s/key", f.at);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(read_bundle(&f, &b, &why), PQ_E_CONFIG);
    assert_non_null(strstr(why.text, "p.yaml:2:30: ingress \"i\": "));
    assert_non_null(strstr(why.text, "chmod 600"));
    assert_int_equal(b.named.count, 6);
    pq_bundle_free(&b);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(read_bundle(&f, &b, &why), PQ_E_NOENT);
    pq_bundle_free(&b);
    write_in(&f, "p.yaml", "ingress: 3");
    assert_int_equal(read_bundle(&f, &b, &why), PQ_E_CONFIG);
    assert_int_equal(b.named.count, 1);
}

static void every_allocation_of_a_bundle_may_fail(void **state)
{
    (void)state;
    DEFER(remove_folder) struct folder f;
    make_folder(&f);
    write_bundle(&f);
    bool reached = true;
    for (long n = 1; reached; n++) {
        DEFER(pq_bundle_free) struct pq_bundle b = {0}, got = {0};
        DEFER(pq_closep) int packed = -1;
        pq_alloc_fail_at(n);
        int e = read_bundle(&f, &b, NULL);
        if (e == 0)
            e = pq_bundle_pack(&b, (const uint64_t[]){1, 2}, &packed, NULL);
        if (e == 0)
            e = pq_bundle_unpack(packed, &got, NULL);
        reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        assert_int_equal(e, reached ? PQ_E_NOMEM : 0);
    }
}

/* --- handing over ------------------------------------------------------------------------------------------------ */
static void a_socket_is_told_in_one_line(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int e;
    } rows[] = {
        {"nrf 127.0.0.1:0 0 0", 0},
        {"nrf [2001:db8::1]:7777 1 2", 0},
        {"a-b_c.d unix:/run/with a space.sock 64769 9223372036854775807", 0},
        {"", PQ_E_SYNTAX},
        {"nrf", PQ_E_SYNTAX},
        {"nrf 127.0.0.1:0 0", PQ_E_SYNTAX},
        {"127.0.0.1:0 0 0", PQ_E_SYNTAX},
        {" 127.0.0.1:0 0 0", PQ_E_SYNTAX},
        {"nrf 127.0.0.1:0 0 x", PQ_E_SYNTAX},
        {"nrf 127.0.0.1:0 -1 0", PQ_E_SYNTAX},
        {"nrf nonsense 0 0", PQ_E_SYNTAX},
        {"nrf 127.0.0.1:0 0 9223372036854775808", PQ_E_SYNTAX},
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_listening l = {.fd = -1};
        char back[256];
        int e = pq_handover_socket_read(rows[i].text, &l);
        if (e != rows[i].e)
            fail_msg("row %zu, \"%s\": %s", i, rows[i].text, pq_error_name(e));
        if (e < 0) {
            assert_null(l.name);
            continue;
        }
        assert_int_equal(pq_handover_socket_write(&l, back, sizeof back), 0);
        assert_string_equal(back, rows[i].text);
        for (size_t size = 0; size <= strlen(back); size++) {
            char little[256];
            assert_int_equal(pq_handover_socket_write(&l, little, size), PQ_E_TOO_LONG);
        }
        free(l.name);
    }
}

static void keys_are_told_in_digits(void **state)
{
    (void)state;
    const uint8_t keys[] = {0x00, 0x7f, 0xff};
    uint8_t got[3] = {1, 2, 3};
    char text[7];
    pq_handover_keys_write(keys, sizeof keys, text);
    assert_string_equal(text, "007fff");
    for (const char *const *bad = (const char *const[]){"", "007ff", "007ffff", "007fFF", "007f f", NULL}; *bad; bad++)
        assert_int_equal(pq_handover_keys_read(*bad, got, sizeof got), PQ_E_SYNTAX);
    assert_memory_equal(got, ((uint8_t[]){1, 2, 3}), 3);
    assert_int_equal(pq_handover_keys_read(text, got, sizeof got), 0);
    assert_memory_equal(got, keys, sizeof keys);
}

static void words_and_descriptors_arrive(void **state)
{
    (void)state;
    int pair[2], fd;
    static char long_one[PQ_HANDOVER_TEXT + 1], text[PQ_HANDOVER_TEXT];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
    assert_int_equal(pq_handover_receive(pair[1], text, &fd), PQ_E_WANT_READ);
    assert_int_equal(pq_handover_send(pair[0], "socket", STDERR_FILENO), 0);
    assert_int_equal(pq_handover_send(pair[0], "end", -1), 0);
    assert_int_equal(pq_handover_receive(pair[1], text, &fd), 0);
    assert_string_equal(text, "socket");
    assert_true(fd > STDERR_FILENO);
    close(fd);
    assert_int_equal(pq_handover_receive(pair[1], text, &fd), 0);
    assert_string_equal(text, "end");
    assert_int_equal(fd, -1);
    memset(long_one, 'x', PQ_HANDOVER_TEXT);
    assert_int_equal(pq_handover_send(pair[0], long_one, -1), PQ_E_TOO_LONG);
    assert_int_equal(send(pair[0], long_one, PQ_HANDOVER_TEXT, 0), PQ_HANDOVER_TEXT);
    assert_int_equal(pq_handover_receive(pair[1], text, &fd), PQ_E_SYNTAX);
    long_one[PQ_HANDOVER_TEXT - 1] = '\0';
    assert_int_equal(pq_handover_send(pair[0], long_one, -1), 0);
    assert_int_equal(pq_handover_receive(pair[1], text, &fd), 0);
    assert_int_equal(strlen(text), PQ_HANDOVER_TEXT - 1);
    assert_int_equal(send(pair[0], "a\0b", 3, 0), 3);
    assert_int_equal(pq_handover_receive(pair[1], text, &fd), PQ_E_SYNTAX);
    close(pair[0]);
    assert_int_equal(pq_handover_receive(pair[1], text, &fd), PQ_E_CLOSED);
    assert_int_equal(pq_handover_send(pair[1], "ready", -1), PQ_E_CLOSED);
    close(pair[1]);
}

static void what_another_has_too_keeps_its_path(void **state)
{
    (void)state;
    struct pq_listening_set old = {0}, new = {0}, removed = {0}, next;
    char folder[] = "/tmp/pq-listening-XXXXXX", stays[PQ_ADDRESS_TEXT], goes[PQ_ADDRESS_TEXT], line[256];
    assert_non_null(mkdtemp(folder));
    snprintf(stays, sizeof stays, "unix:%s/stays", folder);
    snprintf(goes, sizeof goes, "unix:%s/goes", folder);
    assert_int_equal(plan(&old, (const char *const[][2]){{"a", stays}, {"b", goes}}, 2, &next, NULL), 0);
    take(&old, &next);
    for (int again = 0; again < 2; again++) {
        for (size_t i = 0; i < old.count; i++) {
            struct pq_listening l;
            assert_int_equal(pq_handover_socket_write(&old.at[i], line, sizeof line), 0);
            assert_int_equal(pq_handover_socket_read(line, &l), 0);
            l.fd = dup(old.at[i].fd);
            l.number = ++new.last;
            l.shared = true;
            assert_int_equal(pq_listening_add(&new, &l), 0);
        }
        assert_int_equal(plan(&new, (const char *const[][2]){{"a", stays}}, 1, &next, NULL), 0);
        pq_listening_take(&new, &next, &removed);
        if (again) {
            pq_listening_own(&new);
            pq_listening_own(&removed);
        }
        pq_listening_close(&removed);
        pq_listening_close(&new);
        assert_int_equal(access(stays + 5, F_OK), again ? -1 : 0);
        assert_int_equal(access(goes + 5, F_OK), again ? -1 : 0);
    }
    pq_listening_forget(&old);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_is_started_at_once_and_then_later_and_later),
        cmocka_unit_test(a_path_that_another_bound_stays),
        cmocka_unit_test(a_reload_keeps_the_sockets_of_addresses_that_stay),
        cmocka_unit_test(a_plan_that_fails_or_is_dropped_changes_nothing),
        cmocka_unit_test(every_allocation_of_a_plan_may_fail),
        cmocka_unit_test(a_socket_is_told_in_one_line),
        cmocka_unit_test(keys_are_told_in_digits),
        cmocka_unit_test(words_and_descriptors_arrive),
        cmocka_unit_test(what_another_has_too_keeps_its_path),
        cmocka_unit_test(each_way_to_change_a_file_is_seen),
        cmocka_unit_test(a_link_turned_on_the_way_is_seen),
        cmocka_unit_test(what_goes_on_changing_is_not_settled),
        cmocka_unit_test(every_allocation_of_a_watch_may_fail),
        cmocka_unit_test(a_bundle_arrives_as_it_was),
        cmocka_unit_test(a_bundle_knows_whether_something_changed),
        cmocka_unit_test(a_bundle_that_can_not_be_read_names_its_files),
        cmocka_unit_test(every_allocation_of_a_bundle_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
