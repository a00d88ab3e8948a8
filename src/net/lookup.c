#include "net/lookup.h"

static int ask(void *context, const char *text, struct pq_address *out, size_t room, size_t *count, struct pq_why *why)
{
    (void)context;
    return pq_address_resolve(text, out, room, count, why);
}

const struct pq_lookup pq_lookup_system = {ask, NULL};
