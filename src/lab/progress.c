#include "lab/progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

enum { BAR = 30, BAR_LEAST = 5, LEFT_TEXT = 40, USUAL_COLUMNS = 80 };

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

static void write_bar(const struct pq_progress *p, size_t length, char *out)
{
    double done = (double)(p->round - 1) * (double)p->cells + (double)p->cell,
           all = (double)p->rounds * (double)p->cells;
    size_t full = (size_t)(done / all * (double)length);
    *out++ = '[';
    for (size_t i = 0; i < length; i++)
        *out++ = i < full ? '#' : '.';
    snprintf(out, 3, "] ");
}

void pq_progress_line(const struct pq_progress *p, int64_t now_ns, size_t columns, char out[PQ_PROGRESS_LINE])
{
    char left[LEFT_TEXT] = "?", failed[40] = "", words[150], bar[BAR + 4] = "";
    /* The last column stays free: some terminals go to the next line as soon as it is written. */
    size_t room = columns ? columns - 1 : 0;
    if (p->round > 1 || p->cell > 0)
        left_text(p, now_ns, left);
    if (p->failures)
        snprintf(failed, sizeof failed, ", %llu failed", (unsigned long long)p->failures);
    snprintf(words, sizeof words, "round %lld/%lld, cell %zu/%zu, %s left%s", (long long)p->round, (long long)p->rounds,
             p->cell, p->cells, left, failed);
    if (strlen(words) > room)
        snprintf(words, sizeof words, "%lld/%lld %zu/%zu%s", (long long)p->round, (long long)p->rounds, p->cell,
                 p->cells, failed);
    if (strlen(words) + BAR_LEAST + 3 <= room) {
        size_t length = room - strlen(words) - 3;
        write_bar(p, length < BAR ? length : BAR, bar);
    }
    snprintf(out, PQ_PROGRESS_LINE, "%s%.*s", bar, (int)(room < sizeof words ? room : sizeof words), words);
}

/* Asked each time: a window may change its size. */
static size_t columns(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : USUAL_COLUMNS;
}

static void draw(const struct pq_progress *p, int64_t now_ns)
{
    char line[PQ_PROGRESS_LINE];
    pq_progress_line(p, now_ns, columns(), line);
    fprintf(stderr, "\r\033[K%s", line);
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
