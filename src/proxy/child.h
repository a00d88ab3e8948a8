/* child.h - a process that the supervisor forked, and the channel to it.
 *
 * Spec:   fork(2) without execve(2): a child begins with what the supervisor has in memory. Signals are blocked over
 * the fork; the child gets them back once it has left what is the supervisor's alone. Owns:   a child owns its channel,
 * not the process: the supervisor reaps it. Errors: PQ_E_LIMIT, PQ_E_NOMEM and the like: no process or no descriptor to
 * be had, why says which.
 */
#ifndef PQ_PROXY_CHILD_H
#define PQ_PROXY_CHILD_H

#include <ev.h>
#include <sys/types.h>

#include "proxy/control.h"

struct pq_child {
    struct ev_loop *loop;
    pid_t pid; /* 0: none runs */
    struct pq_control control;
    ev_io io;
    void (*heard)(struct pq_child *c, struct pq_control_message *m); /* its descriptors are closed after the call */
};

struct pq_child_how {
    /* Both in the child: closes and frees what is the supervisor's alone; does the work and gives the exit status. */
    void (*leave)(void *context);
    int (*run)(void *context, int control);
    void *context;
};

void pq_child_init(struct pq_child *c, struct ev_loop *loop,
                   void (*heard)(struct pq_child *c, struct pq_control_message *m));
PQ_MUST_CHECK int pq_child_start(struct pq_child *c, const struct pq_child_how *how, struct pq_why *why);
/* A message that can't be sent is logged; to a child that is gone nothing is sent. */
void pq_child_tell(struct pq_child *c, const struct pq_control_message *m);
/* Whether it has ended: all that it said was heard then, and there is none any more. */
bool pq_child_reap(struct pq_child *c, int *status);
/* Of the supervisor's end only: the process lives on. */
void pq_child_close(struct pq_child *c);

/* "killed by signal 9 (Killed)" */
void pq_child_status_text(int status, char *out, size_t size);

#endif
