/* random.h - a seeded generator for experiments and tests. Never for keys: those come from OpenSSL.
 *
 * Spec:   xoshiro256** 1.0 (Blackman, Vigna), seeded by splitmix64; the same seed gives the same sequence everywhere.
 * Owns:   nothing.
 * Errors: none.
 */
#ifndef PQ_BASE_RANDOM_H
#define PQ_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

struct pq_rng {
    uint64_t s[4];
};

struct pq_rng pq_rng(uint64_t seed);
uint64_t pq_rng_next(struct pq_rng *r);
/* Uniform in [0, n), n > 0, without modulo bias. */
uint64_t pq_rng_below(struct pq_rng *r, uint64_t n);
/* Uniform in [0, 1). */
double pq_rng_unit(struct pq_rng *r);
/* Shuffles count numbers in place (Fisher-Yates). */
void pq_rng_shuffle(struct pq_rng *r, size_t *items, size_t count);

#endif
