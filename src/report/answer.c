#include "report/answer.h"

#include <math.h>
#include <string.h>

#include "report/metric.h"
#include "report/number.h"
#include "report/quantity.h"

enum { TEXT_CAP = 64 << 10 };

const char *pq_verdict_text(enum pq_verdict v)
{
    static const char *const texts[] = {"holds", "fails", "undecided", "not measured"};
    return texts[v];
}

const char *pq_answer_label(const struct pq_answer *a)
{
    static const char *const labels[][2] = {
        [PQ_QUESTION_RATIO] = {"within limit", "beyond limit"},
        [PQ_QUESTION_DIFFERENCE] = {"within limit", "beyond limit"},
        [PQ_QUESTION_REACHES] = {"reached", "not reached"},
        [PQ_QUESTION_VARIES] = {"differs", "no difference"},
    };
    return a->verdict <= PQ_FAILS ? labels[a->kind][a->verdict] : pq_verdict_text(a->verdict);
}

void pq_answer_free(struct pq_answer *a)
{
    free(a->finding);
    free(a->figures);
    free(a->published_key);
    *a = (struct pq_answer){0};
}

/* What is being written about one question. */
struct writing {
    const struct pq_question *q;
    const struct pq_results *r;
    const struct pq_node *published;
    struct pq_out finding, figures;
    enum pq_verdict verdict;
    char *published_key;
};

static void writing_free(struct writing *w)
{
    pq_out_free(&w->finding);
    pq_out_free(&w->figures);
    free(w->published_key);
}

/* The question's own sentence where it has one for this verdict, else ours. */
static void conclude(struct writing *w, enum pq_verdict verdict, const char *ours)
{
    const char *own = verdict == PQ_HOLDS ? w->q->holds : verdict == PQ_FAILS ? w->q->fails : NULL;
    w->verdict = verdict;
    if (own)
        pq_out_clean(&w->finding, own, PQ_TEXT_ALL);
    else
        pq_out(&w->finding, ours);
}

static int not_measured(struct writing *w, const struct pq_why *missing)
{
    conclude(w, PQ_NOT_MEASURED, "");
    pq_outf(&w->finding, "Not measured here: %s.", missing->text);
    return 0;
}

static int too_few_rounds(struct writing *w)
{
    conclude(w, PQ_UNDECIDED, "Undecided: too few rounds were measured.");
    pq_outf(&w->figures, "\nFewer than %d rounds give no interval.", PQ_ROUNDS_LEAST);
    return 0;
}

static void write_limits(struct writing *w, const char *unit)
{
    const struct pq_question *q = w->q;
    pq_out(&w->figures, "; limit: ");
    if (q->has_at_least)
        pq_outf(&w->figures, "at least %s%s", pq_number_exact(q->at_least).text, unit);
    if (q->has_at_most)
        pq_outf(&w->figures, "%sat most %s%s", q->has_at_least ? " and " : "", pq_number_exact(q->at_most).text, unit);
    if (q->has_or_contains)
        pq_outf(&w->figures, ", or an interval that contains %s", pq_number_exact(q->or_contains).text);
}

static bool value_within(const struct pq_question *q, double v)
{
    return (!q->has_at_most || v <= q->at_most) && (!q->has_at_least || v >= q->at_least);
}

static bool wholly_outside(const struct pq_question *q, struct pq_interval ci)
{
    return (q->has_at_most && ci.low > q->at_most) || (q->has_at_least && ci.high < q->at_least);
}

struct ratio_shape {
    size_t of, to; /* terms of each */
};

static double side(const double *medians, size_t terms) { return terms == 2 ? medians[0] - medians[1] : medians[0]; }

static double ratio(const double *medians, const void *context)
{
    const struct ratio_shape *s = context;
    return side(medians, s->of) / side(medians + s->of, s->to);
}

static void write_side(struct writing *w, const struct pq_quantity *q, const struct pq_measured *m)
{
    pq_quantity_label(q, &w->figures);
    pq_out(&w->figures, ": ");
    pq_measured_text(m, q->minus != NULL, &w->figures);
}

static int measure_ratio(const struct writing *w, const struct pq_terms *of, const struct pq_terms *to,
                         struct pq_measured *out)
{
    struct pq_samples s[4] = {{0}};
    struct ratio_shape shape = {of->count, to->count};
    for (size_t i = 0; i < of->count; i++)
        s[i] = pq_result_samples(of->at[i]);
    // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): terms are filled or the answer ended before
    for (size_t i = 0; i < to->count; i++)
        s[of->count + i] = pq_result_samples(to->at[i]);
    *out = (struct pq_measured){.unit = "", .has_interval = pq_terms_have_interval(of) && pq_terms_have_interval(to)};
    return pq_bootstrap(s, of->count + to->count, ratio, &shape, w->r->seed, &out->estimate);
}

static void conclude_ratio(struct writing *w, const struct pq_measured *m)
{
    const struct pq_question *q = w->q;
    bool within = value_within(q, m->estimate.value);
    if (within && !(value_within(q, m->estimate.ci.low) && value_within(q, m->estimate.ci.high)))
        pq_out(&w->figures, "; the interval reaches beyond it");
    if (within || (q->has_or_contains && pq_interval_contains(m->estimate.ci, q->or_contains)))
        conclude(w, PQ_HOLDS,
                 within ? "The ratio is within what the question allows."
                        : "No difference that the question would count was found.");
    else if (wholly_outside(q, m->estimate.ci))
        conclude(w, PQ_FAILS, "The ratio is beyond what the question allows.");
    else
        conclude(w, PQ_UNDECIDED, "Undecided: the ratio's interval contains the limit.");
}

static int answer_ratio(struct writing *w)
{
    struct pq_terms of, to;
    struct pq_measured m_of, m_to, m;
    struct pq_why missing = {{0}};
    int e = pq_terms_find(&w->q->of, w->r, &of, &missing);
    if (e == 0)
        e = pq_terms_find(&w->q->to, w->r, &to, &missing);
    if (e < 0)
        return e == PQ_E_NOT_FOUND ? not_measured(w, &missing) : e;
    TRY(pq_quantity_measure(&w->q->of, w->r, &m_of, &missing));
    TRY(pq_quantity_measure(&w->q->to, w->r, &m_to, &missing));
    write_side(w, &w->q->of, &m_of);
    pq_out(&w->figures, "\n");
    write_side(w, &w->q->to, &m_to);
    /* A limit on a ratio turns round where the divisor changes its sign. */
    if (m_to.estimate.value <= 0 || (m_to.has_interval && m_to.estimate.ci.low <= 0)) {
        bool below = m_to.estimate.value < 0 && (!m_to.has_interval || m_to.estimate.ci.high < 0);
        conclude(w, PQ_UNDECIDED,
                 below ? "Undecided: what is divided by is below zero, and a ratio needs a divisor above zero."
                       : "Undecided: what is divided by can't be told from zero.");
        if (m_to.has_interval)
            pq_out(&w->figures, "\nThe divisor's interval is not wholly above zero, so no ratio is judged.");
        return 0;
    }
    TRY(measure_ratio(w, &of, &to, &m));
    pq_out(&w->figures, "\nRatio: ");
    pq_measured_text(&m, false, &w->figures);
    write_limits(w, "");
    if (!m.has_interval)
        return too_few_rounds(w);
    conclude_ratio(w, &m);
    return 0;
}

static int answer_difference(struct writing *w)
{
    const struct pq_question *q = w->q;
    struct pq_measured m;
    struct pq_why missing = {{0}};
    int e = pq_quantity_measure(&q->of, w->r, &m, &missing);
    if (e < 0)
        return e == PQ_E_NOT_FOUND ? not_measured(w, &missing) : e;
    DEFER(pq_out_free) struct pq_out unit = {.buf.cap = 1000};
    pq_out(&unit, m.unit[0] ? PQ_NBSP : "");
    pq_out_clean(&unit, m.unit, 60);
    TRY(unit.error);
    write_side(w, &q->of, &m);
    if (m.has_interval && pq_interval_contains(m.estimate.ci, 0))
        pq_out(&w->figures, ", which includes zero: no difference is shown");
    write_limits(w, pq_out_text(&unit));
    if (!m.has_interval)
        return too_few_rounds(w);
    if (value_within(q, m.estimate.ci.low) && value_within(q, m.estimate.ci.high))
        conclude(w, PQ_HOLDS, "The whole interval is within what the question allows.");
    else if (wholly_outside(q, m.estimate.ci))
        conclude(w, PQ_FAILS, "The whole interval is beyond what the question allows.");
    else
        conclude(w, PQ_UNDECIDED, "Undecided: the interval contains the limit.");
    return 0;
}

/* Where a factor of 2 around a positive range lies; a range that is not positive can't be stretched by a factor. */
static struct pq_interval stretched(const struct pq_published *p, double factor)
{
    if (p->low <= 0)
        return (struct pq_interval){p->low, p->high};
    return (struct pq_interval){p->low / factor, p->high * factor};
}

static void write_published(struct writing *w, const struct pq_published *p, struct pq_interval range)
{
    pq_out(&w->figures, "Published (");
    pq_out_clean(&w->figures, p->key, 80);
    pq_outf(&w->figures, "): %s", pq_number_exact(p->low).text);
    if (p->high > p->low)
        pq_outf(&w->figures, " to %s", pq_number_exact(p->high).text);
    pq_out(&w->figures, p->unit[0] ? " " : "");
    pq_out_clean(&w->figures, p->unit, 60);
    if (w->q->within_factor > 1)
        pq_outf(&w->figures, "; within a factor %s: %s to %s", pq_number_exact(w->q->within_factor).text,
                pq_number_exact(range.low).text, pq_number_exact(range.high).text);
}

struct tally {
    struct pq_out names; /* of the options that reach it */
    size_t reached, measured, without_interval;
};

static void tally_free(struct tally *t) { pq_out_free(&t->names); }

static int try_option(struct writing *w, const struct pq_option *o, struct pq_interval range, struct tally *t)
{
    struct pq_measured m;
    struct pq_why missing = {{0}};
    int e = pq_quantity_measure(&o->quantity, w->r, &m, &missing);
    if (e < 0 && e != PQ_E_NOT_FOUND)
        return e;
    pq_out(&w->figures, "\n");
    pq_out_clean(&w->figures, o->name, 120);
    pq_out(&w->figures, ": ");
    if (e < 0) {
        pq_outf(&w->figures, "not measured here (%s)", missing.text);
        return 0;
    }
    pq_measured_text(&m, o->quantity.minus != NULL, &w->figures);
    bool reaches = m.has_interval && pq_intervals_overlap(m.estimate.ci, range);
    t->measured++;
    t->without_interval += !m.has_interval;
    if (reaches) {
        pq_out(&t->names, t->reached++ ? "; " : "");
        pq_out_clean(&t->names, o->name, 120);
    }
    pq_out(&w->figures, !m.has_interval ? ", too few rounds" : reaches ? ", reaches it" : ", does not");
    return 0;
}

static void conclude_reached(struct writing *w, const struct tally *t)
{
    conclude(w, PQ_HOLDS, "The published figure is reached here with: ");
    if (w->q->holds)
        return;
    pq_out(&w->finding, pq_out_text(&t->names));
    pq_out(&w->finding, ".");
    if (t->names.error && w->finding.error == 0)
        w->finding.error = t->names.error;
}

static int answer_reaches(struct writing *w)
{
    const struct pq_question *q = w->q;
    struct pq_published p;
    DEFER(tally_free) struct tally t = {.names.buf.cap = TEXT_CAP};
    int e = w->published ? pq_published_find(w->published, q->published, &p) : PQ_E_NOT_FOUND;
    if (e == PQ_E_NOMEM)
        return e;
    if (e < 0) {
        struct pq_why missing;
        pq_why(&missing, e, "the published figures have no single \"%s\"", pq_short(q->published).text);
        return not_measured(w, &missing);
    }
    w->published_key = strdup(p.key);
    if (!w->published_key)
        return PQ_E_NOMEM;
    struct pq_interval range = stretched(&p, q->within_factor);
    write_published(w, &p, range);
    for (size_t i = 0; i < q->option_count; i++)
        TRY(try_option(w, &q->options[i], range, &t));
    if (t.measured == 0)
        conclude(w, PQ_NOT_MEASURED, "Not measured here.");
    else if (t.reached)
        conclude_reached(w, &t);
    else if (t.measured < q->option_count || t.without_interval)
        conclude(w, PQ_UNDECIDED, "Undecided: none that was measured reaches the published figure, and not all were.");
    else
        conclude(w, PQ_FAILS, "None of the options reaches the published figure here.");
    return 0;
}

/* The largest distance of any two resampled differences from the measured ones: its upper quantile around the largest
 * difference makes an interval that is wide enough for all pairs at once (Tukey), so that choosing the largest pair
 * afterwards does not turn chance into a finding. */
struct spread {
    const double *medians; /* NULL: the largest difference itself */
    size_t count;
};

static double largest_gap(const double *medians, const void *context)
{
    const struct spread *s = context;
    double largest = 0;
    for (size_t i = 0; i < s->count; i++)
        for (size_t k = 0; k < i; k++) {
            double gap = medians[i] - medians[k];
            if (s->medians)
                gap -= s->medians[i] - s->medians[k];
            largest = fabs(gap) > largest ? fabs(gap) : largest;
        }
    return largest;
}

struct varying {
    struct pq_samples samples[PQ_QUESTION_CELLS_MAX];
    double medians[PQ_QUESTION_CELLS_MAX];
    size_t count, low, high;
    struct pq_measured largest;
};

static double first(const double *medians, const void *context)
{
    (void)context;
    return medians[0];
}

static int collect(const struct writing *w, struct varying *v, struct pq_why *missing)
{
    v->largest.has_interval = true;
    for (; v->count < w->q->option_count; v->count++) {
        struct pq_terms t;
        struct pq_estimate median;
        TRY(pq_terms_find(&w->q->options[v->count].quantity, w->r, &t, missing));
        v->samples[v->count] = pq_result_samples(t.at[0]);
        v->largest.unit = t.at[0]->unit;
        v->largest.has_interval &= pq_terms_have_interval(&t);
        TRY(pq_bootstrap(&v->samples[v->count], 1, first, NULL, w->r->seed, &median));
        v->medians[v->count] = median.value;
        if (median.value < v->medians[v->low])
            v->low = v->count;
        if (median.value > v->medians[v->high])
            v->high = v->count;
    }
    struct pq_estimate distance;
    double gap = v->medians[v->high] - v->medians[v->low];
    TRY(pq_bootstrap(v->samples, v->count, largest_gap, &(struct spread){v->medians, v->count}, w->r->seed, &distance));
    v->largest.estimate = (struct pq_estimate){gap, {gap - distance.ci.high, gap + distance.ci.high}};
    return 0;
}

static void write_option(struct writing *w, size_t i)
{
    const struct pq_option *o = &w->q->options[i];
    if (o->name)
        pq_out_clean(&w->figures, o->name, 120);
    else
        pq_cell_label(o->quantity.cell, &w->figures);
}

static int answer_varies(struct writing *w)
{
    struct varying v = {0};
    struct pq_why missing = {{0}};
    int e = collect(w, &v, &missing);
    if (e < 0)
        return e == PQ_E_NOT_FOUND ? not_measured(w, &missing) : e;
    pq_metric_title(w->q->options[0].quantity.metric, &w->figures);
    pq_out(&w->figures, ", medians: ");
    for (size_t i = 0; i < v.count; i++) {
        pq_out(&w->figures, i ? ", " : "");
        write_option(w, i);
        pq_outf(&w->figures, " %s", pq_number(v.medians[i], pq_decimals(v.medians[v.high]) + 1).text);
    }
    pq_out(&w->figures, v.largest.unit[0] ? PQ_NBSP : "");
    pq_out_clean(&w->figures, v.largest.unit, 60);
    pq_out(&w->figures, "\nLargest difference, ");
    write_option(w, v.high);
    pq_out(&w->figures, " less ");
    write_option(w, v.low);
    pq_out(&w->figures, ": ");
    pq_measured_text(&v.largest, true, &w->figures);
    if (!v.largest.has_interval)
        return too_few_rounds(w);
    bool varies = v.largest.estimate.ci.low > 0;
    pq_out(&w->figures, varies ? "" : ", which includes zero: no difference is shown");
    conclude(w, varies ? PQ_HOLDS : PQ_FAILS, varies ? "It varies." : "No difference between any two was shown.");
    return 0;
}

static char *keep(const struct pq_out *o) { return o->error ? NULL : strdup(pq_out_text(o)); }

int pq_question_answer(const struct pq_question *q, const struct pq_results *r, const struct pq_node *published,
                       struct pq_answer *out)
{
    static int (*const answer[])(struct writing *) = {
        [PQ_QUESTION_RATIO] = answer_ratio,
        [PQ_QUESTION_DIFFERENCE] = answer_difference,
        [PQ_QUESTION_REACHES] = answer_reaches,
        [PQ_QUESTION_VARIES] = answer_varies,
    };
    DEFER(writing_free)
    struct writing w = {
        .q = q, .r = r, .published = published, .finding.buf.cap = TEXT_CAP, .figures.buf.cap = TEXT_CAP};
    TRY(answer[q->kind](&w));
    DEFER(pq_answer_free)
    struct pq_answer a = {.kind = q->kind, .verdict = w.verdict, .ask = q->ask, .because = q->because};
    a.finding = keep(&w.finding);
    a.figures = keep(&w.figures);
    a.published_key = TAKE(w.published_key);
    if (!a.finding || !a.figures)
        return PQ_E_NOMEM;
    *out = a;
    a = (struct pq_answer){0};
    return 0;
}
