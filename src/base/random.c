#include "base/random.h"

static uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static uint64_t rotl(uint64_t x, int k) { return x << k | x >> (64 - k); }

struct pq_rng pq_rng(uint64_t seed)
{
    struct pq_rng r;
    for (int i = 0; i < 4; i++)
        r.s[i] = splitmix64(&seed);
    return r;
}

uint64_t pq_rng_next(struct pq_rng *r)
{
    uint64_t *s = r->s, result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

uint64_t pq_rng_below(struct pq_rng *r, uint64_t n)
{
    uint64_t least = (0 - n) % n; /* 2^64 mod n: values below it would favour small results */
    uint64_t v;
    do
        v = pq_rng_next(r);
    while (v < least);
    return v % n;
}

double pq_rng_unit(struct pq_rng *r) { return (double)(pq_rng_next(r) >> 11) * 0x1p-53; }

void pq_rng_shuffle(struct pq_rng *r, size_t *items, size_t count)
{
    for (size_t i = count; i > 1; i--) {
        size_t j = (size_t)pq_rng_below(r, i), kept = items[i - 1];
        items[i - 1] = items[j];
        items[j] = kept;
    }
}
