#include "proxy/admin.h"

#include <ev.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <yyjson.h>

#include "base/clock.h"
#include "base/json.h"
#include "proxy/admin_ask.h"
#include "proxy/control.h"
#include "proxy/metrics.h"
#include "proxy/view.h"

enum { METRICS_MAX = 32 << 20, NICENESS = 10 };
#define END_PATIENCE (5 * PQ_NS_PER_S) /* for clients that are connected when it is told to end */

static const char json[] = "application/json", lines[] = "application/x-ndjson", plain[] = "text/plain; charset=utf-8";

struct admin {
    struct ev_loop *loop;
    struct pq_shared *shared;
    struct pq_control control;
    int log_fd;
    ev_io io;
    ev_timer tick;
    struct pq_admin_http *http;
    struct pq_buf view;    /* text of /config */
    yyjson_doc *view_read; /* what certificates point into */
    struct pq_metrics_certificate *certificates;
    size_t certificate_count;
    struct pq_metrics_date *authorities, *revocation_lists;
    size_t authority_count, revocation_list_count;
    int64_t ending; /* since when; 0: it is not */
    struct pq_admin_asking asking;
};

/* --- the supervisor ---------------------------------------------------------------------------------------------- */
static void watch_control(struct admin *a)
{
    ev_io_stop(a->loop, &a->io);
    ev_io_set(&a->io, a->control.fd, EV_READ | (pq_control_waits(&a->control) ? EV_WRITE : 0));
    ev_io_start(a->loop, &a->io);
}

static int tell(struct admin *a, enum pq_control_type type, int status, int64_t number, const char *text)
{
    struct pq_control_message m = {.type = type, .status = status, .generation = number};
    snprintf(m.text, sizeof m.text, "%s", text);
    TRY(pq_control_send(&a->control, &m));
    if (a->loop)
        watch_control(a);
    return 0;
}

static int ask_supervisor(void *context, enum pq_control_type type, int64_t number)
{
    return tell(context, type, 0, number, "");
}

/* --- answers from memory ----------------------------------------------------------------------------------------- */
static void answer_json(struct pq_admin_exchange *x, int status, const struct pq_json *j)
{
    if (j->failed == 0 && pq_buf_text(j->out, "\n") == 0)
        pq_admin_answer(x, status, json, pq_span(j->out->at, j->out->len));
    else
        pq_admin_answer_error(x, 503, "out of memory");
}

struct count {
    size_t wanted, up, ready;
};
static struct count count_workers(const struct pq_shared *s)
{
    struct count n = {0};
    for (size_t i = 0; i < s->used; i++) {
        const struct pq_worker_slot *w = &s->worker[i];
        n.wanted += w->wanted != 0;
        n.up += w->wanted && w->pid;
        n.ready += w->wanted && w->pid && w->ready;
    }
    return n;
}

static void answer_state(struct pq_admin_exchange *x, const char *what, bool is, const char *reason, struct count n)
{
    DEFER(pq_buf_free) struct pq_buf text = {.cap = 1024};
    struct pq_json j = pq_json(&text);
    pq_json_open(&j, NULL, '{');
    pq_json_bool(&j, what, is);
    if (!is)
        pq_json_text(&j, "reason", reason);
    pq_json_open(&j, "workers", '{');
    pq_json_whole(&j, "wanted", (int64_t)n.wanted);
    pq_json_whole(&j, "up", (int64_t)n.up);
    pq_json_whole(&j, "ready", (int64_t)n.ready);
    pq_json_close(&j, '}');
    pq_json_close(&j, '}');
    answer_json(x, is ? 200 : 503, &j);
}

static void answer_healthz(struct admin *a, struct pq_admin_exchange *x)
{
    struct count n = count_workers(a->shared);
    answer_state(x, "healthy", n.up > 0, "no worker lives", n);
}

/* Workers accept from the same sockets: one that serves is enough. */
static void answer_ready(struct admin *a, struct pq_admin_exchange *x)
{
    struct count n = count_workers(a->shared);
    int state = a->shared->state;
    const char *reason = state == PQ_SHARED_DRAINING  ? "draining"
                         : state != PQ_SHARED_SERVING ? "starting"
                                                      : "no worker serves";
    answer_state(x, "ready", state == PQ_SHARED_SERVING && n.ready > 0, reason, n);
}

static void answer_level(struct admin *a, struct pq_admin_exchange *x)
{
    DEFER(pq_buf_free) struct pq_buf text = {.cap = 1024};
    struct pq_json j = pq_json(&text);
    pq_json_open(&j, NULL, '{');
    pq_json_text(&j, "level", pq_log_level_names[a->shared->log_level]);
    pq_json_close(&j, '}');
    answer_json(x, 200, &j);
}

static void set_level(struct admin *a, struct pq_admin_exchange *x, struct pq_span body)
{
    int level = pq_admin_level(body);
    if (level < 0) {
        pq_admin_answer_error(x, 400,
                              "the body must be error, warn, info or debug, or {\"level\": \"...\"} with one of these");
        return;
    }
    int before = a->shared->log_level;
    a->shared->log_level = level;
    pq_log(PQ_LOG_INFO, "log level changed", "from", pq_s(pq_log_level_names[before]), "to",
           pq_s(pq_log_level_names[level]), NULL);
    answer_level(a, x);
}

static void answer_metrics(struct admin *a, struct pq_admin_exchange *x)
{
    DEFER(pq_buf_free) struct pq_buf text = {.cap = METRICS_MAX};
    struct pq_shared *s = a->shared;
    static struct pq_metrics_worker workers[PQ_SHARED_SLOTS];
    char library[64];
    size_t used = s->used;
    snprintf(library, sizeof library, "OpenSSL %s", OpenSSL_version(OPENSSL_FULL_VERSION_STRING));
    for (size_t i = 0; i < used; i++)
        workers[i] = (struct pq_metrics_worker){.counters = &s->worker[i].counters,
                                                .wanted = s->worker[i].wanted,
                                                .up = s->worker[i].pid != 0,
                                                .restarts = s->worker[i].restarts};
    const struct pq_metrics m = {.workers = workers,
                                 .worker_count = used,
                                 .certificates = a->certificates,
                                 .certificate_count = a->certificate_count,
                                 .authorities = a->authorities,
                                 .authority_count = a->authority_count,
                                 .revocation_lists = a->revocation_lists,
                                 .revocation_list_count = a->revocation_list_count,
                                 .tls_library = library,
                                 .started = s->started,
                                 .generation = s->generation,
                                 .reloads = s->reloads,
                                 .reloads_refused = s->reloads_refused,
                                 .reload_refused = s->reload_refused,
                                 .log_lines_dropped = pq_shared_log_dropped(s)};
    if (pq_metrics_text(&m, &text) < 0)
        pq_admin_answer_error(x, 503, "out of memory");
    else
        pq_admin_answer(x, 200, "text/plain; version=0.0.4; charset=utf-8", pq_span(text.at, text.len));
}

static void answer_config(struct admin *a, struct pq_admin_exchange *x)
{
    if (a->view.len)
        pq_admin_answer(x, 200, json, pq_span(a->view.at, a->view.len));
    else
        pq_admin_answer_error(x, 503, "the configuration is not in force yet");
}

static void answer_index(struct pq_admin_exchange *x)
{
    static const char text[] = "pqplane proxy\n"
                               "GET  /metrics      for Prometheus\n"
                               "GET  /healthz      200 while the supervisor and a worker live\n"
                               "GET  /ready        200 while new connections are taken, else 503 with the reason\n"
                               "GET  /connections  one JSON object a line for each open connection\n"
                               "GET  /config       the configuration in force, with our certificates\n"
                               "GET  /log-level    PUT sets it: error, warn, info or debug\n"
                               "POST /reload       read the configuration and its files again\n"
                               "POST /drain        let open connections finish, take no more, end\n";
    pq_admin_answer(x, 200, plain, pq_span_text(text));
}

static void ask(void *context, struct pq_admin_exchange *x, enum pq_admin_action action, struct pq_span body)
{
    struct admin *a = context;
    switch (action) {
    case PQ_ADMIN_METRICS:
        answer_metrics(a, x);
        break;
    case PQ_ADMIN_HEALTHZ:
        answer_healthz(a, x);
        break;
    case PQ_ADMIN_READY:
        answer_ready(a, x);
        break;
    case PQ_ADMIN_CONFIG:
        answer_config(a, x);
        break;
    case PQ_ADMIN_LOG_LEVEL:
        answer_level(a, x);
        break;
    case PQ_ADMIN_SET_LOG_LEVEL:
        set_level(a, x, body);
        break;
    case PQ_ADMIN_CONNECTIONS:
    case PQ_ADMIN_RELOAD:
    case PQ_ADMIN_DRAIN:
        pq_admin_ask(&a->asking, x, action);
        break;
    case PQ_ADMIN_INDEX:
        answer_index(x);
        break;
    }
}

/* --- answers of the supervisor ----------------------------------------------------------------------------------- */
static void answer_connections(struct pq_admin_exchange *x, const struct pq_control_message *m)
{
    struct stat st;
    int fd = m->fd_count ? fcntl(m->fd[0], F_DUPFD_CLOEXEC, 3) : -1;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        pq_admin_answer_file(x, lines, fd, st.st_size);
        return;
    }
    pq_closep(&fd);
    pq_admin_answer_error(x, 503, "the connections could not be read: try again");
}

static void answer_done(struct admin *a, struct pq_admin_exchange *x, enum pq_admin_action action)
{
    DEFER(pq_buf_free) struct pq_buf text = {.cap = 1024};
    struct pq_json j = pq_json(&text);
    pq_json_open(&j, NULL, '{');
    if (action == PQ_ADMIN_DRAIN)
        pq_json_bool(&j, "draining", true);
    else
        pq_json_whole(&j, "generation", (int64_t)a->shared->generation);
    pq_json_close(&j, '}');
    answer_json(x, action == PQ_ADMIN_DRAIN ? 202 : 200, &j);
}

static void answer_asked(void *context, struct pq_admin_exchange *x, enum pq_admin_action action,
                         const struct pq_control_message *m)
{
    struct admin *a = context;
    if (m->status == PQ_E_TIMEOUT)
        pq_admin_answer_error(x, 504, m->text);
    else if (m->status < 0)
        pq_admin_answer_error(x, action == PQ_ADMIN_RELOAD ? 422 : 503, m->text);
    else if (action == PQ_ADMIN_CONNECTIONS)
        answer_connections(x, m);
    else
        answer_done(a, x, action);
}

static void heard_answer(struct admin *a, const struct pq_control_message *m) { pq_admin_asking_heard(&a->asking, m); }

static void on_tick(struct ev_loop *loop, ev_timer *timer, int revents)
{
    (void)revents;
    struct admin *a = timer->data;
    if (a->ending && (pq_admin_http_quiesce(a->http) == 0 || pq_clock_ns() - a->ending > END_PATIENCE))
        ev_break(loop, EVBREAK_ALL);
    pq_admin_asking_look(&a->asking);
}

/* --- the view ---------------------------------------------------------------------------------------------------- */
static void drop_view(struct admin *a)
{
    pq_freep(&a->certificates);
    pq_freep(&a->authorities);
    pq_freep(&a->revocation_lists);
    a->certificate_count = a->authority_count = a->revocation_list_count = 0;
    yyjson_doc_free(a->view_read);
    a->view_read = NULL;
    pq_buf_free(&a->view);
}

static const char *text_of(yyjson_val *map, const char *key)
{
    const char *text = yyjson_get_str(yyjson_obj_get(map, key));
    return text ? text : "";
}

static int read_certificates(struct admin *a)
{
    yyjson_val *list = yyjson_obj_get(yyjson_doc_get_root(a->view_read), "certificates"), *row;
    size_t i, count;
    a->certificates = calloc(yyjson_arr_size(list) + 1, sizeof a->certificates[0]);
    if (!a->certificates)
        return PQ_E_NOMEM;
    yyjson_arr_foreach(list, i, count, row)
    {
        a->certificates[a->certificate_count++] =
            (struct pq_metrics_certificate){.listener = text_of(row, "listener"),
                                            .direction = text_of(row, "direction"),
                                            .algorithm = text_of(row, "algorithm"),
                                            .identity = (size_t)yyjson_get_uint(yyjson_obj_get(row, "identity")),
                                            .not_after = yyjson_get_sint(yyjson_obj_get(row, "until_unix"))};
    }
    return 0;
}

static int read_dates(const struct admin *a, const char *key, struct pq_metrics_date **out, size_t *count)
{
    yyjson_val *list = yyjson_obj_get(yyjson_doc_get_root(a->view_read), key), *row;
    size_t i, all;
    *out = calloc(yyjson_arr_size(list) + 1, sizeof **out);
    if (!*out)
        return PQ_E_NOMEM;
    yyjson_arr_foreach(list, i, all, row)
    {
        int64_t at = yyjson_get_sint(yyjson_obj_get(row, "until_unix"));
        if (at)
            (*out)[(*count)++] =
                (struct pq_metrics_date){.file = text_of(row, "file"),
                                         .name = text_of(row, "name"),
                                         .number = (size_t)yyjson_get_uint(yyjson_obj_get(row, "number")),
                                         .at = at};
    }
    return 0;
}

static int read_file(int fd, struct pq_buf *out)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || st.st_size > PQ_VIEW_MAX)
        return PQ_E_IO;
    out->cap = PQ_VIEW_MAX;
    TRY(pq_buf_reserve(out, (size_t)st.st_size));
    while (out->len < (size_t)st.st_size) {
        ssize_t n = pread(fd, out->at + out->len, (size_t)st.st_size - out->len, (off_t)out->len);
        if (n <= 0)
            return PQ_E_IO;
        out->len += (size_t)n;
    }
    return 0;
}

static int take_view(struct admin *a, int fd)
{
    drop_view(a);
    TRY(read_file(fd, &a->view));
    a->view_read = yyjson_read((const char *)a->view.at, a->view.len, 0);
    if (!a->view_read)
        return PQ_E_SYNTAX;
    const char *format = text_of(yyjson_ptr_get(yyjson_doc_get_root(a->view_read), "/config/log"), "format");
    pq_log_set_format(strcmp(format, "json") == 0 ? PQ_LOG_JSON : PQ_LOG_LOGFMT);
    TRY(read_certificates(a));
    TRY(read_dates(a, "authorities", &a->authorities, &a->authority_count));
    return read_dates(a, "revocation_lists", &a->revocation_lists, &a->revocation_list_count);
}

static void heard_view(struct admin *a, const struct pq_control_message *m)
{
    int e = m->fd_count ? take_view(a, m->fd[0]) : PQ_E_PROTOCOL;
    if (e == 0)
        return;
    drop_view(a);
    pq_log(PQ_LOG_ERROR, "configuration not shown", "detail", pq_s(pq_error_text(e)), NULL);
}

/* --- messages ---------------------------------------------------------------------------------------------------- */
/* Whoever is connected gets an answer: after an upgrade another process has the listening socket. */
static void heard_end(struct admin *a, const struct pq_control_message *m)
{
    (void)m;
    if (a->ending)
        return;
    a->ending = pq_clock_ns();
    pq_admin_asking_end(&a->asking);
    ev_timer_stop(a->loop, &a->tick);
    ev_timer_set(&a->tick, 0.001, 0.02);
    ev_timer_start(a->loop, &a->tick);
}

/* In place, as in all other processes. */
static void heard_log(struct admin *a, const struct pq_control_message *m)
{
    if (m->fd_count && a->log_fd >= 0)
        (void)dup3(m->fd[0], a->log_fd, O_CLOEXEC);
}

static void (*const hear[PQ_CONTROL_TYPE_COUNT])(struct admin *a, const struct pq_control_message *m) = {
    [PQ_CONTROL_VIEW] = heard_view,
    [PQ_CONTROL_ANSWER] = heard_answer,
    [PQ_CONTROL_END] = heard_end,
    [PQ_CONTROL_LOG] = heard_log,
};

static void on_control(struct ev_loop *loop, ev_io *io, int revents)
{
    (void)revents;
    struct admin *a = io->data;
    struct pq_control_message m;
    int e = pq_control_flush(&a->control);
    for (e = e < 0 && e != PQ_E_WANT_WRITE ? e : 0; e == 0;) {
        e = pq_control_receive(&a->control, &m);
        if (e == 0 && hear[m.type])
            hear[m.type](a, &m);
        if (e == 0)
            pq_control_drop(&m);
    }
    if (e == PQ_E_WANT_READ)
        watch_control(a);
    else
        ev_break(loop, EVBREAK_ALL);
}

/* --- the process ------------------------------------------------------------------------------------------------- */
static int start(struct admin *a, const struct pq_admin_how *how, struct pq_why *why)
{
    a->loop = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
    if (!a->loop)
        return pq_why(why, PQ_E_UNSUPPORTED, "no event loop to be had: epoll is missing or descriptors ran out");
    a->asking = (struct pq_admin_asking){.loop = a->loop, .tell = ask_supervisor, .answer = answer_asked, .context = a};
    pq_admin_asking_init(&a->asking);
    const struct pq_admin_http_how http = {.loop = a->loop, .fd = how->listening, .ask = ask, .context = a};
    TRY(pq_admin_http_new(&http, &a->http, why));
    if (how->contain)
        TRY(pq_contain_worker(how->contain, why));
    ev_timer_init(&a->tick, on_tick, 1., 1.);
    a->tick.data = a;
    watch_control(a);
    ev_timer_start(a->loop, &a->tick);
    return 0;
}

static void end(struct admin *a)
{
    if (a->http)
        pq_admin_asking_end(&a->asking);
    pq_admin_http_free(a->http);
    drop_view(a);
    pq_control_free(&a->control);
    if (a->loop)
        ev_loop_destroy(a->loop);
    free(a);
}
PQ_DEFINE_FREEP(struct admin, end)

int pq_admin_run(const struct pq_admin_how *how)
{
    struct pq_why why = {""};
    DEFER(endp) struct admin *a = calloc(1, sizeof *a);
    if (!a)
        return EXIT_FAILURE;
    prctl(PR_SET_NAME, "pqplane-admin");
    signal(SIGPIPE, SIG_IGN);
    (void)!nice(NICENESS); /* whoever asks for metrics without end takes no time from traffic */
    a->shared = how->shared;
    a->log_fd = how->log_fd;
    pq_control_init(&a->control, how->control);
    ev_init(&a->io, on_control);
    a->io.data = a;
    int e = start(a, how, &why);
    if (e < 0) {
        (void)tell(a, PQ_CONTROL_REFUSED, e, 0, why.text[0] ? why.text : pq_error_text(e));
        return EXIT_FAILURE;
    }
    if (tell(a, PQ_CONTROL_READY, 0, 0, "") < 0)
        return EXIT_FAILURE;
    ev_run(a->loop, 0);
    return EXIT_SUCCESS;
}
