#include "proxy/config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* Whatever a file holds: a configuration that can be used, or a sentence that names the place. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const struct pq_proxy_config zero;
    struct pq_proxy_config c = {0};
    struct pq_why why = {""};
    int e = pq_proxy_config_parse("dir/p.yaml", (const char *)bytes, len, &c, &why);
    if (e < 0) {
        if (memcmp(&c, &zero, sizeof c) != 0 || (e == PQ_E_CONFIG && strncmp(why.text, "dir/p.yaml:", 11) != 0))
            abort();
        return 0;
    }
    for (size_t i = 0; i < pq_proxy_listener_count(&c); i++) {
        const struct pq_proxy_listener *l = pq_proxy_listener_at(&c, i);
        struct pq_tls_settings s = pq_proxy_listener_tls(&c, l);
        if (!l->name || !l->listen.known || !s.identities->certificate || !s.identities->key || !s.ca || !s.verify_peer)
            abort();
        if (l->direction == PQ_PROXY_EGRESS && l->peers.count == 0)
            abort();
    }
    pq_proxy_config_free(&c);
    return 0;
}
