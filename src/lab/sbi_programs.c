#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/file.h"
#include "lab/sbi_internal.h"

/* Ports inside a host: the function behind its sidecar, the service as others reach it, the sidecar's way out. */
#define PORT_BEHIND  "8000"
#define PORT_SERVICE "7777"
#define PORT_OUT     "9001"
enum { ARGS_MAX = 60, ARG_TEXT = 2048, INSTANCES_MAX = 10000 };
static const int64_t ready_timeout_ns = 20 * PQ_NS_PER_S, load_timeout_ns = 120 * PQ_NS_PER_S;

/* A command line in one place: texts that must live as long as it. */
struct command {
    const char *argv[ARGS_MAX + 1];
    size_t count;
    char text[ARG_TEXT];
    size_t used;
    bool full;
};

static void add(struct command *c, const char *argument)
{
    c->full |= c->count == ARGS_MAX;
    if (!c->full)
        c->argv[c->count++] = argument;
}

static void PQ_PRINTF(2, 3) addf(struct command *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t room = sizeof c->text - c->used;
    int n = vsnprintf(c->text + c->used, room, format, args);
    va_end(args);
    c->full |= n < 0 || (size_t)n >= room;
    if (c->full)
        return;
    add(c, c->text + c->used);
    c->used += (size_t)n + 1;
}

static void add_identity(struct command *c, const struct pq_sbi *s, const struct pq_sbi_cell *cell, const char *host)
{
    const char *const files[][2] = {{"--certificate", ".crt"}, {"--key", ".key"}};
    char path[PQ_SBI_PATH], file[32];
    for (size_t i = 0; i < PQ_COUNT(files); i++) {
        snprintf(file, sizeof file, "%s%s", host, files[i][1]);
        pq_sbi_pki_path(s, cell, file, path);
        add(c, files[i][0]);
        addf(c, "%s", path);
    }
    pq_sbi_pki_path(s, cell, "root.crt", path);
    add(c, "--ca");
    addf(c, "%s", path);
    add(c, "--mode");
    add(c, pq_mode_names[cell->deployment->mode]);
    add(c, "--level");
    addf(c, "%d", cell->deployment->level);
}

static void add_common(struct command *c, const struct pq_sbi_cell *cell)
{
    add(c, "--connection");
    add(c, cell->fresh ? "new" : "kept");
    add(c, "--tcp-nodelay");
    add(c, cell->nodelay ? "on" : "off");
}

/* Where host i finds the service of the next one: across the wire itself, or at its own sidecar. */
static void next_uri(const struct pq_sbi_cell *c, size_t i, char *out, size_t size)
{
    const struct pq_host *next = pq_topology_host(c->topology, c->hosts[i + 1]);
    if (c->deployment->protection == PQ_SBI_SIDECAR)
        snprintf(out, size, "http://127.0.0.1:" PORT_OUT);
    else
        snprintf(out, size, "%s://%s:" PORT_SERVICE, c->deployment->protection == PQ_SBI_NATIVE ? "https" : "http",
                 next->address);
}

static int start(const struct pq_visit *v, const struct pq_sbi_cell *cell, struct command *c, size_t host,
                 const char *name, bool ready, struct pq_process **out, struct pq_why *why)
{
    char log[PQ_PROCESS_PATH];
    if (c->full)
        return pq_why(why, PQ_E_LIMIT, "the %s's command line is too long", name);
    c->argv[c->count] = NULL;
    snprintf(log, sizeof log, "%s/%s.log", v->folder, name);
    struct pq_process_start how = {.name = name,
                                   .log = log,
                                   .program = v->lab->program,
                                   .argv = c->argv,
                                   .netns = pq_topology_host(cell->topology, cell->hosts[host])->netns,
                                   .ready = ready};
    return pq_process_start(v->processes, &how, out, why);
}

/* Enough for an answer of that size, at several hundred bytes a profile. */
static int64_t instances_for(int64_t body_bytes)
{
    int64_t n = 4 + body_bytes / 400;
    return n < INSTANCES_MAX ? n : INSTANCES_MAX;
}

static int start_function(struct pq_sbi *s, const struct pq_sbi_cell *cell, struct pq_visit *v, size_t i,
                          struct pq_process **out, struct pq_why *why)
{
    const char *kind = cell->hosts[i];
    struct command c = {.count = 0};
    add(&c, "pqplane");
    add(&c, "nf");
    add(&c, kind);
    add(&c, "--listen");
    if (cell->deployment->protection == PQ_SBI_SIDECAR)
        add(&c, "127.0.0.1:" PORT_BEHIND);
    else
        addf(&c, "%s:" PORT_SERVICE, pq_topology_host(cell->topology, kind)->address);
    if (cell->by_frame) {
        add(&c, "--write");
        add(&c, "frame");
    }
    if (i + 1 < cell->host_count) {
        char uri[64];
        next_uri(cell, i, uri, sizeof uri);
        addf(&c, "--%s", cell->hosts[i + 1]);
        addf(&c, "%s", uri);
    }
    if (strcmp(kind, "nrf") == 0) {
        add(&c, "--instances");
        addf(&c, "%lld", (long long)instances_for(cell->body_bytes));
    }
    add_common(&c, cell);
    if (cell->deployment->protection == PQ_SBI_NATIVE)
        add_identity(&c, s, cell, kind);
    return start(v, cell, &c, i, kind, true, out, why);
}

static int add_routes(const struct pq_sbi_cell *c, size_t i, struct pq_buf *b)
{
    if (i > 0)
        TRY(pq_buf_printf(
            b, "ingress:\n  - {name: %s, listen: \"%s:" PORT_SERVICE "\", forward: \"127.0.0.1:" PORT_BEHIND "\"}\n",
            c->hosts[i], pq_topology_host(c->topology, c->hosts[i])->address));
    if (i + 1 < c->host_count)
        TRY(pq_buf_printf(b,
                          "egress:\n  - {name: %s, listen: \"127.0.0.1:" PORT_OUT "\", connect: \"%s:" PORT_SERVICE
                          "\", carry: connection, peers: [%s.5gc.example]}\n",
                          c->hosts[i + 1], pq_topology_host(c->topology, c->hosts[i + 1])->address, c->hosts[i + 1]));
    return 0;
}

/* The study's sidecars: a whole handshake for each connection. */
static int write_sidecar(struct pq_sbi *s, const struct pq_sbi_cell *c, const char *path, size_t i, struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf b = {.cap = 8192};
    char certificate[PQ_SBI_PATH], key[PQ_SBI_PATH], ca[PQ_SBI_PATH], file[32];
    snprintf(file, sizeof file, "%s.crt", c->hosts[i]);
    pq_sbi_pki_path(s, c, file, certificate);
    snprintf(file, sizeof file, "%s.key", c->hosts[i]);
    pq_sbi_pki_path(s, c, file, key);
    pq_sbi_pki_path(s, c, "root.crt", ca);
    int e = pq_buf_printf(&b,
                          "log: {level: info, format: json}\n"
                          "tcp_nodelay: %s\n"
                          "whole_flights: %s\n"
                          "timeouts: {drain: 1s}\n"
                          "tls:\n"
                          "  certificate: %s\n"
                          "  key: %s\n"
                          "  ca: %s\n"
                          "  resumption: false\n"
                          "  policy: {mode: %s, level: %d%s}\n",
                          c->sidecar_nodelay ? "true" : "false", c->sidecar_nodelay ? "true" : "false", certificate,
                          key, ca, pq_mode_names[c->deployment->mode], c->deployment->level,
                          c->deployment->require_pq ? ", require: [pq-kex, pq-auth]" : "");
    e = e < 0 ? e : add_routes(c, i, &b);
    if (e < 0)
        return pq_why(why, e, "can't write a sidecar's configuration: %s", pq_error_text(e));
    return pq_file_write(path, pq_span(b.at, b.len), 0600, PQ_FILE_NEW, why);
}

static int start_sidecar(struct pq_sbi *s, const struct pq_sbi_cell *cell, struct pq_visit *v, size_t i,
                         struct pq_process **out, struct pq_why *why)
{
    char name[PQ_PROCESS_NAME], path[PQ_SBI_PATH];
    struct command c = {.count = 0};
    snprintf(name, sizeof name, "%s-sidecar", cell->hosts[i]);
    snprintf(path, sizeof path, "%s/%s.yaml", v->folder, name);
    TRY(write_sidecar(s, cell, path, i, why));
    add(&c, "pqplane");
    add(&c, "proxy");
    add(&c, "--config");
    add(&c, path);
    return start(v, cell, &c, i, name, true, out, why);
}

int pq_sbi_start(struct pq_sbi *s, const struct pq_sbi_cell *cell, struct pq_visit *v, struct pq_sbi_programs *out,
                 struct pq_why *why)
{
    struct pq_sbi_programs p = {{0}, {0}};
    for (size_t i = 0; i < cell->host_count; i++) {
        if (i > 0)
            TRY(start_function(s, cell, v, i, &p.function[i], why));
        if (cell->deployment->protection == PQ_SBI_SIDECAR)
            TRY(start_sidecar(s, cell, v, i, &p.sidecar[i], why));
    }
    for (size_t i = 0; i < v->processes->count; i++)
        TRY(pq_process_await_ready(v->processes, &v->processes->at[i], ready_timeout_ns, why));
    *out = p;
    return 0;
}

static const char *const workload_names[] = {
    [PQ_SBI_DISCOVERY] = "discovery", [PQ_SBI_AUTHENTICATION] = "authentication"};

int pq_sbi_run_load(struct pq_sbi *s, const struct pq_sbi_cell *cell, struct pq_visit *v, int64_t warmup,
                    int64_t requests, struct pq_sbi_load *out, struct pq_why *why)
{
    char uri[64], report[PQ_SBI_PATH];
    struct command c = {.count = 0};
    struct pq_process *p = NULL;
    DEFER(pq_buf_free) struct pq_buf b = {.cap = 256 << 20};
    next_uri(cell, 0, uri, sizeof uri);
    snprintf(report, sizeof report, "%s/load-%zu.json", v->folder, v->processes->count);
    add(&c, "pqplane");
    add(&c, "load");
    add(&c, "--target");
    add(&c, uri);
    add(&c, "--workload");
    add(&c, workload_names[cell->workload]);
    add(&c, "--requests");
    addf(&c, "%lld", (long long)requests);
    add(&c, "--warmup");
    addf(&c, "%lld", (long long)warmup);
    if (cell->body_bytes > 0) { /* else it asks for all there is */
        add(&c, "--body-bytes");
        addf(&c, "%lld", (long long)cell->body_bytes);
    }
    add(&c, "--json");
    add(&c, report);
    add_common(&c, cell);
    if (cell->deployment->protection == PQ_SBI_NATIVE) {
        add_identity(&c, s, cell, cell->hosts[0]);
        add(&c, "--name");
        addf(&c, "%s.5gc.example", cell->hosts[1]);
    }
    TRY(start(v, cell, &c, 0, "load", false, &p, why));
    int e = pq_process_await_end(v->processes, p, load_timeout_ns, why);
    int64_t ended_ns = pq_clock_ns();
    /* A load whose requests all failed ends with status 1 and still reports why. */
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): start() set it
    bool reported = p->ended && WIFEXITED(p->status) && access(report, F_OK) == 0;
    if (e < 0 && !reported)
        return e;
    TRY(pq_file_read(report, &b, why));
    return pq_sbi_load_parse((const char *)b.at, b.len, ended_ns, v->lab->record, out, why);
}
