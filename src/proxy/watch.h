/* watch.h - tells that one of some files changed, however that was done: written to, replaced, renamed, removed or
 * made, or a symbolic link on its way turned to another place.
 *
 * Spec:   stat(2) through all links, whenever it is asked to look: it needs no descriptors, sees every file system and
 *         misses nothing that lasts. A change is told once it has stayed the same from one look to the next, so that a
 *         certificate and its key are not taken one by one.
 * Owns:   copies of the names.
 * Errors: PQ_E_NOMEM; nothing has changed then.
 */
#ifndef PQ_PROXY_WATCH_H
#define PQ_PROXY_WATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"
#include "base/config.h"

struct pq_watch;
PQ_MUST_CHECK int pq_watch_new(struct pq_watch **out);
void pq_watch_free(struct pq_watch *w);
PQ_DEFINE_FREEP(struct pq_watch, pq_watch_free)

/* From now on these and no others. What a new one is like now is known, and no change; of one that was watched before
 * nothing is forgotten. */
PQ_MUST_CHECK int pq_watch_set(struct pq_watch *w, const struct pq_strings *paths);
/* Whether something changed that is settled now. */
bool pq_watch_look(struct pq_watch *w);

#endif
