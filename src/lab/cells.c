#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "lab/experiment.h"

static bool meets(const struct pq_match *m, const struct pq_cell *cell)
{
    for (size_t i = 0; i < m->count; i++) {
        const struct pq_condition *c = &m->at[i];
        const char *value = cell->value[c->factor];
        bool one = false;
        for (size_t v = 0; value && v < c->values.count; v++)
            one |= strcmp(value, c->values.at[v]) == 0;
        if (!one)
            return false;
    }
    return true;
}

static bool excluded(const struct pq_experiment *x, const struct pq_cell *cell)
{
    for (size_t i = 0; i < x->exclude_count; i++)
        if (meets(&x->exclude[i], cell))
            return true;
    return false;
}

static int add(struct pq_experiment *x, const struct pq_cell *cell, struct pq_why *why)
{
    if (excluded(x, cell))
        return 0;
    if (x->cell_count == PQ_CELL_MAX)
        return pq_why(why, PQ_E_CONFIG, "%s: the factors make more than %d cells: exclude some, or name fewer values",
                      x->file, PQ_CELL_MAX);
    x->cells[x->cell_count++] = *cell;
    return 0;
}

/* The factors are the digits of a counter, the last one the fastest; an absent factor has one digit. A cell is kept by
 * its values, so that combinations that differ only in absent factors come once. */
int pq_cells_fill(struct pq_experiment *x, struct pq_why *why)
{
    size_t digit[PQ_FACTOR_MAX] = {0};
    x->cells = calloc(PQ_CELL_MAX, sizeof *x->cells);
    if (!x->cells)
        return pq_why(why, PQ_E_NOMEM, "out of memory while reading an experiment");
    for (;;) {
        struct pq_cell cell = {{0}};
        size_t values[PQ_FACTOR_MAX];
        for (size_t f = 0; f < x->factor_count; f++) {
            bool there = meets(&x->factors[f].when, &cell);
            values[f] = there ? x->factors[f].values.count : 1;
            cell.value[f] = there ? x->factors[f].values.at[digit[f]] : NULL;
        }
        TRY(add(x, &cell, why));
        size_t f = x->factor_count;
        while (f > 0 && ++digit[f - 1] == values[f - 1])
            digit[--f] = 0;
        if (f == 0)
            return 0;
    }
}

const char *pq_cell_value(const struct pq_experiment *x, const struct pq_cell *cell, const char *factor)
{
    for (size_t i = 0; i < x->factor_count; i++)
        if (strcmp(x->factors[i].name, factor) == 0)
            return cell->value[i];
    for (const struct pq_driver_factor *f = x->driver->factors; f->name; f++)
        if (strcmp(f->name, factor) == 0)
            return f->values[0];
    return NULL;
}

void pq_cell_text(const struct pq_experiment *x, const struct pq_cell *cell, char *out, size_t size)
{
    size_t len = 0;
    out[0] = 0;
    for (size_t f = 0; f < x->factor_count && len < size; f++) {
        if (!cell->value[f])
            continue;
        int n = snprintf(out + len, size - len, "%s%s=%s", len ? " " : "", x->factors[f].name, cell->value[f]);
        len += n > 0 ? (size_t)n : 0;
    }
}

void pq_cell_order(const struct pq_experiment *x, uint64_t seed, int64_t round, size_t *order)
{
    /* A generator of its own for each round: a round's order does not depend on how the ones before it went. */
    struct pq_rng rng = pq_rng(seed ^ (uint64_t)(round + 1) * 0x9e3779b97f4a7c15);
    for (size_t i = 0; i < x->cell_count; i++)
        order[i] = i;
    pq_rng_shuffle(&rng, order, x->cell_count);
}
