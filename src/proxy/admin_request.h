/* admin_request.h - what a request to the admin listener asks for, and whether it may.
 *
 * A browser on this host must be no way in. A page of another site can make one send requests here (CSRF), and a name
 * that its owner points at 127.0.0.1 can make it show the answers to that page (DNS rebinding). So the Host must be
 * an address or localhost, and what changes something must not come from a page of another origin.
 *
 * Spec:   RFC 9110, sections 9 (methods) and 15.5.6 (405 with Allow); RFC 6454 (Origin); Fetch, "Sec-Fetch-Site".
 *         docs/guide.md lists the paths.
 * Owns:   nothing; texts of a verdict are constants.
 * Errors: none; a verdict is a status and a sentence.
 */
#ifndef PQ_PROXY_ADMIN_REQUEST_H
#define PQ_PROXY_ADMIN_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/bytes.h"
#include "base/log.h"

enum {
    PQ_ADMIN_BODY_MAX = 256,       /* bytes; only a log level has a body that is looked at */
    PQ_ADMIN_BODY_READ = 64 << 10, /* bytes of one that is too long: read so that the client gets to the answer */
};

enum pq_admin_action {
    PQ_ADMIN_METRICS,
    PQ_ADMIN_HEALTHZ,
    PQ_ADMIN_READY,
    PQ_ADMIN_CONNECTIONS,
    PQ_ADMIN_CONFIG,
    PQ_ADMIN_DRAIN,
    PQ_ADMIN_RELOAD,
    PQ_ADMIN_LOG_LEVEL,
    PQ_ADMIN_SET_LOG_LEVEL,
    PQ_ADMIN_INDEX
};

struct pq_admin_request {
    const char *method, *path;
    const char *host, *origin, *fetch_site, *length; /* fields of the header; NULL where there is none */
    bool unix_socket;                                /* it came over one: no browser gets there */
};
struct pq_admin_verdict {
    int status; /* 0: do it */
    enum pq_admin_action action;
    const char *allow; /* the methods of this path, with status 405 */
    const char *error; /* one sentence, where status is not 0 */
};
struct pq_admin_verdict pq_admin_judge(const struct pq_admin_request *r);

/* The level that a body names, as text (debug) or JSON ({"level": "debug"}), or -1. */
int pq_admin_level(struct pq_span body);

#endif
