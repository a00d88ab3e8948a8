#include "proxy/ring.h"

#include <stdlib.h>

void pq_ring_pool_free(struct pq_ring_pool *p)
{
    while (p->kept)
        free(p->at[--p->kept]);
}

void pq_ring_pool_resize(struct pq_ring_pool *p, size_t size)
{
    if (size == p->size)
        return;
    pq_ring_pool_free(p);
    p->size = size;
}

static int borrow(struct pq_ring *r, struct pq_ring_pool *p)
{
    void *buffer = p->kept ? p->at[--p->kept] : malloc(p->size);
    if (!buffer)
        return PQ_E_NOMEM;
    p->lent++;
    *r = (struct pq_ring){.at = buffer, .size = p->size};
    return 0;
}

int pq_ring_room(struct pq_ring *r, struct pq_ring_pool *p, uint8_t **at, size_t *n)
{
    if (!r->at) {
        int e = borrow(r, p);
        if (e < 0)
            return e;
    }
    size_t tail = r->head + r->len;
    if (tail >= r->size)
        tail -= r->size;
    *at = r->at + tail;
    *n = r->len == r->size ? 0 : tail >= r->head ? r->size - tail : r->head - tail;
    return 0;
}

void pq_ring_filled(struct pq_ring *r, size_t n) { r->len += n; }

const uint8_t *pq_ring_front(const struct pq_ring *r, size_t *n)
{
    *n = r->head + r->len > r->size ? r->size - r->head : r->len;
    return r->at + r->head;
}

void pq_ring_consume(struct pq_ring *r, size_t n)
{
    r->len -= n;
    r->head += n;
    if (r->head >= r->size)
        r->head -= r->size;
    /* An empty ring starts anew, so that most reads and writes are in one piece. */
    if (r->len == 0)
        r->head = 0;
}

void pq_ring_release(struct pq_ring *r, struct pq_ring_pool *p)
{
    if (!r->at)
        return;
    p->lent--;
    if (p->kept < PQ_RING_POOL_KEPT && r->size == p->size)
        p->at[p->kept++] = r->at;
    else
        free(r->at);
    *r = (struct pq_ring){0};
}
