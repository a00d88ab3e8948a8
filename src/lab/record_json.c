#include "lab/record_json.h"

#include <math.h>
#include <string.h>
#include <yyjson.h>

#include "base/clock.h"
#include "lab/host.h"

/* yyjson's builders return NULL or false when out of memory; one flag gathers that for the whole document. */
struct making {
    yyjson_mut_doc *d;
    bool failed;
};

static yyjson_mut_val *object(struct making *m, yyjson_mut_val *in, const char *key)
{
    yyjson_mut_val *v = yyjson_mut_obj(m->d);
    m->failed |= !v || (in && !yyjson_mut_obj_add_val(m->d, in, key, v));
    return v;
}

static yyjson_mut_val *array(struct making *m, yyjson_mut_val *in, const char *key)
{
    yyjson_mut_val *v = yyjson_mut_arr(m->d);
    m->failed |= !v || !yyjson_mut_obj_add_val(m->d, in, key, v);
    return v;
}

static yyjson_mut_val *item(struct making *m, yyjson_mut_val *in)
{
    yyjson_mut_val *v = yyjson_mut_arr_add_obj(m->d, in);
    m->failed |= !v;
    return v;
}

static void text(struct making *m, yyjson_mut_val *in, const char *key, const char *value)
{
    yyjson_mut_val *v = yyjson_mut_strcpy(m->d, value);
    m->failed |= !v || !yyjson_mut_obj_add_val(m->d, in, key, v);
}

static void whole(struct making *m, yyjson_mut_val *in, const char *key, int64_t value)
{
    m->failed |= !yyjson_mut_obj_add_sint(m->d, in, key, value);
}

/* To the nanosecond of a millisecond: more digits are noise and double the file. */
static double rounded(double v) { return fabs(v) < 1e9 ? round(v * 1e6) / 1e6 : v; }

static void real(struct making *m, yyjson_mut_val *in, const char *key, double value)
{
    m->failed |= !yyjson_mut_obj_add_real(m->d, in, key, rounded(value));
}

static const char *unit_of(const struct pq_driver *d, const char *metric)
{
    for (const struct pq_driver_metric *m = d->metrics; m->name; m++)
        if (strcmp(m->name, metric) == 0)
            return m->unit;
    return "";
}

static void put_experiment(struct making *m, yyjson_mut_val *root, const struct pq_experiment *x)
{
    yyjson_mut_val *e = object(m, root, "experiment");
    text(m, e, "name", x->name);
    text(m, e, "text", x->text);
    if (!x->published_text) {
        m->failed |= !yyjson_mut_obj_add_null(m->d, e, "published");
        return;
    }
    yyjson_mut_val *p = object(m, e, "published");
    text(m, p, "file", x->published);
    text(m, p, "text", x->published_text);
}

static void put_series(struct making *m, yyjson_mut_val *metrics, const char *name, const char *unit,
                       const struct pq_record_series *s)
{
    yyjson_mut_val *o = object(m, metrics, name);
    text(m, o, "unit", unit);
    yyjson_mut_val *samples = array(m, o, "samples"), *rounds = array(m, o, "rounds"), *at = array(m, o, "at_ms");
    for (size_t i = 0; i < s->count; i++) {
        m->failed |= !yyjson_mut_arr_add_real(m->d, samples, rounded(s->at[i].value));
        m->failed |= !yyjson_mut_arr_add_sint(m->d, rounds, s->at[i].round);
        m->failed |= !yyjson_mut_arr_add_real(m->d, at, round(s->at[i].at_ms * 1e3) / 1e3);
    }
}

static void put_cell(struct making *m, yyjson_mut_val *cells, const struct pq_record *r, size_t c)
{
    const struct pq_experiment *x = r->x;
    const struct pq_record_cell *cell = &r->cells[c];
    yyjson_mut_val *o = item(m, cells), *factors = object(m, o, "factors");
    for (size_t f = 0; f < x->factor_count; f++)
        if (x->cells[c].value[f])
            text(m, factors, x->factors[f].name, x->cells[c].value[f]);
    yyjson_mut_val *metrics = object(m, o, "metrics");
    for (size_t i = 0; i < x->metrics.count; i++)
        if (cell->series[i].count)
            put_series(m, metrics, x->metrics.at[i], unit_of(x->driver, x->metrics.at[i]), &cell->series[i]);
    yyjson_mut_val *errors = array(m, o, "errors");
    for (size_t i = 0; i < cell->error_count; i++) {
        yyjson_mut_val *e = item(m, errors);
        text(m, e, "reason", cell->errors[i].reason);
        whole(m, e, "count", (int64_t)cell->errors[i].count);
    }
}

static void put_facts(struct making *m, yyjson_mut_val *root, const struct pq_record_facts *f,
                      const struct pq_record *r)
{
    char started[32], finished[32];
    pq_clock_rfc3339(f->started_wall_ns, started, sizeof started);
    pq_clock_rfc3339(f->finished_wall_ns, finished, sizeof finished);
    whole(m, root, "schema", 1);
    text(m, root, "pqplane", f->version);
    m->failed |= !yyjson_mut_obj_add_uint(m->d, root, "seed", f->seed);
    text(m, root, "started", started);
    text(m, root, "finished", finished);
    m->failed |= !yyjson_mut_obj_add_bool(m->d, root, "complete", f->complete);
    m->failed |= !yyjson_mut_obj_add_bool(m->d, root, "quick", r->x->quick);
    put_experiment(m, root, r->x);
    struct pq_host_facts host;
    pq_host_facts(&host);
    yyjson_mut_val *h = object(m, root, "host");
    text(m, h, "cpu", host.cpu);
    whole(m, h, "cores", host.cores);
    text(m, h, "kernel", host.kernel);
    whole(m, h, "memory_kib", host.memory_kib);
    text(m, h, "distribution", host.distribution);
    text(m, h, "virtual", host.virtual_machine);
    yyjson_mut_val *l = object(m, root, "libraries");
    for (size_t i = 0; i < host.library_count; i++)
        text(m, l, host.libraries[i].name, host.libraries[i].version);
    text(m, root, "command", f->command);
    whole(m, root, "rounds", f->rounds);
}

static void put_all(struct making *m, yyjson_mut_val *root, const struct pq_record *r,
                    const struct pq_record_facts *facts)
{
    put_facts(m, root, facts, r);
    yyjson_mut_val *cells = array(m, root, "cells");
    for (size_t c = 0; c < r->x->cell_count; c++)
        put_cell(m, cells, r, c);
    yyjson_mut_val *calibration = array(m, root, "calibration");
    for (size_t i = 0; i < r->calibration_count; i++) {
        yyjson_mut_val *o = item(m, calibration);
        whole(m, o, "round", r->calibration[i].round);
        real(m, o, "at_ms", r->calibration[i].at_ms);
        real(m, o, "work_ms", r->calibration[i].work_ms);
        real(m, o, "steal_ms", r->calibration[i].steal_ms);
    }
    yyjson_mut_val *notes = array(m, root, "notes");
    for (size_t i = 0; i < r->note_count; i++)
        m->failed |= !yyjson_mut_arr_add_strcpy(m->d, notes, r->notes[i]);
}

int pq_record_json(const struct pq_record *r, const struct pq_record_facts *facts, char **out, size_t *len,
                   struct pq_why *why)
{
    struct making m = {yyjson_mut_doc_new(NULL), false};
    if (!m.d)
        return pq_why(why, PQ_E_NOMEM, "out of memory while writing results");
    yyjson_mut_val *root = object(&m, NULL, NULL);
    yyjson_mut_doc_set_root(m.d, root);
    put_all(&m, root, r, facts);
    yyjson_write_err err = {0};
    /* Texts that are not UTF-8 can only come from an experiment's file, which libfyaml has judged, or from a program's
     * last words, which are ASCII by then. */
    char *json = m.failed ? NULL : yyjson_mut_write_opts(m.d, YYJSON_WRITE_NEWLINE_AT_END, NULL, len, &err);
    yyjson_mut_doc_free(m.d);
    if (!json)
        return pq_why(why, PQ_E_NOMEM, "can't write results: %s", err.msg ? err.msg : "out of memory");
    *out = json;
    return 0;
}
