#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "../alloc.h"

/* Computed by an independent Python version of the published algorithms. */
static void the_sequence_is_fixed(void **state)
{
    (void)state;
    struct pq_rng r = pq_rng(42);
    static const uint64_t want[] = {0x15780b2e0c2ec716, 0x6104d9866d113a7e, 0xae17533239e499a1, 0xecb8ad4703b360a1};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        assert_true(pq_rng_next(&r) == want[i]);
}

static void below_is_uniform_and_unit_is_in_range(void **state)
{
    (void)state;
    struct pq_rng r = pq_rng(1);
    size_t seen[6] = {0};
    for (int i = 0; i < 60000; i++) {
        seen[pq_rng_below(&r, 6)]++;
        double u = pq_rng_unit(&r);
        assert_true(u >= 0 && u < 1);
    }
    for (int i = 0; i < 6; i++)
        assert_int_in_range(seen[i], 9600, 10400);
    assert_int_equal(pq_rng_below(&r, 1), 0);
}

static void a_shuffle_is_a_permutation_and_repeats(void **state)
{
    (void)state;
    size_t a[50], b[50], seen[50] = {0};
    for (size_t i = 0; i < 50; i++)
        a[i] = b[i] = i;
    struct pq_rng r = pq_rng(9), again = pq_rng(9);
    pq_rng_shuffle(&r, a, 50);
    pq_rng_shuffle(&again, b, 50);
    assert_memory_equal(a, b, sizeof a);
    size_t moved = 0;
    for (size_t i = 0; i < 50; i++) {
        seen[a[i]]++;
        moved += a[i] != i;
    }
    for (size_t i = 0; i < 50; i++)
        assert_int_equal(seen[i], 1);
    assert_true(moved > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sequence_is_fixed),
        cmocka_unit_test(below_is_uniform_and_unit_is_in_range),
        cmocka_unit_test(a_shuffle_is_a_permutation_and_repeats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
