/* A peer's Certificate message, as it is counted before libssl reads it. */
#include <stdlib.h>

#include "tls/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t count = 0;
    /* Each takes its two lengths at least. */
    if (pq_tls_count_certificates(pq_span(data, size), &count) == 0 && count > size / 5)
        abort();
    return 0;
}
