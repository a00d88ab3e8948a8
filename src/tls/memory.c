#include "tls/internal.h"

#include "base/clock.h"

enum { STEPS_MAX = 64 }; /* a handshake takes three or four steps of each side */

static int step(struct pq_tls *t, const char *who, struct pq_why *why)
{
    int e = pq_tls_handshake(t);
    if (e == 0 || e == PQ_E_WANT_READ)
        return 0;
    return pq_why(why, e, "%s: %s", who, *t->failure ? t->failure : pq_error_text(e));
}

static int run(struct pq_tls *client, struct pq_tls *server, struct pq_why *why)
{
    for (int i = 0; i < STEPS_MAX; i++) {
        TRY(step(client, "client", why));
        if (client->done && server->done)
            return 0;
        TRY(step(server, "server", why));
    }
    return pq_why(why, PQ_E_PROTOCOL, "the handshake does not end");
}

int pq_tls_memory_handshake(struct pq_tls_context *client, struct pq_tls_context *server,
                            struct pq_tls_memory_cost *out, struct pq_why *why)
{
    if (client->role != PQ_TLS_CLIENT || server->role != PQ_TLS_SERVER)
        return pq_why(why, PQ_E_USAGE, "a handshake takes a client's context and a server's");
    DEFER(pq_tls_freep) struct pq_tls *c = NULL;
    DEFER(pq_tls_freep) struct pq_tls *s = NULL;
    int e = pq_tls_new_over(client, -1, NULL, NULL, &c);
    if (e == 0)
        e = pq_tls_new_over(server, -1, c, NULL, &s);
    if (e != 0)
        return pq_why(why, e, "%s", pq_error_text(e));
    int64_t start = pq_clock_ns();
    TRY(run(c, s, why));
    *out = (struct pq_tls_memory_cost){
        .total_ns = pq_clock_ns() - start,
        .client_cpu_ns = c->info.cpu_ns,
        .server_cpu_ns = s->info.cpu_ns,
        .client_bytes = c->transport.sent,
        .server_bytes = s->transport.sent,
    };
    return 0;
}
