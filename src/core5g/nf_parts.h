/* nf_parts.h - the parts of a running network function: nf.c's own.
 *
 * Spec:   none.
 * Owns:   everything that it points to but the settings.
 * Errors: none.
 */
#ifndef PQ_CORE5G_NF_PARTS_H
#define PQ_CORE5G_NF_PARTS_H

#include <ev.h>

#include "core5g/ausf.h"
#include "core5g/directory.h"
#include "core5g/function.h"
#include "core5g/nf.h"
#include "core5g/udm.h"
#include "core5g/udr.h"

struct pq_registration;

struct pq_nf {
    const struct pq_nf_settings *how;
    struct ev_loop *loop;
    char instance[37];
    struct pq_sbi_tls tls;
    struct pq_http2_client *client;
    struct pq_directory directory;
    struct pq_function function;
    struct pq_sbi_router router;
    struct pq_http2_server *server;
    struct pq_registration *registration;
    ev_signal signals[2];
    bool ending;
};

#endif
