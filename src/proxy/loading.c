#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "proxy/generation.h"
#include "proxy/notify.h"
#include "proxy/supervisor_parts.h"
#include "proxy/view.h"
#include "proxy/worker.h"

/* How long the check of a configuration may take, in seconds: a token's module could hang. */
#define CHECK_LIMIT 30.

static void next(struct pq_supervisor *s)
{
    struct pq_loading *l = &s->loading;
    l->step = PQ_LOADING_NOTHING;
    ev_timer_stop(s->loop, &l->limit);
    pq_bundle_free(&l->bundle);
    pq_supervisor_tell_manager(s);
    if (s->upgrade.wanted)
        pq_upgrade_begin(s);
    pq_loading_resume(s);
}

static bool may_load(const struct pq_supervisor *s)
{
    return s->loading.step == PQ_LOADING_NOTHING && s->upgrade.step != PQ_UPGRADE_BEGUN;
}

void pq_loading_resume(struct pq_supervisor *s)
{
    struct pq_loading *l = &s->loading;
    if (!l->again || !may_load(s) || s->phase > PQ_RETIRING)
        return;
    l->again = false;
    pq_loading_begin(s, l->cause, true);
}

static void refuse(struct pq_supervisor *s, int e, const struct pq_why *why)
{
    const char *detail = why->text[0] ? why->text : pq_error_text(e);
    if (s->phase == PQ_STARTING) {
        pq_bundle_free(&s->loading.bundle);
        pq_supervisor_end(s, e, why);
        return;
    }
    s->shared->reloads_refused++;
    s->shared->reload_refused = 1;
    pq_log(PQ_LOG_ERROR, "reload refused", "cause", pq_s(s->loading.cause), "generation", pq_i((int64_t)s->generation),
           "detail", pq_s(detail), NULL);
    pq_admin_link_loaded(s, e, why);
    next(s);
}

/* --- giving it out ----------------------------------------------------------------------------------------------- */
static bool same_text(const char *a, const char *b) { return (!a && !b) || (a && b && strcmp(a, b) == 0); }

/* What a process took up when it started. */
static void warn_of_fixed(const struct pq_proxy_config *old, const struct pq_proxy_config *new)
{
    const char *key = !same_text(old->user, new->user)                     ? "user"
                      : old->contain != new->contain                       ? "contain"
                      : !same_text(old->admin.text, new->admin.text)       ? "admin"
                      : !same_text(old->pkcs11_module, new->pkcs11_module) ? "pkcs11"
                                                                           : NULL;
    if (key)
        pq_log(PQ_LOG_WARN, "change needs a restart", "key", pq_s(key), "detail",
               pq_s("it holds for processes from their start: restart, or upgrade with SIGUSR2"), NULL);
}

/* As many descriptors as the system lets each process have; a warning where that is too few for limits.connections. */
static void raise_descriptors(const struct pq_supervisor *s)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) < 0)
        return;
    if (r.rlim_cur < r.rlim_max) {
        struct rlimit most = {r.rlim_max, r.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &most) == 0)
            r.rlim_cur = r.rlim_max;
    }
    int64_t enough = pq_worker_connections(s->listening.count) * s->config.workers;
    if (enough < s->config.limits.connections)
        pq_log(PQ_LOG_WARN, "few descriptors", "limit", pq_i((int64_t)r.rlim_cur), "enough_for", pq_i(enough),
               "limits_connections", pq_i(s->config.limits.connections), "detail",
               pq_s("further clients wait until a connection ends: raise the limit (ulimit -n, LimitNOFILE=)"), NULL);
}

/* Without a plan: for workers that accept no more. */
static int pack(struct pq_bundle *b, const struct pq_listening_set *plan, int *packed, struct pq_why *why)
{
    DEFER(pq_freep) uint64_t *numbers = calloc(pq_proxy_listener_count(&b->config), sizeof numbers[0]);
    if (!numbers)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    for (size_t i = 0; plan && i < plan->count; i++)
        numbers[i] = plan->at[i].number;
    return pq_bundle_pack(b, numbers, packed, why);
}

/* Without it the addresses of this moment must do. */
static void resolve_from_now_on(struct pq_supervisor *s)
{
    struct pq_why why = {""};
    int e = pq_resolver_set(s->resolver, &s->config, &why);
    if (e < 0)
        pq_log(PQ_LOG_ERROR, "host names not followed", "detail", pq_s(why.text[0] ? why.text : pq_error_text(e)),
               NULL);
}

static void take(struct pq_supervisor *s, struct pq_listening_set *plan, int packed)
{
    struct pq_proxy_config *config = &s->loading.bundle.config;
    if (s->packed >= 0)
        warn_of_fixed(&s->config, config);
    if (plan)
        pq_listening_take(&s->listening, plan, &s->removed);
    if (s->previous.channel < 0 || s->phase != PQ_STARTING)
        pq_listening_close(&s->removed); /* else the old supervisor may need them again */
    pq_proxy_config_free(&s->config);
    s->config = *config;
    *config = (struct pq_proxy_config){0};
    pq_closep(&s->packed);
    s->packed = packed;
    s->generation++;
    resolve_from_now_on(s);
    pq_bundle_free(&s->loading.bundle);
    pq_log_set((enum pq_log_level)s->config.log.level, (enum pq_log_format)s->config.log.format);
    raise_descriptors(s);
}

static int prepare_start(struct pq_supervisor *s, struct pq_why *why)
{
    const struct pq_proxy_config *config = &s->loading.bundle.config;
    s->contain.off = !config->contain;
    TRY(pq_contain_user(config->user, &s->contain, why));
    return pq_admin_link_open(s, config, why);
}

/* Connections that stayed behind are held against what is in force now. */
static int apply_to_retired(struct pq_supervisor *s, struct pq_why *why)
{
    int packed;
    TRY(pack(&s->loading.bundle, NULL, &packed, why));
    take(s, NULL, packed);
    s->loading.step = PQ_LOADING_APPLY;
    pq_crew_give(s);
    return 0;
}

static int apply(struct pq_supervisor *s, struct pq_why *why)
{
    struct pq_bundle *b = &s->loading.bundle;
    struct pq_listening_set plan;
    int packed;
    if (s->phase == PQ_RETIRING)
        return apply_to_retired(s, why);
    if (s->phase == PQ_STARTING)
        TRY(prepare_start(s, why));
    TRY(pq_listening_plan(&s->listening, &b->config, &plan, why));
    int e = pack(b, &plan, &packed, why);
    if (e < 0) {
        pq_listening_drop(&plan);
        return e;
    }
    take(s, &plan, packed);
    s->loading.step = PQ_LOADING_APPLY;
    pq_crew_give(s);
    e = pq_crew_fit(s, why);
    if (e < 0 && s->phase != PQ_STARTING) {
        pq_log(PQ_LOG_ERROR, "worker not started", "detail", pq_s(why->text), NULL);
        e = 0;
    }
    return e;
}

void pq_loading_look_whether_applied(struct pq_supervisor *s)
{
    if (s->loading.step != PQ_LOADING_APPLY || s->phase >= PQ_DRAINING || !pq_crew_ready(s))
        return;
    s->shared->generation = s->generation;
    pq_supervisor_applied(s);
    pq_admin_link_loaded(s, 0, NULL);
    next(s);
}

/* --- checking ---------------------------------------------------------------------------------------------------- */
static void leave(void *context) { pq_supervisor_leave(context); }

/* For the admin process, which sees no file. Where it can't be written, the check of the rest tells why. */
static void write_view(const struct pq_supervisor *s, struct pq_crypto *crypto, struct pq_control_message *m)
{
    const struct pq_bundle *b = &s->loading.bundle;
    const struct pq_view v = {
        .file = s->how->config, .config = &b->config, .files = b->files, .generation = s->generation + 1};
    DEFER(pq_buf_free) struct pq_buf text = {.cap = PQ_VIEW_MAX};
    if (!b->config.admin.text || pq_view_write(crypto, &v, &text, NULL) < 0)
        return;
    DEFER(pq_closep) int fd = memfd_create("view", MFD_CLOEXEC);
    if (fd < 0 || write(fd, text.at, text.len) != (ssize_t)text.len)
        return;
    m->fd[m->fd_count++] = TAKE_FD(fd);
}

/* In the child: keys are unpacked where they don't stay. */
static int check(void *context, int control)
{
    struct pq_supervisor *s = context;
    struct pq_bundle *b = &s->loading.bundle;
    struct pq_control c;
    struct pq_control_message m = {.type = PQ_CONTROL_READY};
    struct pq_why why = {""};
    DEFER(pq_crypto_freep) struct pq_crypto *crypto = NULL;
    DEFER(pq_generation_freep) struct pq_generation *g = NULL;
    pq_control_init(&c, control);
    m.status = pq_crypto_new(&crypto, &why);
    if (m.status == 0)
        write_view(s, crypto, &m);
    if (m.status == 0)
        m.status = pq_generation_new(crypto, &b->config, &b->files, NULL, 0, &g, &why);
    pq_bundle_free(b);
    if (m.status < 0) {
        m.type = PQ_CONTROL_REFUSED;
        snprintf(m.text, sizeof m.text, "%s", why.text);
    }
    int e = pq_control_send(&c, &m);
    pq_control_free(&c);
    return e < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

static void heard(struct pq_child *c, struct pq_control_message *m)
{
    struct pq_loading *l = (struct pq_loading *)(void *)((char *)c - offsetof(struct pq_loading, check));
    l->passed = m->type == PQ_CONTROL_READY;
    l->refused = m->status;
    pq_closep(&l->view);
    l->view = m->fd_count ? m->fd[--m->fd_count] : -1;
    pq_why(&l->why, 0, "%s", m->text);
}

static void on_limit(struct ev_loop *loop, ev_timer *timer, int revents)
{
    (void)loop, (void)revents;
    struct pq_loading *l = timer->data;
    if (l->check.pid)
        kill(l->check.pid, SIGKILL);
}

static int start_check(struct pq_supervisor *s, struct pq_why *why)
{
    struct pq_loading *l = &s->loading;
    struct pq_child_how how = {.leave = leave, .run = check, .context = s};
    l->passed = false;
    l->refused = 0;
    TRY(pq_child_start(&l->check, &how, why));
    l->step = PQ_LOADING_CHECK;
    ev_timer_set(&l->limit, CHECK_LIMIT, 0.);
    ev_timer_start(s->loop, &l->limit);
    return 0;
}

void pq_loading_reap(struct pq_supervisor *s)
{
    struct pq_loading *l = &s->loading;
    struct pq_why why = {""};
    int status, e = 0;
    if (!pq_child_reap(&l->check, &status) || s->phase >= PQ_DRAINING)
        return;
    ev_timer_stop(s->loop, &l->limit);
    if (l->refused < 0) {
        e = l->refused;
        why = l->why;
    } else if (!l->passed) {
        char how[80];
        pq_child_status_text(status, how, sizeof how);
        e = pq_why(&why, PQ_E_IO, "the process that checks the configuration %s", how);
    } else {
        e = apply(s, &why);
    }
    if (e < 0)
        refuse(s, e, &why);
    else
        pq_loading_look_whether_applied(s);
}

/* --- reading ----------------------------------------------------------------------------------------------------- */
/* What is watched is known before it is read, so that a change in between shows. */
static int read_all(struct pq_supervisor *s, struct pq_why *why)
{
    struct pq_bundle *b = &s->loading.bundle;
    int e = pq_bundle_open(s->how->config, b, why);
    if (b->named.count)
        TRY(pq_watch_set(s->watch, &b->named));
    TRY(e);
    if (s->phase == PQ_STARTING)
        pq_log_set((enum pq_log_level)b->config.log.level, (enum pq_log_format)b->config.log.format);
    return pq_bundle_fill(b, why);
}

void pq_loading_begin(struct pq_supervisor *s, const char *cause, bool always)
{
    struct pq_loading *l = &s->loading;
    struct pq_why why = {""};
    if (!may_load(s)) {
        l->again = true;
        return;
    }
    l->cause = cause;
    if (always && s->phase == PQ_SERVING)
        pq_notify("RELOADING=1\nMONOTONIC_USEC=%lld", (long long)(pq_clock_ns() / PQ_NS_PER_US));
    int e = read_all(s, &why);
    if (e == 0 && !always && pq_bundle_equal(&l->bundle, s->packed)) {
        next(s);
        return;
    }
    if (e == 0)
        e = start_check(s, &why);
    if (e < 0)
        refuse(s, e, &why);
}

void pq_loading_stop(struct pq_supervisor *s)
{
    s->loading.again = false;
    if (s->loading.check.pid)
        kill(s->loading.check.pid, SIGKILL);
}

void pq_loading_init(struct pq_supervisor *s)
{
    pq_child_init(&s->loading.check, s->loop, heard);
    ev_init(&s->loading.limit, on_limit);
    s->loading.limit.data = &s->loading;
}
