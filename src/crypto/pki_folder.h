/* pki_folder.h - an authority's folder: what is read from it, and files that are all kept or none.
 *
 * Spec:   the layout of pki.h.
 * Owns:   a struct pq_pki_made removes its files when it ends, unless they are kept. An authority owns its certificate
 * and key. Errors: PQ_E_EXISTS, PQ_E_NOENT and the like (file), PQ_E_INVALID (certificate and key don't fit, or it has
 * expired), PQ_E_CRYPTO (file's contents), PQ_E_NOMEM.
 */
#ifndef PQ_CRYPTO_PKI_FOLDER_H
#define PQ_CRYPTO_PKI_FOLDER_H

#include <time.h>

#include "base/bytes.h"
#include "crypto/ossl.h"
#include "crypto/pki.h"

PQ_MUST_CHECK int pq_pki_path(const char *folder, const char *name, const char *end, char **out, struct pq_why *why);
bool pq_pki_there(const char *path);

enum { PQ_PKI_MADE_MAX = 8 };
struct pq_pki_made {
    char *folder; /* made by this call: removed with the files; NULL where it was there before */
    char *paths[PQ_PKI_MADE_MAX];
    size_t count;
};
void pq_pki_made_undo(struct pq_pki_made *m); /* for DEFER */
void pq_pki_made_keep(struct pq_pki_made *m);
PQ_MUST_CHECK int pq_pki_made_folder(struct pq_pki_made *m, const char *folder, struct pq_why *why);
PQ_MUST_CHECK int pq_pki_made_file(struct pq_pki_made *m, const char *folder, const char *name, const char *end,
                                   struct pq_span bytes, mode_t mode, struct pq_why *why);
PQ_MUST_CHECK int pq_pki_made_key(struct pq_pki_made *m, const char *folder, const char *name, EVP_PKEY *key,
                                  struct pq_why *why);
/* first, then second where it is not NULL. */
PQ_MUST_CHECK int pq_pki_made_cert(struct pq_pki_made *m, const char *folder, const char *name, X509 *first,
                                   X509 *second, struct pq_why *why);

struct pq_pki_authority {
    X509 *cert;
    EVP_PKEY *key;
};
void pq_pki_authority_free(struct pq_pki_authority *a); /* for DEFER */
PQ_MUST_CHECK int pq_pki_cert_load(struct pq_crypto *c, const char *path, X509 **out, struct pq_why *why);
/* name is "root" or "intermediate". The certificate is a CA's, valid at now, and fits its key. */
PQ_MUST_CHECK int pq_pki_authority_load(struct pq_crypto *c, const char *folder, const char *name, time_t now,
                                        struct pq_pki_authority *out, struct pq_why *why);
/* Who issues leaves: "intermediate" where there is one, else "root". */
PQ_MUST_CHECK int pq_pki_issuer_name(const char *folder, const char **out, struct pq_why *why);

/* Appends the list's PEM. */
PQ_MUST_CHECK int pq_pki_crl_pem(X509_CRL *crl, struct pq_buf *out, struct pq_why *why);

#endif
