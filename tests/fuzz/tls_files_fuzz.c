/* The files that a TLS context is made from, as bytes: the first byte says which kind, the rest is its text. */
#include <openssl/err.h>
#include <openssl/x509.h>
#include <stdlib.h>

#include "crypto/crypto.h"
#include "tls/load.h"
#include "tls/tls.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static OSSL_LIB_CTX *library(void)
{
    static struct pq_crypto *crypto;
    struct pq_why why;
    if (!crypto && pq_crypto_new(&crypto, &why) < 0)
        abort();
    return pq_crypto_libctx(crypto);
}

static int load(uint8_t kind, struct pq_span text, struct pq_why *why)
{
    DEFER(pq_x509_stack_freep) STACK_OF(X509) *chain = NULL;
    DEFER(pq_crl_stack_freep) STACK_OF(X509_CRL) *lists = NULL;
    DEFER(EVP_PKEY_freep) EVP_PKEY *key = NULL;
    switch (kind) {
    case 'c':
        return pq_tls_load_chain(library(), "chain", text, &chain, why);
    case 'k':
        return pq_tls_load_key(library(), "key", text, &key, why);
    case 'a':
        return pq_tls_load_anchors(library(), "anchors", text, &chain, why);
    case 'r':
        return pq_tls_load_crls(library(), "crls", text, &lists, why);
    default:
        return 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pq_why why = {{0}};
    struct pq_tls_policy policy = {0};
    if (size == 0)
        return 0;
    if (data[0] == 'p') {
        if (pq_config_parse("policy", (const char *)data + 1, size - 1, &pq_tls_policy_schema, &policy, &why) == 0)
            pq_config_free(&pq_tls_policy_schema, &policy);
        else if (!why.text[0])
            abort();
        return 0;
    }
    if (load(data[0], pq_span(data + 1, size - 1), &why) < 0 && !why.text[0])
        abort(); /* an error without a sentence */
    if (ERR_peek_error())
        ERR_clear_error();
    return 0;
}
