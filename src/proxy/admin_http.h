/* admin_http.h - the HTTP side of the admin listener: takes requests, judges them, hands them on, and answers.
 *
 * Few clients, small requests, and an end to each: whoever is slow, silent or many holds up other admin clients at
 * most, for as long as the limits below say.
 *
 * Spec:   RFC 9110 and RFC 9112, by libmicrohttpd on the caller's loop; proxy/admin_request.h.
 * Owns:   takes the listening descriptor over. An exchange lives until it was answered, exactly once, also when its
 *         client is gone by then.
 * Errors: PQ_E_UNSUPPORTED (why says what libmicrohttpd lacks), PQ_E_NOMEM.
 */
#ifndef PQ_PROXY_ADMIN_HTTP_H
#define PQ_PROXY_ADMIN_HTTP_H

#include <sys/types.h>

#include "base/cleanup.h"
#include "proxy/admin_request.h"

enum {
    PQ_ADMIN_CLIENTS_MAX = 32,       /* connections; further ones wait */
    PQ_ADMIN_MEMORY_MAX = 16 << 10,  /* bytes of a connection, its request's header included */
    PQ_ADMIN_SILENCE_MAX = 20,       /* s without a byte */
    PQ_ADMIN_EXCHANGE_MAX = 30,      /* s from connect or answer to answer */
    PQ_ADMIN_ANSWER_MAX = 256 << 20, /* bytes */
};

struct ev_loop;
struct pq_admin_http;
struct pq_admin_exchange;

struct pq_admin_http_how {
    struct ev_loop *loop;
    int fd; /* listening */
    void (*ask)(void *context, struct pq_admin_exchange *x, enum pq_admin_action action, struct pq_span body);
    void *context;
    int exchange_s; /* in place of PQ_ADMIN_EXCHANGE_MAX, for tests; 0: that */
};
PQ_MUST_CHECK int pq_admin_http_new(const struct pq_admin_http_how *how, struct pq_admin_http **out,
                                    struct pq_why *why);
/* Takes no more clients; those that there are may finish their request. Gives how many there are. */
size_t pq_admin_http_quiesce(struct pq_admin_http *h);
/* All exchanges must have been answered. */
void pq_admin_http_free(struct pq_admin_http *h);
PQ_DEFINE_FREEP(struct pq_admin_http, pq_admin_http_free)

/* At once or later. The text is copied, the descriptor (of size bytes) taken over. */
void pq_admin_answer(struct pq_admin_exchange *x, int status, const char *type, struct pq_span text);
void pq_admin_answer_file(struct pq_admin_exchange *x, const char *type, int fd, off_t size);
/* {"error": "..."} */
void pq_admin_answer_error(struct pq_admin_exchange *x, int status, const char *error);

#endif
