/* transport.h - what libssl reads from and writes to: a socket, or another connection's memory. A handshake's flight
 * leaves in one send, because libssl would cut an ML-DSA flight into 4 KiB pieces; a send never raises SIGPIPE. Until
 * the handshake is done libssl gets whole records only: for a part of one it would hold 16 KB, while we hold that part.
 *
 * Spec:   BIO_meth_new(3); RFC 8446, section 5.1 (records).
 * Owns:   its buffers until pq_transport_free(); never the descriptor. It outlives the BIO made for it.
 * Errors: kept in err as an errno value; eof is set when the peer ended its direction.
 */
#ifndef PQ_TLS_TRANSPORT_H
#define PQ_TLS_TRANSPORT_H

#include <openssl/bio.h>
#include <openssl/types.h>

#include "base/bytes.h"

struct pq_transport {
    int fd;                     /* -1: memory */
    struct pq_transport *other; /* memory: where writes go */
    struct pq_buf in, out;      /* in: what libssl did not take yet; out: the flight collected, or what is left of it */
    size_t ready;               /* bytes of in that are whole records, or their rest */
    bool collect;               /* until the handshake is done */
    bool eof;
    unsigned fetches; /* how often libssl may still ask for more; then it is told that there is none */
    int err;
    uint8_t first[2]; /* the first bytes that came, to tell a peer that does not speak TLS */
    uint64_t received, sent;
};

PQ_MUST_CHECK int pq_transport_method(BIO_METHOD **out);
void pq_transport_init(struct pq_transport *t, int fd, struct pq_transport *other);
void pq_transport_free(struct pq_transport *t);
/* NULL when out of memory. */
BIO *pq_transport_bio(struct pq_transport *t, OSSL_LIB_CTX *lib, const BIO_METHOD *method);
/* Sends what was collected: true when nothing is left. False: err says why; EAGAIN: call again when writable. */
bool pq_transport_flush(struct pq_transport *t);
/* Bytes that came and libssl has not taken. */
static inline size_t pq_transport_waiting(const struct pq_transport *t) { return t->in.len; }
/* What came first can't be a TLS record (RFC 8446, section 5.1). */
bool pq_transport_not_tls(const struct pq_transport *t);

#endif
