/* refusal.h - connections that are refused right after accept: reset before any byte, counted, and logged without
 * letting a flood fill the log.
 *
 * Spec:   for each reason the first is logged at once; what follows within a second comes in one line, with how many
 *         there were and who was the last.
 * Owns:   the descriptors that it is given, which it closes; a timer on the loop until pq_refusals_stop().
 * Errors: none.
 */
#ifndef PQ_PROXY_REFUSAL_H
#define PQ_PROXY_REFUSAL_H

#include <ev.h>

#include "proxy/metrics.h"

struct pq_refusals {
    struct ev_loop *loop;
    struct pq_proxy_counters *counters;
    ev_timer timer; /* runs while a reason was logged within the last second */
    struct pq_refusal_reason {
        bool logged;
        int64_t since;          /* how many were not logged since */
        struct pq_address last; /* of whom */
        int64_t open;           /* connections then */
        char route[64];         /* copied: a listener may be gone before its line comes; cut to fit */
        enum pq_proxy_direction direction;
    } reasons[PQ_PROXY_END_COUNT];
};

void pq_refusals_init(struct pq_refusals *r, struct ev_loop *loop, struct pq_proxy_counters *counters);
/* Logs what was not logged yet. */
void pq_refusals_stop(struct pq_refusals *r);
void pq_refuse(struct pq_refusals *r, const struct pq_proxy_listener *how, int fd, const struct pq_address *from,
               enum pq_proxy_end why, int64_t open);

#endif
