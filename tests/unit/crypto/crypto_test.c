/* The library context: its configuration, its providers, its errors; and that each suite's names are known in it. */
#include "crypto/crypto.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/provider.h>
#include <openssl/ssl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "crypto/kind.h"
#include "crypto/suite.h"

static char folder[64];

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}
static void configure(const char *text)
{
    struct pq_why why;
    assert_int_equal(pq_file_write(path_of("openssl.cnf"), pq_span_text(text), 0600, PQ_FILE_REPLACE, &why), 0);
    setenv("OPENSSL_CONF", path_of("openssl.cnf"), 1);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/pqplane-crypto-test-XXXXXX");
    unsetenv("OPENSSL_CONF");
    return mkdtemp(folder) ? 0 : -1;
}
static int tear_down(void **state)
{
    (void)state;
    struct pq_why why;
    unsetenv("OPENSSL_CONF");
    return pq_file_remove_tree(folder, &why);
}

static struct pq_crypto *new_crypto(void)
{
    struct pq_crypto *c = NULL;
    struct pq_why why = {{0}};
    if (pq_crypto_new(&c, &why) < 0)
        fail_msg("%s", why.text);
    return c;
}
static bool knows(const struct pq_crypto *c, const char *digest)
{
    EVP_MD *md = EVP_MD_fetch(pq_crypto_libctx(c), digest, NULL);
    EVP_MD_free(md);
    ERR_clear_error();
    return md;
}

static void default_provider(void **state)
{
    (void)state;
    struct pq_crypto *c = new_crypto();
    EVP_SIGNATURE *s = EVP_SIGNATURE_fetch(pq_crypto_libctx(c), "ML-DSA-65", NULL);
    assert_non_null(s);
    EVP_SIGNATURE_free(s);
    assert_false(knows(c, "MD4")); /* the legacy provider's */
    pq_crypto_free(c);
    pq_crypto_free(NULL);
}

static void configuration_is_honoured(void **state)
{
    (void)state;
    configure("openssl_conf = init\n[init]\nproviders = p\nssl_conf = ssl\n[p]\nlegacy = on\n[on]\nactivate = 1\n"
              "[ssl]\nsystem_default = d\n[d]\nMinProtocol = TLSv1.2\n");
    struct pq_crypto *c = new_crypto();
    assert_true(OSSL_PROVIDER_available(pq_crypto_libctx(c), "legacy"));
    assert_true(knows(c, "MD4"));
    assert_true(knows(c, "SHA256")); /* the default provider is there too */
    pq_crypto_free(c);
    setenv("OPENSSL_CONF", "", 1);
    c = new_crypto();
    assert_false(knows(c, "MD4"));
    pq_crypto_free(c);
}

static void wrong_configuration(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"openssl_conf = init\n[init]\nproviders = missing\n", "openssl.cnf (from OPENSSL_CONF) can't be used"},
        {"openssl_conf = init\n[init\n", "can't be used"},
        {NULL, "/openssl.cnf (from OPENSSL_CONF) can't be used"},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_crypto *c = NULL;
        struct pq_why why = {{0}};
        if (rows[i].text)
            configure(rows[i].text);
        else
            remove(path_of("openssl.cnf"));
        int e = pq_crypto_new(&c, &why);
        if (e != PQ_E_CRYPTO || !strstr(why.text, rows[i].says))
            fail_msg("%d: %s", e, why.text);
        assert_null(c);
    }
}

static void providers_are_added(void **state)
{
    (void)state;
    struct pq_crypto *c = new_crypto();
    struct pq_why why = {{0}};
    assert_int_equal(pq_crypto_load(c, "legacy", &why), 0);
    assert_true(knows(c, "MD4"));
    assert_int_equal(pq_crypto_load(c, "no-such-provider", &why), PQ_E_CRYPTO);
    assert_non_null(strstr(why.text, "the OpenSSL provider no-such-provider can't be loaded: "));
    assert_int_equal(pq_crypto_load(c, "./no/such.so", &why), PQ_E_NOENT);
    assert_non_null(strstr(why.text, "./no/such.so can't be loaded: No such file"));
    struct pq_why written;
    assert_int_equal(pq_file_write(path_of("no-module.so"), pq_span_text("text"), 0600, PQ_FILE_NEW, &written), 0);
    assert_int_equal(pq_crypto_load(c, path_of("no-module.so"), &why), PQ_E_CRYPTO);
    int loaded = 0;
    while (pq_crypto_load(c, "legacy", &why) == 0)
        loaded++;
    assert_int_equal(loaded, 14); /* with the default and the first, 16 */
    assert_non_null(strstr(why.text, "at most 16"));
    pq_crypto_free(c);
}

static void errors_become_sentences(void **state)
{
    (void)state;
    struct pq_why why;
    ERR_clear_error();
    assert_int_equal(pq_crypto_why(&why, PQ_E_CONFIG, "file %s", "a"), PQ_E_CONFIG);
    assert_string_equal(why.text, "file a: no reason given");
    ERR_raise_data(ERR_LIB_SSL, SSL_R_NO_SHARED_CIPHER, "oldest");
    ERR_raise(ERR_LIB_SSL, SSL_R_BAD_SIGNATURE);
    assert_int_equal(pq_crypto_why(&why, PQ_E_CRYPTO, "it"), PQ_E_CRYPTO);
    assert_string_equal(why.text, "it: no shared cipher (oldest)");
    assert_int_equal(ERR_peek_error(), 0);
    ERR_raise(ERR_LIB_SSL, SSL_R_BAD_SIGNATURE);
    ERR_raise(ERR_LIB_SSL, ERR_R_MALLOC_FAILURE);
    assert_int_equal(pq_crypto_why(NULL, PQ_E_CRYPTO, "it"), PQ_E_NOMEM);
    assert_int_equal(ERR_peek_error(), 0);
}

static void each_part(const char *list, void (*check)(const char *name, const struct pq_suite *s),
                      const struct pq_suite *s)
{
    char name[64];
    for (const char *at = list; *at;) {
        size_t len = strcspn(at, ":/");
        snprintf(name, sizeof name, "%.*s", (int)len, at);
        check(name, s);
        at += len + (at[len] != 0);
    }
}
static void group_fits(const char *name, const struct pq_suite *s)
{
    static const enum pq_kind kinds[] = {
        [PQ_MODE_CLASSICAL] = PQ_KIND_CLASSICAL, [PQ_MODE_HYBRID] = PQ_KIND_HYBRID, [PQ_MODE_PURE] = PQ_KIND_PQ};
    assert_int_equal(pq_kind_of_group(name), kinds[s->mode]);
}
static void sigalg_fits(const char *name, const struct pq_suite *s)
{
    assert_int_equal(pq_kind_of_signature(name), s->mode == PQ_MODE_CLASSICAL ? PQ_KIND_CLASSICAL : PQ_KIND_PQ);
}

static void suites(void **state)
{
    (void)state;
    size_t count = 0;
    const struct pq_suite *all = pq_suites(&count);
    struct pq_crypto *c = new_crypto();
    SSL_CTX *ctx = SSL_CTX_new_ex(pq_crypto_libctx(c), NULL, TLS_method());
    assert_int_equal(count, 10);
    for (size_t i = 0; i < count; i++) {
        char name[32];
        assert_ptr_equal(pq_suite_find(all[i].mode, all[i].level), &all[i]);
        if (all[i].mode == PQ_MODE_PLAIN)
            continue;
        snprintf(name, sizeof name, "%s-%d", pq_mode_names[all[i].mode], all[i].level);
        assert_string_equal(all[i].name, name);
        assert_true(SSL_CTX_set1_groups_list(ctx, all[i].groups));
        assert_true(SSL_CTX_set1_groups_list(ctx, all[i].server_groups));
        assert_true(SSL_CTX_set1_sigalgs_list(ctx, all[i].sigalgs));
        assert_true(SSL_CTX_set_ciphersuites(ctx, all[i].ciphersuites));
        each_part(all[i].groups, group_fits, &all[i]);
        each_part(all[i].server_groups, group_fits, &all[i]);
        each_part(all[i].sigalgs, sigalg_fits, &all[i]);
    }
    assert_null(pq_suite_find(PQ_MODE_HYBRID, 2));
    assert_null(pq_suite_find((enum pq_mode)9, 3));
    SSL_CTX_free(ctx);
    pq_crypto_free(c);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(default_provider),    TEST(configuration_is_honoured), TEST(wrong_configuration),
        TEST(providers_are_added), TEST(errors_become_sentences),   TEST(suites),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
