/* The keys of session tickets: made, replaced and forgotten by the clock; read by others while they change. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tls/internal.h"

static const int64_t start = 1000 * PQ_NS_PER_S, hour = 3600 * PQ_NS_PER_S;

static void rotation(void **state)
{
    (void)state;
    struct pq_tls_ticket_keys k = {0};
    struct pq_tls_ticket_key first, second, third, seen;
    assert_false(pq_tls_ticket_key_find(&k, NULL, start, &seen));
    assert_int_equal(pq_tls_ticket_keys_rotate(&k, start), 0);
    assert_true(pq_tls_ticket_key_find(&k, NULL, start, &first));
    assert_int_equal(pq_tls_ticket_keys_rotate(&k, start + hour - 1), 0);
    assert_true(pq_tls_ticket_key_find(&k, NULL, start + hour - 1, &seen));
    assert_memory_equal(&seen, &first, sizeof first);

    assert_int_equal(pq_tls_ticket_keys_rotate(&k, start + hour), 0);
    assert_true(pq_tls_ticket_key_find(&k, NULL, start + hour, &second));
    assert_memory_not_equal(second.id, first.id, sizeof first.id);
    assert_memory_not_equal(second.cipher, first.cipher, sizeof first.cipher);
    assert_memory_not_equal(second.mac, first.mac, sizeof first.mac);
    assert_true(pq_tls_ticket_key_find(&k, first.id, start + 2 * hour - 1, &seen));
    assert_memory_equal(&seen, &first, sizeof first);
    assert_false(pq_tls_ticket_key_find(&k, first.id, start + 2 * hour, &seen)); /* had its time, rotated or not */

    assert_int_equal(pq_tls_ticket_keys_rotate(&k, start + 2 * hour), 0);
    assert_true(pq_tls_ticket_key_find(&k, NULL, start + 2 * hour, &third));
    assert_false(pq_tls_ticket_key_find(&k, first.id, start + 2 * hour, &seen));
    assert_true(pq_tls_ticket_key_find(&k, second.id, start + 2 * hour, &seen));
}

static void late_rotation_keeps_nothing_old(void **state)
{
    (void)state;
    struct pq_tls_ticket_keys k = {0};
    struct pq_tls_ticket_key first, seen;
    assert_int_equal(pq_tls_ticket_keys_rotate(&k, start), 0);
    assert_true(pq_tls_ticket_key_find(&k, NULL, start, &first));
    assert_false(pq_tls_ticket_key_find(&k, NULL, start + 5 * hour, &seen)); /* nobody rotated: no tickets either */
    assert_int_equal(pq_tls_ticket_keys_rotate(&k, start + 5 * hour), 0);
    assert_false(pq_tls_ticket_key_find(&k, first.id, start + 5 * hour, &seen));
    uint8_t all[PQ_TLS_TICKET_KEYS_SIZE];
    pq_tls_ticket_keys_save(&k, all);
    for (size_t i = sizeof all / 2; i < sizeof all; i++)
        assert_int_equal(all[i], 0); /* wiped, too */
    /* A clock that went back: */
    assert_true(pq_tls_ticket_key_find(&k, NULL, start + 5 * hour, &first));
    assert_false(pq_tls_ticket_key_find(&k, NULL, start, &seen));
    assert_int_equal(pq_tls_ticket_keys_rotate(&k, start), 0);
    assert_true(pq_tls_ticket_key_find(&k, NULL, start, &seen));
    assert_memory_not_equal(seen.id, first.id, sizeof first.id);
}

static void another_process_takes_over(void **state)
{
    (void)state;
    struct pq_tls_ticket_keys old = {0}, new = {0};
    struct pq_tls_ticket_key a, b;
    uint8_t all[PQ_TLS_TICKET_KEYS_SIZE];
    assert_int_equal(pq_tls_ticket_keys_rotate(&old, start), 0);
    assert_int_equal(pq_tls_ticket_keys_rotate(&old, start + hour), 0);
    pq_tls_ticket_keys_save(&old, all);
    pq_tls_ticket_keys_load(&new, all);
    assert_true(pq_tls_ticket_key_find(&old, NULL, start + hour, &a));
    assert_true(pq_tls_ticket_key_find(&new, a.id, start + hour, &b));
    assert_memory_equal(&a, &b, sizeof a);
    pq_tls_ticket_keys_wipe(&old);
    assert_false(pq_tls_ticket_key_find(&old, NULL, start + hour, &a));
    pq_tls_ticket_keys_save(&old, all);
    for (size_t i = 0; i < sizeof all; i++)
        assert_int_equal(all[i], 0);
}

/* Killed while it wrote: readers do not wait for ever, and the next writer mends it. */
static void a_dead_writer(void **state)
{
    (void)state;
    struct pq_tls_ticket_keys k = {0};
    struct pq_tls_ticket_key seen;
    assert_int_equal(pq_tls_ticket_keys_rotate(&k, start), 0);
    k.sequence |= 1;
    assert_false(pq_tls_ticket_key_find(&k, NULL, start, &seen));
    assert_int_equal(pq_tls_ticket_keys_rotate(&k, start), 0);
    assert_true(pq_tls_ticket_key_find(&k, NULL, start, &seen));
}

static struct pq_tls_ticket_keys shared;
static _Atomic bool stop, torn;

/* Made of one byte, so that a reader sees two halves of two keys. */
static void *writer(void *context)
{
    (void)context;
    for (int i = 0; i < 20000; i++) {
        uint8_t all[PQ_TLS_TICKET_KEYS_SIZE];
        memset(all, 1 + i % 100, sizeof all);
        pq_tls_ticket_keys_load(&shared, all);
    }
    stop = true;
    return NULL;
}

static void *reader(void *context)
{
    (void)context;
    while (!stop) {
        uint8_t all[PQ_TLS_TICKET_KEYS_SIZE];
        pq_tls_ticket_keys_save(&shared, all);
        for (size_t i = 1; i < sizeof all; i++)
            torn = torn || all[i] != all[0];
    }
    return NULL;
}

static void readers_see_whole_keys(void **state)
{
    (void)state;
    pthread_t t[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&t[i], NULL, i ? reader : writer, NULL), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(t[i], NULL), 0);
    assert_false(torn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotation),
        cmocka_unit_test(late_rotation_keeps_nothing_old),
        cmocka_unit_test(another_process_takes_over),
        cmocka_unit_test(a_dead_writer),
        cmocka_unit_test(readers_see_whole_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
