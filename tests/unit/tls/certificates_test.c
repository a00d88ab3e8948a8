/* How many certificates a message lists, before libssl reads it; and how many bytes of them are taken by default. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "certs.h"
#include "pair.h"
#include "tls/internal.h"

static struct certs world;

static int set_up(void **state)
{
    (void)state;
    certs_new(&world);
    return 0;
}
static int tear_down(void **state)
{
    (void)state;
    certs_free(&world);
    return 0;
}

static const struct {
    const char *name, *hex;
    int want;
    size_t count;
} rows[] = {
    {"no certificate", "0b000004 00 000000", 0, 0},
    {"one", "0b00000c 00 000008 000003aabbcc 0000", 0, 1},
    {"with a context and extensions", "0b000010 02 7777 00000a 000003aabbcc 0002 0102", 0, 1},
    {"two, one of them empty", "0b000011 00 00000d 000003aabbcc 0000 000000 0000", 0, 2},
    {"empty", "", PQ_E_TRUNCATED, 0},
    {"a list that runs past the end", "0b00000c 00 000009 000003aabbcc 0000", PQ_E_TRUNCATED, 0},
    {"a certificate that runs past its list", "0b00000c 00 000008 000004aabbcc 0000", PQ_E_TRUNCATED, 0},
    {"no extensions' length", "0b00000a 00 000006 000003aabbcc", PQ_E_TRUNCATED, 0},
};

static size_t bytes_of(const char *hex, uint8_t *out)
{
    size_t n = 0;
    for (const char *at = hex; *at;) {
        if (*at == ' ') {
            at++;
            continue;
        }
        char two[3] = {at[0], at[1], 0};
        out[n++] = (uint8_t)strtol(two, NULL, 16);
        at += 2;
    }
    return n;
}

static void counting(void **state)
{
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        uint8_t bytes[64];
        size_t n = bytes_of(rows[i].hex, bytes), count = 99;
        int e = pq_tls_count_certificates(pq_span(bytes, n), &count);
        if (e != rows[i].want || count != (e == 0 ? rows[i].count : 99))
            fail_msg("%s: %s, %zu", rows[i].name, pq_error_name(e), count);
        for (size_t cut = 0; cut < n && e == 0; cut++) {
            uint8_t *exact = malloc(cut ? cut : 1);
            memcpy(exact, bytes, cut);
            assert_int_equal(pq_tls_count_certificates(pq_span(exact, cut), &count), PQ_E_TRUNCATED);
            free(exact);
        }
    }
}

static void the_cap_fits_the_largest_algorithm(void **state)
{
    static const struct {
        const char *root, *sigalgs;
        int64_t given, cap;
    } caps[] = {
        {"ML-DSA-44", NULL, 0, 24 << 10},
        {"ML-DSA-87", NULL, 0, 24 << 10},
        {"rsa2048", NULL, 0, 24 << 10},
        {"SLH-DSA-SHA2-128s", NULL, 0, (24 << 10) + 3 * 7856},
        {"SLH-DSA-SHAKE-256f", NULL, 0, (24 << 10) + 3 * 49856},
        {"ML-DSA-87", "mldsa65:ecdsa_secp384r1_sha384:?ed25519:rsa_pss_pss_sha256:ECDSA+SHA256", 0, 24 << 10},
        {"ML-DSA-87", "mldsa65:?falcon512", 0, 256 << 10},
        {"SLH-DSA-SHA2-128s", NULL, 5000, 5000},
        {"SLH-DSA-SHA2-128s", NULL, 1 << 20, 1 << 20},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(caps); i++) {
        const struct cert *root =
            certs_make(&world, (struct cert_how){.algorithm = caps[i].root, .name = "root", .ca = true});
        struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 3, NULL, root);
        s.policy.sigalgs = (char *)(uintptr_t)caps[i].sigalgs;
        s.max_certificate_list = caps[i].given;
        struct pq_why why = {{0}};
        DEFER(pq_tls_context_freep) struct pq_tls_context *c = NULL;
        if (pq_tls_context_new(world.crypto, PQ_TLS_CLIENT, &s, &c, &why) < 0)
            fail_msg("%s", why.text);
        assert_int_equal(c->list_cap, caps[i].cap);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counting),
        TEST(the_cap_fits_the_largest_algorithm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
