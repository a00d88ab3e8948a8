/* The URI of a key in a token; the input's bytes up to a NUL. */
#include <stdlib.h>
#include <string.h>

#include "crypto/token.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DEFER(pq_token_uri_free) struct pq_token_uri uri = {0};
    DEFER(pq_freep) char *text = strndup((const char *)data, size);
    struct pq_why why = {{0}};
    if (!text)
        return 0;
    int e = pq_token_uri_parse(text, &uri, &why);
    /* What the provider and the log get has no query, which may hold a PIN. */
    if (e == 0 ? !uri.plain || strchr(uri.plain, '?') != NULL : !why.text[0] || uri.plain)
        abort();
    return 0;
}
