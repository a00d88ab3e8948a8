/* certs.h - certificates for tests: any algorithm, any dates, any chain; each call ends the program if OpenSSL fails.
 *
 * Spec:   RFC 5280.
 * Owns:   a world owns its folder, keys and certificates until certs_free().
 * Errors: none: assertions.
 */
#ifndef PQ_TESTS_TLS_CERTS_H
#define PQ_TESTS_TLS_CERTS_H

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <stdbool.h>

#include "crypto/crypto.h"
#include "tls/tls.h"

enum { CERTS_MAX = 64, CERTS_PATH = 256 };

struct cert {
    EVP_PKEY *key;
    X509 *x;
    const struct cert *issuer; /* NULL: self-signed */
    char chain[CERTS_PATH], key_file[CERTS_PATH];
    struct pq_tls_identity identity; /* the same two */
};
struct certs {
    struct pq_crypto *crypto;
    char folder[64];
    struct cert *all[CERTS_MAX];
    int count;
};
struct cert_how {
    const char *algorithm; /* "p256", "rsa2048" or OpenSSL's name: "ML-DSA-65" */
    const char *name;      /* common name and file name */
    const struct cert *issuer;
    bool ca;
    const char *san;   /* OpenSSL's form: "DNS:a,IP:127.0.0.1" */
    const char *eku;   /* "serverAuth" */
    long from_s, to_s; /* offsets from now; both 0: an hour ago to in an hour */
    bool whole_chain;  /* the file holds the root too */
    bool small;        /* without extensions */
};

void certs_new(struct certs *w);
void certs_free(struct certs *w);
/* Writes NAME.crt (it, its intermediates) and NAME.key. */
const struct cert *certs_make(struct certs *w, struct cert_how how);
/* Writes NAME.crl and returns its path, valid as long as the world. */
const char *certs_crl(struct certs *w, const char *name, const struct cert *issuer, const struct cert *revoked,
                      long from_s, long to_s);
/* The path of a file of this text and mode. */
const char *certs_file(struct certs *w, const char *name, const char *text, unsigned mode);

#endif
