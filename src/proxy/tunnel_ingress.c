#include "proxy/tunnel_parts.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"

enum { REFUSAL_COST = 10 }; /* see pq_tunnel_spend(): a refusal is also a line of the log */

void pq_tunnel_refused(struct pq_tunnel *t, enum pq_proxy_end why, const char *detail)
{
    struct pq_connections *set = t->loop->set;
    char from[PQ_ADDRESS_TEXT];
    pq_address_text(&t->peer, from);
    pq_metrics_accepted(set->counters, t->route->how->direction);
    pq_metrics_refused(set->counters, t->route->how->direction, why);
    pq_log(pq_proxy_end_level(why), "connection refused", "route", pq_s(t->route->how->name), "direction",
           pq_s(pq_proxy_direction_names[t->route->how->direction]), "from", pq_s(from), "peer_name",
           pq_s(t->tls ? pq_tls_info(t->tls)->peer : ""), "open", pq_i(set->count), "tunnel", pq_i(t->id), "reason",
           pq_s(pq_proxy_end_label(why)), "detail", pq_s(detail), NULL);
    (void)pq_tunnel_spend(t, REFUSAL_COST, "bad HEADERS"); /* judged with the next frame */
}

/* The answer and our end; the other direction is reset once that has gone out (on_sent()), or nghttp2 would drop it. */
static bool answer(struct pq_tunnel *t, int32_t id, const char *status)
{
    nghttp2_nv field = {(uint8_t *)(uintptr_t)":status", (uint8_t *)(uintptr_t)status, 7, strlen(status),
                        NGHTTP2_NV_FLAG_NONE};
    return nghttp2_submit_response2(t->h2, id, &field, 1, NULL) == 0;
}

static bool reset(struct pq_tunnel *t, int32_t id, uint32_t code)
{
    return nghttp2_submit_rst_stream(t->h2, NGHTTP2_FLAG_NONE, id, code) == 0;
}

static bool allowed(const struct pq_proxy_listener *how, const char *authority)
{
    for (size_t i = 0; i < how->authorities.count; i++)
        if (strcasecmp(how->authorities.at[i], authority) == 0)
            return true;
    return how->authorities.count == 0;
}

/* The function is being connected to; what comes meanwhile is kept, up to the stream's window. */
static bool connect_function(struct pq_tunnel *t, int32_t id)
{
    struct pq_connections *set = t->loop->set;
    struct pq_address nowhere = {.len = 0};
    struct pq_carried *s = NULL;
    if (pq_carried_new(t->loop, t->route, NULL, -1, &nowhere, &s) < 0) {
        pq_connections_give_place(set);
        pq_tunnel_refused(t, PQ_PROXY_MEMORY, "out of memory");
        return reset(t, id, NGHTTP2_REFUSED_STREAM);
    }
    pq_metrics_accepted(set->counters, t->route->how->direction);
    pq_carried_join(s, t, id);
    pq_carried_touch(s);
    if (nghttp2_session_set_stream_user_data(t->h2, id, s) < 0)
        return false;
    pq_carried_connect(s);
    return true;
}

bool pq_tunnel_request(struct pq_tunnel *t, int32_t id)
{
    struct pq_connections *set = t->loop->set;
    char detail[PQ_TUNNEL_AUTHORITY + 80];
    if (!t->request.connect) {
        pq_tunnel_refused(t, PQ_PROXY_BAD_REQUEST, "the only method here is CONNECT");
        return answer(t, id, "405");
    }
    if (!allowed(t->route->how, t->request.authority)) {
        snprintf(detail, sizeof detail, "\"%s\" is none of the listener's authorities", t->request.authority);
        pq_tunnel_refused(t, PQ_PROXY_CONNECT_FORBIDDEN, detail);
        return answer(t, id, "403");
    }
    if (!pq_connections_take_place(set)) {
        pq_tunnel_refused(t, PQ_PROXY_LIMIT, "limits.connections are open");
        return reset(t, id, NGHTTP2_REFUSED_STREAM);
    }
    return connect_function(t, id);
}

void pq_tunnel_serve(struct pq_connections *set, struct pq_route *route, int fd, struct pq_tls *tls,
                     const struct pq_address *from)
{
    struct pq_tunnel_loop *l = pq_tunnel_loop_of(set);
    struct pq_tunnel *t = NULL;
    if (!l || pq_tunnel_new(l, route, NULL, &t) < 0) {
        pq_log(PQ_LOG_ERROR, "tunnel refused", "route", pq_s(route->how->name), "reason",
               pq_s(pq_proxy_end_label(PQ_PROXY_MEMORY)), NULL);
        pq_tls_free(tls);
        pq_tcp_abort_on_close(fd, true);
        close(fd);
        return;
    }
    t->state = PQ_TUNNEL_OPEN;
    t->fd = fd;
    t->tls = tls;
    t->peer = *from;
    pq_tcp_nodelay(fd, true);
    if (pq_tunnel_begin(t) < 0) {
        pq_tunnel_end(t, PQ_PROXY_MEMORY, NULL);
        return;
    }
    pq_tunnel_opened(t);
    if (set->draining)
        pq_tunnel_drain(t);
}
