#include "proxy/target.h"

#include <stdlib.h>
#include <string.h>

#include "proxy/address.h"

size_t pq_proxy_target_named(const struct pq_proxy_target *t) { return t->named.count; }

struct pq_proxy_address *pq_proxy_target_at(const struct pq_proxy_target *t, size_t i)
{
    return &((struct pq_proxy_address *)t->named.at)[i];
}

const struct pq_node *pq_proxy_target_node(const struct pq_node *n, size_t i)
{
    return pq_node_kind(n) == PQ_NODE_LIST ? pq_node_item(n, i) : n;
}

const struct pq_address *pq_proxy_target_first(const struct pq_proxy_target *t)
{
    static const struct pq_address none;
    return t->count ? &t->places[0].at : &none;
}

static int read_all(const struct pq_node *n, struct pq_proxy_target *t, size_t count, struct pq_why *why)
{
    t->named.at = calloc(count, sizeof(struct pq_proxy_address));
    if (!t->named.at)
        return PQ_E_NOMEM;
    for (; t->named.count < count; t->named.count++)
        TRY(pq_proxy_address_read(pq_proxy_target_node(n, t->named.count), pq_proxy_target_at(t, t->named.count), why));
    return 0;
}

int pq_proxy_target_read(const struct pq_node *n, void *out, struct pq_why *why)
{
    struct pq_proxy_target t = {.count = 0};
    size_t count = pq_node_kind(n) == PQ_NODE_LIST ? pq_node_count(n) : 1;
    if (count == 0 || count > PQ_PROXY_NAMED_MAX)
        return pq_node_why(n, why, "name 1 to %d addresses, the most wanted first", PQ_PROXY_NAMED_MAX);
    int e = read_all(n, &t, count, why);
    if (e < 0)
        pq_proxy_target_free(&t);
    else
        memcpy(out, &t, sizeof t);
    return e;
}

void pq_proxy_target_free(void *target)
{
    struct pq_proxy_target *t = target;
    for (size_t i = 0; i < t->named.count; i++)
        pq_proxy_address_free(pq_proxy_target_at(t, i));
    free(t->named.at);
    free(t->places);
    *t = (struct pq_proxy_target){.count = 0};
}

/* --- what it stands for ------------------------------------------------------------------------------------------- */
struct places {
    struct pq_proxy_place at[PQ_PROXY_PLACES_MAX];
    size_t count;
};

static void add(struct places *p, const struct pq_address *a, const struct pq_proxy_address *named)
{
    for (size_t i = 0; i < p->count; i++)
        if (pq_address_equal(&p->at[i].at, a))
            return;
    if (p->count < PQ_PROXY_PLACES_MAX)
        p->at[p->count++] = (struct pq_proxy_place){*a, named};
}

static int add_named(struct places *p, const struct pq_proxy_address *named, const struct pq_lookup *lookup,
                     struct pq_why *why)
{
    struct pq_address found[PQ_PROXY_PLACES_MAX];
    size_t count = 0;
    if (named->known) {
        add(p, &named->at, named);
        return 0;
    }
    int e = lookup->ask(lookup->context, named->text, found, PQ_COUNT(found), &count, why);
    for (size_t i = 0; e == 0 && i < count; i++)
        add(p, &found[i], named);
    return e < 0 ? pq_why_in(why, e, "%s", named->where) : 0;
}

int pq_proxy_target_resolve(struct pq_proxy_target *t, const struct pq_lookup *lookup, struct pq_why *why)
{
    struct places p = {.count = 0};
    for (size_t i = 0; i < t->named.count; i++)
        TRY(add_named(&p, pq_proxy_target_at(t, i), lookup, why));
    struct pq_proxy_place *places = calloc(p.count ? p.count : 1, sizeof places[0]);
    if (!places)
        return PQ_E_NOMEM;
    memcpy(places, p.at, p.count * sizeof places[0]);
    free(t->places);
    t->places = places;
    t->count = p.count;
    return 0;
}
