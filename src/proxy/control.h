/* control.h - messages between the supervisor and one child, with descriptors where they need some.
 *
 * Spec:   unix(7), SOCK_SEQPACKET: a message is {type, status, generation} and a text, and arrives whole or not at all.
 *         The other process's death shows as the end of the stream.
 * Owns:   a channel owns its descriptor and what waits to be sent. pq_control_send() leaves the caller's descriptors
 *         the caller's (it sends copies); received ones are the receiver's.
 * Errors: PQ_E_WANT_READ (no message now), PQ_E_CLOSED (the other end is gone), PQ_E_PROTOCOL (no message of ours),
 *         PQ_E_NOMEM, PQ_E_LIMIT (descriptors, or too much waits), PQ_E_TOO_LONG (text).
 */
#ifndef PQ_PROXY_CONTROL_H
#define PQ_PROXY_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "net/message.h"

/* A worker first gets the sockets that it does not know yet, then the generation that uses them. */
#define PQ_CONTROL_TYPES(X)                                                                                            \
    /* supervisor to worker */                                                                                         \
    X(SOCKET, "socket")         /* a listening socket; generation is its number */                                     \
    X(GENERATION, "generation") /* a packed bundle to serve from now on */                                             \
    X(RETIRE, "retire")         /* stop accepting; connections may last until timeouts.retire */                       \
    X(DRAIN, "drain")           /* stop accepting; connections may finish until timeouts.drain */                      \
    X(END, "end")               /* end all at once */                                                                  \
    X(LOG, "log")               /* write the log there */                                                              \
    X(ADDRESSES, "addresses")   /* that generation's listener of the number status leads there: a line each */         \
    /* worker to supervisor */                                                                                         \
    X(READY, "ready")     /* serves that generation */                                                                 \
    X(REFUSED, "refused") /* can't serve that generation: status and text say why */                                   \
    X(DONE, "done")       /* with the request whose type is status */                                                  \
    /* supervisor to admin process, which sends PQ_CONTROL_DRAIN too */                                                \
    X(VIEW, "view")     /* the configuration in force, of pq_view_write() */                                           \
    X(ANSWER, "answer") /* to the request whose number is generation; status and text say why not */                   \
    /* admin process to supervisor: generation is the request's number */                                              \
    X(RELOAD, "reload")                                                                                                \
    X(CONNECTIONS, "connections") /* answered with a file that holds a line for each connection */
enum pq_control_type {
#define X(name, label) PQ_CONTROL_##name,
    PQ_CONTROL_TYPES(X)
#undef X
        PQ_CONTROL_TYPE_COUNT
};
const char *pq_control_type_name(enum pq_control_type t);

enum {
    PQ_CONTROL_TEXT = 8192, /* with the NUL */
    PQ_CONTROL_FDS = PQ_MESSAGE_FDS,
    PQ_CONTROL_WAITING_MAX = 4096 /* messages */
};

struct pq_control_message {
    enum pq_control_type type;
    int status;
    int64_t generation;
    int fd[PQ_CONTROL_FDS];
    size_t fd_count;
    char text[PQ_CONTROL_TEXT];
};

struct pq_control_waiting;
struct pq_control {
    int fd;
    struct pq_control_waiting *first, **last;
    size_t waiting;
};

/* Two ends; the second is for another process, which passes it to pq_control_init(). */
PQ_MUST_CHECK int pq_control_pair(struct pq_control *out, int *other_fd);
void pq_control_init(struct pq_control *c, int fd);
void pq_control_free(struct pq_control *c);

/* What the other end does not take at once waits: call pq_control_flush() when the descriptor is writable. */
PQ_MUST_CHECK int pq_control_send(struct pq_control *c, const struct pq_control_message *m);
PQ_MUST_CHECK int pq_control_flush(struct pq_control *c);
static inline bool pq_control_waits(const struct pq_control *c) { return c->first != NULL; }

PQ_MUST_CHECK int pq_control_receive(struct pq_control *c, struct pq_control_message *out);
/* Closes the descriptors that came with a message, where nobody took them. */
void pq_control_drop(struct pq_control_message *m);

#endif
