/* generation.h - what one version of the configuration and of its files makes of a worker: a route for each listener,
 * with the TLS context that protects it.
 *
 * Spec:   a reload makes a new generation; connections keep the one that they began with.
 * Owns:   a generation owns its configuration and contexts until the last reference is dropped; pq_crypto outlives it.
 *         The files are wiped as soon as the contexts are made.
 * Errors: PQ_E_CONFIG, PQ_E_NOENT and the like (a file: why names listener and file), PQ_E_INVALID (a peer's name),
 *         PQ_E_NOMEM.
 */
#ifndef PQ_PROXY_GENERATION_H
#define PQ_PROXY_GENERATION_H

#include "base/files.h"
#include "proxy/config.h"
#include "proxy/upstream.h"

struct pq_generation;
struct pq_tunnels;

/* From where to where, and how it is protected. */
struct pq_route {
    const struct pq_proxy_listener *how;
    struct pq_tls_context *tls;
    struct pq_upstream *upstream;
    struct pq_tls_context *tunnel_tls; /* egress with carry: tunnel; it also offers the tunnel's protocol */
    struct pq_tunnels *tunnels;        /* egress: the worker's; NULL: local connections are carried alone */
    struct pq_generation *of;          /* NULL in tests */
};

struct pq_generation {
    uint64_t number;
    unsigned references;
    struct pq_proxy_config config;
    size_t count;
    struct pq_route routes[]; /* in the order of pq_proxy_listener_at() */
};

/* Takes configuration and files over, also on error, and leaves them zeroed. tickets: for sessions to be resumed, alive
 * as long as the generation's contexts; NULL: an ingress resumes none. */
PQ_MUST_CHECK int pq_generation_new(struct pq_crypto *crypto, struct pq_proxy_config *config, struct pq_files **files,
                                    struct pq_tls_ticket_keys *tickets, uint64_t number, struct pq_generation **out,
                                    struct pq_why *why);
/* The same without keys: no handshake is made with it, it only judges the connections that there are. */
PQ_MUST_CHECK int pq_generation_new_judge(struct pq_crypto *crypto, struct pq_proxy_config *config,
                                          struct pq_files **files, uint64_t number, struct pq_generation **out,
                                          struct pq_why *why);
/* The route of the same listener, by name and direction; NULL where it has none. */
struct pq_route *pq_generation_route(struct pq_generation *g, const struct pq_proxy_listener *how);
/* Both accept NULL. */
void pq_generation_keep(struct pq_generation *g);
void pq_generation_free(struct pq_generation *g); /* drops one reference */
PQ_DEFINE_FREEP(struct pq_generation, pq_generation_free)
/* Who keeps a route, and with it its generation, takes another; either may be NULL. */
void pq_generation_take_route(struct pq_route **kept, struct pq_route *route);

#endif
