/* redirect.h - nftables rules that lead the TCP connections of one user or one cgroup to a transparent egress, and
 * where a connection that came so wanted to go.
 *
 * Spec:   nft(8), libnftables-json(5); SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST of the kernel's conntrack. Each
 * redirect is a table of its own, inet pqplane-NAME, which is put in place or replaced in one transaction, and goes
 * with all that is in it. Its chain hooks into the output of this network namespace: what others route through this
 *         host is untouched, so is UDP, and so is a connection that was there before.
 * Owns:   a list of redirects is the caller's until pq_redirects_free().
 * Errors: PQ_E_INVALID (what is asked for contradicts itself), PQ_E_NOENT (no nft, no such cgroup), PQ_E_PERMISSION,
 *         PQ_E_NOT_FOUND (no such redirect), PQ_E_SYNTAX (nft's answer), PQ_E_IO (nft refused: why says with what
 * words).
 */
#ifndef PQ_NET_REDIRECT_H
#define PQ_NET_REDIRECT_H

#include <sys/types.h>

#include "base/bytes.h"
#include "net/network.h"

#define PQ_REDIRECT_PREFIX "pqplane-" /* of the table's name */

enum {
    PQ_REDIRECT_NAME = 32, /* with its NUL */
    PQ_REDIRECT_CGROUP = 256,
    PQ_REDIRECT_LIST_MAX = 64, /* networks, ports */
    PQ_REDIRECTS_MAX = 256,
    PQ_CGROUP_LEVELS_MAX = 32
};

struct pq_ports {
    uint16_t low, high;
};

struct pq_redirect {
    char name[PQ_REDIRECT_NAME];
    bool by_cgroup;
    char cgroup[PQ_REDIRECT_CGROUP]; /* of version 2, from its root: "system.slice/udm.service" */
    uid_t uid;
    uid_t except;  /* never redirected: the proxy's own */
    uint16_t port; /* where to, on the loopback address */
    bool loopback; /* also what goes to 127.0.0.0/8 and ::1 */
    struct pq_network networks[PQ_REDIRECT_LIST_MAX];
    size_t network_count; /* 0: everywhere */
    struct pq_ports ports[PQ_REDIRECT_LIST_MAX];
    size_t port_count; /* 0: all */
    /* Of one that is installed: */
    uint64_t connections; /* redirected so far */
    bool edited;          /* there are rules in its table that pqplane did not write */
};

/* "80" or "8000-8100"; "/a/b" and "/sys/fs/cgroup/a/b" as well as "a/b". */
PQ_MUST_CHECK int pq_ports_parse(const char *text, struct pq_ports *out, struct pq_why *why);
PQ_MUST_CHECK int pq_redirect_cgroup(const char *path, struct pq_redirect *r, struct pq_why *why);
PQ_MUST_CHECK int pq_redirect_check(const struct pq_redirect *r, struct pq_why *why);

/* What nft reads. */
PQ_MUST_CHECK int pq_redirect_script(const struct pq_redirect *r, struct pq_buf *out);
/* Replaces one of that name. */
PQ_MUST_CHECK int pq_redirect_install(const struct pq_redirect *r, struct pq_why *why);
PQ_MUST_CHECK int pq_redirect_remove(const char *name, struct pq_why *why);

struct pq_redirects {
    struct pq_redirect *at;
    size_t count;
};
PQ_MUST_CHECK int pq_redirects_list(struct pq_redirects *out, struct pq_why *why);
/* The same from what nft printed (-j list ruleset). */
PQ_MUST_CHECK int pq_redirects_parse(struct pq_span json, struct pq_redirects *out, struct pq_why *why);
void pq_redirects_free(struct pq_redirects *r);

/* Where the client of an accepted connection wanted to go; IPv4 in its plain form. PQ_E_NOT_FOUND: to this very socket,
 * so nothing redirected it. */
PQ_MUST_CHECK int pq_redirect_original(int fd, struct pq_address *out);

#endif
