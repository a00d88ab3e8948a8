/* admin_ask.h - what the admin process asks the supervisor for its clients: not all at once, and not too often.
 *
 * To list connections and to reload costs workers time that traffic could use. So one of a kind is under way at a
 * time; who asks meanwhile waits for the next one, which then answers all who waited. A listing is followed by a pause
 * as long as it took, a reload begins a second after the last one: whatever clients do, it is little.
 *
 * Spec:   none.
 * Owns:   an exchange until it is answered.
 * Errors: none come back; a question that can't be asked, or gets no answer in time, is answered with 503 or 504.
 */
#ifndef PQ_PROXY_ADMIN_ASK_H
#define PQ_PROXY_ADMIN_ASK_H

#include <ev.h>

#include "proxy/admin_http.h"
#include "proxy/control.h"

enum {
    PQ_ADMIN_PATIENCE = 20, /* s for an answer of the supervisor */
    PQ_ADMIN_WAITING_MAX = 2 * PQ_ADMIN_CLIENTS_MAX
};

struct pq_admin_waiting {
    struct pq_admin_exchange *exchange; /* NULL: a free place */
    enum pq_admin_action action;
    int64_t number; /* of the message that asks for it; 0: not asked yet */
    int64_t since;
};
struct pq_admin_question {
    int64_t number;            /* of the message that is under way; 0: none */
    int64_t began, not_before; /* ns */
};
struct pq_admin_asking {
    struct ev_loop *loop;
    int (*tell)(void *context, enum pq_control_type type, int64_t number);
    void (*answer)(void *context, struct pq_admin_exchange *x, enum pq_admin_action action,
                   const struct pq_control_message *m);
    void *context;
    int64_t last; /* number of a message */
    ev_timer due;
    struct pq_admin_question question[PQ_ADMIN_INDEX + 1];
    struct pq_admin_waiting waiting[PQ_ADMIN_WAITING_MAX];
};

/* The rest of the struct is set by the caller; zero before. */
void pq_admin_asking_init(struct pq_admin_asking *a);
void pq_admin_ask(struct pq_admin_asking *a, struct pq_admin_exchange *x, enum pq_admin_action action);
/* An answer of the supervisor. */
void pq_admin_asking_heard(struct pq_admin_asking *a, const struct pq_control_message *m);
/* Now and then: who has waited too long gets told. */
void pq_admin_asking_look(struct pq_admin_asking *a);
void pq_admin_asking_end(struct pq_admin_asking *a);

#endif
