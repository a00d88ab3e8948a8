/* pair.h - two TLS connections joined by a stream, driven until both are done or one failed.
 *
 * Spec:   none.
 * Owns:   a pair owns its descriptors, contexts and connections until pair_free().
 * Errors: none: assertions.
 */
#ifndef PQ_TESTS_TLS_PAIR_H
#define PQ_TESTS_TLS_PAIR_H

#include "certs.h"
#include "tls/tls.h"

/* own NULL: no certificate; root NULL: the peer is not verified. */
struct pq_tls_settings pair_settings(enum pq_mode mode, int level, const struct cert *own, const struct cert *root);

/* ALPN. */
extern const struct pq_strings pair_h2, pair_http1, pair_both; /* both: h2 first */

enum { PAIR_PLAIN, PAIR_ONE_BYTE };

struct pair {
    struct pq_tls_context *client_context, *server_context;
    struct pq_tls *client, *server;
    int client_fd, server_fd;
    int relay[2]; /* PAIR_ONE_BYTE: between client and server */
    int client_result, server_result;
    long moved; /* bytes that the relay carried */
};

/* name: what the client asks the server to show, or NULL. */
void pair_new(struct pair *p, struct pq_crypto *c, const struct pq_tls_settings *client,
              const struct pq_tls_settings *server, const char *name, int how);
/* Over contexts that there are already, each of which gets a reference. False: something failed; no assertion, so for
 * any thread. */
bool pair_try(struct pair *p, struct pq_tls_context *client, struct pq_tls_context *server, const char *name);
void pair_free(struct pair *p);
void pair_drive(struct pair *p);
/* Both sides must finish. */
void pair_expect_done(struct pair *p);
/* Reads what one side has: the code of the read that ended it. */
int pair_read(struct pair *p, struct pq_tls *t, void *out, size_t size, size_t *n);

#endif
