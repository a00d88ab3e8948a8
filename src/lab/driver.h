/* driver.h - what an interface's driver offers the lab: the factors and metrics it knows, and how a cell is visited
 * once.
 *
 * Spec:   none. A driver is picked by the experiment's `interface:`. The lab's core knows of no protocol, and a driver
 *         nothing of repetitions, order or files of results.
 * Owns:   a driver's state is its own, from prepare() to finish().
 * Errors: prepare() failing ends the run. visit() failing is counted as an error of its cell with the sentence in why,
 * and the run goes on; PQ_E_INTERRUPTED and PQ_E_NOMEM end it.
 */
#ifndef PQ_LAB_DRIVER_H
#define PQ_LAB_DRIVER_H

#include <stdint.h>

#include "base/error.h"

enum { PQ_FACTOR_MAX = 12, PQ_LOAD_MAX = 12 };

struct pq_driver_factor {
    const char *name;
    const char *const *values; /* NULL-terminated; the first holds where an experiment does not name the factor */
};
/* A number, or where choices is set the index of one of them. */
struct pq_driver_load {
    const char *name;
    int64_t low, high, standard;
    const char *const *choices;
};
struct pq_driver_metric {
    const char *name, *unit;
};

struct pq_lab; /* the run: lab/run.h */
struct pq_visit;

struct pq_driver {
    const char *interface; /* "sbi" */
    const struct pq_driver_factor
        *factors; /* {0}-terminated, like the other two; at most PQ_FACTOR_MAX and PQ_LOAD_MAX */
    const struct pq_driver_load *loads;
    const struct pq_driver_metric *metrics;
    int (*prepare)(struct pq_lab *lab, void **state, struct pq_why *why); /* once a run, inside the namespaces */
    int (*visit)(void *state, struct pq_visit *visit, struct pq_why *why);
    void (*finish)(void *state);
};

/* NULL where there is none; names are listed in *names for a message ("sbi"). */
const struct pq_driver *pq_driver_find(const char *interface, const char **names);

#endif
