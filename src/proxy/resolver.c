#include "proxy/resolver.h"

#include <ev.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "proxy/target.h"

/* One host name of a target, and what the thread found out. */
struct name {
    size_t listener, named; /* its place in the configuration, and among the listener's texts */
    char *text;
    int e;
    struct pq_why why;
    struct pq_address *at;
    size_t count;
};
struct names {
    size_t count;
    struct name at[];
};

/* Of the owner and the thread; the last of them frees it. */
struct shared {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int owners;
    struct pq_lookup lookup;
    struct ev_loop *loop;
    ev_async *ready;
    /* Under the lock. */
    bool stop;
    uint64_t round;         /* of the owner: grows with each set of names */
    int64_t interval, next; /* ns; when to ask next */
    struct names *wanted;   /* what to ask for; NULL: nothing */
    struct names *answered; /* NULL: nothing new */
};

struct pq_resolver {
    struct ev_loop *loop;
    struct pq_resolver_how how;
    struct shared *shared;
    ev_async ready;
    bool running; /* the thread */
    struct pq_proxy_config *config;
    struct {
        bool changed;
        bool refused;
    } *listeners;     /* one for each of config */
    uint32_t *failed; /* by listener: a bit for each of its texts that could not be looked up */
};

/* --- names -------------------------------------------------------------------------------------------------------- */
static void names_free(struct names *n)
{
    for (size_t i = 0; n && i < n->count; i++) {
        free(n->at[i].text);
        free(n->at[i].at);
    }
    free(n);
}
PQ_DEFINE_FREEP(struct names, names_free)

static size_t count_names(const struct pq_proxy_config *c)
{
    size_t count = 0;
    for (size_t i = 0; i < pq_proxy_listener_count(c); i++)
        for (size_t k = 0; k < pq_proxy_target_named(&pq_proxy_listener_at(c, i)->target); k++)
            count += !pq_proxy_target_at(&pq_proxy_listener_at(c, i)->target, k)->known;
    return count;
}

static int names_of(const struct pq_proxy_config *c, struct names **out)
{
    DEFER(names_freep) struct names *n = calloc(1, sizeof *n + count_names(c) * sizeof n->at[0]);
    if (!n)
        return PQ_E_NOMEM;
    for (size_t i = 0; i < pq_proxy_listener_count(c); i++) {
        const struct pq_proxy_target *t = &pq_proxy_listener_at(c, i)->target;
        for (size_t k = 0; k < pq_proxy_target_named(t); k++) {
            const struct pq_proxy_address *a = pq_proxy_target_at(t, k);
            if (a->known)
                continue;
            n->at[n->count] = (struct name){.listener = i, .named = k, .text = strdup(a->text)};
            if (!n->at[n->count++].text)
                return PQ_E_NOMEM;
        }
    }
    *out = TAKE(n);
    return 0;
}

static int names_copy(const struct names *from, struct names **out)
{
    DEFER(names_freep) struct names *n = calloc(1, sizeof *n + from->count * sizeof n->at[0]);
    if (!n)
        return PQ_E_NOMEM;
    for (; n->count < from->count; n->count++) {
        const struct name *f = &from->at[n->count];
        struct name *to = &n->at[n->count];
        *to = (struct name){.listener = f->listener, .named = f->named, .text = strdup(f->text)};
        if (!to->text)
            return PQ_E_NOMEM;
    }
    *out = TAKE(n);
    return 0;
}

/* --- the thread --------------------------------------------------------------------------------------------------- */
static void free_shared(struct shared *s)
{
    names_free(s->wanted);
    names_free(s->answered);
    free(s);
}

static void let_go(struct shared *s)
{
    pthread_mutex_lock(&s->lock);
    bool last = --s->owners == 0;
    pthread_mutex_unlock(&s->lock);
    if (!last)
        return;
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free_shared(s);
}

static void ask(const struct pq_lookup *lookup, struct name *n)
{
    struct pq_address found[PQ_PROXY_PLACES_MAX];
    size_t count = 0;
    n->e = lookup->ask(lookup->context, n->text, found, PQ_COUNT(found), &count, &n->why);
    if (n->e < 0 || count == 0)
        return;
    n->at = calloc(count, sizeof n->at[0]);
    if (!n->at) {
        n->e = PQ_E_NOMEM;
        return;
    }
    memcpy(n->at, found, count * sizeof found[0]);
    n->count = count;
}

/* Called and left with the lock held. */
static void ask_all(struct shared *s)
{
    struct names *n = NULL;
    uint64_t round = s->round;
    int e = names_copy(s->wanted, &n);
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; e == 0 && i < n->count; i++)
        ask(&s->lookup, &n->at[i]);
    pthread_mutex_lock(&s->lock);
    s->next = pq_clock_ns() + s->interval;
    if (e < 0 || s->stop || s->round != round) {
        names_free(n);
        return;
    }
    names_free(s->answered);
    s->answered = n;
    ev_async_send(s->loop, s->ready); /* under the lock: the owner has not stopped */
}

static void wait_until(struct shared *s, int64_t when)
{
    struct timespec at = {.tv_sec = when / PQ_NS_PER_S, .tv_nsec = when % PQ_NS_PER_S};
    pthread_cond_timedwait(&s->changed, &s->lock, &at);
}

static void *run(void *context)
{
    struct shared *s = context;
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        if (!s->wanted)
            pthread_cond_wait(&s->changed, &s->lock);
        else if (pq_clock_ns() < s->next)
            wait_until(s, s->next);
        else
            ask_all(s);
    }
    pthread_mutex_unlock(&s->lock);
    let_go(s);
    return NULL;
}

static int start(struct pq_resolver *r, struct pq_why *why)
{
    pthread_t thread;
    sigset_t all, before;
    if (r->running)
        return 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r->shared->owners++;
    int error = pthread_create(&thread, NULL, run, r->shared);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        r->shared->owners--;
        return pq_why(why, PQ_E_LIMIT,
                      "can't start the thread that looks up host names: %s: raise the limit (ulimit -u)",
                      strerror(error));
    }
    pthread_detach(thread);
    r->running = true;
    return 0;
}

/* --- what came of it ---------------------------------------------------------------------------------------------- */
/* A lookup among the answers; a name without one keeps what it had. */
struct answers {
    const struct names *names;
    size_t listener;
    const struct pq_proxy_place *old;
    size_t old_count;
};

static int answer(void *context, const char *text, struct pq_address *out, size_t room, size_t *count,
                  struct pq_why *why)
{
    const struct answers *a = context;
    (void)why;
    *count = 0;
    for (size_t i = 0; i < a->names->count; i++) {
        const struct name *n = &a->names->at[i];
        if (n->listener != a->listener || strcmp(n->text, text) != 0 || n->e < 0)
            continue;
        for (; *count < n->count && *count < room; ++*count)
            out[*count] = n->at[*count];
        return 0;
    }
    for (size_t i = 0; i < a->old_count && *count < room; i++)
        if (strcmp(a->old[i].named->text, text) == 0)
            out[(*count)++] = a->old[i].at;
    return 0;
}

static void log_places(const struct pq_proxy_listener *l)
{
    char all[1024];
    size_t len = 0;
    for (size_t i = 0; i < l->target.count && len < sizeof all; i++) {
        char text[PQ_ADDRESS_TEXT];
        pq_address_text(&l->target.places[i].at, text);
        int n = snprintf(all + len, sizeof all - len, "%s%s", i ? ", " : "", text);
        len += n > 0 ? (size_t)n : 0;
    }
    pq_log(PQ_LOG_INFO, "addresses changed", "route", pq_s(l->name), "addresses", pq_s(all), NULL);
}

static void tell_failures(struct pq_resolver *r, const struct names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        const struct name *n = &names->at[i];
        uint32_t bit = UINT32_C(1) << n->named;
        bool before = r->failed[n->listener] & bit, now = n->e < 0;
        r->failed[n->listener] = now ? r->failed[n->listener] | bit : r->failed[n->listener] & ~bit;
        if (before == now)
            continue;
        pq_log(now ? PQ_LOG_WARN : PQ_LOG_INFO, now ? "lookup failed" : "lookup works again", "route",
               pq_s(pq_proxy_listener_at(r->config, n->listener)->name), "name", pq_s(n->text), now ? "detail" : NULL,
               pq_s(n->why.text[0] ? n->why.text : pq_error_text(n->e)), NULL);
    }
}

static void apply(struct pq_resolver *r, const struct names *names, size_t listener)
{
    const struct pq_proxy_listener *l = pq_proxy_listener_at(r->config, listener);
    struct answers a = {names, listener, l->target.places, l->target.count};
    const struct pq_lookup lookup = {answer, &a};
    struct pq_why why = {""};
    bool changed = false, refused = pq_proxy_config_lead(r->config, listener, &lookup, &changed, &why) < 0;
    if (refused && !r->listeners[listener].refused)
        pq_log(PQ_LOG_WARN, "addresses refused", "route", pq_s(l->name), "detail", pq_s(why.text), NULL);
    r->listeners[listener].refused = refused;
    if (!changed)
        return;
    r->listeners[listener].changed = true;
    log_places(l);
    r->how.changed(r->how.context, listener);
}

static void on_ready(struct ev_loop *loop, ev_async *w, int revents)
{
    (void)loop, (void)revents;
    struct pq_resolver *r = w->data;
    pthread_mutex_lock(&r->shared->lock);
    DEFER(names_freep) struct names *names = TAKE(r->shared->answered);
    pthread_mutex_unlock(&r->shared->lock);
    if (!names || !r->config)
        return;
    tell_failures(r, names);
    for (size_t i = 0; i < names->count; i++)
        if (i == 0 || names->at[i].listener != names->at[i - 1].listener)
            apply(r, names, names->at[i].listener);
}

/* --- interface -----------------------------------------------------------------------------------------------------
 */
static int new_shared(struct pq_resolver *r)
{
    pthread_condattr_t monotonic;
    struct shared *s = calloc(1, sizeof *s);
    if (!s)
        return PQ_E_NOMEM;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    s->owners = 1;
    s->lookup = *r->how.lookup;
    s->loop = r->loop;
    s->ready = &r->ready;
    r->shared = s;
    return 0;
}

int pq_resolver_new(struct ev_loop *loop, const struct pq_resolver_how *how, struct pq_resolver **out)
{
    DEFER(pq_resolver_freep) struct pq_resolver *r = calloc(1, sizeof *r);
    if (!r)
        return PQ_E_NOMEM;
    r->loop = loop;
    r->how = *how;
    ev_async_init(&r->ready, on_ready);
    r->ready.data = r;
    TRY(new_shared(r));
    ev_async_start(loop, &r->ready);
    ev_unref(loop); /* it keeps no loop running */
    *out = TAKE(r);
    return 0;
}

static void free_own(struct pq_resolver *r)
{
    if (ev_is_active(&r->ready)) {
        ev_ref(r->loop);
        ev_async_stop(r->loop, &r->ready);
    }
    free(r->listeners);
    free(r->failed);
    free(r);
}

void pq_resolver_free(struct pq_resolver *r)
{
    if (!r)
        return;
    if (r->shared) {
        pthread_mutex_lock(&r->shared->lock);
        r->shared->stop = true;
        pthread_cond_signal(&r->shared->changed);
        pthread_mutex_unlock(&r->shared->lock);
        let_go(r->shared);
    }
    free_own(r);
}

void pq_resolver_forget(struct pq_resolver *r)
{
    if (!r)
        return;
    free_shared(r->shared);
    free_own(r);
}

static void want(struct shared *s, struct names *names, int64_t interval)
{
    pthread_mutex_lock(&s->lock);
    names_free(s->wanted);
    names_free(s->answered);
    s->wanted = names;
    s->answered = NULL;
    s->round++;
    s->interval = interval;
    s->next = pq_clock_ns() + interval;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

int pq_resolver_set(struct pq_resolver *r, struct pq_proxy_config *config, struct pq_why *why)
{
    DEFER(names_freep) struct names *names = NULL;
    size_t count = config ? pq_proxy_listener_count(config) : 0;
    want(r->shared, NULL, 0);
    free(r->listeners);
    free(r->failed);
    r->config = NULL;
    r->listeners = calloc(count + 1, sizeof r->listeners[0]);
    r->failed = calloc(count + 1, sizeof r->failed[0]);
    if (!r->listeners || !r->failed)
        return PQ_E_NOMEM;
    if (!config || count_names(config) == 0)
        return 0;
    TRY(names_of(config, &names));
    TRY(start(r, why));
    r->config = config;
    want(r->shared, TAKE(names), config->resolve);
    return 0;
}

bool pq_resolver_changed(const struct pq_resolver *r, size_t listener)
{
    return r->config && r->listeners[listener].changed;
}
