#include "http2/defaults.h"

#include "base/clock.h"

static void set_size(size_t *v, size_t otherwise)
{
    if (*v == 0)
        *v = otherwise;
}

static void set_time(int64_t *v, int64_t otherwise)
{
    if (*v == 0)
        *v = otherwise;
}

void pq_http2_default_limits(struct pq_http2_limits *l, size_t connections)
{
    set_size(&l->body, PQ_HTTP2_MAX_BODY);
    set_size(&l->buffered, 8 * l->body);
    set_size(&l->connections, connections);
    set_size(&l->streams, PQ_HTTP2_MAX_STREAMS);
    if (l->window == 0)
        l->window = PQ_HTTP2_WINDOW;
}

void pq_http2_default_timeouts(struct pq_http2_timeouts *t)
{
    set_time(&t->connect, 5 * PQ_NS_PER_S);
    set_time(&t->handshake, 5 * PQ_NS_PER_S);
    set_time(&t->request, 10 * PQ_NS_PER_S);
    set_time(&t->idle, 60 * PQ_NS_PER_S);
    set_time(&t->drain, 30 * PQ_NS_PER_S);
}
