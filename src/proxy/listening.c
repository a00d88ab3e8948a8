#include "proxy/listening.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static const char *unix_path(const struct pq_address *a)
{
    return a->sa.ss_family == AF_UNIX ? ((const struct sockaddr_un *)(const void *)&a->sa)->sun_path : NULL;
}

/* While the socket is open, nobody else can have its inode's number. */
static void remove_path(const struct pq_listening *l)
{
    const char *path = unix_path(&l->at);
    struct stat now;
    if (path && l->inode && !l->shared && lstat(path, &now) == 0 && now.st_dev == l->device && now.st_ino == l->inode)
        unlink(path);
}

static void free_set(struct pq_listening_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        free(set->at[i].name);
    free(set->at);
    *set = (struct pq_listening_set){.last = set->last};
}

void pq_listening_close(struct pq_listening_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        remove_path(&set->at[i]);
        pq_closep(&set->at[i].fd);
    }
    free_set(set);
}

void pq_listening_forget(struct pq_listening_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        pq_closep(&set->at[i].fd);
    free_set(set);
}

/* --- planning ---------------------------------------------------------------------------------------------------- */
static bool serves(const struct pq_listening *old, const char *name, const struct pq_proxy_address *wanted)
{
    const struct pq_address *a = &old->at, *b = &wanted->at;
    bool chosen = a->sa.ss_family != AF_UNIX && pq_address_port(a) == 0;
    return a->len == b->len && memcmp(&a->sa, &b->sa, a->len) == 0 && (!chosen || strcmp(old->name, name) == 0);
}

static int open_new(const char *name, const struct pq_proxy_address *a, struct pq_listening *out, struct pq_why *why)
{
    const char *path = unix_path(&a->at);
    struct stat bound;
    int e = pq_tcp_listen(&a->at, 0, &out->fd, why);
    if (e < 0)
        return pq_why_in(why, e, "%s: \"%s\"", a->where, name);
    if (path && lstat(path, &bound) == 0) {
        out->device = bound.st_dev;
        out->inode = bound.st_ino;
    }
    return 0;
}

static int plan_one(const struct pq_listening_set *set, const char *name, const struct pq_proxy_address *a,
                    struct pq_listening_set *plan, struct pq_why *why)
{
    struct pq_listening next = {.at = a->at, .fd = -1};
    for (size_t i = 0; i < set->count && !next.kept; i++) {
        if (!serves(&set->at[i], name, a))
            continue;
        next = set->at[i];
        next.kept = true;
    }
    next.name = strdup(name);
    if (!next.name)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    if (!next.kept)
        next.number = ++plan->last;
    plan->at[plan->count++] = next;
    return next.kept ? 0 : open_new(name, a, &plan->at[plan->count - 1], why);
}

static int start_plan(const struct pq_listening_set *set, size_t count, struct pq_listening_set *plan,
                      struct pq_why *why)
{
    *plan = (struct pq_listening_set){.at = calloc(count, sizeof plan->at[0]), .last = set->last};
    return plan->at ? 0 : pq_why(why, PQ_E_NOMEM, "out of memory");
}

int pq_listening_plan(const struct pq_listening_set *set, const struct pq_proxy_config *config,
                      struct pq_listening_set *plan, struct pq_why *why)
{
    size_t count = pq_proxy_listener_count(config);
    TRY(start_plan(set, count, plan, why));
    int e = 0;
    for (size_t i = 0; e == 0 && i < count; i++)
        e = plan_one(set, pq_proxy_listener_at(config, i)->name, &pq_proxy_listener_at(config, i)->listen, plan, why);
    if (e < 0)
        pq_listening_drop(plan);
    return e;
}

int pq_listening_plan_one(const struct pq_listening_set *set, const char *name, const struct pq_proxy_address *a,
                          struct pq_listening_set *plan, struct pq_why *why)
{
    TRY(start_plan(set, 1, plan, why));
    int e = plan_one(set, name, a, plan, why);
    if (e < 0)
        pq_listening_drop(plan);
    return e;
}

/* It is another's now. */
static void give_up(struct pq_listening *l)
{
    l->fd = -1;
    l->inode = 0;
}

void pq_listening_drop(struct pq_listening_set *plan)
{
    for (size_t i = 0; i < plan->count; i++)
        if (plan->at[i].kept)
            give_up(&plan->at[i]);
    pq_listening_close(plan);
}

/* Whether the plan keeps it, which then is its owner. */
static bool keeps(struct pq_listening_set *plan, const struct pq_listening *l)
{
    for (size_t i = 0; i < plan->count; i++)
        if (plan->at[i].kept && plan->at[i].number == l->number)
            return true;
    return false;
}

int pq_listening_add(struct pq_listening_set *set, const struct pq_listening *l)
{
    struct pq_listening *at = reallocarray(set->at, set->count + 1, sizeof at[0]);
    if (!at)
        return PQ_E_NOMEM;
    set->at = at;
    at[set->count++] = *l;
    return 0;
}

void pq_listening_take(struct pq_listening_set *set, struct pq_listening_set *plan, struct pq_listening_set *removed)
{
    for (size_t i = 0; i < set->count; i++) {
        struct pq_listening *l = &set->at[i];
        if (keeps(plan, l) || pq_listening_add(removed, l) == 0) {
            l->name = keeps(plan, l) ? l->name : NULL;
            give_up(l);
        }
    }
    for (size_t i = 0; i < plan->count; i++)
        plan->at[i].kept = false;
    pq_listening_close(set);
    *set = *plan;
    *plan = (struct pq_listening_set){0};
}

void pq_listening_own(struct pq_listening_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        set->at[i].shared = false;
}
