/* connection.h - one proxied connection: from accept, through connect and handshake, to the last byte of the relay.
 *
 *   ingress:  handshake -> connect (to the function) -> relay
 *   egress:   connect (to the peer) -> handshake -> relay
 *
 * Spec:   a connection that did not end in order is closed with RST on both sides, also when this process is killed:
 *         the function's socket has that set from the start and loses it only at an orderly end.
 * Owns:   each connection owns its two descriptors, its TLS connection and itself, and keeps its route's generation;
 *         the set knows them all.
 * Errors: pq_connections_init() gives what pq_handshaker_new() gives; a connection that fails is logged, counted and
 *         closed.
 */
#ifndef PQ_PROXY_CONNECTION_H
#define PQ_PROXY_CONNECTION_H

#include <stdbool.h>

#include "proxy/generation.h"
#include "proxy/handshaker.h"
#include "proxy/metrics.h"
#include "proxy/refusal.h"
#include "proxy/ring.h"
#include "proxy/shared.h"

struct ev_loop;
struct pq_connection;
struct pq_tunnels;
struct pq_tunnel_loop;

/* All connections of one loop. */
struct pq_connections {
    struct ev_loop *loop;
    struct pq_generation *generation; /* the newest; not kept here; NULL in tests */
    const struct pq_proxy_config *config;
    struct pq_ring_pool pool;
    struct pq_shared *shared;
    struct pq_worker_slot *slot;        /* this process's share of it */
    struct pq_proxy_counters *counters; /* the slot's */
    struct pq_handshaker *handshaker;
    struct pq_refusals refusals;
    int64_t judging[2]; /* peers' handshakes in flight: of strangers, of known addresses */
    struct pq_connection *first;
    struct pq_connection *listed;    /* the next one that pq_connections_rows() tells of */
    struct pq_connection *rechecked; /* the next one that is held against the newest generation */
    ev_timer recheck;
    int64_t forbidden;              /* found then */
    uint64_t ids;                   /* of the last one */
    struct pq_tunnel_loop *tunnels; /* proxy/tunnel.h; NULL until the first */
    int64_t count;                  /* in this process */
    void (*closed)(void *context);  /* called after each connection's end; may be NULL */
    void *context;
    bool draining; /* tunnels take nothing new */
    bool starved;  /* there was no descriptor for a connection to its target; the owner clears it */
};

/* Starts the thread that does its handshakes. On error there is nothing to free. */
PQ_MUST_CHECK int pq_connections_init(struct pq_connections *s, struct ev_loop *loop,
                                      const struct pq_proxy_config *config, struct pq_shared *shared, size_t slot,
                                      struct pq_why *why);
/* Timeouts and limits are that generation's from now on, also for the connections that there are. Those whose peer it
 * does not allow any more end after timeouts.grace. It lives until the next. */
void pq_connections_use(struct pq_connections *s, struct pq_generation *g);
/* Ends all that are left, with that reason; waits for the step that the handshakes' thread is at. */
void pq_connections_end(struct pq_connections *s, enum pq_proxy_end why);
void pq_connections_free(struct pq_connections *s);

/* Begins to tell of all connections that there are now; then, some at a time, a line for each (proxy/listing.h).
 * PQ_E_CLOSED after the last one. */
void pq_connections_list(struct pq_connections *s);
PQ_MUST_CHECK int pq_connections_rows(struct pq_connections *s, size_t most, struct pq_buf *out);

/* One of the places that all workers share (limits.connections): each local connection has one, and each of a peer's
 * that is no tunnel. */
PQ_MUST_CHECK bool pq_connections_take_place(struct pq_connections *s);
void pq_connections_give_place(struct pq_connections *s);

/* Takes the descriptor over, also where it then refuses the connection. from is the client's address. */
void pq_connection_accept(struct pq_connections *s, struct pq_route *route, int fd, const struct pq_address *from);
/* The same for one that was accepted before, and is to have a TLS connection of its own. */
void pq_connection_carry_alone(struct pq_connections *s, struct pq_route *route, int fd, const struct pq_address *from);

#endif
