/* function.h - what every embedded network function is to the process that runs it: routes and a way to end.
 *
 * Spec:   none.
 * Owns:   free() frees self.
 * Errors: none.
 */
#ifndef PQ_CORE5G_FUNCTION_H
#define PQ_CORE5G_FUNCTION_H

#include "core5g/sbi.h"

struct pq_function {
    const struct pq_sbi_route *routes;
    size_t route_count;
    void *self;
    void (*free)(void *self);
};

#endif
