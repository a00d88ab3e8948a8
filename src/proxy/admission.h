/* admission.h - who may start a handshake now: rates by source, one rate for all strangers, and who is known.
 *
 * A source is an IPv4 address, or the /64 of an IPv6 one, which is what one subscriber or host gets. A source that
 * authenticated stays known for an hour: it may start 20 times as many handshakes, and the strangers' rate is not for
 * it. So strangers can take from known peers neither their turn nor their place in the tables.
 *
 * Spec:   GCRA (ITU-T I.371, appendix I): a rate, and so many at once as 4 seconds bring. A source's place in a table
 *         comes from a hash with a secret key (SipHash-2-4): nobody can choose addresses that meet in one. Where more
 *         sources than the tables have room for are active at once, the least indebted one is forgotten.
 * Owns:   nothing. A table may lie in memory that several processes share: each entry is one word, changed by one
 *         compare-and-swap, so a process that dies at any point leaves no lock and nothing half done.
 * Errors: none. now is CLOCK_MONOTONIC in ns, the same for all processes.
 */
#ifndef PQ_PROXY_ADMISSION_H
#define PQ_PROXY_ADMISSION_H

#include <stdatomic.h>
#include <stdint.h>

#include "net/tcp.h"

enum {
    PQ_ADMISSION_WAYS = 8, /* places that a source may have: one line of the processor's cache */
    PQ_ADMISSION_SOURCES = 2048 * PQ_ADMISSION_WAYS,
    PQ_ADMISSION_KNOWN = 1024 * PQ_ADMISSION_WAYS,
    PQ_ADMISSION_KNOWN_FACTOR = 20,  /* times the per-source rate */
    PQ_ADMISSION_KNOWN_FOR_S = 3600, /* and up to a minute more */
    PQ_ADMISSION_AT_ONCE_S = 4,      /* seconds' worth of the rate */
};

struct pq_admission_table {
    uint64_t key[2];
    _Alignas(64) _Atomic uint64_t strangers;
    _Alignas(64) _Atomic uint64_t source[PQ_ADMISSION_SOURCES];
    _Alignas(64) _Atomic uint64_t known[PQ_ADMISSION_KNOWN];
};

/* A second, more than 0. */
struct pq_admission_rates {
    int64_t per_source, strangers;
};

enum pq_admission { PQ_ADMIT_KNOWN, PQ_ADMIT_STRANGER, PQ_REFUSE_SOURCE, PQ_REFUSE_STRANGERS };

/* Of memory that is zero; before the first fork. */
void pq_admission_init(struct pq_admission_table *t);
/* Asks for one handshake, and counts it where it may be. Whoever comes over a unix socket is known. */
enum pq_admission pq_admission_ask(struct pq_admission_table *t, const struct pq_admission_rates *rates,
                                   const struct pq_address *from, int64_t now);
void pq_admission_authenticated(struct pq_admission_table *t, const struct pq_address *from, int64_t now);

#endif
