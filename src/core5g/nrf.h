/* nrf.h - the NF Repository Function: NFManagement and NFDiscovery.
 *
 * Spec:   TS 29.510 (Nnrf_NFManagement, Nnrf_NFDiscovery).
 * Owns:   its store; a set of routes and the function behind them.
 * Errors: PQ_E_NOMEM.
 */
#ifndef PQ_CORE5G_NRF_H
#define PQ_CORE5G_NRF_H

#include "core5g/function.h"

struct pq_nrf_settings {
    int64_t heartbeat_ns;
    size_t instances;          /* registered from the start, that nobody sends heart-beats for */
    const char *instance_type; /* their NFType */
    int64_t (*now)(void);      /* pq_clock_ns() unless a test replays */
};
PQ_MUST_CHECK int pq_nrf_new(const struct pq_nrf_settings *how, struct pq_function *out, struct pq_why *why);

#endif
