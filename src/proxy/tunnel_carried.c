#include "proxy/tunnel_parts.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "proxy/closing.h"
#include "proxy/target.h"

enum {
    LEAST_ROOM = 1024, /* a DATA frame is not begun with less */
    DROPS_A_TURN = 8,  /* reads of what nobody takes */
    TRIES_MAX = 3,     /* more tunnels that a refused connection is offered to */
};

static struct pq_connections *set_of(const struct pq_carried *s) { return s->loop->set; }
static enum pq_proxy_direction direction(const struct pq_carried *s) { return s->route->how->direction; }
static double now(const struct pq_carried *s) { return s->loop->now; }

/* --- its life ----------------------------------------------------------------------------------------------------- */
static struct pq_tunnel_address pack_address(const struct pq_address *a)
{
    struct pq_tunnel_address out = {.len = a->len};
    if (a->sa.ss_family == AF_INET || a->sa.ss_family == AF_INET6)
        memcpy(&out.at, &a->sa, sizeof out.at);
    else
        out = (struct pq_tunnel_address){.at.sin6_family = a->sa.ss_family, .len = sizeof(sa_family_t)};
    return out;
}

struct pq_address pq_carried_address(const struct pq_carried *s)
{
    struct pq_address a = {.len = s->local.len};
    memcpy(&a.sa, &s->local.at, sizeof s->local.at);
    return a;
}

static void on_io(struct ev_loop *loop, ev_io *w, int revents);

int pq_carried_new(struct pq_tunnel_loop *l, struct pq_route *route, struct pq_tunnels *owner, int fd,
                   const struct pq_address *local, struct pq_carried **out)
{
    struct pq_carried *s = calloc(1, sizeof *s);
    if (!s)
        return PQ_E_NOMEM;
    s->loop = l;
    s->route = route;
    s->owner = owner;
    s->fd = fd;
    pq_generation_keep(route->of);
    s->started = pq_clock_ns();
    s->local = pack_address(local);
    s->active = l->now;
    ev_io_init(&s->io, on_io, fd, EV_READ);
    s->io.data = s;
    TAILQ_INSERT_TAIL(&l->streams, s, of_loop);
    l->set->count++;
    pq_metrics_stream_opened(l->set->counters, route->how->direction);
    *out = s;
    return 0;
}

void pq_carried_move(struct pq_carried *s, struct pq_route *route) { pq_generation_take_route(&s->route, route); }

void pq_carried_join(struct pq_carried *s, struct pq_tunnel *t, int32_t id)
{
    s->tunnel = t;
    s->tunnel_id = t->id;
    s->id = id;
    s->round = 0;
    t->streams++;
    t->carried++;
}

static void untouch(struct pq_carried *s)
{
    if (s->touched)
        TAILQ_REMOVE(&s->tunnel->touched, s, of_touched);
    s->touched = false;
}

void pq_carried_leave(struct pq_carried *s)
{
    untouch(s);
    s->tunnel = NULL;
}

void pq_carried_free(struct pq_carried *s)
{
    if (s->tunnel)
        pq_carried_leave(s);
    pq_generation_free(s->route->of);
    free(s->detail);
    free(s);
}

int pq_carried_release(struct pq_carried *s)
{
    int fd = s->fd;
    ev_io_stop(set_of(s)->loop, &s->io);
    pq_carried_unlist(s);
    TAILQ_REMOVE(&s->loop->streams, s, of_loop);
    set_of(s)->count--;
    pq_metrics_stream_ended(set_of(s)->counters, direction(s), false);
    pq_carried_free(s);
    return fd;
}

void pq_carried_touch(struct pq_carried *s)
{
    if (!s->tunnel) {
        if (pq_carried_step(s))
            pq_carried_watch(s);
        return;
    }
    if (!s->touched)
        TAILQ_INSERT_TAIL(&s->tunnel->touched, s, of_touched);
    s->touched = true;
    pq_tunnel_touch(s->tunnel);
}

void pq_carried_fail(struct pq_carried *s, enum pq_proxy_end why, uint32_t code, const char *detail)
{
    s->news = true;
    if (s->over)
        return;
    s->over = true;
    s->why = (uint8_t)why;
    s->code = code;
    s->detail = detail ? strdup(detail) : NULL; /* without memory the reason alone must do */
}

/* A TCP error is CONNECT_ERROR where the peer asked for that connection (RFC 9113, section 8.5). */
static uint32_t local_error(const struct pq_carried *s) { return s->owner ? NGHTTP2_CANCEL : NGHTTP2_CONNECT_ERROR; }

/* --- the end ------------------------------------------------------------------------------------------------------ */
static void log_end(const struct pq_carried *s)
{
    struct pq_address local = pq_carried_address(s);
    enum pq_proxy_end why = (enum pq_proxy_end)s->why;
    pq_closing_log(
        &(struct pq_closing){.event = "connection closed",
                             .level = pq_proxy_end_level(why),
                             .how = s->route->how,
                             .local = &local,
                             .peer = s->tunnel ? &s->tunnel->peer : pq_proxy_target_first(&s->route->how->target),
                             .tls = s->tunnel ? s->tunnel->tls : NULL,
                             .tunnel = s->tunnel_id,
                             .connect_ns = s->took_connect,
                             .started = s->started,
                             .up = s->pulled,
                             .down = s->delivered,
                             .reason = pq_proxy_end_label(why),
                             .detail = s->detail});
}

static void close_local(struct pq_carried *s)
{
    s->done = true;
    if (s->fd < 0)
        return;
    pq_tcp_abort_on_close(s->fd, s->why != PQ_PROXY_END);
    close(s->fd);
    s->fd = -1;
}

static void finish(struct pq_carried *s)
{
    struct pq_connections *set = set_of(s);
    log_end(s);
    pq_metrics_stream_ended(set->counters, direction(s), s->why == PQ_PROXY_TUNNEL_LOST);
    pq_metrics_ended(set->counters, direction(s), (enum pq_proxy_end)s->why, PQ_TLS_NONE, pq_clock_ns() - s->started);
    ev_io_stop(set->loop, &s->io);
    pq_tunnel_loop_timed(s->loop, s, false);
    pq_ring_release(&s->ring, &s->loop->rings);
    close_local(s);
    pq_carried_unlist(s);
    TAILQ_REMOVE(&s->loop->streams, s, of_loop);
    set->count--;
    pq_connections_give_place(set);
    if (s->waiting)
        pq_tunnels_left(s);
    if (s->id && nghttp2_submit_rst_stream(s->tunnel->h2, NGHTTP2_FLAG_NONE, s->id, s->code) < 0)
        s->tunnel->starved = true;
    if (s->id) { /* it goes when nghttp2 closes it */
        untouch(s);
        TAILQ_INSERT_TAIL(&s->tunnel->gone, s, of_loop);
    } else {
        pq_carried_free(s);
    }
    if (set->closed)
        set->closed(set->context);
}

/* --- from the tunnel to the local socket -------------------------------------------------------------------------- */
/* Not for every few bytes: nghttp2 says WINDOW_UPDATE at half of the window, and has that soon enough. */
static void window_back(struct pq_carried *s, size_t n)
{
    s->taken += n;
    if (s->taken < s->loop->rings.size / 8)
        return;
    if (s->id && nghttp2_session_consume_stream(s->tunnel->h2, s->id, s->taken) < 0)
        s->tunnel->starved = true;
    s->taken = 0;
}

static void delivered(struct pq_carried *s, size_t n)
{
    s->delivered += n;
    s->active = now(s);
    pq_metrics_bytes(set_of(s)->counters, direction(s), 0, n);
    if (s->tunnel)
        s->tunnel->down += n;
    window_back(s, n);
}

/* The local socket takes no more. Whatever it still sends is read to its end, which shows whether it was one. */
static void sink_gone(struct pq_carried *s, size_t dropped)
{
    dropped += s->ring.len;
    pq_ring_release(&s->ring, &s->loop->rings);
    window_back(s, dropped);
    s->lost |= dropped > 0;
    s->gone = PQ_PROXY_RESET_BY_LOCAL;
    s->in = s->in == PQ_FLOW_OPEN ? PQ_FLOW_BROKEN : PQ_FLOW_ENDED;
    s->can_read = true;
}

/* EPIPE tells that the local side ended its own direction in order before (relay.c). */
static void sink_failed(struct pq_carried *s, int error, size_t dropped)
{
    if (error == EPIPE)
        sink_gone(s, dropped);
    else
        pq_carried_fail(s, PQ_PROXY_RESET_BY_LOCAL, local_error(s), NULL);
}

static void deliver(struct pq_carried *s)
{
    while (s->ring.len && !s->over) {
        size_t len, n = 0;
        const uint8_t *at = pq_ring_front(&s->ring, &len);
        int e = pq_tcp_write(s->fd, at, len, &n);
        if (e == PQ_E_WANT_WRITE)
            return;
        if (e < 0) {
            sink_failed(s, errno, 0);
            return;
        }
        pq_ring_consume(&s->ring, n);
        delivered(s, n);
    }
    pq_ring_release(&s->ring, &s->loop->rings);
}

static void pass_end(struct pq_carried *s)
{
    if (shutdown(s->fd, SHUT_WR) < 0)
        sink_gone(s, 0);
    else
        s->in = PQ_FLOW_ENDED;
    s->active = now(s);
}

static void keep(struct pq_carried *s, const uint8_t *bytes, size_t len)
{
    while (len) {
        uint8_t *at;
        size_t room;
        if (pq_ring_room(&s->ring, &s->loop->rings, &at, &room) < 0) {
            pq_carried_fail(s, PQ_PROXY_MEMORY, NGHTTP2_INTERNAL_ERROR, NULL);
            return;
        }
        if (room == 0) { /* nghttp2 holds the peer to its window, and the ring has that size */
            pq_carried_fail(s, PQ_PROXY_MEMORY, NGHTTP2_FLOW_CONTROL_ERROR, "more came than the window allows");
            return;
        }
        size_t n = len < room ? len : room;
        memcpy(at, bytes, n);
        pq_ring_filled(&s->ring, n);
        bytes += n;
        len -= n;
    }
}

void pq_carried_gathered(struct pq_tunnel_loop *l)
{
    struct pq_carried *s = l->gather.stream;
    struct msghdr m = {.msg_iov = l->gather.at, .msg_iovlen = (size_t)l->gather.count};
    size_t total = 0;
    if (!s)
        return;
    l->gather.stream = NULL;
    for (int i = 0; i < l->gather.count; i++)
        total += l->gather.at[i].iov_len;
    ssize_t n = l->gather.count == 1 ? send(s->fd, l->gather.at[0].iov_base, total, MSG_NOSIGNAL)
                                     : sendmsg(s->fd, &m, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
        sink_failed(s, errno, total);
        return;
    }
    size_t sent = n > 0 ? (size_t)n : 0;
    if (sent)
        delivered(s, sent);
    for (int i = 0; i < l->gather.count; i++) {
        size_t skip = sent < l->gather.at[i].iov_len ? sent : l->gather.at[i].iov_len;
        sent -= skip;
        keep(s, (const uint8_t *)l->gather.at[i].iov_base + skip, l->gather.at[i].iov_len - skip);
    }
}

void pq_carried_take(struct pq_carried *s, const uint8_t *bytes, size_t len)
{
    struct pq_tunnel_loop *l = s->loop;
    pq_carried_touch(s);
    if (s->done || s->over || s->in != PQ_FLOW_OPEN) {
        s->lost = true;
        window_back(s, len);
        return;
    }
    if (s->ring.len || s->connecting) {
        keep(s, bytes, len);
        return;
    }
    if (l->gather.stream != s || l->gather.count == PQ_TUNNEL_GATHER)
        pq_carried_gathered(l);
    if (s->ring.len || s->in != PQ_FLOW_OPEN || s->over) { /* what was gathered before changed it */
        pq_carried_take(s, bytes, len);
        return;
    }
    if (!l->gather.stream)
        l->gather.count = 0;
    l->gather.stream = s;
    l->gather.at[l->gather.count++] = (struct iovec){(void *)(uintptr_t)bytes, len};
}

void pq_carried_took_end(struct pq_carried *s)
{
    pq_carried_gathered(s->loop);
    pq_carried_touch(s);
    if (s->in == PQ_FLOW_OPEN)
        s->in = PQ_FLOW_FLUSHING;
    else if (s->in == PQ_FLOW_BROKEN)
        s->in = PQ_FLOW_ENDED;
}

/* --- from the local socket to the tunnel -------------------------------------------------------------------------- */
static nghttp2_ssize defer(struct pq_carried *s)
{
    s->deferred = true;
    return NGHTTP2_ERR_DEFERRED;
}

nghttp2_ssize pq_carried_pull(nghttp2_session *h2, int32_t id, uint8_t *buf, size_t length, uint32_t *flags,
                              nghttp2_data_source *source, void *user)
{
    (void)h2, (void)id, (void)buf;
    struct pq_carried *s = source->ptr;
    struct pq_tunnel *t = user;
    size_t used = t->out.len + PQ_TUNNEL_FRAME_HEAD, n = 0;
    if (s->done || s->over || s->out != PQ_FLOW_OPEN || !s->can_read)
        return defer(s);
    pq_carried_touch(s);
    if (s->round == t->round) {
        t->more = true;
        return defer(s); /* others first; it is asked again in the next round */
    }
    if (used + LEAST_ROOM > PQ_TUNNEL_OUT) {
        t->more = true;
        return NGHTTP2_ERR_PAUSE;
    }
    if (length > PQ_TUNNEL_OUT - used)
        length = PQ_TUNNEL_OUT - used;
    int e = pq_tcp_read(s->fd, t->out.at + used, length, &n);
    s->can_read = e == 0 && n == length;
    if (e == PQ_E_WANT_READ)
        return defer(s);
    if (e < 0 && e != PQ_E_CLOSED) {
        pq_carried_fail(s, PQ_PROXY_RESET_BY_LOCAL, local_error(s), NULL);
        return defer(s);
    }
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (e == PQ_E_CLOSED) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        s->out = PQ_FLOW_ENDED;
        s->news = true;
    }
    s->round = t->round;
    s->pulled += n;
    s->active = now(s);
    t->up += n;
    pq_metrics_bytes(set_of(s)->counters, direction(s), n, 0);
    return (nghttp2_ssize)n;
}

/* The peer takes no more of what the local socket sends. */
static void drop(struct pq_carried *s)
{
    for (int i = 0; i < DROPS_A_TURN && s->can_read; i++) {
        size_t n = 0;
        int e = pq_tcp_read(s->fd, s->loop->in, PQ_TUNNEL_IN, &n);
        if (e == PQ_E_CLOSED)
            s->out = PQ_FLOW_ENDED;
        else if (e < 0 && e != PQ_E_WANT_READ)
            pq_carried_fail(s, PQ_PROXY_RESET_BY_LOCAL, 0, NULL);
        s->can_read = e == 0;
    }
}

/* --- nghttp2 closed it -------------------------------------------------------------------------------------------- */
static bool untried(const struct pq_carried *s)
{
    return s->owner && s->pulled == 0 && s->out == PQ_FLOW_OPEN && s->in == PQ_FLOW_OPEN && !s->answered &&
           s->delivered == 0 && s->ring.len == 0;
}

void pq_carried_closed(struct pq_carried *s, uint32_t code, bool lost)
{
    struct pq_tunnel *t = s->tunnel;
    bool end_came = s->in == PQ_FLOW_FLUSHING || s->in == PQ_FLOW_ENDED;
    s->id = 0;
    s->news = true;
    t->streams--;
    if (s->done) {
        TAILQ_REMOVE(&t->gone, s, of_loop);
        pq_carried_free(s);
        return;
    }
    pq_carried_touch(s);
    if (s->over)
        return;
    if (!lost && code == NGHTTP2_REFUSED_STREAM && untried(s) && s->tries++ < TRIES_MAX) {
        s->again = true;
    } else if (!end_came) {
        t->lost += lost;
        pq_carried_fail(s, lost ? PQ_PROXY_TUNNEL_LOST : PQ_PROXY_RESET_BY_PEER, 0, NULL);
    } else if (s->out != PQ_FLOW_ENDED) { /* what came before is whole and still arrives */
        s->out = PQ_FLOW_BROKEN;
        s->lost = s->can_read = true;
        s->gone = lost ? PQ_PROXY_TUNNEL_LOST : PQ_PROXY_RESET_BY_PEER;
        t->lost += lost;
    }
}

/* --- what can be done now ----------------------------------------------------------------------------------------- */
/* All that came was acknowledged by the local side, so that a reset takes nothing from it. */
static bool acknowledged(struct pq_carried *s)
{
    int waiting = 0;
    if (ioctl(s->fd, SIOCOUTQ, &waiting) < 0)
        return true;
    if (waiting < s->unacknowledged)
        s->active = now(s);
    s->unacknowledged = waiting;
    return waiting == 0;
}

static void judge(struct pq_carried *s)
{
    if (s->in == PQ_FLOW_FLUSHING && s->ring.len == 0 && !s->connecting)
        pass_end(s);
    bool in_ended = s->in == PQ_FLOW_ENDED, out_ended = s->out == PQ_FLOW_ENDED;
    if (s->in == PQ_FLOW_BROKEN && out_ended) {
        pq_carried_fail(s, PQ_PROXY_RESET_BY_LOCAL, NGHTTP2_NO_ERROR, NULL);
    } else if (in_ended && out_ended && !s->lost) {
        pq_carried_fail(s, PQ_PROXY_END, NGHTTP2_NO_ERROR, NULL);
    } else if (in_ended && (out_ended || s->out == PQ_FLOW_BROKEN)) {
        if (s->gone == PQ_PROXY_RESET_BY_LOCAL || acknowledged(s))
            pq_carried_fail(s, (enum pq_proxy_end)s->gone, 0, NULL);
        else
            pq_tunnel_loop_timed(s->loop, s, true);
    }
}

static void resume(struct pq_carried *s)
{
    s->deferred = false;
    if (nghttp2_session_resume_data(s->tunnel->h2, s->id) == NGHTTP2_ERR_NOMEM)
        s->tunnel->starved = true;
}

bool pq_carried_step(struct pq_carried *s)
{
    s->news = false;
    if (s->done)
        return true;
    if (s->out == PQ_FLOW_BROKEN && !s->over)
        drop(s);
    if (!s->over)
        judge(s);
    if (s->over) {
        finish(s);
        return false;
    }
    if (s->again) {
        pq_carried_leave(s);
        pq_tunnels_again(s);
        return false;
    }
    if (s->id && s->deferred && s->can_read && s->out == PQ_FLOW_OPEN)
        resume(s);
    return true;
}

void pq_carried_watch(struct pq_carried *s)
{
    struct ev_loop *loop = set_of(s)->loop;
    bool reads = !s->can_read && !s->connecting && (s->out == PQ_FLOW_OPEN || s->out == PQ_FLOW_BROKEN) && !s->waiting;
    uint8_t wants = (uint8_t)((reads ? EV_READ : 0) | (s->ring.len || s->connecting ? EV_WRITE : 0));
    if (s->done || s->watched == wants)
        return;
    ev_io_stop(loop, &s->io);
    ev_io_set(&s->io, s->fd, wants);
    if (wants)
        ev_io_start(loop, &s->io);
    s->watched = wants;
}

/* --- the function's connection ------------------------------------------------------------------------------------ */
static void connected(struct pq_carried *s)
{
    static const nghttp2_nv ok = {(uint8_t *)(uintptr_t)":status", (uint8_t *)(uintptr_t)"200", 7, 3,
                                  NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE};
    const nghttp2_data_provider2 data = {.source.ptr = s, .read_callback = pq_carried_pull};
    pq_upstream_worked(s->route->upstream, &s->attempt);
    s->connecting = false;
    s->answered = true;
    s->active = now(s);
    s->took_connect = pq_clock_ns() - s->started;
    pq_tunnel_loop_timed(s->loop, s, false);
    pq_tcp_abort_on_close(s->fd, true);
    if (!set_of(s)->config->tcp_nodelay)
        pq_tcp_nodelay(s->fd, false);
    pq_metrics_connected(set_of(s)->counters, direction(s), s->took_connect);
    pq_metrics_established(set_of(s)->counters, direction(s));
    if (nghttp2_submit_response2(s->tunnel->h2, s->id, &ok, 1, &data) < 0)
        s->tunnel->starved = true;
    deliver(s);
}

/* On the loopback interface a connection is often there before connect(2) is over, though it says otherwise: asking
 * again spares a turn of the loop. */
static int connect_now(const struct pq_address *at, int *fd, struct pq_why *why)
{
    int e = pq_tcp_connect(at, fd, why);
    if (e != PQ_E_WANT_WRITE || connect(*fd, (const struct sockaddr *)&at->sa, at->len) == 0 || errno == EISCONN)
        return e == PQ_E_WANT_WRITE ? 0 : e;
    return errno == EALREADY || errno == EINPROGRESS ? PQ_E_WANT_WRITE : pq_error_from_errno(errno);
}

static double connect_left(const struct pq_carried *s)
{
    return (double)(s->started + set_of(s)->config->timeouts.connect - pq_clock_ns()) / 1e9;
}

static void give_up(struct pq_carried *s, int e, const char *detail)
{
    set_of(s)->starved |= e == PQ_E_LIMIT;
    pq_carried_fail(s, pq_proxy_end_of_connect(e), NGHTTP2_CONNECT_ERROR, detail);
}

/* True where there is another address to try. */
static bool connect_failed(struct pq_carried *s, int e, const char *detail)
{
    struct pq_upstream *u = s->route->upstream;
    struct pq_why why = {""};
    char text[PQ_ADDRESS_TEXT];
    struct pq_address at = pq_carried_address(s);
    pq_address_text(&at, text);
    if (!detail[0]) {
        pq_why(&why, e, "can't connect to %s: %s", text, pq_error_text(e));
        detail = why.text;
    }
    bool ours = e == PQ_E_LIMIT || e == PQ_E_NOMEM;
    bool news = !ours && pq_upstream_failed(u, &s->attempt, pq_clock_ns());
    if (ours || pq_upstream_left(u, &s->attempt) == 0 || connect_left(s) <= 0) {
        give_up(s, e, detail);
        return false;
    }
    if (news)
        pq_log(PQ_LOG_WARN, "address failed", "route", pq_s(s->route->how->name), "detail", pq_s(detail), NULL);
    ev_io_stop(set_of(s)->loop, &s->io);
    s->watched = 0;
    pq_closep(&s->fd);
    return true;
}

void pq_carried_connect(struct pq_carried *s)
{
    for (;;) {
        struct pq_why why = {""};
        struct pq_address at;
        if (!pq_upstream_next(s->route->upstream, &s->attempt, pq_clock_ns(), &at)) {
            give_up(s, PQ_E_NOT_FOUND, "no address is known of where it leads");
            return;
        }
        size_t shares = pq_upstream_left(s->route->upstream, &s->attempt) + 1;
        s->local = pack_address(&at);
        s->connecting = true;
        s->deadline = now(s) + connect_left(s) / (double)shares;
        int e = connect_now(&at, &s->fd, &why);
        if (e == 0)
            connected(s);
        else if (e == PQ_E_WANT_WRITE)
            pq_tunnel_loop_timed(s->loop, s, true);
        else if (connect_failed(s, e, why.text))
            continue;
        return;
    }
}

static void connect_ready(struct pq_carried *s)
{
    int e = pq_tcp_connected(s->fd);
    if (e == 0)
        connected(s);
    else if (connect_failed(s, e, ""))
        pq_carried_connect(s);
}

/* --- the loop's --------------------------------------------------------------------------------------------------- */
static void on_io(struct ev_loop *loop, ev_io *w, int revents)
{
    (void)loop;
    struct pq_carried *s = w->data;
    pq_tunnel_loop_clock(s->loop);
    if (s->connecting) {
        connect_ready(s);
    } else {
        s->can_read |= (revents & EV_READ) != 0;
        if (revents & EV_WRITE)
            deliver(s);
    }
    pq_carried_touch(s);
}

static void connect_expired(struct pq_carried *s)
{
    if (connect_failed(s, PQ_E_TIMEOUT, ""))
        pq_carried_connect(s);
    pq_carried_touch(s);
}

/* Two sweeps must find it so: after a stop of this process time is up before what came meanwhile was looked at. */
static bool idles(struct pq_carried *s)
{
    double most = (double)set_of(s)->config->timeouts.idle / 1e9;
    bool idle = most > 0 && now(s) - s->active > most;
    bool twice = idle && s->suspect;
    s->suspect = idle;
    return twice;
}

void pq_carried_sweep(struct pq_carried *s)
{
    if (s->connecting && now(s) > s->deadline)
        connect_expired(s);
    else if (!s->waiting && !s->connecting && idles(s))
        pq_carried_fail(s, PQ_PROXY_IDLE, NGHTTP2_CANCEL, NULL);
    if (s->over || s->timed)
        pq_carried_touch(s);
}
