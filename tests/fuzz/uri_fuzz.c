/* URIs, paths, queries and percent-encoding: any text. What parses must fit together again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core5g/nrf_discovery.h"
#include "http2/uri.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(struct pq_span query)
{
    struct pq_span name, value;
    while (pq_uri_next_parameter(&query, &name, &value) == 0) {
        char out[64];
        if (name.len == 0)
            abort();
        if (pq_uri_decode(value, out, sizeof out) == 0 && strlen(out) > value.len)
            abort();
    }
}

static void filter(struct pq_span query)
{
    struct pq_nrf_filter f;
    struct pq_nrf_query_fault fault = {0};
    if (pq_nrf_filter_parse(query, &f, &fault) == 0 ? !f.target_type[0] || !f.requester_type[0] : !fault.param)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *decoded = malloc(size + 1), authority[PQ_URI_AUTHORITY_MAX];
    struct pq_span path, query;
    struct pq_uri u, again;
    if (!text || !decoded)
        abort();
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    if (pq_uri_parse(text, &u) == 0) {
        char whole[PQ_URI_AUTHORITY_MAX + 8];
        if (pq_uri_authority(&u, authority, sizeof authority) < 0)
            abort();
        snprintf(whole, sizeof whole, "%s%s", u.tls ? "https://" : "http://", authority);
        if (pq_uri_parse(whole, &again) < 0 || again.port != u.port || !pq_span_equal(again.host, u.host))
            abort();
        walk(u.query);
    }
    if (pq_uri_split_path(text, &path, &query) == 0) {
        walk(query);
        filter(query);
    }
    walk(pq_span(data, size));
    filter(pq_span(data, size));
    if (pq_uri_decode(pq_span(data, size), decoded, size + 1) == 0) {
        struct pq_buf b = {.cap = 3 * size + 1};
        if (pq_uri_encode(&b, decoded) < 0 || pq_uri_decode(pq_span(b.at, b.len), text, size + 1) < 0 ||
            strcmp(text, decoded) != 0)
            abort();
        pq_buf_free(&b);
    }
    free(text);
    free(decoded);
    return 0;
}
