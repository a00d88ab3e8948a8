/* handshaker.h - a thread that does TLS handshakes, so that a signature never delays the loop that relays.
 *
 * The thread has a loop of its own and yields the processor to the relay's. Of the handshakes that can go on it takes
 * those of known addresses first, one step at a time; strangers get a turn now and then also while known ones queue.
 *
 * Spec:   while a handshake is submitted, its descriptor and TLS connection are the thread's: nobody else touches them.
 *         A server's TLS connection is made when the peer's first bytes are there, so who sends nothing costs little.
 *         All functions are called on the thread of the owner's loop, and done() runs there.
 * Owns:   the thread and its loop; a submitted handshake, its descriptor and TLS connection stay the caller's, alive
 *         until done() was called.
 * Errors: PQ_E_LIMIT (no thread or no descriptor to be had), PQ_E_NOMEM. done() gets 0, PQ_E_TIMEOUT, PQ_E_INTERRUPTED
 *         or what pq_tls_new() or pq_tls_handshake() gave.
 */
#ifndef PQ_PROXY_HANDSHAKER_H
#define PQ_PROXY_HANDSHAKER_H

#include <ev.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "tls/tls.h"

struct pq_handshaker;

struct pq_handshake {
    /* From the caller. */
    struct pq_tls_context *context;
    const struct pq_strings *names; /* NULL: any */
    int fd;
    int64_t timeout; /* ns that the peer may take in all; the wait for the thread does not count */
    bool known;      /* the address authenticated before: served before others */
    void (*done)(struct pq_handshake *h, int e);
    /* For the caller, once done: also after a failure; NULL where it came to none. */
    struct pq_tls *tls;
    /* The module's own. */
    TAILQ_ENTRY(pq_handshake) entry;
    struct pq_handshaker *handshaker;
    ev_io io;
    ev_timer timer;
    int64_t left, waits_since; /* of the timeout, ns */
    enum { PQ_HANDSHAKE_WAITS, PQ_HANDSHAKE_READY } state;
    int code;
    atomic_bool cancelled;
};

/* Signals stay with the calling thread. */
PQ_MUST_CHECK int pq_handshaker_new(struct ev_loop *loop, struct pq_handshaker **out, struct pq_why *why);
/* Ends all that are left with PQ_E_INTERRUPTED, calling their done(), and the thread. */
void pq_handshaker_free(struct pq_handshaker *h);
PQ_DEFINE_FREEP(struct pq_handshaker, pq_handshaker_free)

void pq_handshaker_submit(struct pq_handshaker *h, struct pq_handshake *one);
/* done() comes soon, with PQ_E_INTERRUPTED unless the handshake's own end was faster. */
void pq_handshaker_cancel(struct pq_handshaker *h, struct pq_handshake *one);
/* Waits for those that were cancelled, at most for the step that the thread is at, and calls the done() of all that are
 * back. */
void pq_handshaker_settle(struct pq_handshaker *h);
/* Submitted, and done() not yet called. */
int64_t pq_handshaker_in_flight(const struct pq_handshaker *h);

#endif
