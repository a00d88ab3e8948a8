#include "proxy/refusal.h"

#include <stdio.h>

/* Between two lines of one reason, in seconds. */
#define LOG_EVERY 1.

static void write_line(struct pq_refusal_reason *of, enum pq_proxy_end why)
{
    char text[PQ_ADDRESS_TEXT];
    pq_address_text(&of->last, text);
    pq_log(pq_proxy_end_level(why), "connection refused", "route", pq_s(of->route), "direction",
           pq_s(pq_proxy_direction_names[of->direction]), "from", pq_s(text), "count", pq_i(of->since), "open",
           pq_i(of->open), "reason", pq_s(pq_proxy_end_label(why)), NULL);
    of->since = 0;
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)revents;
    struct pq_refusals *r = w->data;
    bool more = false;
    for (int i = 0; i < PQ_PROXY_END_COUNT; i++) {
        struct pq_refusal_reason *of = &r->reasons[i];
        of->logged = of->since > 0;
        more |= of->logged;
        if (of->since)
            write_line(of, (enum pq_proxy_end)i);
    }
    if (!more)
        ev_timer_stop(loop, w);
}

void pq_refusals_init(struct pq_refusals *r, struct ev_loop *loop, struct pq_proxy_counters *counters)
{
    *r = (struct pq_refusals){.loop = loop, .counters = counters};
    ev_timer_init(&r->timer, on_timer, LOG_EVERY, LOG_EVERY);
    r->timer.data = r;
}

void pq_refusals_stop(struct pq_refusals *r)
{
    for (int i = 0; i < PQ_PROXY_END_COUNT; i++)
        if (r->reasons[i].since)
            write_line(&r->reasons[i], (enum pq_proxy_end)i);
    if (r->loop)
        ev_timer_stop(r->loop, &r->timer);
}

void pq_refuse(struct pq_refusals *r, const struct pq_proxy_listener *how, int fd, const struct pq_address *from,
               enum pq_proxy_end why, int64_t open)
{
    struct pq_refusal_reason *of = &r->reasons[why];
    pq_tcp_abort_on_close(fd, true);
    close(fd);
    pq_metrics_refused(r->counters, how->direction, why);
    of->since++;
    of->last = *from;
    of->open = open;
    of->direction = how->direction;
    snprintf(of->route, sizeof of->route, "%s", how->name);
    if (of->logged)
        return;
    of->logged = true;
    write_line(of, why);
    if (!ev_is_active(&r->timer)) {
        ev_now_update(r->loop); /* else the first second could be short */
        ev_timer_again(r->loop, &r->timer);
    }
}
