/* Certificates, keys and revocation lists as "pqplane pki show" reads them: PEM with any number of objects, or DER. */
#include <stdint.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "crypto/pki_show.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct pq_crypto *crypto;

static void finish(void)
{
    pq_crypto_free(crypto);
    crypto = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pq_why why = {{0}};
    DEFER(pq_buf_free) struct pq_buf out = {.cap = 1 << 20};
    if (!crypto) {
        if (pq_crypto_new(&crypto, &why) < 0)
            abort();
        atexit(finish);
    }
    int e = pq_pki_show(crypto, "input", pq_span(data, size), 1800000000, &out, &why);
    /* A refusal says why, and what is printed can't drive a terminal. */
    if (e < 0 && !why.text[0])
        abort();
    for (size_t i = 0; i < out.len; i++)
        if (out.at[i] != '\n' && (out.at[i] < ' ' || out.at[i] == 0x7f))
            abort();
    return 0;
}
