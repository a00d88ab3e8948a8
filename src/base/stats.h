/* stats.h - what is said of samples.
 *
 * Spec:   quantiles by linear interpolation of the order statistics (Hyndman and Fan, type 7); percentile bootstrap
 *         (Efron) for 95 % intervals of a statistic of medians.
 * Owns:   nothing; inputs are not changed. NaN is no sample: the caller leaves it out.
 * Errors: PQ_E_INVALID (no samples), PQ_E_NOMEM.
 */
#ifndef PQ_BASE_STATS_H
#define PQ_BASE_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* One metric's samples in one cell; round[i] is the round in which sample i was taken. */
struct pq_samples {
    const double *value;
    const int64_t *round; /* NULL: each sample is a round of its own */
    size_t count;
};

struct pq_interval {
    double low, high;
};

struct pq_summary {
    size_t n;
    double min, median, mean, max, q1, q3, iqr, sd, cv, p95, p99;
    struct pq_interval median_ci; /* 95 % */
};

/* q in [0, 1] of ascending values, count > 0. */
double pq_quantile(const double *sorted, size_t count, double q);
/* Resamples rounds where there are any (samples of one round depend on each other), else samples. */
PQ_MUST_CHECK int pq_summarize(struct pq_samples s, uint64_t seed, struct pq_summary *out);

/* A statistic of the medians of several cells: f(medians, context). */
typedef double pq_statistic(const double *medians, const void *context);
struct pq_estimate {
    double value;          /* f of the medians */
    struct pq_interval ci; /* 95 %, by bootstrap */
};
/* Cells that were measured in the same rounds are resampled by the same rounds, so that a drifting machine cancels out.
 */
PQ_MUST_CHECK int pq_bootstrap(const struct pq_samples *cells, size_t cell_count, pq_statistic *f, const void *context,
                               uint64_t seed, struct pq_estimate *out);

bool pq_interval_contains(struct pq_interval i, double v);
bool pq_intervals_overlap(struct pq_interval a, struct pq_interval b);

#endif
