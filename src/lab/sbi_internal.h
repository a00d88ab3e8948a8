/* sbi_internal.h - the parts of the SBI driver: keys, programs, what load and sidecars report.
 *
 * Spec:   see sbi.h.
 * Owns:   struct pq_sbi is the driver's state; a struct pq_sbi_load owns its arrays until pq_sbi_load_free().
 * Errors: as lab/driver.h says.
 */
#ifndef PQ_LAB_SBI_INTERNAL_H
#define PQ_LAB_SBI_INTERNAL_H

#include <stdbool.h>

#include "crypto/crypto.h"
#include "crypto/suite.h"
#include "lab/run.h"
#include "lab/topology.h"

enum pq_sbi_protection { PQ_SBI_PLAIN, PQ_SBI_NATIVE, PQ_SBI_SIDECAR };
enum { PQ_SBI_HOSTS = 4, PQ_SBI_PATH = 160 };
enum pq_sbi_workload { PQ_SBI_DISCOVERY, PQ_SBI_AUTHENTICATION };
enum pq_sbi_load_key {
    PQ_SBI_REQUESTS,
    PQ_SBI_NEW_CONNECTIONS,
    PQ_SBI_WARMUP,
    PQ_SBI_NEW_WARMUP,
    PQ_SBI_BODY_BYTES,
    PQ_SBI_WORKLOAD
};

struct pq_sbi_deployment {
    const char *name;
    enum pq_sbi_protection protection;
    enum pq_mode mode;
    int level;
    bool require_pq;
};

struct pq_sbi {
    const struct pq_lab *lab;
    struct pq_crypto *crypto;
    struct pq_topology *pair, *chain; /* NULL where no cell needs it */
};

/* One cell's settings, from its factors and the experiment's load. */
struct pq_sbi_cell {
    const struct pq_sbi_deployment *deployment;
    const char *authority; /* folder under <lab folder>/pki */
    bool fresh;            /* connection: new */
    bool nodelay, sidecar_nodelay, by_frame, chain;
    unsigned window; /* 0: the kernel's */
    int64_t requests, warmup, body_bytes;
    enum pq_sbi_workload workload;
    const char *const *hosts; /* the consumer first, NULL-terminated */
    size_t host_count;
    struct pq_topology *topology;
};

/* --- sbi_pki.c: "classical", or the name of the authority's algorithm; makes its folder unless it is there */
PQ_MUST_CHECK int pq_sbi_authority(struct pq_sbi *s, const char *name, struct pq_why *why);
void pq_sbi_pki_path(const struct pq_sbi *s, const struct pq_sbi_cell *c, const char *file, char out[PQ_SBI_PATH]);
/* Handshakes through memory with the cell's own keys and policy, while nothing else of the cell runs. */
PQ_MUST_CHECK int pq_sbi_memory_handshakes(struct pq_sbi *s, const struct pq_sbi_cell *c, struct pq_visit *v,
                                           struct pq_why *why);

/* --- sbi_programs.c */
struct pq_sbi_programs {
    struct pq_process *function[PQ_SBI_HOSTS], *sidecar[PQ_SBI_HOSTS]; /* by host; NULL where the host has none */
};
/* Functions and sidecars, all ready. */
PQ_MUST_CHECK int pq_sbi_start(struct pq_sbi *s, const struct pq_sbi_cell *c, struct pq_visit *v,
                               struct pq_sbi_programs *out, struct pq_why *why);
struct pq_sbi_sample {
    int64_t at_ns; /* on the monotonic clock */
    int64_t total_ns, tcp_ns, tls_ns, chain_ns;
};
struct pq_sbi_load {
    struct pq_sbi_sample *samples;
    size_t count;
    int64_t cpu_ns; /* of the measured part */
    uint64_t failed;
    char reason[128]; /* of its first failure */
};
void pq_sbi_load_free(struct pq_sbi_load *l);
/* Runs the consumer to its end. */
PQ_MUST_CHECK int pq_sbi_run_load(struct pq_sbi *s, const struct pq_sbi_cell *c, struct pq_visit *v, int64_t warmup,
                                  int64_t requests, struct pq_sbi_load *out, struct pq_why *why);

/* --- sbi_reports.c */
/* The load's JSON; ended_ns is when it was over; failures go into the record unless that is NULL. */
PQ_MUST_CHECK int pq_sbi_load_parse(const char *json, size_t len, int64_t ended_ns, struct pq_record *failures,
                                    struct pq_sbi_load *out, struct pq_why *why);
/* One closed connection of a sidecar's log. */
struct pq_sbi_connection {
    double opened_ms; /* on the wall clock, to a millisecond */
    double connect_ms, handshake_ms, chain_ms;
};
/* The egress connections that had a handshake, in the order in which they were opened. *out is the caller's to free. */
PQ_MUST_CHECK int pq_sbi_log_parse(const char *text, size_t len, struct pq_sbi_connection **out, size_t *count,
                                   struct pq_why *why);

/* --- sbi.c */
void pq_sbi_settle(struct pq_sbi *s, const struct pq_cell *cell, struct pq_sbi_cell *out);
/* What the measured load tells of its requests. */
PQ_MUST_CHECK int pq_sbi_put_requests(const struct pq_sbi_cell *c, struct pq_visit *v, const struct pq_sbi_load *l,
                                      struct pq_why *why);

#endif
