#include "proxy/transparent.h"

#include <stdlib.h>

#include "net/redirect.h"
#include "proxy/target.h"

/* --- configuration ----------------------------------------------------------------------------------------------- */
static int read_network(const struct pq_node *n, struct pq_network *out, struct pq_why *why)
{
    const char *text = pq_node_text(n);
    struct pq_why inner = {""};
    if (!text)
        return pq_node_why(n, why, "a network is a single text such as 10.0.0.0/8");
    return pq_network_parse(text, out, &inner) < 0 ? pq_node_why(n, why, "%s", inner.text) : 0;
}

int pq_transparent_networks_read(const struct pq_node *n, void *out, struct pq_why *why)
{
    bool list = pq_node_kind(n) == PQ_NODE_LIST;
    size_t count = list ? pq_node_count(n) : 1;
    if (count == 0 || count > PQ_PROXY_NETWORKS_MAX)
        return pq_node_why(n, why, "networks: name 1 to %d; without the key a connection may go anywhere",
                           PQ_PROXY_NETWORKS_MAX);
    DEFER(pq_freep) struct pq_network *networks = calloc(count, sizeof *networks);
    if (!networks)
        return PQ_E_NOMEM;
    for (size_t i = 0; i < count; i++)
        TRY(read_network(list ? pq_node_item(n, i) : n, &networks[i], why));
    *(struct pq_structs *)out = (struct pq_structs){TAKE(networks), count};
    return 0;
}

void pq_transparent_networks_free(void *networks)
{
    struct pq_structs *s = networks;
    free(s->at);
    *s = (struct pq_structs){0};
}

/* Keys that only make sense with the one or the other. */
static int check_keys(const struct pq_node *map, bool transparent, struct pq_why *why)
{
    static const struct {
        const char *key, *why;
    } refused[] = {
        {"connect",
         "connect: a transparent egress leads each connection to where its client wanted to go: leave one of "
         "connect and transparent out"},
        {"authority", "authority: a transparent egress carries each connection alone, so nothing asks for it"},
        {"carry", "carry: a transparent egress carries each connection alone; leave the key out"},
    };
    const struct pq_node *networks = pq_node_get(map, "networks");
    if (networks && !transparent)
        return pq_node_why(networks, why, "networks: an egress with connect has one target; it goes with transparent");
    for (size_t i = 0; transparent && i < PQ_COUNT(refused); i++)
        if (pq_node_get(map, refused[i].key))
            return pq_node_why(pq_node_get(map, refused[i].key), why, "%s", refused[i].why);
    return 0;
}

int pq_transparent_check(const struct pq_node *map, struct pq_proxy_listener *l, struct pq_why *why)
{
    TRY(check_keys(map, l->transparent, why));
    if (!l->transparent)
        return pq_proxy_target_named(&l->target)
                   ? 0
                   : pq_node_why(map, why, "an egress needs \"connect\", or transparent: true");
    if (l->listen.known && l->listen.at.sa.ss_family == AF_UNIX)
        return pq_node_why(pq_node_get(map, "listen"), why,
                           "listen: no rule redirects to a unix socket: a transparent egress listens on a port");
    return 0;
}

/* --- a connection ------------------------------------------------------------------------------------------------ */
static bool is_allowed(const struct pq_proxy_listener *how, const struct pq_address *target)
{
    const struct pq_network *networks = how->networks.at;
    for (size_t i = 0; i < how->networks.count; i++)
        if (pq_network_holds(&networks[i], target))
            return true;
    return how->networks.count == 0;
}

bool pq_transparent_target(const struct pq_proxy_listener *how, int fd, struct pq_address *out,
                           enum pq_proxy_end *refused)
{
    struct pq_address wanted;
    *refused = PQ_PROXY_NOT_REDIRECTED;
    if (pq_redirect_original(fd, &wanted) < 0)
        return false;
    *refused = PQ_PROXY_FORBIDDEN;
    if (!is_allowed(how, &wanted))
        return false;
    *out = wanted;
    return true;
}
