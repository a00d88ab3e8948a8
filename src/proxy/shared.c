#include "proxy/shared.h"

#include <string.h>
#include <sys/mman.h>

int pq_shared_new(struct pq_shared **out)
{
    void *at = mmap(NULL, sizeof **out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return PQ_E_NOMEM;
    *out = at;
    pq_admission_init(&(*out)->admission);
    return 0;
}

void pq_shared_free(struct pq_shared *s)
{
    if (s)
        munmap(s, sizeof *s);
}

void pq_shared_use(struct pq_shared *s, size_t slot)
{
    if (s->used <= slot)
        s->used = (uint32_t)slot + 1;
}

int64_t pq_shared_open(const struct pq_shared *s)
{
    int64_t open = 0;
    for (size_t i = 0; i < s->used; i++)
        open += atomic_load_explicit(&s->worker[i].open, memory_order_relaxed);
    return open;
}

uint64_t pq_shared_log_dropped(const struct pq_shared *s)
{
    uint64_t dropped = s->log_dropped;
    for (size_t i = 0; i < s->used; i++)
        dropped += s->worker[i].log_dropped;
    return dropped;
}

void pq_shared_sum(const struct pq_shared *s, struct pq_proxy_counters *out)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < s->used; i++)
        pq_proxy_counters_add(out, &s->worker[i].counters);
}

void pq_shared_clear(struct pq_worker_slot *slot)
{
    pq_proxy_counters_close(&slot->counters);
    slot->open = 0;
    slot->ready = 0;
    slot->pid = 0;
}
