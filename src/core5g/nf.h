/* nf.h - runs one embedded network function as a process: listener, client side, registration, signals.
 *
 * Spec:   TS 29.510, 5.2.2 (registration and heart-beat at the NRF); the function's own specification.
 * Owns:   settings are the caller's and outlive the run.
 * Errors: those of the listener, of TLS files, PQ_E_USAGE for settings that contradict each other; why says which.
 *
 * SIGTERM and SIGINT end it: it deregisters, finishes the requests that it has, and returns 0.
 */
#ifndef PQ_CORE5G_NF_H
#define PQ_CORE5G_NF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "core5g/kind.h"
#include "core5g/security.h"

struct pq_nf_settings {
    enum pq_nf_kind kind;
    const char *listen;
    const char *instance;               /* UUID; NULL: a random one */
    const char *fqdn;                   /* NULL: none */
    const char *nrf, *ausf, *udm, *udr; /* URIs of others; NULL: found at the NRF */
    int64_t subscribers;                /* of a UDR */
    int64_t instances;                  /* of an NRF: registered from the start */
    const char *instance_type;
    int64_t heartbeat_ns; /* of an NRF: what it asks for */
    bool fresh;           /* --connection new */
    bool nagle, by_frame;
    int64_t idle_ns;    /* of connections without requests, both ways; 0: the default */
    int64_t timeout_ns; /* of a request to another function; 0: the default */
    struct pq_sbi_security security;
    bool registers; /* with the NRF */
    int ready_fd;   /* -1: none; closed after the line */
};

PQ_MUST_CHECK int pq_nf_run(const struct pq_nf_settings *how, struct pq_why *why);

#endif
