/* directory.h - where other network functions are, and requests to them with JSON both ways.
 *
 * Spec:   TS 29.510, 5.3 (discovery by the consumer), TS 29.500, 5.2 (HTTP/2 and JSON).
 * Owns:   texts of found addresses. A result's JSON is valid during done() only.
 * Errors: in the result: those of http2/client.h; PQ_E_NOT_FOUND (the NRF knows none), PQ_E_CONFIG (neither URI nor
 *         NRF is given), PQ_E_SYNTAX (an answer that is no JSON).
 */
#ifndef PQ_CORE5G_DIRECTORY_H
#define PQ_CORE5G_DIRECTORY_H

#include <yyjson.h>

#include "core5g/kind.h"
#include "http2/client.h"
#include "http2/uri.h"

struct pq_directory_settings {
    struct pq_http2_client *client;
    const char *requester; /* our NFType */
    const char *nrf;
    const char *uri[PQ_NF_KINDS]; /* NULL: found at the NRF */
    bool tls;                     /* what scheme all of them must have */
};

struct pq_directory {
    struct pq_http2_client *client;
    const char *requester;
    struct pq_directory_entry {
        char authority[PQ_URI_AUTHORITY_MAX]; /* "" where not known yet */
        bool fixed;                           /* given, not found */
        int64_t valid_until;                  /* of what was found; pq_clock_ns() */
    } at[PQ_NF_KINDS];
};

PQ_MUST_CHECK int pq_directory_init(struct pq_directory *d, const struct pq_directory_settings *how,
                                    struct pq_why *why);
void pq_directory_clear(struct pq_directory *d);

struct pq_directory_result {
    int error;
    bool undiscovered; /* the error is that of asking the NRF where the function is */
    const char *reason;
    int status;
    yyjson_val *json;     /* the body's root; NULL where there is none */
    const char *location; /* NULL where there is none */
};

struct pq_directory_call {
    enum pq_nf_kind to;
    const char *method, *path; /* the path is encoded */
    const char *type;          /* of the body; NULL: application/json */
    struct pq_span body;
    void (*done)(void *context, const struct pq_directory_result *r);
    void *context;
};
/* done() is called exactly once if this returns 0. */
PQ_MUST_CHECK int pq_directory_call(struct pq_directory *d, const struct pq_directory_call *call);

#endif
