#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec t = {0};
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * PQ_NS_PER_S + t.tv_nsec;
}

int64_t pq_clock_ns(void) { return read_clock(CLOCK_MONOTONIC); }
int64_t pq_clock_wall_ns(void) { return read_clock(CLOCK_REALTIME); }
int64_t pq_clock_thread_cpu_ns(void) { return read_clock(CLOCK_THREAD_CPUTIME_ID); }
int64_t pq_clock_process_cpu_ns(void) { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }

void pq_clock_rfc3339(int64_t wall_ns, char *out, size_t size)
{
    time_t s = (time_t)(wall_ns / PQ_NS_PER_S);
    struct tm tm = {0};
    gmtime_r(&s, &tm);
    char date[32];
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out, size, "%s.%03dZ", date, (int)(wall_ns % PQ_NS_PER_S / PQ_NS_PER_MS));
}
