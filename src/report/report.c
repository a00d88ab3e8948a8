#include "report/report.h"

#include <string.h>
#include <sys/stat.h>

#include "base/file.h"

const struct pq_report_entry *pq_report_entry(const struct pq_report *r, size_t cell, size_t metric)
{
    return &r->entries[cell * r->metric_count + metric];
}

static void problem(struct pq_report *r, const char *what, const struct pq_why *why)
{
    if (r->problem_count < PQ_REPORT_PROBLEMS)
        pq_why(&r->problems[r->problem_count++], 0, "%s: %s", what, why->text);
}

static bool known_metric(const struct pq_report *r, const char *name)
{
    for (size_t i = 0; i < r->metric_count; i++)
        if (strcmp(r->metrics[i].name, name) == 0)
            return true;
    return false;
}

static int add_metric(struct pq_report *r, const char *name, const char *unit)
{
    if (r->metric_count == PQ_RESULTS_MAX_METRICS)
        return PQ_E_LIMIT;
    struct pq_report_metric *more = realloc(r->metrics, (r->metric_count + 1) * sizeof *more);
    if (!more)
        return PQ_E_NOMEM;
    r->metrics = more;
    r->metrics[r->metric_count++] = (struct pq_report_metric){name, unit};
    return 0;
}

/* A metric that some cell has, by name. */
static const struct pq_result_metric *any_metric(const struct pq_results *r, const char *name)
{
    const struct pq_result_metric *m = NULL;
    for (size_t i = 0; i < r->cell_count && !m; i++)
        m = pq_result_metric(&r->cells[i], name);
    return m;
}

static int list_metrics(struct pq_report *r)
{
    const struct pq_results *res = r->results;
    const struct pq_node *wanted = r->experiment ? pq_node_get(pq_document_root(r->experiment), "metrics") : NULL;
    for (size_t i = 0; wanted && pq_node_kind(wanted) == PQ_NODE_LIST && i < pq_node_count(wanted); i++) {
        const char *name = pq_node_text(pq_node_item(wanted, i));
        const struct pq_result_metric *m = name ? any_metric(res, name) : NULL;
        if (m && !known_metric(r, name))
            TRY(add_metric(r, m->name, m->unit));
    }
    for (size_t i = 0; i < res->cell_count; i++)
        for (size_t k = 0; k < res->cells[i].metric_count; k++) {
            const struct pq_result_metric *m = &res->cells[i].metrics[k];
            if (!known_metric(r, m->name))
                TRY(add_metric(r, m->name, m->unit));
        }
    return 0;
}

static int factor_named(struct pq_report *r, const char *name, struct pq_report_factor **out)
{
    size_t i = 0;
    while (i < r->factor_count && strcmp(r->factors[i].name, name) != 0)
        i++;
    if (i == PQ_RESULTS_MAX_FACTORS)
        return PQ_E_LIMIT;
    if (i == r->factor_count) {
        struct pq_report_factor *more = realloc(r->factors, (i + 1) * sizeof *more);
        if (!more)
            return PQ_E_NOMEM;
        r->factors = more;
        r->factors[r->factor_count++] = (struct pq_report_factor){.name = name};
    }
    *out = &r->factors[i];
    return 0;
}

static int add_value(struct pq_report_factor *f, const char *value)
{
    for (size_t i = 0; i < f->count; i++)
        if (strcmp(f->values[i], value) == 0)
            return 0;
    const char **more = realloc(f->values, (f->count + 1) * sizeof *more);
    if (!more)
        return PQ_E_NOMEM;
    f->values = more;
    f->values[f->count++] = value;
    return 0;
}

static int list_factors(struct pq_report *r)
{
    for (size_t i = 0; i < r->results->cell_count; i++) {
        struct pq_facts facts = r->results->cells[i].factors;
        for (size_t k = 0; k < facts.count; k++) {
            struct pq_report_factor *f;
            TRY(factor_named(r, facts.at[k].name, &f));
            TRY(add_value(f, facts.at[k].value));
        }
    }
    return 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int fill_entry(struct pq_report_entry *e, const struct pq_result_metric *m, uint64_t seed)
{
    TRY(pq_summarize(pq_result_samples(m), seed, &e->summary));
    DEFER(pq_freep) double *sorted = calloc(m->count, sizeof *sorted);
    if (!sorted)
        return PQ_E_NOMEM;
    memcpy(sorted, m->value, m->count * sizeof *sorted);
    qsort(sorted, m->count, sizeof *sorted, ascending);
    e->p5 = pq_quantile(sorted, m->count, 0.05);
    e->metric = m;
    e->has_interval = m->rounds >= PQ_ROUNDS_LEAST;
    return 0;
}

static int summarize(struct pq_report *r)
{
    const struct pq_results *res = r->results;
    r->entries = calloc(res->cell_count * r->metric_count + 1, sizeof *r->entries);
    if (!r->entries)
        return PQ_E_NOMEM;
    for (size_t i = 0; i < res->cell_count; i++)
        for (size_t k = 0; k < r->metric_count; k++) {
            struct pq_report_entry *e = &r->entries[i * r->metric_count + k];
            const struct pq_result_metric *m = pq_result_metric(&res->cells[i], r->metrics[k].name);
            if (m && m->count)
                TRY(fill_entry(e, m, res->seed));
        }
    return 0;
}

/* A document that can't be read is a problem that the report shows; only lack of memory ends it. */
static int read_document(struct pq_report *r, const char *name, const char *text, struct pq_document **out)
{
    struct pq_why why = {{0}};
    if (!text)
        return 0;
    int e = pq_document_parse(name, text, strlen(text), out, &why);
    if (e < 0 && e != PQ_E_NOMEM)
        problem(r, "can't be read", &why);
    return e == PQ_E_NOMEM ? e : 0;
}

static const char *text_in(const struct pq_document *d, const char *key, const char *otherwise)
{
    const struct pq_node *n = d && pq_document_root(d) ? pq_node_get(pq_document_root(d), key) : NULL;
    return n && pq_node_text(n) ? pq_node_text(n) : otherwise;
}

static int read_questions(struct pq_report *r)
{
    struct pq_why why = {{0}};
    if (!r->experiment)
        return 0;
    int e = pq_questions_read(pq_node_get(pq_document_root(r->experiment), "questions"), &r->questions, &why);
    if (e < 0 && e != PQ_E_NOMEM)
        problem(r, "the questions can't be answered", &why);
    return e == PQ_E_NOMEM ? e : 0;
}

static int answer_questions(struct pq_report *r)
{
    r->answers = calloc(r->questions.count + 1, sizeof *r->answers);
    if (!r->answers)
        return PQ_E_NOMEM;
    for (size_t i = 0; i < r->questions.count; i++)
        TRY(pq_question_answer(&r->questions.at[i], r->results, r->published ? pq_document_root(r->published) : NULL,
                               &r->answers[i]));
    return 0;
}

static int work_out(struct pq_report *r)
{
    const struct pq_results *res = r->results;
    TRY(read_document(r, "experiment", res->experiment_text, &r->experiment));
    TRY(read_document(r, "published", res->published_text, &r->published));
    r->title = text_in(r->experiment, "title", res->experiment);
    r->reason = text_in(r->experiment, "why", "");
    TRY(list_factors(r));
    TRY(list_metrics(r));
    TRY(summarize(r));
    TRY(read_questions(r));
    return answer_questions(r);
}

/* raw is taken over. */
static int make(const char *name, struct pq_buf *raw, struct pq_report **out, struct pq_why *why)
{
    DEFER(pq_report_freep) struct pq_report *r = calloc(1, sizeof *r);
    if (!r)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    r->raw = *raw;
    *raw = (struct pq_buf){.cap = raw->cap};
    r->path = strdup(name);
    if (!r->path)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    int e = pq_results_parse(pq_span(r->raw.at, r->raw.len), &r->results, why);
    if (e < 0)
        return pq_why_in(why, e, "%s", pq_short(name).text);
    e = work_out(r);
    if (e == PQ_E_LIMIT)
        return pq_why(why, PQ_E_CONFIG, "%s: more than %d different metrics or %d different factors",
                      pq_short(name).text, PQ_RESULTS_MAX_METRICS, PQ_RESULTS_MAX_FACTORS);
    if (e < 0)
        return pq_why(why, e, "%s: %s", pq_short(name).text, pq_error_text(e));
    *out = TAKE(r);
    return 0;
}

int pq_report_parse(const char *name, struct pq_span text, struct pq_report **out, struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf raw = {.cap = PQ_RESULTS_MAX_FILE};
    int e = pq_buf_append(&raw, text.at, text.len);
    if (e < 0)
        return pq_why(why, e, "%s: %s", pq_short(name).text, pq_error_text(e));
    return make(name, &raw, out, why);
}

int pq_report_open(const char *path, struct pq_report **out, struct pq_why *why)
{
    char inside[4096];
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        if (snprintf(inside, sizeof inside, "%s/results.json", path) >= (int)sizeof inside)
            return pq_why(why, PQ_E_TOO_LONG, "the path %s is too long", pq_short(path).text);
        path = inside;
    }
    DEFER(pq_buf_free) struct pq_buf raw = {.cap = PQ_RESULTS_MAX_FILE};
    int e = pq_file_read(path, &raw, why);
    if (e < 0)
        return e;
    return make(path, &raw, out, why);
}

void pq_report_free(struct pq_report *r)
{
    if (!r)
        return;
    for (size_t i = 0; r->answers && i < r->questions.count; i++)
        pq_answer_free(&r->answers[i]);
    for (size_t i = 0; i < r->factor_count; i++)
        free(r->factors[i].values);
    free(r->answers);
    free(r->entries);
    free(r->metrics);
    free(r->factors);
    pq_questions_free(&r->questions);
    pq_document_free(r->experiment);
    pq_document_free(r->published);
    pq_results_free(r->results);
    pq_buf_free(&r->raw);
    free(r->path);
    free(r);
}

size_t pq_report_primary(const struct pq_report *r, size_t cell)
{
    size_t first = r->metric_count;
    for (size_t k = 0; k < r->metric_count; k++) {
        if (!pq_report_entry(r, cell, k)->metric)
            continue;
        if (strcmp(r->metrics[k].name, "request_ms") == 0)
            return k;
        first = first == r->metric_count ? k : first;
    }
    return first;
}

void pq_report_cell_label(const struct pq_report *r, size_t cell, const char *skip, struct pq_out *out)
{
    struct pq_facts facts = r->results->cells[cell].factors;
    size_t said = 0;
    for (size_t i = 0; i < r->factor_count; i++) {
        const struct pq_report_factor *f = &r->factors[i];
        const char *value = pq_fact(facts, f->name);
        if (!value || f->count < 2 || (skip && strcmp(skip, f->name) == 0))
            continue;
        pq_out(out, said++ ? " · " : "");
        pq_out_clean(out, value, 40);
    }
    if (said)
        return;
    for (size_t i = 0; i < facts.count; i++) {
        pq_out(out, i ? " · " : "");
        pq_out_clean(out, facts.at[i].value, 40);
    }
    if (facts.count == 0)
        pq_out(out, "all");
}

uint64_t pq_report_cell_errors(const struct pq_result_cell *c)
{
    uint64_t n = 0;
    for (size_t i = 0; i < c->error_count; i++)
        if (__builtin_add_overflow(n, c->errors[i].count, &n))
            return UINT64_MAX;
    return n;
}
