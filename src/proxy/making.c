#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "proxy/worker_parts.h"

static int make(struct pq_making *m)
{
    struct pq_bundle b;
    TRY(pq_bundle_unpack(m->packed, &b, &m->why));
    m->sockets = TAKE(b.sockets);
    int e = m->judges
                ? pq_generation_new_judge(m->crypto, &b.config, &b.files, m->number, &m->generation, &m->why)
                : pq_generation_new(m->crypto, &b.config, &b.files, m->tickets, m->number, &m->generation, &m->why);
    pq_bundle_free(&b);
    return e;
}

static void *run(void *context)
{
    struct pq_worker *w = context;
    /* What a certificate's dates are to be warned of, the check before has said. */
    pq_log_mute(true);
    w->making.e = make(&w->making);
    ev_async_send(w->loop, &w->making.done);
    return NULL;
}

static void clear(struct pq_making *m)
{
    pq_closep(&m->packed);
    pq_generation_free(TAKE(m->generation));
    free(TAKE(m->sockets));
    m->why = (struct pq_why){""};
}

static void on_done(struct ev_loop *loop, ev_async *async, int revents)
{
    (void)loop, (void)revents;
    struct pq_worker *w = async->data;
    if (!w->making.running)
        return;
    pthread_join(w->making.thread, NULL);
    w->making.running = false;
    pq_worker_made(w);
    clear(&w->making);
}

void pq_making_init(struct pq_worker *w)
{
    w->making = (struct pq_making){.crypto = w->crypto, .tickets = &w->how->shared->tickets, .packed = -1};
    ev_async_init(&w->making.done, on_done);
    w->making.done.data = w;
    ev_async_start(w->loop, &w->making.done);
}

/* Signals stay with the relay's thread. */
static int start_thread(struct pq_worker *w)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSYS); /* a thread's own doing; proxy/contain_calls.c says who handles it */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(&w->making.thread, NULL, run, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e;
}

void pq_making_start(struct pq_worker *w, uint64_t number, int packed)
{
    struct pq_making *m = &w->making;
    if (m->running) { /* the supervisor waits for an answer before it sends the next */
        close(packed);
        return;
    }
    m->packed = packed;
    m->number = number;
    m->judges = w->stopping;
    int err = start_thread(w);
    m->running = err == 0;
    if (m->running)
        return;
    m->e = pq_why(&m->why, pq_error_from_errno(err), "a thread can't be started: %s", strerror(err));
    pq_worker_made(w);
    clear(m);
}

void pq_making_free(struct pq_worker *w)
{
    if (w->making.running)
        pthread_join(w->making.thread, NULL);
    clear(&w->making);
    ev_async_stop(w->loop, &w->making.done);
}
