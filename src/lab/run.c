#include "lab/run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "lab/host.h"
#include "lab/progress.h"
#include "net/namespace.h"

/* Inside the namespaces process 1 is ours, and its file is the one that runs, even where a build has replaced it since.
 */
#define PROGRAM      "/proc/1/exe"
#define FOLDER       "/run/lab"
#define VISIT_FOLDER FOLDER "/visit"
static const int64_t grace_ns = 3 * PQ_NS_PER_S;

struct run {
    const struct pq_experiment *x;
    const struct pq_run_options *how;
    struct pq_lab lab;
    struct pq_record *record;
    void *state; /* the driver's */
    struct pq_record_facts facts;
    struct pq_progress progress;
    struct pq_run_summary *sum; /* in memory that the caller shares */
    int out_fd;
    uint64_t failed_visits; /* of this round */
    struct pq_why first_failure;
};

static void run_end(struct run *r)
{
    if (r->state)
        r->x->driver->finish(r->state);
    pq_record_free(r->record);
}

static bool asked_to_stop(const struct run *r)
{
    struct pollfd p = {.fd = r->lab.stop_fd, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

/* Whatever became of the visit, nothing of it is left. */
static int visit_cell(struct run *r, size_t cell, int64_t round, struct pq_why *why)
{
    struct pq_processes processes = {.stop_fd = r->lab.stop_fd};
    struct pq_visit v = {&r->lab, &r->x->cells[cell], round, VISIT_FOLDER, &processes};
    int e = pq_file_make_folders(VISIT_FOLDER, 0700, why);
    if (e == 0)
        e = r->x->driver->visit(r->state, &v, why);
    struct pq_why stopping = {{0}};
    int stopped = pq_processes_stop(&processes, grace_ns, &stopping);
    if (e == 0 && stopped < 0) {
        e = stopped;
        *why = stopping;
    }
    struct pq_why removing = {{0}};
    int removed = pq_file_remove_tree(VISIT_FOLDER, &removing);
    if (e == 0 && removed < 0) {
        e = removed;
        *why = removing;
    }
    return e;
}

/* A visit that failed is counted; only what would fail all others too ends the run. */
static int judge_visit(struct run *r, int e, const struct pq_why *visit_why, struct pq_why *why)
{
    if (e == 0)
        return 0;
    pq_record_undo(r->record);
    if (e == PQ_E_INTERRUPTED || e == PQ_E_NOMEM) {
        *why = *visit_why;
        return e;
    }
    if (r->failed_visits++ == 0)
        r->first_failure = *visit_why;
    return pq_record_error(r->record, visit_why->text[0] ? visit_why->text : pq_error_text(e), 1) < 0
               ? pq_why(why, PQ_E_NOMEM, "out of memory")
               : 0;
}

static int visit_all(struct run *r, int64_t round, struct pq_why *why)
{
    DEFER(pq_freep) size_t *order = calloc(r->x->cell_count, sizeof *order);
    if (!order)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    pq_cell_order(r->x, r->how->seed, round, order);
    r->failed_visits = 0;
    for (size_t i = 0; i < r->x->cell_count; i++) {
        struct pq_why visit_why = {{0}};
        if (asked_to_stop(r))
            return pq_why(why, PQ_E_INTERRUPTED, "interrupted");
        pq_record_begin(r->record, order[i], round);
        TRY(judge_visit(r, visit_cell(r, order[i], round, &visit_why), &visit_why, why));
        r->sum->visits++;
        r->sum->failures = pq_record_errors(r->record);
        pq_progress_cell(&r->progress, r->sum->failures, pq_clock_ns());
    }
    if (r->failed_visits == r->x->cell_count)
        return pq_why(why, PQ_E_IO, "no cell could be measured in round %lld; the first failed because %.800s",
                      (long long)round, r->first_failure.text);
    return 0;
}

static int run_round(struct run *r, int64_t round, struct pq_why *why)
{
    int64_t at = pq_clock_ns(), steal = pq_host_steal_ns(), work = pq_host_work_ns();
    pq_progress_round(&r->progress, round, at);
    int e = visit_all(r, round, why);
    double stolen_ms = (double)(pq_host_steal_ns() - steal) / PQ_NS_PER_MS;
    if (pq_record_calibration(r->record, round, at, (double)work / PQ_NS_PER_MS, stolen_ms) < 0)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    if (e == 0)
        r->facts.rounds = round;
    return e;
}

static int write_results(struct run *r, struct pq_why *why)
{
    r->facts.finished_wall_ns = pq_clock_wall_ns();
    r->facts.complete = r->facts.rounds == r->x->repetitions;
    int e = pq_record_write(r->record, &r->facts, "results.json", why);
    if (e < 0)
        return pq_why_in(why, e, "%s", r->how->out_folder);
    r->sum->written = true;
    r->sum->rounds = r->facts.rounds;
    return 0;
}

/* Results are written after each round: what is measured is kept, and a full disk shows early. */
static int run_rounds(struct run *r, struct pq_why *why)
{
    for (int64_t round = 1; round <= r->x->repetitions; round++) {
        int e = run_round(r, round, why);
        struct pq_why writing = {{0}};
        int written = write_results(r, &writing);
        if (written < 0 && (e == 0 || e == PQ_E_INTERRUPTED)) {
            *why = writing;
            return written;
        }
        TRY(e);
    }
    return 0;
}

static int inside(void *context, int stop_fd, struct pq_why *why)
{
    DEFER(run_end) struct run r = *(const struct run *)context;
    /* The folder for results may be one that our own /run hides: as working directory it stays reachable. */
    if (fchdir(r.out_fd) < 0)
        return pq_why(why, pq_error_from_errno(errno), "can't enter %s: %s", r.how->out_folder, strerror(errno));
    TRY(pq_file_make_folders(FOLDER, 0700, why));
    int64_t now = pq_clock_ns();
    if (pq_record_new(r.x, now, &r.record) < 0)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    r.facts.started_wall_ns = pq_clock_wall_ns();
    r.lab = (struct pq_lab){r.x, PROGRAM, FOLDER, stop_fd, r.record};
    TRY(r.x->driver->prepare(&r.lab, &r.state, why));
    pq_progress_begin(&r.progress, r.how->bar, r.x->repetitions, r.x->cell_count, pq_clock_ns());
    int e = run_rounds(&r, why);
    pq_progress_end(&r.progress);
    return e;
}

static void unmap(struct pq_run_summary **shared)
{
    if (*shared)
        munmap(*shared, sizeof **shared);
}

static struct pq_run_summary *map_shared(void)
{
    void *at = mmap(NULL, sizeof(struct pq_run_summary), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static bool is_still_at(int fd, const char *path)
{
    struct stat held, named;
    return fstat(fd, &held) == 0 && stat(path, &named) == 0 && held.st_dev == named.st_dev &&
           held.st_ino == named.st_ino;
}

/* Two runs with one folder would publish each other's file. The lock is on the folder itself, leaves nothing in it and
 * goes with the run, be it killed; every process of the run holds it. A file system without locks has to do without. */
static int hold_folder(const char *path, int *out, struct pq_why *why)
{
    enum { ATTEMPTS = 10 };
    for (int i = 0; i < ATTEMPTS; i++) {
        TRY(pq_file_make_folders(path, 0755, why));
        DEFER(pq_closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 && errno != ENOENT)
            return pq_why(why, pq_error_from_errno(errno), "can't open %s: %s", path, strerror(errno));
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
            return pq_why(why, PQ_E_EXISTS, "another run writes to %s: name another folder with --out", path);
        /* A run that wrote nothing removes the folder that it made, perhaps between our steps. */
        if (fd >= 0 && is_still_at(fd, path)) {
            *out = TAKE_FD(fd);
            return 0;
        }
    }
    return pq_why(why, PQ_E_IO, "%s vanishes while it is being made: name another folder with --out", path);
}

int pq_run(const struct pq_experiment *x, const struct pq_run_options *how, struct pq_run_summary *sum,
           struct pq_why *why)
{
    *sum = (struct pq_run_summary){.rounds = 0};
    DEFER(unmap) struct pq_run_summary *shared = map_shared();
    if (!shared)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    bool was_there = !how->own_folder && access(how->out_folder, F_OK) == 0;
    DEFER(pq_closep) int out = -1;
    TRY(hold_folder(how->out_folder, &out, why));
    struct run r = {.x = x,
                    .how = how,
                    .out_fd = out,
                    .sum = shared,
                    .facts = {.version = how->version, .command = how->command, .seed = how->seed}};
    int e = pq_namespace_run(inside, &r, why);
    *sum = *shared;
    if (e < 0 && !was_there)
        rmdir(how->out_folder); /* goes only if nothing was written into it */
    return e;
}
