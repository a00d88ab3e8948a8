#include "net/redirect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "../alloc.h"
#include "base/cleanup.h"

static struct pq_redirect some(void)
{
    struct pq_redirect r = {.name = "udm", .uid = 1000, .except = 65534, .port = 15001};
    static const char *const networks[] = {"10.0.0.0/8", "fd00::/8", "198.18.0.5"};
    static const char *const ports[] = {"80", "8000-8100"};
    for (size_t i = 0; i < PQ_COUNT(networks); i++)
        assert_int_equal(pq_network_parse(networks[i], &r.networks[r.network_count++], NULL), 0);
    for (size_t i = 0; i < PQ_COUNT(ports); i++)
        assert_int_equal(pq_ports_parse(ports[i], &r.ports[r.port_count++], NULL), 0);
    return r;
}

static void expect_script(const struct pq_redirect *r, const char *rules)
{
    DEFER(pq_buf_free) struct pq_buf script = {.cap = 64 << 10}, want = {.cap = 64 << 10};
    assert_int_equal(pq_redirect_script(r, &script), 0);
    assert_int_equal(pq_buf_printf(&want,
                                   "table inet pqplane-udm\ndelete table inet pqplane-udm\ntable inet pqplane-udm {\n"
                                   "\tchain output {\n\t\ttype nat hook output priority -100; policy accept;\n"
                                   "\t\tmeta skuid %u return\n%s\t}\n}\n",
                                   r->except, rules),
                     0);
    assert_string_equal((const char *)script.at, (const char *)want.at);
}

static void scripts_say_what_was_asked(void **state)
{
    (void)state;
    struct pq_redirect r = some();
    expect_script(&r, "\t\tip daddr 127.0.0.0/8 return\n\t\tip6 daddr ::1 return\n"
                      "\t\tmeta skuid 1000 ip daddr { 10.0.0.0/8, 198.18.0.5/32 } tcp dport { 80, 8000-8100 } counter "
                      "redirect to :15001\n"
                      "\t\tmeta skuid 1000 ip6 daddr { fd00::/8 } tcp dport { 80, 8000-8100 } counter redirect to "
                      ":15001\n");
    r.network_count = 1;
    r.port_count = 0;
    r.loopback = true;
    expect_script(&r, "\t\tmeta skuid 1000 ip daddr { 10.0.0.0/8 } meta l4proto tcp counter redirect to :15001\n");
    r.network_count = 0;
    r.except = 7;
    assert_int_equal(pq_redirect_cgroup("/sys/fs/cgroup/system.slice/udm@1.service/", &r, NULL), 0);
    expect_script(&r, "\t\tsocket cgroupv2 level 2 \"system.slice/udm@1.service\" meta l4proto tcp counter redirect to "
                      ":15001\n");
}

static void what_contradicts_itself_is_refused(void **state)
{
    (void)state;
    struct pq_redirect r = some();
    struct pq_why why = {""};
    assert_int_equal(pq_redirect_check(&r, &why), 0);
    r.except = r.uid;
    assert_int_equal(pq_redirect_check(&r, &why), PQ_E_INVALID);
    assert_non_null(strstr(why.text, "user 1000 is the proxy's own"));
    r.by_cgroup = true;
    assert_int_equal(pq_redirect_check(&r, &why), 0);
    assert_int_equal(pq_network_parse("10.9.0.0/16", &r.networks[r.network_count++], NULL), 0);
    assert_int_equal(pq_redirect_check(&r, &why), PQ_E_INVALID);
    assert_non_null(strstr(why.text, "10.0.0.0/8 and 10.9.0.0/16 overlap"));
    r = some();
    assert_int_equal(pq_ports_parse("79-80", &r.ports[r.port_count++], NULL), 0);
    assert_int_equal(pq_redirect_check(&r, &why), PQ_E_INVALID);
    static const char *const names[] = {"", "a b", "a;b", "a/b", "a\"b", "12345678901234567890123456789012"};
    for (size_t i = 0; i < PQ_COUNT(names); i++) {
        r = some();
        snprintf(r.name, sizeof r.name, "%s", i == PQ_COUNT(names) - 1 ? "a\n" : names[i]);
        assert_int_equal(pq_redirect_check(&r, &why), PQ_E_INVALID);
        assert_int_equal(pq_redirect_remove(names[i], &why), PQ_E_INVALID);
    }
}

static void ports_and_cgroups_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int low, high; /* 0: refused */
    } ports[] = {{"1", 1, 1},         {"65535", 65535, 65535}, {"1-65535", 1, 65535}, {"5-5", 5, 5}, {"0", 0, 0},
                 {"65536", 0, 0},     {"5-4", 0, 0},           {"-5", 0, 0},          {"5-", 0, 0},  {"", 0, 0},
                 {"80,81", 0, 0},     {"http", 0, 0},          {"1-2-3", 0, 0},       {" 80", 0, 0}, {"080", 0, 0},
                 {"123456789", 0, 0}, {"00000080-90", 0, 0}};
    for (size_t i = 0; i < PQ_COUNT(ports); i++) {
        struct pq_ports p = {0};
        int e = pq_ports_parse(ports[i].text, &p, NULL);
        if (e != (ports[i].low ? 0 : PQ_E_INVALID) || p.low != ports[i].low || p.high != ports[i].high)
            fail_msg("%s: %d %u %u", ports[i].text, e, p.low, p.high);
    }
    static const struct {
        const char *text, *path; /* NULL: refused */
    } groups[] = {{"a", "a"},
                  {"/a/b/", "a/b"},
                  {"/sys/fs/cgroup/a/b", "a/b"},
                  {"a\\x2db", "a\\x2db"},
                  {"", NULL},
                  {"/", NULL},
                  {"a//b", NULL},
                  {"a\"b", NULL},
                  {"a\nb", NULL},
                  {"/sys/fs/cgroup/", NULL}};
    for (size_t i = 0; i < PQ_COUNT(groups); i++) {
        struct pq_redirect r = {0};
        int e = pq_redirect_cgroup(groups[i].text, &r, NULL);
        if (e != (groups[i].path ? 0 : PQ_E_INVALID) || strcmp(r.cgroup, groups[i].path ? groups[i].path : "") != 0)
            fail_msg("%s: %d %s", groups[i].text, e, r.cgroup);
    }
    char deep[128] = "a";
    for (int i = 1; i < PQ_CGROUP_LEVELS_MAX; i++)
        memcpy(deep + strlen(deep), "/a", 3);
    struct pq_redirect r = {0};
    assert_int_equal(pq_redirect_cgroup(deep, &r, NULL), 0);
    memcpy(deep + strlen(deep), "/a", 3);
    assert_int_equal(pq_redirect_cgroup(deep, &r, NULL), PQ_E_INVALID);
}

/* --- nft's answer ------------------------------------------------------------------------------------------------ */
#define HEAD                                                                                                           \
    "{\"nftables\": [{\"metainfo\": {\"version\": \"1.1.7\"}}, {\"table\": {\"family\": \"inet\", \"name\": "          \
    "\"other\"}}, "
#define TABLE(name) "{\"table\": {\"family\": \"inet\", \"name\": \"" name "\", \"handle\": 3}}, "
#define RULE(name, expressions)                                                                                        \
    "{\"rule\": {\"family\": \"inet\", \"table\": \"" name                                                             \
    "\", \"chain\": \"output\", \"handle\": 4, \"expr\": [" expressions "]}}, "
#define MATCH(left, right) "{\"match\": {\"op\": \"==\", \"left\": " left ", \"right\": " right "}}, "
#define SKUID              "{\"meta\": {\"key\": \"skuid\"}}"
#define DADDR(family)      "{\"payload\": {\"protocol\": \"" family "\", \"field\": \"daddr\"}}"
#define DPORT              "{\"payload\": {\"protocol\": \"tcp\", \"field\": \"dport\"}}"
#define PREFIX(addr, len)  "{\"prefix\": {\"addr\": \"" addr "\", \"len\": " len "}}"
#define RETURN             "{\"return\": null}"
#define REDIRECT(packets)  "{\"counter\": {\"packets\": " packets ", \"bytes\": 1}}, {\"redirect\": {\"port\": 15001}}"
#define TAIL               "{\"chain\": {\"family\": \"inet\", \"table\": \"pqplane-udm\", \"name\": \"output\"}}]}"

static const char answer[] = HEAD TABLE("pqplane-udm") RULE("pqplane-udm", MATCH(SKUID, "65534") RETURN)
    RULE("pqplane-udm", MATCH(DADDR("ip"), PREFIX("127.0.0.0", "8")) RETURN)
        RULE("pqplane-udm", MATCH(DADDR("ip6"), "\"::1\"") RETURN)
            RULE("pqplane-udm",
                 MATCH(SKUID, "1000") MATCH(DADDR("ip"), "{\"set\": [" PREFIX("10.0.0.0", "8") ", \"198.18.0.5\"]}")
                     MATCH(DPORT, "{\"set\": [80, {\"range\": [8000, 8100]}]}") REDIRECT("3"))
                RULE("pqplane-udm", MATCH(SKUID, "1000") MATCH(DADDR("ip6"), PREFIX("fd00::", "8"))
                                        MATCH(DPORT, "{\"set\": [80, {\"range\": [8000, 8100]}]}") REDIRECT("4"))
                    RULE("other", MATCH(SKUID, "0") RETURN) TAIL;

static void what_nft_shows_is_what_was_asked(void **state)
{
    (void)state;
    DEFER(pq_redirects_free) struct pq_redirects all = {0};
    struct pq_redirect want = some();
    want.connections = 7;
    assert_int_equal(pq_redirects_parse(pq_span(answer, strlen(answer)), &all, NULL), 0);
    assert_int_equal(all.count, 1);
    const struct pq_redirect *got = &all.at[0];
    assert_string_equal(got->name, "udm");
    assert_true(got->uid == 1000 && got->except == 65534 && got->port == 15001 && got->connections == 7);
    assert_false(got->by_cgroup || got->loopback || got->edited);
    assert_int_equal(got->network_count, 3);
    assert_memory_equal(&got->networks[2], &want.networks[1], sizeof want.networks[0]);
    assert_int_equal(got->port_count, 2);
    assert_memory_equal(got->ports, want.ports, 2 * sizeof want.ports[0]);
}

static const struct {
    const char *what, *json;
    size_t count;
    bool edited;
} answers[] = {
    {"none", "{\"nftables\": []}", 0, false},
    {"somebody else's", HEAD TAIL, 0, false},
    {"an empty table", HEAD TABLE("pqplane-a") TAIL, 1, false},
    {"a name too long", HEAD TABLE("pqplane-12345678901234567890123456789012") TAIL, 0, false},
    {"a rule without verdict", HEAD RULE("pqplane-a", "{\"drop\": null}") TAIL, 1, true},
    {"an empty rule", HEAD RULE("pqplane-a", "") TAIL, 1, true},
    {"no rule at all", HEAD "{\"rule\": {\"family\": \"inet\", \"table\": \"pqplane-a\"}}, " TAIL, 1, true},
    {"another match", HEAD RULE("pqplane-a", MATCH("{\"meta\": {\"key\": \"mark\"}}", "1") REDIRECT("0")) TAIL, 1,
     true},
    {"a user by name", HEAD RULE("pqplane-a", MATCH(SKUID, "\"root\"") RETURN) TAIL, 1, true},
    {"a negative user", HEAD RULE("pqplane-a", MATCH(SKUID, "-1") RETURN) TAIL, 1, true},
    {"a port too high", HEAD RULE("pqplane-a", MATCH(DPORT, "65536") REDIRECT("0")) TAIL, 1, true},
    {"a range backwards", HEAD RULE("pqplane-a", MATCH(DPORT, "{\"range\": [5, 4]}") REDIRECT("0")) TAIL, 1, true},
    {"no network", HEAD RULE("pqplane-a", MATCH(DADDR("ip"), PREFIX("x", "8")) REDIRECT("0")) TAIL, 1, true},
    {"a prefix too long", HEAD RULE("pqplane-a", MATCH(DADDR("ip"), PREFIX("10.0.0.0", "33")) REDIRECT("0")) TAIL, 1,
     true},
    {"texts where objects are", "{\"nftables\": [1, \"x\", null, {\"table\": \"x\"}, {\"rule\": [1]}]}", 0, false},
    {"a cgroup that is a number",
     HEAD RULE("pqplane-a", MATCH("{\"socket\": {\"key\": \"cgroupv2\"}}", "12") REDIRECT("0")) TAIL, 1, true},
};

static void other_answers_are_told_apart(void **state)
{
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(answers); i++) {
        DEFER(pq_redirects_free) struct pq_redirects all = {0};
        size_t count = 0;
        bool edited = false;
        assert_int_equal(pq_redirects_parse(pq_span(answers[i].json, strlen(answers[i].json)), &all, NULL), 0);
        for (size_t k = 0; k < all.count; k++) {
            count += strcmp(all.at[k].name, "a") == 0;
            edited |= all.at[k].edited;
        }
        if (count != answers[i].count || edited != answers[i].edited)
            fail_msg("%s: %zu %d", answers[i].what, count, edited);
    }
}

static void half_an_answer_is_none(void **state)
{
    (void)state;
    for (size_t len = 0; len < strlen(answer); len++) {
        DEFER(pq_redirects_free) struct pq_redirects all = {0};
        DEFER(pq_freep) char *part = malloc(len ? len : 1);
        memcpy(part, answer, len);
        assert_int_equal(pq_redirects_parse(pq_span(part, len), &all, NULL), PQ_E_SYNTAX);
        assert_int_equal(all.count, 0);
    }
}

static void more_than_the_cap_is_refused(void **state)
{
    (void)state;
    for (int most = PQ_REDIRECTS_MAX; most <= PQ_REDIRECTS_MAX + 1; most++) {
        DEFER(pq_buf_free) struct pq_buf b = {.cap = 1 << 20};
        DEFER(pq_redirects_free) struct pq_redirects all = {0};
        assert_int_equal(pq_buf_text(&b, "{\"nftables\": ["), 0);
        for (int i = 0; i < most; i++)
            assert_int_equal(pq_buf_printf(&b, "{\"table\": {\"family\": \"inet\", \"name\": \"pqplane-%d\"}}, ", i),
                             0);
        assert_int_equal(pq_buf_text(&b, "{}]}"), 0);
        assert_int_equal(pq_redirects_parse(pq_span(b.at, b.len), &all, NULL),
                         most > PQ_REDIRECTS_MAX ? PQ_E_TOO_LONG : 0);
        assert_int_equal(all.count, most > PQ_REDIRECTS_MAX ? 0 : most);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int what = 0; what < 2; what++)
        for (long n = 1;; n++) {
            struct pq_redirect r = some();
            DEFER(pq_redirects_free) struct pq_redirects all = {0};
            DEFER(pq_buf_free) struct pq_buf script = {.cap = 64 << 10};
            pq_alloc_fail_at(n);
            int e = what ? pq_redirect_script(&r, &script)
                         : pq_redirects_parse(pq_span(answer, strlen(answer)), &all, NULL);
            bool reached = pq_alloc_failed();
            pq_alloc_fail_at(0);
            if (!reached) {
                assert_int_equal(e, 0);
                assert_true(n > 1);
                break;
            }
            assert_int_equal(e, PQ_E_NOMEM);
        }
}

/* --- where to ---------------------------------------------------------------------------------------------------- */
static void who_came_by_himself_was_not_redirected(void **state)
{
    (void)state;
    static const char *const texts[] = {"127.0.0.1:0", "[::1]:0", "[::]:0"};
    for (size_t i = 0; i < PQ_COUNT(texts); i++) {
        struct pq_address at, to = {.len = 77};
        DEFER(pq_closep) int listener = -1;
        DEFER(pq_closep) int out = -1;
        DEFER(pq_closep) int in = -1;
        assert_int_equal(pq_address_parse(texts[i], &at, NULL), 0);
        if (pq_tcp_listen(&at, 0, &listener, NULL) < 0) {
            print_message("%s: this host has no such address\n", texts[i]);
            continue;
        }
        at = pq_address_local(listener);
        int e = pq_tcp_connect(&at, &out, NULL);
        assert_true(e == 0 || e == PQ_E_WANT_WRITE);
        while (pq_tcp_accept(listener, &in, NULL) == PQ_E_WANT_READ)
            usleep(1000);
        assert_int_equal(pq_redirect_original(in, &to), PQ_E_NOT_FOUND);
        assert_int_equal(to.len, 77);
    }
    struct pq_address to;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(pq_redirect_original(fds[0], &to), PQ_E_NOT_FOUND);
    close(fds[0]);
    close(fds[1]);
    assert_int_equal(pq_redirect_original(-1, &to), PQ_E_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scripts_say_what_was_asked),
        cmocka_unit_test(what_contradicts_itself_is_refused),
        cmocka_unit_test(ports_and_cgroups_are_read),
        cmocka_unit_test(what_nft_shows_is_what_was_asked),
        cmocka_unit_test(other_answers_are_told_apart),
        cmocka_unit_test(half_an_answer_is_none),
        cmocka_unit_test(more_than_the_cap_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(who_came_by_himself_was_not_redirected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
