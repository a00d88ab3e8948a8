/* counters.h - what the proxy counts, and the reasons that its log lines and counters share.
 *
 * Spec:   a connection's reason is one of these, or pq_tls_reason_label() where TLS failed.
 * Owns:   nothing.
 * Errors: none.
 */
#ifndef PQ_PROXY_COUNTERS_H
#define PQ_PROXY_COUNTERS_H

#include <stdint.h>

#include "base/log.h"
#include "tls/tls.h"

/* X(name, label, level of its log line) */
#define PQ_PROXY_ENDS(X)                                                                                               \
    X(END, "end", INFO)                                                                                                \
    X(RESET_BY_PEER, "reset-by-peer", INFO)                                                                            \
    X(RESET_BY_LOCAL, "reset-by-local", INFO)                                                                          \
    X(IDLE, "idle", INFO)                                                                                              \
    X(DRAIN, "drain", WARN)                                                                                            \
    X(CONNECT_REFUSED, "connect-refused", WARN)                                                                        \
    X(CONNECT_TIMEOUT, "connect-timeout", WARN)                                                                        \
    X(CONNECT_FAILED, "connect-failed", WARN)                                                                          \
    X(LIMIT, "limit", WARN)                                                                                            \
    X(DESCRIPTORS, "descriptors", WARN)                                                                                \
    X(MEMORY, "out-of-memory", ERROR)                                                                                  \
    X(TLS, "tls", WARN)
enum pq_proxy_end {
#define X(name, label, level) PQ_PROXY_##name,
    PQ_PROXY_ENDS(X)
#undef X
        PQ_PROXY_END_COUNT
};
const char *pq_proxy_end_label(enum pq_proxy_end e);
enum pq_log_level pq_proxy_end_level(enum pq_proxy_end e);

struct pq_proxy_counters {
    uint64_t accepted;
    uint64_t established; /* both sides connected, policy held */
    uint64_t bytes_up, bytes_down;
    uint64_t pauses; /* of accepting, for want of descriptors */
    uint64_t ends[PQ_PROXY_END_COUNT];
    uint64_t tls[PQ_TLS_REASON_COUNT]; /* of which ends[PQ_PROXY_TLS] is the sum */
};

/* "end=12 idle=1 expired=2": those that are not zero. What does not fit is cut. */
void pq_proxy_counters_text(const struct pq_proxy_counters *c, char *out, size_t size);

#endif
