/* record.h - what a run has measured: every sample with its round and time, failures by reason, calibration, notes; and
 * results.json made of it.
 *
 * Spec:   docs/results.md, schema 1.
 * Owns:   pq_record_free() frees all; the experiment must outlive the record.
 * Errors: PQ_E_NOMEM; PQ_E_INVALID (a value that is no finite number); pq_record_write(): what pq_file_write() gives.
 */
#ifndef PQ_LAB_RECORD_H
#define PQ_LAB_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "lab/experiment.h"

enum { PQ_REASON_MAX = 500 }; /* bytes kept of a failure's reason */

struct pq_record;

/* origin_ns on the monotonic clock is where at_ms begins. */
PQ_MUST_CHECK int pq_record_new(const struct pq_experiment *x, int64_t origin_ns, struct pq_record **out);
void pq_record_free(struct pq_record *r);
PQ_DEFINE_FREEP(struct pq_record, pq_record_free)

/* What follows belongs to this visit of this cell. */
void pq_record_begin(struct pq_record *r, size_t cell, int64_t round);
/* A metric that the experiment does not name is left out. */
PQ_MUST_CHECK int pq_record_sample(struct pq_record *r, const char *metric, double value, int64_t at_ns);
PQ_MUST_CHECK int pq_record_error(struct pq_record *r, const char *reason, uint64_t count);
/* Takes the samples of the visit back: it failed, and half a visit is none. Its errors stay. */
void pq_record_undo(struct pq_record *r);

PQ_MUST_CHECK int pq_record_calibration(struct pq_record *r, int64_t round, int64_t at_ns, double work_ms,
                                        double steal_ms);
PQ_MUST_CHECK int pq_record_note(struct pq_record *r, const char *text);
/* Failures so far, of all cells. */
uint64_t pq_record_errors(const struct pq_record *r);

struct pq_record_facts {
    const char *version, *command;
    uint64_t seed;
    int64_t started_wall_ns, finished_wall_ns;
    bool complete;
    int64_t rounds; /* that were finished */
};
PQ_MUST_CHECK int pq_record_json(const struct pq_record *r, const struct pq_record_facts *facts, char **out,
                                 size_t *len, struct pq_why *why);
PQ_MUST_CHECK int pq_record_write(const struct pq_record *r, const struct pq_record_facts *facts, const char *path,
                                  struct pq_why *why);

#endif
