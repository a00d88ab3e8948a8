/* load.h - plays the consumer (AMF): one request after the other, each timed at the request-response boundary.
 *
 * Spec:   TS 29.510 (discovery), TS 29.509 (authentication); the form of the JSON is in docs/.
 * Owns:   settings are the caller's.
 * Errors: PQ_E_USAGE, PQ_E_INVALID (target), those of TLS files; a failed request is counted, never an error of the
 *         run.
 */
#ifndef PQ_CORE5G_LOAD_H
#define PQ_CORE5G_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "core5g/security.h"

enum pq_load_workload { PQ_LOAD_DISCOVERY, PQ_LOAD_AUTHENTICATION };
extern const char *const pq_load_workload_names[]; /* "discovery", "authentication", NULL */

enum { PQ_LOAD_MAX_REQUESTS = 10 * 1000 * 1000 };

struct pq_load_settings {
    const char *target; /* URI */
    enum pq_load_workload workload;
    int64_t requests, warmup;
    bool fresh, nagle;
    int64_t body_bytes;  /* of a discovery's answer: as near as whole profiles come; 0: all there are */
    const char *nf_type; /* what discovery asks for */
    int64_t subscribers; /* that authentication goes through in turn */
    int64_t timeout_ns;
    const char *name; /* what the server's certificate must show; NULL: the target's host */
    struct pq_sbi_security security;
};

/* Appends one JSON object. PQ_E_INTERRUPTED after SIGINT or SIGTERM: what was measured is in out all the same. */
PQ_MUST_CHECK int pq_load_run(const struct pq_load_settings *how, struct pq_buf *out, struct pq_why *why);

#endif
