#include "proxy/admin_http.h"

#include <ev.h>
#include <microhttpd.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/json.h"

struct client {
    struct client *next, **link;
    int fd;
    bool idle;       /* got its answer, and asks nothing */
    ev_tstamp since; /* its connect, or its last answer */
};

struct pq_admin_http {
    struct pq_admin_http_how how;
    struct MHD_Daemon *daemon;
    struct client *clients;
    bool unix_socket, quiet;
    bool closed; /* a client's connection, in this run */
    ev_io io;
    ev_timer due, sweep;
};

struct pq_admin_exchange {
    struct MHD_Connection *connection;
    struct pq_admin_verdict verdict;
    uint8_t body[PQ_ADMIN_BODY_MAX];
    size_t body_len; /* of all that came */
    bool asked, suspended;
    struct MHD_Response *answer;
    int status;
};

/* --- the loop ---------------------------------------------------------------------------------------------------- */
static void run(struct pq_admin_http *h)
{
    /* A daemon that was full listens again only at the beginning of a run. */
    do {
        h->closed = false;
        MHD_run(h->daemon);
    } while (h->closed);
    int64_t ms = MHD_get_timeout64s(h->daemon);
    ev_timer_stop(h->how.loop, &h->due);
    if (ms < 0)
        return;
    ev_timer_set(&h->due, (double)ms / 1e3, 0.);
    ev_timer_start(h->how.loop, &h->due);
}

static void on_io(struct ev_loop *loop, ev_io *w, int revents)
{
    (void)loop, (void)revents;
    run(w->data);
}

static void on_due(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)loop, (void)revents;
    run(w->data);
}

/* --- clients ----------------------------------------------------------------------------------------------------- */
static void add_client(struct pq_admin_http *h, int fd, void **context)
{
    struct client *c = calloc(1, sizeof *c);
    if (!c)
        return;
    *c = (struct client){.next = h->clients, .link = &h->clients, .fd = fd, .since = ev_now(h->how.loop)};
    if (c->next)
        c->next->link = &c->next;
    h->clients = c;
    *context = c;
}

static void remove_client(struct client *c)
{
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    free(c);
}

static void on_client(void *context, struct MHD_Connection *connection, void **client,
                      enum MHD_ConnectionNotificationCode what)
{
    struct pq_admin_http *h = context;
    const union MHD_ConnectionInfo *info;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        h->closed = true;
        if (*client)
            remove_client(*client);
        return;
    }
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info)
        add_client(h, info->connect_fd, client);
}

/* A client that sends a byte now and then is never silent, and would keep its place for ever. */
static void on_sweep(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)revents;
    struct pq_admin_http *h = w->data;
    int most = h->how.exchange_s ? h->how.exchange_s : PQ_ADMIN_EXCHANGE_MAX;
    for (struct client *c = h->clients; c; c = c->next)
        if (ev_now(loop) - c->since > most)
            shutdown(c->fd, SHUT_RDWR);
}

/* --- exchanges --------------------------------------------------------------------------------------------------- */
static void describe(struct MHD_Response *r, const char *type, const char *allow)
{
    if (!r)
        return;
    MHD_add_response_header(r, "Content-Type", type);
    MHD_add_response_header(r, "Cache-Control", "no-store");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    if (allow)
        MHD_add_response_header(r, "Allow", allow);
}

static void answered(struct pq_admin_exchange *x, int status, const char *type, struct MHD_Response *r)
{
    describe(r, type, x->verdict.allow);
    x->answer = r;
    x->status = status;
    if (x->suspended)
        MHD_resume_connection(x->connection);
}

void pq_admin_answer(struct pq_admin_exchange *x, int status, const char *type, struct pq_span text)
{
    answered(x, status, type, MHD_create_response_from_buffer_copy(text.len, text.at));
}

void pq_admin_answer_file(struct pq_admin_exchange *x, const char *type, int fd, off_t size)
{
    struct MHD_Response *r = MHD_create_response_from_fd64((uint64_t)size, fd);
    if (!r)
        close(fd);
    answered(x, MHD_HTTP_OK, type, r);
}

void pq_admin_answer_error(struct pq_admin_exchange *x, int status, const char *error)
{
    struct pq_buf text = {.cap = 16 << 10};
    struct pq_json j = pq_json(&text);
    pq_json_open(&j, NULL, '{');
    pq_json_text(&j, "error", error);
    pq_json_close(&j, '}');
    if (j.failed == 0 && pq_buf_text(&text, "\n") == 0)
        pq_admin_answer(x, status, "application/json", pq_span(text.at, text.len));
    else
        answered(x, status, "application/json", NULL);
    pq_buf_free(&text);
}

static struct client *client_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static const char *field(struct MHD_Connection *c, const char *name)
{
    return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

/* Without an answer, for want of memory, the connection closes. */
static enum MHD_Result send_answer(struct pq_admin_exchange *x)
{
    return x->answer ? MHD_queue_response(x->connection, (unsigned)x->status, x->answer) : MHD_NO;
}

static enum MHD_Result begin(const struct pq_admin_http *h, struct MHD_Connection *c, const char *path,
                             const char *method, void **exchange)
{
    struct pq_admin_exchange *x = calloc(1, sizeof *x);
    if (!x)
        return MHD_NO;
    *exchange = x;
    x->connection = c;
    struct client *asks = client_of(c);
    if (asks)
        asks->idle = false;
    x->verdict = pq_admin_judge(&(struct pq_admin_request){.method = method,
                                                           .path = path,
                                                           .host = field(c, "Host"),
                                                           .origin = field(c, "Origin"),
                                                           .fetch_site = field(c, "Sec-Fetch-Site"),
                                                           .length = field(c, "Content-Length"),
                                                           .unix_socket = h->unix_socket});
    if (x->verdict.status != MHD_HTTP_CONTENT_TOO_LARGE)
        return MHD_YES;
    pq_admin_answer_error(x, x->verdict.status, x->verdict.error);
    return send_answer(x);
}

static enum MHD_Result take_body(struct pq_admin_exchange *x, const char *at, size_t len)
{
    if (x->body_len < sizeof x->body)
        memcpy(x->body + x->body_len, at, len < sizeof x->body - x->body_len ? len : sizeof x->body - x->body_len);
    x->body_len += len;
    return x->body_len > PQ_ADMIN_BODY_READ ? MHD_NO : MHD_YES;
}

static void ask(const struct pq_admin_http *h, struct pq_admin_exchange *x)
{
    x->asked = true;
    if (x->verdict.status)
        pq_admin_answer_error(x, x->verdict.status, x->verdict.error);
    else if (x->body_len > sizeof x->body)
        pq_admin_answer_error(x, MHD_HTTP_CONTENT_TOO_LARGE, "the body is too long");
    else
        h->how.ask(h->how.context, x, x->verdict.action, pq_span(x->body, x->body_len));
}

/* Called when the header is there, for each piece of the body, at its end, and after a suspension. */
static enum MHD_Result on_request(void *context, struct MHD_Connection *c, const char *path, const char *method,
                                  const char *version, const char *body, size_t *body_len, void **exchange)
{
    (void)version;
    const struct pq_admin_http *h = context;
    struct pq_admin_exchange *x = *exchange;
    if (!x)
        return begin(h, c, path, method, exchange);
    if (*body_len) {
        size_t len = *body_len;
        *body_len = 0;
        return take_body(x, body, len);
    }
    if (!x->asked)
        ask(h, x);
    if (x->status)
        return send_answer(x);
    x->suspended = true;
    MHD_suspend_connection(c);
    return MHD_YES;
}

static void on_completed(void *context, struct MHD_Connection *connection, void **exchange,
                         enum MHD_RequestTerminationCode how)
{
    (void)how;
    const struct pq_admin_http *h = context;
    struct pq_admin_exchange *x = *exchange;
    struct client *answered = client_of(connection);
    if (answered) {
        answered->since = ev_now(h->how.loop);
        answered->idle = true;
    }
    if (x && x->answer)
        MHD_destroy_response(x->answer);
    free(x);
    *exchange = NULL;
}

/* --- making it --------------------------------------------------------------------------------------------------- */
__attribute__((format(printf, 2, 0))) static void on_log(void *context, const char *format, va_list args)
{
    (void)context;
    char text[512];
    if (!pq_log_on(PQ_LOG_DEBUG))
        return;
    vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = '\0';
    pq_log(PQ_LOG_DEBUG, "admin listener", "detail", pq_s(text), NULL);
}

static int start(struct pq_admin_http *h, struct pq_why *why)
{
    h->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request, h,
        MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_LISTEN_SOCKET, h->how.fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)PQ_ADMIN_CLIENTS_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)PQ_ADMIN_MEMORY_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)PQ_ADMIN_SILENCE_MAX, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
        MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION,
        on_client, h, MHD_OPTION_END);
    const union MHD_DaemonInfo *epoll = h->daemon ? MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!epoll)
        return pq_why(why, PQ_E_UNSUPPORTED, "libmicrohttpd does not start on the admin socket");
    ev_io_init(&h->io, on_io, epoll->epoll_fd, EV_READ);
    ev_init(&h->due, on_due);
    ev_timer_init(&h->sweep, on_sweep, 1., 1.);
    h->io.data = h->due.data = h->sweep.data = h;
    ev_io_start(h->how.loop, &h->io);
    ev_timer_start(h->how.loop, &h->sweep);
    return 0;
}

int pq_admin_http_new(const struct pq_admin_http_how *how, struct pq_admin_http **out, struct pq_why *why)
{
    struct sockaddr_storage at = {0};
    socklen_t len = sizeof at;
    DEFER(pq_admin_http_freep) struct pq_admin_http *h = calloc(1, sizeof *h);
    if (!h)
        return PQ_E_NOMEM;
    h->how = *how;
    h->unix_socket = getsockname(how->fd, (struct sockaddr *)&at, &len) == 0 && at.ss_family == AF_UNIX;
    TRY(start(h, why));
    run(h);
    *out = TAKE(h);
    return 0;
}

size_t pq_admin_http_quiesce(struct pq_admin_http *h)
{
    size_t count = 0;
    int fd = h->quiet ? -1 : MHD_quiesce_daemon(h->daemon);
    h->quiet = true;
    pq_closep(&fd);
    for (struct client *c = h->clients; c; c = c->next, count++)
        if (c->idle)
            shutdown(c->fd, SHUT_RDWR);
    return count;
}

void pq_admin_http_free(struct pq_admin_http *h)
{
    if (!h)
        return;
    if (h->daemon) {
        ev_io_stop(h->how.loop, &h->io);
        ev_timer_stop(h->how.loop, &h->due);
        ev_timer_stop(h->how.loop, &h->sweep);
        MHD_run(h->daemon); /* resumed ones are not suspended any more */
        MHD_stop_daemon(h->daemon);
    }
    free(h);
}
