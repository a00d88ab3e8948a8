#include "lab/topology.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "net/namespace.h"

enum { LABEL_MAX = 8 };

struct pq_topology {
    struct pq_host hosts[PQ_HOST_MAX];
    size_t count;
    int middle; /* the switch's namespace, -1 for a cable */
    unsigned window;
};

void pq_topology_free(struct pq_topology *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->count; i++)
        pq_closep(&t->hosts[i].netns);
    pq_closep(&t->middle);
    free(t);
}

static int add_host(struct pq_topology *t, const char *label, const char *name, struct pq_why *why)
{
    struct pq_host *h = &t->hosts[t->count];
    char full[64];
    snprintf(full, sizeof full, "%.*s-%s", LABEL_MAX, label, name);
    *h = (struct pq_host){.name = name, .netns = -1};
    TRY(pq_netns_new(full, &h->netns, why));
    snprintf(h->address, sizeof h->address, "198.18.0.%zu", ++t->count);
    return 0;
}

static const char *const no_room = "the hosts' settings are too long for one batch of ip";

/* Peers are named by descriptor, which ip, our child, does not have: /proc/PID/fd of ours it can open. */
static int cable(const struct pq_topology *t, struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf b = {.cap = 4096};
    if (pq_buf_printf(&b,
                      "link add name " PQ_HOST_DEVICE " type veth peer name " PQ_HOST_DEVICE " netns /proc/%d/fd/%d\n",
                      (int)getpid(), t->hosts[1].netns) < 0)
        return pq_why(why, PQ_E_NOMEM, "%s", no_room);
    return pq_ip_batch(t->hosts[0].netns, (const char *)b.at, why);
}

static int switched(struct pq_topology *t, const char *label, struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf b = {.cap = 16384};
    char full[64];
    snprintf(full, sizeof full, "%.*s-switch", LABEL_MAX, label);
    TRY(pq_netns_new(full, &t->middle, why));
    int e = pq_buf_text(&b, "link add name switch type bridge\nlink set dev switch up\n");
    for (size_t i = 0; e == 0 && i < t->count; i++)
        e = pq_buf_printf(&b,
                          "link add name port%zu type veth peer name " PQ_HOST_DEVICE " netns /proc/%d/fd/%d\n"
                          "link set dev port%zu master switch up\n",
                          i, (int)getpid(), t->hosts[i].netns, i);
    return e < 0 ? pq_why(why, e, "%s", no_room) : pq_ip_batch(t->middle, (const char *)b.at, why);
}

/* A host's hardware address follows from its number, 02 meaning "locally administered". */
static int add_address(struct pq_buf *b, size_t i) { return pq_buf_printf(b, "02:00:c6:12:00:%02zx", i + 1); }

static int furnish(const struct pq_topology *t, size_t i, struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf b = {.cap = 16384};
    const struct pq_host *h = &t->hosts[i];
    int e = pq_buf_text(&b, "link set dev " PQ_HOST_DEVICE " address ");
    e = e < 0 ? e : add_address(&b, i);
    e = e < 0 ? e : pq_buf_printf(&b, " up\naddress add %s/24 dev " PQ_HOST_DEVICE "\n", h->address);
    for (size_t other = 0; e == 0 && other < t->count; other++) {
        if (other == i)
            continue;
        e = pq_buf_printf(&b, "neighbour replace %s dev " PQ_HOST_DEVICE " nud permanent lladdr ",
                          t->hosts[other].address);
        e = e < 0 ? e : add_address(&b, other);
        e = e < 0 ? e : pq_buf_text(&b, "\n");
    }
    if (e < 0)
        return pq_why(why, e, "%s", no_room);
    TRY(pq_ip_batch(h->netns, (const char *)b.at, why));
    return pq_link_no_offload(h->netns, PQ_HOST_DEVICE, why);
}

int pq_topology_new(const char *label, const char *const *names, size_t count, struct pq_topology **out,
                    struct pq_why *why)
{
    DEFER(pq_topology_freep) struct pq_topology *t = calloc(1, sizeof *t);
    if (!t)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    t->middle = -1;
    if (count < 2 || count > PQ_HOST_MAX)
        return pq_why(why, PQ_E_INVALID, "a topology has 2 to %d hosts", PQ_HOST_MAX);
    for (size_t i = 0; i < count; i++)
        TRY(add_host(t, label, names[i], why));
    TRY(count == 2 ? cable(t, why) : switched(t, label, why));
    for (size_t i = 0; i < count; i++)
        TRY(furnish(t, i, why));
    *out = TAKE(t);
    return 0;
}

const struct pq_host *pq_topology_host(const struct pq_topology *t, const char *name)
{
    for (size_t i = 0; i < t->count; i++)
        if (strcmp(t->hosts[i].name, name) == 0)
            return &t->hosts[i];
    return NULL;
}

int pq_topology_window(struct pq_topology *t, unsigned segments, struct pq_why *why)
{
    if (t->window == segments)
        return 0;
    for (size_t i = 0; i < t->count; i++) {
        char line[200], window[24] = "";
        if (segments)
            snprintf(window, sizeof window, " initcwnd %u", segments);
        snprintf(line, sizeof line,
                 "route replace 198.18.0.0/24 dev " PQ_HOST_DEVICE " proto kernel scope link src %s%s\n",
                 t->hosts[i].address, window);
        TRY(pq_ip_batch(t->hosts[i].netns, line, why));
    }
    t->window = segments;
    return 0;
}
