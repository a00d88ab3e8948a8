/* internal.h - what the files of this folder share: the two structs behind tls.h, and the parts of a handshake's
 * judgement.
 *
 * Spec:   RFC 8446.
 * Owns:   see tls.h.
 * Errors: see tls.h.
 */
#ifndef PQ_TLS_INTERNAL_H
#define PQ_TLS_INTERNAL_H

#include <openssl/ssl.h>

#include "tls/path.h"
#include "tls/tls.h"
#include "tls/transport.h"
#include "tls/trust.h"

struct pq_tls_context {
    SSL_CTX *ssl;
    BIO_METHOD *method;
    OSSL_LIB_CTX *lib; /* not owned */
    enum pq_tls_role role;
    bool verify_peer, require_pq_kex, require_pq_auth, split_flights;
    char *groups;           /* as OpenSSL has them */
    char *sigalgs;          /* what a peer may sign with; experimental algorithms count where named here */
    char *own_sigalgs;      /* what we sign with */
    const char *lone_share; /* the group of first_flight_classical where the policy does not list it, or NULL */
    struct pq_buf alpn;     /* each a length and a name: as ALPN sends it */
    bool alpn_optional;
    int64_t list_cap; /* bytes of a peer's certificate list */
    bool first_flight_classical;
    struct pq_tls_ticket_keys *tickets; /* not owned; NULL: no tickets */
    EVP_CIPHER *ticket_cipher;
    struct pq_tls_sessions *sessions; /* a client's, to be resumed; NULL: none */
    struct pq_tls_trust trust;
    int64_t not_after; /* the earliest of our chains, unix s; 0: none */
    _Atomic unsigned references;
};

enum { PQ_TLS_NAMES_MAX = 64 }; /* alternatives of one peer */

struct pq_tls {
    struct pq_tls_context *context;
    SSL *ssl;
    struct pq_transport transport;
    struct pq_strings names;
    struct pq_tls_info info;
    struct pq_buf path; /* what authenticated the peer, see path.h; empty where nothing did */
    bool done, path_is_pq, write_waits, read_closed, notified, cannot_write;
    bool held, accepted, forgot, spoilt, no_ticket;
    bool proved;                /* a CertificateVerify came; if the handshake has gone on since, it was right */
    struct pq_buf session_peer; /* whose sessions may be resumed */
    unsigned client_hellos;
    struct {
        unsigned count; /* messages after the handshake, less one for each second since */
        int64_t last;   /* ns, when the last came */
        size_t data;    /* bytes read since the count was last put to zero */
    } idle_talk;
    int code; /* what failed for good; 0: nothing yet */
    enum pq_tls_reason reason;
    char failure[512], peer[256], alpn[256];
};

/* Notes why a connection failed; what was noted first stays. Returns the code that stands. */
int pq_tls_blame(struct pq_tls *t, int code, enum pq_tls_reason reason, const char *format, ...) PQ_PRINTF(4, 5);
/* After a call of libssl that did not succeed: PQ_E_WANT_*, PQ_E_CLOSED, or the blame taken from OpenSSL's queue. */
PQ_MUST_CHECK int pq_tls_judge_failure(struct pq_tls *t, int returned);

/* Groups, signature schemes and cipher suites. */
PQ_MUST_CHECK int pq_tls_set_algorithms(struct pq_tls_context *c, const struct pq_tls_settings *how,
                                        struct pq_why *why);
/* 0, or PQ_E_POLICY and the blame: the negotiated group falls short of the policy. */
PQ_MUST_CHECK int pq_tls_judge_group(struct pq_tls *t);

/* One key of struct pq_tls_ticket_keys. */
struct pq_tls_ticket_key {
    uint8_t id[16], cipher[32], mac[32];
    int64_t since; /* pq_clock_ns() when it was made; 0: no key */
};
enum { PQ_TLS_TICKET_HOURS = 2 }; /* how long a ticket is good: its key's hour and the one after */
/* The key of this name, or with id NULL the current one. False: there is none, or it is too old. */
bool pq_tls_ticket_key_find(const struct pq_tls_ticket_keys *k, const uint8_t id[16], int64_t now,
                            struct pq_tls_ticket_key *out);

/* Tickets of a server, sessions of a client. */
PQ_MUST_CHECK int pq_tls_set_resumption(struct pq_tls_context *c, const struct pq_tls_settings *how,
                                        struct pq_why *why);
/* What goes with the session lets the peer in, now. */
bool pq_tls_session_holds(const struct pq_tls *t, SSL_SESSION *session);
/* Adds to a new session what a later handshake needs; false: it can't be resumed. */
bool pq_tls_session_complete(struct pq_tls *t, SSL_SESSION *session);
/* After a resumed handshake: what authenticated the peer, from the session. */
PQ_MUST_CHECK int pq_tls_session_resumed(struct pq_tls *t);
PQ_MUST_CHECK int pq_tls_sessions_new(struct pq_tls_context *c, struct pq_why *why);
void pq_tls_sessions_free(struct pq_tls_sessions *s);
/* A client that is to start: takes a session of its peer, if there is one that holds. */
PQ_MUST_CHECK int pq_tls_sessions_offer(struct pq_tls *t);
/* Of a path that holds: the leaf's subject, and whether all of its signatures are post-quantum. */
PQ_MUST_CHECK int pq_tls_path_told(const struct pq_tls_context *c, struct pq_span encoded, char subject[256], bool *pq);

/* wanted 0: what the largest algorithm in use needs. */
PQ_MUST_CHECK int pq_tls_set_list_cap(struct pq_tls_context *c, int64_t wanted, struct pq_why *why);
/* Of a Certificate message with its header. */
PQ_MUST_CHECK int pq_tls_count_certificates(struct pq_span message, size_t *out);
/* A Certificate message came and libssl has not looked at it yet. One of too many certificates is refused, since each
 * would cost ten times its size. */
void pq_tls_judge_list(struct pq_tls *t, const void *message, size_t len);
/* A callback can't refuse a message, but make of it one that can't be read. */
void pq_tls_spoil(const void *message, size_t len);

/* A handshake message came after the handshake. */
void pq_tls_note_idle_talk(struct pq_tls *t, int type);

/* Callbacks: the peer's chain, names and pq-auth; pq-kex at a server that sees no certificate. */
int pq_tls_verify_callback(X509_STORE_CTX *store, void *context);
int pq_tls_hello_callback(SSL *ssl, int *alert, void *context);
/* Every signature of the certificates and the leaf's key; for our own chain, whose anchor is not in it. */
bool pq_tls_chain_is_pq(const struct pq_tls_context *c, STACK_OF(X509) * chain);
bool pq_tls_signature_is_pq(const struct pq_tls_context *c, const char *name);
/* The name of the algorithm that signed a certificate, "" where it has none. */
enum { PQ_TLS_ALGORITHM_SIZE = 128 };
void pq_tls_signed_with(const X509 *x, char out[PQ_TLS_ALGORITHM_SIZE]);
/* Whether a list as OpenSSL takes them, "A:?B/C", allows what goes by this name. */
bool pq_tls_list_has(const char *list, const char *name);
/* Whether a certificate shows a DNS name, IP address or URI. */
bool pq_tls_shows_name(X509 *x, const char *name);

/* Makes t->path from what was verified, then adds what CertificateVerify was signed with (more than once does nothing).
 */
PQ_MUST_CHECK int pq_tls_path_begin(struct pq_tls *t, STACK_OF(X509) * chain);
PQ_MUST_CHECK int pq_tls_path_note(struct pq_tls *t);
/* Lets go of the peer's certificate once nothing more is to be learnt from it, and of the key exchange's keys once the
 * secret is there. */
void pq_tls_forget_certificate(struct pq_tls *t);
void pq_tls_forget_exchange(struct pq_tls *t);
/* pq_tls_recheck() at another time. */
PQ_MUST_CHECK int pq_tls_recheck_at(struct pq_tls *t, struct pq_tls_context *now, const struct pq_strings *names,
                                    int64_t now_s, enum pq_tls_reason *reason, struct pq_why *why);
/* "" before one is negotiated. */
const char *pq_tls_group(SSL *ssl);
/* A name that a peer may be asked to show. */
bool pq_tls_name_valid(const char *name);
bool pq_tls_name_is_dns(const char *name);

/* A connection over memory when other is not NULL. */
PQ_MUST_CHECK int pq_tls_new_over(struct pq_tls_context *context, int fd, struct pq_tls *other,
                                  const struct pq_strings *names, struct pq_tls **out);

#endif
