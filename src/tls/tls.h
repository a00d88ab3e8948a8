/* tls.h - TLS 1.3 by policy: policy to SSL_CTX, the handshake as a resumable step, and what was negotiated.
 *
 * Spec:   RFC 8446; names checked as RFC 9525 says; groups and signature schemes by crypto/suite.h.
 * Owns:   a context is not changed once it is made, and outlives its connections (reference counted, atomically): the
 *         connections of several threads may share it. A connection belongs to one thread at a time and may be handed
 *         on between two calls. It owns its SSL, not the descriptor. Keys are wiped when the context is freed.
 * Errors: PQ_E_WANT_READ and PQ_E_WANT_WRITE: call again when the descriptor is ready. PQ_E_CLOSED: close_notify came.
 *         PQ_E_RESET: the transport ended without one. PQ_E_AUTH, PQ_E_POLICY, PQ_E_PROTOCOL: see pq_tls_reason().
 *         PQ_E_CONFIG, PQ_E_NOENT: files and settings, why says which.
 */
#ifndef PQ_TLS_TLS_H
#define PQ_TLS_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/config.h"
#include "base/files.h"
#include "crypto/crypto.h"
#include "crypto/suite.h"

enum { PQ_TLS_RECORD = 16384 }; /* bytes that one record carries at most: RFC 8446, section 5.1 */

enum pq_tls_role { PQ_TLS_CLIENT, PQ_TLS_SERVER };

/* A policy is a mode and a level, or explicit lists that replace each part. */
struct pq_tls_policy {
    int mode;                              /* enum pq_mode, never PLAIN */
    int64_t level;                         /* 1, 3, 5 */
    char *groups, *sigalgs, *ciphersuites; /* NULL: the suite's */
    bool require_pq_kex;                   /* the negotiated group is hybrid or PQ */
    bool require_pq_auth; /* the handshake's signature, every signature on the path and the anchor's key are PQ or
                             hybrid */
};
/* {mode:, level:, groups:, sigalgs:, ciphersuites:, require: [pq-kex, pq-auth]}; default hybrid, 3, nothing required.
 */
extern const struct pq_schema pq_tls_policy_schema;

/* What becomes of a certificate whose issuer's revocation list is past its nextUpdate, or is missing. */
enum pq_tls_crl_stale { PQ_TLS_CRL_REFUSE, PQ_TLS_CRL_WARN };

enum { PQ_TLS_IDENTITIES_MAX = 4 };
struct pq_tls_identity {
    char *certificate; /* PEM: leaf, then intermediates */
    char *key;         /* PEM, any PKCS#8 form; or the URI of a key in a token, see crypto/token.h */
};
struct pq_tls_ticket_keys;
struct pq_tls_settings {
    struct pq_tls_policy policy;
    /* NULL: the paths below are read from the file system; else their contents are here, and nothing is read. */
    const struct pq_files *files;
    const char *pkcs11_module; /* for keys in a token; NULL: there are none */
    /* At most PQ_TLS_IDENTITIES_MAX, of different kinds of keys. A server needs one; a client without is not
     * authenticated. */
    const struct pq_tls_identity *identities;
    size_t identity_count;
    char *ca;         /* PEM: trust anchors; NULL: none, so every peer with verify_peer is refused */
    char *crl;        /* PEM, may hold several; NULL: revocation is not checked */
    int crl_stale;    /* enum pq_tls_crl_stale */
    bool verify_peer; /* a server then demands a certificate; a client without it accepts any (never by default) */
    const struct pq_strings *alpn; /* protocols, "h2", most wanted first; NULL: none */
    bool alpn_optional;            /* server: a client that offers none of them is served without ALPN */
    /* client: the first ClientHello has a classical key share alone and fits one segment. The groups of the policy
     * stand in it, so that a server which prefers one asks for its share; one that takes the classical share is refused
     * unless the policy lists that group (and does not require pq-kex). */
    bool first_flight_classical;
    bool judge_only; /* for pq_tls_recheck() alone: no identity is loaded, so a server can't be made of it */
    /* Sessions are resumed, with a new key exchange (psk_dhe_ke), each ticket once, no early data. What authenticated
     * the peer at first travels with the session and is judged anew, by the present anchors, lists, names, policy and
     * time; if it does not hold, a full handshake takes place. A server does so only with tickets, which outlive the
     * context. */
    bool resume;
    struct pq_tls_ticket_keys *tickets;
    bool split_flights; /* handshake flights leave as libssl writes them, 4 KB at a time; only to reproduce studies */
    int64_t max_certificate_list; /* bytes; 0: 24 KiB, more where an authority or the policy's schemes need it */
};

/* The keys that a server seals its session tickets with: the current one and the one before. Lies in memory that
 * processes share: one of them writes, any number read, and none waits for another. Zero: no keys, so no tickets. */
enum { PQ_TLS_TICKET_KEYS_SIZE = 2 * 88 };
struct pq_tls_ticket_keys {
    _Atomic uint32_t sequence; /* odd while being written */
    _Atomic uint64_t words[PQ_TLS_TICKET_KEYS_SIZE / 8];
};
/* To be called every minute or so with pq_clock_ns(): makes a new key when the current one has had its hour, and drops
 * what is older than the one before. PQ_E_CRYPTO: the system gives no random bytes, and nothing is changed. */
PQ_MUST_CHECK int pq_tls_ticket_keys_rotate(struct pq_tls_ticket_keys *k, int64_t now);
/* For another process that takes the writer's place; the caller wipes what it saved. */
void pq_tls_ticket_keys_save(const struct pq_tls_ticket_keys *k, uint8_t out[PQ_TLS_TICKET_KEYS_SIZE]);
void pq_tls_ticket_keys_load(struct pq_tls_ticket_keys *k, const uint8_t in[PQ_TLS_TICKET_KEYS_SIZE]);
void pq_tls_ticket_keys_wipe(struct pq_tls_ticket_keys *k);

/* Reads all that the paths name into a set, for files above. */
PQ_MUST_CHECK int pq_tls_settings_files(const struct pq_tls_settings *how, struct pq_files *out, struct pq_why *why);

/* Finds the keys that are in a token, before its files are out of reach; contexts then use what was found. */
PQ_MUST_CHECK int pq_tls_settings_keys(struct pq_crypto *c, const struct pq_tls_settings *how, struct pq_why *why);

struct pq_tls_context;
PQ_MUST_CHECK int pq_tls_context_new(struct pq_crypto *c, enum pq_tls_role role, const struct pq_tls_settings *how,
                                     struct pq_tls_context **out, struct pq_why *why);
struct pq_tls_context *pq_tls_context_ref(struct pq_tls_context *t); /* one reference more; the same context */
void pq_tls_context_free(struct pq_tls_context *t);                  /* drops one reference */
PQ_DEFINE_FREEP(struct pq_tls_context, pq_tls_context_free)
enum pq_tls_role pq_tls_context_role(const struct pq_tls_context *t);

/* Why a handshake or connection failed: the label of log lines and counters. */
#define PQ_TLS_REASONS(X)                                                                                              \
    X(NONE, "ok")                                                                                                      \
    X(EXPIRED, "expired")                                                                                              \
    X(NOT_YET_VALID, "not-yet-valid")                                                                                  \
    X(WRONG_NAME, "wrong-name")                                                                                        \
    X(UNTRUSTED, "untrusted")                                                                                          \
    X(REVOKED, "revoked")                                                                                              \
    X(CRL_STALE, "crl-stale")                                                                                          \
    X(CRL_MISSING, "crl-missing")                                                                                      \
    X(CRL_INVALID, "crl-invalid")                                                                                      \
    X(BAD_CERTIFICATE, "bad-certificate")                                                                              \
    X(NO_CERTIFICATE, "no-certificate")                                                                                \
    X(CERTIFICATES_TOO_LONG, "certificates-too-long")                                                                  \
    X(VERSION, "protocol-version")                                                                                     \
    X(NO_SHARED_GROUP, "no-shared-group")                                                                              \
    X(NO_SHARED_SIGALG, "no-shared-signature-algorithm")                                                               \
    X(NO_SHARED_CIPHER, "no-shared-cipher")                                                                            \
    X(POLICY_KEX, "policy-pq-kex")                                                                                     \
    X(POLICY_AUTH, "policy-pq-auth")                                                                                   \
    X(KEY_UPDATES, "key-updates")                                                                                      \
    X(ALPN, "no-application-protocol")                                                                                 \
    X(NOT_TLS, "not-tls")                                                                                              \
    X(PEER_ALERT, "peer-alert")                                                                                        \
    X(RESET, "reset")                                                                                                  \
    X(TIMEOUT, "timeout")                                                                                              \
    X(PROTOCOL, "protocol-error")                                                                                      \
    X(INTERNAL, "internal-error")
enum pq_tls_reason {
#define X(name, label) PQ_TLS_##name,
    PQ_TLS_REASONS(X)
#undef X
        PQ_TLS_REASON_COUNT
};
const char *pq_tls_reason_label(enum pq_tls_reason r);

/* What was negotiated; after a failure the group and the peer, as far as it came. Texts live as long as the connection.
 */
struct pq_tls_info {
    const char *version;   /* "TLSv1.3" */
    const char *group;     /* "X25519MLKEM768" */
    const char *signature; /* the peer's in CertificateVerify, "mldsa65"; "" where it sent none (also when resumed) */
    const char *own_signature; /* ours, which tells the identity that was shown; "" where we sent none */
    const char *cipher;
    const char *peer; /* the peer certificate's subject, RFC 2253; "" where there is none */
    const char *alpn; /* "" where none */
    bool resumed, hello_retry, pq_kex;
    bool pq_auth;      /* of the peer; false where it showed no certificate or none was verified */
    int64_t chain_ns;  /* spent on verifying the peer's chain */
    int64_t cpu_ns;    /* thread CPU time spent in pq_tls_handshake() */
    int64_t not_after; /* the earliest of the peer's path, seconds since 1970; 0: unknown */
};

struct pq_tls;
/* fd is non-blocking; name is what the peer's certificate must show (DNS name, IP address, or "urn:uuid:..." URI), or
 * NULL. names are alternatives, each of them enough; at most 64, else or if one is no name PQ_E_INVALID. */
PQ_MUST_CHECK int pq_tls_new(struct pq_tls_context *context, int fd, const struct pq_strings *names,
                             struct pq_tls **out);
void pq_tls_free(struct pq_tls *t);
PQ_DEFINE_FREEP(struct pq_tls, pq_tls_free)

/* One step: 0 when finished and policy holds; a failure stays. Under TLS 1.3 a client is done before the server has
 * judged its certificate: that the server refused it shows in the first read (PQ_E_AUTH, PQ_TLS_PEER_ALERT). */
PQ_MUST_CHECK int pq_tls_handshake(struct pq_tls *t);
/* 0 and *n > 0 bytes moved. */
PQ_MUST_CHECK int pq_tls_read(struct pq_tls *t, void *out, size_t size, size_t *n);
/* After PQ_E_WANT_*, call again with the same bytes at the front (their address may differ). */
PQ_MUST_CHECK int pq_tls_write(struct pq_tls *t, const void *bytes, size_t size, size_t *n);
/* Sends close_notify: the end of our direction; reading goes on. Once is enough, more do nothing. PQ_E_USAGE while a
 * write still has to be called again: half a record is out. */
PQ_MUST_CHECK int pq_tls_close_notify(struct pq_tls *t);
/* Bytes that came and were not yet read, which poll(2) won't tell of: as many as are decrypted; 1 where some are not,
 * which may be no whole record. After pq_tls_handshake() there may be some already. */
size_t pq_tls_pending(const struct pq_tls *t);
/* While held, reads give what has come already and take nothing more from the descriptor: so a turn of a loop ends
 * soon, and leaves nothing behind that poll(2) would not tell of. */
void pq_tls_hold(struct pq_tls *t, bool on);
/* For one that is never idle for long: what libssl needs for a record stays allocated between two (34 KB). */
void pq_tls_keep_buffers(struct pq_tls *t);
/* The peer has shown that it accepts us: at a server, and on a resumed connection, always once the handshake is done,
 * at a client else once a ticket or data came. */
bool pq_tls_accepted(const struct pq_tls *t);

const struct pq_tls_info *pq_tls_info(const struct pq_tls *t);
enum pq_tls_reason pq_tls_reason(const struct pq_tls *t);
/* One sentence of what failed and what to do: "the peer's certificate expired on 2026-11-01 (CN=amf): renew it". */
const char *pq_tls_failure(const struct pq_tls *t);

/* Whether the peer of a finished connection, resumed ones too, satisfies another context, that of a reload: its policy,
 * trust anchors, revocation lists, these names (NULL: any), and the time that has passed. 0, or PQ_E_AUTH or
 * PQ_E_POLICY with the reason and a sentence. Called by whose connection it is; the context may be in use anywhere. It
 * works on what was noted at the handshake: a few microseconds, no signature is verified. */
PQ_MUST_CHECK int pq_tls_recheck(struct pq_tls *t, struct pq_tls_context *now, const struct pq_strings *names,
                                 enum pq_tls_reason *reason, struct pq_why *why);
/* The earliest notAfter of our own chains, seconds since 1970; 0: there is none. */
int64_t pq_tls_context_not_after(const struct pq_tls_context *c);

/* A full handshake of two contexts through memory, no network: what its CPU costs on this machine. */
struct pq_tls_memory_cost {
    int64_t total_ns, client_cpu_ns, server_cpu_ns;
    uint64_t client_bytes, server_bytes;
};
PQ_MUST_CHECK int pq_tls_memory_handshake(struct pq_tls_context *client, struct pq_tls_context *server,
                                          struct pq_tls_memory_cost *out, struct pq_why *why);

#endif
