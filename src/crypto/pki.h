/* pki.h - keys and certificates: roots, intermediates, leaves, revocation lists.
 *
 * Spec:   RFC 5280; key usages of RFC 9881 (ML-DSA) and RFC 9909 (SLH-DSA); SAN for NF instance ids as URI
 *         "urn:uuid:<nfInstanceId>" (TS 33.310, 6.1.3c).
 * Owns:   a folder holds one authority: root.crt, root.key, [intermediate.crt, intermediate.key], crl.pem and what it
 *         issued: NAME.crt (leaf, then intermediates, without the root), NAME.key. Keys are PKCS#8 PEM with mode 0600.
 * Errors: PQ_E_EXISTS (nothing is overwritten), PQ_E_INVALID (algorithm, name, validity), PQ_E_NOENT, PQ_E_LIMIT,
 *         PQ_E_CRYPTO; why says which file and what to do. On error no file of the call is left.
 */
#ifndef PQ_CRYPTO_PKI_H
#define PQ_CRYPTO_PKI_H

#include <stdint.h>

#include "base/config.h"
#include "crypto/crypto.h"

#define PQ_PKI_VALID_MAX_S (36525LL * 86400) /* a century */
#define PQ_PKI_LEAF_S      (90LL * 86400)    /* a leaf's validity unless told */
#define PQ_PKI_CRL_FIRST_S (30LL * 86400)    /* of the lists that pq_pki_init() writes */

/* Algorithm names as on the command line: p256 p384 p521 ed25519 rsa2048 rsa3072 mldsa44 mldsa65 mldsa87 slhdsa128s
 * slhdsa128f ... slhdsa256f (SHA2) and slhdsashake128s ...; any other name is asked of the providers. */
struct pq_pki_init {
    const char *folder;
    const char *root;         /* algorithm */
    const char *intermediate; /* algorithm, or NULL for none */
    const char *name;         /* common name of the root; NULL: "pqplane root" */
    int64_t valid_s;          /* > 0 */
};
PQ_MUST_CHECK int pq_pki_init(struct pq_crypto *c, const struct pq_pki_init *how, struct pq_why *why);

struct pq_pki_issue {
    const char *folder;
    const char *name; /* file name and common name: letters, digits, '.', '_', '-' */
    const char *algorithm;
    struct pq_strings san; /* "DNS:nrf.example", "IP:198.18.0.1", "URI:urn:uuid:...", "NF:<uuid>" */
    int64_t not_before_s;  /* offset from now, may be negative; tests of clocks */
    int64_t valid_s; /* from not_before; 0: PQ_PKI_LEAF_S, or until the issuer ends. Never longer than the issuer */
};
PQ_MUST_CHECK int pq_pki_issue(struct pq_crypto *c, const struct pq_pki_issue *how, struct pq_why *why);

/* Revokes (serials in hexadecimal or names issued here) and writes crl.pem anew, with all revoked before too. */
struct pq_pki_crl {
    const char *folder;
    struct pq_strings revoke;
    int64_t valid_s;
};
PQ_MUST_CHECK int pq_pki_crl(struct pq_crypto *c, const struct pq_pki_crl *how, struct pq_why *why);

#endif
