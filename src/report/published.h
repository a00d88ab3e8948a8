/* published.h - figures that others published: looked up by key, listed with their source. Never our measurements.
 *
 *   title: TEXT                          # title, authors, study, source, url, year: the source's line
 *   source: TEXT
 *   baseline: KEY                        # the same study's reference, for figures of its unit
 *   sbi_latency_ms: 54
 *   overhead_ms: [48, 49]
 *   GROUP: {unit: ms, where: Table 2, KEY: 12.3, OTHER: {value: 54, what: TEXT, baseline: KEY, ours: QUANTITY}}
 *
 * A figure is a number, a [low, high] pair, or a map with such a value. unit, where and baseline hold for what stands
 * in the same map and below; without one a key's own "_ms" (ns, us, s, kib, bytes, percent) is the unit. testbed: and
 * what is no figure is passed over. A key is the names from the top down, joined by dots; a last name alone will do
 * where it is the only one.
 *
 * Spec:   YAML 1.2.
 * Owns:   a figure's texts point into the document; key is in place.
 * Errors: PQ_E_NOT_FOUND (no such figure), PQ_E_CONFIG (several figures end in that name).
 */
#ifndef PQ_REPORT_PUBLISHED_H
#define PQ_REPORT_PUBLISHED_H

#include <stdbool.h>
#include <stddef.h>

#include "base/config.h"
#include "base/error.h"

enum { PQ_PUBLISHED_KEY_MAX = 256, PQ_PUBLISHED_MAX = 1000 };

struct pq_published {
    char key[PQ_PUBLISHED_KEY_MAX];
    double low, high;                    /* equal for a single number */
    const char *unit;                    /* "" where there is none */
    const char *what, *where, *baseline; /* NULL where not given */
    const struct pq_node *ours;          /* a quantity of question.h, or NULL */
};

/* A finite decimal number; false where n (may be NULL) is none. */
bool pq_node_number(const struct pq_node *n, double *out);
/* What the file says of its source, one line; its texts joined by ", ". */
void pq_published_source(const struct pq_node *root, char *out, size_t size);
/* All figures in the file's order, at most size; returns how many there are in out. */
size_t pq_published_list(const struct pq_node *root, struct pq_published *out, size_t size);
PQ_MUST_CHECK int pq_published_find(const struct pq_node *root, const char *key, struct pq_published *out);

#endif
