/* load.h - identities, trust anchors and revocation lists from PEM, in memory or from files.
 *
 * Spec:   RFC 7468 (PEM), RFC 5280, RFC 5958 (keys).
 * Owns:   what is returned is the caller's. A key's file bytes are wiped.
 * Errors: PQ_E_CONFIG (name and what is wrong with it), PQ_E_NOENT and the like (files), PQ_E_TOO_LONG, PQ_E_NOMEM.
 */
#ifndef PQ_TLS_LOAD_H
#define PQ_TLS_LOAD_H

#include <openssl/types.h>
#include <openssl/x509.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/files.h"

enum {
    PQ_TLS_FILE_MAX = 4 << 20, /* bytes of a PEM file */
    PQ_TLS_CHAIN_MAX = 16,     /* certificates of an identity; also the longest path that is verified */
    PQ_TLS_ANCHORS_MAX = 1024, /* certificates of a CA file */
    PQ_TLS_CRLS_MAX = 256
};

PQ_DEFINE_FREEP(X509, X509_free)
PQ_DEFINE_FREEP(EVP_PKEY, EVP_PKEY_free)
PQ_DEFINE_FREEP(BIO, BIO_free_all)
PQ_DEFINE_FREEP(X509_CRL, X509_CRL_free)
static inline void pq_crl_stack_freep(STACK_OF(X509_CRL) * *s)
{
    sk_X509_CRL_pop_free(*s, X509_CRL_free);
    *s = NULL;
}
static inline void pq_x509_stack_freep(STACK_OF(X509) * *s)
{
    sk_X509_pop_free(*s, X509_free);
    *s = NULL;
}

/* name stands for the bytes in messages. The chain comes leaf first, without a self-signed root behind the leaf. */
PQ_MUST_CHECK int pq_tls_load_chain(OSSL_LIB_CTX *lib, const char *name, struct pq_span pem, STACK_OF(X509) * *out,
                                    struct pq_why *why);
PQ_MUST_CHECK int pq_tls_load_key(OSSL_LIB_CTX *lib, const char *name, struct pq_span pem, EVP_PKEY **out,
                                  struct pq_why *why);
PQ_MUST_CHECK int pq_tls_load_anchors(OSSL_LIB_CTX *lib, const char *name, struct pq_span pem, STACK_OF(X509) * *out,
                                      struct pq_why *why);
PQ_MUST_CHECK int pq_tls_load_crls(OSSL_LIB_CTX *lib, const char *name, struct pq_span pem, STACK_OF(X509_CRL) * *out,
                                   struct pq_why *why);

/* The contents of a file: those in files, or where that is NULL those on disk, which own then holds. A secret's file
 * that others may read is refused. */
PQ_MUST_CHECK int pq_tls_contents(const struct pq_files *files, const char *path, bool secret, struct pq_buf *own,
                                  struct pq_span *out, struct pq_why *why);

#endif
