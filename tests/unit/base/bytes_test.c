#include "base/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../alloc.h"
#include "base/cleanup.h"

static void reads_integers_in_network_order(void **state)
{
    (void)state;
    static const uint8_t in[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18};
    struct pq_reader r = pq_reader(pq_span(in, sizeof in));
    uint8_t a;
    uint16_t b;
    uint32_t c, d;
    uint64_t e;
    assert_int_equal(pq_read_u8(&r, &a), 0);
    assert_int_equal(pq_read_u16(&r, &b), 0);
    assert_int_equal(pq_read_u24(&r, &c), 0);
    assert_int_equal(pq_read_u32(&r, &d), 0);
    assert_int_equal(pq_read_u64(&r, &e), 0);
    assert_int_equal(a, 1);
    assert_int_equal(b, 0x0203);
    assert_int_equal(c, 0x040506);
    assert_int_equal(d, 0x0708090a);
    assert_true(e == 0x0b0c0d0e0f101112);
    assert_int_equal(pq_reader_left(&r), 0);
    assert_int_equal(pq_read_u8(&r, &a), PQ_E_TRUNCATED);
    assert_int_equal(a, 1);
}

static void every_truncated_vector_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    static const uint8_t whole[] = {0, 0, 5, 'h', 'e', 'l', 'l', 'o'};
    for (size_t len = 0; len <= sizeof whole; len++) {
        uint8_t *exact = malloc(len ? len : 1);
        assert_non_null(exact);
        memcpy(exact, whole, len);
        struct pq_reader r = pq_reader(pq_span(exact, len));
        struct pq_span out = {NULL, 99};
        int e = pq_read_vector(&r, 3, 5, &out);
        assert_int_equal(e, len == sizeof whole ? 0 : PQ_E_TRUNCATED);
        assert_int_equal(out.len, e ? 99 : 5);
        assert_int_equal(pq_reader_left(&r), e ? len : 0);
        free(exact);
    }
}

static void a_vector_at_its_cap_passes_and_one_past_it_does_not(void **state)
{
    (void)state;
    static const uint8_t in[] = {3, 'a', 'b', 'c'};
    struct pq_span out;
    struct pq_reader r = pq_reader(pq_span(in, sizeof in));
    assert_int_equal(pq_read_vector(&r, 1, 2, &out), PQ_E_TOO_LONG);
    assert_int_equal(pq_read_vector(&r, 1, 3, &out), 0);
}

static void the_writer_stops_at_its_bound(void **state)
{
    (void)state;
    uint8_t out[6];
    struct pq_writer w = pq_writer(out, sizeof out);
    assert_int_equal(pq_write_u8(&w, 1), 0);
    assert_int_equal(pq_write_u24(&w, 0x020304), 0);
    assert_int_equal(pq_write_u24(&w, 0x1000000), PQ_E_TOO_LONG);
    assert_int_equal(pq_write_u32(&w, 5), PQ_E_TOO_LONG);
    assert_int_equal(pq_write_u64(&w, 5), PQ_E_TOO_LONG);
    assert_int_equal(w.len, 4);
    assert_int_equal(pq_write_bytes(&w, pq_span("xyz", 3)), PQ_E_TOO_LONG);
    assert_int_equal(pq_write_u16(&w, 0x0506), 0);
    static const uint8_t want[] = {1, 2, 3, 4, 5, 6};
    assert_memory_equal(out, want, sizeof want);
}

static void a_buffer_grows_to_its_cap(void **state)
{
    (void)state;
    struct pq_buf b = {.cap = 100};
    for (int i = 0; i < 100; i++)
        assert_int_equal(pq_buf_append(&b, "x", 1), 0);
    assert_int_equal(pq_buf_append(&b, "x", 1), PQ_E_TOO_LONG);
    assert_int_equal(pq_buf_printf(&b, "%d", 1), PQ_E_TOO_LONG);
    assert_int_equal(b.len, 100);
    assert_int_equal(b.at[100], 0);
    pq_buf_consume(&b, 60);
    assert_int_equal(b.len, 40);
    assert_int_equal(pq_buf_printf(&b, "%s-%d", "text", 42), 0);
    assert_string_equal((char *)b.at + 40, "text-42");
    pq_buf_consume(&b, 1000);
    assert_int_equal(b.len, 0);
    pq_buf_free(&b);
    assert_null(b.at);
    assert_int_equal(b.cap, 100);
}

static void a_wiped_buffer_holds_nothing(void **state)
{
    (void)state;
    struct pq_buf b = {.cap = 64};
    assert_int_equal(pq_buf_text(&b, "secret"), 0);
    pq_buf_wipe(&b);
    assert_null(b.at);
    assert_int_equal(b.len, 0);
}

static int build(struct pq_buf *b)
{
    for (int i = 0; i < 500; i++)
        TRY(pq_buf_printf(b, "line %d\n", i));
    return 0;
}

static void every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        struct pq_buf b = {.cap = 1 << 20};
        pq_alloc_fail_at(n);
        int e = build(&b);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        pq_buf_free(&b);
        assert_int_equal(e, reached ? PQ_E_NOMEM : 0);
        if (!reached)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_integers_in_network_order),
        cmocka_unit_test(every_truncated_vector_is_refused_and_changes_nothing),
        cmocka_unit_test(a_vector_at_its_cap_passes_and_one_past_it_does_not),
        cmocka_unit_test(the_writer_stops_at_its_bound),
        cmocka_unit_test(a_buffer_grows_to_its_cap),
        cmocka_unit_test(a_wiped_buffer_holds_nothing),
        cmocka_unit_test(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
