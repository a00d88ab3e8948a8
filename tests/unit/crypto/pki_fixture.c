#include "pki_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <openssl/pem.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "crypto/pki_folder.h"

struct pq_crypto *crypto;
char top[64], dir[96];
struct pq_why why;

static char path[160];

const char *pki_path(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

int pki_setup(void **state)
{
    (void)state;
    return pq_crypto_new(&crypto, &why);
}

int pki_teardown(void **state)
{
    (void)state;
    pq_crypto_free(crypto);
    return 0;
}

int pki_fresh(void **state)
{
    (void)state;
    snprintf(top, sizeof top, "/tmp/pqplane-pki-XXXXXX");
    if (!mkdtemp(top))
        return -1;
    snprintf(dir, sizeof dir, "%s/ca", top);
    why.text[0] = 0;
    return 0;
}

int pki_gone(void **state)
{
    (void)state;
    return pq_file_remove_tree(top, NULL);
}

size_t pki_files(const char *folder)
{
    size_t n = 0;
    DEFER(pq_closedirp) DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    return n;
}

int pki_init(const char *root, const char *intermediate)
{
    struct pq_pki_init how = {.folder = dir, .root = root, .intermediate = intermediate, .valid_s = 86400};
    return pq_pki_init(crypto, &how, &why);
}

int pki_issue(const char *name, const char *algorithm, const char **san, size_t count)
{
    struct pq_pki_issue how = {
        .folder = dir, .name = name, .algorithm = algorithm, .san = {(char **)san, count}, .valid_s = 3600};
    return pq_pki_issue(crypto, &how, &why);
}

int pki_revoke(const char **what, size_t count)
{
    struct pq_pki_crl how = {.folder = dir, .revoke = {(char **)what, count}, .valid_s = 3600};
    return pq_pki_crl(crypto, &how, &why);
}

/* The verdict of OpenSSL's own verification, strict, revocation checked on the whole path: X509_V_OK or why not. */
int pki_verdict(const char *name)
{
    char file[32];
    snprintf(file, sizeof file, "%s.crt", name);
    X509_STORE *store = X509_STORE_new();
    assert_true(X509_STORE_load_file_ex(store, pki_path("root.crt"), pq_crypto_libctx(crypto), NULL));
    STACK_OF(X509_INFO) *lists = NULL, *chain = NULL;
    BIO *b = BIO_new_file(pki_path("crl.pem"), "r");
    lists = PEM_X509_INFO_read_bio_ex(b, NULL, NULL, NULL, pq_crypto_libctx(crypto), NULL);
    BIO_free(b);
    for (int i = 0; i < sk_X509_INFO_num(lists); i++)
        assert_true(X509_STORE_add_crl(store, sk_X509_INFO_value(lists, i)->crl));
    b = BIO_new_file(pki_path(file), "r");
    chain = PEM_X509_INFO_read_bio_ex(b, NULL, NULL, NULL, pq_crypto_libctx(crypto), NULL);
    BIO_free(b);
    assert_true(sk_X509_INFO_num(chain) > 0);
    STACK_OF(X509) *untrusted = sk_X509_new_null();
    for (int i = 1; i < sk_X509_INFO_num(chain); i++)
        sk_X509_push(untrusted, sk_X509_INFO_value(chain, i)->x509);
    X509_STORE_CTX *ctx = X509_STORE_CTX_new_ex(pq_crypto_libctx(crypto), NULL);
    assert_true(X509_STORE_CTX_init(ctx, store, sk_X509_INFO_value(chain, 0)->x509, untrusted));
    X509_STORE_CTX_set_flags(ctx, X509_V_FLAG_X509_STRICT | X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
    X509_STORE_CTX_set_purpose(ctx, X509_PURPOSE_SSL_SERVER);
    int ok = X509_verify_cert(ctx), result = X509_STORE_CTX_get_error(ctx);
    assert_true(ok == (result == X509_V_OK));
    X509_STORE_CTX_free(ctx);
    sk_X509_free(untrusted);
    sk_X509_INFO_pop_free(chain, X509_INFO_free);
    sk_X509_INFO_pop_free(lists, X509_INFO_free);
    X509_STORE_free(store);
    return result;
}

mode_t pki_mode(const char *name)
{
    struct stat st;
    assert_int_equal(stat(pki_path(name), &st), 0);
    return st.st_mode & 0777;
}

X509 *pki_load(const char *name)
{
    X509 *x = NULL;
    assert_int_equal(pq_pki_cert_load(crypto, pki_path(name), &x, &why), 0);
    return x;
}
