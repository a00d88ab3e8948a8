/* talk.h - a server and a client in one loop, for tests: what was asked, what came back. */
#ifndef PQ_TESTS_TALK_H
#define PQ_TESTS_TALK_H

#include <ev.h>

#include "http2/client.h"
#include "http2/server.h"
#include "net/tcp.h"

struct talk {
    struct ev_loop *loop;
    struct pq_http2_server *server;
    struct pq_http2_client *client;
    char authority[PQ_ADDRESS_TEXT];
    size_t pending; /* calls without result */
};

/* What a call came to. */
struct outcome {
    struct talk *talk;
    bool done;
    int error, status, attempts;
    char label[64];
    struct pq_http2_timing timing;
    size_t body_len, field_count, trailer_at;
    uint8_t first, last; /* bytes of the body */
};

static inline struct pq_address loopback(void)
{
    struct pq_address a = {.sa.ss_family = AF_INET, .len = sizeof(struct sockaddr_in)};
    struct sockaddr_in *in = (struct sockaddr_in *)(void *)&a.sa;
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

static inline void on_outcome(void *context, const struct pq_http2_result *r)
{
    struct outcome *o = context;
    assert_false(o->done);
    o->done = true;
    o->error = r->error;
    o->attempts = r->attempts;
    o->timing = r->timing;
    snprintf(o->label, sizeof o->label, "%s", r->label);
    if (r->response) {
        o->status = r->response->status;
        o->body_len = r->response->body.len;
        o->field_count = r->response->field_count;
        o->trailer_at = r->response->trailer_at;
        if (o->body_len) {
            o->first = r->response->body.at[0];
            o->last = r->response->body.at[o->body_len - 1];
        }
    }
    if (--o->talk->pending == 0)
        ev_break(o->talk->loop, EVBREAK_ALL);
}

static inline void ask(struct talk *t, const char *method, const char *path, struct pq_span body, struct outcome *o)
{
    *o = (struct outcome){.talk = t};
    t->pending++;
    struct pq_http2_call call = {
        .method = method, .authority = t->authority, .path = path, .body = body, .done = on_outcome, .context = o};
    assert_int_equal(pq_http2_client_call(t->client, &call, NULL), 0);
}

/* Until every call has its result. */
static inline void run(struct talk *t)
{
    if (t->pending)
        ev_run(t->loop, 0);
    assert_int_equal(t->pending, 0);
}

#endif
