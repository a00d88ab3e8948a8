/* nrf_store.h - the instances that an NRF knows, and what becomes of those that fall silent. Time is passed in.
 *
 * Spec:   TS 29.510, 5.2.2.2 to 5.2.2.4 (registration, update, heart-beat, deregistration), 6.1.6.2.2 (NFProfile).
 * Owns:   copies of profiles. A pointer to an instance is valid until the next call that takes a time.
 * Errors: PQ_E_NOT_FOUND; PQ_E_INVALID (profile: why says what is wrong, what->param where); PQ_E_LIMIT
 *         (PQ_NRF_MAX_INSTANCES); PQ_E_TOO_LONG (profile over PQ_NRF_MAX_PROFILE); PQ_E_NOMEM. The store is unchanged
 *         on error.
 *
 * An instance that was not heard for PQ_NRF_GRACE heart-beat intervals becomes SUSPENDED, which no discovery finds;
 * after
 * PQ_NRF_FORGET intervals it is forgotten. A heart-beat brings a suspended one back.
 */
#ifndef PQ_CORE5G_NRF_STORE_H
#define PQ_CORE5G_NRF_STORE_H

#include <yyjson.h>

#include "base/bytes.h"
#include "base/cleanup.h"

enum {
    PQ_NRF_MAX_INSTANCES = 20000,
    PQ_NRF_MAX_PROFILE = 64 * 1024,
    PQ_NRF_PROFILE_DEPTH = 24, /* levels: an answer wraps profiles in more, and who reads it refuses the whole */
    PQ_NRF_GRACE = 2,
    PQ_NRF_FORGET = 10,
};

enum pq_nrf_state { PQ_NRF_REGISTERED, PQ_NRF_SUSPENDED, PQ_NRF_UNDISCOVERABLE, PQ_NRF_GONE };
extern const char *const pq_nrf_state_names[]; /* as NFStatus: "REGISTERED", "SUSPENDED", "UNDISCOVERABLE"; "gone" */

struct pq_nrf_instance {
    char id[37];
    char type[16];
    enum pq_nrf_state state;
    yyjson_doc *profile;
    char *text; /* the profile as JSON text */
    size_t text_len;
    int64_t heard_ns;
    bool forever;     /* nobody sends its heart-beats: never silent */
    uint64_t version; /* counts changes: its ETag */
};

struct pq_nrf_store;
PQ_MUST_CHECK int pq_nrf_store_new(int64_t heartbeat_ns, struct pq_nrf_store **out);
void pq_nrf_store_free(struct pq_nrf_store *s);
PQ_DEFINE_FREEP(struct pq_nrf_store, pq_nrf_store_free)

/* What is wrong with a profile. */
struct pq_nrf_fault {
    const char *param, *reason;
    bool missing; /* a mandatory attribute is absent; else it is wrong */
};

/* Registers or replaces (then *created is false). profile is read, and kept as a copy with its heartBeatTimer set. */
PQ_MUST_CHECK int pq_nrf_store_put(struct pq_nrf_store *s, int64_t now, const char *id, yyjson_val *profile,
                                   bool forever, bool *created, struct pq_nrf_fault *fault);
/* Also a silent one that is not forgotten yet. */
PQ_MUST_CHECK int pq_nrf_store_get(struct pq_nrf_store *s, int64_t now, const char *id,
                                   const struct pq_nrf_instance **out);
/* JSON Patch (RFC 6902) of at most PQ_SBI_PATCH_OPERATIONS, without copy and move: a few copies of a copy would fill
 * all memory. Any that applies is a heart-beat. *changed: more than nfStatus and load came out different. */
PQ_MUST_CHECK int pq_nrf_store_patch(struct pq_nrf_store *s, int64_t now, const char *id, yyjson_val *patch,
                                     bool *changed, struct pq_nrf_fault *fault);
PQ_MUST_CHECK int pq_nrf_store_delete(struct pq_nrf_store *s, int64_t now, const char *id);
/* Moves silent instances on, then gives the i-th of those there are: NULL at the end. Order is that of registration. */
size_t pq_nrf_store_count(struct pq_nrf_store *s, int64_t now);
const struct pq_nrf_instance *pq_nrf_store_at(const struct pq_nrf_store *s, size_t i);

#endif
