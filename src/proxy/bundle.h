/* bundle.h - a configuration with the contents of all files that it names, of one moment, and in a form that goes from
 * the supervisor to its workers: they read no file and ask for no name.
 *
 * Spec:   packed, it is a set of base/files.h. Beside the files it holds entries whose names end in '/', which no
 * file's does: "config/" is the configuration's path, "addresses/" what host names stand for and "sockets/" the numbers
 *         of the listening sockets, a line a listener each.
 * Owns:   a bundle owns its configuration, contents and names. All contents are wiped when it is freed.
 * Errors: what pq_proxy_config_parse(), pq_proxy_config_resolve() and pq_files_add() give. After any of them a bundle
 * is of no use, but can be freed.
 */
#ifndef PQ_PROXY_BUNDLE_H
#define PQ_PROXY_BUNDLE_H

#include "base/files.h"
#include "proxy/config.h"

struct pq_bundle {
    struct pq_proxy_config config;
    struct pq_files *files;
    struct pq_strings named; /* the configuration first, then what it names */
    uint64_t *sockets;       /* unpacked: one a listener */
};

/* Reads the configuration: then named is known. */
PQ_MUST_CHECK int pq_bundle_open(const char *path, struct pq_bundle *out, struct pq_why *why);
/* Reads all that it names, and looks up host names (blocking). */
PQ_MUST_CHECK int pq_bundle_fill(struct pq_bundle *b, struct pq_why *why);
/* Zeroed, so that it may be freed again. */
void pq_bundle_free(struct pq_bundle *b);
/* What the files hold is the same as in a packed one. */
bool pq_bundle_equal(const struct pq_bundle *b, int packed);

/* Once, for a bundle that was read: a sealed memfd. sockets are numbers of the listening sockets, one a listener. */
PQ_MUST_CHECK int pq_bundle_pack(struct pq_bundle *b, const uint64_t *sockets, int *fd, struct pq_why *why);
PQ_MUST_CHECK int pq_bundle_unpack(int fd, struct pq_bundle *out, struct pq_why *why);

#endif
