/* contain.h - what a worker gives up before it meets a peer: its user, its privileges, files, most system calls.
 *
 * Spec:   seccomp(2), landlock(7), capabilities(7), prctl(2). A contained process accepts, connects, reads and writes
 *         on TCP and unix sockets, maps memory, makes threads, and tells the time; it can't execute or trace, bind or
 *         listen, open a raw, packet or netlink socket, or open a file that `reads` and `writes` don't name. What is
 *         refused fails with EPERM or EACCES and costs no traffic.
 *         Both are for one-threaded processes: threads made later inherit everything, and none of it can be undone.
 * Owns:   nothing; the lists stay the caller's.
 * Errors: PQ_E_CONFIG (no such user), PQ_E_PERMISSION, PQ_E_UNSUPPORTED (a kernel without seccomp), PQ_E_LIMIT,
 *         PQ_E_NOMEM. A process that got an error must end: it may be contained in part. A kernel without Landlock is
 *         no error but a line in the log, which names what is missing.
 */
#ifndef PQ_PROXY_CONTAIN_H
#define PQ_PROXY_CONTAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/config.h"
#include "base/error.h"

enum pq_contain_profile {
    PQ_CONTAIN_RELAY, /* a worker: accepts and connects */
    PQ_CONTAIN_ADMIN, /* the admin process: accepts only */
};

enum { PQ_CONTAIN_GROUPS_MAX = 64, PQ_CONTAIN_PATHS_MAX = 64 };

struct pq_contain {
    enum pq_contain_profile profile;
    bool off; /* contain: false; the user still changes, capabilities still go */
    /* Of pq_contain_user(). */
    bool change_user;
    uid_t uid;
    gid_t gid;
    size_t group_count;
    gid_t groups[PQ_CONTAIN_GROUPS_MAX];
    /* Files and folders that are read, or written as well, after this: a PKCS#11 module's. What is not there when
     * pq_contain_worker() is called stays out of reach. */
    const char *reads[PQ_CONTAIN_PATHS_MAX], *writes[PQ_CONTAIN_PATHS_MAX];
    size_t read_count, write_count;
    /* Called as the new user, before files are out of reach; it starts no thread. NULL: nothing. */
    int (*before)(void *context, struct pq_why *why);
    void *context;
};

/* Looks up whom workers become; NULL is nobody. To be called before the fork, since a name service may hold locks.
 * Without root, or where that user does not exist in our user namespace (then root there is nobody outside), nothing
 * changes. */
PQ_MUST_CHECK int pq_contain_user(const char *name, struct pq_contain *out, struct pq_why *why);

/* For the supervisor too, which holds keys: no core dumps, not traced by others of its user. */
PQ_MUST_CHECK int pq_contain_memory(struct pq_why *why);

/* The whole of it. */
PQ_MUST_CHECK int pq_contain_worker(const struct pq_contain *how, struct pq_why *why);

#endif
