/* record_json.h - the inside of a record, for the two files that keep and print it.
 *
 * Spec:   docs/results.md, schema 1.
 * Owns:   see record.h.
 * Errors: see record.h.
 */
#ifndef PQ_LAB_RECORD_JSON_H
#define PQ_LAB_RECORD_JSON_H

#include "lab/record.h"

struct pq_record_sample {
    double value, at_ms;
    int64_t round;
};
struct pq_record_series {
    struct pq_record_sample *at;
    size_t count, size, before; /* before: count when the visit began */
};
struct pq_record_failure {
    char *reason;
    uint64_t count;
};
struct pq_record_cell {
    struct pq_record_series *series; /* by the experiment's metrics */
    struct pq_record_failure *errors;
    size_t error_count, error_size;
};
struct pq_record_calibration {
    int64_t round;
    double at_ms, work_ms, steal_ms;
};

struct pq_record {
    const struct pq_experiment *x;
    int64_t origin_ns;
    struct pq_record_cell *cells;
    struct pq_record_cell *now;
    int64_t round;
    struct pq_record_calibration *calibration;
    size_t calibration_count, calibration_size;
    char **notes;
    size_t note_count, note_size;
};

#endif
