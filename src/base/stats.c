#include "base/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/random.h"

enum { RESAMPLES = 1000 };

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double pq_quantile(const double *sorted, size_t count, double q)
{
    double at = q * (double)(count - 1);
    size_t below = (size_t)at;
    if (below + 1 >= count)
        return sorted[count - 1];
    return sorted[below] + (at - (double)below) * (sorted[below + 1] - sorted[below]);
}

/* A cell's values in ascending order, each with its group (0, 1, ...): its round's place among the cell's rounds. */
struct cell {
    double *value;
    size_t *group;
    int64_t *round; /* of each group */
    size_t *size;   /* of each group */
    size_t count, groups;
};

static void cell_free(struct cell *c)
{
    free(c->value);
    free(c->group);
    free(c->round);
    free(c->size);
}

struct tagged {
    int64_t round;
    size_t group;
    double value;
};

static int by_round(const void *a, const void *b)
{
    const struct tagged *x = a, *y = b;
    return (x->round > y->round) - (x->round < y->round);
}

static int by_value(const void *a, const void *b)
{
    const struct tagged *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

static int cell_fill(struct pq_samples s, struct cell *c)
{
    DEFER(pq_freep) struct tagged *all = calloc(s.count, sizeof *all);
    c->value = calloc(s.count, sizeof *c->value);
    c->group = calloc(s.count, sizeof *c->group);
    c->round = calloc(s.count, sizeof *c->round);
    c->size = calloc(s.count, sizeof *c->size);
    if (!all || !c->value || !c->group || !c->round || !c->size)
        return PQ_E_NOMEM;
    c->count = s.count;
    for (size_t i = 0; i < s.count; i++)
        all[i] = (struct tagged){s.round ? s.round[i] : (int64_t)i, 0, s.value[i]};
    qsort(all, s.count, sizeof *all, by_round);
    for (size_t i = 0; i < s.count; i++) {
        if (i == 0 || all[i].round != all[i - 1].round)
            c->round[c->groups++] = all[i].round;
        all[i].group = c->groups - 1;
        c->size[all[i].group]++;
    }
    qsort(all, s.count, sizeof *all, by_value);
    for (size_t i = 0; i < s.count; i++) {
        c->value[i] = all[i].value;
        c->group[i] = all[i].group;
    }
    return 0;
}

/* The median where each value of group g counts weight[g] times: one walk over the sorted values. */
static double weighted_median(const struct cell *c, const size_t *weight)
{
    size_t total = 0, seen = 0;
    for (size_t g = 0; g < c->groups; g++)
        total += weight[g] * c->size[g];
    size_t low = (total - 1) / 2, high = total / 2, i = 0;
    while ((seen += weight[c->group[i]]) <= low)
        i++;
    double lower = c->value[i];
    while (seen <= high)
        seen += weight[c->group[++i]];
    return (lower + c->value[i]) / 2;
}

static bool same_rounds(const struct cell *cells, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (cells[i].groups != cells[0].groups ||
            memcmp(cells[i].round, cells[0].round, cells[0].groups * sizeof *cells[0].round) != 0)
            return false;
    return true;
}

/* As many groups as there are, drawn with replacement: how often each came. */
static void draw(struct pq_rng *rng, size_t *weight, size_t groups)
{
    memset(weight, 0, groups * sizeof *weight);
    for (size_t i = 0; i < groups; i++)
        weight[pq_rng_below(rng, groups)]++;
}

struct work {
    struct cell *cells;
    size_t count;
    double *medians, *draws;
    size_t *weight;
};

static void work_free(struct work *w)
{
    for (size_t c = 0; w->cells && c < w->count; c++)
        cell_free(&w->cells[c]);
    free(w->cells);
    free(w->medians);
    free(w->draws);
    free(w->weight);
}

static int prepare(const struct pq_samples *cells, size_t count, struct work *w)
{
    size_t groups = 0;
    w->count = count;
    w->cells = calloc(count, sizeof *w->cells);
    if (!w->cells)
        return PQ_E_NOMEM;
    for (size_t c = 0; c < count; c++) {
        if (cells[c].count == 0)
            return PQ_E_INVALID;
        TRY(cell_fill(cells[c], &w->cells[c]));
        groups = w->cells[c].groups > groups ? w->cells[c].groups : groups;
    }
    w->medians = calloc(count, sizeof *w->medians);
    w->draws = calloc(RESAMPLES, sizeof *w->draws);
    w->weight = calloc(groups, sizeof *w->weight);
    return w->medians && w->draws && w->weight ? 0 : PQ_E_NOMEM;
}

static int bootstrap(struct work *w, pq_statistic *f, const void *context, uint64_t seed, struct pq_estimate *out)
{
    for (size_t c = 0; c < w->count; c++)
        w->medians[c] = pq_quantile(w->cells[c].value, w->cells[c].count, 0.5);
    double value = f(w->medians, context);
    struct pq_rng rng = pq_rng(seed);
    bool together = same_rounds(w->cells, w->count);
    size_t kept = 0;
    for (size_t i = 0; i < RESAMPLES; i++) {
        for (size_t c = 0; c < w->count; c++) {
            if (c == 0 || !together)
                draw(&rng, w->weight, w->cells[c].groups);
            w->medians[c] = weighted_median(&w->cells[c], w->weight);
        }
        double drawn = f(w->medians, context);
        if (isfinite(drawn))
            w->draws[kept++] = drawn;
    }
    if (kept == 0)
        return PQ_E_INVALID;
    qsort(w->draws, kept, sizeof *w->draws, ascending);
    *out = (struct pq_estimate){value, {pq_quantile(w->draws, kept, 0.025), pq_quantile(w->draws, kept, 0.975)}};
    return 0;
}

int pq_bootstrap(const struct pq_samples *cells, size_t cell_count, pq_statistic *f, const void *context, uint64_t seed,
                 struct pq_estimate *out)
{
    if (cell_count == 0)
        return PQ_E_INVALID;
    DEFER(work_free) struct work w = {0};
    TRY(prepare(cells, cell_count, &w));
    return bootstrap(&w, f, context, seed, out);
}

static double itself(const double *medians, const void *context)
{
    (void)context;
    return medians[0];
}

int pq_summarize(struct pq_samples s, uint64_t seed, struct pq_summary *out)
{
    if (s.count == 0)
        return PQ_E_INVALID;
    DEFER(pq_freep) double *v = calloc(s.count, sizeof *v);
    if (!v)
        return PQ_E_NOMEM;
    struct pq_estimate median;
    TRY(pq_bootstrap(&s, 1, itself, NULL, seed, &median));
    memcpy(v, s.value, s.count * sizeof *v);
    qsort(v, s.count, sizeof *v, ascending);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < s.count; i++)
        sum += v[i];
    double mean = sum / (double)s.count;
    for (size_t i = 0; i < s.count; i++)
        squares += (v[i] - mean) * (v[i] - mean);
    double sd = s.count > 1 ? sqrt(squares / (double)(s.count - 1)) : 0;
    double q1 = pq_quantile(v, s.count, 0.25), q3 = pq_quantile(v, s.count, 0.75);
    *out = (struct pq_summary){.n = s.count,
                               .min = v[0],
                               .median = median.value,
                               .mean = mean,
                               .max = v[s.count - 1],
                               .q1 = q1,
                               .q3 = q3,
                               .iqr = q3 - q1,
                               .sd = sd,
                               .cv = mean != 0 ? sd / fabs(mean) : 0,
                               .p95 = pq_quantile(v, s.count, 0.95),
                               .p99 = pq_quantile(v, s.count, 0.99),
                               .median_ci = median.ci};
    return 0;
}

bool pq_interval_contains(struct pq_interval i, double v) { return i.low <= v && v <= i.high; }
bool pq_intervals_overlap(struct pq_interval a, struct pq_interval b) { return a.low <= b.high && b.low <= a.high; }
