/* What was noted of a peer's certificates, as a ticket may bring it back. */
#include <openssl/err.h>
#include <stdlib.h>

#include "crypto/crypto.h"
#include "tls/path.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct pq_tls_context *judge(void)
{
    static struct pq_crypto *crypto;
    static struct pq_tls_context *context;
    const struct pq_tls_settings how = {.policy = {.mode = PQ_MODE_HYBRID, .level = 3}, .verify_peer = true};
    struct pq_why why;
    if (!context &&
        (pq_crypto_new(&crypto, &why) < 0 || pq_tls_context_new(crypto, PQ_TLS_CLIENT, &how, &context, &why) < 0))
        abort();
    return context;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pq_tls_path path;
    struct pq_why why = {{0}};
    enum pq_tls_reason reason = PQ_TLS_NONE;
    if (pq_tls_path_decode(pq_span(data, size), &path) == 0 && pq_tls_path_not_after(&path) > path.at[0].to_s)
        abort();
    /* Nobody is trusted here. */
    if (pq_tls_path_check(judge(), pq_span(data, size), NULL, 0, &reason, &why) == 0 || !reason || !why.text[0])
        abort();
    if (ERR_peek_error())
        ERR_clear_error();
    return 0;
}
