/* metrics.h - a worker's counters, written as things happen, and the text that Prometheus reads.
 *
 *   pq_metrics_accepted -> [pq_metrics_connected] -> [pq_metrics_handshake] -> [pq_metrics_established] ->
 *   pq_metrics_ended, or right after accept pq_metrics_refused
 *
 * Spec:   Prometheus exposition format 0.0.4; docs/metrics.md lists what there is. Counters never go down while the
 *         supervisor lives: a dead worker's stay in the sum. Durations are in seconds.
 * Owns:   nothing. One thread writes to a struct pq_proxy_counters, others read; none ever waits.
 * Errors: PQ_E_NOMEM, PQ_E_TOO_LONG (out->cap).
 */
#ifndef PQ_PROXY_METRICS_H
#define PQ_PROXY_METRICS_H

#include "base/bytes.h"
#include "proxy/counters.h"

/* --- written by the worker --------------------------------------------------------------------------------------- */
void pq_metrics_accepted(struct pq_proxy_counters *c, enum pq_proxy_direction d);
void pq_metrics_refused(struct pq_proxy_counters *c, enum pq_proxy_direction d, enum pq_proxy_end why);
void pq_metrics_connected(struct pq_proxy_counters *c, enum pq_proxy_direction d, int64_t duration_ns);
/* Of a handshake that succeeded (PQ_TLS_NONE) or failed; i may be NULL where there is nothing to tell. */
void pq_metrics_handshake(struct pq_proxy_counters *c, enum pq_proxy_direction d, const struct pq_tls_info *i,
                          enum pq_tls_reason reason, int64_t duration_ns);
void pq_metrics_established(struct pq_proxy_counters *c, enum pq_proxy_direction d);
void pq_metrics_bytes(struct pq_proxy_counters *c, enum pq_proxy_direction d, uint64_t up, uint64_t down);
/* reason counts only with PQ_PROXY_TLS. */
void pq_metrics_ended(struct pq_proxy_counters *c, enum pq_proxy_direction d, enum pq_proxy_end why,
                      enum pq_tls_reason reason, int64_t duration_ns);
/* Beside pq_metrics_ended(): the connection ends because a reload's rules no longer allow it. */
void pq_metrics_rechecked(struct pq_proxy_counters *c, enum pq_proxy_direction d, enum pq_tls_reason reason);

/* An accepted connection turned out to be a tunnel. */
void pq_metrics_became_tunnel(struct pq_proxy_counters *c, enum pq_proxy_direction d);
/* A tunnel that could not be opened, or whose peer broke the rules; reason counts only with PQ_PROXY_TLS. */
void pq_metrics_tunnel_refused(struct pq_proxy_counters *c, enum pq_proxy_direction d, enum pq_proxy_end why,
                               enum pq_tls_reason reason);
void pq_metrics_tunnel_opened(struct pq_proxy_counters *c, enum pq_proxy_direction d);
void pq_metrics_tunnel_ended(struct pq_proxy_counters *c, enum pq_proxy_direction d, bool lost);
void pq_metrics_stream_opened(struct pq_proxy_counters *c, enum pq_proxy_direction d);
void pq_metrics_stream_ended(struct pq_proxy_counters *c, enum pq_proxy_direction d, bool lost);

void pq_metrics_in_flight(struct pq_proxy_counters *c, int64_t handshakes);
void pq_metrics_paused(struct pq_proxy_counters *c);

/* --- read by anyone ---------------------------------------------------------------------------------------------- */
struct pq_metrics_worker {
    const struct pq_proxy_counters *counters;
    bool wanted, up; /* one that is no longer wanted only adds what it counted */
    uint64_t restarts;
};
struct pq_metrics_certificate {
    const char *listener, *direction, *algorithm; /* of the leaf's key */
    size_t identity;                              /* 0: the first of its listener */
    int64_t not_after;                            /* the earliest of its chain, unix seconds */
};
/* Of an authority or a revocation list, the number-th of its file. */
struct pq_metrics_date {
    const char *file, *name;
    size_t number;
    int64_t at; /* unix seconds */
};
struct pq_metrics {
    const struct pq_metrics_worker *workers;
    size_t worker_count;
    const struct pq_metrics_certificate *certificates;
    size_t certificate_count;
    const struct pq_metrics_date *authorities, *revocation_lists;
    size_t authority_count, revocation_list_count;
    const char *tls_library; /* "OpenSSL 3.6.0" */
    int64_t started;         /* unix seconds */
    uint64_t generation;
    uint64_t reloads, reloads_refused;
    bool reload_refused; /* the latest one */
    uint64_t log_lines_dropped;
};
PQ_MUST_CHECK int pq_metrics_text(const struct pq_metrics *m, struct pq_buf *out);

#endif
