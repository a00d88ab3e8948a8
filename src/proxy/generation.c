#include "proxy/generation.h"

#include <stdlib.h>
#include <string.h>

#include "proxy/tunnel.h"

/* Names that no certificate could show would refuse every peer; a connection that is never used finds them now. */
static int try_names(const struct pq_route *route, struct pq_why *why)
{
    DEFER(pq_tls_freep) struct pq_tls *unused = NULL;
    int e = pq_tls_new(route->tls, -1, &route->how->peers, &unused);
    return e == PQ_E_INVALID
               ? pq_why(why, e,
                        "peers: one of them is no name that a certificate shows: write DNS names, IP addresses or URIs")
               : e;
}

/* An ingress takes tunnels and others; an egress that offers tunnels also has a context that does not, for peers that
 * want none. */
static int make_contexts(struct pq_route *r, struct pq_crypto *crypto, struct pq_tls_settings settings,
                         struct pq_why *why)
{
    char *names[] = {(char *)(uintptr_t)PQ_TUNNEL_ALPN};
    const struct pq_strings alpn = {names, PQ_COUNT(names)};
    settings.alpn_optional = true;
    if (r->how->direction == PQ_PROXY_INGRESS) {
        settings.alpn = &alpn;
        return pq_tls_context_new(crypto, PQ_TLS_SERVER, &settings, &r->tls, why);
    }
    TRY(pq_tls_context_new(crypto, PQ_TLS_CLIENT, &settings, &r->tls, why));
    settings.alpn = &alpn;
    if (r->how->carry == PQ_PROXY_CARRY_TUNNEL && !r->how->transparent)
        return pq_tls_context_new(crypto, PQ_TLS_CLIENT, &settings, &r->tunnel_tls, why);
    return 0;
}

static int make_route(struct pq_generation *g, struct pq_crypto *crypto, const struct pq_files *files,
                      struct pq_tls_ticket_keys *tickets, const struct pq_proxy_listener *how, bool judges,
                      struct pq_why *why)
{
    struct pq_route *r = &g->routes[g->count++];
    *r = (struct pq_route){.how = how, .of = g};
    TRY(pq_upstream_new(&how->target, &r->upstream));
    struct pq_tls_settings settings = pq_proxy_listener_tls(&g->config, how);
    settings.files = files;
    settings.judge_only = judges;
    settings.tickets = tickets;
    int e = make_contexts(r, crypto, settings, why);
    if (e == 0)
        e = try_names(r, why);
    return e < 0 ? pq_why_in(why, e, "%s: %s \"%s\"", how->listen.where, pq_proxy_direction_names[how->direction],
                             how->name)
                 : 0;
}

static int make(struct pq_crypto *crypto, struct pq_proxy_config *config, struct pq_files **files,
                struct pq_tls_ticket_keys *tickets, uint64_t number, bool judges, struct pq_generation **out,
                struct pq_why *why)
{
    DEFER(pq_files_freep) struct pq_files *contents = TAKE(*files);
    size_t count = pq_proxy_listener_count(config);
    DEFER(pq_generation_freep) struct pq_generation *g = calloc(1, sizeof *g + count * sizeof g->routes[0]);
    if (!g) {
        pq_proxy_config_free(config);
        *config = (struct pq_proxy_config){0};
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    }
    g->number = number;
    g->references = 1;
    g->config = *config;
    *config = (struct pq_proxy_config){0};
    for (size_t i = 0; i < count; i++)
        TRY(make_route(g, crypto, contents, tickets, pq_proxy_listener_at(&g->config, i), judges, why));
    *out = TAKE(g);
    return 0;
}

int pq_generation_new(struct pq_crypto *crypto, struct pq_proxy_config *config, struct pq_files **files,
                      struct pq_tls_ticket_keys *tickets, uint64_t number, struct pq_generation **out,
                      struct pq_why *why)
{
    return make(crypto, config, files, tickets, number, false, out, why);
}

int pq_generation_new_judge(struct pq_crypto *crypto, struct pq_proxy_config *config, struct pq_files **files,
                            uint64_t number, struct pq_generation **out, struct pq_why *why)
{
    return make(crypto, config, files, NULL, number, true, out, why);
}

struct pq_route *pq_generation_route(struct pq_generation *g, const struct pq_proxy_listener *how)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->routes[i].how->direction == how->direction && strcmp(g->routes[i].how->name, how->name) == 0)
            return &g->routes[i];
    return NULL;
}

void pq_generation_keep(struct pq_generation *g)
{
    if (g)
        g->references++;
}

void pq_generation_free(struct pq_generation *g)
{
    if (!g || --g->references)
        return;
    for (size_t i = 0; i < g->count; i++) {
        pq_tls_context_free(g->routes[i].tls);
        pq_tls_context_free(g->routes[i].tunnel_tls);
        pq_upstream_free(g->routes[i].upstream);
    }
    pq_proxy_config_free(&g->config);
    free(g);
}

void pq_generation_take_route(struct pq_route **kept, struct pq_route *route)
{
    struct pq_generation *before = *kept ? (*kept)->of : NULL;
    if (route)
        pq_generation_keep(route->of);
    *kept = route;
    pq_generation_free(before);
}
