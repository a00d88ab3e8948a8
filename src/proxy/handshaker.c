#include "proxy/handshaker.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"

enum {
    KNOWN_IN_A_ROW = 8, /* steps, before a stranger has one */
    NICE = 5,           /* below the relay's thread */
};

TAILQ_HEAD(list, pq_handshake);
enum { STRANGERS, KNOWN };

struct pq_handshaker {
    struct ev_loop *owner, *loop;
    ev_async back; /* on the owner's loop: some are done */
    pthread_t thread;
    bool running;
    int64_t in_flight, cancelled; /* the owner's */

    pthread_mutex_t lock;
    pthread_cond_t came_back;
    struct list submitted, done; /* under the lock, as is this: */
    bool stop;
    atomic_bool cancels; /* one of those submitted is cancelled */

    /* The thread's. */
    ev_async wake;
    ev_idle work; /* runs only while nothing else is to be done, and so after each look at the descriptors */
    struct list waiting, ready[2];
    unsigned known_in_a_row;
};

/* --- the thread -------------------------------------------------------------------------------------------------- */
static struct list *list_of(struct pq_handshake *one)
{
    struct pq_handshaker *h = one->handshaker;
    return one->state == PQ_HANDSHAKE_READY ? &h->ready[one->known ? KNOWN : STRANGERS] : &h->waiting;
}

static void move(struct pq_handshake *one, int state)
{
    TAILQ_REMOVE(list_of(one), one, entry);
    one->state = state;
    TAILQ_INSERT_TAIL(list_of(one), one, entry);
}

static void finish(struct pq_handshake *one, int e)
{
    struct pq_handshaker *h = one->handshaker;
    TAILQ_REMOVE(list_of(one), one, entry);
    ev_io_stop(h->loop, &one->io);
    ev_timer_stop(h->loop, &one->timer);
    one->code = e;
    pthread_mutex_lock(&h->lock);
    TAILQ_INSERT_TAIL(&h->done, one, entry);
    pthread_cond_signal(&h->came_back);
    pthread_mutex_unlock(&h->lock);
    ev_async_send(h->owner, &h->back);
}

/* The timeout is the peer's: what a handshake waits for its turn on this thread does not count. */
static void start_clock(struct pq_handshake *one)
{
    one->waits_since = pq_clock_ns();
    ev_now_update(one->handshaker->loop); /* a step may have taken long */
    ev_timer_set(&one->timer, one->left > 0 ? (double)one->left / 1e9 : 0., 0.);
    ev_timer_start(one->handshaker->loop, &one->timer);
}

static void stop_clock(struct pq_handshake *one)
{
    if (!ev_is_active(&one->timer))
        return;
    ev_timer_stop(one->handshaker->loop, &one->timer);
    one->left -= pq_clock_ns() - one->waits_since;
}

static void wait_for(struct pq_handshake *one, int events)
{
    start_clock(one);
    ev_io_set(&one->io, one->fd, events);
    ev_io_start(one->handshaker->loop, &one->io);
    move(one, PQ_HANDSHAKE_WAITS);
}

static void queue(struct pq_handshake *one)
{
    stop_clock(one);
    move(one, PQ_HANDSHAKE_READY);
    ev_idle_start(one->handshaker->loop, &one->handshaker->work);
}

static void step(struct pq_handshake *one)
{
    int e = one->tls ? 0 : pq_tls_new(one->context, one->fd, one->names, &one->tls);
    if (e == 0)
        e = pq_tls_handshake(one->tls);
    if (e == PQ_E_WANT_READ || e == PQ_E_WANT_WRITE)
        wait_for(one, e == PQ_E_WANT_READ ? EV_READ : EV_WRITE);
    else
        finish(one, e);
}

static void on_io(struct ev_loop *loop, ev_io *w, int revents)
{
    (void)revents;
    ev_io_stop(loop, w);
    queue(w->data);
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)loop, (void)revents;
    finish(w->data, PQ_E_TIMEOUT);
}

static struct pq_handshake *next_ready(struct pq_handshaker *h)
{
    struct pq_handshake *known = TAILQ_FIRST(&h->ready[KNOWN]), *stranger = TAILQ_FIRST(&h->ready[STRANGERS]);
    if (stranger && (!known || h->known_in_a_row >= KNOWN_IN_A_ROW)) {
        h->known_in_a_row = 0;
        return stranger;
    }
    h->known_in_a_row += known && stranger;
    return known;
}

static void on_work(struct ev_loop *loop, ev_idle *w, int revents)
{
    (void)revents;
    struct pq_handshaker *h = w->data;
    struct pq_handshake *one = next_ready(h);
    if (one)
        step(one);
    if (TAILQ_EMPTY(&h->ready[KNOWN]) && TAILQ_EMPTY(&h->ready[STRANGERS]))
        ev_idle_stop(loop, w);
}

static void begin(struct pq_handshaker *h, struct pq_handshake *one)
{
    one->left = one->timeout;
    ev_init(&one->io, on_io);
    ev_init(&one->timer, on_timer);
    one->io.data = one->timer.data = one;
    one->state = PQ_HANDSHAKE_WAITS;
    TAILQ_INSERT_TAIL(&h->waiting, one, entry);
    if (pq_tls_context_role(one->context) == PQ_TLS_CLIENT)
        queue(one);
    else
        wait_for(one, EV_READ);
}

static bool pick_up(struct pq_handshaker *h)
{
    struct list some = TAILQ_HEAD_INITIALIZER(some);
    struct pq_handshake *one;
    pthread_mutex_lock(&h->lock);
    TAILQ_CONCAT(&some, &h->submitted, entry);
    bool stop = h->stop;
    pthread_mutex_unlock(&h->lock);
    ev_now_update(h->loop);
    while ((one = TAILQ_FIRST(&some))) {
        TAILQ_REMOVE(&some, one, entry);
        begin(h, one);
    }
    return stop;
}

static void interrupt(struct list *l, bool all)
{
    for (struct pq_handshake *one = TAILQ_FIRST(l), *next; one; one = next) {
        next = TAILQ_NEXT(one, entry);
        if (all || atomic_load(&one->cancelled))
            finish(one, PQ_E_INTERRUPTED);
    }
}

static void on_wake(struct ev_loop *loop, ev_async *w, int revents)
{
    (void)revents;
    struct pq_handshaker *h = w->data;
    bool some = atomic_exchange(&h->cancels, false); /* before picking up: they are then among what is held */
    bool all = pick_up(h);
    if (some || all) {
        interrupt(&h->waiting, all);
        interrupt(&h->ready[KNOWN], all);
        interrupt(&h->ready[STRANGERS], all);
    }
    if (all)
        ev_break(loop, EVBREAK_ALL);
}

static void *run(void *context)
{
    struct pq_handshaker *h = context;
    /* Linux knows a nice value for each thread. Where it can't be set, both threads are equal: slower, not wrong. */
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    ev_run(h->loop, 0);
    return NULL;
}

/* --- the owner's side -------------------------------------------------------------------------------------------- */
static struct pq_handshake *take_done(struct pq_handshaker *h, bool wait)
{
    pthread_mutex_lock(&h->lock);
    while (wait && TAILQ_EMPTY(&h->done))
        pthread_cond_wait(&h->came_back, &h->lock);
    struct pq_handshake *one = TAILQ_FIRST(&h->done);
    if (one)
        TAILQ_REMOVE(&h->done, one, entry);
    pthread_mutex_unlock(&h->lock);
    return one;
}

static void hand_back(struct pq_handshaker *h, struct pq_handshake *one)
{
    h->in_flight--;
    ev_unref(h->owner);
    h->cancelled -= atomic_load(&one->cancelled);
    one->done(one, one->code);
}

static void on_back(struct ev_loop *loop, ev_async *w, int revents)
{
    (void)loop, (void)revents;
    struct pq_handshaker *h = w->data;
    /* One by one: a done() may itself wait for the others. */
    for (struct pq_handshake *one; (one = take_done(h, false));)
        hand_back(h, one);
}

void pq_handshaker_settle(struct pq_handshaker *h)
{
    while (h->cancelled > 0)
        hand_back(h, take_done(h, true));
}

void pq_handshaker_submit(struct pq_handshaker *h, struct pq_handshake *one)
{
    one->handshaker = h;
    one->tls = NULL;
    one->code = PQ_E_INTERRUPTED;
    atomic_init(&one->cancelled, false);
    h->in_flight++;
    ev_ref(h->owner);
    pthread_mutex_lock(&h->lock);
    if (h->stop)
        TAILQ_INSERT_TAIL(&h->done, one, entry);
    else
        TAILQ_INSERT_TAIL(&h->submitted, one, entry);
    pthread_mutex_unlock(&h->lock);
    ev_async_send(h->loop, &h->wake);
}

void pq_handshaker_cancel(struct pq_handshaker *h, struct pq_handshake *one)
{
    if (atomic_exchange(&one->cancelled, true))
        return;
    h->cancelled++;
    atomic_store(&h->cancels, true);
    ev_async_send(h->loop, &h->wake);
}

int64_t pq_handshaker_in_flight(const struct pq_handshaker *h) { return h->in_flight; }

static void prepare(struct pq_handshaker *h)
{
    TAILQ_INIT(&h->submitted);
    TAILQ_INIT(&h->done);
    TAILQ_INIT(&h->waiting);
    TAILQ_INIT(&h->ready[STRANGERS]);
    TAILQ_INIT(&h->ready[KNOWN]);
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->came_back, NULL);
    ev_async_init(&h->wake, on_wake);
    ev_async_init(&h->back, on_back);
    ev_idle_init(&h->work, on_work);
    h->wake.data = h->back.data = h->work.data = h;
}

static int start(struct pq_handshaker *h, struct pq_why *why)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSYS); /* a thread's own doing; proxy/contain_calls.c says who handles it */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&h->thread, NULL, run, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    h->running = error == 0;
    return error ? pq_why(why, PQ_E_LIMIT, "can't start the thread for handshakes: %s: raise the limit (ulimit -u)",
                          strerror(error))
                 : 0;
}

int pq_handshaker_new(struct ev_loop *loop, struct pq_handshaker **out, struct pq_why *why)
{
    DEFER(pq_handshaker_freep) struct pq_handshaker *h = calloc(1, sizeof *h);
    if (!h)
        return PQ_E_NOMEM;
    prepare(h);
    h->owner = loop;
    h->loop = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
    if (!h->loop)
        return pq_why(why, PQ_E_LIMIT, "no event loop for handshakes to be had: descriptors ran out (ulimit -n)");
    ev_async_start(h->loop, &h->wake);
    ev_async_start(h->owner, &h->back);
    ev_unref(h->owner); /* it keeps a loop running only while something is in flight */
    TRY(start(h, why));
    *out = TAKE(h);
    return 0;
}

void pq_handshaker_free(struct pq_handshaker *h)
{
    if (!h)
        return;
    if (h->running) {
        pthread_mutex_lock(&h->lock);
        h->stop = true;
        pthread_mutex_unlock(&h->lock);
        ev_async_send(h->loop, &h->wake);
        pthread_join(h->thread, NULL);
        for (struct pq_handshake *one; (one = take_done(h, false));)
            hand_back(h, one);
    }
    if (h->loop) {
        ev_ref(h->owner);
        ev_async_stop(h->owner, &h->back);
        ev_loop_destroy(h->loop);
    }
    pthread_cond_destroy(&h->came_back);
    pthread_mutex_destroy(&h->lock);
    free(h);
}
