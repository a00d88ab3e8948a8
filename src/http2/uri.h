/* uri.h - URIs, percent-encoding, and the parameters of a query.
 *
 * Spec:   RFC 3986; http and https only (RFC 9110, 4.2). '+' in a query is a plus sign: TS 29.501 has no form
 *         encoding.
 * Owns:   a URI points into the caller's text; decoded texts are written to the caller's buffer.
 * Errors: PQ_E_SYNTAX; PQ_E_TOO_LONG (a decoded text does not fit, a URI is longer than PQ_URI_MAX); PQ_E_NOT_FOUND
 *         (no more parameters).
 */
#ifndef PQ_HTTP2_URI_H
#define PQ_HTTP2_URI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

enum {
    PQ_URI_MAX = 8 * 1024,
    PQ_URI_AUTHORITY_MAX = 300, /* a DNS name of 253, brackets, port, NUL */
};

struct pq_uri {
    bool tls;             /* https */
    struct pq_span host;  /* without brackets */
    uint16_t port;        /* 80 or 443 where the text has none */
    struct pq_span path;  /* "/..." or empty; still encoded */
    struct pq_span query; /* without '?' */
};

/* "https://nrf.example:8000/prefix"; user information and a fragment are refused. */
PQ_MUST_CHECK int pq_uri_parse(const char *text, struct pq_uri *out);
/* "host:port" with brackets around an IPv6 address: what pq_address_parse() reads and :authority carries. */
PQ_MUST_CHECK int pq_uri_authority(const struct pq_uri *u, char *out, size_t size);

/* Splits a request's :path at the first '?'; it must begin with '/'. */
PQ_MUST_CHECK int pq_uri_split_path(const char *text, struct pq_span *path, struct pq_span *query);

/* Decodes %XX into out, which gets a NUL; a decoded NUL is refused. */
PQ_MUST_CHECK int pq_uri_decode(struct pq_span in, char *out, size_t size);
/* Appends text with everything but unreserved characters encoded. */
PQ_MUST_CHECK int pq_uri_encode(struct pq_buf *b, const char *text);

/* Takes the next "name=value" (or "name") off the query: PQ_E_NOT_FOUND at its end. name and value stay encoded. */
PQ_MUST_CHECK int pq_uri_next_parameter(struct pq_span *query, struct pq_span *name, struct pq_span *value);

#endif
