/* Any bytes as an experiment: what is accepted has cells, each within its factors, and an order for every round. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "lab/experiment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pq_why why = {{0}};
    for (int quick = 0; quick < 2; quick++) {
        DEFER(pq_experiment_freep) struct pq_experiment *x = NULL;
        if (pq_experiment_parse("fuzz", (const char *)data, size, quick, &x, &why) < 0) {
            if (x || !why.text[0])
                __builtin_trap();
            continue;
        }
        if (x->cell_count == 0 || x->cell_count > PQ_CELL_MAX || x->repetitions < 1 || x->metrics.count == 0)
            __builtin_trap();
        DEFER(pq_freep) size_t *order = calloc(x->cell_count, sizeof *order);
        if (!order)
            return 0;
        pq_cell_order(x, size, quick, order);
        for (size_t i = 0; i < x->cell_count; i++) {
            char text[64];
            pq_cell_text(x, &x->cells[order[i]], text, sizeof text);
        }
    }
    return 0;
}
