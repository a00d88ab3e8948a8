/* trust.h - what a context trusts: anchors and revocation lists, and what becomes of a list that is missing or stale.
 *
 * Spec:   RFC 5280, sections 5 (revocation lists) and 6.1 (an anchor is a name and a key). Each issuer on a path up to
 *         the anchor must have a list, within its thisUpdate (five minutes early for clocks that differ) and
 * nextUpdate; nobody vouches for an anchor, so it needs none. No delta lists, no lists that another issuer signs. Owns:
 * a pq_tls_trust owns its certificates and lists until pq_tls_trust_free(); what it gives lives as long. It is not
 * changed once it is loaded, but for what it remembers of warnings, under a lock: any thread may ask. Errors:
 * PQ_E_CONFIG, PQ_E_NOENT and the like (files), PQ_E_NOMEM: why says which file and what is wrong with it.
 */
#ifndef PQ_TLS_TRUST_H
#define PQ_TLS_TRUST_H

#include <openssl/x509.h>
#include <pthread.h>

#include "tls/tls.h"

enum {
    PQ_TLS_KEY_HASH = 32,           /* bytes: SHA-256 of a certificate's SubjectPublicKeyInfo */
    PQ_TLS_CLOCK_SKEW_S = 300,      /* that a list may be early */
    PQ_TLS_STALE_WARNING_S = 60,    /* between two warnings of one issuer */
    PQ_TLS_STALE_WARNINGS_MAX = 64, /* issuers that are remembered */
};

struct pq_tls_anchor {
    X509 *x;
    uint8_t key[PQ_TLS_KEY_HASH];
};

struct pq_tls_trust {
    OSSL_LIB_CTX *lib; /* not owned */
    struct pq_tls_anchor *anchors;
    size_t anchor_count;
    STACK_OF(X509_CRL) * lists; /* NULL: revocation is not checked */
    int stale;                  /* enum pq_tls_crl_stale */
    struct pq_tls_stale {
        pthread_mutex_t lock;
        size_t count;
        struct {
            unsigned long issuer; /* a hash of its name */
            int64_t at_ns;
        } seen[PQ_TLS_STALE_WARNINGS_MAX];
    } *warned; /* apart, for a pointer to const may warn too */
};

/* From how->ca and how->crl, also into the store. A list that is not yet valid, or is not signed by the anchor that it
 * names, is refused; one that is past its nextUpdate is warned of. */
PQ_MUST_CHECK int pq_tls_trust_load(struct pq_tls_trust *out, OSSL_LIB_CTX *lib, const struct pq_tls_settings *how,
                                    X509_STORE *store, struct pq_why *why);
void pq_tls_trust_free(struct pq_tls_trust *t);

PQ_MUST_CHECK int pq_tls_key_hash(OSSL_LIB_CTX *lib, const X509 *x, uint8_t out[PQ_TLS_KEY_HASH]);
bool pq_tls_trust_has_anchor(const struct pq_tls_trust *t, const X509_NAME *name, const uint8_t key[PQ_TLS_KEY_HASH]);
/* An issuer's list: the newest of those that are valid, else any of it, else NULL. */
X509_CRL *pq_tls_trust_list(const struct pq_tls_trust *t, const X509_NAME *issuer, int64_t now_s);
bool pq_tls_list_is_early(const X509_CRL *list, int64_t now_s);
bool pq_tls_list_is_stale(const X509_CRL *list, int64_t now_s);

/* Whether a certificate passes although its issuer's list is stale (or missing: NULL). Then it is warned of, at most
 * once a minute for each issuer. */
bool pq_tls_trust_tolerates(const struct pq_tls_trust *t, const X509_NAME *issuer, const X509_CRL *list);

/* Seconds since 1970; INT64_MIN for what is no time. */
int64_t pq_tls_seconds(const ASN1_TIME *at);
/* "2026-11-01", or "an odd date". */
void pq_tls_date(const ASN1_TIME *at, char out[16]);
void pq_tls_date_s(int64_t at_s, char out[16]);
/* RFC 2253, cut to fit. */
void pq_tls_name_text(const X509_NAME *name, char out[256]);

#endif
