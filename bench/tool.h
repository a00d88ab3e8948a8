/* tool.h - what the benchmark's programs share: options, loopback source addresses, latencies, the line they end with.
 *
 * Spec:   none of its own; source address i of a generator is 127.1.0.0 + i, leaving out .0 and .255.
 * Owns:   latencies own their samples until tool_latencies_free().
 * Errors: a benchmark that can't do its work ends the program with one sentence (tool_fail()).
 */
#ifndef PQ_BENCH_TOOL_H
#define PQ_BENCH_TOOL_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "net/tcp.h"

_Noreturn void tool_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

struct tool_option {
    const char *name; /* as in --name VALUE */
    int64_t *number;  /* or */
    const char **text;
};
/* A generator's first call: from here on a connection that the other side reset is an error, not the program's end. */
void tool_options(int argc, char **argv, const struct tool_option *options, size_t count);

struct pq_address tool_address(const char *text);
/* A socket whose source is loopback address number from % sources; sources 0: the kernel's choice. */
int tool_socket(int64_t from, int64_t sources, bool blocking);

struct tool_latencies {
    int64_t *ns;
    size_t count, room;
};
void tool_latency(struct tool_latencies *l, int64_t ns);
void tool_latencies_free(struct tool_latencies *l);
/* "latencies":{"n":..,"median_us":..,"p90_us":..,"p99_us":..,"max_us":..}; sorts them. */
void tool_print_latencies(FILE *out, struct tool_latencies *l);

/* Why requests failed, by errno-like causes. */
enum tool_failure { TOOL_REFUSED, TOOL_RESET, TOOL_ENDED, TOOL_LATE, TOOL_OTHER, TOOL_FAILURES };
enum tool_failure tool_failure_of(int err);
/* "errors":{"refused":..,...} and "failed":SUM */
void tool_print_failures(FILE *out, const int64_t counts[TOOL_FAILURES]);

/* The benchmark's request, and one reader of its answers: HTTP/1.1 with content-length. */
extern const char tool_request[];
extern const size_t tool_request_size;
struct tool_answer {
    char head[1024];
    size_t head_size;
    int64_t body_left; /* -1 while in the head */
};
void tool_answer_start(struct tool_answer *a);
/* 1: whole, 0: more to come, -1: no answer of that form. */
int tool_answer_feed(struct tool_answer *a, const char *bytes, size_t size);

#endif
