/* worker_parts.h - what the files of a worker share: its listeners, and the generation that is being made.
 *
 * Spec:   worker.h.
 * Owns:   see worker.h.
 * Errors: see worker.h.
 */
#ifndef PQ_PROXY_WORKER_PARTS_H
#define PQ_PROXY_WORKER_PARTS_H

#include <ev.h>
#include <pthread.h>

#include "proxy/bundle.h"
#include "proxy/connection.h"
#include "proxy/control.h"
#include "proxy/listing.h"
#include "proxy/worker.h"

/* A thread makes a generation from a packed bundle; one at a time. */
struct pq_making {
    struct pq_crypto *crypto;
    struct pq_tls_ticket_keys *tickets;
    ev_async done;
    pthread_t thread;
    bool running;
    bool judges; /* the worker is retired: no key is needed, and a token may be out of reach */
    int packed;
    uint64_t number;
    /* What came of it, once it is done. */
    int e;
    struct pq_why why;
    struct pq_generation *generation;
    uint64_t *sockets; /* the number of each route's listening socket */
};

struct pq_acceptor {
    TAILQ_ENTRY(pq_acceptor) entry;
    struct pq_worker *worker;
    uint64_t number;
    struct pq_route *route; /* keeps its generation; NULL: no generation has used it yet */
    int fd;
    bool leaving; /* closed once nobody waits in it any more */
    ev_io io;
};
TAILQ_HEAD(pq_acceptors, pq_acceptor);

struct pq_worker {
    const struct pq_worker_how *how;
    struct ev_loop *loop;
    struct pq_control control;
    ev_io control_io;
    struct pq_crypto *crypto;
    struct pq_making making;
    struct pq_generation *generation; /* NULL until the first has come */
    struct pq_connections connections;
    struct pq_acceptors acceptors;
    struct pq_listing *listing; /* NULL: none is under way */
    int64_t listing_number;     /* of the request for it */
    int64_t descriptors;        /* how many connections there are descriptors for */
    ev_timer pause, limit;
    int64_t pause_logged; /* when, 0: never */
    bool paused, stopping, failed;
};

/* --- acceptors.c ------------------------------------------------------------------------------------------------- */
void pq_acceptors_init(struct pq_worker *w);
/* Takes the descriptor. */
PQ_MUST_CHECK int pq_acceptors_add(struct pq_worker *w, uint64_t number, int fd);
/* Those that a generation uses get its routes, the others leave. PQ_E_NOT_FOUND, and nothing has changed: a socket has
 * not come. */
PQ_MUST_CHECK int pq_acceptors_assign(struct pq_worker *w, struct pq_generation *g, const uint64_t *sockets);
/* Stops accepting; before, all who wait in the backlogs where wanted. */
void pq_acceptors_close(struct pq_worker *w, bool backlog_first);
/* A connection has ended: its descriptors may be what accepting waits for. */
void pq_acceptors_relieve(struct pq_worker *w);

/* --- making.c ---------------------------------------------------------------------------------------------------- */
void pq_making_init(struct pq_worker *w);
/* Takes the descriptor. */
void pq_making_start(struct pq_worker *w, uint64_t number, int packed);
void pq_making_free(struct pq_worker *w);

/* --- worker.c ---------------------------------------------------------------------------------------------------- */
/* What was being made is there, or why not. */
void pq_worker_made(struct pq_worker *w);

#endif
