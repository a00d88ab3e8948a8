#include <openssl/crypto.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tls/internal.h"

/* A reader gives up after so many tries: a writer that was killed while it wrote leaves the sequence odd for good. */
enum { TRIES = 1000, WORDS = PQ_TLS_TICKET_KEYS_SIZE / 8 };

static const int64_t period = 3600 * PQ_NS_PER_S;

enum { CURRENT, PREVIOUS };
struct pair {
    struct pq_tls_ticket_key key[2];
};
_Static_assert(sizeof(struct pair) == PQ_TLS_TICKET_KEYS_SIZE, "two keys without padding");

/* --- the sequence lock ---------------------------------------------------------------------------------------------
 */

static void put(struct pq_tls_ticket_keys *k, const struct pair *in)
{
    uint64_t words[WORDS];
    memcpy(words, in, sizeof words);
    uint32_t odd = atomic_load_explicit(&k->sequence, memory_order_relaxed) | 1;
    atomic_store_explicit(&k->sequence, odd, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    for (size_t i = 0; i < WORDS; i++)
        atomic_store_explicit(&k->words[i], words[i], memory_order_relaxed);
    atomic_store_explicit(&k->sequence, odd + 1, memory_order_release);
    OPENSSL_cleanse(words, sizeof words);
}

static bool get(const struct pq_tls_ticket_keys *k, struct pair *out)
{
    uint64_t words[WORDS];
    bool whole = false;
    for (int i = 0; i < TRIES && !whole; i++) {
        uint32_t before = atomic_load_explicit(&k->sequence, memory_order_acquire);
        for (size_t w = 0; w < WORDS; w++)
            words[w] = atomic_load_explicit(&k->words[w], memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        whole = before % 2 == 0 && atomic_load_explicit(&k->sequence, memory_order_relaxed) == before;
        if (!whole)
            sched_yield();
    }
    if (whole)
        memcpy(out, words, sizeof *out);
    OPENSSL_cleanse(words, sizeof words);
    return whole;
}

/* --- interface -----------------------------------------------------------------------------------------------------
 */

int pq_tls_ticket_keys_rotate(struct pq_tls_ticket_keys *k, int64_t now)
{
    struct pair p = {0};
    (void)get(k, &p); /* what can't be read is replaced */
    int64_t age = now - p.key[CURRENT].since;
    if (p.key[CURRENT].since && age >= 0 && age < period)
        return 0;
    struct pq_tls_ticket_key fresh = {.since = now};
    int e = getentropy(fresh.id, sizeof fresh.id) < 0 || getentropy(fresh.cipher, sizeof fresh.cipher) < 0 ||
                    getentropy(fresh.mac, sizeof fresh.mac) < 0
                ? PQ_E_CRYPTO
                : 0;
    if (e == 0) {
        p.key[PREVIOUS] = p.key[CURRENT];
        if (age < 0 || age >= 2 * period)
            p.key[PREVIOUS] = (struct pq_tls_ticket_key){0};
        p.key[CURRENT] = fresh;
        put(k, &p);
    }
    OPENSSL_cleanse(&fresh, sizeof fresh);
    OPENSSL_cleanse(&p, sizeof p);
    return e;
}

void pq_tls_ticket_keys_save(const struct pq_tls_ticket_keys *k, uint8_t out[PQ_TLS_TICKET_KEYS_SIZE])
{
    struct pair p = {0};
    (void)get(k, &p);
    memcpy(out, &p, sizeof p);
    OPENSSL_cleanse(&p, sizeof p);
}

void pq_tls_ticket_keys_load(struct pq_tls_ticket_keys *k, const uint8_t in[PQ_TLS_TICKET_KEYS_SIZE])
{
    struct pair p;
    memcpy(&p, in, sizeof p);
    put(k, &p);
    OPENSSL_cleanse(&p, sizeof p);
}

void pq_tls_ticket_keys_wipe(struct pq_tls_ticket_keys *k) { put(k, &(struct pair){0}); }

bool pq_tls_ticket_key_find(const struct pq_tls_ticket_keys *k, const uint8_t id[16], int64_t now,
                            struct pq_tls_ticket_key *out)
{
    struct pair p;
    bool found = false;
    if (!get(k, &p))
        return false;
    for (size_t i = 0; i < (id ? PQ_COUNT(p.key) : 1) && !found; i++) {
        int64_t age = now - p.key[i].since;
        found = p.key[i].since && age >= 0 && age < PQ_TLS_TICKET_HOURS * period &&
                (!id || CRYPTO_memcmp(id, p.key[i].id, sizeof p.key[i].id) == 0);
        if (found)
            *out = p.key[i];
    }
    OPENSSL_cleanse(&p, sizeof p);
    return found;
}
