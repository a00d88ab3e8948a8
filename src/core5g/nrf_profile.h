/* nrf_profile.h - NFProfiles: what a valid one has, and realistic ones.
 *
 * Spec:   TS 29.510, 6.1.6.2.2 (NFProfile), 6.1.6.2.3 (NFService).
 * Owns:   nothing.
 * Errors: PQ_E_INVALID with a fault, PQ_E_TOO_LONG, PQ_E_NOMEM.
 */
#ifndef PQ_CORE5G_NRF_PROFILE_H
#define PQ_CORE5G_NRF_PROFILE_H

#include <yyjson.h>

#include "core5g/nrf_store.h"

PQ_MUST_CHECK int pq_nrf_profile_check(const char *id, yyjson_val *profile, struct pq_nrf_fault *fault);

/* The profile of an instance that serves at address:port; fqdn may be NULL. type is an NFType: one that is not
 * played here has no
 * services. */
struct pq_nrf_profile {
    const char *id, *type, *fqdn, *address, *scheme;
    uint16_t port;
    int heartbeat_s;
};
PQ_MUST_CHECK int pq_nrf_profile_text(const struct pq_nrf_profile *how, struct pq_buf *out);

#endif
