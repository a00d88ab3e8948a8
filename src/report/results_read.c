#include "report/results_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <yyjson.h>

#include "report/text.h"

/* Sums, squares and ratios of what lies between stay far from where floating point and the plots' axes end. */
static const double LARGEST = 1e15, SMALLEST = 1e-12;

/* Where in the file we are: "cells[3].metrics.request_ms". */
struct place {
    const struct place *in;
    const char *key; /* NULL: item number index of a list */
    size_t index;
    struct pq_why *why;
};

static void spell(const struct place *p, struct pq_out *o)
{
    if (!p->in)
        return;
    spell(p->in, o);
    if (!p->key) {
        pq_outf(o, "[%zu]", p->index);
        return;
    }
    if (o->buf.len)
        pq_out(o, ".");
    pq_out_clean(o, p->key, 60);
}

static int wrong(const struct place *p, const char *sentence)
{
    DEFER(pq_out_free) struct pq_out o = {.buf.cap = 900};
    spell(p, &o);
    return pq_why(p->why, PQ_E_CONFIG, "%s%s%s", pq_out_text(&o), o.buf.len ? ": " : "", sentence);
}

static struct place inside(const struct place *p, const char *key) { return (struct place){p, key, 0, p->why}; }
static struct place item(const struct place *p, size_t index) { return (struct place){p, NULL, index, p->why}; }

static int as_text(const struct place *p, yyjson_val *v, size_t max, const char **out)
{
    if (!v)
        return wrong(p, "is missing; it must be a text");
    if (!yyjson_is_str(v))
        return wrong(p, "must be a text");
    if (yyjson_get_len(v) > max)
        return wrong(p, "is longer than this program reads");
    if (strlen(yyjson_get_str(v)) != yyjson_get_len(v))
        return wrong(p, "holds a NUL character; no text may");
    *out = yyjson_get_str(v);
    return 0;
}

static int text_at(const struct place *p, yyjson_val *map, const char *key, size_t max, const char **out)
{
    struct place here = inside(p, key);
    return as_text(&here, yyjson_obj_get(map, key), max, out);
}

static int text_or_empty(const struct place *p, yyjson_val *map, const char *key, const char **out)
{
    *out = "";
    yyjson_val *v = yyjson_obj_get(map, key);
    struct place here = inside(p, key);
    return v && !yyjson_is_null(v) ? as_text(&here, v, PQ_RESULTS_MAX_NAME, out) : 0;
}

static int bool_at(const struct place *p, yyjson_val *map, const char *key, bool required, bool *out)
{
    yyjson_val *v = yyjson_obj_get(map, key);
    struct place here = inside(p, key);
    if (!v && !required)
        return 0;
    if (!yyjson_is_bool(v))
        return wrong(&here, v ? "must be true or false" : "is missing; it must be true or false");
    *out = yyjson_get_bool(v);
    return 0;
}

static int as_number(const struct place *p, yyjson_val *v, double *out)
{
    if (!v)
        return wrong(p, "is missing; it must be a number");
    if (!yyjson_is_num(v))
        return wrong(p, "must be a number");
    double d = yyjson_get_num(v);
    if (!isfinite(d))
        return wrong(p, "must be a finite number");
    if (fabs(d) > LARGEST)
        return wrong(p, "lies beyond 1e15 and -1e15; no figure of a measurement does");
    *out = fabs(d) < SMALLEST ? 0 : d;
    return 0;
}

static int as_whole(const struct place *p, yyjson_val *v, int64_t *out)
{
    if (!v)
        return wrong(p, "is missing; it must be a whole number from 0");
    if (!yyjson_is_uint(v) || yyjson_get_uint(v) > INT64_MAX)
        return wrong(p, "must be a whole number from 0");
    *out = (int64_t)yyjson_get_uint(v);
    return 0;
}

static int as_map(const struct place *p, yyjson_val *v, size_t max)
{
    if (!yyjson_is_obj(v))
        return wrong(p, v ? "must be an object" : "is missing; it must be an object");
    return yyjson_obj_size(v) <= max ? 0 : wrong(p, "has more members than this program reads");
}

static int as_list(const struct place *p, yyjson_val *v, size_t max)
{
    if (!yyjson_is_arr(v))
        return wrong(p, v ? "must be a list" : "is missing; it must be a list");
    return yyjson_arr_size(v) <= max ? 0 : wrong(p, "has more items than this program reads");
}

/* calloc that gives a pointer also for none. */
static void *array(size_t count, size_t size) { return calloc(count ? count : 1, size); }

static int read_facts(const struct place *p, yyjson_val *map, size_t max, bool scalars, struct pq_facts *out)
{
    TRY(as_map(p, map, max));
    out->at = array(yyjson_obj_size(map), sizeof *out->at);
    if (!out->at)
        return PQ_E_NOMEM;
    size_t i, n;
    yyjson_val *key, *v;
    yyjson_obj_foreach(map, i, n, key, v)
    {
        struct pq_fact *f = &out->at[out->count++];
        TRY(as_text(p, key, PQ_RESULTS_MAX_NAME, &f->name));
        struct place here = inside(p, f->name);
        for (size_t before = 0; before < i; before++)
            if (strcmp(out->at[before].name, f->name) == 0)
                return wrong(&here, "stands here twice");
        if (yyjson_is_str(v)) {
            TRY(as_text(&here, v, PQ_RESULTS_MAX_TEXT, &f->value));
            continue;
        }
        if (scalars && !yyjson_is_num(v) && !yyjson_is_bool(v))
            return wrong(&here, "must be a text, a number, true or false");
        size_t len;
        f->owned = yyjson_val_write(v, 0, &len);
        if (!f->owned)
            return PQ_E_NOMEM;
        f->value = f->owned;
    }
    return 0;
}

static int read_numbers(const struct place *p, yyjson_val *list, size_t count, double *out)
{
    size_t i, n;
    yyjson_val *v;
    yyjson_arr_foreach(list, i, n, v)
    {
        struct place here = item(p, i);
        TRY(as_number(&here, v, &out[i]));
    }
    return n == count ? 0 : PQ_E_INVALID;
}

static int read_rounds(const struct place *p, yyjson_val *list, int64_t *out)
{
    size_t i, n;
    yyjson_val *v;
    yyjson_arr_foreach(list, i, n, v)
    {
        struct place here = item(p, i);
        TRY(as_whole(&here, v, &out[i]));
    }
    return 0;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int count_rounds(struct pq_result_metric *m)
{
    DEFER(pq_freep) int64_t *sorted = array(m->count, sizeof *sorted);
    if (!sorted)
        return PQ_E_NOMEM;
    if (m->count)
        memcpy(sorted, m->round, m->count * sizeof *sorted);
    qsort(sorted, m->count, sizeof *sorted, ascending);
    for (size_t i = 0; i < m->count; i++)
        m->rounds += i == 0 || sorted[i] != sorted[i - 1];
    return 0;
}

static int read_metric(const struct place *p, yyjson_val *v, struct pq_result_metric *m)
{
    TRY(as_map(p, v, PQ_RESULTS_MAX_FACTORS));
    TRY(text_at(p, v, "unit", PQ_RESULTS_MAX_NAME, &m->unit));
    yyjson_val *samples = yyjson_obj_get(v, "samples"), *rounds = yyjson_obj_get(v, "rounds"),
               *at = yyjson_obj_get(v, "at_ms");
    struct place in_samples = inside(p, "samples"), in_rounds = inside(p, "rounds"), in_at = inside(p, "at_ms");
    TRY(as_list(&in_samples, samples, PQ_RESULTS_MAX_FILE));
    TRY(as_list(&in_rounds, rounds, PQ_RESULTS_MAX_FILE));
    TRY(as_list(&in_at, at, PQ_RESULTS_MAX_FILE));
    m->count = yyjson_arr_size(samples);
    if (yyjson_arr_size(rounds) != m->count || yyjson_arr_size(at) != m->count) {
        char sentence[200];
        snprintf(sentence, sizeof sentence,
                 "samples has %zu items, rounds %zu and at_ms %zu; they must be equally many", m->count,
                 yyjson_arr_size(rounds), yyjson_arr_size(at));
        return wrong(p, sentence);
    }
    m->value = array(m->count, sizeof *m->value);
    m->at_ms = array(m->count, sizeof *m->at_ms);
    m->round = array(m->count, sizeof *m->round);
    if (!m->value || !m->at_ms || !m->round)
        return PQ_E_NOMEM;
    TRY(read_numbers(&in_samples, samples, m->count, m->value));
    TRY(read_numbers(&in_at, at, m->count, m->at_ms));
    TRY(read_rounds(&in_rounds, rounds, m->round));
    return count_rounds(m);
}

static int read_metrics(const struct place *p, yyjson_val *map, struct pq_result_cell *c)
{
    TRY(as_map(p, map, PQ_RESULTS_MAX_METRICS));
    c->metrics = array(yyjson_obj_size(map), sizeof *c->metrics);
    if (!c->metrics)
        return PQ_E_NOMEM;
    size_t i, n;
    yyjson_val *key, *v;
    yyjson_obj_foreach(map, i, n, key, v)
    {
        const char *name;
        TRY(as_text(p, key, PQ_RESULTS_MAX_NAME, &name));
        struct place here = inside(p, name);
        if (pq_result_metric(c, name))
            return wrong(&here, "stands here twice");
        struct pq_result_metric *m = &c->metrics[c->metric_count++];
        m->name = name;
        TRY(read_metric(&here, v, m));
    }
    return 0;
}

static int read_errors(const struct place *p, yyjson_val *list, struct pq_result_cell *c)
{
    if (!list)
        return 0;
    TRY(as_list(p, list, PQ_RESULTS_MAX_LIST));
    c->errors = array(yyjson_arr_size(list), sizeof *c->errors);
    if (!c->errors)
        return PQ_E_NOMEM;
    size_t i, n;
    yyjson_val *v;
    yyjson_arr_foreach(list, i, n, v)
    {
        struct place here = item(p, i), in_count = inside(&here, "count");
        struct pq_result_error *e = &c->errors[i];
        int64_t count = 0;
        TRY(as_map(&here, v, PQ_RESULTS_MAX_FACTORS));
        TRY(text_at(&here, v, "reason", PQ_RESULTS_MAX_NAME, &e->reason));
        TRY(as_whole(&in_count, yyjson_obj_get(v, "count"), &count));
        e->count = (uint64_t)count;
        c->error_count++;
    }
    return 0;
}

static int read_cell(const struct place *p, yyjson_val *v, struct pq_result_cell *c)
{
    struct place in_factors = inside(p, "factors"), in_metrics = inside(p, "metrics"), in_errors = inside(p, "errors");
    TRY(as_map(p, v, PQ_RESULTS_MAX_FACTORS));
    TRY(read_facts(&in_factors, yyjson_obj_get(v, "factors"), PQ_RESULTS_MAX_FACTORS, true, &c->factors));
    TRY(read_metrics(&in_metrics, yyjson_obj_get(v, "metrics"), c));
    return read_errors(&in_errors, yyjson_obj_get(v, "errors"), c);
}

static int read_cells(const struct place *p, yyjson_val *list, struct pq_results *r)
{
    TRY(as_list(p, list, PQ_RESULTS_MAX_CELLS));
    r->cells = array(yyjson_arr_size(list), sizeof *r->cells);
    if (!r->cells)
        return PQ_E_NOMEM;
    size_t i, n;
    yyjson_val *v;
    yyjson_arr_foreach(list, i, n, v)
    {
        struct place here = item(p, i);
        TRY(read_cell(&here, v, &r->cells[r->cell_count++]));
    }
    return 0;
}

static int read_calibration(const struct place *p, yyjson_val *list, struct pq_results *r)
{
    if (!list)
        return 0;
    TRY(as_list(p, list, PQ_RESULTS_MAX_LIST));
    r->calibration = array(yyjson_arr_size(list), sizeof *r->calibration);
    if (!r->calibration)
        return PQ_E_NOMEM;
    size_t i, n;
    yyjson_val *v;
    yyjson_arr_foreach(list, i, n, v)
    {
        struct place here = item(p, i), in_round = inside(&here, "round"), in_at = inside(&here, "at_ms"),
                     in_work = inside(&here, "work_ms"), in_steal = inside(&here, "steal_ms");
        struct pq_result_calibration *c = &r->calibration[i];
        TRY(as_map(&here, v, PQ_RESULTS_MAX_FACTORS));
        TRY(as_whole(&in_round, yyjson_obj_get(v, "round"), &c->round));
        TRY(as_number(&in_at, yyjson_obj_get(v, "at_ms"), &c->at_ms));
        TRY(as_number(&in_work, yyjson_obj_get(v, "work_ms"), &c->work_ms));
        TRY(as_number(&in_steal, yyjson_obj_get(v, "steal_ms"), &c->steal_ms));
        r->calibration_count++;
    }
    return 0;
}

static int read_notes(const struct place *p, yyjson_val *list, struct pq_results *r)
{
    if (!list)
        return 0;
    TRY(as_list(p, list, PQ_RESULTS_MAX_LIST));
    r->notes = array(yyjson_arr_size(list), sizeof *r->notes);
    if (!r->notes)
        return PQ_E_NOMEM;
    size_t i, n;
    yyjson_val *v;
    yyjson_arr_foreach(list, i, n, v)
    {
        struct place here = item(p, i);
        TRY(as_text(&here, v, PQ_RESULTS_MAX_TEXT, &r->notes[i]));
        r->note_count++;
    }
    return 0;
}

static int read_experiment(const struct place *p, yyjson_val *v, struct pq_results *r)
{
    TRY(as_map(p, v, PQ_RESULTS_MAX_FACTORS));
    TRY(text_at(p, v, "name", PQ_RESULTS_MAX_NAME, &r->experiment));
    TRY(text_at(p, v, "text", PQ_RESULTS_MAX_TEXT, &r->experiment_text));
    yyjson_val *published = yyjson_obj_get(v, "published");
    if (!published || yyjson_is_null(published))
        return 0;
    struct place here = inside(p, "published");
    TRY(as_map(&here, published, PQ_RESULTS_MAX_FACTORS));
    TRY(text_at(&here, published, "file", PQ_RESULTS_MAX_NAME, &r->published_file));
    return text_at(&here, published, "text", PQ_RESULTS_MAX_TEXT, &r->published_text);
}

static int read_schema(const struct place *top, yyjson_val *root, struct pq_why *why)
{
    struct place here = inside(top, "schema");
    int64_t schema = 0;
    TRY(as_whole(&here, yyjson_obj_get(root, "schema"), &schema));
    if (schema == PQ_RESULTS_SCHEMA)
        return 0;
    if (schema > PQ_RESULTS_SCHEMA)
        return pq_why(why, PQ_E_UNSUPPORTED,
                      "made by a newer pqplane: its schema is %lld and this program reads %d; use that pqplane",
                      (long long)schema, PQ_RESULTS_SCHEMA);
    return wrong(&here, "there was never such a schema; the first is 1");
}

int pq_results_read(struct yyjson_val *root, struct pq_results *r, struct pq_why *why)
{
    struct place top = {.why = why}, in_experiment = inside(&top, "experiment"), in_seed = inside(&top, "seed"),
                 in_host = inside(&top, "host"), in_libraries = inside(&top, "libraries"),
                 in_cells = inside(&top, "cells"), in_calibration = inside(&top, "calibration"),
                 in_notes = inside(&top, "notes");
    TRY(as_map(&top, root, PQ_RESULTS_MAX_FACTORS));
    TRY(read_schema(&top, root, why));
    TRY(text_at(&top, root, "pqplane", PQ_RESULTS_MAX_NAME, &r->version));
    yyjson_val *seed = yyjson_obj_get(root, "seed");
    if (!yyjson_is_uint(seed))
        return wrong(&in_seed, seed ? "must be a whole number from 0" : "is missing; it must be a whole number from 0");
    r->seed = yyjson_get_uint(seed);
    TRY(text_at(&top, root, "started", PQ_RESULTS_MAX_NAME, &r->started));
    TRY(text_or_empty(&top, root, "finished", &r->finished));
    TRY(text_or_empty(&top, root, "command", &r->command));
    TRY(bool_at(&top, root, "complete", true, &r->complete));
    TRY(bool_at(&top, root, "quick", false, &r->quick));
    TRY(read_experiment(&in_experiment, yyjson_obj_get(root, "experiment"), r));
    TRY(read_facts(&in_host, yyjson_obj_get(root, "host"), PQ_RESULTS_MAX_METRICS, false, &r->host));
    if (yyjson_obj_get(root, "libraries"))
        TRY(read_facts(&in_libraries, yyjson_obj_get(root, "libraries"), PQ_RESULTS_MAX_METRICS, false, &r->libraries));
    TRY(read_calibration(&in_calibration, yyjson_obj_get(root, "calibration"), r));
    TRY(read_notes(&in_notes, yyjson_obj_get(root, "notes"), r));
    return read_cells(&in_cells, yyjson_obj_get(root, "cells"), r);
}
