/* ring.h - a bounded ring buffer that borrows its storage from a pool while it holds something.
 *
 * Idle connections thus hold no buffer, and busy ones share a few that stay in the processor's cache.
 *
 * Spec:   none.
 * Owns:   a pool owns the buffers that lie in it, a ring the one that it borrowed; rings are released before their
 * pool. Errors: PQ_E_NOMEM.
 */
#ifndef PQ_PROXY_RING_H
#define PQ_PROXY_RING_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { PQ_RING_POOL_KEPT = 32 }; /* buffers that a pool keeps; more are freed as they come back */

struct pq_ring_pool {
    size_t size; /* of each buffer, in bytes */
    size_t kept, lent;
    void *at[PQ_RING_POOL_KEPT];
};

void pq_ring_pool_free(struct pq_ring_pool *p);
/* Buffers lent from now on have that size; those lent before keep theirs, and go when they come back. */
void pq_ring_pool_resize(struct pq_ring_pool *p, size_t size);

/* Zero-initialise. */
struct pq_ring {
    uint8_t *at;
    size_t size, head, len;
};

/* Room to fill in one piece: at least one byte unless the ring is full (*n is 0 then); borrows a buffer if it has none.
 */
PQ_MUST_CHECK int pq_ring_room(struct pq_ring *r, struct pq_ring_pool *p, uint8_t **at, size_t *n);
void pq_ring_filled(struct pq_ring *r, size_t n);
/* What is to be taken out first, in one piece; *n is 0 only where the ring is empty. */
const uint8_t *pq_ring_front(const struct pq_ring *r, size_t *n);
void pq_ring_consume(struct pq_ring *r, size_t n);
/* Empties it and gives the buffer back. */
void pq_ring_release(struct pq_ring *r, struct pq_ring_pool *p);

#endif
