#include "net/redirect.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* Whatever nft is said to have answered: what is read stays within its bounds, and all but an edited one could have
 * been asked for. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct pq_redirects all = {0};
    struct pq_why why = {""};
    if (pq_redirects_parse(pq_span(bytes, len), &all, &why) < 0) {
        if (all.at || all.count)
            abort();
        return 0;
    }
    for (size_t i = 0; i < all.count; i++) {
        const struct pq_redirect *r = &all.at[i];
        struct pq_buf script = {.cap = 64 << 10};
        if (r->network_count > PQ_REDIRECT_LIST_MAX || r->port_count > PQ_REDIRECT_LIST_MAX)
            abort();
        for (size_t k = 0; k < r->port_count; k++)
            if (r->ports[k].low == 0 || r->ports[k].high < r->ports[k].low)
                abort();
        if (pq_redirect_script(r, &script) < 0)
            abort();
        pq_buf_free(&script);
    }
    pq_redirects_free(&all);
    return 0;
}
