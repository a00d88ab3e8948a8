#include "proxy/admin_ask.h"

#include <stdio.h>

#include "base/clock.h"

static enum pq_control_type type_of(enum pq_admin_action action)
{
    return action == PQ_ADMIN_RELOAD  ? PQ_CONTROL_RELOAD
           : action == PQ_ADMIN_DRAIN ? PQ_CONTROL_DRAIN
                                      : PQ_CONTROL_CONNECTIONS;
}

/* When the next may begin. */
static int64_t pause_after(enum pq_admin_action action, const struct pq_admin_question *q, int64_t now)
{
    return action == PQ_ADMIN_CONNECTIONS ? now + (now - q->began)
           : action == PQ_ADMIN_RELOAD    ? q->began + PQ_NS_PER_S
                                          : 0;
}

/* The next one after w that waits; NULL: from the beginning, and none. */
static struct pq_admin_waiting *next_waiting(struct pq_admin_asking *a, struct pq_admin_waiting *w)
{
    for (w = w ? w + 1 : a->waiting; w < a->waiting + PQ_ADMIN_WAITING_MAX; w++)
        if (w->exchange)
            return w;
    return NULL;
}

/* Of those that nobody has asked for yet. */
static struct pq_admin_waiting *next_unasked(struct pq_admin_asking *a, struct pq_admin_waiting *w,
                                             enum pq_admin_action action)
{
    while ((w = next_waiting(a, w)) && (w->action != action || w->number))
        ;
    return w;
}

static void cannot_ask(struct pq_admin_asking *a, enum pq_admin_action action)
{
    for (struct pq_admin_waiting *w = NULL; (w = next_unasked(a, w, action));)
        pq_admin_answer_error(TAKE(w->exchange), 503, "the supervisor can't be asked now: try again");
}

static void ask_now(struct pq_admin_asking *a, enum pq_admin_action action, int64_t now)
{
    struct pq_admin_question *q = &a->question[action];
    if (a->tell(a->context, type_of(action), a->last + 1) < 0) {
        cannot_ask(a, action);
        return;
    }
    *q = (struct pq_admin_question){.number = ++a->last, .began = now};
    for (struct pq_admin_waiting *w = NULL; (w = next_unasked(a, w, action));)
        w->number = q->number;
}

/* Asks what may be asked, and sets the timer for what has to wait. */
static void go_on(struct pq_admin_asking *a)
{
    int64_t now = pq_clock_ns(), next = INT64_MAX;
    for (int i = 0; i <= PQ_ADMIN_INDEX; i++) {
        const struct pq_admin_question *q = &a->question[i];
        if (q->number || !next_unasked(a, NULL, (enum pq_admin_action)i))
            continue;
        if (now >= q->not_before)
            ask_now(a, (enum pq_admin_action)i, now);
        else if (q->not_before < next)
            next = q->not_before;
    }
    ev_timer_stop(a->loop, &a->due);
    if (next == INT64_MAX)
        return;
    ev_timer_set(&a->due, (double)(next - now) / 1e9, 0.);
    ev_timer_start(a->loop, &a->due);
}

static void on_due(struct ev_loop *loop, ev_timer *timer, int revents)
{
    (void)loop, (void)revents;
    go_on(timer->data);
}

void pq_admin_asking_init(struct pq_admin_asking *a)
{
    ev_init(&a->due, on_due);
    a->due.data = a;
}

void pq_admin_ask(struct pq_admin_asking *a, struct pq_admin_exchange *x, enum pq_admin_action action)
{
    struct pq_admin_waiting *w = a->waiting;
    while (w < a->waiting + PQ_ADMIN_WAITING_MAX && w->exchange)
        w++;
    if (w == a->waiting + PQ_ADMIN_WAITING_MAX) {
        pq_admin_answer_error(x, 503, "too many requests wait: try again");
        return;
    }
    *w = (struct pq_admin_waiting){.exchange = x, .action = action, .since = pq_clock_ns()};
    go_on(a);
}

static void finish(struct pq_admin_asking *a, enum pq_admin_action action, int64_t now)
{
    struct pq_admin_question *q = &a->question[action];
    q->not_before = pause_after(action, q, now);
    q->number = 0;
}

void pq_admin_asking_heard(struct pq_admin_asking *a, const struct pq_control_message *m)
{
    int64_t now = pq_clock_ns();
    for (int i = 0; i <= PQ_ADMIN_INDEX; i++)
        if (a->question[i].number && a->question[i].number == m->generation)
            finish(a, (enum pq_admin_action)i, now);
    for (struct pq_admin_waiting *w = NULL; (w = next_waiting(a, w));)
        if (w->number && w->number == m->generation)
            a->answer(a->context, TAKE(w->exchange), w->action, m);
    go_on(a);
}

void pq_admin_asking_look(struct pq_admin_asking *a)
{
    const int64_t most = PQ_ADMIN_PATIENCE * PQ_NS_PER_S, now = pq_clock_ns();
    struct pq_control_message late = {.status = PQ_E_TIMEOUT};
    snprintf(late.text, sizeof late.text, "no answer within %d s; it may still be done", PQ_ADMIN_PATIENCE);
    for (struct pq_admin_waiting *w = NULL; (w = next_waiting(a, w));)
        if (now - w->since > most)
            a->answer(a->context, TAKE(w->exchange), w->action, &late);
    for (int i = 0; i <= PQ_ADMIN_INDEX; i++)
        if (a->question[i].number && now - a->question[i].began > most)
            finish(a, (enum pq_admin_action)i, now);
    go_on(a);
}

void pq_admin_asking_end(struct pq_admin_asking *a)
{
    ev_timer_stop(a->loop, &a->due);
    for (struct pq_admin_waiting *w = NULL; (w = next_waiting(a, w));)
        pq_admin_answer_error(TAKE(w->exchange), 503, "the sidecar ends");
}
