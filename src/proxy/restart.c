#include "proxy/restart.h"

#include "base/clock.h"

#define FIRST_WAIT   PQ_NS_PER_S
#define LONGEST_WAIT (30 * PQ_NS_PER_S)
#define LONG_LIFE    (60 * PQ_NS_PER_S)

int64_t pq_restart_died(struct pq_restart *r, int64_t now)
{
    int64_t wait = now - r->started >= LONG_LIFE ? 0 : r->wait;
    r->wait = wait == 0 ? FIRST_WAIT : 2 * wait < LONGEST_WAIT ? 2 * wait : LONGEST_WAIT;
    return wait;
}
