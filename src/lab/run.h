/* run.h - a run of an experiment: rounds, each of which visits every cell once in a seeded random order.
 *
 * Spec:   docs/architecture.md, "Measuring".
 * Owns:   everything that a run makes (processes, namespaces, links, keys, logs) lives in namespaces and in memory that
 * end with it, be it killed; only DIR/results.json stays. Errors: PQ_E_INTERRUPTED (what was measured is written,
 * "complete": false), PQ_E_PERMISSION (no namespaces), PQ_E_LIMIT (disk full), PQ_E_NOENT (no ip), PQ_E_CONFIG and what
 * drivers give, PQ_E_EXISTS (another run writes to the folder); why says what to do.
 */
#ifndef PQ_LAB_RUN_H
#define PQ_LAB_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "lab/experiment.h"
#include "lab/process.h"
#include "lab/record.h"

/* What a driver is told of the run. */
struct pq_lab {
    const struct pq_experiment *x;
    const char *program; /* pqplane itself, the very file that is running */
    const char *folder;  /* private, in memory, gone after the run */
    int stop_fd;
    struct pq_record *record;
};
struct pq_visit {
    const struct pq_lab *lab;
    const struct pq_cell *cell;
    int64_t round;
    const char *folder;             /* empty at the visit's begin, removed after it */
    struct pq_processes *processes; /* what is left in there is stopped after the visit */
};

struct pq_run_options {
    const char *out_folder;
    bool own_folder; /* made for this run: it goes again where nothing is written, as one that the run itself makes */
    const char *version, *command;
    uint64_t seed;
    bool bar; /* a progress bar on standard error, else a line a round */
};
struct pq_run_summary {
    bool written;              /* there is a results.json of this run */
    int64_t rounds;            /* finished */
    uint64_t visits, failures; /* failures: of requests and of whole visits */
};
/* Returns after the last round; 0 also with failures, as long as each round measured something. *sum is filled in any
 * case. */
PQ_MUST_CHECK int pq_run(const struct pq_experiment *x, const struct pq_run_options *how, struct pq_run_summary *sum,
                         struct pq_why *why);

#endif
