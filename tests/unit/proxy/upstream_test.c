#include "proxy/upstream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { A, B, C, D };
static struct pq_address at[4];
static struct pq_upstream *upstream;
static const int64_t now = 100 * PQ_NS_PER_S;

static int begin(void **state)
{
    (void)state;
    static struct pq_proxy_place places[3];
    struct pq_proxy_target t = {.places = places, .count = 3};
    for (int i = A; i <= D; i++) {
        char text[32];
        snprintf(text, sizeof text, "127.0.0.1:%d", 1 + i);
        assert_int_equal(pq_address_parse(text, &at[i], NULL), 0);
    }
    for (int i = A; i <= C; i++)
        places[i].at = at[i];
    return pq_upstream_new(&t, &upstream);
}

static int finish(void **state)
{
    (void)state;
    pq_upstream_free(upstream);
    return 0;
}

/* At that time the i-th fails, or works. */
static bool fails(int i, int64_t when)
{
    struct pq_upstream_try t = {0};
    struct pq_address a;
    while (pq_upstream_next(upstream, &t, when, &a))
        if (pq_address_equal(&a, &at[i]))
            return pq_upstream_failed(upstream, &t, when);
    fail_msg("it is none of them");
    return false;
}

static void works(int i, int64_t when)
{
    struct pq_upstream_try t = {0};
    struct pq_address a;
    while (pq_upstream_next(upstream, &t, when, &a))
        if (pq_address_equal(&a, &at[i]))
            pq_upstream_worked(upstream, &t);
}

static int next(struct pq_upstream_try *t, int64_t when)
{
    struct pq_address a;
    if (!pq_upstream_next(upstream, t, when, &a))
        return -1;
    return pq_address_port(&a) - 1;
}

/* The order of one attempt, as letters. */
static const char *order(int64_t when)
{
    static char text[8];
    struct pq_upstream_try t = {0};
    size_t len = 0;
    for (int i; (i = next(&t, when)) >= 0;)
        text[len++] = (char)('A' + i);
    text[len] = '\0';
    return text;
}

static void the_most_wanted_comes_first_and_each_once(void **state)
{
    (void)state;
    struct pq_upstream_try t = {0};
    assert_int_equal(pq_upstream_left(upstream, &t), 3);
    assert_int_equal(next(&t, now), A);
    assert_int_equal(pq_upstream_left(upstream, &t), 2);
    assert_int_equal(next(&t, now), B);
    assert_int_equal(next(&t, now), C);
    assert_int_equal(pq_upstream_left(upstream, &t), 0);
    assert_int_equal(next(&t, now), -1);
    assert_string_equal(order(now), "ABC");
}

static void one_that_failed_goes_last_for_10_seconds(void **state)
{
    (void)state;
    assert_true(fails(A, now));
    assert_string_equal(order(now), "BCA");
    assert_true(fails(B, now + PQ_NS_PER_S));
    assert_false(fails(B, now + PQ_NS_PER_S));
    assert_string_equal(order(now + PQ_NS_PER_S), "CAB");
    assert_string_equal(order(now + 10 * PQ_NS_PER_S), "ACB");
    assert_string_equal(order(now + 11 * PQ_NS_PER_S), "ABC");
    assert_true(fails(A, now + 12 * PQ_NS_PER_S));
    works(A, now + 12 * PQ_NS_PER_S);
    assert_string_equal(order(now + 12 * PQ_NS_PER_S), "ABC");
}

static void new_addresses_start_an_attempt_over(void **state)
{
    (void)state;
    struct pq_upstream_try t = {0};
    fails(B, now);
    assert_int_equal(next(&t, now), A);
    const struct pq_address same[] = {at[C], at[A], at[B], at[A]}, others[] = {at[D], at[B], at[A]};
    assert_false(pq_upstream_set(upstream, same, 4)); /* the order of the same ones is no news */
    assert_string_equal(order(now), "ACB");
    assert_int_equal(pq_upstream_left(upstream, &t), 2);
    assert_true(pq_upstream_set(upstream, others, 3));
    assert_false(pq_upstream_failed(upstream, &t, now)); /* it is none of ours any more */
    assert_int_equal(pq_upstream_left(upstream, &t), 3);
    assert_int_equal(next(&t, now), D);
    assert_string_equal(order(now), "DAB");
    assert_true(pq_upstream_set(upstream, others, 0));
    assert_int_equal(next(&t, now), -1);
}

static void no_more_than_there_is_room_for(void **state)
{
    (void)state;
    static struct pq_address many[100];
    for (int i = 0; i < 100; i++) {
        char text[32];
        snprintf(text, sizeof text, "127.0.0.2:%d", 1 + i);
        assert_int_equal(pq_address_parse(text, &many[i], NULL), 0);
    }
    assert_true(pq_upstream_set(upstream, many, 100));
    struct pq_upstream_try t = {0};
    int tried = 0;
    while (next(&t, now) >= 0)
        tried++;
    assert_int_equal(tried, PQ_PROXY_PLACES_MAX);
    assert_int_equal(pq_upstream_left(upstream, &t), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_most_wanted_comes_first_and_each_once),
        TEST(one_that_failed_goes_last_for_10_seconds),
        TEST(new_addresses_start_an_attempt_over),
        TEST(no_more_than_there_is_room_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
