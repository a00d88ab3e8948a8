#include "proxy/admission.h"

#include <sys/random.h>

#include "base/clock.h"

/* --- where a source's entry is ------------------------------------------------------------------------------------ */
static uint64_t rotate(uint64_t v, int by) { return v << by | v >> (64 - by); }

static void sip_round(uint64_t v[4])
{
    v[0] += v[1], v[1] = rotate(v[1], 13) ^ v[0], v[0] = rotate(v[0], 32);
    v[2] += v[3], v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3], v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1], v[1] = rotate(v[1], 17) ^ v[2], v[2] = rotate(v[2], 32);
}

static void sip_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

/* SipHash-2-4 of the 8 bytes of a number, lowest first. */
static uint64_t sip_hash(const uint64_t key[2], uint64_t number)
{
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d, key[0] ^ 0x6c7967656e657261,
                     key[1] ^ 0x7465646279746573};
    sip_word(v, number);
    sip_word(v, (uint64_t)sizeof number << 56);
    v[2] ^= 0xff;
    for (int i = 0; i < 4; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static uint64_t big_endian(const uint8_t *at, int bytes)
{
    uint64_t n = 0;
    for (int i = 0; i < bytes; i++)
        n = n << 8 | at[i];
    return n;
}

/* The network part of an address. That of IPv4 is what 6to4 (RFC 3056) gives to its owner. */
static bool source_of(const struct pq_address *a, uint64_t *out)
{
    const struct sockaddr_in *four = (const void *)&a->sa;
    const struct sockaddr_in6 *six = (const void *)&a->sa;
    const uint8_t *at6 = six->sin6_addr.s6_addr, *at4 = (const uint8_t *)&four->sin_addr;
    if (a->sa.ss_family != AF_INET && a->sa.ss_family != AF_INET6)
        return false;
    if (a->sa.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
        at4 = at6 + 12;
    else if (a->sa.ss_family == AF_INET6)
        at4 = NULL;
    *out = at4 ? UINT64_C(0x2002) << 48 | big_endian(at4, 4) << 16 : big_endian(at6, 8);
    return true;
}

/* --- rates ----------------------------------------------------------------------------------------------------------
 * An entry is a tag of 24 bits and, in 40, the time at which its source owes nothing any more, in units of 64 ns. The
 * time wraps every 19 hours; a debt is never more than 4 seconds, so what seems to be more is long over. */
enum { TIME_BITS = 40, UNIT_BITS = 6 };
#define TIME_MASK ((UINT64_C(1) << TIME_BITS) - 1)
#define SECOND    ((uint64_t)PQ_NS_PER_S >> UNIT_BITS)
#define AT_ONCE   (PQ_ADMISSION_AT_ONCE_S * SECOND)

static uint64_t debt(uint64_t entry, uint64_t tag, uint64_t now)
{
    uint64_t left = (entry - now) & TIME_MASK;
    return entry >> TIME_BITS == tag && left <= AT_ONCE ? left : 0;
}

static bool charge(_Atomic uint64_t *entry, uint64_t tag, int64_t rate, uint64_t now)
{
    uint64_t old = atomic_load(entry), interval = SECOND / (uint64_t)rate, owed;
    do {
        owed = debt(old, tag, now) + interval;
        if (owed > AT_ONCE)
            return false;
    } while (!atomic_compare_exchange_weak(entry, &old, tag << TIME_BITS | ((now + owed) & TIME_MASK)));
    return true;
}

static _Atomic uint64_t *find_source(struct pq_admission_table *t, uint64_t hash, uint64_t tag, uint64_t now)
{
    _Atomic uint64_t *way = &t->source[hash % (PQ_ADMISSION_SOURCES / PQ_ADMISSION_WAYS) * PQ_ADMISSION_WAYS];
    _Atomic uint64_t *least = way;
    uint64_t least_debt = UINT64_MAX;
    for (int i = 0; i < PQ_ADMISSION_WAYS; i++) {
        uint64_t entry = atomic_load_explicit(&way[i], memory_order_relaxed);
        if (entry >> TIME_BITS == tag)
            return &way[i];
        uint64_t owed = debt(entry, entry >> TIME_BITS, now);
        if (owed < least_debt) {
            least_debt = owed;
            least = &way[i];
        }
    }
    return least;
}

/* --- who is known ---------------------------------------------------------------------------------------------------
 * An entry is a tag of 40 bits and, in 24, the minute until which it holds. */
enum { MINUTE_BITS = 24 };
#define MINUTE_MASK ((UINT64_C(1) << MINUTE_BITS) - 1)

static uint64_t minute(int64_t ns) { return (uint64_t)(ns / (60 * PQ_NS_PER_S)); }

static _Atomic uint64_t *find_known(struct pq_admission_table *t, uint64_t hash)
{
    _Atomic uint64_t *way = &t->known[hash % (PQ_ADMISSION_KNOWN / PQ_ADMISSION_WAYS) * PQ_ADMISSION_WAYS];
    _Atomic uint64_t *oldest = way;
    for (int i = 0; i < PQ_ADMISSION_WAYS; i++) {
        uint64_t entry = atomic_load_explicit(&way[i], memory_order_relaxed);
        if (entry >> MINUTE_BITS == hash >> MINUTE_BITS)
            return &way[i];
        if ((entry & MINUTE_MASK) < (atomic_load_explicit(oldest, memory_order_relaxed) & MINUTE_MASK))
            oldest = &way[i];
    }
    return oldest;
}

static bool is_known(struct pq_admission_table *t, uint64_t hash, int64_t now)
{
    uint64_t entry = atomic_load(find_known(t, hash));
    return entry >> MINUTE_BITS == hash >> MINUTE_BITS && (entry & MINUTE_MASK) > minute(now);
}

/* --- interface -----------------------------------------------------------------------------------------------------
 */
void pq_admission_init(struct pq_admission_table *t)
{
    /* Up to 256 bytes it neither fails nor is interrupted, once the system has started (getrandom(2)). */
    (void)!getrandom(t->key, sizeof t->key, 0);
}

enum pq_admission pq_admission_ask(struct pq_admission_table *t, const struct pq_admission_rates *rates,
                                   const struct pq_address *from, int64_t now)
{
    uint64_t source, units = (uint64_t)now >> UNIT_BITS;
    if (!source_of(from, &source))
        return PQ_ADMIT_KNOWN;
    uint64_t hash = sip_hash(t->key, source), tag = hash >> TIME_BITS;
    bool known = is_known(t, hash, now);
    int64_t rate = known ? rates->per_source * PQ_ADMISSION_KNOWN_FACTOR : rates->per_source;
    if (!charge(find_source(t, hash, tag, units), tag, rate, units))
        return PQ_REFUSE_SOURCE;
    if (known)
        return PQ_ADMIT_KNOWN;
    return charge(&t->strangers, 0, rates->strangers, units) ? PQ_ADMIT_STRANGER : PQ_REFUSE_STRANGERS;
}

void pq_admission_authenticated(struct pq_admission_table *t, const struct pq_address *from, int64_t now)
{
    uint64_t source;
    if (!source_of(from, &source))
        return;
    uint64_t hash = sip_hash(t->key, source), until = minute(now) + PQ_ADMISSION_KNOWN_FOR_S / 60 + 1;
    uint64_t entry = (hash & ~MINUTE_MASK) | (until & MINUTE_MASK);
    _Atomic uint64_t *place = find_known(t, hash);
    /* Once a minute is enough; the line of the cache then stays with all processors. */
    if (atomic_load(place) != entry)
        atomic_store(place, entry);
}
