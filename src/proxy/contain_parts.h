/* contain_parts.h - the two parts of containment that have a rule set each.
 *
 * Spec:   contain.h.
 * Owns:   nothing.
 * Errors: contain.h.
 */
#ifndef PQ_PROXY_CONTAIN_PARTS_H
#define PQ_PROXY_CONTAIN_PARTS_H

#include "proxy/contain.h"

/* Landlock: *abi is the kernel's version of it, 0 where it has none. apply false: the rules are made and thrown away.
 */
PQ_MUST_CHECK int pq_contain_files(const struct pq_contain *how, bool apply, int *abi, struct pq_why *why);
/* seccomp; apply as above. */
PQ_MUST_CHECK int pq_contain_calls(const struct pq_contain *how, bool apply, struct pq_why *why);

#endif
