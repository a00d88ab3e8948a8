/* path.h - what authenticated a peer, in a few hundred bytes: enough to judge it again later, by other anchors, lists,
 * names, policy and time, when its certificates are no longer there.
 *
 * It stays on the connection, and travels in a session ticket, so that a resumed connection is judged as the full one.
 *
 * Spec:   big-endian; vectors behind a length; texts end in a NUL, which counts. Form (1 byte, 1), the signature scheme
 *         of CertificateVerify (text, length 1 byte), the number of certificates (1 byte, 1 to 18), each of them, leaf
 *         first and anchor last: subject (DER, 2), SHA-256 of its SubjectPublicKeyInfo (32), serial number (DER, 1),
 *         notBefore and notAfter (8 each, seconds since 1970), the algorithm that signed it and its key's (texts, 1
 *         each); then the anchor's issuer (DER, 2) and the leaf's subjectAltName (DER, 2; none: empty).
 * Owns:   a decoded path points into the bytes that it was read from.
 * Errors: PQ_E_TOO_LONG (a peer with more than fits), PQ_E_NOMEM; reading: PQ_E_TRUNCATED, PQ_E_TOO_LONG, PQ_E_TYPE,
 *         PQ_E_SYNTAX. Judging: PQ_E_AUTH and PQ_E_POLICY with a reason and a sentence, PQ_E_NOMEM. On error outputs
 *         are unchanged.
 */
#ifndef PQ_TLS_PATH_H
#define PQ_TLS_PATH_H

#include <openssl/x509.h>

#include "base/bytes.h"
#include "tls/tls.h"
#include "tls/trust.h"

enum {
    PQ_TLS_PATH_CERTIFICATES_MAX = 18, /* as deep as a path is verified, with its leaf and anchor */
    PQ_TLS_PATH_SIZE_MAX = 8 << 10,    /* bytes */
};

struct pq_tls_path_certificate {
    struct pq_span subject, serial;
    const uint8_t *key; /* PQ_TLS_KEY_HASH bytes */
    int64_t from_s, to_s;
    const char *signed_with, *algorithm;
};
struct pq_tls_path {
    const char *signature;
    size_t count;
    struct pq_tls_path_certificate at[PQ_TLS_PATH_CERTIFICATES_MAX];
    struct pq_span issuer, names;
};

/* chain: as it was verified, leaf first. */
PQ_MUST_CHECK int pq_tls_path_encode(OSSL_LIB_CTX *lib, STACK_OF(X509) * chain, const char *signature,
                                     struct pq_writer *out);
PQ_MUST_CHECK int pq_tls_path_decode(struct pq_span in, struct pq_tls_path *out);
int64_t pq_tls_path_not_after(const struct pq_tls_path *p); /* the earliest */

/* Whether a context takes the peer of an encoded path at a time: its anchors, lists, dates, names (NULL: any) and what
 * it asks of signatures. A list is taken for its issuer's by its name: signatures are checked where there are keys. */
PQ_MUST_CHECK int pq_tls_path_check(const struct pq_tls_context *c, struct pq_span encoded,
                                    const struct pq_strings *names, int64_t now_s, enum pq_tls_reason *reason,
                                    struct pq_why *why);

#endif
