#include "report/metric.h"

#include <string.h>

#include "base/cleanup.h"

void pq_metric_title(const char *name, struct pq_out *out)
{
    static const struct {
        const char *name, *title;
    } titles[] = {
        {"request_ms", "Request time"},
        {"first_request_ms", "First request on a connection"},
        {"tcp_ms", "TCP connection"},
        {"tls_ms", "TLS handshake"},
        {"chain_ms", "Certificate chain validation"},
        {"http_ms", "HTTP exchange"},
        {"memory_handshake_ms", "Handshake in memory, CPU time of both sides, without a network"},
        {"cpu_us_per_request", "CPU time per request"},
        {"peak_rss_kib", "Peak memory"},
        {"wire_bytes", "Bytes on the wire"},
    };
    size_t len = strcspn(name, ".");
    for (size_t i = 0; i < PQ_COUNT(titles); i++) {
        if (strlen(titles[i].name) != len || memcmp(titles[i].name, name, len) != 0)
            continue;
        pq_out(out, titles[i].title);
        if (name[len]) {
            pq_out(out, ", ");
            pq_out_clean(out, name + len + 1, 60);
        }
        return;
    }
    pq_out_clean(out, name, 80);
}
