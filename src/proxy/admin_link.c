#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "proxy/admin.h"
#include "proxy/supervisor_parts.h"

/* In seconds. */
#define LISTING_LIMIT 10.  /* that workers may take to list their connections */
#define END_PATIENCE  2000 /* ms that the process may take to end */

/* --- the process ------------------------------------------------------------------------------------------------- */
static int run(void *context, int control)
{
    struct pq_supervisor *s = context;
    struct pq_contain contain = s->contain;
    contain.profile = PQ_CONTAIN_ADMIN;
    contain.read_count = contain.write_count = 0;
    pq_bundle_free(&s->loading.bundle);
    struct pq_admin_how how = {.shared = s->shared,
                               .control = control,
                               .listening = fcntl(s->admin.listening.at[0].fd, F_DUPFD_CLOEXEC, 3),
                               .log_fd = s->log_fd,
                               .contain = &contain};
    pq_admin_link_free(s, false);
    return pq_admin_run(&how);
}

static void leave(void *context)
{
    struct pq_supervisor *s = context;
    struct pq_listening_set mine = s->admin.listening;
    s->admin.listening = (struct pq_listening_set){0};
    pq_supervisor_leave(s);
    s->admin.listening = mine;
}

static void send_view(struct pq_supervisor *s)
{
    struct pq_control_message m = {.type = PQ_CONTROL_VIEW, .generation = (int64_t)s->generation};
    if (s->admin.view < 0)
        return;
    m.fd[m.fd_count++] = s->admin.view;
    pq_child_tell(&s->admin.child, &m);
}

static void start(struct pq_supervisor *s)
{
    struct pq_admin_link *a = &s->admin;
    struct pq_child_how how = {.leave = leave, .run = run, .context = s};
    struct pq_why why = {""};
    if (a->listening.count == 0 || a->child.pid)
        return;
    if (pq_child_start(&a->child, &how, &why) == 0) {
        a->restart.started = pq_clock_ns();
        send_view(s);
        return;
    }
    pq_log(PQ_LOG_ERROR, "admin process not started", "detail", pq_s(why.text), NULL);
    ev_timer_set(&a->again, 1., 0.);
    ev_timer_start(s->loop, &a->again);
}

static void on_again(struct ev_loop *loop, ev_timer *timer, int revents)
{
    (void)loop, (void)revents;
    start(timer->data);
}

static void forget_requests(struct pq_admin_link *a)
{
    a->now.count = a->later.count = 0;
    a->listing = 0;
}

void pq_admin_link_reap(struct pq_supervisor *s)
{
    struct pq_admin_link *a = &s->admin;
    int status;
    char how[80];
    if (!pq_child_reap(&a->child, &status))
        return;
    forget_requests(a);
    if (s->phase == PQ_ENDING || s->phase == PQ_RETIRING)
        return;
    double wait = (double)pq_restart_died(&a->restart, pq_clock_ns()) / 1e9;
    ev_timer_set(&a->again, wait, 0.);
    ev_timer_start(s->loop, &a->again);
    pq_child_status_text(status, how, sizeof how);
    pq_log(PQ_LOG_ERROR, "admin process died", "detail", pq_s(how), "restart_in_s", pq_f(wait), NULL);
}

/* --- answers ----------------------------------------------------------------------------------------------------- */
static void answer(struct pq_supervisor *s, int64_t number, int e, const char *why, int fd)
{
    struct pq_control_message m = {.type = PQ_CONTROL_ANSWER, .status = e, .generation = number};
    snprintf(m.text, sizeof m.text, "%s", why);
    if (fd >= 0)
        m.fd[m.fd_count++] = fd;
    pq_child_tell(&s->admin.child, &m);
}

void pq_admin_link_loaded(struct pq_supervisor *s, int e, const struct pq_why *why)
{
    struct pq_admin_link *a = &s->admin;
    if (e == 0 && s->loading.view >= 0) {
        pq_closep(&a->view);
        a->view = TAKE_FD(s->loading.view);
        send_view(s);
    }
    pq_closep(&s->loading.view);
    for (size_t i = 0; i < a->now.count; i++)
        answer(s, a->now.number[i], e, e < 0 ? (why->text[0] ? why->text : pq_error_text(e)) : "", -1);
    a->now = a->later;
    a->later.count = 0;
    if (e == 0)
        start(s);
}

static void heard_reload(struct pq_supervisor *s, const struct pq_control_message *m)
{
    struct pq_admin_link *a = &s->admin;
    struct pq_admin_reloads *to = s->loading.step == PQ_LOADING_NOTHING ? &a->now : &a->later;
    if (s->phase != PQ_SERVING) {
        answer(s, m->generation, PQ_E_INTERRUPTED, "the sidecar is draining", -1);
    } else if (to->count == PQ_ADMIN_RELOADS_MAX) {
        answer(s, m->generation, PQ_E_LIMIT, "too many reloads wait: try again", -1);
    } else {
        to->number[to->count++] = m->generation;
        pq_loading_begin(s, "the admin listener", true);
    }
}

static void heard_drain(struct pq_supervisor *s, const struct pq_control_message *m)
{
    answer(s, m->generation, 0, "", -1);
    if (s->phase < PQ_DRAINING)
        pq_supervisor_drain(s, "the admin listener");
}

/* --- connections ------------------------------------------------------------------------------------------------- */
static void finish_listing(struct pq_supervisor *s, int e)
{
    struct pq_admin_link *a = &s->admin;
    ev_timer_stop(s->loop, &a->limit);
    if (a->listing)
        answer(s, a->listing, e, e < 0 ? "a worker took too long to list its connections" : "", a->rows);
    a->listing = 0;
    for (size_t i = 0; i < PQ_SHARED_SLOTS; i++)
        s->worker[i].listing = 0;
    pq_closep(&a->rows);
}

void pq_admin_link_listed(struct pq_supervisor *s)
{
    if (!s->admin.listing)
        return;
    for (size_t i = 0; i < PQ_SHARED_SLOTS; i++)
        if (s->worker[i].listing && s->worker[i].child.pid)
            return;
    finish_listing(s, 0);
}

static void on_limit(struct ev_loop *loop, ev_timer *timer, int revents)
{
    (void)loop, (void)revents;
    finish_listing(timer->data, PQ_E_TIMEOUT);
}

/* All write at its end, whole lines at a time. */
static int new_file(void)
{
    int fd = memfd_create("connections", MFD_CLOEXEC);
    if (fd >= 0 && fcntl(fd, F_SETFL, O_APPEND) < 0)
        pq_closep(&fd);
    return fd;
}

static void heard_connections(struct pq_supervisor *s, const struct pq_control_message *m)
{
    struct pq_admin_link *a = &s->admin;
    finish_listing(s, PQ_E_TIMEOUT);
    a->rows = new_file();
    if (a->rows < 0) {
        answer(s, m->generation, pq_error_from_errno(errno), strerror(errno), -1);
        return;
    }
    a->listing = m->generation;
    struct pq_control_message all = {.type = PQ_CONTROL_CONNECTIONS, .generation = m->generation};
    all.fd[all.fd_count++] = a->rows;
    for (size_t i = 0; i < PQ_SHARED_SLOTS; i++) {
        s->worker[i].listing = s->worker[i].child.pid ? m->generation : 0;
        pq_child_tell(&s->worker[i].child, &all);
    }
    ev_timer_set(&a->limit, LISTING_LIMIT, 0.);
    ev_timer_start(s->loop, &a->limit);
    pq_admin_link_listed(s);
}

/* --- all of it --------------------------------------------------------------------------------------------------- */
static void heard_refused(struct pq_supervisor *s, const struct pq_control_message *m)
{
    (void)s;
    pq_log(PQ_LOG_ERROR, "admin process refused", "detail", pq_s(m->text), NULL);
}

static void heard(struct pq_child *c, struct pq_control_message *m)
{
    static void (*const rows[PQ_CONTROL_TYPE_COUNT])(struct pq_supervisor *s, const struct pq_control_message *m) = {
        [PQ_CONTROL_RELOAD] = heard_reload,
        [PQ_CONTROL_DRAIN] = heard_drain,
        [PQ_CONTROL_CONNECTIONS] = heard_connections,
        [PQ_CONTROL_REFUSED] = heard_refused,
    };
    if (rows[m->type])
        rows[m->type]((struct pq_supervisor *)(void *)((char *)c - offsetof(struct pq_supervisor, admin.child)), m);
}

void pq_admin_link_init(struct pq_supervisor *s)
{
    struct pq_admin_link *a = &s->admin;
    a->view = a->rows = s->loading.view = -1;
    pq_child_init(&a->child, s->loop, heard);
    ev_init(&a->limit, on_limit);
    ev_init(&a->again, on_again);
    a->limit.data = a->again.data = s;
}

/* Whoever can open a unix socket's path can stop the sidecar: its owner and group. */
int pq_admin_link_open(struct pq_supervisor *s, const struct pq_proxy_config *config, struct pq_why *why)
{
    struct pq_listening_set plan = {0};
    mode_t before = umask(0117);
    int e = config->admin.text ? pq_listening_plan_one(&s->admin.listening, "admin", &config->admin, &plan, why) : 0;
    umask(before);
    if (e == 0)
        pq_listening_take(&s->admin.listening, &plan, &s->removed);
    return e;
}

void pq_admin_link_tell(struct pq_supervisor *s, const struct pq_control_message *m)
{
    pq_child_tell(&s->admin.child, m);
}

void pq_admin_link_dismiss(struct pq_supervisor *s)
{
    const struct pq_control_message m = {.type = PQ_CONTROL_END};
    ev_timer_stop(s->loop, &s->admin.again);
    pq_child_tell(&s->admin.child, &m);
}

void pq_admin_link_end(struct pq_supervisor *s)
{
    struct pq_child *c = &s->admin.child;
    int status;
    ev_timer_stop(s->loop, &s->admin.again);
    pq_child_close(c); /* which ends it, at once */
    for (int waited = 0; c->pid && waited < END_PATIENCE && !pq_child_reap(c, &status); waited += 5)
        usleep(5000);
    if (c->pid && kill(c->pid, SIGKILL) == 0)
        (void)waitpid(c->pid, &status, 0);
}

void pq_admin_link_free(struct pq_supervisor *s, bool ends)
{
    struct pq_admin_link *a = &s->admin;
    pq_child_close(&a->child);
    if (ends)
        pq_listening_close(&a->listening);
    else
        pq_listening_forget(&a->listening);
    pq_closep(&a->view);
    pq_closep(&a->rows);
    pq_closep(&s->loading.view);
}
