/* experiments.h - where the experiments are that come with the program.
 *
 * Spec:   the first of these that is a folder: experiments/ beside the program or up to five folders above it (a
 * checkout), share/pqplane/experiments in one of those (installed), ./experiments. Owns:   pq_experiments_list() fills
 * a list that pq_experiments_free() frees. Errors: PQ_E_NOENT (why names what there is), PQ_E_TOO_LONG, PQ_E_NOMEM.
 */
#ifndef PQ_CLI_EXPERIMENTS_H
#define PQ_CLI_EXPERIMENTS_H

#include <stddef.h>

#include "base/config.h"

/* given is a path, or the name of an experiment that comes with the program. */
PQ_MUST_CHECK int pq_experiments_find(const char *given, char *path, size_t size, struct pq_why *why);
/* The paths of all, in the order of their names. */
PQ_MUST_CHECK int pq_experiments_list(struct pq_strings *out, struct pq_why *why);
void pq_experiments_free(struct pq_strings *paths);

#endif
