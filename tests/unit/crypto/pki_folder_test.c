#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <openssl/pem.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "crypto/pki_cert.h"
#include "crypto/pki_folder.h"
#include "crypto/pki_key.h"
#include "crypto/pki_name.h"
#include "pki_fixture.h"

/* --- a broken authority --------------------------------------------------------------------------------------------
 */
static void swap(const char *name, const char *bytes, size_t len)
{
    unlink(pki_path(name));
    assert_int_equal(pq_file_write(pki_path(name), pq_span(bytes, len), 0600, PQ_FILE_NEW, &why), 0);
}

static void needs_a_whole_authority(void **state)
{
    (void)state;
    assert_int_equal(pki_issue("amf", "ed25519", NULL, 0), PQ_E_NOENT);
    assert_non_null(strstr(why.text, "pki init"));
    assert_int_equal(pki_init("ed25519", NULL), 0);

    /* The key of another. */
    DEFER(EVP_PKEY_freep) EVP_PKEY *other = NULL;
    DEFER(pq_buf_wipe) struct pq_buf pem = {.cap = 1 << 16};
    DEFER(pq_buf_wipe) struct pq_buf own = {.cap = 1 << 16};
    assert_int_equal(pq_file_read(pki_path("root.key"), &own, &why), 0);
    assert_int_equal(pq_pki_key_new(crypto, "ed25519", &other, &why), 0);
    assert_int_equal(pq_pki_key_pem(other, &pem, &why), 0);
    swap("root.key", (const char *)pem.at, pem.len);
    assert_int_equal(pki_issue("amf", "ed25519", NULL, 0), PQ_E_INVALID);
    assert_non_null(strstr(why.text, "is not the key of"));
    assert_int_equal(pki_revoke(NULL, 0), PQ_E_INVALID);
    swap("root.key", "nothing", 7);
    assert_int_equal(pki_issue("amf", "ed25519", NULL, 0), PQ_E_CRYPTO);
    swap("root.key", "", 0);
    assert_int_equal(pki_issue("amf", "ed25519", NULL, 0), PQ_E_CRYPTO);
    unlink(pki_path("root.key"));
    assert_int_equal(pki_issue("amf", "ed25519", NULL, 0), PQ_E_NOENT);
    swap("root.key", (const char *)own.at, own.len);
    assert_int_equal(pki_issue("amf", "ed25519", NULL, 0), 0);
    /* A leaf is no authority. */
    DEFER(pq_buf_free) struct pq_buf leaf = {.cap = 1 << 16};
    assert_int_equal(pq_file_read(pki_path("amf.crt"), &leaf, &why), 0);
    swap("root.crt", (const char *)leaf.at, leaf.len);
    assert_int_equal(pki_issue("smf", "ed25519", NULL, 0), PQ_E_INVALID);
    assert_non_null(strstr(why.text, "no certificate of an authority"));
    swap("root.crt", "garbage", 7);
    assert_int_equal(pki_issue("smf", "ed25519", NULL, 0), PQ_E_CRYPTO);
    assert_int_equal(pki_files(dir), 5);
}

static void refuses_a_key_behind_a_passphrase(void **state)
{
    (void)state;
    assert_int_equal(pki_init("ed25519", NULL), 0);
    DEFER(EVP_PKEY_freep) EVP_PKEY *key = NULL;
    assert_int_equal(pq_pki_key_load(crypto, pki_path("root.key"), &key, &why), 0);
    BIO *out = BIO_new_file(pki_path("root.key"), "w");
    assert_true(PEM_write_bio_PKCS8PrivateKey(out, key, EVP_aes_256_cbc(), "word", 4, NULL, NULL));
    BIO_free(out);
    assert_int_equal(pki_issue("amf", "ed25519", NULL, 0), PQ_E_INVALID);
    assert_non_null(strstr(why.text, "encrypted"));
}

/* An authority whose certificate was valid from begin to end, seconds from now. */
static void authority_of_another_time(time_t begin, time_t end)
{
    time_t now = (time_t)(pq_clock_wall_ns() / PQ_NS_PER_S);
    DEFER(EVP_PKEY_freep) EVP_PKEY *key = NULL;
    DEFER(X509_NAME_freep) X509_NAME *name = NULL;
    DEFER(X509_freep) X509 *x = NULL;
    DEFER(pq_pki_made_undo) struct pq_pki_made made = {0};
    assert_int_equal(pq_pki_key_new(crypto, "ed25519", &key, &why), 0);
    assert_int_equal(pq_pki_common_name("old root", &name, &why), 0);
    struct pq_pki_template t = {.subject = name, .key = key, .begin = now + begin, .end = now + end, .ca = true};
    assert_int_equal(pq_pki_cert_new(crypto, &t, NULL, key, &x, &why), 0);
    assert_int_equal(pq_pki_made_folder(&made, dir, &why), 0);
    assert_int_equal(pq_pki_made_key(&made, dir, "root", key, &why), 0);
    assert_int_equal(pq_pki_made_cert(&made, dir, "root", x, NULL, &why), 0);
    pq_pki_made_keep(&made);
}

static void an_expired_authority_issues_nothing(void **state)
{
    (void)state;
    authority_of_another_time(-7200, -3600);
    assert_int_equal(pki_issue("amf", "ed25519", NULL, 0), PQ_E_INVALID);
    assert_non_null(strstr(why.text, "expired on 20"));
    assert_int_equal(pki_revoke(NULL, 0), PQ_E_INVALID);
    assert_int_equal(pki_files(dir), 2);
    snprintf(dir, sizeof dir, "%s/early", top);
    authority_of_another_time(3600, 7200);
    assert_int_equal(pki_issue("amf", "ed25519", NULL, 0), PQ_E_INVALID);
    assert_non_null(strstr(why.text, "is not valid before"));
    assert_int_equal(pki_files(dir), 2);
}

/* --- nothing is left behind ----------------------------------------------------------------------------------------
 */
static void leaves_nothing_where_a_file_fails(void **state)
{
    (void)state;
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(pki_init("ed25519", NULL), 0);
    /* A key of Ed25519 is smaller than this, its certificate is larger. */
    small.rlim_cur = 256;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int leaf = pki_issue("amf", "ed25519", NULL, 0), list = pki_revoke(NULL, 0);
    char first[sizeof dir];
    snprintf(first, sizeof first, "%s", dir);
    snprintf(dir, sizeof dir, "%s/second", top);
    int root = pki_init("ed25519", "ed25519");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(leaf, PQ_E_IO);
    assert_int_equal(root, PQ_E_IO);
    assert_int_equal(list, PQ_E_IO);
    assert_int_equal(pki_files(first), 3);
    assert_int_equal(access(dir, F_OK), -1);
    /* And the old list is whole. */
    snprintf(dir, sizeof dir, "%s", first);
    assert_int_equal(pki_issue("amf", "ed25519", NULL, 0), 0);
    assert_int_equal(pki_verdict("amf"), X509_V_OK);
}

static void needs_a_folder_to_write_to(void **state)
{
    (void)state;
    assert_int_equal(pq_file_write(dir, pq_span("x", 1), 0600, PQ_FILE_NEW, &why), 0);
    assert_int_equal(pki_init("ed25519", NULL), PQ_E_EXISTS);
    assert_non_null(strstr(why.text, "is no folder"));
    snprintf(dir, sizeof dir, "/proc/self/no-such-folder");
    assert_true(pki_init("ed25519", NULL) < 0);
    assert_non_null(strstr(why.text, "/proc/self/no-such-folder"));
}

/* --- revocation ----------------------------------------------------------------------------------------------------
 */
static long list_number(size_t which, int *revoked)
{
    BIO *b = BIO_new_file(pki_path("crl.pem"), "r");
    X509_CRL *crl = NULL;
    for (size_t i = 0; i <= which; i++) {
        X509_CRL_free(crl);
        crl = PEM_read_bio_X509_CRL(b, NULL, NULL, NULL);
        assert_non_null(crl);
    }
    ASN1_INTEGER *n = X509_CRL_get_ext_d2i(crl, NID_crl_number, NULL, NULL);
    long number = ASN1_INTEGER_get(n);
    STACK_OF(X509_REVOKED) *r = X509_CRL_get_REVOKED(crl);
    *revoked = r ? sk_X509_REVOKED_num(r) : 0;
    ASN1_INTEGER_free(n);
    X509_CRL_free(crl);
    BIO_free(b);
    return number;
}

static void revokes_by_name_and_serial(void **state)
{
    (void)state;
    assert_int_equal(pki_init("ed25519", "mldsa44"), 0);
    static const char *const names[] = {"amf", "smf", "udm"};
    for (size_t i = 0; i < PQ_COUNT(names); i++)
        assert_int_equal(pki_issue(names[i], "ed25519", NULL, 0), 0);
    const char *by_name[] = {"amf"};
    assert_int_equal(pki_revoke(by_name, 1), 0);
    assert_int_equal(pki_verdict("amf"), X509_V_ERR_CERT_REVOKED);
    assert_int_equal(pki_verdict("smf"), X509_V_OK);

    DEFER(X509_freep) X509 *smf = pki_load("smf.crt");
    DEFER(BN_freep) BIGNUM *n = ASN1_INTEGER_to_BN(X509_get0_serialNumber(smf), NULL);
    char *hex = BN_bn2hex(n);
    const char *by_serial[] = {hex};
    assert_int_equal(pki_revoke(by_serial, 1), 0);
    assert_int_equal(pki_revoke(by_serial, 1), 0); /* once more changes nothing */
    OPENSSL_free(hex);
    assert_int_equal(pki_verdict("amf"), X509_V_ERR_CERT_REVOKED);
    assert_int_equal(pki_verdict("smf"), X509_V_ERR_CERT_REVOKED);
    assert_int_equal(pki_verdict("udm"), X509_V_OK);
    int root_count, leaf_count;
    assert_int_equal(list_number(0, &root_count), 4);
    assert_int_equal(list_number(1, &leaf_count), 4);
    assert_int_equal(root_count, 0);
    assert_int_equal(leaf_count, 2);

    const char *middle[] = {"intermediate"};
    assert_int_equal(pki_revoke(middle, 1), 0);
    list_number(0, &root_count);
    assert_int_equal(root_count, 1);
    assert_int_equal(pki_verdict("udm"), X509_V_ERR_CERT_REVOKED);
}

static void refuses_to_revoke_what_it_did_not_issue(void **state)
{
    (void)state;
    assert_int_equal(pki_init("ed25519", NULL), 0);
    static const char *bad[] = {
        "root", "nobody", "", "0", "00", "-1", "12 34", "../ca/root", "11223344556677889900112233445566778899001"};
    for (size_t i = 0; i < PQ_COUNT(bad); i++)
        assert_int_equal(pki_revoke(&bad[i], 1), PQ_E_INVALID);
    DEFER(X509_freep) X509 *root = pki_load("root.crt");
    DEFER(BN_freep) BIGNUM *n = ASN1_INTEGER_to_BN(X509_get0_serialNumber(root), NULL);
    char *hex = BN_bn2hex(n);
    const char *itself[] = {hex};
    assert_int_equal(pki_revoke(itself, 1), PQ_E_INVALID);
    OPENSSL_free(hex);
    /* A certificate of another authority. */
    char first[sizeof dir];
    snprintf(first, sizeof first, "%s", dir);
    snprintf(dir, sizeof dir, "%s/second", top);
    assert_int_equal(pki_init("ed25519", NULL), 0);
    assert_int_equal(pki_issue("amf", "ed25519", NULL, 0), 0);
    DEFER(pq_buf_free) struct pq_buf foreign = {.cap = 1 << 16}, list = {.cap = 1 << 16};
    assert_int_equal(pq_file_read(pki_path("amf.crt"), &foreign, &why), 0);
    assert_int_equal(pq_file_read(pki_path("crl.pem"), &list, &why), 0);
    snprintf(dir, sizeof dir, "%s", first);
    swap("foreign.crt", (const char *)foreign.at, foreign.len);
    const char *name[] = {"foreign"};
    assert_int_equal(pki_revoke(name, 1), PQ_E_INVALID);
    int count;
    assert_int_equal(list_number(0, &count), 1);
    /* Its list, which has the same issuer name, and a list that is none. */
    swap("crl.pem", (const char *)list.at, list.len);
    assert_int_equal(pki_revoke(NULL, 0), PQ_E_INVALID);
    assert_non_null(strstr(why.text, "not signed by"));
    static const char broken[] = "-----BEGIN X509 CRL-----\nMIIB\n-----END X509 CRL-----\n";
    swap("crl.pem", broken, sizeof broken - 1);
    assert_int_equal(pki_revoke(NULL, 0), PQ_E_CRYPTO);
    unlink(pki_path("crl.pem"));
    assert_int_equal(pki_revoke(NULL, 0), 0);
    assert_int_equal(list_number(0, &count), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(needs_a_whole_authority, pki_fresh, pki_gone),
        cmocka_unit_test_setup_teardown(refuses_a_key_behind_a_passphrase, pki_fresh, pki_gone),
        cmocka_unit_test_setup_teardown(an_expired_authority_issues_nothing, pki_fresh, pki_gone),
        cmocka_unit_test_setup_teardown(leaves_nothing_where_a_file_fails, pki_fresh, pki_gone),
        cmocka_unit_test_setup_teardown(needs_a_folder_to_write_to, pki_fresh, pki_gone),
        cmocka_unit_test_setup_teardown(revokes_by_name_and_serial, pki_fresh, pki_gone),
        cmocka_unit_test_setup_teardown(refuses_to_revoke_what_it_did_not_issue, pki_fresh, pki_gone),
    };
    return cmocka_run_group_tests(tests, pki_setup, pki_teardown);
}
