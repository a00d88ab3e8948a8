/* nrf_discovery.h - a discovery's parameters, which instances they select, and the SearchResult.
 *
 * Spec:   TS 29.510, 6.2.3.2.3.1 (query parameters), 6.2.6.2.2 (SearchResult). Parameters that are not listed here
 *         are ignored, as TS 29.500, 5.2.9 has it for what a server does not support.
 * Owns:   a filter owns nothing but its own texts.
 * Errors: PQ_E_INVALID with what is wrong where; PQ_E_NOMEM.
 */
#ifndef PQ_CORE5G_NRF_DISCOVERY_H
#define PQ_CORE5G_NRF_DISCOVERY_H

#include "core5g/nrf_store.h"

enum { PQ_NRF_NAMES = 16, PQ_NRF_VALIDITY_S = 100 };

struct pq_nrf_filter {
    char target_type[16], requester_type[16];
    char instance[37], fqdn[256];
    char names[PQ_NRF_NAMES][64]; /* service-names */
    size_t name_count;
    char mcc[4], mnc[4]; /* of the first target-plmn-list entry; "" for any */
    int sst;             /* of the first snssais entry; -1 for any */
    char sd[8];
    size_t limit; /* SIZE_MAX: none */
};

struct pq_nrf_query_fault {
    const char *param, *reason, *cause;
};
/* query is still encoded. */
PQ_MUST_CHECK int pq_nrf_filter_parse(struct pq_span query, struct pq_nrf_filter *out,
                                      struct pq_nrf_query_fault *fault);
bool pq_nrf_filter_fits(const struct pq_nrf_filter *f, const struct pq_nrf_instance *n);

/* Appends the SearchResult; search may be NULL. *found: how many fit; *given: how many are in the text. */
PQ_MUST_CHECK int pq_nrf_search(struct pq_nrf_store *s, int64_t now, const struct pq_nrf_filter *f, const char *search,
                                struct pq_buf *out, size_t *found, size_t *given);

#endif
