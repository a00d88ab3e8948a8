/* register.h - keeps this function registered with the NRF: PUT, heart-beats, DELETE at the end.
 *
 * Spec:   TS 29.510, 5.2.2.2 (NFRegister), 5.2.2.3.2 (heart-beat), 5.2.2.4 (NFDeregister).
 * Owns:   itself until pq_registration_free(); the directory is the caller's.
 * Errors: PQ_E_NOMEM; a failure to register is logged and tried again, for the NRF may come later.
 */
#ifndef PQ_CORE5G_REGISTER_H
#define PQ_CORE5G_REGISTER_H

#include <ev.h>

#include "core5g/directory.h"
#include "net/tcp.h"

struct pq_registration_settings {
    struct ev_loop *loop;
    struct pq_directory *directory;
    const char *instance, *fqdn;
    enum pq_nf_kind kind;
    struct pq_address address;
    bool tls;
};

struct pq_registration;
PQ_MUST_CHECK int pq_registration_new(const struct pq_registration_settings *how, struct pq_registration **out,
                                      struct pq_why *why);
void pq_registration_free(struct pq_registration *r);
PQ_DEFINE_FREEP(struct pq_registration, pq_registration_free)
void pq_registration_begin(struct pq_registration *r);
/* Deregisters; done() is called in any case, from the loop. */
void pq_registration_end(struct pq_registration *r, void (*done)(void *context), void *context);

/* Copies a valid UUID in lower case, or makes a random one where text is NULL. */
PQ_MUST_CHECK int pq_uuid_choose(const char *text, char out[37], struct pq_why *why);

#endif
