/* load_record.h - the samples of a load run and their JSON.
 *
 * Spec:   {"workload","connection","cpu_ns","wall_ns","samples":[{...}],"errors":[{"reason","count"}]}; times in
 *         nanoseconds, 0 where a part does not apply; the order of samples is that of the requests.
 * Owns:   its samples and reasons until pq_load_record_free().
 * Errors: PQ_E_NOMEM, PQ_E_TOO_LONG (the caller's buffer).
 */
#ifndef PQ_CORE5G_LOAD_RECORD_H
#define PQ_CORE5G_LOAD_RECORD_H

#include "base/bytes.h"

struct pq_load_sample {
    int64_t at_ns, total_ns, tcp_ns, tls_ns, chain_ns, http_ns;
    int status;
    uint64_t bytes;
};

enum { PQ_LOAD_REASONS = 64 };

struct pq_load_record {
    const char *workload, *connection;
    int64_t cpu_ns, wall_ns;
    struct pq_load_sample *samples;
    size_t count, size;
    struct {
        char *reason;
        uint64_t count;
    } errors[PQ_LOAD_REASONS];
    size_t error_count;
};

PQ_MUST_CHECK int pq_load_record_sample(struct pq_load_record *r, const struct pq_load_sample *s);
PQ_MUST_CHECK int pq_load_record_error(struct pq_load_record *r, const char *reason);
PQ_MUST_CHECK int pq_load_record_write(const struct pq_load_record *r, struct pq_buf *out);
void pq_load_record_free(struct pq_load_record *r);

#endif
