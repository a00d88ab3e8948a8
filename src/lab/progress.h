/* progress.h - how far a run is: a bar on a terminal, a line a round elsewhere; on standard error.
 *
 * Spec:   none.
 * Owns:   nothing.
 * Errors: none.
 */
#ifndef PQ_LAB_PROGRESS_H
#define PQ_LAB_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pq_progress {
    bool bar;
    int64_t started_ns, round_started_ns;
    int64_t rounds, round; /* round counts from 1 */
    size_t cells, cell;    /* cells done in this round */
    uint64_t failures;
};

void pq_progress_begin(struct pq_progress *p, bool bar, int64_t rounds, size_t cells, int64_t now_ns);
void pq_progress_round(struct pq_progress *p, int64_t round, int64_t now_ns);
void pq_progress_cell(struct pq_progress *p, uint64_t failures, int64_t now_ns);
void pq_progress_end(struct pq_progress *p);

enum { PQ_PROGRESS_LINE = 200 };
/* The bar's line, narrower than a terminal of that many columns: the bar shrinks, then goes, then words go. */
void pq_progress_line(const struct pq_progress *p, int64_t now_ns, size_t columns, char out[PQ_PROGRESS_LINE]);

/* "1 min 20 s" */
void pq_progress_duration(int64_t ns, char *out, size_t size);

#endif
