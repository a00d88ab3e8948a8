/* results.h - results.json, read and checked: every sample of one experiment.
 *
 * Spec:   results.json, schema 1 (docs/results.md). A file is at most 256 MiB; names are at most 64 KiB, texts 1 MiB.
 * Owns:   pq_results_parse() keeps no pointer into its input; all that *out points to lives until pq_results_free().
 * Errors: PQ_E_CONFIG (the sentence names the place: "cells[3].metrics.request_ms: ..."), PQ_E_UNSUPPORTED (another
 * schema), PQ_E_NOENT and the like (file), PQ_E_TOO_LONG, PQ_E_NOMEM. On error *out is untouched.
 */
#ifndef PQ_REPORT_RESULTS_H
#define PQ_REPORT_RESULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/stats.h"

enum {
    PQ_RESULTS_SCHEMA = 1,
    PQ_RESULTS_MAX_FILE = 256 << 20,
    PQ_RESULTS_MAX_CELLS = 10000,
    PQ_RESULTS_MAX_FACTORS = 64,  /* of a cell */
    PQ_RESULTS_MAX_METRICS = 256, /* of a cell */
    PQ_RESULTS_MAX_LIST = 100000, /* notes, calibration, reasons */
    PQ_RESULTS_MAX_NAME = 64 << 10,
    PQ_RESULTS_MAX_TEXT = 1 << 20
};

/* A name and its value as text: a factor, a fact about the host, a library's version. */
struct pq_fact {
    const char *name, *value;
    char *owned; /* the value, where the file has no text but a number, a list, ... */
};
struct pq_facts {
    struct pq_fact *at;
    size_t count;
};

struct pq_result_metric {
    const char *name, *unit;
    double *value, *at_ms; /* count of each */
    int64_t *round;
    size_t count;
    size_t rounds; /* how many differ */
};

struct pq_result_error {
    const char *reason;
    uint64_t count;
};

struct pq_result_cell {
    struct pq_facts factors;
    struct pq_result_metric *metrics;
    size_t metric_count;
    struct pq_result_error *errors;
    size_t error_count;
};

struct pq_result_calibration {
    int64_t round;
    double at_ms, work_ms, steal_ms;
};

struct pq_results {
    const char *version, *started, *finished, *command; /* "" where the file has none */
    const char *experiment, *experiment_text;
    const char *published_file, *published_text; /* both NULL where there is none */
    uint64_t seed;
    bool complete, quick;
    struct pq_facts host, libraries;
    struct pq_result_cell *cells;
    size_t cell_count;
    struct pq_result_calibration *calibration;
    size_t calibration_count;
    const char **notes;
    size_t note_count;
    void *document; /* holds the texts */
};

PQ_MUST_CHECK int pq_results_parse(struct pq_span text, struct pq_results **out, struct pq_why *why);
void pq_results_free(struct pq_results *r);
PQ_DEFINE_FREEP(struct pq_results, pq_results_free)

/* NULL where the cell has none of that name. */
const struct pq_result_metric *pq_result_metric(const struct pq_result_cell *cell, const char *name);
const char *pq_fact(struct pq_facts facts, const char *name);
/* The same names with the same values, in any order. */
bool pq_facts_equal(struct pq_facts a, struct pq_facts b);
struct pq_samples pq_result_samples(const struct pq_result_metric *m);

#endif
