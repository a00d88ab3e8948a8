/* defaults.h - what 0 stands for in limits and timeouts: the module's own.
 *
 * Spec:   http2.h.
 * Owns:   nothing.
 * Errors: none.
 */
#ifndef PQ_HTTP2_DEFAULTS_H
#define PQ_HTTP2_DEFAULTS_H

#include "http2/http2.h"

void pq_http2_default_limits(struct pq_http2_limits *l, size_t connections);
void pq_http2_default_timeouts(struct pq_http2_timeouts *t);

#endif
