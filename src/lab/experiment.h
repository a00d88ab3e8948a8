/* experiment.h - an experiment file: an interface, factors with their values, load, repetitions; and its cells.
 *
 * Spec:   docs/experiments.md; YAML as in base/config.h.
 * Owns:   pq_experiment_free() frees all; a cell's values point into its experiment.
 * Errors: PQ_E_CONFIG with "FILE:LINE:COLUMN: ...", PQ_E_NOENT and the like for the files, PQ_E_NOMEM.
 */
#ifndef PQ_LAB_EXPERIMENT_H
#define PQ_LAB_EXPERIMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/config.h"
#include "lab/driver.h"

enum {
    PQ_VALUE_MAX = 32,           /* values of one factor */
    PQ_CELL_MAX = 1000,          /* cells of an experiment */
    PQ_EXPERIMENT_MAX = 1 << 20, /* bytes of an experiment's file and of a published study's */
};

/* "factor is one of values". */
struct pq_condition {
    size_t factor; /* index */
    struct pq_strings values;
};
/* All of them hold. A factor that is absent from the cell meets none. */
struct pq_match {
    struct pq_condition *at;
    size_t count;
};
struct pq_factor {
    char *name;
    struct pq_strings values;
    struct pq_match when; /* empty: always there */
};
struct pq_cell {
    const char *value[PQ_FACTOR_MAX]; /* by factor; NULL where absent */
};

struct pq_experiment {
    char *name, *title, *why, *published; /* title and published may be NULL */
    char *file, *text;                    /* as it was read */
    char *published_text;                 /* NULL where there is none */
    const struct pq_driver *driver;
    struct pq_factor factors[PQ_FACTOR_MAX];
    size_t factor_count;
    struct pq_match *exclude;
    size_t exclude_count;
    int64_t load[PQ_LOAD_MAX]; /* by driver->loads */
    int64_t repetitions;
    bool quick;
    struct pq_strings metrics;
    struct pq_cell *cells;
    size_t cell_count;
};

/* quick overlays what stands under "quick:". */
PQ_MUST_CHECK int pq_experiment_load(const char *path, bool quick, struct pq_experiment **out, struct pq_why *why);
/* Without the published study, whose file is not read. */
PQ_MUST_CHECK int pq_experiment_parse(const char *name, const char *text, size_t len, bool quick,
                                      struct pq_experiment **out, struct pq_why *why);
void pq_experiment_free(struct pq_experiment *x);
PQ_DEFINE_FREEP(struct pq_experiment, pq_experiment_free)

/* The cell's value of a factor: NULL where absent, the driver's standard where the experiment does not name the factor.
 */
const char *pq_cell_value(const struct pq_experiment *x, const struct pq_cell *cell, const char *factor);
/* "deployment=none connection=kept" */
void pq_cell_text(const struct pq_experiment *x, const struct pq_cell *cell, char *out, size_t size);
/* The order in which a round visits the cells: order[] holds x->cell_count indices. The same seed and round give the
 * same. */
void pq_cell_order(const struct pq_experiment *x, uint64_t seed, int64_t round, size_t *order);

/* --- for experiment.c and cells.c */
PQ_MUST_CHECK int pq_cells_fill(struct pq_experiment *x, struct pq_why *why);

#endif
