/* counters.h - what the proxy counts, and the reasons that its log lines and counters share.
 *
 * Spec:   a connection's reason is one of these, or pq_tls_reason_label() where TLS failed. The counters live in shared
 *         memory, one struct for each worker: its relay thread alone writes (proxy/metrics.h), anyone may read. All
 *         zero is a valid start. A gauge is a counter that also goes down.
 * Owns:   nothing.
 * Errors: none.
 */
#ifndef PQ_PROXY_COUNTERS_H
#define PQ_PROXY_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/log.h"
#include "proxy/config.h"
#include "tls/tls.h"

/* X(name, label, level of its log line) */
#define PQ_PROXY_ENDS(X)                                                                                               \
    X(END, "end", INFO)                                                                                                \
    X(RESET_BY_PEER, "reset-by-peer", INFO)                                                                            \
    X(RESET_BY_LOCAL, "reset-by-local", INFO)                                                                          \
    X(IDLE, "idle", INFO)                                                                                              \
    X(DRAIN, "drain", WARN)                                                                                            \
    X(NOT_ALLOWED, "no-longer-allowed", WARN)                                                                          \
    X(CONNECT_REFUSED, "connect-refused", WARN)                                                                        \
    X(CONNECT_TIMEOUT, "connect-timeout", WARN)                                                                        \
    X(CONNECT_FAILED, "connect-failed", WARN)                                                                          \
    X(SOURCE_RATE, "source-rate", WARN)                                                                                \
    X(STRANGER_RATE, "stranger-rate", WARN)                                                                            \
    X(HANDSHAKES, "handshakes", WARN)                                                                                  \
    X(LIMIT, "limit", WARN)                                                                                            \
    X(DESCRIPTORS, "descriptors", WARN)                                                                                \
    X(NOT_REDIRECTED, "not-redirected", WARN)                                                                          \
    X(FORBIDDEN, "forbidden-destination", WARN)                                                                        \
    X(LOOP, "loop", WARN)                                                                                              \
    X(MEMORY, "out-of-memory", ERROR)                                                                                  \
    X(NO_TUNNEL, "no-tunnel", WARN)                                                                                    \
    X(TUNNEL_LOST, "tunnel-lost", WARN)                                                                                \
    X(TUNNEL_PROTOCOL, "tunnel-protocol", WARN)                                                                        \
    X(TUNNEL_FLOOD, "tunnel-flood", WARN)                                                                              \
    X(CONNECT_FORBIDDEN, "connect-forbidden", WARN)                                                                    \
    X(BAD_REQUEST, "bad-request", WARN)                                                                                \
    X(TLS, "tls", WARN)
enum pq_proxy_end {
#define X(name, label, level) PQ_PROXY_##name,
    PQ_PROXY_ENDS(X)
#undef X
        PQ_PROXY_END_COUNT
};
const char *pq_proxy_end_label(enum pq_proxy_end e);
enum pq_proxy_end pq_proxy_end_of_connect(int e); /* a connect that failed with that PQ_E_ code */
enum pq_log_level pq_proxy_end_level(enum pq_proxy_end e);

enum {
    PQ_PROXY_DIRECTIONS = PQ_PROXY_EGRESS + 1,
    PQ_HISTOGRAM_BOUNDS = 14,
    PQ_SERIES_MAX = 256, /* handshake series of one worker; what is beyond counts as "other" */
    PQ_SERIES_TEXT = 40, /* of a name in them, with its NUL; longer ones are cut */
};

struct pq_histogram {
    _Atomic uint64_t bucket[PQ_HISTOGRAM_BOUNDS + 1]; /* each by itself; the last holds what is above every bound */
    _Atomic uint64_t sum_ns;
};

/* Upper bounds in ns: of what a connection waits for, and of its life. */
extern const int64_t pq_histogram_brief[PQ_HISTOGRAM_BOUNDS], pq_histogram_lasting[PQ_HISTOGRAM_BOUNDS];

/* Finished handshakes that have all of this in common. */
struct pq_handshake_key {
    char group[PQ_SERIES_TEXT], signature[PQ_SERIES_TEXT], own_signature[PQ_SERIES_TEXT];
    int8_t direction, resumed, hello_retry;
    uint8_t reason; /* enum pq_tls_reason; PQ_TLS_NONE: it succeeded */
};
struct pq_handshake_series {
    struct pq_handshake_key key; /* written once, before the table's count includes it */
    _Atomic uint64_t count;
};

struct pq_direction_counters {
    _Atomic uint64_t accepted, established; /* established: both sides connected, policy held */
    _Atomic uint64_t bytes_up, bytes_down;  /* from the function, to the function */
    _Atomic uint64_t ends[PQ_PROXY_END_COUNT];
    _Atomic uint64_t tls[PQ_TLS_REASON_COUNT];      /* of which ends[PQ_PROXY_TLS] is the sum */
    _Atomic uint64_t rechecks[PQ_TLS_REASON_COUNT]; /* connections that a reload's new rules end */
    _Atomic uint64_t policy_kex, policy_auth;       /* refused, by a handshake or a recheck */
    _Atomic uint64_t handshake_cpu_ns;
    _Atomic uint64_t other[PQ_TLS_REASON_COUNT]; /* handshakes that found no room among the series */
    _Atomic uint64_t tunnels_opened, tunnels_lost, streams_opened, streams_lost;
    struct pq_histogram connect, handshake[2], connection; /* handshake: full, resumed; those that succeeded */
    struct {
        _Atomic uint64_t connections, tunnels, streams;
    } open;
};

struct pq_proxy_counters {
    struct pq_direction_counters direction[PQ_PROXY_DIRECTIONS];
    _Atomic uint64_t pauses; /* of accepting, for want of descriptors */
    struct {
        _Atomic uint64_t handshakes; /* in flight */
    } open;
    _Atomic uint64_t series_count;
    struct pq_handshake_series series[PQ_SERIES_MAX];
};

/* Those of all directions: "end=12 idle=1 expired=2", but not those that are zero. What does not fit is cut. */
void pq_proxy_counters_text(const struct pq_proxy_counters *c, char *out, size_t size);
/* The line of what was counted in all, under that event. */
void pq_proxy_counters_log(const struct pq_proxy_counters *c, const char *event, uint64_t lines_dropped);
/* Adds all but the series. sum is the caller's alone. */
void pq_proxy_counters_add(struct pq_proxy_counters *sum, const struct pq_proxy_counters *one);
/* After a worker's death: nothing of it is open any more. */
void pq_proxy_counters_close(struct pq_proxy_counters *c);

#endif
