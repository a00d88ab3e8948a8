#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "proxy/supervisor_parts.h"
#include "proxy/worker.h"

/* Before a worker that could not take a generation gets it once more, in seconds. */
#define GIVE_AGAIN 1.

#define FOR_EACH_WORKER(w, s) for (struct pq_supervised *w = (s)->worker; w < (s)->worker + PQ_SHARED_SLOTS; w++)

static void wait_again(struct pq_supervised *w, double seconds)
{
    struct ev_loop *loop = w->supervisor->loop;
    ev_timer_stop(loop, &w->again);
    ev_timer_set(&w->again, seconds, 0.);
    ev_timer_start(loop, &w->again);
}

/* --- giving a generation ----------------------------------------------------------------------------------------- */
static void give(struct pq_supervised *w)
{
    struct pq_supervisor *s = w->supervisor;
    if (!w->child.pid || s->packed < 0)
        return;
    for (size_t i = 0; i < s->listening.count && w->wanted; i++) {
        const struct pq_listening *l = &s->listening.at[i];
        struct pq_control_message m = {.type = PQ_CONTROL_SOCKET, .generation = (int64_t)l->number};
        m.fd[m.fd_count++] = l->fd;
        if (l->number > w->socket)
            pq_child_tell(&w->child, &m);
    }
    w->socket = s->listening.last;
    struct pq_control_message m = {.type = PQ_CONTROL_GENERATION, .generation = (int64_t)s->generation};
    m.fd[m.fd_count++] = s->packed;
    pq_child_tell(&w->child, &m);
}

void pq_crew_give(struct pq_supervisor *s)
{
    FOR_EACH_WORKER (w, s)
        give(w);
}

static void tell_addresses(struct pq_supervised *w, size_t listener)
{
    const struct pq_proxy_target *t = &pq_proxy_listener_at(&w->supervisor->config, listener)->target;
    struct pq_control_message m = {
        .type = PQ_CONTROL_ADDRESSES, .status = (int)listener, .generation = (int64_t)w->generation};
    size_t len = 0;
    for (size_t i = 0; i < t->count; i++) {
        char text[PQ_ADDRESS_TEXT];
        pq_address_text(&t->places[i].at, text);
        int n = snprintf(m.text + len, sizeof m.text - len, "%s\n", text);
        if (n < 0 || (size_t)n >= sizeof m.text - len)
            break;
        len += (size_t)n;
    }
    m.text[len] = '\0';
    pq_child_tell(&w->child, &m);
}

void pq_crew_lead(struct pq_supervisor *s, size_t listener)
{
    FOR_EACH_WORKER (w, s)
        if (w->child.pid && w->generation == s->generation)
            tell_addresses(w, listener);
}

/* What has changed since its generation was packed. */
static void tell_changed(struct pq_supervised *w)
{
    const struct pq_supervisor *s = w->supervisor;
    if (w->generation != s->generation)
        return;
    for (size_t i = 0; i < pq_proxy_listener_count(&s->config); i++)
        if (pq_resolver_changed(s->resolver, i))
            tell_addresses(w, i);
}

/* --- starting ---------------------------------------------------------------------------------------------------- */
static int work(void *context, int control)
{
    const struct pq_supervised *w = context;
    struct pq_supervisor *s = w->supervisor;
    pq_bundle_free(&s->loading.bundle); /* one that is being checked just now */
    struct pq_worker_how how = {.shared = s->shared,
                                .slot = w->slot,
                                .control = control,
                                .log_fd = s->log_fd,
                                .contain = &s->contain,
                                .packed = w->packed};
    return pq_worker_run(&how);
}

static void leave(void *context)
{
    struct pq_supervised *w = context;
    struct pq_supervisor *s = w->supervisor;
    w->packed = s->config.pkcs11_module ? TAKE_FD(s->packed) : -1;
    pq_supervisor_leave(s);
}

static int start(struct pq_supervised *w, struct pq_why *why)
{
    struct pq_supervisor *s = w->supervisor;
    struct pq_child_how how = {.leave = leave, .run = work, .context = w};
    TRY(pq_child_start(&w->child, &how, why));
    w->drained = false;
    w->generation = w->socket = 0;
    w->refused = 0;
    w->restart.started = pq_clock_ns();
    pq_shared_use(s->shared, w->slot);
    s->shared->worker[w->slot].pid = w->child.pid;
    pq_log(PQ_LOG_DEBUG, "worker started", "worker", pq_i((int64_t)w->slot), "pid", pq_i(w->child.pid), NULL);
    give(w);
    return 0;
}

/* In how many seconds. */
static double start_again_later(struct pq_supervised *w)
{
    double wait = (double)pq_restart_died(&w->restart, pq_clock_ns()) / 1e9;
    wait_again(w, wait);
    return wait;
}

static void on_again(struct ev_loop *loop, ev_timer *timer, int revents)
{
    (void)loop, (void)revents;
    struct pq_supervised *w = timer->data;
    struct pq_why why = {""};
    if (w->child.pid) {
        give(w);
        return;
    }
    w->supervisor->shared->worker[w->slot].restarts++;
    if (start(w, &why) == 0)
        return;
    pq_log(PQ_LOG_ERROR, "worker not started", "worker", pq_i((int64_t)w->slot), "detail", pq_s(why.text), NULL);
    (void)start_again_later(w);
}

static struct pq_supervised *free_slot(struct pq_supervisor *s)
{
    FOR_EACH_WORKER (w, s)
        if (!w->wanted && !w->child.pid)
            return w;
    return NULL;
}

static int hire(struct pq_supervisor *s, struct pq_why *why)
{
    struct pq_supervised *w = free_slot(s);
    if (!w)
        return pq_why(why, PQ_E_LIMIT, "%d workers still carry connections of before: no further one can be started",
                      PQ_SHARED_SLOTS);
    w->restart = (struct pq_restart){0};
    w->wanted = true;
    pq_shared_use(s->shared, w->slot);
    s->shared->worker[w->slot].wanted = 1;
    int e = start(w, why);
    if (e < 0)
        (void)start_again_later(w);
    return e;
}

static void retire(struct pq_supervised *w)
{
    struct pq_control_message m = {.type = PQ_CONTROL_RETIRE};
    w->wanted = false;
    /* After an upgrade the other supervisor has workers: whoever still asks our admin process finds it ready. */
    if (w->supervisor->phase != PQ_RETIRING)
        w->supervisor->shared->worker[w->slot].wanted = 0;
    ev_timer_stop(w->supervisor->loop, &w->again);
    pq_child_tell(&w->child, &m);
}

void pq_crew_retire(struct pq_supervisor *s)
{
    FOR_EACH_WORKER (w, s)
        if (w->wanted)
            retire(w);
}

int pq_crew_fit(struct pq_supervisor *s, struct pq_why *why)
{
    int64_t wanted = 0;
    FOR_EACH_WORKER (w, s) {
        if (w->wanted && wanted == s->config.workers)
            retire(w);
        wanted += w->wanted;
    }
    for (; wanted < s->config.workers; wanted++)
        TRY(hire(s, why));
    return 0;
}

/* --- what they say ----------------------------------------------------------------------------------------------- */
bool pq_crew_ready(const struct pq_supervisor *s)
{
    int64_t ready = 0;
    FOR_EACH_WORKER (w, (struct pq_supervisor *)(uintptr_t)s) {
        if (w->wanted && w->child.pid && w->generation != s->generation)
            return false;
        ready += w->wanted && w->child.pid;
    }
    return s->phase != PQ_STARTING || ready == s->config.workers;
}

/* A contained worker can't take what its successor can: a key that is new in a token. Its connections stay with it, and
 * are judged by the new generation too. */
static void replace(struct pq_supervised *w)
{
    struct pq_why why = {""};
    pq_log(PQ_LOG_INFO, "worker replaced", "worker", pq_i((int64_t)w->slot), "detail", pq_s(w->why.text), NULL);
    retire(w);
    give(w);
    if (pq_crew_fit(w->supervisor, &why) < 0)
        pq_log(PQ_LOG_ERROR, "worker not started", "detail", pq_s(why.text), NULL);
}

static void refused(struct pq_supervised *w, const struct pq_control_message *m)
{
    w->refused = m->status < 0 ? m->status : PQ_E_IO;
    pq_why(&w->why, 0, "%s", m->text);
    if (w->generation == 0)
        return; /* it ends */
    if (w->refused == PQ_E_UNSUPPORTED && w->wanted) {
        replace(w);
        return;
    }
    pq_log(PQ_LOG_ERROR, "worker keeps the old configuration", "worker", pq_i((int64_t)w->slot), "detail",
           pq_s(m->text), NULL);
    wait_again(w, GIVE_AGAIN);
}

static void heard(struct pq_child *c, struct pq_control_message *m)
{
    struct pq_supervised *w = (struct pq_supervised *)(void *)((char *)c - offsetof(struct pq_supervised, child));
    if (m->type == PQ_CONTROL_READY) {
        w->generation = (uint64_t)m->generation;
        w->refused = 0;
        w->supervisor->shared->worker[w->slot].ready = 1;
        tell_changed(w);
        pq_loading_look_whether_applied(w->supervisor);
    } else if (m->type == PQ_CONTROL_REFUSED) {
        refused(w, m);
    } else if (m->type == PQ_CONTROL_DONE && m->status == PQ_CONTROL_DRAIN) {
        w->drained = true;
        w->open = w->supervisor->shared->worker[w->slot].open;
        pq_supervisor_look(w->supervisor);
    } else if (m->type == PQ_CONTROL_DONE && m->status == PQ_CONTROL_CONNECTIONS && m->generation == w->listing) {
        w->listing = 0;
        pq_admin_link_listed(w->supervisor);
    }
}

/* --- ending ------------------------------------------------------------------------------------------------------ */
static void died(struct pq_supervised *w, int status)
{
    struct pq_supervisor *s = w->supervisor;
    char how[80];
    pq_child_status_text(status, how, sizeof how);
    if (s->phase == PQ_STARTING && w->refused) {
        pq_supervisor_end(s, w->refused, &w->why);
        return;
    }
    if (!w->wanted || s->phase >= PQ_RETIRING) {
        if (status != 0)
            pq_log(PQ_LOG_ERROR, "worker died", "worker", pq_i((int64_t)w->slot), "detail", pq_s(how), NULL);
        return;
    }
    double wait = start_again_later(w);
    pq_log(PQ_LOG_ERROR, "worker died", "worker", pq_i((int64_t)w->slot), "detail",
           pq_s(w->refused ? w->why.text : how), "restart_in_s", pq_f(wait), NULL);
}

void pq_crew_reap(struct pq_supervisor *s)
{
    int status;
    FOR_EACH_WORKER (w, s) {
        if (!pq_child_reap(&w->child, &status))
            continue;
        ev_timer_stop(s->loop, &w->again);
        pq_shared_clear(&s->shared->worker[w->slot]);
        died(w, status);
        pq_loading_look_whether_applied(s);
        pq_admin_link_listed(s);
    }
}

void pq_crew_dismiss(struct pq_supervisor *s)
{
    FOR_EACH_WORKER (w, s)
        ev_timer_stop(s->loop, &w->again);
}

void pq_crew_tell(struct pq_supervisor *s, const struct pq_control_message *m)
{
    FOR_EACH_WORKER (w, s)
        pq_child_tell(&w->child, m);
}

void pq_crew_kill(struct pq_supervisor *s)
{
    FOR_EACH_WORKER (w, s)
        if (w->child.pid)
            kill(w->child.pid, SIGKILL);
}

size_t pq_crew_living(const struct pq_supervisor *s)
{
    size_t n = 0;
    FOR_EACH_WORKER (w, (struct pq_supervisor *)(uintptr_t)s)
        n += w->child.pid != 0;
    return n;
}

void pq_crew_init(struct pq_supervisor *s)
{
    FOR_EACH_WORKER (w, s) {
        *w = (struct pq_supervised){.supervisor = s, .slot = (size_t)(w - s->worker)};
        pq_child_init(&w->child, s->loop, heard);
        ev_init(&w->again, on_again);
        w->again.data = w;
    }
}
