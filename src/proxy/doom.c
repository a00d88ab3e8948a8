#include "proxy/doom.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"

struct pq_doom {
    ev_timer timer;
    enum pq_tls_reason reason;
    char sentence[512];
    void (*over)(void *owner, enum pq_tls_reason reason, const char *sentence);
    void *owner;
};

/* The owner's end lifts it, so what is told is a copy. */
static void on_over(struct ev_loop *loop, ev_timer *timer, int revents)
{
    (void)loop, (void)revents;
    struct pq_doom d = *(struct pq_doom *)timer->data;
    d.over(d.owner, d.reason, d.sentence);
}

int pq_doom_set(struct pq_doom **d, struct ev_loop *loop, double grace, enum pq_tls_reason reason, const char *sentence,
                void (*over)(void *owner, enum pq_tls_reason reason, const char *sentence), void *owner)
{
    bool before = *d != NULL;
    if (!before && !(*d = calloc(1, sizeof **d)))
        return PQ_E_NOMEM;
    (*d)->reason = reason;
    snprintf((*d)->sentence, sizeof(*d)->sentence, "%s", sentence);
    if (before)
        return 0; /* its time runs already */
    (*d)->over = over;
    (*d)->owner = owner;
    ev_timer_init(&(*d)->timer, on_over, grace, 0.);
    (*d)->timer.data = *d;
    ev_timer_start(loop, &(*d)->timer);
    return 0;
}

void pq_doom_lift(struct pq_doom **d, struct ev_loop *loop)
{
    if (*d)
        ev_timer_stop(loop, &(*d)->timer);
    pq_freep(d);
}

void pq_doom_text(enum pq_tls_reason reason, const char *sentence, char out[PQ_DOOM_TEXT])
{
    snprintf(out, PQ_DOOM_TEXT, "%s: %s", pq_tls_reason_label(reason), sentence);
}
