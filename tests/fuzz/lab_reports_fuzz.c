/* Any bytes as a load's report and as a sidecar's log. */
#include <stddef.h>
#include <stdint.h>

#include "lab/sbi_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pq_sbi_load l = {0};
    if (pq_sbi_load_parse((const char *)data, size, 0, NULL, &l, NULL) == 0)
        pq_sbi_load_free(&l);
    else if (l.samples)
        __builtin_trap();
    struct pq_sbi_connection *c = NULL;
    size_t n = 0;
    if (pq_sbi_log_parse((const char *)data, size, &c, &n, NULL) == 0) {
        for (size_t i = 1; i < n; i++)
            if (c[i - 1].opened_ms > c[i].opened_ms)
                __builtin_trap();
        free(c);
    } else if (c) {
        __builtin_trap();
    }
    return 0;
}
