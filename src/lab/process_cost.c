#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "lab/process.h"

enum { LIVING_MAX = 512 };

/* The processes of this pid namespace: those of the run, and no others. */
struct living {
    struct one {
        pid_t pid, parent;
        int64_t reaped_ticks; /* CPU of the children it has waited for */
        bool in_tree;
    } at[LIVING_MAX];
    size_t count;
};

static int read_stat(pid_t pid, struct one *out)
{
    char path[64];
    int parent = 0;
    int64_t user = 0, system_ticks = 0;
    DEFER(pq_buf_free) struct pq_buf b = {.cap = 4096};
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    TRY(pq_file_read(path, &b, NULL));
    /* The second field is the name in parentheses, and may hold any. */
    const char *after = b.len ? strrchr((const char *)b.at, ')') : NULL;
    if (!after || sscanf(after + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %" SCNd64 " %" SCNd64, &parent,
                         &user, &system_ticks) != 3)
        return PQ_E_SYNTAX;
    *out = (struct one){.pid = pid, .parent = parent, .reaped_ticks = user + system_ticks};
    return 0;
}

static int list_living(struct living *l, struct pq_why *why)
{
    DEFER(pq_closedirp) DIR *d = opendir("/proc");
    if (!d)
        return pq_why(why, PQ_E_IO, "can't list /proc");
    for (struct dirent *e; (e = readdir(d));) {
        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        if (l->count == LIVING_MAX)
            return pq_why(why, PQ_E_LIMIT, "more than %d processes are running: their cost can't be told apart",
                          LIVING_MAX);
        if (read_stat((pid_t)strtol(e->d_name, NULL, 10), &l->at[l->count]) == 0)
            l->count++;
    }
    return 0;
}

static void mark_tree(struct living *l, pid_t root)
{
    for (bool grown = true; grown;) {
        grown = false;
        for (size_t i = 0; i < l->count; i++) {
            if (l->at[i].in_tree)
                continue;
            bool in = l->at[i].pid == root;
            for (size_t j = 0; j < l->count && !in; j++)
                in = l->at[j].in_tree && l->at[j].pid == l->at[i].parent;
            l->at[i].in_tree = in;
            grown |= in;
        }
    }
}

static int64_t cpu_of(pid_t pid)
{
    clockid_t id;
    struct timespec t;
    if (clock_getcpuclockid(pid, &id) != 0 || clock_gettime(id, &t) != 0)
        return 0; /* it ended just now: its parent's account has it once it is reaped */
    return (int64_t)t.tv_sec * PQ_NS_PER_S + t.tv_nsec;
}

static int64_t peak_of(pid_t pid)
{
    char path[64];
    int64_t kib = 0;
    DEFER(pq_buf_free) struct pq_buf b = {.cap = 16384};
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    if (pq_file_read(path, &b, NULL) < 0 || b.len == 0)
        return 0;
    const char *line = strstr((const char *)b.at, "\nVmHWM:");
    return line && sscanf(line, "\nVmHWM: %" SCNd64, &kib) == 1 ? kib : 0;
}

int pq_process_cost(const struct pq_process *p, struct pq_process_cost *out, struct pq_why *why)
{
    DEFER(pq_freep) struct living *l = calloc(1, sizeof *l);
    if (!l)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    TRY(list_living(l, why));
    mark_tree(l, p->pid);
    int64_t tick_ns = PQ_NS_PER_S / sysconf(_SC_CLK_TCK);
    struct pq_process_cost c = {0};
    for (size_t i = 0; i < l->count; i++) {
        if (!l->at[i].in_tree)
            continue;
        c.cpu_ns += cpu_of(l->at[i].pid) + l->at[i].reaped_ticks * tick_ns;
        c.peak_rss_kib += peak_of(l->at[i].pid);
    }
    *out = c;
    return 0;
}
