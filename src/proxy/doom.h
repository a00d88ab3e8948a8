/* doom.h - the end of what a reload no longer allows: after a grace time, unless another reload allows it again.
 *
 * Spec:   docs/guide.md, timeouts.grace.
 * Owns:   a doom its timer and its sentence, until pq_doom_lift(); the owner keeps a pointer, NULL while it is allowed.
 * Errors: PQ_E_NOMEM: nothing runs; the owner had better end at once.
 */
#ifndef PQ_PROXY_DOOM_H
#define PQ_PROXY_DOOM_H

#include <ev.h>

#include "tls/tls.h"

enum { PQ_DOOM_TEXT = 640 }; /* of pq_doom_text() */

struct pq_doom;

/* From the loop, after grace seconds: over(owner, ...), with both of the latest call. What runs already goes on. */
PQ_MUST_CHECK int pq_doom_set(struct pq_doom **d, struct ev_loop *loop, double grace, enum pq_tls_reason reason,
                              const char *sentence,
                              void (*over)(void *owner, enum pq_tls_reason reason, const char *sentence), void *owner);
void pq_doom_lift(struct pq_doom **d, struct ev_loop *loop);
/* "revoked: the peer's certificate ...", the detail of the end's log line. */
void pq_doom_text(enum pq_tls_reason reason, const char *sentence, char out[PQ_DOOM_TEXT]);

#endif
