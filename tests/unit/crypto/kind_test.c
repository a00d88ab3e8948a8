#include "crypto/kind.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cleanup.h"

static const struct {
    const char *name;
    enum pq_kind kind;
    bool experimental;
} groups[] =
    {
        {"x25519", PQ_KIND_CLASSICAL, false},
        {"X448", PQ_KIND_CLASSICAL, false},
        {"secp256r1", PQ_KIND_CLASSICAL, false},
        {"P-384", PQ_KIND_CLASSICAL, false},
        {"prime256v1", PQ_KIND_CLASSICAL, false},
        {"brainpoolP256r1tls13", PQ_KIND_CLASSICAL, false},
        {"ffdhe3072", PQ_KIND_CLASSICAL, false},
        {"MLKEM512", PQ_KIND_PQ, false},
        {"ML-KEM-1024", PQ_KIND_PQ, false},
        {"X25519MLKEM768", PQ_KIND_HYBRID, false},
        {"SecP256r1MLKEM768", PQ_KIND_HYBRID, false},
        {"SecP384r1MLKEM1024", PQ_KIND_HYBRID, false},
        {"x25519_kyber768", PQ_KIND_HYBRID, true},
        {"p384_mlkem768", PQ_KIND_HYBRID, false},
        {"frodo640aes", PQ_KIND_PQ, true},
        {"p256_bikel1", PQ_KIND_HYBRID, true},
        {"hqc128", PQ_KIND_PQ, true},
        {"sntrup761x25519", PQ_KIND_HYBRID, true},
        {"", PQ_KIND_UNKNOWN, false},
        {"something", PQ_KIND_UNKNOWN, false},
        {"DEFAULT", PQ_KIND_UNKNOWN, false},
},
  signatures[] = {
      {"ecdsa_secp256r1_sha256", PQ_KIND_CLASSICAL, false},
      {"ecdsa-with-SHA384", PQ_KIND_CLASSICAL, false},
      {"EC", PQ_KIND_CLASSICAL, false},
      {"RSA", PQ_KIND_CLASSICAL, false},
      {"sha256WithRSAEncryption", PQ_KIND_CLASSICAL, false},
      {"rsassaPss", PQ_KIND_CLASSICAL, false},
      {"rsa_pss_rsae_sha256", PQ_KIND_CLASSICAL, false},
      {"ED25519", PQ_KIND_CLASSICAL, false},
      {"Ed448", PQ_KIND_CLASSICAL, false},
      {"dsa_with_SHA256", PQ_KIND_CLASSICAL, false},
      {"SM2", PQ_KIND_CLASSICAL, false},
      {"mldsa44", PQ_KIND_PQ, false},
      {"ML-DSA-65", PQ_KIND_PQ, false},
      {"id-ml-dsa-87", PQ_KIND_PQ, false},
      {"SLH-DSA-SHA2-128s", PQ_KIND_PQ, false},
      {"id-slh-dsa-shake-256f", PQ_KIND_PQ, false},
      {"p384_mldsa65", PQ_KIND_HYBRID, false},
      {"rsa3072_mldsa44", PQ_KIND_HYBRID, false},
      {"falcon512", PQ_KIND_PQ, true},
      {"p256_falcon512", PQ_KIND_HYBRID, true},
      {"falconpadded1024", PQ_KIND_PQ, true},
      {"mayo1", PQ_KIND_PQ, true},
      {"CROSSrsdp128balanced", PQ_KIND_PQ, true},
      {"dilithium3", PQ_KIND_PQ, true},
      {"sphincssha2128fsimple", PQ_KIND_PQ, true},
      {"", PQ_KIND_UNKNOWN, false},
      {"something", PQ_KIND_UNKNOWN, false},
};

static void kinds_of_groups(void **state)
{
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(groups); i++)
        if (pq_kind_of_group(groups[i].name) != groups[i].kind ||
            pq_kind_experimental(groups[i].name) != groups[i].experimental)
            fail_msg("%s is %s", groups[i].name, pq_kind_names[pq_kind_of_group(groups[i].name)]);
}

static void kinds_of_signatures(void **state)
{
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(signatures); i++)
        if (pq_kind_of_signature(signatures[i].name) != signatures[i].kind ||
            pq_kind_experimental(signatures[i].name) != signatures[i].experimental)
            fail_msg("%s is %s", signatures[i].name, pq_kind_names[pq_kind_of_signature(signatures[i].name)]);
}

static void long_names_are_cut(void **state)
{
    (void)state;
    char name[4096];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    memcpy(name + sizeof name - 8, "mldsa65", 7);
    assert_int_equal(pq_kind_of_signature(name), PQ_KIND_UNKNOWN);
    memcpy(name, "mldsa65", 7);
    assert_int_equal(pq_kind_of_signature(name), PQ_KIND_PQ);
    assert_false(pq_kind_is_pq(PQ_KIND_UNKNOWN) || pq_kind_is_pq(PQ_KIND_CLASSICAL));
    assert_true(pq_kind_is_pq(PQ_KIND_HYBRID) && pq_kind_is_pq(PQ_KIND_PQ));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_of_groups),
        cmocka_unit_test(kinds_of_signatures),
        cmocka_unit_test(long_names_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
