#include "http2/client.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "http2/defaults.h"
#include "http2/pool.h"

enum { MAX_WAITING = 65536, MAX_POOLS = 256 };

struct pq_http2_client {
    struct pq_client_shared shared;
    struct pq_pool *pools;
    size_t pool_count;
    void (*done)(void *context);
    void *done_context;
    ev_timer done_soon;
};

struct pq_client_shared *pq_pool_shared(struct pq_pool *p) { return &p->client->shared; }

static bool is_quiet(const struct pq_http2_client *c)
{
    for (const struct pq_pool *p = c->pools; p; p = p->next)
        if (p->first || p->waiting)
            return false;
    return true;
}

static void look_done(struct pq_http2_client *c)
{
    if (c->shared.draining && c->done && is_quiet(c) && !ev_is_active(&c->done_soon))
        ev_timer_start(c->shared.loop, &c->done_soon);
}

static void on_done(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop, (void)events;
    struct pq_http2_client *c = w->data;
    c->done(c->done_context);
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static void wait_first(struct pq_call *call)
{
    pq_call_put_first(&call->pool->waiting, call);
    call->pool->waiting_count++;
}

static struct pq_call *take_waiting(struct pq_pool *p)
{
    struct pq_call *call = p->waiting;
    pq_call_take_out(call);
    p->waiting_count--;
    return call;
}

void pq_pool_finish(struct pq_call *call, int error, const char *label, const char *reason)
{
    struct pq_pool *p = call->pool;
    if (call->link)
        pq_call_take_out(call);
    ev_timer_stop(p->client->shared.loop, &call->timer);
    if (error)
        call->timing.end = pq_clock_ns();
    struct pq_http2_result r = {.error = error,
                                .label = label,
                                .reason = reason,
                                .response = error ? NULL : &call->response,
                                .timing = call->timing,
                                .attempts = call->attempts};
    call->done(call->context, &r);
    pq_call_free(call);
}

void pq_pool_retry(struct pq_call *call)
{
    pq_call_rewind(call);
    if (call->attempts >= PQ_CALL_ATTEMPTS)
        pq_pool_finish(call, PQ_E_REFUSED, pq_error_name(PQ_E_REFUSED),
                       "the server refused the request on each attempt");
    else
        wait_first(call);
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop, (void)events;
    struct pq_call *call = w->data;
    struct pq_pool *p = call->pool;
    if (call->at)
        pq_link_cancel(call->at, call);
    else if (call->link)
        pq_call_take_out(call), p->waiting_count--;
    pq_pool_finish(call, PQ_E_TIMEOUT, pq_error_name(PQ_E_TIMEOUT), "no response in time");
    pq_pool_run(p);
    look_done(p->client);
}

/* --- pools -------------------------------------------------------------------------------------------------------- */

static struct pq_link *usable_link(const struct pq_pool *p)
{
    if (p->client->shared.how.fresh)
        return NULL;
    for (struct pq_link *l = p->first; l; l = pq_link_next(l))
        if (pq_link_usable(l))
            return l;
    return NULL;
}

/* A connection under way will serve those that wait; fresh ones don't wait for each other. */
static bool may_open(const struct pq_pool *p)
{
    const struct pq_client_shared *shared = &p->client->shared;
    size_t count = 0;
    for (struct pq_link *l = p->first; l; l = pq_link_next(l)) {
        if (!shared->how.fresh && pq_link_connecting(l))
            return false;
        count += !pq_link_draining(l);
    }
    return count < shared->how.limits.connections;
}

/* Those that wait now; what done() starts is not among them. */
static void fail_waiting(struct pq_pool *p, int code, const char *label, const char *reason)
{
    struct pq_call *list = p->waiting;
    p->waiting = NULL;
    p->waiting_count = 0;
    if (list)
        list->link = &list;
    while (list)
        pq_pool_finish(list, code, label, reason);
}

/* True where another call may be looked at. Without memory for a connection the calls wait, until their time is
 * over. */
static bool open_link(struct pq_pool *p)
{
    bool fresh = p->client->shared.how.fresh;
    if (!may_open(p))
        return false;
    struct pq_call *own = fresh ? take_waiting(p) : NULL;
    int e = pq_link_new(p, own);
    if (e < 0 && own)
        wait_first(own);
    return e == 0 && fresh;
}

void pq_pool_run(struct pq_pool *p)
{
    struct pq_link *last = NULL;
    while (p->waiting) {
        struct pq_link *l = usable_link(p);
        if (!l) {
            if (open_link(p))
                continue;
            break;
        }
        struct pq_call *call = take_waiting(p);
        if (pq_link_submit(l, call) < 0) {
            wait_first(call);
            continue;
        }
        if (last && last != l)
            pq_link_pump(last);
        last = l;
    }
    if (last)
        pq_link_pump(last);
}

void pq_pool_link_gone(struct pq_pool *p, bool opened, int code, const char *label, const char *reason)
{
    if (!opened && code < 0 && !p->first)
        fail_waiting(p, code, label, reason);
    pq_pool_run(p);
    look_done(p->client);
}

static void pool_free(struct pq_pool *p)
{
    free(p->authority);
    free(p->host);
    free(p);
}
PQ_DEFINE_FREEP(struct pq_pool, pool_free)

/* "host:port" without the port and without brackets. */
static char *host_of(const char *authority)
{
    size_t len = strlen(authority);
    const char *colon = strrchr(authority, ':');
    if (colon && !strchr(colon, ']'))
        len = (size_t)(colon - authority);
    if (len >= 2 && authority[0] == '[' && authority[len - 1] == ']')
        return strndup(authority + 1, len - 2);
    return strndup(authority, len);
}

static int find_pool(struct pq_http2_client *c, const char *authority, struct pq_pool **out, struct pq_why *why)
{
    for (struct pq_pool *p = c->pools; p; p = p->next)
        if (strcmp(p->authority, authority) == 0) {
            *out = p;
            return 0;
        }
    if (c->pool_count >= MAX_POOLS)
        return pq_why(why, PQ_E_LIMIT, "a client speaks to at most %d authorities", MAX_POOLS);
    DEFER(pool_freep) struct pq_pool *p = calloc(1, sizeof *p);
    if (!p || !(p->authority = strdup(authority)) || !(p->host = host_of(authority)))
        return PQ_E_NOMEM;
    TRY(pq_address_parse(authority, &p->address, why));
    p->client = c;
    p->next = c->pools;
    c->pools = p;
    c->pool_count++;
    *out = TAKE(p);
    return 0;
}

/* --- the client --------------------------------------------------------------------------------------------------- */

static int copy_names(struct pq_client_shared *shared, const struct pq_strings *names)
{
    if (!names)
        return 0;
    shared->how.names = &shared->names;
    shared->names.at = calloc(names->count ? names->count : 1, sizeof(char *));
    if (!shared->names.at)
        return PQ_E_NOMEM;
    for (size_t i = 0; i < names->count; i++) {
        shared->names.at[i] = strdup(names->at[i]);
        if (!shared->names.at[i])
            return PQ_E_NOMEM;
        shared->names.count++;
    }
    return 0;
}

int pq_http2_client_new(struct ev_loop *loop, const struct pq_http2_client_settings *how, struct pq_http2_client **out)
{
    DEFER(pq_http2_client_freep) struct pq_http2_client *c = calloc(1, sizeof *c);
    if (!c)
        return PQ_E_NOMEM;
    c->shared.loop = loop;
    c->shared.how = *how;
    pq_http2_default_limits(&c->shared.how.limits, how->fresh ? 1024 : 8);
    pq_http2_default_timeouts(&c->shared.how.timeouts);
    ev_timer_init(&c->done_soon, on_done, 0., 0.);
    c->done_soon.data = c;
    TRY(copy_names(&c->shared, how->names));
    TRY(pq_link_callbacks(&c->shared.callbacks));
    *out = TAKE(c);
    return 0;
}

int pq_http2_client_call(struct pq_http2_client *c, const struct pq_http2_call *how, struct pq_why *why)
{
    struct pq_pool *p = NULL;
    if (c->shared.draining)
        return pq_why(why, PQ_E_INTERRUPTED, "the client is closing");
    TRY(find_pool(c, how->authority, &p, why));
    if (p->waiting_count >= MAX_WAITING) // NOLINT(clang-analyzer-core.NullDereference): find_pool() set it
        return pq_why(why, PQ_E_LIMIT, "%d requests to %s wait already", MAX_WAITING, p->authority);
    struct pq_call *call = NULL;
    TRY(pq_call_new(how, c->shared.how.limits.body, &call));
    call->pool = p;
    call->timing.start = pq_clock_ns();
    ev_timer_init(&call->timer, on_timer, 0., 0.);
    call->timer.data = call;
    ev_now_update(c->shared.loop);
    ev_timer_set(&call->timer,
                 (double)(how->timeout ? how->timeout : c->shared.how.timeouts.request) / (double)PQ_NS_PER_S, 0.);
    ev_timer_start(c->shared.loop, &call->timer);
    pq_call_put_last(&p->waiting, call);
    p->waiting_count++;
    pq_pool_run(p);
    return 0;
}

void pq_http2_client_drain(struct pq_http2_client *c, void (*done)(void *context), void *context)
{
    c->shared.draining = true;
    c->done = done;
    c->done_context = context;
    for (struct pq_pool *p = c->pools; p; p = p->next)
        for (struct pq_link *l = p->first; l; l = pq_link_next(l))
            pq_link_drain(l);
    look_done(c);
}

static void pool_end(struct pq_pool *p)
{
    static const char reason[] = "the client was closed";
    for (struct pq_link *l; (l = p->first);) {
        pq_link_abandon(l, PQ_E_INTERRUPTED, reason);
        pq_link_free(l);
    }
    fail_waiting(p, PQ_E_INTERRUPTED, pq_error_name(PQ_E_INTERRUPTED), reason);
    pool_free(p);
}

void pq_http2_client_free(struct pq_http2_client *c)
{
    if (!c)
        return;
    c->shared.draining = true;
    for (struct pq_pool *p; (p = c->pools);) {
        c->pools = p->next;
        pool_end(p);
    }
    ev_timer_stop(c->shared.loop, &c->done_soon);
    if (c->shared.callbacks)
        nghttp2_session_callbacks_del(c->shared.callbacks);
    for (size_t i = 0; i < c->shared.names.count; i++)
        free(c->shared.names.at[i]);
    free(c->shared.names.at);
    free(c);
}
