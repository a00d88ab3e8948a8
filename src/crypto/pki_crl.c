#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "crypto/pki.h"
#include "crypto/pki_cert.h"
#include "crypto/pki_folder.h"
#include "crypto/pki_key.h"
#include "crypto/pki_name.h"

/* One of the (at most two) authorities of a folder, and what is to be revoked by it. */
struct list {
    const char *name;
    struct pq_pki_authority by;
    X509_CRL *old; /* NULL: none yet */
    X509_CRL *fresh;
    ASN1_INTEGER **serials;
    size_t count;
};

enum { LISTS_MAX = 2 };

static void lists_free(struct list (*lists)[LISTS_MAX])
{
    for (struct list *l = *lists; l < *lists + LISTS_MAX; l++) {
        for (size_t i = 0; i < l->count; i++)
            ASN1_INTEGER_free(l->serials[i]);
        free(l->serials);
        X509_CRL_free(l->old);
        X509_CRL_free(l->fresh);
        pq_pki_authority_free(&l->by);
    }
}

/* --- the lists there are -------------------------------------------------------------------------------------------
 */
static int take_old(struct list *l, X509_CRL *crl, const char *path, struct pq_why *why)
{
    EVP_PKEY *key = X509_get0_pubkey(l->by.cert);
    if (!key || X509_CRL_verify(crl, key) <= 0) {
        ERR_clear_error();
        return pq_why(why, PQ_E_INVALID,
                      "a list in %s is not signed by this folder's %s authority: move the file away to begin anew",
                      path, l->name);
    }
    if (l->old)
        return pq_why(why, PQ_E_INVALID, "%s holds two lists of the %s authority: remove one", path, l->name);
    if (!X509_CRL_up_ref(crl))
        return pq_crypto_why(why, PQ_E_NOMEM, "out of memory");
    l->old = crl;
    return 0;
}

static int read_old(struct pq_crypto *c, const char *path, struct list *lists, size_t count, struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf text = {.cap = PQ_PKI_FILE_CAP};
    TRY(pq_file_read(path, &text, why));
    DEFER(BIO_freep) BIO *bio = BIO_new_mem_buf(text.len ? (const void *)text.at : "", (int)text.len);
    if (!bio)
        return pq_crypto_why(why, PQ_E_NOMEM, "out of memory");
    for (;;) {
        DEFER(X509_CRL_freep) X509_CRL *crl = X509_CRL_new_ex(pq_crypto_libctx(c), NULL);
        if (!crl)
            return pq_crypto_why(why, PQ_E_NOMEM, "out of memory");
        ERR_clear_error();
        if (!PEM_read_bio_X509_CRL(bio, &crl, NULL, NULL)) {
            bool end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
            if (!end)
                return pq_crypto_why(why, PQ_E_CRYPTO, "%s holds a revocation list that can't be read", path);
            ERR_clear_error();
            break;
        }
        for (size_t i = 0; i < count; i++)
            if (X509_NAME_cmp(X509_CRL_get_issuer(crl), X509_get_subject_name(lists[i].by.cert)) == 0)
                TRY(take_old(&lists[i], crl, path, why));
    }
    /* Begun anew, a list would forget what was revoked. */
    for (size_t i = 0; i < count; i++)
        if (!lists[i].old)
            return pq_why(why, PQ_E_INVALID, "%s holds no list of the %s authority: move the file away to begin anew",
                          path, lists[i].name);
    return 0;
}

/* --- what to revoke ------------------------------------------------------------------------------------------------
 */
static int add_serial(struct list *l, const ASN1_INTEGER *serial, struct pq_why *why)
{
    ASN1_INTEGER **more = realloc(l->serials, (l->count + 1) * sizeof *more);
    if (!more)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    l->serials = more;
    if (!(more[l->count] = ASN1_INTEGER_dup(serial)))
        return pq_crypto_why(why, PQ_E_NOMEM, "out of memory");
    l->count++;
    return 0;
}

static int parse_serial(const char *text, ASN1_INTEGER **out, struct pq_why *why)
{
    size_t len = strlen(text);
    DEFER(BN_freep) BIGNUM *n = NULL;
    if (len == 0 || len > 2 * PQ_PKI_SERIAL_BYTES || strspn(text, "0123456789abcdefABCDEF") != len ||
        !BN_hex2bn(&n, text) || BN_is_zero(n)) {
        ERR_clear_error();
        return pq_why(
            why, PQ_E_INVALID,
            "\"%.80s\" names no certificate that was issued here, and is no serial number (1 to %d hexadecimal digits)",
            text, 2 * PQ_PKI_SERIAL_BYTES);
    }
    *out = BN_to_ASN1_INTEGER(n, NULL);
    return *out ? 0 : pq_crypto_why(why, PQ_E_NOMEM, "out of memory");
}

static bool has_serial(const struct list *l, const ASN1_INTEGER *serial)
{
    return ASN1_INTEGER_cmp(X509_get0_serialNumber(l->by.cert), serial) == 0;
}

/* lists[0] is the root's; the last is of whoever issues leaves. */
static int revoke_serial(const char *text, struct list *lists, size_t count, struct pq_why *why)
{
    DEFER(ASN1_INTEGER_freep) ASN1_INTEGER *serial = NULL;
    TRY(parse_serial(text, &serial, why));
    if (has_serial(&lists[0], serial))
        return pq_why(why, PQ_E_INVALID, "a root can't revoke itself: take root.crt out of the trust stores instead");
    bool intermediate = count > 1 && has_serial(&lists[1], serial);
    return add_serial(&lists[intermediate ? 0 : count - 1], serial, why);
}

static int revoke_named(struct pq_crypto *c, const char *path, struct list *lists, size_t count, struct pq_why *why)
{
    DEFER(X509_freep) X509 *x = NULL;
    TRY(pq_pki_cert_load(c, path, &x, why));
    for (size_t i = 0; i < count; i++) {
        EVP_PKEY *key = X509_get0_pubkey(lists[i].by.cert);
        if (X509_NAME_cmp(X509_get_issuer_name(x), X509_get_subject_name(lists[i].by.cert)) == 0 && key &&
            X509_verify(x, key) > 0)
            return add_serial(&lists[i], X509_get0_serialNumber(x), why);
    }
    ERR_clear_error();
    return pq_why(why, PQ_E_INVALID, "%s was not issued by this folder's authority", path);
}

static int revoke_one(struct pq_crypto *c, const char *folder, const char *what, struct list *lists, size_t count,
                      struct pq_why *why)
{
    DEFER(pq_freep) char *path = NULL;
    if (strcmp(what, "root") == 0)
        return pq_why(why, PQ_E_INVALID, "a root can't revoke itself: take root.crt out of the trust stores instead");
    TRY(pq_pki_path(folder, what, ".crt", &path, why));
    if (!strchr(what, '/') && pq_pki_there(path))
        return revoke_named(c, path, lists, count, why);
    return revoke_serial(what, lists, count, why);
}

/* --- the lists anew ------------------------------------------------------------------------------------------------
 */
static int sign_list(struct pq_crypto *c, struct list *l, time_t now, int64_t valid_s, struct pq_why *why)
{
    return pq_pki_crl_new(c, l->by.cert, l->by.key, l->old, l->serials, l->count, now, now + valid_s, &l->fresh, why);
}

static int write_lists(const char *path, const struct list *lists, size_t count, struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf pem = {.cap = PQ_PKI_FILE_CAP};
    for (size_t i = 0; i < count; i++)
        TRY(pq_pki_crl_pem(lists[i].fresh, &pem, why));
    return pq_file_write(path, pq_span(pem.at, pem.len), 0644, PQ_FILE_REPLACE, why);
}

static int renew(struct pq_crypto *c, const struct pq_pki_crl *how, struct list *lists, size_t count,
                 struct pq_why *why)
{
    time_t now = (time_t)(pq_clock_wall_ns() / PQ_NS_PER_S);
    DEFER(pq_freep) char *path = NULL;
    TRY(pq_pki_path(how->folder, "crl", ".pem", &path, why));
    for (size_t i = 0; i < count; i++)
        TRY(pq_pki_authority_load(c, how->folder, lists[i].name, now, &lists[i].by, why));
    if (pq_pki_there(path))
        TRY(read_old(c, path, lists, count, why));
    for (size_t i = 0; i < how->revoke.count; i++)
        TRY(revoke_one(c, how->folder, how->revoke.at[i], lists, count, why));
    for (size_t i = 0; i < count; i++)
        TRY(sign_list(c, &lists[i], now, how->valid_s, why));
    return write_lists(path, lists, count, why);
}

/* Two that revoke at once would lose one's entries: the folder is locked meanwhile. */
static int lock(const char *folder, int *out, struct pq_why *why)
{
    DEFER(pq_closep) int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX) < 0) {
        int err = errno;
        return pq_why(why, pq_error_from_errno(err), "can't use the folder %s: %s", folder, strerror(err));
    }
    *out = TAKE_FD(fd);
    return 0;
}

int pq_pki_crl(struct pq_crypto *c, const struct pq_pki_crl *how, struct pq_why *why)
{
    const char *issuer = NULL;
    DEFER(pq_closep) int fd = -1;
    if (how->valid_s <= 0 || how->valid_s > PQ_PKI_VALID_MAX_S)
        return pq_why(why, PQ_E_INVALID, "a list's validity is more than 0 and at most %lld days",
                      (long long)(PQ_PKI_VALID_MAX_S / 86400));
    TRY(lock(how->folder, &fd, why));
    TRY(pq_pki_issuer_name(how->folder, &issuer, why));
    DEFER(lists_free) struct list lists[LISTS_MAX] = {{.name = "root"}, {.name = "intermediate"}};
    int e = renew(c, how, lists, strcmp(issuer, "root") == 0 ? 1 : LISTS_MAX, why);
    ERR_clear_error();
    return e;
}
