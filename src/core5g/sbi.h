/* sbi.h - a service-based interface's server side: routes, JSON in, JSON or ProblemDetails out.
 *
 * Spec:   TS 29.500 (5.2.7: status codes and causes), TS 29.501 (resource URIs), TS 29.571, 5.2.4.1 (ProblemDetails),
 *         RFC 9457.
 * Owns:   a request lives from its route's handle() until one of the pq_sbi_answer functions, which ends it; a
 *         handler may answer later. What points into a request dies with it.
 * Errors: whatever is wrong with a request itself is answered before handle() is called: 400, 404, 405, 408, 413,
 *         415, 431, 501, 503.
 */
#ifndef PQ_CORE5G_SBI_H
#define PQ_CORE5G_SBI_H

#include <yyjson.h>

#include "http2/server.h"

enum {
    PQ_SBI_PARAMETERS = 3,      /* of a path */
    PQ_SBI_PARAMETER_MAX = 256, /* bytes of one, decoded, with its NUL */
    PQ_SBI_JSON_DEPTH = 32,
    PQ_SBI_PATCH_OPERATIONS = 64, /* of one JSON Patch */
    PQ_SBI_BODY_MAX = 256 * 1024,
    PQ_SBI_ANSWER_MAX = 16 * 1024 * 1024,
};

extern const char pq_sbi_type_json[];  /* "application/json" */
extern const char pq_sbi_type_hal[];   /* "application/3gppHal+json" */
extern const char pq_sbi_type_patch[]; /* "application/json-patch+json" */
extern const char pq_sbi_type_merge[]; /* "application/merge-patch+json" */

struct pq_sbi_request {
    const char *method;
    char parameter[PQ_SBI_PARAMETERS][PQ_SBI_PARAMETER_MAX]; /* the path's, in order */
    struct pq_span query;                                    /* still encoded */
    yyjson_doc *json;                                        /* the body; NULL where the route has none */
    const char *peer;                                        /* the TLS peer's subject */
    void *function;                                          /* the router's */
};

struct pq_sbi_route {
    const char *method;
    const char *path; /* "/nnrf-nfm/v1/nf-instances/{nfInstanceId}" */
    const char *type; /* the body's media type; NULL: no body is looked at */
    void (*handle)(struct pq_sbi_request *r);
};

struct pq_sbi_router {
    const struct pq_sbi_route *routes;
    size_t count;
    void *function;
};
/* Fits struct pq_http2_server_settings.request; context is a struct pq_sbi_router. */
void pq_sbi_serve(void *context, struct pq_http2_exchange *x);

/* A query parameter, decoded: PQ_E_NOT_FOUND where there is none; PQ_E_SYNTAX, PQ_E_TOO_LONG. */
PQ_MUST_CHECK int pq_sbi_query(const struct pq_sbi_request *r, const char *name, char *out, size_t size);

/* "http://host:port", for links and Location: from the request's scheme and authority. */
PQ_MUST_CHECK int pq_sbi_root(const struct pq_sbi_request *r, char *out, size_t size);
/* A field for the answer; at most eight. */
void pq_sbi_field(struct pq_sbi_request *r, const char *name, const char *format, ...) PQ_PRINTF(3, 4);

/* Each of these ends r. */
void pq_sbi_answer(struct pq_sbi_request *r, int status, const char *type, struct pq_buf *body); /* takes the bytes */
void pq_sbi_answer_json(struct pq_sbi_request *r, int status, const char *type, const yyjson_mut_doc *doc);
void pq_sbi_answer_value(struct pq_sbi_request *r, int status, const yyjson_val *value);
void pq_sbi_answer_empty(struct pq_sbi_request *r, int status);
/* ProblemDetails; cause may be NULL. */
void pq_sbi_problem(struct pq_sbi_request *r, int status, const char *cause, const char *format, ...) PQ_PRINTF(4, 5);
/* 400 with invalidParams. */
void pq_sbi_invalid(struct pq_sbi_request *r, const char *cause, const char *param, const char *reason);

/* The JSON text with at most PQ_SBI_JSON_DEPTH levels: PQ_E_SYNTAX, PQ_E_TOO_LONG (too deep), PQ_E_NOMEM. */
PQ_MUST_CHECK int pq_sbi_parse(struct pq_span text, yyjson_doc **out);
/* Whether JSON text has more levels than that. */
bool pq_sbi_deeper(struct pq_span text, size_t levels);
static inline void pq_sbi_doc_freep(yyjson_doc **d) { yyjson_doc_free(*d); }
static inline void pq_sbi_mut_freep(yyjson_mut_doc **d) { yyjson_mut_doc_free(*d); }

#endif
