#include "crypto/pki.h"

#include <openssl/err.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "crypto/pki_cert.h"
#include "crypto/pki_folder.h"
#include "crypto/pki_key.h"
#include "crypto/pki_name.h"

static time_t now_s(void) { return (time_t)(pq_clock_wall_ns() / PQ_NS_PER_S); }

/* --- a new authority -----------------------------------------------------------------------------------------------
 */
struct authority_plan {
    EVP_PKEY *root_key, *intermediate_key;
    X509_NAME *root_name, *intermediate_name;
    X509 *root, *intermediate;
    time_t begin, end;
};

static void plan_free(struct authority_plan *p)
{
    EVP_PKEY_free(p->root_key);
    EVP_PKEY_free(p->intermediate_key);
    X509_NAME_free(p->root_name);
    X509_NAME_free(p->intermediate_name);
    X509_free(p->root);
    X509_free(p->intermediate);
}

static int check_valid(int64_t valid_s, struct pq_why *why)
{
    if (valid_s > 0 && valid_s <= PQ_PKI_VALID_MAX_S)
        return 0;
    return pq_why(why, PQ_E_INVALID, "a validity of %lld s is out of range: it is more than 0 and at most %lld days",
                  (long long)valid_s, (long long)(PQ_PKI_VALID_MAX_S / 86400));
}

/* Before any key is made: that may take a second. */
static int check_absent(const char *folder, struct pq_why *why)
{
    static const char *const files[] = {"root.crt", "root.key", "intermediate.crt", "intermediate.key", "crl.pem"};
    for (size_t i = 0; i < PQ_COUNT(files); i++) {
        DEFER(pq_freep) char *path = NULL;
        TRY(pq_pki_path(folder, files[i], "", &path, why));
        if (pq_pki_there(path))
            return pq_why(why, PQ_E_EXISTS,
                          "%s exists: an authority is never overwritten; name another folder or move this one away",
                          path);
    }
    return 0;
}

static int make_names(struct authority_plan *p, const struct pq_pki_init *how, struct pq_why *why)
{
    const char *name = how->name ? how->name : "pqplane root";
    TRY(pq_pki_common_name(name, &p->root_name, why));
    if (!how->intermediate)
        return 0;
    char below[PQ_PKI_COMMON_NAME_MAX + sizeof " intermediate"];
    snprintf(below, sizeof below, "%s intermediate", name);
    return pq_pki_common_name(below, &p->intermediate_name, why);
}

static int make_certs(struct pq_crypto *c, struct authority_plan *p, struct pq_why *why)
{
    struct pq_pki_template root = {.subject = p->root_name,
                                   .key = p->root_key,
                                   .begin = p->begin,
                                   .end = p->end,
                                   .ca = true,
                                   .path_length = p->intermediate_key ? 1 : 0};
    TRY(pq_pki_cert_new(c, &root, NULL, p->root_key, &p->root, why));
    if (!p->intermediate_key)
        return 0;
    struct pq_pki_template below = {.subject = p->intermediate_name,
                                    .key = p->intermediate_key,
                                    .begin = p->begin,
                                    .end = p->end,
                                    .ca = true,
                                    .path_length = 0};
    return pq_pki_cert_new(c, &below, p->root, p->root_key, &p->intermediate, why);
}

static int first_list(struct pq_crypto *c, const struct authority_plan *p, X509 *issuer, EVP_PKEY *key,
                      struct pq_buf *out, struct pq_why *why)
{
    DEFER(X509_CRL_freep) X509_CRL *crl = NULL;
    time_t end = p->begin + PQ_PKI_CRL_FIRST_S < p->end ? p->begin + PQ_PKI_CRL_FIRST_S : p->end;
    TRY(pq_pki_crl_new(c, issuer, key, NULL, NULL, 0, p->begin, end, &crl, why));
    return pq_pki_crl_pem(crl, out, why);
}

static int write_authority(const struct authority_plan *p, const char *folder, struct pq_span crl, struct pq_why *why)
{
    DEFER(pq_pki_made_undo) struct pq_pki_made made = {0};
    TRY(pq_pki_made_folder(&made, folder, why));
    TRY(pq_pki_made_key(&made, folder, "root", p->root_key, why));
    TRY(pq_pki_made_cert(&made, folder, "root", p->root, NULL, why));
    if (p->intermediate) {
        TRY(pq_pki_made_key(&made, folder, "intermediate", p->intermediate_key, why));
        TRY(pq_pki_made_cert(&made, folder, "intermediate", p->intermediate, NULL, why));
    }
    TRY(pq_pki_made_file(&made, folder, "crl", ".pem", crl, 0644, why));
    pq_pki_made_keep(&made);
    return 0;
}

static int init(struct pq_crypto *c, const struct pq_pki_init *how, struct pq_why *why)
{
    TRY(check_valid(how->valid_s, why));
    TRY(check_absent(how->folder, why));
    DEFER(plan_free) struct authority_plan p = {.begin = now_s()};
    p.end = p.begin + how->valid_s;
    TRY(make_names(&p, how, why));
    TRY(pq_pki_key_new(c, how->root, &p.root_key, why));
    if (how->intermediate)
        TRY(pq_pki_key_new(c, how->intermediate, &p.intermediate_key, why));
    TRY(make_certs(c, &p, why));
    DEFER(pq_buf_free) struct pq_buf crl = {.cap = PQ_PKI_FILE_CAP};
    TRY(first_list(c, &p, p.root, p.root_key, &crl, why));
    if (p.intermediate)
        TRY(first_list(c, &p, p.intermediate, p.intermediate_key, &crl, why));
    return write_authority(&p, how->folder, pq_span(crl.at, crl.len), why);
}

/* A queue with old errors in it would mislead what looks at it next, a TLS connection's state for one. */
int pq_pki_init(struct pq_crypto *c, const struct pq_pki_init *how, struct pq_why *why)
{
    int e = init(c, how, why);
    ERR_clear_error();
    return e;
}

/* --- a leaf --------------------------------------------------------------------------------------------------------
 */
static int check_free(const struct pq_pki_issue *how, struct pq_why *why)
{
    static const char *const ends[] = {".crt", ".key"};
    TRY(pq_pki_name_check(how->name, why));
    for (size_t i = 0; i < PQ_COUNT(ends); i++) {
        DEFER(pq_freep) char *path = NULL;
        TRY(pq_pki_path(how->folder, how->name, ends[i], &path, why));
        if (pq_pki_there(path))
            return pq_why(why, PQ_E_EXISTS, "%s exists and is not overwritten: use another name or move it away", path);
    }
    return 0;
}

/* A leaf that outlives its issuer would fail in use at a date that its own text does not tell. */
static int leaf_end(const struct pq_pki_issue *how, time_t begin, X509 *issuer, time_t *out, struct pq_why *why)
{
    struct tm tm = {0};
    if (!ASN1_TIME_to_tm(X509_get0_notAfter(issuer), &tm))
        return pq_why(why, PQ_E_CRYPTO, "the end of the issuer's validity can't be read");
    time_t last = timegm(&tm), end = begin + (how->valid_s ? how->valid_s : PQ_PKI_LEAF_S);
    if (end > last && how->valid_s) {
        char when[32];
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
        return pq_why(why, PQ_E_INVALID,
                      "the certificate would outlive its issuer, which ends on %s: shorten its validity", when);
    }
    if (end > last)
        end = last;
    if (end <= begin)
        return pq_why(why, PQ_E_INVALID, "the certificate would begin after its issuer has ended: begin it earlier");
    *out = end;
    return 0;
}

static int check_offset(int64_t offset, struct pq_why *why)
{
    if (offset >= -PQ_PKI_VALID_MAX_S && offset <= PQ_PKI_VALID_MAX_S)
        return 0;
    return pq_why(why, PQ_E_INVALID, "a beginning %lld s from now is out of range: at most %lld days before or after",
                  (long long)offset, (long long)(PQ_PKI_VALID_MAX_S / 86400));
}

static int issue_by(struct pq_crypto *c, const struct pq_pki_issue *how, const char *by,
                    const struct pq_pki_authority *issuer, time_t now, struct pq_why *why)
{
    DEFER(EVP_PKEY_freep) EVP_PKEY *key = NULL;
    DEFER(X509_freep) X509 *leaf = NULL;
    DEFER(X509_NAME_freep) X509_NAME *subject = NULL;
    DEFER(GENERAL_NAMES_freep) GENERAL_NAMES *san = NULL;
    TRY(pq_pki_common_name(how->name, &subject, why));
    if (X509_NAME_cmp(subject, X509_get_subject_name(issuer->cert)) == 0)
        return pq_why(why, PQ_E_INVALID, "\"%s\" is the name of the authority itself: use another", how->name);
    TRY(pq_pki_san(&how->san, &san, why));
    struct pq_pki_template t = {.subject = subject, .san = san, .begin = now + how->not_before_s};
    TRY(leaf_end(how, t.begin, issuer->cert, &t.end, why));
    TRY(pq_pki_key_new(c, how->algorithm, &key, why));
    t.key = key;
    TRY(pq_pki_cert_new(c, &t, issuer->cert, issuer->key, &leaf, why));

    DEFER(pq_pki_made_undo) struct pq_pki_made made = {0};
    TRY(pq_pki_made_key(&made, how->folder, how->name, key, why));
    TRY(pq_pki_made_cert(&made, how->folder, how->name, leaf, strcmp(by, "root") ? issuer->cert : NULL, why));
    pq_pki_made_keep(&made);
    return 0;
}

static int issue(struct pq_crypto *c, const struct pq_pki_issue *how, struct pq_why *why)
{
    time_t now = now_s();
    const char *by = NULL;
    if (how->valid_s)
        TRY(check_valid(how->valid_s, why));
    TRY(check_offset(how->not_before_s, why));
    TRY(check_free(how, why));
    TRY(pq_pki_issuer_name(how->folder, &by, why));
    DEFER(pq_pki_authority_free) struct pq_pki_authority issuer = {0};
    TRY(pq_pki_authority_load(c, how->folder, by, now, &issuer, why));
    return issue_by(c, how, by, &issuer, now, why);
}

int pq_pki_issue(struct pq_crypto *c, const struct pq_pki_issue *how, struct pq_why *why)
{
    int e = issue(c, how, why);
    ERR_clear_error();
    return e;
}
