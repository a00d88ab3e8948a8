/* resolver.h - asks again, on a thread of its own, what the host names of a configuration stand for.
 *
 * Spec:   every `resolve`, and pq_resolver_set() starts the time anew. A name that can't be looked up keeps its
 *         addresses; so does a listener where the new ones would send plaintext off this host or lead in a circle. Each
 *         change for better or worse is logged once. The order in which a name server gives the same addresses is no
 *         change.
 * Owns:   the thread, which is started when there is a name to ask for. It is not waited for: a lookup may take long,
 *         and what it gives then is dropped. The configuration stays the caller's, who keeps it until it sets another.
 * Errors: PQ_E_LIMIT (no thread), PQ_E_NOMEM.
 */
#ifndef PQ_PROXY_RESOLVER_H
#define PQ_PROXY_RESOLVER_H

#include "proxy/config.h"

struct ev_loop;
struct pq_resolver;

struct pq_resolver_how {
    const struct pq_lookup *lookup; /* called on the thread */
    /* On the loop's thread: the target of that listener, by its place in the configuration, has new places. */
    void (*changed)(void *context, size_t listener);
    void *context;
};

PQ_MUST_CHECK int pq_resolver_new(struct ev_loop *loop, const struct pq_resolver_how *how, struct pq_resolver **out);
void pq_resolver_free(struct pq_resolver *r);
PQ_DEFINE_FREEP(struct pq_resolver, pq_resolver_free)
/* The same in a process that was forked off, where the thread is not. */
void pq_resolver_forget(struct pq_resolver *r);

/* From now on the names of this configuration, whose targets it keeps up to date; NULL: none. On error there are none.
 */
PQ_MUST_CHECK int pq_resolver_set(struct pq_resolver *r, struct pq_proxy_config *config, struct pq_why *why);
/* Whether a listener's places have changed since the configuration was set. */
bool pq_resolver_changed(const struct pq_resolver *r, size_t listener);

#endif
