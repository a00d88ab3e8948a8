#include "crypto/pki_folder.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "crypto/pki_key.h"

int pq_pki_path(const char *folder, const char *name, const char *end, char **out, struct pq_why *why)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s%s", folder, name, end) < 0) {
        pq_why(why, PQ_E_NOMEM, "out of memory");
        return PQ_E_NOMEM;
    }
    *out = path;
    return 0;
}

bool pq_pki_there(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

/* --- files that are all kept or none -------------------------------------------------------------------------------
 */
void pq_pki_made_keep(struct pq_pki_made *m)
{
    while (m->count)
        free(m->paths[--m->count]);
    free(m->folder);
    m->folder = NULL;
}

void pq_pki_made_undo(struct pq_pki_made *m)
{
    for (size_t i = 0; i < m->count; i++)
        unlink(m->paths[i]);
    if (m->folder)
        rmdir(m->folder);
    pq_pki_made_keep(m);
}

int pq_pki_made_folder(struct pq_pki_made *m, const char *folder, struct pq_why *why)
{
    if (pq_pki_there(folder))
        return pq_file_make_folders(folder, 0755, why);
    DEFER(pq_freep) char *copy = strdup(folder);
    if (!copy)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    TRY(pq_file_make_folders(folder, 0755, why));
    m->folder = TAKE(copy);
    return 0;
}

int pq_pki_made_file(struct pq_pki_made *m, const char *folder, const char *name, const char *end, struct pq_span bytes,
                     mode_t mode, struct pq_why *why)
{
    if (m->count == PQ_PKI_MADE_MAX)
        return pq_why(why, PQ_E_LIMIT, "more than %d files at once", PQ_PKI_MADE_MAX);
    DEFER(pq_freep) char *path = NULL;
    TRY(pq_pki_path(folder, name, end, &path, why));
    TRY(pq_file_write(path, bytes, mode, PQ_FILE_NEW, why));
    m->paths[m->count++] = TAKE(path);
    return 0;
}

int pq_pki_made_key(struct pq_pki_made *m, const char *folder, const char *name, EVP_PKEY *key, struct pq_why *why)
{
    DEFER(pq_buf_wipe) struct pq_buf pem = {.cap = PQ_PKI_KEY_FILE_CAP};
    TRY(pq_pki_key_pem(key, &pem, why));
    return pq_pki_made_file(m, folder, name, ".key", pq_span(pem.at, pem.len), 0600, why);
}

int pq_pki_made_cert(struct pq_pki_made *m, const char *folder, const char *name, X509 *first, X509 *second,
                     struct pq_why *why)
{
    DEFER(BIO_freep) BIO *bio = BIO_new(BIO_s_mem());
    if (!bio || !PEM_write_bio_X509(bio, first) || (second && !PEM_write_bio_X509(bio, second)))
        return pq_crypto_why(why, PQ_E_NOMEM, "can't write a certificate as PEM");
    char *text = NULL;
    long len = BIO_get_mem_data(bio, &text);
    return pq_pki_made_file(m, folder, name, ".crt", pq_span(text, (size_t)len), 0644, why);
}

int pq_pki_crl_pem(X509_CRL *crl, struct pq_buf *out, struct pq_why *why)
{
    DEFER(BIO_freep) BIO *bio = BIO_new(BIO_s_mem());
    if (!bio || !PEM_write_bio_X509_CRL(bio, crl))
        return pq_crypto_why(why, PQ_E_NOMEM, "can't write a revocation list as PEM");
    char *text = NULL;
    long len = BIO_get_mem_data(bio, &text);
    int e = pq_buf_append(out, text, (size_t)len);
    return e < 0 ? pq_why(why, e, "the revocation lists are longer than %zu bytes: %s", out->cap, pq_error_text(e)) : 0;
}

/* --- reading -------------------------------------------------------------------------------------------------------
 */
void pq_pki_authority_free(struct pq_pki_authority *a)
{
    X509_free(a->cert);
    EVP_PKEY_free(a->key);
    *a = (struct pq_pki_authority){0};
}

int pq_pki_cert_load(struct pq_crypto *c, const char *path, X509 **out, struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf text = {.cap = PQ_PKI_FILE_CAP};
    TRY(pq_file_read(path, &text, why));
    DEFER(BIO_freep) BIO *bio = BIO_new_mem_buf(text.len ? (const void *)text.at : "", (int)text.len);
    DEFER(X509_freep) X509 *x = X509_new_ex(pq_crypto_libctx(c), NULL);
    if (!bio || !x)
        return pq_crypto_why(why, PQ_E_NOMEM, "out of memory");
    if (!PEM_read_bio_X509(bio, &x, NULL, NULL))
        return pq_crypto_why(why, PQ_E_CRYPTO, "%s holds no certificate in PEM that can be read", path);
    *out = TAKE(x);
    return 0;
}

static void date(const ASN1_TIME *t, char *out, size_t size)
{
    struct tm tm = {0};
    if (!ASN1_TIME_to_tm(t, &tm) || strftime(out, size, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        snprintf(out, size, "an unreadable date");
}

static int check_authority(const char *path, X509 *x, time_t now, struct pq_why *why)
{
    char when[64];
    if (X509_check_ca(x) < 1 || !(X509_get_key_usage(x) & KU_KEY_CERT_SIGN))
        return pq_why(why, PQ_E_INVALID, "%s is no certificate of an authority: nothing can be issued with it", path);
    if (X509_cmp_time(X509_get0_notAfter(x), &now) < 0) {
        date(X509_get0_notAfter(x), when, sizeof when);
        return pq_why(why, PQ_E_INVALID,
                      "%s expired on %s: make a new authority in another folder with \"pqplane pki init\"", path, when);
    }
    if (X509_cmp_time(X509_get0_notBefore(x), &now) > 0) {
        date(X509_get0_notBefore(x), when, sizeof when);
        return pq_why(why, PQ_E_INVALID, "%s is not valid before %s: check this host's clock", path, when);
    }
    return 0;
}

int pq_pki_authority_load(struct pq_crypto *c, const char *folder, const char *name, time_t now,
                          struct pq_pki_authority *out, struct pq_why *why)
{
    DEFER(pq_pki_authority_free) struct pq_pki_authority a = {0};
    DEFER(pq_freep) char *cert = NULL;
    DEFER(pq_freep) char *key = NULL;
    TRY(pq_pki_path(folder, name, ".crt", &cert, why));
    TRY(pq_pki_path(folder, name, ".key", &key, why));
    TRY(pq_pki_cert_load(c, cert, &a.cert, why));
    TRY(check_authority(cert, a.cert, now, why));
    TRY(pq_pki_key_load(c, key, &a.key, why));
    if (X509_check_private_key(a.cert, a.key) <= 0) {
        ERR_clear_error();
        return pq_why(why, PQ_E_INVALID, "%s is not the key of %s: put the pair back that \"pqplane pki init\" made",
                      key, cert);
    }
    *out = a;
    a = (struct pq_pki_authority){0};
    return 0;
}

int pq_pki_issuer_name(const char *folder, const char **out, struct pq_why *why)
{
    DEFER(pq_freep) char *root = NULL;
    DEFER(pq_freep) char *intermediate = NULL;
    TRY(pq_pki_path(folder, "root", ".crt", &root, why));
    TRY(pq_pki_path(folder, "intermediate", ".crt", &intermediate, why));
    if (!pq_pki_there(root))
        return pq_why(why, PQ_E_NOENT,
                      "%s holds no authority (no root.crt): make one with \"pqplane pki init --dir %s\"", folder,
                      folder);
    *out = pq_pki_there(intermediate) ? "intermediate" : "root";
    return 0;
}
