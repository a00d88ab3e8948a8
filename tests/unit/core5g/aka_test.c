#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "core5g/aka.h"
#include "core5g/milenage.h"
#include "core5g/subscribers.h"
#include "hex.h"

/* TS 35.208, 4.3: test sets 1 to 5 (all of f1 to f5*), 6 of the printed list of OPc, f1, f1*, f4 and f5*. */
static const struct {
    const char *k, *rand, *sqn, *amf, *op, *opc, *f1, *f1s, *f2, *f5, *f3, *f4, *f5s;
} sets[] = {
    {"465b5ce8b199b49faa5f0a2ee238a6bc", "23553cbe9637a89d218ae64dae47bf35", "ff9bb4d0b607", "b9b9",
     "cdc202d5123e20f62b6d676ac72cb318", "cd63cb71954a9f4e48a5994e37a02baf", "4a9ffac354dfafb3", "01cfaf9ec4e871e9",
     "a54211d5e3ba50bf", "aa689c648370", "b40ba9a3c58b2a05bbf0d987b21bf8cb", "f769bcd751044604127672711c6d3441",
     "451e8beca43b"},
    {"0396eb317b6d1c36f19c1c84cd6ffd16", "c00d603103dcee52c4478119494202e8", "fd8eef40df7d", "af17",
     "ff53bade17df5d4e793073ce9d7579fa", "53c15671c60a4b731c55b4a441c0bde2", "5df5b31807e258b0", "a8c016e51ef4a343",
     "d3a628ed988620f0", "c47783995f72", "58c433ff7a7082acd424220f2b67c556", "21a8c1f929702adb3e738488b9f5c5da",
     "30f1197061c1"},
    {"fec86ba6eb707ed08905757b1bb44b8f", "9f7c8d021accf4db213ccff0c7f71a6a", "9d0277595ffc", "725c",
     "dbc59adcb6f9a0ef735477b7fadf8374", "1006020f0a478bf6b699f15c062e42b3", "9cabc3e99baf7281", "95814ba2b3044324",
     "8011c48c0c214ed2", "33484dc2136b", "5dbdbb2954e8f3cde665b046179a5098", "59a92d3b476a0443487055cf88b2307b",
     "deacdd848cc6"},
    {"9e5944aea94b81165c82fbf9f32db751", "ce83dbc54ac0274a157c17f80d017bd6", "0b604a81eca8", "9e09",
     "223014c5806694c007ca1eeef57f004f", "a64a507ae1a2a98bb88eb4210135dc87", "74a58220cba84c49", "ac2cc74a96871837",
     "f365cd683cd92e96", "f0b9c08ad02e", "e203edb3971574f5a94b0d61b816345d", "0c4524adeac041c4dd830d20854fc46b",
     "6085a86c6f63"},
    {"4ab1deb05ca6ceb051fc98e77d026a84", "74b0cd6031a1c8339b2b6ce2b8c4a186", "e880a1b580b6", "9f07",
     "2d16c5cd1fdf6b22383584e3bef2a8d8", "dcf07cbd51855290b92a07a9891e523e", "49e785dd12626ef2", "9e85790336bb3fa2",
     "5860fc1bce351e7e", "31e11a609118", "7657766b373d1c2138f307e3de9242f9", "1c42e960d89b8fa99f2744e0708ccb53",
     "fe2555e54aa9"},
    {"6c38a116ac280c454f59332ee35c8c4f", "ee6466bc96202c5a557abbeff8babf63", "414b98222181", "4464",
     "1ba00a1a7c6700ac8c3ff3e96ad08725", "3803ef5363b947c6aaa225e58fae3934", "078adfb488241a57", "80246b8d0186bcf1",
     NULL, NULL, NULL, "a7466cc1e6b2a1337d49d3b66e95d7b4", "1f53cd2b1113"},
};

static void assert_hex(const uint8_t *bytes, size_t size, const char *want)
{
    char text[129];
    pq_hex_write(bytes, size, text);
    if (want)
        assert_string_equal(text, want);
}

static void milenage(void **state)
{
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(sets); i++) {
        uint8_t opc[16];
        struct pq_milenage m;
        assert_int_equal(pq_milenage_opc(HEX(sets[i].k, 16), HEX(sets[i].op, 16), opc), 0);
        assert_hex(opc, 16, sets[i].opc);
        assert_int_equal(
            pq_milenage(HEX(sets[i].k, 16), opc, HEX(sets[i].rand, 16), HEX(sets[i].sqn, 6), HEX(sets[i].amf, 2), &m),
            0);
        assert_hex(m.mac_a, 8, sets[i].f1);
        assert_hex(m.mac_s, 8, sets[i].f1s);
        assert_hex(m.res, 8, sets[i].f2);
        assert_hex(m.ak, 6, sets[i].f5);
        assert_hex(m.ck, 16, sets[i].f3);
        assert_hex(m.ik, 16, sets[i].f4);
        assert_hex(m.ak_star, 6, sets[i].f5s);
    }
}

/* FC, then each parameter and its length, also of an empty one. */
static void kdf_is_hmac(void **state)
{
    uint8_t out[32];
    (void)state;
    /* HMAC-SHA-256(key "Jefe", 7c "abc" 0003 "" 0000), computed apart from this code. */
    const struct pq_span p[] = {pq_span_text("abc"), pq_span_text("")};
    assert_int_equal(pq_kdf(pq_span_text("Jefe"), 0x7c, p, 2, out), 0);
    assert_hex(out, 32, "86de423a7ff57cc8708c0934b6c7ca65d968bd2b66ca3cb1e15b76c759422690");
}

static const char network[] = "5G:mnc001.mcc001.3gppnetwork.org";

static struct pq_aka_subscriber wmnsk(void)
{
    struct pq_aka_subscriber s;
    memcpy(s.k, HEX("00112233445566778899aabbccddeeff", 16), 16);
    memcpy(s.opc, HEX("62e75b8d6fa5bf46ec87a9276f9df54d", 16), 16);
    memcpy(s.amf, HEX("8000", 2), 2);
    return s;
}

/* KAUSF and KSEAF of github.com/frankurcrazy/helloworld, 5g/keys: CK 0102..0f00, IK 0203..0001, SQN ^ AK
 * 0304050607f7. */
static void key_chain(void **state)
{
    uint8_t key[32], kausf[32], kseaf[32];
    (void)state;
    for (int i = 0; i < 16; i++) {
        key[i] = (uint8_t)((i + 1) % 16);
        key[16 + i] = (uint8_t)((i + 2) % 16);
    }
    const struct pq_span p[] = {pq_span_text(network), pq_span(HEX("0304050607f7", 6), 6)};
    assert_int_equal(pq_kdf(pq_span(key, 32), 0x6a, p, 2, kausf), 0);
    assert_hex(kausf, 32, "20de4eb2b75c8dac301ad52773e2e37bd7b4b0c2fdb1c3751b98dd0df846aed5");
    assert_int_equal(pq_aka_kseaf(kausf, network, kseaf), 0);
    assert_hex(kseaf, 32, "d2bbc63b0c141247341c0fca3dc3bffdc6bfc1813489342de8487e7e4dc3728b");
}

/* The example of github.com/wmnsk/milenage (AUTN and RES*); its KAUSF, HXRES* and KSEAF computed with Python's hmac
 * and hashlib
 * as TS 33.501, Annex A says. */
static void five_g_aka(void **state)
{
    (void)state;
    const struct pq_aka_subscriber s = wmnsk();
    const uint8_t *rand = HEX("00112233445566778899aabbccddeeff", 16);
    struct pq_aka_vector v;
    uint8_t out[32];
    assert_int_equal(pq_aka_vector(&s, rand, 1, network, &v), 0);
    assert_hex(v.autn, 16, "de656c8b0bcf80004af30b82a8531115");
    assert_hex(v.xres_star, 16, "31b6d938a5290ccc65bc829f9820a8d9");
    assert_hex(v.kausf, 32, "3b759becc904d5b2aad2fcf15c88ce4354ade608ebbd6d89aa1c3281564c56f8");
    assert_int_equal(pq_aka_res_star(&s, rand, network, out), 0);
    assert_hex(out, 16, "31b6d938a5290ccc65bc829f9820a8d9");
    assert_int_equal(pq_aka_hxres_star(rand, v.xres_star, out), 0);
    assert_hex(out, 16, "3308fb7cf06a35f1cd086b904ce82ecf");
    assert_int_equal(pq_aka_kseaf(v.kausf, network, out), 0);
    assert_hex(out, 32, "a1ca0731bbc80913ea613972c75e2782d02b7a13c0b235c98cc5778e4520b944");
}

/* A USIM that is ahead says so in AUTS (TS 33.102, 6.3.3). */
static void resynchronisation(void **state)
{
    (void)state;
    const struct pq_aka_subscriber s = wmnsk();
    const uint8_t *rand = HEX("00112233445566778899aabbccddeeff", 16);
    const uint8_t no_amf[2] = {0}, *sqn_ms = HEX("0000deadbe20", 6);
    struct pq_milenage m;
    uint8_t auts[14];
    uint64_t sqn = 7;
    assert_int_equal(pq_milenage(s.k, s.opc, rand, sqn_ms, no_amf, &m), 0);
    for (int i = 0; i < 6; i++)
        auts[i] = sqn_ms[i] ^ m.ak_star[i];
    memcpy(auts + 6, m.mac_s, 8);
    for (int i = 0; i < 14; i++) {
        auts[i] ^= 1;
        assert_int_equal(pq_aka_resync(&s, rand, auts, &sqn), PQ_E_AUTH);
        assert_int_equal(sqn, 7);
        auts[i] ^= 1;
    }
    assert_int_equal(pq_aka_resync(&s, rand, auts, &sqn), 0);
    assert_int_equal(sqn, 0xdeadbe20);
}

static void name_cap(void **state)
{
    char name[PQ_AKA_NAME_MAX + 2];
    const struct pq_aka_subscriber s = wmnsk();
    struct pq_aka_vector v;
    uint8_t rand[16] = {0}, out[32];
    (void)state;
    memset(name, 'n', sizeof name);
    name[PQ_AKA_NAME_MAX] = '\0';
    assert_int_equal(pq_aka_vector(&s, rand, 0, name, &v), 0);
    assert_int_equal(pq_aka_kseaf(v.kausf, name, out), 0);
    name[PQ_AKA_NAME_MAX] = 'n';
    name[PQ_AKA_NAME_MAX + 1] = '\0';
    assert_int_equal(pq_aka_vector(&s, rand, 0, name, &v), PQ_E_INVALID);
    assert_int_equal(pq_aka_kseaf(v.kausf, name, out), PQ_E_INVALID);
}

static void subscribers(void **state)
{
    static const struct {
        const char *supi;
        int want;
    } rows[] = {
        {"imsi-001010000000001", 0},
        {"imsi-001010000000003", 0},
        {"imsi-001010000000004", PQ_E_NOT_FOUND},
        {"imsi-001010000000000", PQ_E_NOT_FOUND},
        {"imsi-00101000000001", PQ_E_NOT_FOUND},
        {"imsi-001020000000001", PQ_E_NOT_FOUND},
        {"imsi-001019999999999", PQ_E_NOT_FOUND},
        {"", PQ_E_NOT_FOUND},
        {"imsi-00101", PQ_E_NOT_FOUND},
        {"imsi-00101000000000x", PQ_E_NOT_FOUND},
    };
    (void)state;
    DEFER(pq_subscribers_freep) struct pq_subscribers *s = NULL;
    assert_int_equal(pq_subscribers_new(3, &s), 0);
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_subscriber *one = NULL;
        assert_int_equal(pq_subscribers_find(s, rows[i].supi, &one), rows[i].want);
        assert_true((one != NULL) == (rows[i].want == 0));
    }
    struct pq_subscriber *first, *again, *third;
    assert_int_equal(pq_subscribers_find(s, "imsi-001010000000001", &first), 0);
    assert_int_equal(pq_subscribers_find(s, "imsi-001010000000001", &again), 0);
    assert_int_equal(pq_subscribers_find(s, "imsi-001010000000003", &third), 0);
    assert_ptr_equal(first, again);
    assert_memory_not_equal(first->key.k, third->key.k, 16);
    struct pq_aka_subscriber key;
    assert_int_equal(pq_subscriber_key("imsi-001010000000003", &key), 0);
    assert_memory_equal(key.k, third->key.k, 16);
    assert_memory_equal(key.opc, third->key.opc, 16);
}

static void identities(void **state)
{
    static const struct {
        const char *text;
        int want;
        const char *supi;
    } rows[] = {
        {"imsi-001010000000001", 0, "imsi-001010000000001"},
        {"imsi-00101", 0, "imsi-00101"},
        {"imsi-0010", PQ_E_SYNTAX, NULL},
        {"imsi-0010100000000012", PQ_E_SYNTAX, NULL},
        {"imsi-00101-", PQ_E_SYNTAX, NULL},
        {"imsi-", PQ_E_SYNTAX, NULL},
        {"imsi-00101000000000x", PQ_E_SYNTAX, NULL},
        {"nai-a@b", PQ_E_SYNTAX, NULL},
        {"", PQ_E_SYNTAX, NULL},
        {"suci-0-001-01-0000-0-0-0000000001", 0, "imsi-001010000000001"},
        {"suci-0-310-410-1-0-0-123456789", 0, "imsi-310410123456789"},
        {"suci-0-001-01-0000-1-1-abcd", PQ_E_UNSUPPORTED, NULL},
        {"suci-0-001-01-0000-2-1-00", PQ_E_UNSUPPORTED, NULL},
        {"suci-0-001-01-0000-0-0-", PQ_E_SYNTAX, NULL},
        {"suci-0-001-01-0000-0-0", PQ_E_SYNTAX, NULL},
        {"suci-0-001-01-0000-0-0-1-", PQ_E_SYNTAX, NULL},
        {"suci-0-01-01-0000-0-0-1", PQ_E_SYNTAX, NULL},
        {"suci-0-001-1-0000-0-0-1", PQ_E_SYNTAX, NULL},
        {"suci-0-001-01-00000-0-0-1", PQ_E_SYNTAX, NULL},
        {"suci-0-001-01-0000-0-0-12345678901", PQ_E_SYNTAX, NULL},
        {"suci-0-310-410-1-0-0-1234567890", PQ_E_SYNTAX, NULL},
        {"suci-1-001-01-0000-0-0-1", PQ_E_SYNTAX, NULL},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        char supi[PQ_SUPI_MAX] = "before", *copy = strdup(rows[i].text);
        assert_int_equal(pq_supi_parse(copy, supi), rows[i].want);
        assert_string_equal(supi, rows[i].want ? "before" : rows[i].supi);
        free(copy);
    }
}

/* Every prefix of a SUCI in an exact-size buffer. */
static void identity_prefixes(void **state)
{
    static const char whole[] = "suci-0-001-01-0000-0-0-0000000001";
    (void)state;
    for (size_t n = 0; n < sizeof whole; n++) {
        char supi[PQ_SUPI_MAX], *copy = strndup(whole, n);
        int e = pq_supi_parse(copy, supi);
        assert_int_equal(e, n < strlen("suci-0-001-01-0000-0-0-0") ? PQ_E_SYNTAX : 0);
        free(copy);
    }
}

static void network_names(void **state)
{
    static const struct {
        const char *text;
        bool valid;
    } rows[] = {
        {network, true},
        {"5G:mnc410.mcc310.3gppnetwork.org", true},
        {"5G:mnc01.mcc001.3gppnetwork.org", false},
        {"", false},
        {"5G:mnc001.mcc001.3gppnetwork.org.", false},
        {"4G:mnc001.mcc001.3gppnetwork.org", false},
        {"5G:mnc001.mcc001.3gppnetwork.or", false},
        {"5G:mncabc.mcc001.3gppnetwork.org", false},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++)
        assert_int_equal(pq_network_name_is_valid(rows[i].text), rows[i].valid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(milenage),      cmocka_unit_test(kdf_is_hmac),       cmocka_unit_test(key_chain),
        cmocka_unit_test(five_g_aka),    cmocka_unit_test(resynchronisation), cmocka_unit_test(name_cap),
        cmocka_unit_test(subscribers),   cmocka_unit_test(identities),        cmocka_unit_test(identity_prefixes),
        cmocka_unit_test(network_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
