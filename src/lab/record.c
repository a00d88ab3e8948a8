#include "lab/record.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "lab/record_json.h"

static int grow(void **at, size_t *size, size_t count, size_t each)
{
    if (count < *size)
        return 0;
    size_t wanted = *size ? *size * 2 : 16;
    void *more = realloc(*at, wanted * each);
    if (!more)
        return PQ_E_NOMEM;
    *at = more;
    *size = wanted;
    return 0;
}

int pq_record_new(const struct pq_experiment *x, int64_t origin_ns, struct pq_record **out)
{
    DEFER(pq_record_freep) struct pq_record *r = calloc(1, sizeof *r);
    if (!r)
        return PQ_E_NOMEM;
    r->x = x;
    r->origin_ns = origin_ns;
    r->cells = calloc(x->cell_count, sizeof *r->cells);
    if (!r->cells)
        return PQ_E_NOMEM;
    for (size_t c = 0; c < x->cell_count; c++) {
        r->cells[c].series = calloc(x->metrics.count, sizeof *r->cells[c].series);
        if (!r->cells[c].series)
            return PQ_E_NOMEM;
    }
    *out = TAKE(r);
    return 0;
}

static void cell_free(const struct pq_record *r, struct pq_record_cell *cell)
{
    for (size_t m = 0; cell->series && m < r->x->metrics.count; m++)
        free(cell->series[m].at);
    free(cell->series);
    for (size_t i = 0; i < cell->error_count; i++)
        free(cell->errors[i].reason);
    free(cell->errors);
}

void pq_record_free(struct pq_record *r)
{
    if (!r)
        return;
    for (size_t c = 0; r->cells && c < r->x->cell_count; c++)
        cell_free(r, &r->cells[c]);
    for (size_t i = 0; i < r->note_count; i++)
        free(r->notes[i]);
    free(r->notes);
    free(r->calibration);
    free(r->cells);
    free(r);
}

void pq_record_begin(struct pq_record *r, size_t cell, int64_t round)
{
    r->now = &r->cells[cell];
    r->round = round;
    for (size_t m = 0; m < r->x->metrics.count; m++)
        r->now->series[m].before = r->now->series[m].count;
}

void pq_record_undo(struct pq_record *r)
{
    for (size_t m = 0; m < r->x->metrics.count; m++)
        r->now->series[m].count = r->now->series[m].before;
}

int pq_record_sample(struct pq_record *r, const char *metric, double value, int64_t at_ns)
{
    if (!isfinite(value))
        return PQ_E_INVALID;
    for (size_t m = 0; m < r->x->metrics.count; m++) {
        struct pq_record_series *s = &r->now->series[m];
        if (strcmp(r->x->metrics.at[m], metric) != 0)
            continue;
        TRY(grow((void **)&s->at, &s->size, s->count, sizeof *s->at));
        s->at[s->count++] = (struct pq_record_sample){value, (double)(at_ns - r->origin_ns) / PQ_NS_PER_MS, r->round};
        return 0;
    }
    return 0;
}

int pq_record_error(struct pq_record *r, const char *reason, uint64_t count)
{
    struct pq_record_cell *c = r->now;
    for (size_t i = 0; i < c->error_count; i++)
        if (strncmp(c->errors[i].reason, reason, PQ_REASON_MAX) == 0) {
            c->errors[i].count += count;
            return 0;
        }
    TRY(grow((void **)&c->errors, &c->error_size, c->error_count, sizeof *c->errors));
    char *copy = strndup(reason, PQ_REASON_MAX);
    if (!copy)
        return PQ_E_NOMEM;
    c->errors[c->error_count++] = (struct pq_record_failure){copy, count};
    return 0;
}

int pq_record_calibration(struct pq_record *r, int64_t round, int64_t at_ns, double work_ms, double steal_ms)
{
    TRY(grow((void **)&r->calibration, &r->calibration_size, r->calibration_count, sizeof *r->calibration));
    r->calibration[r->calibration_count++] =
        (struct pq_record_calibration){round, (double)(at_ns - r->origin_ns) / PQ_NS_PER_MS, work_ms, steal_ms};
    return 0;
}

int pq_record_note(struct pq_record *r, const char *text)
{
    for (size_t i = 0; i < r->note_count; i++)
        if (strcmp(r->notes[i], text) == 0)
            return 0;
    TRY(grow((void **)&r->notes, &r->note_size, r->note_count, sizeof *r->notes));
    char *copy = strdup(text);
    if (!copy)
        return PQ_E_NOMEM;
    r->notes[r->note_count++] = copy;
    return 0;
}

uint64_t pq_record_errors(const struct pq_record *r)
{
    uint64_t n = 0;
    for (size_t c = 0; c < r->x->cell_count; c++)
        for (size_t i = 0; i < r->cells[c].error_count; i++)
            n += r->cells[c].errors[i].count;
    return n;
}

int pq_record_write(const struct pq_record *r, const struct pq_record_facts *facts, const char *path,
                    struct pq_why *why)
{
    DEFER(pq_freep) char *text = NULL;
    size_t len = 0;
    TRY(pq_record_json(r, facts, &text, &len, why));
    return pq_file_write(path, pq_span(text, len), 0644, PQ_FILE_REPLACE, why);
}
