#include "proxy/admission.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/clock.h"

static struct pq_admission_table table;
static const struct pq_admission_rates rates = {.per_source = 10, .strangers = 50};
enum { AT_ONCE = 40, STRANGERS_AT_ONCE = 200 };
#define START (5 * 3600 * PQ_NS_PER_S)

static int fresh(void **state)
{
    (void)state;
    memset(&table, 0, sizeof table);
    pq_admission_init(&table);
    return 0;
}

static struct pq_address at(const char *text)
{
    struct pq_address a;
    struct pq_why why = {""};
    if (pq_address_parse(text, &a, &why) < 0)
        fail_msg("%s", why.text);
    return a;
}

static enum pq_admission ask(const char *from, int64_t now)
{
    struct pq_address a = at(from);
    return pq_admission_ask(&table, &rates, &a, now);
}

/* How many of that many are let in. */
static int ask_often(const char *from, int64_t now, int times)
{
    int in = 0;
    for (int i = 0; i < times; i++) {
        enum pq_admission a = ask(from, now);
        in += a == PQ_ADMIT_KNOWN || a == PQ_ADMIT_STRANGER;
    }
    return in;
}

static void a_source_has_its_rate(void **state)
{
    (void)state;
    assert_int_equal(ask("192.0.2.1:1", START), PQ_ADMIT_STRANGER);
    assert_int_equal(ask_often("192.0.2.1:2", START, 100), AT_ONCE - 1);
    assert_int_equal(ask("192.0.2.1:3", START), PQ_REFUSE_SOURCE);
    assert_int_equal(ask("192.0.2.2:1", START), PQ_ADMIT_STRANGER);
    /* 10 a second: one each 100 ms, and no more than 4 seconds' worth however long nothing came. */
    assert_int_equal(ask_often("192.0.2.1:1", START + 99 * PQ_NS_PER_MS, 5), 0);
    assert_int_equal(ask_often("192.0.2.1:1", START + 100 * PQ_NS_PER_MS, 5), 1);
    assert_int_equal(ask_often("192.0.2.1:1", START + 1100 * PQ_NS_PER_MS, 50), 10);
    assert_int_equal(ask_often("192.0.2.1:1", START + 1000 * PQ_NS_PER_S, 100), AT_ONCE);
}

/* The time in an entry wraps every 19.5 hours: what is left from before is no debt. */
static void an_old_debt_is_none(void **state)
{
    (void)state;
    for (int hours = 0; hours < 60; hours++) {
        int64_t now = START + hours * 3600 * PQ_NS_PER_S;
        assert_int_equal(ask_often("192.0.2.1:1", now, 100), AT_ONCE);
    }
}

static void strangers_share_a_rate(void **state)
{
    (void)state;
    int in = 0;
    enum pq_admission last = PQ_ADMIT_STRANGER;
    for (int i = 0; i < 300; i++) {
        char from[32];
        snprintf(from, sizeof from, "192.0.%d.%d:1", i / 200, i % 200);
        last = ask(from, START);
        in += last == PQ_ADMIT_STRANGER;
    }
    assert_int_equal(in, STRANGERS_AT_ONCE);
    assert_int_equal(last, PQ_REFUSE_STRANGERS);
    assert_int_equal(ask("198.51.100.1:1", START + 20 * PQ_NS_PER_MS), PQ_ADMIT_STRANGER);
    assert_int_equal(ask("198.51.100.2:1", START + 20 * PQ_NS_PER_MS), PQ_REFUSE_STRANGERS);
}

static void who_authenticated_is_known_for_an_hour(void **state)
{
    (void)state;
    struct pq_address from = at("192.0.2.1:1");
    for (int i = 0; i < 5; i++) {
        char other[32];
        snprintf(other, sizeof other, "198.51.100.%d:1", i);
        assert_int_equal(ask_often(other, START, 100), AT_ONCE);
    }
    assert_int_equal(ask("192.0.2.1:1", START), PQ_REFUSE_STRANGERS);
    pq_admission_authenticated(&table, &from, START);
    assert_int_equal(ask("192.0.2.1:2", START), PQ_ADMIT_KNOWN);
    /* Before, it owed for one at its old rate. */
    assert_int_in_range(ask_often("192.0.2.1:2", START, 2000), AT_ONCE * PQ_ADMISSION_KNOWN_FACTOR - 21,
                        AT_ONCE * PQ_ADMISSION_KNOWN_FACTOR - 1);
    assert_int_equal(ask("192.0.2.1:2", START), PQ_REFUSE_SOURCE);
    assert_int_equal(ask("192.0.2.1:2", START + 3600 * PQ_NS_PER_S), PQ_ADMIT_KNOWN);
    assert_int_equal(ask("192.0.2.1:2", START + 3661 * PQ_NS_PER_S), PQ_ADMIT_STRANGER);
    pq_admission_authenticated(&table, &from, START + 3661 * PQ_NS_PER_S);
    assert_int_equal(ask("192.0.2.1:2", START + 7000 * PQ_NS_PER_S), PQ_ADMIT_KNOWN);
}

static void a_source_is_an_address_or_a_network(void **state)
{
    static const struct {
        const char *a, *b;
        bool same;
    } rows[] = {
        {"192.0.2.1:1", "192.0.2.1:65535", true},
        {"192.0.2.1:1", "192.0.2.2:1", false},
        {"192.0.2.1:1", "[::ffff:192.0.2.1]:1", true}, /* on a listener for both families */
        {"[2001:db8:1:2::1]:1", "[2001:db8:1:2:ffff::]:9", true},
        {"[2001:db8:1:2::1]:1", "[2001:db8:1:3::1]:1", false},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        fresh(NULL);
        assert_int_equal(ask_often(rows[i].a, START, 100), AT_ONCE);
        assert_int_equal(ask(rows[i].b, START), rows[i].same ? PQ_REFUSE_SOURCE : PQ_ADMIT_STRANGER);
    }
    assert_int_equal(ask_often("unix:/tmp/s", START, 1000), 1000);
    assert_int_equal(ask("unix:/tmp/s", START), PQ_ADMIT_KNOWN);
}

/* The reference's value for the bytes 0 to 7 under the key 0 to 15. */
static void the_hash_is_siphash(void **state)
{
    (void)state;
    table.key[0] = 0x0706050403020100;
    table.key[1] = 0x0f0e0d0c0b0a0908;
    const uint64_t hash = 0x93f5f5799a932462;
    assert_int_equal(ask("[706:504:302:100::]:1", START), PQ_ADMIT_STRANGER);
    size_t bucket = hash % (PQ_ADMISSION_SOURCES / PQ_ADMISSION_WAYS);
    assert_int_equal(table.source[bucket * PQ_ADMISSION_WAYS] >> 40, hash >> 40);
}

/* However many sources come, the tables keep their size, each still has its limit, and the known ones stay known. */
static void a_flood_of_sources_forgets_no_known_one(void **state)
{
    enum { SOURCES = 100000, KNOWN = 1000 };
    static const struct pq_admission_rates wide = {.per_source = 10, .strangers = 1000000};
    struct pq_address a = at("[2001:db8::1]:1");
    struct sockaddr_in6 *six = (void *)&a.sa;
    (void)state;
    for (int i = 0; i < KNOWN; i++) {
        six->sin6_addr.s6_addr[6] = (uint8_t)(i >> 8);
        six->sin6_addr.s6_addr[7] = (uint8_t)i;
        pq_admission_authenticated(&table, &a, START);
    }
    six->sin6_addr.s6_addr[0] = 0x30;
    for (int i = 0; i < SOURCES; i++) {
        six->sin6_addr.s6_addr[5] = (uint8_t)(i >> 16);
        six->sin6_addr.s6_addr[6] = (uint8_t)(i >> 8);
        six->sin6_addr.s6_addr[7] = (uint8_t)i;
        assert_int_equal(pq_admission_ask(&table, &wide, &a, START + i * 100 * PQ_NS_PER_US), PQ_ADMIT_STRANGER);
    }
    a = at("[2001:db8::1]:1");
    for (int i = 0; i < KNOWN; i++) {
        six->sin6_addr.s6_addr[6] = (uint8_t)(i >> 8);
        six->sin6_addr.s6_addr[7] = (uint8_t)i;
        assert_int_equal(pq_admission_ask(&table, &wide, &a, START + 20 * PQ_NS_PER_S), PQ_ADMIT_KNOWN);
    }
}

static void two_processes_share_one_limit(void **state)
{
    (void)state;
    struct shared {
        struct pq_admission_table table;
        atomic_int ready, in[2];
    } *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s != MAP_FAILED);
    static const struct pq_admission_rates many = {.per_source = 25000, .strangers = 1000000};
    struct pq_address from = at("192.0.2.1:1");
    pq_admission_init(&s->table);
    pid_t child = fork();
    assert_true(child >= 0);
    int me = child == 0;
    atomic_fetch_add(&s->ready, 1);
    while (atomic_load(&s->ready) < 2)
        sched_yield();
    for (int i = 0; i < 100000; i++)
        s->in[me] += pq_admission_ask(&s->table, &many, &from, START) == PQ_ADMIT_STRANGER;
    if (me)
        _exit(0);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(s->in[0] + s->in[1], 4 * 25000);
    munmap(s, sizeof *s);
}

#define TEST(name) cmocka_unit_test_setup(name, fresh)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_source_has_its_rate),
        TEST(an_old_debt_is_none),
        TEST(strangers_share_a_rate),
        TEST(who_authenticated_is_known_for_an_hour),
        TEST(a_source_is_an_address_or_a_network),
        TEST(the_hash_is_siphash),
        TEST(a_flood_of_sources_forgets_no_known_one),
        TEST(two_processes_share_one_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
