#include "lab/progress.h"

#include <stdio.h>

#include "base/clock.h"

enum { BAR = 30, LEFT_TEXT = 40 };

void pq_progress_duration(int64_t ns, char *out, size_t size)
{
    int64_t s = (ns + PQ_NS_PER_S / 2) / PQ_NS_PER_S;
    if (s < 60)
        snprintf(out, size, "%lld s", (long long)s);
    else if (s < 3600)
        snprintf(out, size, "%lld min %lld s", (long long)(s / 60), (long long)(s % 60));
    else
        snprintf(out, size, "%lld h %lld min", (long long)(s / 3600), (long long)(s % 3600 / 60));
}

void pq_progress_begin(struct pq_progress *p, bool bar, int64_t rounds, size_t cells, int64_t now_ns)
{
    *p = (struct pq_progress){.bar = bar, .started_ns = now_ns, .rounds = rounds, .cells = cells};
}

static void left_text(const struct pq_progress *p, int64_t now_ns, char out[LEFT_TEXT])
{
    double done = (double)(p->round - 1) * (double)p->cells + (double)p->cell,
           all = (double)p->rounds * (double)p->cells;
    pq_progress_duration((int64_t)((double)(now_ns - p->started_ns) / done * (all - done)), out, LEFT_TEXT);
}

static void draw(const struct pq_progress *p, int64_t now_ns)
{
    char left[LEFT_TEXT] = "?", bar[BAR + 1];
    double done = (double)(p->round - 1) * (double)p->cells + (double)p->cell,
           all = (double)p->rounds * (double)p->cells;
    if (done > 0)
        left_text(p, now_ns, left);
    int full = (int)(done / all * BAR);
    for (int i = 0; i < BAR; i++)
        bar[i] = i < full ? '#' : '.';
    bar[BAR] = 0;
    fprintf(stderr, "\r\033[K[%s] round %lld/%lld, cell %zu/%zu, %s left", bar, (long long)p->round,
            (long long)p->rounds, p->cell, p->cells, left);
    if (p->failures)
        fprintf(stderr, ", %llu failed", (unsigned long long)p->failures);
    fflush(stderr);
}

void pq_progress_round(struct pq_progress *p, int64_t round, int64_t now_ns)
{
    p->round = round;
    p->cell = 0;
    p->round_started_ns = now_ns;
    if (p->bar)
        draw(p, now_ns);
}

void pq_progress_cell(struct pq_progress *p, uint64_t failures, int64_t now_ns)
{
    p->cell++;
    p->failures = failures;
    if (p->bar) {
        draw(p, now_ns);
        return;
    }
    if (p->cell < p->cells)
        return;
    char left[LEFT_TEXT];
    left_text(p, now_ns, left);
    fprintf(stderr, "round %lld of %lld: %zu cells in %.1f s, %llu failures so far", (long long)p->round,
            (long long)p->rounds, p->cells, (double)(now_ns - p->round_started_ns) / PQ_NS_PER_S,
            (unsigned long long)p->failures);
    if (p->round < p->rounds)
        fprintf(stderr, ", about %s left", left);
    fprintf(stderr, "\n");
}

void pq_progress_end(struct pq_progress *p)
{
    if (p->bar)
        fprintf(stderr, "\r\033[K");
}
