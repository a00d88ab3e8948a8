/* pool.h - the connections of a client to one authority, and the calls that wait for one: the module's own.
 *
 * Spec:   RFC 9113, 9.1.
 * Owns:   a client owns its pools, a pool its connections (links) and calls.
 * Errors: PQ_E_NOMEM.
 */
#ifndef PQ_HTTP2_POOL_H
#define PQ_HTTP2_POOL_H

#include "http2/call.h"
#include "http2/session.h"
#include "net/tcp.h"

struct pq_link;

struct pq_pool {
    struct pq_pool *next;
    struct pq_http2_client *client;
    char *authority, *host;
    struct pq_address address;
    struct pq_call *waiting;
    size_t waiting_count;
    struct pq_link *first;
};

struct pq_client_shared {
    struct ev_loop *loop;
    struct pq_http2_client_settings how; /* defaults filled in */
    nghttp2_session_callbacks *callbacks;
    struct pq_strings names; /* ours; how.names points here or is NULL */
    bool draining;
};
struct pq_client_shared *pq_pool_shared(struct pq_pool *p);

/* Gives waiting calls to connections, and opens those that it takes. */
void pq_pool_run(struct pq_pool *p);
/* Ends a call: out of its list, done() called, freed. */
void pq_pool_finish(struct pq_call *call, int error, const char *label, const char *reason);
/* Puts a call that was not processed back in front, or ends it when it was tried often enough. */
void pq_pool_retry(struct pq_call *call);
/* A connection is gone; where it never opened, code tells why and its calls end. */
void pq_pool_link_gone(struct pq_pool *p, bool opened, int code, const char *label, const char *reason);
/* --- link.c: one connection --------------------------------------------------------------------------------------- */
/* Opens one; a fresh one has its own call from the start. A failure to connect comes from the loop; PQ_E_NOMEM:
 * nothing was opened. */
PQ_MUST_CHECK int pq_link_new(struct pq_pool *p, struct pq_call *own);
struct pq_link *pq_link_next(const struct pq_link *l);
bool pq_link_usable(const struct pq_link *l); /* open, not draining, room for a stream */
bool pq_link_connecting(const struct pq_link *l);
bool pq_link_draining(const struct pq_link *l);
/* Submits; negative when the connection can't take it (then it is draining). */
PQ_MUST_CHECK int pq_link_submit(struct pq_link *l, struct pq_call *call);
void pq_link_pump(struct pq_link *l);
/* Forgets a call whose time is over, and tells the server. */
void pq_link_cancel(struct pq_link *l, struct pq_call *call);
/* No new calls; closed when it has none. */
void pq_link_drain(struct pq_link *l);
/* Ends all its calls with that code. */
void pq_link_abandon(struct pq_link *l, int code, const char *reason);
void pq_link_free(struct pq_link *l);
PQ_MUST_CHECK int pq_link_callbacks(nghttp2_session_callbacks **out);

#endif
