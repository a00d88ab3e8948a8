#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <openssl/opensslv.h>
#include <string.h>

#include "../alloc.h"
#include "crypto/catalogue.h"
#include "crypto/catalogue_measure.h"

static struct pq_crypto *crypto;

static int setup(void **state)
{
    struct pq_why why;
    (void)state;
    return pq_crypto_new(&crypto, &why);
}

static int teardown(void **state)
{
    (void)state;
    pq_crypto_free(crypto);
    return 0;
}

static const struct pq_algorithm *find(const struct pq_catalogue *c, const char *name)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->at[i].name, name) == 0)
            return &c->at[i];
    return NULL;
}

/* Sizes of FIPS 203 (table 3), FIPS 204 (table 2), FIPS 205 (table 2), RFC 7748, RFC 8032, RFC 7919 and SEC 1; hybrids
 * are their parts' sums. Code points as IANA registers them. */
static const struct {
    const char *name;
    enum pq_use use;
    enum pq_kind kind;
    int category, code_point;
    long public_key, ciphertext, signature;
} rows[] = {
    {"secp256r1", PQ_USE_KEY_EXCHANGE, PQ_KIND_CLASSICAL, 0, 0x0017, 65, 65, -1},
    {"secp384r1", PQ_USE_KEY_EXCHANGE, PQ_KIND_CLASSICAL, 0, 0x0018, 97, 97, -1},
    {"secp521r1", PQ_USE_KEY_EXCHANGE, PQ_KIND_CLASSICAL, 0, 0x0019, 133, 133, -1},
    {"x25519", PQ_USE_KEY_EXCHANGE, PQ_KIND_CLASSICAL, 0, 0x001d, 32, 32, -1},
    {"x448", PQ_USE_KEY_EXCHANGE, PQ_KIND_CLASSICAL, 0, 0x001e, 56, 56, -1},
    {"ffdhe2048", PQ_USE_KEY_EXCHANGE, PQ_KIND_CLASSICAL, 0, 0x0100, 256, 256, -1},
    {"MLKEM512", PQ_USE_KEY_EXCHANGE, PQ_KIND_PQ, 1, 0x0200, 800, 768, -1},
    {"MLKEM768", PQ_USE_KEY_EXCHANGE, PQ_KIND_PQ, 3, 0x0201, 1184, 1088, -1},
    {"MLKEM1024", PQ_USE_KEY_EXCHANGE, PQ_KIND_PQ, 5, 0x0202, 1568, 1568, -1},
    {"SecP256r1MLKEM768", PQ_USE_KEY_EXCHANGE, PQ_KIND_HYBRID, 3, 0x11eb, 65 + 1184, 65 + 1088, -1},
    {"X25519MLKEM768", PQ_USE_KEY_EXCHANGE, PQ_KIND_HYBRID, 3, 0x11ec, 1184 + 32, 1088 + 32, -1},
    {"SecP384r1MLKEM1024", PQ_USE_KEY_EXCHANGE, PQ_KIND_HYBRID, 5, 0x11ed, 97 + 1568, 97 + 1568, -1},
    {"ecdsa_secp256r1_sha256", PQ_USE_SIGNATURE, PQ_KIND_CLASSICAL, 0, 0x0403, 65, -1, 72},
    {"ecdsa_secp384r1_sha384", PQ_USE_SIGNATURE, PQ_KIND_CLASSICAL, 0, 0x0503, 97, -1, 104},
    {"ecdsa_secp521r1_sha512", PQ_USE_SIGNATURE, PQ_KIND_CLASSICAL, 0, 0x0603, 133, -1, 139},
    {"rsa_pkcs1_sha256", PQ_USE_SIGNATURE, PQ_KIND_CLASSICAL, 0, 0x0401, 270, -1, 256},
    {"rsa_pss_rsae_sha256", PQ_USE_SIGNATURE, PQ_KIND_CLASSICAL, 0, 0x0804, 270, -1, 256},
    {"rsa_pss_rsae_sha512", PQ_USE_SIGNATURE, PQ_KIND_CLASSICAL, 0, 0x0806, 270, -1, 256},
    {"rsa_pss_pss_sha256", PQ_USE_SIGNATURE, PQ_KIND_CLASSICAL, 0, 0x0809, 270, -1, 256},
    {"ed25519", PQ_USE_SIGNATURE, PQ_KIND_CLASSICAL, 0, 0x0807, 32, -1, 64},
    {"ed448", PQ_USE_SIGNATURE, PQ_KIND_CLASSICAL, 0, 0x0808, 57, -1, 114},
    {"mldsa44", PQ_USE_SIGNATURE, PQ_KIND_PQ, 2, 0x0904, 1312, -1, 2420},
    {"mldsa65", PQ_USE_SIGNATURE, PQ_KIND_PQ, 3, 0x0905, 1952, -1, 3309},
    {"mldsa87", PQ_USE_SIGNATURE, PQ_KIND_PQ, 5, 0x0906, 2592, -1, 4627},
    {"SLH-DSA-SHA2-128s", PQ_USE_SIGNATURE, PQ_KIND_PQ, 1, -1, 32, -1, 7856},
    {"SLH-DSA-SHA2-192f", PQ_USE_SIGNATURE, PQ_KIND_PQ, 3, -1, 48, -1, 35664},
    {"SLH-DSA-SHAKE-256s", PQ_USE_SIGNATURE, PQ_KIND_PQ, 5, -1, 64, -1, 29792},
};

static void check_row(const struct pq_algorithm *a, size_t i)
{
    assert_int_equal(a->use, rows[i].use);
    assert_int_equal(a->kind, rows[i].kind);
    assert_false(a->experimental);
    assert_int_equal(a->code_point, rows[i].code_point);
    assert_int_equal(a->size.public_key, rows[i].public_key);
    assert_int_equal(a->size.ciphertext, rows[i].ciphertext);
    assert_int_equal(a->size.signature, rows[i].signature);
    assert_string_equal(a->provider, "default");
    assert_true(a->security_bits >= 112 && a->security_bits <= 256);
    /* OpenSSL tells a signature's category since 3.6. */
    if (OPENSSL_VERSION_NUMBER >= 0x30600000L || a->use == PQ_USE_KEY_EXCHANGE)
        assert_int_equal(a->category, rows[i].category);
}

static void agrees_with_the_standards(void **state)
{
    (void)state;
    struct pq_why why;
    struct pq_catalogue all = {0};
    assert_int_equal(pq_catalogue_new(crypto, &all, &why), 0);
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        const struct pq_algorithm *a = find(&all, rows[i].name);
        if (!a)
            fail_msg("%s is not listed", rows[i].name);
        check_row(a, i);
    }
    /* For TLS 1.2 alone, MACs, key transport: none of them is listed. */
    static const char *const others[] = {"sect571r1", "ecdsa_sha1",    "dsa_sha256", "HMAC",
                                         "POLY1305",  "rsaEncryption", "P-256"};
    for (size_t i = 0; i < PQ_COUNT(others); i++)
        assert_null(find(&all, others[i]));
    pq_catalogue_free(&all);
}

static void order_is_the_same_each_time(void **state)
{
    (void)state;
    struct pq_why why;
    struct pq_catalogue a = {0}, b = {0};
    assert_int_equal(pq_catalogue_new(crypto, &a, &why), 0);
    assert_int_equal(pq_catalogue_new(crypto, &b, &why), 0);
    assert_int_equal(a.count, b.count);
    for (size_t i = 0; i < a.count; i++) {
        assert_string_equal(a.at[i].name, b.at[i].name);
        assert_memory_equal(&a.at[i].size, &b.at[i].size, sizeof a.at[i].size);
        if (i) {
            assert_true(a.at[i - 1].use <= a.at[i].use);
            assert_false(strcmp(a.at[i - 1].name, a.at[i].name) == 0 &&
                         strcmp(a.at[i - 1].provider, a.at[i].provider) == 0);
            if (a.at[i - 1].use == a.at[i].use)
                assert_true(a.at[i - 1].kind <= a.at[i].kind);
        }
    }
    pq_catalogue_free(&a);
    pq_catalogue_free(&b);
}

static void finds_what_a_third_provider_announces(void **state)
{
    (void)state;
    struct pq_why why;
    struct pq_catalogue before = {0}, after = {0};
    struct pq_crypto *c = NULL;
    assert_int_equal(pq_crypto_new(&c, &why), 0);
    assert_int_equal(pq_catalogue_new(c, &before, &why), 0);
    assert_null(find(&before, "x25519_again"));
    assert_int_equal(pq_crypto_load(c, FORWARD_PROVIDER, &why), 0);
    assert_int_equal(pq_catalogue_new(c, &after, &why), 0);
    assert_int_equal(after.count, before.count + 2);

    const struct pq_algorithm *group = find(&after, "x25519_again"), *scheme = find(&after, "ed25519_again");
    assert_non_null(group);
    assert_non_null(scheme);
    assert_int_equal(group->use, PQ_USE_KEY_EXCHANGE);
    assert_int_equal(group->code_point, 0xfe01);
    assert_int_equal(group->size.public_key, 32);
    assert_int_equal(group->size.ciphertext, 32);
    assert_int_equal(group->security_bits, 128);
    assert_int_equal(group->kind, PQ_KIND_CLASSICAL);
    assert_string_equal(group->provider, FORWARD_PROVIDER);
    assert_int_equal(scheme->use, PQ_USE_SIGNATURE);
    assert_int_equal(scheme->code_point, 0xfe02);
    assert_int_equal(scheme->size.public_key, 32);
    assert_int_equal(scheme->size.signature, 64);
    assert_string_equal(scheme->provider, FORWARD_PROVIDER);
    pq_catalogue_free(&before);
    pq_catalogue_free(&after);
    pq_crypto_free(c);
}

static void measures_what_there_is(void **state)
{
    (void)state;
    struct pq_measured m;
    int code_point = -7;
    assert_int_equal(pq_measure_key_exchange(crypto, "ML-KEM-768", NULL, true, &m), 0);
    assert_int_equal(m.size.public_key, 1184);
    assert_int_equal(m.size.ciphertext, 1088);
    assert_int_equal(m.size.signature, -1);
    memset(&m, 0x5a, sizeof m);
    struct pq_measured untouched = m;
    assert_int_equal(pq_measure_key_exchange(crypto, "no-such-kem", NULL, true, &m), PQ_E_CRYPTO);
    assert_int_equal(pq_measure_key_exchange(crypto, "EC", "no-such-curve", false, &m), PQ_E_CRYPTO);
    assert_int_equal(pq_measure_signature(crypto, "X25519", NULL, &m), PQ_E_CRYPTO);
    assert_int_equal(pq_measure_scheme(crypto, "no-such-scheme", NULL, &m), PQ_E_CRYPTO);
    assert_memory_equal(&m, &untouched, sizeof m);
    assert_int_equal(pq_scheme_code_point(crypto, "ecdsa_secp256r1_sha256", &code_point), 0);
    assert_int_equal(code_point, 0x0403);
    code_point = -7;
    assert_int_equal(pq_scheme_code_point(crypto, "no-such-scheme", &code_point), PQ_E_UNSUPPORTED);
    assert_int_equal(pq_scheme_code_point(crypto, "dsa_sha256", &code_point), PQ_E_UNSUPPORTED);
    assert_int_equal(pq_scheme_code_point(crypto, "ed25519:ed448", &code_point), PQ_E_UNSUPPORTED);
    assert_int_equal(code_point, -7);
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        struct pq_why why;
        struct pq_catalogue all = {0};
        pq_alloc_fail_at(n);
        int e = pq_catalogue_new(crypto, &all, &why);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        /* The buffer of one ciphertext: that algorithm is then listed without its size. */
        if (e == 0) {
            assert_true(all.count > 0);
            pq_catalogue_free(&all);
        } else {
            assert_int_equal(e, PQ_E_NOMEM);
            assert_null(all.at);
        }
        if (!reached)
            break;
        assert_true(n < 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_standards),
        cmocka_unit_test(order_is_the_same_each_time),
        cmocka_unit_test(finds_what_a_third_provider_announces),
        cmocka_unit_test(measures_what_there_is),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
