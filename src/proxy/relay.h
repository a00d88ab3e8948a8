/* relay.h - moves bytes between a function's plain socket and a peer's TLS connection, in both directions, until both
 * ended.
 *
 * It knows no loop, clock or log: the caller tells it what is ready, it does all the reading and writing that can be
 * done now, and says what to wait for. Each direction is a flow:
 *
 *   open      the source may send more
 *   flushing  the source ended; what it sent before is being delivered
 *   ending    all is delivered; the end itself (FIN or close_notify) is being passed on
 *   ended
 *   broken    the sink takes no more, though its own direction is not over: what the source sends is read and dropped,
 *             so that what the sink sent before still arrives
 *
 * Spec:   half-close: RFC 9293, section 3.6, and RFC 8446, section 6.1. An end is passed on only when it was one: a FIN
 * on the plain side, a close_notify on the TLS side. Anything else is PQ_E_RESET, and the caller aborts both sides.
 * A plain side that is a unix socket has no reset (unix(7)): whatever closes it, a crash included, comes as its end and
 * is passed on as one, and an abort looks like an end to the program there. Protocols that carry lengths notice.
 * Owns:   its two buffers; descriptors and the TLS connection are the caller's.
 * Errors: PQ_E_CLOSED: both flows ended (lost tells whether bytes were dropped). PQ_E_RESET and what pq_tls_read()
 * gives: failed says on which side. PQ_E_NOMEM.
 */
#ifndef PQ_PROXY_RELAY_H
#define PQ_PROXY_RELAY_H

#include <stdbool.h>
#include <stdint.h>

#include "proxy/ring.h"
#include "tls/tls.h"

/* A side is also the name of the flow that it is the source of: LOCAL's goes up to the network, PEER's down. */
enum pq_relay_side { PQ_RELAY_LOCAL, PQ_RELAY_PEER };
enum { PQ_RELAY_READ = 1, PQ_RELAY_WRITE = 2 };

enum pq_flow_state { PQ_FLOW_OPEN, PQ_FLOW_FLUSHING, PQ_FLOW_ENDING, PQ_FLOW_ENDED, PQ_FLOW_BROKEN };
extern const char *const pq_flow_state_names[];

struct pq_relay_end {
    int fd;
    struct pq_tls *tls; /* NULL: plain */
    bool can_read, can_write;
    unsigned read_on, write_on; /* which readiness lets the next read or write succeed: TLS may need the other one */
};

struct pq_flow {
    enum pq_flow_state state;
    struct pq_ring ring;
    uint64_t bytes; /* delivered */
};

struct pq_relay {
    struct pq_relay_end end[2]; /* by enum pq_relay_side */
    struct pq_flow flow[2];     /* by source */
    struct pq_ring_pool *pool;
    enum pq_relay_side failed; /* whose failure the error was */
    bool lost;                 /* bytes were dropped, since their sink had gone */
    bool look_again;
    int unacknowledged; /* bytes that a sink's kernel still held when a lingering relay was last looked at */
    /* Changes whenever a byte or an end came closer to its sink; not by bytes that are read to be dropped, which a
     * sender could go on with for ever. */
    uint64_t progress;
};

/* tls may be NULL in tests. Both sides are taken to be ready: the first pump finds out. */
void pq_relay_init(struct pq_relay *r, int local_fd, int peer_fd, struct pq_tls *peer_tls, struct pq_ring_pool *pool);
void pq_relay_free(struct pq_relay *r);

/* One side became ready (0: none, just look). 0 while there is more to come. */
PQ_MUST_CHECK int pq_relay_pump(struct pq_relay *r, enum pq_relay_side side, unsigned ready);
/* What to wait for on a side: 0, or PQ_RELAY_READ and PQ_RELAY_WRITE. */
unsigned pq_relay_wants(const struct pq_relay *r, enum pq_relay_side side);
/* A flow is broken and only the last bytes of the other are still on their way: look again soon, no event will tell. */
bool pq_relay_lingers(const struct pq_relay *r);

#endif
