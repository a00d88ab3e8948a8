/* listening.h - the sockets that the supervisor listens on and all workers accept from.
 *
 * Spec:   a reload keeps the socket of each address that stays, with what waits in it, and opens the new ones before it
 *         closes any. A port that the kernel chose (0) stays with the listener's name. A unix socket's path is removed
 *         with its socket, unless somebody else has bound one of their own there.
 * Owns:   a set owns its sockets and names. What it has planned it owns too, until that is taken or dropped.
 * Errors: what pq_tcp_listen() gives, why begins with listener and place; PQ_E_NOMEM.
 */
#ifndef PQ_PROXY_LISTENING_H
#define PQ_PROXY_LISTENING_H

#include <sys/types.h>

#include "proxy/config.h"

struct pq_listening {
    uint64_t number; /* unlike any other's in this process; later ones have higher numbers */
    char *name;
    struct pq_address at; /* as configured */
    int fd;
    dev_t device; /* of a unix socket's path, with its inode: while they hold, the path is ours */
    ino_t inode;  /* 0: not known */
    bool kept;    /* in a plan: it is the set's */
    bool shared;  /* another supervisor has it too: its path stays */
};

struct pq_listening_set {
    struct pq_listening *at; /* one a listener of the configuration, in its order */
    size_t count;
    uint64_t last; /* number */
};

/* What the set becomes under that configuration; the set itself stays as it is. */
PQ_MUST_CHECK int pq_listening_plan(const struct pq_listening_set *set, const struct pq_proxy_config *config,
                                    struct pq_listening_set *plan, struct pq_why *why);
/* The same for one socket that no listener of the configuration has. */
PQ_MUST_CHECK int pq_listening_plan_one(const struct pq_listening_set *set, const char *name,
                                        const struct pq_proxy_address *a, struct pq_listening_set *plan,
                                        struct pq_why *why);
/* What the plan does not keep is added to removed, to be closed: workers may still be accepting from it then. */
void pq_listening_take(struct pq_listening_set *set, struct pq_listening_set *plan, struct pq_listening_set *removed);
void pq_listening_drop(struct pq_listening_set *plan);

/* From another supervisor; name and descriptor are taken over. */
PQ_MUST_CHECK int pq_listening_add(struct pq_listening_set *set, const struct pq_listening *l);
/* Nobody else has them any more. */
void pq_listening_own(struct pq_listening_set *set);

/* Closes all, and their paths go. */
void pq_listening_close(struct pq_listening_set *set);
/* The same in a child that has its own, or after they were handed on: paths stay. */
void pq_listening_forget(struct pq_listening_set *set);

#endif
