#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <openssl/pem.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "crypto/ossl.h"
#include "crypto/pki.h"
#include "crypto/pki_key.h"
#include "crypto/pki_show.h"

static struct pq_crypto *crypto;
static char dir[64], path[128];
static struct pq_why why;
static time_t now;

static const char *in(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static int setup(void **state)
{
    (void)state;
    const char *san[] = {"DNS:amf.example", "IP:198.18.0.1", "IP:fd00::1",
                         "URI:urn:uuid:4947a69a-f61b-4bc1-b9da-47c9c5d14b64"};
    const char *revoked[] = {"amf"};
    snprintf(dir, sizeof dir, "/tmp/pqplane-show-XXXXXX");
    now = (time_t)(pq_clock_wall_ns() / PQ_NS_PER_S);
    if (pq_crypto_new(&crypto, &why) < 0 || !mkdtemp(dir))
        return -1;
    struct pq_pki_init init = {
        .folder = dir, .root = "slhdsa128f", .intermediate = "mldsa65", .name = "test root", .valid_s = 86400};
    struct pq_pki_issue issue = {
        .folder = dir, .name = "amf", .algorithm = "p256", .san = {(char **)san, PQ_COUNT(san)}};
    struct pq_pki_crl crl = {.folder = dir, .revoke = {(char **)revoked, 1}, .valid_s = 3600};
    return pq_pki_init(crypto, &init, &why) < 0 || pq_pki_issue(crypto, &issue, &why) < 0 ||
                   pq_pki_crl(crypto, &crl, &why) < 0
               ? -1
               : 0;
}

static int teardown(void **state)
{
    (void)state;
    pq_crypto_free(crypto);
    return pq_file_remove_tree(dir, NULL);
}

static void shows(const char *name, const char *const *lines, size_t count)
{
    DEFER(pq_buf_free) struct pq_buf out = {.cap = 1 << 20};
    assert_int_equal(pq_pki_show_file(crypto, in(name), now, &out, &why), 0);
    for (size_t i = 0; i < count; i++)
        if (!strstr((const char *)out.at, lines[i]))
            fail_msg("\"%s\" is not in:\n%s", lines[i], (const char *)out.at);
}

static void tells_what_objects_are(void **state)
{
    (void)state;
    static const char *const root[] = {": certificate\n",
                                       "CN=test root\n",
                                       "SLH-DSA-SHA2-128f, 32 bytes, pq\n",
                                       "SLH-DSA-SHA2-128f, 17088 bytes, pq\n",
                                       "yes, path length 1\n",
                                       "cRLSign, keyCertSign\n"};
    static const char *const leaf[] = {"EC prime256v1, 65 bytes, classical\n",
                                       "ML-DSA-65, 3309 bytes, pq\n",
                                       "serverAuth, clientAuth\n",
                                       "digitalSignature\n",
                                       "DNS:amf.example\n",
                                       "IP:198.18.0.1\n",
                                       "IP:fd00::1\n",
                                       "URI:urn:uuid:4947a69a-f61b-4bc1-b9da-47c9c5d14b64\n",
                                       "  authority         no\n",
                                       "yes, path length 0\n"};
    static const char *const lists[] = {
        ": revocation list\n", "CN=test root intermediate\n", "revoked           1\n", "revoked           0\n",
        " since 20",           "number            02\n"};
    static const char *const key[] = {": private key\n", "ML-DSA-65, public key 1952 bytes, pq\n"};
    shows("root.crt", root, PQ_COUNT(root));
    shows("amf.crt", leaf, PQ_COUNT(leaf));
    shows("crl.pem", lists, PQ_COUNT(lists));
    shows("intermediate.key", key, PQ_COUNT(key));
}

static void tells_what_is_out_of_time(void **state)
{
    (void)state;
    DEFER(pq_buf_free) struct pq_buf before = {.cap = 1 << 20};
    DEFER(pq_buf_free) struct pq_buf after = {.cap = 1 << 20};
    assert_int_equal(pq_pki_show_file(crypto, in("crl.pem"), now - 60, &before, &why), 0);
    assert_int_equal(pq_pki_show_file(crypto, in("root.crt"), now + 86400 + 60, &after, &why), 0);
    assert_non_null(strstr((char *)before.at, ", not yet valid\n"));
    assert_non_null(strstr((char *)after.at, ", expired\n"));
}

/* No byte run of the secret in the text, neither as it is nor in hexadecimal. */
static void prints_no_secret(void **state)
{
    (void)state;
    static const char *const keys[] = {"root.key", "intermediate.key", "amf.key"};
    for (size_t i = 0; i < PQ_COUNT(keys); i++) {
        DEFER(EVP_PKEY_freep) EVP_PKEY *key = NULL;
        DEFER(pq_buf_free) struct pq_buf out = {.cap = 1 << 20};
        unsigned char raw[8192];
        char hex[17];
        size_t len = sizeof raw;
        assert_int_equal(pq_pki_key_load(crypto, in(keys[i]), &key, &why), 0);
        BIGNUM *d = NULL;
        if (EVP_PKEY_get_bn_param(key, "priv", &d) > 0)
            len = (size_t)BN_bn2bin(d, raw);
        else
            assert_true(EVP_PKEY_get_raw_private_key(key, raw, &len));
        BN_clear_free(d);
        assert_int_equal(pq_pki_show_file(crypto, in(keys[i]), now, &out, &why), 0);
        for (size_t at = 0; at + 8 <= len; at++) {
            for (size_t k = 0; k < 8; k++)
                snprintf(hex + 2 * k, 3, "%02x", raw[at + k]);
            assert_null(memmem(out.at, out.len, raw + at, 8));
            assert_null(strcasestr((char *)out.at, hex));
        }
    }
}

static int show_exact(const unsigned char *at, size_t len)
{
    DEFER(pq_freep) unsigned char *exact = malloc(len ? len : 1);
    DEFER(pq_buf_free) struct pq_buf out = {.cap = 1 << 20};
    memcpy(exact, at, len);
    return pq_pki_show(crypto, "input", pq_span(exact, len), now, &out, &why);
}

static void every_prefix_is_refused(void **state)
{
    (void)state;
    static const char *const files[] = {"amf.crt", "crl.pem", "amf.key", "intermediate.key"};
    for (size_t i = 0; i < PQ_COUNT(files); i++) {
        char *name = NULL, *header = NULL;
        unsigned char *der = NULL;
        long len = 0;
        BIO *b = BIO_new_file(in(files[i]), "r");
        assert_true(PEM_read_bio(b, &name, &header, &der, &len));
        BIO_free(b);
        assert_int_equal(show_exact(der, (size_t)len), 0);
        /* All of the short ones; of the others, where lengths and the algorithms are, then every 61st. */
        for (size_t n = 0; n < (size_t)len; n += n < 300 ? 1 : 61)
            assert_int_equal(show_exact(der, n), PQ_E_TYPE);
        OPENSSL_free(name);
        OPENSSL_free(header);
        OPENSSL_clear_free(der, (size_t)len);
    }
}

static int show_text(const char *text) { return show_exact((const unsigned char *)text, strlen(text)); }

static void refuses_what_it_cannot_read(void **state)
{
    (void)state;
    assert_int_equal(show_text(""), PQ_E_TYPE);
    assert_int_equal(show_text("hello\n"), PQ_E_TYPE);
    assert_int_equal(show_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"), PQ_E_SYNTAX);
    assert_non_null(strstr(why.text, "object 1 (CERTIFICATE)"));
    assert_int_equal(show_text("-----BEGIN X509 CRL-----\nMIIB\n-----END X509 CRL-----\n"), PQ_E_SYNTAX);
    assert_int_equal(show_text("-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n"), PQ_E_SYNTAX);
    assert_int_equal(show_text("-----BEGIN CERTIFICATE-----\nMIIB\n"), PQ_E_SYNTAX);
    assert_int_equal(show_text("-----BEGIN SOMETHING-----\nMIIB\n-----END SOMETHING-----\n"), 0);
    assert_int_equal(pq_pki_show_file(crypto, in("nothing"), now, &(struct pq_buf){.cap = 10}, &why), PQ_E_NOENT);
}

static void stops_at_its_caps(void **state)
{
    (void)state;
    static const char one[] = "-----BEGIN X-----\nMIIB\n-----END X-----\n";
    DEFER(pq_buf_free) struct pq_buf many = {.cap = 1 << 20};
    DEFER(pq_buf_free) struct pq_buf out = {.cap = 1 << 20};
    for (size_t i = 0; i < PQ_PKI_SHOW_OBJECTS_MAX; i++)
        assert_int_equal(pq_buf_text(&many, one), 0);
    assert_int_equal(pq_pki_show(crypto, "many", pq_span(many.at, many.len), now, &out, &why), 0);
    assert_int_equal(pq_buf_text(&many, one), 0);
    assert_int_equal(pq_pki_show(crypto, "many", pq_span(many.at, many.len), now, &out, &why), PQ_E_TOO_LONG);
    DEFER(pq_buf_free) struct pq_buf little = {.cap = 64};
    assert_int_equal(pq_pki_show_file(crypto, in("amf.crt"), now, &little, &why), PQ_E_TOO_LONG);
}

static void an_encrypted_key_is_named_as_one(void **state)
{
    (void)state;
    DEFER(EVP_PKEY_freep) EVP_PKEY *key = NULL;
    DEFER(pq_buf_free) struct pq_buf out = {.cap = 1 << 20};
    assert_int_equal(pq_pki_key_load(crypto, in("amf.key"), &key, &why), 0);
    BIO *b = BIO_new_file(in("locked.key"), "w");
    assert_true(PEM_write_bio_PKCS8PrivateKey(b, key, EVP_aes_256_cbc(), "word", 4, NULL, NULL));
    BIO_free(b);
    assert_int_equal(pq_pki_show_file(crypto, in("locked.key"), now, &out, &why), 0);
    assert_non_null(strstr((char *)out.at, ": encrypted private key\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_what_objects_are),
        cmocka_unit_test(tells_what_is_out_of_time),
        cmocka_unit_test(prints_no_secret),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(refuses_what_it_cannot_read),
        cmocka_unit_test(stops_at_its_caps),
        cmocka_unit_test(an_encrypted_key_is_named_as_one),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
