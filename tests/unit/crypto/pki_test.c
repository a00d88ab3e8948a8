#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "crypto/pki_cert.h"
#include "crypto/pki_name.h"
#include "pki_fixture.h"

/* --- what is made --------------------------------------------------------------------------------------------------
 */
static void makes_files_with_their_modes(void **state)
{
    (void)state;
    umask(022);
    assert_int_equal(pki_init("ed25519", "p256"), 0);
    assert_int_equal(pki_issue("amf", "mldsa44", NULL, 0), 0);
    assert_int_equal(pki_files(dir), 7);
    static const char *const secret[] = {"root.key", "intermediate.key", "amf.key"};
    static const char *const open_to_all[] = {"root.crt", "intermediate.crt", "amf.crt", "crl.pem"};
    for (size_t i = 0; i < PQ_COUNT(secret); i++)
        assert_int_equal(pki_mode(secret[i]), 0600);
    for (size_t i = 0; i < PQ_COUNT(open_to_all); i++)
        assert_int_equal(pki_mode(open_to_all[i]), 0644);
    assert_int_equal(pki_verdict("amf"), X509_V_OK);
}

static void check_serial(X509 *x)
{
    const ASN1_INTEGER *n = X509_get0_serialNumber(x);
    assert_int_equal(ASN1_STRING_type(n), V_ASN1_INTEGER);
    assert_int_equal(ASN1_STRING_length(n), PQ_PKI_SERIAL_BYTES);
    assert_true(ASN1_STRING_get0_data(n)[0] < 0x80);
}

static bool critical(X509 *x, int nid)
{
    X509_EXTENSION *e = X509_get_ext(x, X509_get_ext_by_NID(x, nid, -1));
    return e && X509_EXTENSION_get_critical(e);
}

static void check_authority(X509 *x, long depth)
{
    check_serial(x);
    assert_int_equal(X509_get_version(x), X509_VERSION_3);
    assert_true(X509_get_extension_flags(x) & EXFLAG_CA);
    assert_int_equal(X509_get_pathlen(x), depth);
    assert_int_equal(X509_get_key_usage(x), KU_KEY_CERT_SIGN | KU_CRL_SIGN);
    assert_true(critical(x, NID_basic_constraints));
    assert_true(critical(x, NID_key_usage));
    assert_non_null(X509_get0_subject_key_id(x));
}

static void certificates_say_what_they_are_for(void **state)
{
    (void)state;
    const char *san[] = {"DNS:amf.5gc.example",
                         "DNS:*.5gc.example",
                         "IP:198.18.0.1",
                         "IP:fd00::1",
                         "URI:https://amf.5gc.example/namf",
                         "NF:4947A69A-F61B-4BC1-B9DA-47C9C5D14B64"};
    assert_int_equal(pki_init("mldsa65", "mldsa44"), 0);
    assert_int_equal(pki_issue("amf", "mldsa44", san, PQ_COUNT(san)), 0);
    DEFER(X509_freep) X509 *root = pki_load("root.crt");
    DEFER(X509_freep) X509 *middle = pki_load("intermediate.crt");
    DEFER(X509_freep) X509 *leaf = pki_load("amf.crt");
    check_authority(root, 1);
    check_authority(middle, 0);
    check_serial(leaf);
    assert_false(X509_get_extension_flags(leaf) & EXFLAG_CA);
    assert_int_equal(X509_get_key_usage(leaf), KU_DIGITAL_SIGNATURE);
    assert_true(critical(leaf, NID_key_usage));
    assert_int_equal(X509_get_extended_key_usage(leaf), XKU_SSL_SERVER | XKU_SSL_CLIENT);
    assert_int_equal(ASN1_OCTET_STRING_cmp(X509_get0_authority_key_id(leaf), X509_get0_subject_key_id(middle)), 0);
    assert_int_equal(ASN1_OCTET_STRING_cmp(X509_get0_authority_key_id(middle), X509_get0_subject_key_id(root)), 0);
    assert_int_equal(X509_check_host(leaf, "amf.5gc.example", 0, 0, NULL), 1);
    assert_int_equal(X509_check_host(leaf, "smf.5gc.example", 0, 0, NULL), 1);
    assert_int_equal(X509_check_host(leaf, "amf.other.example", 0, 0, NULL), 0);
    assert_int_equal(X509_check_ip_asc(leaf, "198.18.0.1", 0), 1);
    assert_int_equal(X509_check_ip_asc(leaf, "fd00::1", 0), 1);
    assert_int_equal(X509_check_ip_asc(leaf, "198.18.0.2", 0), 0);
    DEFER(GENERAL_NAMES_freep) GENERAL_NAMES *names = X509_get_ext_d2i(leaf, NID_subject_alt_name, NULL, NULL);
    assert_int_equal(sk_GENERAL_NAME_num(names), PQ_COUNT(san));
    const GENERAL_NAME *nf = sk_GENERAL_NAME_value(names, 5);
    assert_int_equal(nf->type, GEN_URI);
    assert_memory_equal(ASN1_STRING_get0_data(nf->d.uniformResourceIdentifier),
                        "urn:uuid:4947a69a-f61b-4bc1-b9da-47c9c5d14b64", 45);
    assert_int_equal(pki_verdict("amf"), X509_V_OK);
}

static void any_algorithm_under_any_other(void **state)
{
    (void)state;
    static const struct {
        const char *root, *intermediate, *leaf;
    } rows[] = {
        {"slhdsa128f", NULL, "mldsa44"}, {"slhdsashake128f", "mldsa65", "p256"},
        {"rsa2048", "p384", "mldsa87"},  {"p521", NULL, "ed25519"},
        {"mldsa87", "rsa2048", "ed448"}, {"ML-DSA-44", "P256", "SLH-DSA-SHA2-192f"},
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        snprintf(dir, sizeof dir, "%s/ca%zu", top, i);
        assert_int_equal(pki_init(rows[i].root, rows[i].intermediate), 0);
        assert_int_equal(pki_issue("leaf", rows[i].leaf, NULL, 0), 0);
        assert_int_equal(pki_verdict("leaf"), X509_V_OK);
    }
}

static void serials_do_not_repeat(void **state)
{
    (void)state;
    assert_int_equal(pki_init("ed25519", NULL), 0);
    char name[16];
    X509 *all[20];
    for (size_t i = 0; i < PQ_COUNT(all); i++) {
        snprintf(name, sizeof name, "n%zu", i);
        assert_int_equal(pki_issue(name, "ed25519", NULL, 0), 0);
        snprintf(name, sizeof name, "n%zu.crt", i);
        all[i] = pki_load(name);
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(ASN1_INTEGER_cmp(X509_get0_serialNumber(all[i]), X509_get0_serialNumber(all[k])), 0);
    }
    for (size_t i = 0; i < PQ_COUNT(all); i++)
        X509_free(all[i]);
}

/* --- clocks --------------------------------------------------------------------------------------------------------
 */
static void begins_and_ends_when_told(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t not_before_s, valid_s;
        int verdict;
    } rows[] = {
        {"now", 0, 3600, X509_V_OK},
        {"expired", -172800, 86400, X509_V_ERR_CERT_HAS_EXPIRED},
        {"early", 3600, 3600, X509_V_ERR_CERT_NOT_YET_VALID},
        {"to-the-end", -100, 0, X509_V_OK},
    };
    assert_int_equal(pki_init("ed25519", "ed25519"), 0);
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_pki_issue how = {.folder = dir,
                                   .name = rows[i].name,
                                   .algorithm = "ed25519",
                                   .not_before_s = rows[i].not_before_s,
                                   .valid_s = rows[i].valid_s};
        assert_int_equal(pq_pki_issue(crypto, &how, &why), 0);
        assert_int_equal(pki_verdict(rows[i].name), rows[i].verdict);
    }
    DEFER(X509_freep) X509 *last = pki_load("to-the-end.crt");
    DEFER(X509_freep) X509 *issuer = pki_load("intermediate.crt");
    assert_int_equal(ASN1_TIME_compare(X509_get0_notAfter(last), X509_get0_notAfter(issuer)), 0);
}

static void refuses_impossible_times(void **state)
{
    (void)state;
    static const struct {
        int64_t not_before_s, valid_s;
    } rows[] = {{0, -1},        {0, 86400 + 60}, {0, PQ_PKI_VALID_MAX_S + 1}, {INT64_MIN, 1},
                {INT64_MAX, 0}, {86400 + 60, 0}, {PQ_PKI_VALID_MAX_S + 1, 1}};
    static const int64_t lifetimes[] = {0, -1, INT64_MIN, INT64_MAX, PQ_PKI_VALID_MAX_S + 1};
    for (size_t i = 0; i < PQ_COUNT(lifetimes); i++) {
        struct pq_pki_init how = {.folder = dir, .root = "ed25519", .valid_s = lifetimes[i]};
        assert_int_equal(pq_pki_init(crypto, &how, &why), PQ_E_INVALID);
        assert_int_equal(access(dir, F_OK), -1);
    }
    assert_int_equal(pki_init("ed25519", NULL), 0);
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_pki_issue how = {.folder = dir,
                                   .name = "amf",
                                   .algorithm = "ed25519",
                                   .not_before_s = rows[i].not_before_s,
                                   .valid_s = rows[i].valid_s};
        assert_int_equal(pq_pki_issue(crypto, &how, &why), PQ_E_INVALID);
        assert_true(strlen(why.text) > 20);
        struct pq_pki_crl list = {.folder = dir, .valid_s = lifetimes[i % PQ_COUNT(lifetimes)]};
        assert_int_equal(pq_pki_crl(crypto, &list, &why), PQ_E_INVALID);
    }
    assert_int_equal(pki_files(dir), 3);
}

/* --- refusals ------------------------------------------------------------------------------------------------------
 */
static void overwrites_nothing(void **state)
{
    (void)state;
    assert_int_equal(pki_init("ed25519", NULL), 0);
    assert_int_equal(pki_init("ed25519", NULL), PQ_E_EXISTS);
    assert_non_null(strstr(why.text, "root.crt exists"));
    assert_int_equal(pki_issue("amf", "ed25519", NULL, 0), 0);
    DEFER(X509_freep) X509 *before = pki_load("amf.crt");
    assert_int_equal(pki_issue("amf", "ed25519", NULL, 0), PQ_E_EXISTS);
    assert_int_equal(unlink(pki_path("amf.crt")), 0);
    assert_int_equal(pki_issue("amf", "ed25519", NULL, 0), PQ_E_EXISTS);
    assert_non_null(strstr(why.text, "amf.key exists"));
    assert_int_equal(pki_files(dir), 4);
    /* What was in the folder before is left alone when the authority can't be made. */
    snprintf(dir, sizeof dir, "%s/other", top);
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(pq_file_write(pki_path("crl.pem"), pq_span("x", 1), 0600, PQ_FILE_NEW, &why), 0);
    assert_int_equal(pki_init("ed25519", NULL), PQ_E_EXISTS);
    assert_int_equal(pki_files(dir), 1);
}

static void names_near_algorithms(void **state)
{
    (void)state;
    static const struct {
        const char *asked, *near;
    } rows[] = {{"mldsa66", "mldsa65"}, {"ML-DSA-45", "mldsa44"}, {"slh-dsa-128s", "slhdsa128s"}, {"p255", "p256"},
                {"", "p256"},           {"ED25518", "ed25519"}};
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        assert_int_equal(pki_init(rows[i].asked, NULL), PQ_E_INVALID);
        assert_non_null(strstr(why.text, rows[i].near));
        assert_int_equal(pki_init("ed25519", rows[i].asked), PQ_E_INVALID);
    }
    /* Keys that can't sign. */
    static const char *const others[] = {"X25519", "ML-KEM-768", "X25519MLKEM768"};
    for (size_t i = 0; i < PQ_COUNT(others); i++)
        assert_int_equal(pki_init(others[i], NULL), PQ_E_INVALID);
    assert_int_equal(access(dir, F_OK), -1);
}

static void check_san(const char *text, int want)
{
    DEFER(GENERAL_NAMES_freep) GENERAL_NAMES *names = NULL;
    char copy[2200];
    snprintf(copy, sizeof copy, "%s", text);
    char *at[] = {copy};
    int e = pq_pki_san(&(struct pq_strings){at, 1}, &names, &why);
    if (e != want)
        fail_msg("%.60s gives %d", text, e);
    assert_true((e == 0) == (names != NULL));
}

static void checks_names(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int want;
    } rows[] = {
        {"DNS:nrf.example", 0},
        {"DNS:a", 0},
        {"DNS:*.example", 0},
        {"DNS:xn--bcher-kva.example", 0},
        {"DNS:1.example", 0},
        {"DNS:", PQ_E_INVALID},
        {"DNS:.", PQ_E_INVALID},
        {"DNS:a..b", PQ_E_INVALID},
        {"DNS:-a.example", PQ_E_INVALID},
        {"DNS:a-.example", PQ_E_INVALID},
        {"DNS:a.example.", PQ_E_INVALID},
        {"DNS:*", PQ_E_INVALID},
        {"DNS:*.", PQ_E_INVALID},
        {"DNS:a.*.example", PQ_E_INVALID},
        {"DNS:a b", PQ_E_INVALID},
        {"DNS:b\xc3\xbc"
         "cher.example",
         PQ_E_INVALID},
        {"DNS:a_b.example", PQ_E_INVALID},
        {"DNS:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.example", 0},
        {"DNS:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.example", PQ_E_INVALID},
        {"IP:198.18.0.1", 0},
        {"IP:::1", 0},
        {"IP:fd00::1", 0},
        {"IP:198.18.0", PQ_E_INVALID},
        {"IP:198.18.0.256", PQ_E_INVALID},
        {"IP:", PQ_E_INVALID},
        {"IP:198.18.0.0/15", PQ_E_INVALID},
        {"IP:fd00::1%eth0", PQ_E_INVALID},
        {"URI:https://amf.example/", 0},
        {"URI:urn:uuid:4947a69a-f61b-4bc1-b9da-47c9c5d14b64", 0},
        {"URI:", PQ_E_INVALID},
        {"URI:nothing", PQ_E_INVALID},
        {"URI:1a:b", PQ_E_INVALID},
        {"URI:a:", PQ_E_INVALID},
        {"URI:http://a b", PQ_E_INVALID},
        {"URI:http://a\"", PQ_E_INVALID},
        {"URI:http://\x7f", PQ_E_INVALID},
        {"NF:4947a69a-f61b-4bc1-b9da-47c9c5d14b64", 0},
        {"NF:4947a69a-f61b-4bc1-b9da-47c9c5d14b6", PQ_E_INVALID},
        {"NF:4947a69a-f61b-4bc1-b9da-47c9c5d14b6g", PQ_E_INVALID},
        {"NF:4947a69af61b4bc1b9da47c9c5d14b64", PQ_E_INVALID},
        {"NF:4947a69a-f61b-4bc1-b9da-47c9c5d14b64a", PQ_E_INVALID},
        {"NF:", PQ_E_INVALID},
        {"nrf.example", PQ_E_INVALID},
        {"", PQ_E_INVALID},
        {"dns:nrf.example", PQ_E_INVALID},
        {"email:a@example", PQ_E_INVALID},
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++)
        check_san(rows[i].text, rows[i].want);
    /* At the caps and one past them. */
    char uri[PQ_PKI_URI_MAX + 8] = "URI:a:";
    memset(uri + 6, 'b', PQ_PKI_URI_MAX - 2);
    uri[4 + PQ_PKI_URI_MAX] = 0;
    check_san(uri, 0);
    uri[4 + PQ_PKI_URI_MAX] = 'b';
    uri[5 + PQ_PKI_URI_MAX] = 0;
    check_san(uri, PQ_E_INVALID);
    const char *many[PQ_PKI_SAN_MAX + 1];
    for (size_t i = 0; i < PQ_COUNT(many); i++)
        many[i] = "DNS:a.example";
    GENERAL_NAMES *names = NULL;
    assert_int_equal(pq_pki_san(&(struct pq_strings){(char **)many, PQ_PKI_SAN_MAX}, &names, &why), 0);
    assert_int_equal(sk_GENERAL_NAME_num(names), PQ_PKI_SAN_MAX);
    GENERAL_NAMES_free(names);
    names = NULL;
    assert_int_equal(pq_pki_san(&(struct pq_strings){(char **)many, PQ_PKI_SAN_MAX + 1}, &names, &why), PQ_E_INVALID);
    assert_null(names);
}

static void checks_file_and_common_names(void **state)
{
    (void)state;
    static const char *const bad[] = {"",         ".",
                                      "..",       "../amf",
                                      "a/b",      "-amf",
                                      ".amf",     "a b",
                                      "root",     "intermediate",
                                      "crl",      "a\n",
                                      "\xc3\xbc", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    static const char *const good[] = {"amf", "amf-1.5gc_x", "1",
                                       "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    for (size_t i = 0; i < PQ_COUNT(bad); i++)
        assert_int_equal(pq_pki_name_check(bad[i], &why), PQ_E_INVALID);
    for (size_t i = 0; i < PQ_COUNT(good); i++)
        assert_int_equal(pq_pki_name_check(good[i], &why), 0);
    static const char *const titles[] = {
        "", "a\nb", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\xff\xfe"};
    for (size_t i = 0; i < PQ_COUNT(titles); i++) {
        struct pq_pki_init how = {.folder = dir, .root = "ed25519", .name = titles[i], .valid_s = 3600};
        assert_int_equal(pq_pki_init(crypto, &how, &why), PQ_E_INVALID);
        assert_int_equal(access(dir, F_OK), -1);
    }
    /* A leaf with its issuer's name would look self-signed. */
    struct pq_pki_init how = {.folder = dir, .root = "ed25519", .name = "amf", .valid_s = 3600};
    assert_int_equal(pq_pki_init(crypto, &how, &why), 0);
    struct pq_pki_issue leaf = {.folder = dir, .name = "amf", .algorithm = "ed25519"};
    assert_int_equal(pq_pki_issue(crypto, &leaf, &why), PQ_E_INVALID);
    assert_int_equal(pki_files(dir), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(makes_files_with_their_modes, pki_fresh, pki_gone),
        cmocka_unit_test_setup_teardown(certificates_say_what_they_are_for, pki_fresh, pki_gone),
        cmocka_unit_test_setup_teardown(any_algorithm_under_any_other, pki_fresh, pki_gone),
        cmocka_unit_test_setup_teardown(serials_do_not_repeat, pki_fresh, pki_gone),
        cmocka_unit_test_setup_teardown(begins_and_ends_when_told, pki_fresh, pki_gone),
        cmocka_unit_test_setup_teardown(refuses_impossible_times, pki_fresh, pki_gone),
        cmocka_unit_test_setup_teardown(overwrites_nothing, pki_fresh, pki_gone),
        cmocka_unit_test_setup_teardown(names_near_algorithms, pki_fresh, pki_gone),
        cmocka_unit_test_setup_teardown(checks_names, pki_fresh, pki_gone),
        cmocka_unit_test_setup_teardown(checks_file_and_common_names, pki_fresh, pki_gone),
    };
    return cmocka_run_group_tests(tests, pki_setup, pki_teardown);
}
