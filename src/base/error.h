/* error.h - the one error convention: a function returns 0 or a negative enum pq_error.
 *
 * Spec:   none; whose failure it was (the peer's, ours, a resource's) follows from the row of the table.
 * Owns:   nothing. A struct pq_why belongs to the caller and needs no freeing.
 * Errors: PQ_E_WANT_READ and PQ_E_WANT_WRITE are no failures: call again when the descriptor is ready.
 */
#ifndef PQ_BASE_ERROR_H
#define PQ_BASE_ERROR_H

#define PQ_MUST_CHECK        __attribute__((warn_unused_result))
#define PQ_PRINTF(at, first) __attribute__((format(printf, at, first)))

enum pq_blame { PQ_BLAME_PEER, PQ_BLAME_US, PQ_BLAME_RESOURCE };

/* X(name, blame, text) */
#define PQ_ERRORS(X)                                                                                                   \
    X(NOMEM, RESOURCE, "out of memory")                                                                                \
    X(IO, RESOURCE, "input/output error")                                                                              \
    X(NOENT, RESOURCE, "no such file")                                                                                 \
    X(EXISTS, US, "already exists")                                                                                    \
    X(PERMISSION, RESOURCE, "permission denied")                                                                       \
    X(LIMIT, RESOURCE, "limit reached")                                                                                \
    X(UNSUPPORTED, RESOURCE, "not supported on this host")                                                             \
    X(USAGE, US, "wrong usage")                                                                                        \
    X(CONFIG, US, "wrong configuration")                                                                               \
    X(INVALID, US, "invalid argument")                                                                                 \
    X(CRYPTO, US, "the cryptographic library failed")                                                                  \
    X(WANT_READ, RESOURCE, "waiting for data")                                                                         \
    X(WANT_WRITE, RESOURCE, "waiting for room to write")                                                               \
    X(TIMEOUT, PEER, "timed out")                                                                                      \
    X(REFUSED, PEER, "connection refused")                                                                             \
    X(RESET, PEER, "connection reset")                                                                                 \
    X(CLOSED, PEER, "end of stream")                                                                                   \
    X(TRUNCATED, PEER, "message ends early")                                                                           \
    X(TOO_LONG, PEER, "message longer than its limit")                                                                 \
    X(TYPE, PEER, "unknown type")                                                                                      \
    X(SYNTAX, PEER, "malformed message")                                                                               \
    X(PROTOCOL, PEER, "protocol violation")                                                                            \
    X(AUTH, PEER, "authentication failed")                                                                             \
    X(POLICY, PEER, "refused by policy")                                                                               \
    X(NOT_FOUND, PEER, "not found")                                                                                    \
    X(INTERRUPTED, US, "interrupted")

enum pq_error {
    PQ_E_BASE = -1000,
#define X(name, blame, text) PQ_E_##name,
    PQ_ERRORS(X)
#undef X
        PQ_E_END
};

/* The text of a code ("out of memory") and its name ("NOMEM"); "success"/"OK" for 0, never NULL. */
const char *pq_error_text(int code);
const char *pq_error_name(int code);
enum pq_blame pq_error_blame(int code);

/* The error that stands for an errno value. */
PQ_MUST_CHECK int pq_error_from_errno(int err);

/* What a person reads: what was wrong, where, and what to do; one sentence. */
struct pq_why {
    char text[1024];
};

/* Writes the sentence (why may be NULL) and returns code, so that a failing path is one statement. */
int pq_why(struct pq_why *why, int code, const char *format, ...) PQ_PRINTF(3, 4);
/* Puts "context: " before the sentence that is there. Returns code. */
int pq_why_in(struct pq_why *why, int code, const char *format, ...) PQ_PRINTF(3, 4);

#endif
