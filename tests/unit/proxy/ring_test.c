#include "proxy/ring.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../alloc.h"
#include "base/random.h"

enum { SIZE = 64 };

static void holds_what_was_put_in(void **state)
{
    (void)state;
    struct pq_ring_pool pool = {.size = SIZE};
    struct pq_ring ring = {0};
    struct pq_rng rng = pq_rng(7);
    uint8_t next_in = 0, next_out = 0;
    for (int step = 0; step < 20000; step++) {
        uint8_t *room;
        size_t n;
        assert_int_equal(pq_ring_room(&ring, &pool, &room, &n), 0);
        assert_true(n > 0 || ring.len == SIZE);
        assert_true(n <= SIZE - ring.len && room >= ring.at && room + n <= ring.at + SIZE);
        size_t put = n ? pq_rng_below(&rng, n + 1) : 0;
        for (size_t i = 0; i < put; i++)
            room[i] = next_in++;
        pq_ring_filled(&ring, put);
        const uint8_t *front = pq_ring_front(&ring, &n);
        assert_true(n > 0 || ring.len == 0);
        size_t take = n ? pq_rng_below(&rng, n + 1) : 0;
        for (size_t i = 0; i < take; i++)
            assert_int_equal(front[i], next_out++);
        pq_ring_consume(&ring, take);
    }
    pq_ring_release(&ring, &pool);
    pq_ring_pool_free(&pool);
}

static void takes_its_size_and_not_one_byte_more(void **state)
{
    (void)state;
    struct pq_ring_pool pool = {.size = SIZE};
    struct pq_ring ring = {0};
    uint8_t *room;
    size_t n;
    assert_int_equal(pq_ring_room(&ring, &pool, &room, &n), 0);
    assert_int_equal(n, SIZE);
    pq_ring_filled(&ring, SIZE);
    assert_int_equal(pq_ring_room(&ring, &pool, &room, &n), 0);
    assert_int_equal(n, 0);
    pq_ring_consume(&ring, 1);
    assert_int_equal(pq_ring_room(&ring, &pool, &room, &n), 0);
    assert_int_equal(n, 1);
    assert_ptr_equal(room, ring.at);
    pq_ring_release(&ring, &pool);
    pq_ring_pool_free(&pool);
}

static void an_empty_one_starts_anew(void **state)
{
    (void)state;
    struct pq_ring_pool pool = {.size = SIZE};
    struct pq_ring ring = {0};
    uint8_t *room;
    size_t n;
    assert_int_equal(pq_ring_room(&ring, &pool, &room, &n), 0);
    pq_ring_filled(&ring, 40);
    pq_ring_consume(&ring, 40);
    assert_int_equal(pq_ring_room(&ring, &pool, &room, &n), 0);
    assert_int_equal(n, SIZE);
    pq_ring_release(&ring, &pool);
    pq_ring_pool_free(&pool);
}

static void buffers_go_round(void **state)
{
    (void)state;
    struct pq_ring_pool pool = {.size = SIZE};
    struct pq_ring rings[PQ_RING_POOL_KEPT + 8] = {0};
    uint8_t *room;
    size_t n;
    for (size_t i = 0; i < sizeof rings / sizeof rings[0]; i++)
        assert_int_equal(pq_ring_room(&rings[i], &pool, &room, &n), 0);
    assert_int_equal(pool.lent, PQ_RING_POOL_KEPT + 8);
    for (size_t i = 0; i < sizeof rings / sizeof rings[0]; i++)
        pq_ring_release(&rings[i], &pool);
    assert_int_equal(pool.lent, 0);
    assert_int_equal(pool.kept, PQ_RING_POOL_KEPT);
    void *last = pool.at[pool.kept - 1];
    assert_int_equal(pq_ring_room(&rings[0], &pool, &room, &n), 0);
    assert_ptr_equal(room, last);
    pq_ring_release(&rings[0], &pool);
    pq_ring_release(&rings[0], &pool);
    pq_ring_pool_free(&pool);
}

static void without_memory_it_stays_empty(void **state)
{
    (void)state;
    struct pq_ring_pool pool = {.size = SIZE};
    struct pq_ring ring = {0};
    uint8_t *room = NULL;
    size_t n = 7;
    pq_alloc_fail_at(1);
    assert_int_equal(pq_ring_room(&ring, &pool, &room, &n), PQ_E_NOMEM);
    assert_true(pq_alloc_failed());
    pq_alloc_fail_at(0);
    assert_null(ring.at);
    assert_null(room);
    assert_int_equal(n, 7);
    assert_int_equal(pool.lent, 0);
    assert_int_equal(pq_ring_room(&ring, &pool, &room, &n), 0);
    pq_ring_release(&ring, &pool);
    pq_ring_pool_free(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_what_was_put_in),         cmocka_unit_test(takes_its_size_and_not_one_byte_more),
        cmocka_unit_test(an_empty_one_starts_anew),      cmocka_unit_test(buffers_go_round),
        cmocka_unit_test(without_memory_it_stays_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
