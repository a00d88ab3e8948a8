/* view.h - the configuration in force, as text that may be shown: what the admin listener's /config answers.
 *
 *   {"generation": 3, "file": "nrf.yaml", "config": {...}, "certificates": [{...}], "authorities": [{...}],
 *    "revocation_lists": [{...}], "files": [...]}
 *
 * Spec:   docs/guide.md, "/config". "config" has the form of the proxy's file, with all defaults filled in and each
 *         listener's tls whole: as JSON is YAML it can be used as one. Keys of keys are paths; a token's PIN is left
 *         out. proxy/view_dates.h says what
 *         the lists hold.
 * Owns:   nothing; the text is appended to the caller's buffer.
 * Errors: PQ_E_NOMEM, PQ_E_TOO_LONG (out->cap); what pq_tls_contents() and pq_tls_load_chain() give, for a certificate.
 */
#ifndef PQ_PROXY_VIEW_H
#define PQ_PROXY_VIEW_H

#include "base/files.h"
#include "proxy/config.h"

enum { PQ_VIEW_MAX = 16 << 20 }; /* bytes that a buffer for it should allow */

struct pq_view {
    const char *file; /* the configuration's */
    const struct pq_proxy_config *config;
    const struct pq_files *files; /* with the certificates that it names; NULL: they are read from where they are */
    uint64_t generation;
};
PQ_MUST_CHECK int pq_view_write(struct pq_crypto *crypto, const struct pq_view *v, struct pq_buf *out,
                                struct pq_why *why);

#endif
