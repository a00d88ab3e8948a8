#include "proxy/upstream.h"

#include <stdlib.h>

struct place {
    struct pq_address at;
    int64_t failed; /* when; 0: it did not, or that was cleared */
};

struct pq_upstream {
    uint32_t version; /* from 1: a fresh try has seen none */
    size_t count;
    struct place places[PQ_PROXY_PLACES_MAX];
};

int pq_upstream_new(const struct pq_proxy_target *t, struct pq_upstream **out)
{
    struct pq_upstream *u = calloc(1, sizeof *u);
    if (!u)
        return PQ_E_NOMEM;
    u->version = 1;
    for (; u->count < t->count; u->count++)
        u->places[u->count].at = t->places[u->count].at;
    *out = u;
    return 0;
}

void pq_upstream_free(struct pq_upstream *u) { free(u); }

static struct place *find(struct pq_upstream *u, const struct pq_address *a)
{
    for (size_t i = 0; i < u->count; i++)
        if (pq_address_equal(&u->places[i].at, a))
            return &u->places[i];
    return NULL;
}

static bool shunned(const struct place *p, int64_t now) { return p->failed && now < p->failed + PQ_UPSTREAM_SHUNNED; }

/* Of those that failed lately, the one whose failure is longest ago. */
static bool better(const struct place *p, const struct place *than, int64_t now)
{
    if (shunned(p, now) != shunned(than, now))
        return !shunned(p, now);
    return shunned(p, now) && p->failed < than->failed;
}

static void look_whether_replaced(const struct pq_upstream *u, struct pq_upstream_try *t)
{
    if (t->version != u->version)
        *t = (struct pq_upstream_try){.version = u->version};
}

bool pq_upstream_next(struct pq_upstream *u, struct pq_upstream_try *t, int64_t now, struct pq_address *out)
{
    const struct place *best = NULL;
    look_whether_replaced(u, t);
    for (size_t i = 0; i < u->count; i++) {
        const struct place *p = &u->places[i];
        if (!(t->tried >> i & 1) && (!best || better(p, best, now)))
            best = p;
    }
    if (!best)
        return false;
    t->last = (uint32_t)(best - u->places);
    t->tried |= UINT64_C(1) << t->last;
    *out = best->at;
    return true;
}

size_t pq_upstream_left(const struct pq_upstream *u, const struct pq_upstream_try *t)
{
    return t->version == u->version ? u->count - (size_t)__builtin_popcountll(t->tried) : u->count;
}

/* NULL where it has been replaced since. */
static struct place *last(struct pq_upstream *u, const struct pq_upstream_try *t)
{
    return t->version == u->version && t->tried ? &u->places[t->last] : NULL;
}

bool pq_upstream_failed(struct pq_upstream *u, const struct pq_upstream_try *t, int64_t now)
{
    struct place *p = last(u, t);
    if (!p)
        return false;
    bool before = shunned(p, now);
    p->failed = now;
    return !before;
}

void pq_upstream_worked(struct pq_upstream *u, const struct pq_upstream_try *t)
{
    struct place *p = last(u, t);
    if (p)
        p->failed = 0;
}

static bool same(struct pq_upstream *u, struct pq_upstream *v)
{
    for (size_t i = 0; i < v->count; i++)
        if (!find(u, &v->places[i].at))
            return false;
    return u->count == v->count;
}

bool pq_upstream_set(struct pq_upstream *u, const struct pq_address *addresses, size_t count)
{
    struct pq_upstream new = {.version = u->version + 1};
    for (size_t i = 0; i < count && new.count < PQ_PROXY_PLACES_MAX; i++) {
        const struct place *known = find(u, &addresses[i]);
        if (!find(&new, &addresses[i]))
            new.places[new.count++] = (struct place){addresses[i], known ? known->failed : 0};
    }
    if (same(u, &new))
        return false;
    *u = new;
    return true;
}
