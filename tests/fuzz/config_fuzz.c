/* Any bytes as a configuration file: parsed into a tree, walked whole, freed. */
#include <stddef.h>
#include <stdint.h>

#include "base/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t walk(const struct pq_node *n)
{
    size_t seen = 1;
    const char *key;
    for (size_t i = 0; i < pq_node_count(n); i++)
        seen += walk(pq_node_kind(n) == PQ_NODE_MAP ? pq_node_pair(n, i, &key) : pq_node_item(n, i));
    return seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DEFER(pq_document_freep) struct pq_document *d = NULL;
    struct pq_why why = {{0}};
    if (pq_document_parse("fuzz", (const char *)data, size, &d, &why) == 0 && walk(pq_document_root(d)) == 0)
        __builtin_trap();
    int64_t v;
    char text[64] = {0};
    for (size_t i = 0; i < size && i < sizeof text - 1; i++)
        text[i] = (char)data[i];
    if (pq_duration_parse(text, &v, NULL) == 0 && v < 0)
        __builtin_trap();
    if (pq_size_parse(text, &v, NULL) == 0 && v < 0)
        __builtin_trap();
    return 0;
}
