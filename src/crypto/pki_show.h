/* pki_show.h - what certificates, keys and revocation lists are, as text for a person; never a secret.
 *
 * Spec:   PEM (RFC 7468) with any number of objects, or one object in DER.
 * Owns:   the text is appended to the caller's buffer.
 * Errors: PQ_E_SYNTAX (an object that can't be read: what came before it is in out), PQ_E_TYPE (no object at all),
 *         PQ_E_TOO_LONG (more objects or text than the caps), PQ_E_NOMEM, and the file's.
 */
#ifndef PQ_CRYPTO_PKI_SHOW_H
#define PQ_CRYPTO_PKI_SHOW_H

#include <time.h>

#include "base/bytes.h"
#include "crypto/crypto.h"

enum { PQ_PKI_SHOW_FILE_CAP = 16 << 20, PQ_PKI_SHOW_OBJECTS_MAX = 1000, PQ_PKI_SHOW_ENTRIES_MAX = 20 };

/* name stands for the input in the text; now tells what has expired. */
PQ_MUST_CHECK int pq_pki_show(struct pq_crypto *c, const char *name, struct pq_span in, time_t now, struct pq_buf *out,
                              struct pq_why *why);
PQ_MUST_CHECK int pq_pki_show_file(struct pq_crypto *c, const char *path, time_t now, struct pq_buf *out,
                                   struct pq_why *why);

#endif
