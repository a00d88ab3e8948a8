/* A packed set of files: what can be read has one form only, so it packs into the same bytes again. */
#include <stdlib.h>
#include <string.h>

#include "base/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DEFER(pq_files_freep) struct pq_files *f = NULL;
    if (pq_files_decode(pq_span(data, size), &f) < 0)
        return 0;
    DEFER(pq_freep) void *again = malloc(size);
    struct pq_writer w = pq_writer(again, size);
    if (!again || pq_files_encode(f, &w) < 0 || w.len != size || memcmp(again, data, size) != 0)
        abort();
    for (size_t i = 0; i < pq_files_count(f); i++) {
        struct pq_span contents;
        if (pq_files_get(f, pq_files_path(f, i), &contents) < 0)
            abort();
    }
    return 0;
}
