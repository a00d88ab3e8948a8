/* view_dates.h - what of a configuration ends at some time: our certificates, the authorities' and revocation lists.
 *
 *   "certificates": [{"listener", "direction", "identity", "file", "subject", "algorithm", "chain", "until",
 *                     "until_unix"}]      the first end in its chain
 *   "authorities": [{"file", "number", "name", "until", "until_unix"}]
 *   "revocation_lists": the same of their issuers and nextUpdate; without it a list has no until
 *
 * Spec:   RFC 5280, sections 4.1.2.5 and 5.1.2.5. A file that several listeners name stands there once.
 * Owns:   nothing.
 * Errors: as pq_view_write().
 */
#ifndef PQ_PROXY_VIEW_DATES_H
#define PQ_PROXY_VIEW_DATES_H

#include "base/json.h"
#include "proxy/view.h"

PQ_MUST_CHECK int pq_view_dates(struct pq_json *j, struct pq_crypto *crypto, const struct pq_view *v,
                                struct pq_why *why);

#endif
