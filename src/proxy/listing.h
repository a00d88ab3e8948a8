/* listing.h - the open connections, as a JSON line each, written to a file while traffic goes on.
 *
 *   {"kind":"connection","worker":0,"id":17,"route":"nrf","direction":"egress","local":"127.0.0.1:40000","peer":"198.51.100.2:7777",
 *    "peer_name":"CN=nrf","group":"X25519MLKEM768","signature":"mldsa65","own_signature":"mldsa65","cipher":"...",
 *    "resumed":false,"state":"relay","bytes_up":1,"bytes_down":2,"age_s":3.000,"idle_s":0.100,"tunnel":null}
 *
 * Spec:   docs/guide.md, "/connections". Few rows at a turn of the loop and a rest after them, so that ten thousand
 * delay nobody. What opens meanwhile is left out, what ends meanwhile may be. Owns:   a listing owns its descriptor and
 * itself until done() is called. Errors: told to done(): PQ_E_NOMEM, PQ_E_LIMIT (no room in the file), PQ_E_IO.
 */
#ifndef PQ_PROXY_LISTING_H
#define PQ_PROXY_LISTING_H

#include "base/bytes.h"
#include "proxy/connection.h"

enum {
    PQ_LISTING_ROWS = 10,       /* at a turn, of which there are at most two thousand a second */
    PQ_LISTING_MAX = 128 << 20, /* bytes; what is beyond is left out, and a last line {"left_out":true} says so */
};

struct pq_row {
    const char *kind; /* "connection", "tunnel" or, inside one, "stream" */
    size_t worker;
    uint64_t id; /* of a connection or tunnel: within its worker; of a stream: within its tunnel */
    const char *route, *direction, *state;
    const struct pq_address *local, *peer;
    const struct pq_tls_info *tls; /* NULL: no handshake has ended */
    uint64_t bytes_up, bytes_down;
    int64_t age_ns;
    double idle_s;
    uint64_t tunnel; /* id of the one that carries it; 0: none */
};
PQ_MUST_CHECK int pq_row_write(const struct pq_row *r, struct pq_buf *out);

struct pq_listing;
/* fd's file gets the lines at its end; it is taken over where this succeeds. One at a time for a set. */
PQ_MUST_CHECK int pq_listing_start(struct pq_connections *s, int fd, void (*done)(void *context, int e), void *context,
                                   struct pq_listing **out);
/* Without calling done(). */
void pq_listing_free(struct pq_listing *l);

#endif
