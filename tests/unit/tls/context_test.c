/* Policies, files and settings: what is taken, and the sentence for each mistake. */
#include <openssl/pem.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "certs.h"
#include "pair.h"
#include "tls/load.h"

static struct certs world;
static const struct cert *root, *leaf, *other;

static int set_up(void **state)
{
    (void)state;
    certs_new(&world);
    root = certs_make(&world, (struct cert_how){.algorithm = "ML-DSA-65", .name = "root", .ca = true});
    leaf = certs_make(
        &world, (struct cert_how){.algorithm = "ML-DSA-65", .name = "leaf", .issuer = root, .san = "DNS:leaf.example"});
    other = certs_make(&world, (struct cert_how){.algorithm = "ML-DSA-65", .name = "other", .issuer = root});
    return 0;
}
static int tear_down(void **state)
{
    (void)state;
    certs_free(&world);
    return 0;
}

static void refuse(enum pq_tls_role role, const struct pq_tls_settings *s, int code, const char *says)
{
    struct pq_why why = {{0}};
    struct pq_tls_context *t = NULL;
    int e = pq_tls_context_new(world.crypto, role, s, &t, &why);
    if (e != code || !strstr(why.text, says))
        fail_msg("%s: \"%s\" (expected %s: \"%s\")", pq_error_name(e), why.text, pq_error_name(code), says);
    assert_null(t);
}

static struct pq_tls_settings good(void) { return pair_settings(PQ_MODE_HYBRID, 3, leaf, root); }
static char *text(const char *s) { return (char *)(uintptr_t)s; }

static void policy_mistakes(void **state)
{
    static const struct {
        const char *groups, *sigalgs, *ciphersuites, *says;
    } rows[] = {
        {"X25519MLKEM768:nope", NULL, NULL, "policy groups: OpenSSL and its providers know no \"nope\""},
        {"X25519MLKEM768/nope:x25519", NULL, NULL, "\"nope\""},
        {"", NULL, NULL, "policy groups: the list is empty"},
        {NULL, "", NULL, "policy sigalgs: the list is empty"},
        {NULL, NULL, "", "policy ciphersuites: the list is empty"},
        {NULL, "mldsa65:nope", NULL, "policy sigalgs: OpenSSL and its providers know no \"nope\""},
        {NULL, NULL, "TLS_NOPE", "policy ciphersuites: OpenSSL and its providers know no \"TLS_NOPE\""},
        {NULL, NULL, "TLS_AES_256_GCM_SHA384:TLS_NOPE",
         "policy ciphersuites: OpenSSL and its providers know no \"TLS_NOPE\""},
        {NULL, "mldsa87", NULL,
         "the certificate's key is ML-DSA-65, which the policy does not sign with (sigalgs mldsa87)"},
        {NULL, "ecdsa_secp256r1_sha256", NULL, "does not sign with"},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_tls_settings s = good();
        s.policy.groups = text(rows[i].groups);
        s.policy.sigalgs = text(rows[i].sigalgs);
        s.policy.ciphersuites = text(rows[i].ciphersuites);
        refuse(PQ_TLS_SERVER, &s, PQ_E_CONFIG, rows[i].says);
        refuse(PQ_TLS_CLIENT, &s, PQ_E_CONFIG, rows[i].says);
    }
}

static void setting_mistakes(void **state)
{
    (void)state;
    struct pq_tls_settings s = good();
    s.policy.mode = PQ_MODE_PLAIN;
    refuse(PQ_TLS_CLIENT, &s, PQ_E_CONFIG, "needs a mode");
    s = good();
    s.policy.mode = 99;
    refuse(PQ_TLS_CLIENT, &s, PQ_E_CONFIG, "needs a mode");
    s = good();
    s.policy.level = 2;
    refuse(PQ_TLS_CLIENT, &s, PQ_E_CONFIG, "a level (1, 3, 5)");
    s = good();
    s.identity_count = 0;
    refuse(PQ_TLS_SERVER, &s, PQ_E_CONFIG, "a TLS server needs a certificate");
    s = good();
    s.identity_count = PQ_TLS_IDENTITIES_MAX + 1;
    refuse(PQ_TLS_SERVER, &s, PQ_E_CONFIG, "more than the 4 that stand side by side");
    s = good();
    s.identities = &(struct pq_tls_identity){s.identities->certificate, NULL};
    refuse(PQ_TLS_SERVER, &s, PQ_E_CONFIG, "needs its key");
    s = good();
    s.identities = &(struct pq_tls_identity){NULL, s.identities->key};
    refuse(PQ_TLS_CLIENT, &s, PQ_E_CONFIG, "needs its certificate");
    s = good();
    s.verify_peer = false;
    s.policy.require_pq_auth = true;
    refuse(PQ_TLS_SERVER, &s, PQ_E_CONFIG, "must be verified");
    s = good();
    s.max_certificate_list = -1;
    refuse(PQ_TLS_SERVER, &s, PQ_E_CONFIG, "cap of a certificate list");
    s = good();
    char *protocols[] = {text("h2"), text("")};
    struct pq_strings alpn = {protocols, 2};
    s.alpn = &alpn;
    refuse(PQ_TLS_SERVER, &s, PQ_E_CONFIG, "ALPN");
    const struct cert *classical =
        certs_make(&world, (struct cert_how){.algorithm = "p384", .name = "classical", .issuer = root});
    s = pair_settings(PQ_MODE_CLASSICAL, 3, classical, root);
    s.policy.require_pq_auth = true;
    refuse(PQ_TLS_SERVER, &s, PQ_E_CONFIG, "the policy requires pq-auth, but the certificate's key or a signature");
    s = pair_settings(PQ_MODE_CLASSICAL, 5, classical, root);
    refuse(PQ_TLS_SERVER, &s, PQ_E_CONFIG, "the certificate's key is EC secp384r1");
}

/* Half a PEM file. */
static const char *cut(const char *path, const char *name)
{
    static char all[65536];
    FILE *f = fopen(path, "r");
    all[fread(all, 1, sizeof all - 1, f)] = 0;
    fclose(f);
    all[strlen(all) / 2] = 0;
    return certs_file(&world, name, all, 0600);
}

static const char *encrypted_key(void)
{
    const char *path = certs_file(&world, "encrypted.key", "", 0600);
    FILE *f = fopen(path, "w");
    assert_true(PEM_write_PKCS8PrivateKey(f, leaf->key, EVP_aes_256_cbc(), "secret", 6, NULL, NULL));
    fclose(f);
    return path;
}

static void file_mistakes(void **state)
{
    (void)state;
    const char *empty = certs_file(&world, "empty", "", 0600),
               *prose = certs_file(&world, "prose", "no PEM here\n", 0600);
    const char *open_key = certs_file(&world, "open.key", "-----BEGIN PRIVATE KEY-----\n", 0640);
    const char *encrypted = encrypted_key();
    const char *bad_base64 =
        certs_file(&world, "bad.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", 0600);
    const char *bad_crl =
        certs_file(&world, "bad.crl", "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", 0600);
    const struct {
        const char *certificate, *key, *ca, *crl;
        int code;
        const char *says;
    } rows[] = {
        {"/nonexistent/a.crt", NULL, NULL, NULL, PQ_E_NOENT, "can't read /nonexistent/a.crt"},
        {NULL, "/nonexistent/a.key", NULL, NULL, PQ_E_NOENT, "can't read /nonexistent/a.key"},
        {NULL, NULL, "/nonexistent/ca", NULL, PQ_E_NOENT, "can't read /nonexistent/ca"},
        {NULL, NULL, NULL, "/nonexistent/crl", PQ_E_NOENT, "can't read /nonexistent/crl"},
        {empty, NULL, NULL, NULL, PQ_E_CONFIG, "empty holds no certificate"},
        {prose, NULL, NULL, NULL, PQ_E_CONFIG, "prose holds no certificate"},
        {NULL, prose, NULL, NULL, PQ_E_CONFIG, "prose holds no private key"},
        {NULL, NULL, prose, NULL, PQ_E_CONFIG, "prose holds no certificate"},
        {NULL, NULL, NULL, prose, PQ_E_CONFIG, "prose holds no revocation list"},
        {NULL, NULL, NULL, leaf->chain, PQ_E_CONFIG, "holds no revocation list"},
        {leaf->key_file, NULL, NULL, NULL, PQ_E_CONFIG, "holds no certificate"},
        {NULL, open_key, NULL, NULL, PQ_E_CONFIG, "open.key has mode 0640, so others may read it: chmod 600 it"},
        {NULL, encrypted, NULL, NULL, PQ_E_CONFIG, "is encrypted"},
        {NULL, other->key_file, NULL, NULL, PQ_E_CONFIG, "other.key does not belong to the certificate in"},
        {bad_base64, NULL, NULL, NULL, PQ_E_CONFIG, "bad.pem: certificate number 1 can't be read"},
        {NULL, NULL, bad_base64, NULL, PQ_E_CONFIG, "bad.pem: certificate number 1 can't be read"},
        {NULL, NULL, NULL, bad_crl, PQ_E_CONFIG, "bad.crl: revocation list number 1 can't be read"},
        {cut(leaf->chain, "cut.crt"), NULL, NULL, NULL, PQ_E_CONFIG, "cut.crt: certificate number 1 can't be read"},
        {NULL, cut(leaf->key_file, "cut.key"), NULL, NULL, PQ_E_CONFIG, "the key in"},
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_tls_settings s = good();
        struct pq_tls_identity id = {text(rows[i].certificate ? rows[i].certificate : leaf->chain),
                                     text(rows[i].key ? rows[i].key : leaf->key_file)};
        s.identities = &id;
        s.ca = rows[i].ca ? text(rows[i].ca) : s.ca;
        s.crl = text(rows[i].crl);
        refuse(PQ_TLS_SERVER, &s, rows[i].code, rows[i].says);
        refuse(PQ_TLS_CLIENT, &s, rows[i].code, rows[i].says);
    }
}

/* count copies of a certificate; one file has to be read at the cap, and one past it refused. */
static struct pq_buf repeat(const struct cert *c, int count)
{
    struct pq_buf one = {.cap = 1 << 16}, all = {.cap = 32 << 20};
    FILE *f = fopen(c->chain, "r");
    assert_int_equal(pq_buf_reserve(&one, 65536 / 2), 0);
    one.len = fread(one.at, 1, 65536 / 2, f);
    fclose(f);
    for (int i = 0; i < count; i++)
        assert_int_equal(pq_buf_append(&all, one.at, one.len), 0);
    pq_buf_free(&one);
    return all;
}

static void caps(void **state)
{
    (void)state;
    OSSL_LIB_CTX *lib = pq_crypto_libctx(world.crypto);
    const struct cert *small = certs_make(&world, (struct cert_how){.algorithm = "p256", .name = "small", .ca = true});
    const struct cert *below =
        certs_make(&world, (struct cert_how){.algorithm = "p256", .name = "below", .issuer = small});
    struct pq_why why = {{0}};
    for (int past = 0; past < 2; past++) {
        DEFER(pq_buf_free) struct pq_buf chain = repeat(below, PQ_TLS_CHAIN_MAX + past);
        DEFER(pq_buf_free) struct pq_buf anchors = repeat(small, PQ_TLS_ANCHORS_MAX + past);
        DEFER(pq_x509_stack_freep) STACK_OF(X509) *out = NULL, *trusted = NULL;
        int e = pq_tls_load_chain(lib, "chain", pq_span(chain.at, chain.len), &out, &why);
        assert_int_equal(e, past ? PQ_E_CONFIG : 0);
        e = pq_tls_load_anchors(lib, "anchors", pq_span(anchors.at, anchors.len), &trusted, &why);
        assert_int_equal(e, past ? PQ_E_CONFIG : 0);
    }
    assert_non_null(strstr(why.text, "anchors holds more than 1024 trust anchors"));
    DEFER(pq_freep) char *large = malloc(PQ_TLS_FILE_MAX + 1);
    memset(large, 'x', PQ_TLS_FILE_MAX + 1);
    STACK_OF(X509) *none = NULL;
    assert_int_equal(pq_tls_load_chain(lib, "large", pq_span(large, PQ_TLS_FILE_MAX + 1), &none, &why), PQ_E_CONFIG);
    assert_non_null(strstr(why.text, "larger than"));
    assert_int_equal(pq_tls_load_chain(lib, "large", pq_span(large, PQ_TLS_FILE_MAX), &none, &why), PQ_E_CONFIG);
    assert_non_null(strstr(why.text, "holds no certificate"));
    assert_null(none);
}

static void other_kinds_of_keys(void **state)
{
    static const struct {
        const char *algorithm, *sigalgs;
        bool taken;
    } rows[] = {
        {"ED25519", "ed25519", true},
        {"ED448", "ed25519:ed448", true},
        {"ED448", "ed25519", false},
        {"rsa2048", "rsa_pss_rsae_sha256", true},
        {"rsa2048", "rsa_pss_pss_sha256", false},
        {"rsa2048", "RSA-PSS+SHA256", true},
        {"p256", "?nope:ecdsa_secp256r1_sha256", true},
        {"p256", "ecdsa_secp384r1_sha384", false},
        {"ML-DSA-87", "mldsa65:mldsa87", true},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        const struct cert *c =
            certs_make(&world, (struct cert_how){.algorithm = rows[i].algorithm, .name = "kind", .issuer = root});
        struct pq_tls_settings s = pair_settings(PQ_MODE_CLASSICAL, 1, c, root);
        struct pq_why why = {{0}};
        DEFER(pq_tls_context_freep) struct pq_tls_context *t = NULL;
        s.policy.sigalgs = text(rows[i].sigalgs);
        int e = pq_tls_context_new(world.crypto, PQ_TLS_SERVER, &s, &t, &why);
        if (e != (rows[i].taken ? 0 : PQ_E_CONFIG))
            fail_msg("row %zu: %s", i, why.text);
    }
}

static void key_texts_stay_out_of_messages(void **state)
{
    (void)state;
    static char all[16384];
    FILE *f = fopen(leaf->key_file, "r");
    all[fread(all, 1, sizeof all - 1, f)] = 0;
    fclose(f);
    char *middle = strchr(all, '\n') + 65 * 20;
    char piece[17] = "";
    memcpy(piece, middle, 16);
    middle[30] = '!'; /* spoils it */
    struct pq_tls_settings s = good();
    struct pq_tls_identity id = {s.identities->certificate, text(certs_file(&world, "spoilt.key", all, 0600))};
    s.identities = &id;
    struct pq_why why = {{0}};
    struct pq_tls_context *t = NULL;
    assert_int_equal(pq_tls_context_new(world.crypto, PQ_TLS_SERVER, &s, &t, &why), PQ_E_CONFIG);
    assert_null(strstr(why.text, piece));
}

/* --- YAML ------------------------------------------------------------------------------------------------------------
 */

static void policy_from_yaml(void **state)
{
    static const struct {
        const char *yaml;
        int mode, level;
        const char *groups, *sigalgs;
        bool kex, auth;
        const char *wrong;
    } rows[] = {
        {"{}", PQ_MODE_HYBRID, 3, NULL, NULL, false, false, NULL},
        {"{mode: pure, level: 5}", PQ_MODE_PURE, 5, NULL, NULL, false, false, NULL},
        {"{mode: classical, level: 1, require: pq-kex}", PQ_MODE_CLASSICAL, 1, NULL, NULL, true, false, NULL},
        {"{require: [pq-kex, pq-auth]}", PQ_MODE_HYBRID, 3, NULL, NULL, true, true, NULL},
        {"{groups: 'X25519MLKEM768/x25519', sigalgs: [mldsa65, ed25519]}", PQ_MODE_HYBRID, 3, "X25519MLKEM768/x25519",
         "mldsa65:ed25519", false, false, NULL},
        {"{mode: plain}", 0, 0, NULL, NULL, false, false, "p.yaml:1:8: mode must be classical, hybrid or pure"},
        {"{mode: [pure]}", 0, 0, NULL, NULL, false, false, "mode must be"},
        {"{level: 2}", 0, 0, NULL, NULL, false, false, "level must be 1, 3 or 5"},
        {"{level: 35}", 0, 0, NULL, NULL, false, false, "level must be 1, 3 or 5"},
        {"{level: ''}", 0, 0, NULL, NULL, false, false, "level must be 1, 3 or 5"},
        {"{require: [pq-kex, all]}", 0, 0, NULL, NULL, false, false, "require takes pq-kex and pq-auth"},
        {"{require: {a: b}}", 0, 0, NULL, NULL, false, false, "require takes"},
        {"{groups: ''}", 0, 0, NULL, NULL, false, false, "expected names of algorithms"},
        {"{groups: []}", 0, 0, NULL, NULL, false, false, "expected names of algorithms"},
        {"{groups: [[a]]}", 0, 0, NULL, NULL, false, false, "expected the name of an algorithm"},
        {"{groups: {a: b}}", 0, 0, NULL, NULL, false, false, "expected names of algorithms"},
        {"{modus: pure}", 0, 0, NULL, NULL, false, false, "modus"},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_tls_policy p = {0};
        struct pq_why why = {{0}};
        int e = pq_config_parse("p.yaml", rows[i].yaml, strlen(rows[i].yaml), &pq_tls_policy_schema, &p, &why);
        if ((e == 0) != !rows[i].wrong || (rows[i].wrong && !strstr(why.text, rows[i].wrong)))
            fail_msg("%s: %s", rows[i].yaml, why.text);
        if (e < 0)
            continue;
        assert_int_equal(p.mode, rows[i].mode);
        assert_int_equal(p.level, rows[i].level);
        assert_int_equal(p.require_pq_kex, rows[i].kex);
        assert_int_equal(p.require_pq_auth, rows[i].auth);
        assert_string_equal(p.groups ? p.groups : "", rows[i].groups ? rows[i].groups : "");
        assert_string_equal(p.sigalgs ? p.sigalgs : "", rows[i].sigalgs ? rows[i].sigalgs : "");
        assert_null(p.ciphersuites);
        pq_config_free(&pq_tls_policy_schema, &p);
    }
}

/* What was read once is used, whatever has become of the files. */
static void contents_in_place_of_files(void **state)
{
    (void)state;
    struct pq_tls_settings s = good();
    struct pq_why why = {{0}};
    DEFER(pq_files_freep) struct pq_files *files = NULL, *without = NULL;
    s.crl = text(certs_crl(&world, "list", root, NULL, -60, 3600));
    assert_int_equal(pq_files_new(&files), 0);
    assert_int_equal(pq_files_new(&without), 0);
    assert_int_equal(pq_tls_settings_files(&s, files, &why), 0);
    assert_int_equal(pq_files_count(files), 4);
    const char *paths[] = {s.ca, s.crl, s.identities->certificate, s.identities->key};
    for (size_t i = 0; i < PQ_COUNT(paths); i++)
        assert_int_equal(unlink(paths[i]), 0);
    refuse(PQ_TLS_SERVER, &s, PQ_E_NOENT, "No such file");
    s.files = without;
    refuse(PQ_TLS_SERVER, &s, PQ_E_NOENT, "not among the files that were read");
    s.files = files;
    struct pair p;
    pair_new(&p, world.crypto, &s, &s, "leaf.example", PAIR_PLAIN);
    pair_expect_done(&p);
    pair_free(&p);
    s.files = NULL;
    assert_int_equal(pq_tls_settings_files(&s, without, &why), PQ_E_NOENT);
    certs_file(&world, "leaf.crt", "x", 0644);
    certs_file(&world, "leaf.key", "x", 0644);
    assert_int_equal(pq_tls_settings_files(&s, without, &why), PQ_E_CONFIG);
    assert_non_null(strstr(why.text, "has mode 0644, so others may read it"));
}

static void context_outlives_its_last_connection(void **state)
{
    (void)state;
    struct pq_tls_settings s = good();
    struct pair p;
    pair_new(&p, world.crypto, &s, &s, "leaf.example", PAIR_PLAIN);
    pq_tls_context_free(p.client_context);
    pq_tls_context_free(p.server_context);
    p.client_context = p.server_context = NULL;
    pair_expect_done(&p);
    pair_free(&p);
    pq_tls_context_free(NULL);
    pq_tls_free(NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(contents_in_place_of_files),
        TEST(policy_mistakes),
        TEST(setting_mistakes),
        TEST(file_mistakes),
        TEST(caps),
        TEST(other_kinds_of_keys),
        TEST(key_texts_stay_out_of_messages),
        TEST(policy_from_yaml),
        TEST(context_outlives_its_last_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
