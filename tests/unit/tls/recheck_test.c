/* An established connection's peer, judged again by another context: after a reload, or when time has passed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "certs.h"
#include "pair.h"
#include "tls/internal.h"

static struct certs world;
static const struct cert *root, *between, *leaf, *other_root;
static const char *root_list, *between_list;
static struct pair p;

static char *text(const char *s) { return (char *)(uintptr_t)s; }

static char *join(const char *a, const char *b)
{
    char all[65536] = "";
    const char *both[] = {a, b};
    for (size_t i = 0; i < PQ_COUNT(both); i++) {
        FILE *f = fopen(both[i], "r");
        size_t at = strlen(all);
        all[at + fread(all + at, 1, sizeof all - at - 1, f)] = 0;
        fclose(f);
    }
    return text(certs_file(&world, "both.crl", all, 0644));
}

static const struct cert *make(const char *name, const char *algorithm, const struct cert *issuer, bool ca)
{
    return certs_make(&world, (struct cert_how){.algorithm = algorithm,
                                                .name = name,
                                                .issuer = issuer,
                                                .ca = ca,
                                                .san = ca ? NULL
                                                          : "DNS:leaf.example,DNS:*.wild.example,IP:192.0.2.1,"
                                                            "URI:urn:uuid:4947a69a-f61b-4bc1-b9da-47c9c5d14b64"});
}

static struct pq_tls_settings settings(void) { return pair_settings(PQ_MODE_HYBRID, 3, leaf, root); }

/* root, between, leaf on both sides, connected. */
static int set_up(void **state)
{
    (void)state;
    certs_new(&world);
    root = make("root", "ML-DSA-65", NULL, true);
    between = make("between", "ML-DSA-65", root, true);
    leaf = make("leaf", "ML-DSA-65", between, false);
    other_root = make("other-root", "ML-DSA-65", NULL, true);
    root_list = certs_crl(&world, "root", root, NULL, -60, 3600);
    between_list = certs_crl(&world, "between", between, NULL, -60, 3600);
    struct pq_tls_settings s = settings();
    pair_new(&p, world.crypto, &s, &s, "leaf.example", PAIR_PLAIN);
    pair_expect_done(&p);
    return 0;
}
static int tear_down(void **state)
{
    (void)state;
    pair_free(&p);
    certs_free(&world);
    return 0;
}

static int64_t now_s(void) { return pq_clock_wall_ns() / PQ_NS_PER_S; }

struct outcome {
    int code;
    enum pq_tls_reason reason;
    const char *says;
};
static const struct outcome good = {0, PQ_TLS_NONE, ""};

static void one_side(struct pq_tls *t, enum pq_tls_role role, const struct pq_tls_settings *s,
                     const struct pq_strings *names, int64_t at_s, struct outcome want)
{
    DEFER(pq_tls_context_freep) struct pq_tls_context *c = NULL;
    struct pq_why why = {{0}};
    enum pq_tls_reason reason = PQ_TLS_NONE;
    if (pq_tls_context_new(world.crypto, role, s, &c, &why) < 0)
        fail_msg("%s", why.text);
    int e = pq_tls_recheck_at(t, c, names, at_s, &reason, &why);
    if (e != want.code || reason != want.reason || !strstr(why.text, want.says))
        fail_msg("%s, %s: \"%s\" (expected %s, %s, \"%s\")", pq_error_name(e), pq_tls_reason_label(reason), why.text,
                 pq_error_name(want.code), pq_tls_reason_label(want.reason), want.says);
    assert_int_equal(pq_tls_reason(t), PQ_TLS_NONE); /* the connection itself goes on */
}

/* Both sides judge alike. */
static void judged_at(const struct pq_tls_settings *s, const struct pq_strings *names, int64_t at_s,
                      struct outcome want)
{
    one_side(p.client, PQ_TLS_CLIENT, s, names, at_s, want);
    one_side(p.server, PQ_TLS_SERVER, s, names, at_s, want);
}
static void judged(const struct pq_tls_settings *s, struct outcome want) { judged_at(s, NULL, now_s(), want); }

static void nothing_has_changed(void **state)
{
    (void)state;
    struct pq_tls_settings s = settings();
    enum pq_tls_reason reason = PQ_TLS_NONE;
    struct pq_why why = {{0}};
    judged(&s, good);
    s.crl = join(root_list, between_list);
    s.policy.require_pq_kex = s.policy.require_pq_auth = true;
    judged(&s, good);
    assert_int_equal(pq_tls_recheck(p.client, p.client_context, NULL, &reason, &why), 0);
    assert_int_equal(reason, PQ_TLS_NONE);
    assert_int_equal(pq_tls_info(p.client)->not_after, pq_tls_seconds(X509_get0_notAfter(leaf->x)));
    assert_int_equal(pq_tls_context_not_after(p.server_context), pq_tls_seconds(X509_get0_notAfter(leaf->x)));
}

static void revoked_meanwhile(void **state)
{
    (void)state;
    struct pq_tls_settings s = settings();
    s.crl = join(root_list, certs_crl(&world, "of-leaf", between, leaf, -60, 3600));
    judged(&s, (struct outcome){PQ_E_AUTH, PQ_TLS_REVOKED, "the peer's certificate (CN=leaf) is revoked"});
    s.crl = join(between_list, certs_crl(&world, "of-between", root, between, -60, 3600));
    judged(&s, (struct outcome){PQ_E_AUTH, PQ_TLS_REVOKED, "the peer's issuer's certificate (CN=between) is revoked"});
    /* stale or not */
    s.crl = join(root_list, certs_crl(&world, "of-leaf-old", between, leaf, -7200, -3600));
    s.crl_stale = PQ_TLS_CRL_WARN;
    judged(&s, (struct outcome){PQ_E_AUTH, PQ_TLS_REVOKED, "(CN=leaf) is revoked"});
}

static void lists_that_fail(void **state)
{
    (void)state;
    struct pq_tls_settings s = settings();
    s.crl = text(root_list);
    struct outcome missing = {PQ_E_AUTH, PQ_TLS_CRL_MISSING, "the revocation list of CN=between is missing"};
    judged(&s, missing);
    s.crl_stale = PQ_TLS_CRL_WARN;
    judged(&s, good);
    s.crl = join(root_list, between_list);
    judged_at(&s, NULL, now_s() + 3000, good);
    s.crl = join(root_list, certs_crl(&world, "short", between, NULL, -60, 600));
    judged_at(&s, NULL, now_s() + 1000, good);
    s.crl_stale = PQ_TLS_CRL_REFUSE;
    judged_at(
        &s, NULL, now_s() + 1000,
        (struct outcome){PQ_E_AUTH, PQ_TLS_CRL_STALE, "the revocation list of CN=between is out of date since 2"});
    /* a clock that was set back */
    judged_at(&s, NULL, now_s() - 1000, (struct outcome){PQ_E_AUTH, PQ_TLS_CRL_INVALID, "is not valid before 2"});
}

static void the_authority_is_gone(void **state)
{
    (void)state;
    struct pq_tls_settings s = settings();
    struct outcome untrusted = {PQ_E_AUTH, PQ_TLS_UNTRUSTED, "(CN=leaf) leads to no trust anchor any more"};
    s.ca = text(other_root->chain);
    judged(&s, untrusted);
    s.ca = NULL;
    judged(&s, untrusted);
    /* any certificate of the path may be the anchor now: who is above it no longer counts */
    s.ca = text(between->chain);
    judged(&s, good);
    s.crl = text(between_list);
    judged(&s, good);
    s.crl = join(between_list, certs_crl(&world, "of-between", root, between, -60, 3600));
    judged(&s, (struct outcome){PQ_E_AUTH, PQ_TLS_REVOKED, "(CN=between) is revoked"});
}

/* The same name, and another key. */
static void the_authority_has_another_key(void **state)
{
    (void)state;
    struct pq_tls_settings s = settings();
    make("root", "ML-DSA-65", NULL, true); /* in the same file */
    judged(&s, (struct outcome){PQ_E_AUTH, PQ_TLS_UNTRUSTED, "no trust anchor"});
}

static void time_passes(void **state)
{
    (void)state;
    struct pq_tls_settings s = settings();
    judged_at(&s, NULL, now_s() + 3500, good);
    judged_at(&s, NULL, now_s() + 3700,
              (struct outcome){PQ_E_AUTH, PQ_TLS_EXPIRED, "the peer's certificate (CN=leaf) expired on 2"});
    judged_at(&s, NULL, now_s() - 3700,
              (struct outcome){PQ_E_AUTH, PQ_TLS_NOT_YET_VALID, "(CN=leaf) is not valid before 2"});
}

static void policy_asks_for_more(void **state)
{
    (void)state;
    struct pq_tls_settings s = settings();
    s.policy = (struct pq_tls_policy){.mode = PQ_MODE_PURE, .level = 3};
    judged(&s, (struct outcome){PQ_E_POLICY, PQ_TLS_NO_SHARED_GROUP,
                                "the key exchange is X25519MLKEM768, which the policy no longer takes"});
    s = settings();
    s.policy.groups = text("SecP256r1MLKEM768:X25519");
    judged(&s, (struct outcome){PQ_E_POLICY, PQ_TLS_NO_SHARED_GROUP, "give the peer one of SecP256r1MLKEM768"});
    s.policy.groups = text("SecP256r1MLKEM768:x25519mlkem768");
    judged(&s, good);
    s = settings();
    s.policy.ciphersuites = text("TLS_CHACHA20_POLY1305_SHA256");
    judged(&s, (struct outcome){PQ_E_POLICY, PQ_TLS_NO_SHARED_CIPHER, "the policy no longer takes"});
    s = settings();
    s.policy.sigalgs = text("mldsa87:mldsa65");
    judged(&s, good);
    s.policy.sigalgs = text("mldsa87");
    s.identity_count = 0;
    one_side(p.client, PQ_TLS_CLIENT, &s, NULL, now_s(),
             (struct outcome){PQ_E_POLICY, PQ_TLS_NO_SHARED_SIGALG,
                              "the peer signed with mldsa65, which the policy no longer takes"});
}

/* A connection of a classical peer that nothing was asked of. */
static void policy_asks_for_post_quantum(void **state)
{
    (void)state;
    const struct cert *old_root = make("old-root", "p384", NULL, true);
    const struct cert *old = make("old", "ML-DSA-65", old_root, false);
    struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 3, old, old_root);
    s.policy.groups = text("X25519");
    pair_free(&p);
    pair_new(&p, world.crypto, &s, &s, "leaf.example", PAIR_PLAIN);
    pair_expect_done(&p);
    judged(&s, good);
    s.policy.require_pq_kex = true;
    s.policy.groups = text("X25519MLKEM768:X25519");
    judged(&s, (struct outcome){PQ_E_POLICY, PQ_TLS_POLICY_KEX, "requires pq-kex, but the key exchange is x25519"});
    s.policy.require_pq_kex = false;
    s.policy.require_pq_auth = true;
    s.identities = &leaf->identity; /* our own must do, too */
    judged(&s, (struct outcome){PQ_E_POLICY, PQ_TLS_POLICY_AUTH, "requires pq-auth, but a key or signature"});
}

static void names(void **state)
{
    static const struct {
        const char *name;
        bool shown;
    } rows[] = {
        {"leaf.example", true},
        {"LEAF.example.", true},
        {"a.wild.example", true},
        {"a.b.wild.example", false},
        {"leaf", false},
        {"192.0.2.1", true},
        {"192.0.2.2", false},
        {"other.example", false},
        {"urn:uuid:4947A69A-f61b-4bc1-b9da-47c9c5d14b64", true},
        {"urn:uuid:4947a69a-f61b-4bc1-b9da-47c9c5d14b65", false},
    };
    (void)state;
    struct pq_tls_settings s = settings();
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        char *at[] = {text("nobody.example"), text(rows[i].name)};
        struct pq_strings both = {at, 2}, one = {at + 1, 1};
        struct outcome want = {PQ_E_AUTH, PQ_TLS_WRONG_NAME, rows[i].name};
        judged_at(&s, &one, now_s(), rows[i].shown ? good : want);
        want.says = "nobody.example or an alternative";
        judged_at(&s, &both, now_s(), rows[i].shown ? good : want);
    }
}

static void who_was_not_verified_is_not_known(void **state)
{
    (void)state;
    struct pq_tls_settings s = settings(), open = pair_settings(PQ_MODE_HYBRID, 3, leaf, NULL);
    pair_free(&p);
    pair_new(&p, world.crypto, &open, &open, NULL, PAIR_PLAIN);
    enum pq_tls_reason reason = PQ_TLS_NONE;
    struct pq_why why = {{0}};
    assert_int_equal(pq_tls_recheck(p.client, p.client_context, NULL, &reason, &why), PQ_E_USAGE);
    pair_expect_done(&p);
    judged(&open, good);
    judged(&s, (struct outcome){PQ_E_AUTH, PQ_TLS_NO_CERTIFICATE, "nothing is known of the peer's certificate"});
    assert_int_equal(pq_tls_info(p.client)->not_after, 0);
}

/* --- the encoded path ----------------------------------------------------------------------------------------------
 */

static void every_truncated_path_is_refused(void **state)
{
    (void)state;
    const struct pq_buf *whole = &p.client->path;
    struct pq_tls_path path;
    assert_true(whole->len > 100 && whole->len < 1024);
    print_message("a path of three certificates takes %zu bytes\n", whole->len);
    for (size_t len = 0; len <= whole->len; len++) {
        DEFER(pq_freep) uint8_t *exact = malloc(len ? len : 1);
        if (len)
            memcpy(exact, whole->at, len);
        path.count = 99;
        int e = pq_tls_path_decode(pq_span(exact, len), &path);
        assert_int_equal(e, len == whole->len ? 0 : PQ_E_TRUNCATED);
        assert_int_equal(path.count, len == whole->len ? 3 : 99);
    }
}

#define NOTHING8               "\0\0\0\0\0\0\0\0"
#define KEY32                  NOTHING8 NOTHING8 NOTHING8 NOTHING8
#define ONE                    "\0\2\x30\0" KEY32 "\3\2\1\1" NOTHING8 NOTHING8 "\2a\0\2b\0"
#define REST                   "\0\2\x30\0\0\0"
#define ROW(name, bytes, want) {name, bytes, sizeof(bytes) - 1, want}

static const struct {
    const char *name, *bytes;
    size_t len;
    int want;
} forms[] = {
    ROW("one certificate", "\1\2s\0\1" ONE REST, 0),
    ROW("two", "\1\2s\0\2" ONE ONE REST, 0),
    ROW("another form", "\2\2s\0\1" ONE REST, PQ_E_TYPE),
    ROW("none", "\1\2s\0\0" REST, PQ_E_SYNTAX),
    ROW("too many", "\1\2s\0\x13" ONE REST, PQ_E_SYNTAX),
    ROW("as many as may be, cut", "\1\2s\0\x12" ONE, PQ_E_TRUNCATED),
    ROW("a byte more", "\1\2s\0\1" ONE REST "\0", PQ_E_SYNTAX),
    ROW("a text that does not end", "\1\2ss\1" ONE REST, PQ_E_SYNTAX),
    ROW("a text that ends early", "\1\3s\0\0\1" ONE REST, PQ_E_SYNTAX),
    ROW("no text", "\1\0\1" ONE REST, PQ_E_SYNTAX),
    ROW("a subject past the cap", "\1\2s\0\1\x20\1\x30\0", PQ_E_TOO_LONG),
};

static void forms_of_a_path(void **state)
{
    (void)state;
    struct pq_tls_path path;
    static uint8_t large[PQ_TLS_PATH_SIZE_MAX + 1];
    for (size_t i = 0; i < PQ_COUNT(forms); i++) {
        DEFER(pq_freep) uint8_t *exact = malloc(forms[i].len);
        memcpy(exact, forms[i].bytes, forms[i].len);
        int e = pq_tls_path_decode(pq_span(exact, forms[i].len), &path);
        if (e != forms[i].want)
            fail_msg("%s: %s", forms[i].name, pq_error_name(e));
    }
    assert_int_equal(pq_tls_path_decode(pq_span(large, sizeof large), &path), PQ_E_TOO_LONG);
}

static void what_is_no_path_lets_nobody_in(void **state)
{
    (void)state;
    enum pq_tls_reason reason = PQ_TLS_NONE;
    struct pq_why why = {{0}};
    struct pq_span cut = pq_span(p.client->path.at, p.client->path.len - 1),
                   odd = pq_span("\1\2s\0\1" ONE "\0\2\x31\0\0\0", sizeof("\1\2s\0\1" ONE "\0\2\x31\0\0\0") - 1);
    assert_int_equal(pq_tls_path_check(p.client_context, cut, NULL, now_s(), &reason, &why), PQ_E_AUTH);
    assert_int_equal(reason, PQ_TLS_BAD_CERTIFICATE);
    assert_int_equal(pq_tls_path_check(p.client_context, odd, NULL, now_s(), &reason, &why), PQ_E_AUTH);
    assert_non_null(strstr(why.text, "can't be read: malformed message"));
}

/* More names than are kept: the handshake is as any other's, only a reload can't judge the peer again. */
static void a_peer_with_too_many_names(void **state)
{
    (void)state;
    static char san[20000] = "DNS:leaf.example";
    size_t len = strlen(san);
    for (int i = 0; len < sizeof san - 64; i++)
        len += (size_t)snprintf(san + len, sizeof san - len, ",DNS:name-number-%d.example", i);
    const struct cert *many =
        certs_make(&world, (struct cert_how){.algorithm = "ML-DSA-65", .name = "many", .issuer = between, .san = san});
    struct pq_tls_settings s = pair_settings(PQ_MODE_HYBRID, 3, many, root);
    s.max_certificate_list = 64 << 10;
    pair_free(&p);
    pair_new(&p, world.crypto, &s, &s, "leaf.example", PAIR_PLAIN);
    pair_expect_done(&p);
    assert_int_equal(p.client->path.len, 0);
    judged(&s, (struct outcome){PQ_E_AUTH, PQ_TLS_NO_CERTIFICATE, "its names are too long to be kept"});
}

static void lists_of_algorithms(void **state)
{
    static const struct {
        const char *list, *name;
        bool has;
    } rows[] = {
        {"X25519MLKEM768", "X25519MLKEM768", true},
        {"X25519MLKEM768", "x25519", false},
        {"*X25519MLKEM768/?x25519:P-256", "secp256r1", true},
        {"secp256r1", "P-256", true},
        {"prime256v1:P-384", "secp384r1", true},
        {"P-521", "secp256r1", false},
        {"DEFAULT", "x25519", true},
        {"DEFAULT:-x25519", "x25519", false},
        {"ECDSA+SHA256", "ecdsa_secp256r1_sha256", true},
        {"", "x25519", false},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++)
        if (pq_tls_list_has(rows[i].list, rows[i].name) != rows[i].has)
            fail_msg("%s in %s", rows[i].name, rows[i].list);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_has_changed),
        TEST(revoked_meanwhile),
        TEST(lists_that_fail),
        TEST(the_authority_is_gone),
        TEST(the_authority_has_another_key),
        TEST(time_passes),
        TEST(policy_asks_for_more),
        TEST(policy_asks_for_post_quantum),
        TEST(names),
        TEST(who_was_not_verified_is_not_known),
        TEST(every_truncated_path_is_refused),
        cmocka_unit_test(forms_of_a_path),
        TEST(what_is_no_path_lets_nobody_in),
        TEST(a_peer_with_too_many_names),
        cmocka_unit_test(lists_of_algorithms),
    };
    pq_log_set(PQ_LOG_ERROR, PQ_LOG_LOGFMT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
