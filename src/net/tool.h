/* tool.h - runs one of the system's programs for networks to its end: a script on its standard input, what it prints
 * kept.
 *
 * Spec:   none. The script and both outputs are files in memory, so that neither side ever waits for the other.
 * Owns:   the caller's buffers are filled and the caller's to free.
 * Errors: PQ_E_NOENT (no such program), PQ_E_TOO_LONG (more was printed than a buffer's cap), PQ_E_LIMIT, PQ_E_NOMEM,
 *         PQ_E_IO. That the program failed is no error of this: see *status.
 */
#ifndef PQ_NET_TOOL_H
#define PQ_NET_TOOL_H

#include "base/bytes.h"

struct pq_tool {
    const char *const
        *argv; /* NULL-terminated; argv[0] is looked for in PATH, then in the folders for administration */
    const char *input;
    int netns; /* -1: the caller's */
};

/* *status is waitpid(2)'s. what it said: the two streams, of which errors may be NULL to go into output as well. */
PQ_MUST_CHECK int pq_tool_run(const struct pq_tool *t, int *status, struct pq_buf *output, struct pq_buf *errors,
                              struct pq_why *why);

#endif
