/* Revocation lists: what they refuse, and what becomes of one that is stale, missing or of no use. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "certs.h"
#include "pair.h"
#include "refused.h"

/* root, between, leaf; a list of each issuer. */
static struct certs world;
static const struct cert *root, *between, *leaf, *stranger, *false_root;
static const char *root_list, *root_revokes;
static int log_fd;

static int set_up(void **state)
{
    (void)state;
    certs_new(&world);
    /* of the same names, and before them: a name is also a file's */
    stranger = certs_make(&world, (struct cert_how){.algorithm = "ML-DSA-65", .name = "between", .ca = true});
    false_root = certs_make(&world, (struct cert_how){.algorithm = "ML-DSA-65", .name = "root", .ca = true});
    root = certs_make(&world, (struct cert_how){.algorithm = "ML-DSA-65", .name = "root", .ca = true});
    between =
        certs_make(&world, (struct cert_how){.algorithm = "ML-DSA-65", .name = "between", .issuer = root, .ca = true});
    leaf = certs_make(
        &world,
        (struct cert_how){.algorithm = "ML-DSA-65", .name = "leaf", .issuer = between, .san = "DNS:leaf.example"});
    root_list = certs_crl(&world, "root", root, NULL, -60, 3600);
    root_revokes = certs_crl(&world, "root-revokes", root, between, -60, 3600);
    log_fd = memfd_create("log", 0);
    pq_log_to(log_fd);
    return 0;
}
static int tear_down(void **state)
{
    (void)state;
    pq_log_to(STDERR_FILENO);
    close(log_fd);
    certs_free(&world);
    return 0;
}

/* How often the log has a text since the last time. */
static int logged(const char *says)
{
    static char text[65536];
    ssize_t n = pread(log_fd, text, sizeof text - 1, 0);
    int count = 0;
    assert_true(n >= 0);
    text[n] = 0;
    for (const char *at = text; (at = strstr(at, says)); at++)
        count++;
    assert_int_equal(ftruncate(log_fd, 0), 0);
    assert_int_equal(lseek(log_fd, 0, SEEK_SET), 0);
    return count;
}

static const char *of_between(const char *name, const struct cert *revoked, long from_s, long to_s)
{
    return certs_crl(&world, name, between, revoked, from_s, to_s);
}

static char *join(const char *a, const char *b)
{
    char text[65536] = "";
    const char *both[] = {a, b};
    for (size_t i = 0; i < PQ_COUNT(both); i++) {
        FILE *f = both[i] ? fopen(both[i], "r") : NULL;
        size_t at = strlen(text);
        if (f)
            text[at + fread(text + at, 1, sizeof text - at - 1, f)] = 0;
        if (f)
            fclose(f);
    }
    return (char *)(uintptr_t)certs_file(&world, "both.crl", text, 0644);
}

static struct pq_tls_settings server(void) { return pair_settings(PQ_MODE_HYBRID, 3, leaf, NULL); }

static void refused(const char *a, const char *b, int stale, enum pq_tls_reason reason, const char *says,
                    const char *alert)
{
    struct pq_tls_settings s = server(), c = pair_settings(PQ_MODE_HYBRID, 3, NULL, root);
    c.crl = join(a, b);
    c.crl_stale = stale;
    refused_run(world.crypto, &c, &s, "leaf.example", (struct expected){PQ_E_AUTH, reason, says}, refused_alert(alert));
    /* and a server judges its client alike */
    struct pq_tls_settings both = pair_settings(PQ_MODE_HYBRID, 3, leaf, root), judge = both;
    judge.crl = c.crl;
    judge.crl_stale = stale;
    refused_run(world.crypto, &both, &judge, "leaf.example", refused_alert(alert),
                (struct expected){PQ_E_AUTH, reason, says});
}

static void accepted(const char *a, const char *b, int stale)
{
    struct pq_tls_settings s = server(), c = pair_settings(PQ_MODE_HYBRID, 3, NULL, root);
    struct pair p;
    c.crl = join(a, b);
    c.crl_stale = stale;
    pair_new(&p, world.crypto, &c, &s, "leaf.example", PAIR_PLAIN);
    pair_expect_done(&p);
    pair_free(&p);
}

static void a_context_refused(const struct pq_tls_settings *s, const char *says)
{
    struct pq_tls_context *t = NULL;
    struct pq_why why = {{0}};
    assert_int_equal(pq_tls_context_new(world.crypto, PQ_TLS_CLIENT, s, &t, &why), PQ_E_CONFIG);
    if (!strstr(why.text, says))
        fail_msg("\"%s\" (expected \"%s\")", why.text, says);
}

static void each_issuer_s_list_is_asked(void **state)
{
    (void)state;
    const char *good = of_between("good", NULL, -60, 3600);
    accepted(root_list, good, PQ_TLS_CRL_REFUSE);
    refused(root_list, of_between("revokes", leaf, -60, 3600), PQ_TLS_CRL_REFUSE, PQ_TLS_REVOKED,
            "(CN=leaf) is revoked", "our certificate is revoked");
    refused(root_revokes, good, PQ_TLS_CRL_REFUSE, PQ_TLS_REVOKED, "issuer's certificate (CN=between) is revoked",
            "revoked");
    assert_int_equal(logged("revocation list"), 0);
}

static void a_missing_list(void **state)
{
    (void)state;
    const char *good = of_between("good", NULL, -60, 3600);
    refused(root_list, NULL, PQ_TLS_CRL_REFUSE, PQ_TLS_CRL_MISSING,
            "the revocation list of CN=between, issuer of CN=leaf, is missing: add it to the CRL file",
            "certificate unknown");
    refused(good, NULL, PQ_TLS_CRL_REFUSE, PQ_TLS_CRL_MISSING,
            "the revocation list of CN=root, issuer of CN=between, is missing", "certificate unknown");
    assert_int_equal(logged("revocation list missing"), 0);
    accepted(root_list, NULL, PQ_TLS_CRL_WARN);
    assert_int_equal(logged("event=\"revocation list missing, certificate accepted\" issuer=\"CN=between\""), 1);
}

static void a_stale_list(void **state)
{
    (void)state;
    const char *old = of_between("old", NULL, -7200, -3600), *good = of_between("good", NULL, -60, 3600);
    refused(root_list, old, PQ_TLS_CRL_REFUSE, PQ_TLS_CRL_STALE,
            "the revocation list of CN=between, issuer of CN=leaf, is out of date since 2", "certificate unknown");
    /* once for each context: at its start */
    assert_int_equal(logged("event=\"revocation list out of date\" issuer=\"CN=between\" next_update=2"), 2);
    accepted(root_list, old, PQ_TLS_CRL_WARN);
    assert_int_equal(logged("event=\"revocation list out of date, certificate accepted\" issuer=\"CN=between\""), 1);
    /* a newer one beside it is what counts */
    accepted(join(root_list, old), good, PQ_TLS_CRL_REFUSE);
    assert_int_equal(logged("revocation list"), 0);
}

static void a_stale_list_still_revokes(void **state)
{
    (void)state;
    const char *old = of_between("old", leaf, -7200, -3600);
    refused(root_list, old, PQ_TLS_CRL_WARN, PQ_TLS_REVOKED, "(CN=leaf) is revoked", "revoked");
}

static void a_warning_comes_once_a_minute(void **state)
{
    (void)state;
    struct pq_tls_settings s = server(), c = pair_settings(PQ_MODE_HYBRID, 3, NULL, root);
    struct pair first, p;
    c.crl = join(of_between("old", NULL, -7200, -3600), NULL);
    c.crl_stale = PQ_TLS_CRL_WARN;
    pair_new(&first, world.crypto, &c, &s, "leaf.example", PAIR_PLAIN);
    logged("start");
    for (int i = 0; i < 3; i++) {
        assert_true(pair_try(&p, first.client_context, first.server_context, "leaf.example"));
        pair_expect_done(&p);
        pair_free(&p);
    }
    assert_int_equal(logged("certificate accepted"), 2); /* one for each issuer */
    pair_free(&first);
}

/* An anchor is trusted by itself. */
static void an_anchor_needs_no_list(void **state)
{
    (void)state;
    struct pq_tls_settings s = server(), c = pair_settings(PQ_MODE_HYBRID, 3, NULL, between);
    struct pair p;
    c.crl = join(of_between("good", NULL, -60, 3600), NULL);
    pair_new(&p, world.crypto, &c, &s, "leaf.example", PAIR_PLAIN);
    pair_expect_done(&p);
    pair_free(&p);
    c.ca = (char *)(uintptr_t)root->chain;
    c.crl = join(root_list, of_between("good", NULL, -60, 3600));
    pair_new(&p, world.crypto, &c, &s, "leaf.example", PAIR_PLAIN);
    pair_expect_done(&p);
    pair_free(&p);
}

static void a_list_of_the_future(void **state)
{
    (void)state;
    struct pq_tls_settings c = pair_settings(PQ_MODE_HYBRID, 3, NULL, root);
    c.crl = join(root_list, of_between("early", NULL, 3600, 7200));
    c.crl_stale = PQ_TLS_CRL_WARN;
    a_context_refused(&c, "the revocation list of CN=between is not valid before 2");
    /* but clocks differ a little */
    accepted(root_list, of_between("soon", NULL, 120, 7200), PQ_TLS_CRL_REFUSE);
}

static void a_list_that_another_signed(void **state)
{
    (void)state;
    struct pq_tls_settings c = pair_settings(PQ_MODE_HYBRID, 3, NULL, root);
    refused(root_list, certs_crl(&world, "forged", stranger, NULL, -60, 3600), PQ_TLS_CRL_WARN, PQ_TLS_CRL_INVALID,
            "the revocation list of CN=between, issuer of CN=leaf, is not signed by it", "certificate unknown");
    c.crl = (char *)(uintptr_t)certs_crl(&world, "forged-root", false_root, NULL, -60, 3600);
    a_context_refused(&c, "the revocation list of CN=root is not signed by the authority of that name in the CA file");
    /* one of an authority that nobody on the path is */
    const struct cert *other = certs_make(&world, (struct cert_how){.algorithm = "p256", .name = "other", .ca = true});
    refused(root_list, certs_crl(&world, "other", other, NULL, -60, 3600), PQ_TLS_CRL_REFUSE, PQ_TLS_CRL_MISSING,
            "the revocation list of CN=between, issuer of CN=leaf, is missing", "certificate unknown");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_issuer_s_list_is_asked),
        TEST(a_missing_list),
        TEST(a_stale_list),
        TEST(a_stale_list_still_revokes),
        TEST(a_warning_comes_once_a_minute),
        TEST(an_anchor_needs_no_list),
        TEST(a_list_of_the_future),
        TEST(a_list_that_another_signed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
