#include "report/plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "report/axis.h"
#include "report/gnuplot.h"
#include "report/number.h"
#include "report/svg.h"

enum { SCRIPT_CAP = 64 << 20, PICTURE_CAP = 64 << 20, FOLD_FOR_LOG = 50, CURVE_STEPS = 200 };

/* The two shapes of a plot. A unit is a pixel on a page 860 and 340 pixels wide. */
struct shape {
    const char *class;
    bool phone;
    unsigned width, font, row, figures, label_most, height; /* height: of a plot without rows */
};
static const struct shape shapes[] = {
    {"desk", false, 860, 13, 24, 8, 52, 300},
    {"phone", true, 340, 12, 40, 5, 38, 260},
};

void pq_plot_range(struct pq_plot *p)
{
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < p->count; i++) {
        const struct pq_report_entry *e = p->rows[i].entry;
        low = fmin(low, fmin(e->p5, e->summary.median_ci.low));
        high = fmax(high, fmax(e->summary.p99, e->summary.median_ci.high));
    }
    if (p->count == 0)
        low = high = 0;
    p->logarithmic = low > 0 && high > FOLD_FOR_LOG * low;
    if (p->logarithmic) {
        p->low = low / 1.15;
        p->high = high * 1.15;
        return;
    }
    double span = high - low;
    if (!(span > 0))
        span = fabs(high) > 0 ? fabs(high) / 5 : 1;
    bool from_zero = low >= 0 && low < 0.4 * high;
    p->low = from_zero ? 0 : low - 0.05 * span;
    p->high = high + 0.05 * span;
}

size_t pq_plot_beyond(const struct pq_plot *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->count; i++) {
        const struct pq_result_metric *m = p->rows[i].entry->metric;
        for (size_t k = 0; k < m->count; k++)
            n += m->value[k] < p->low || m->value[k] > p->high;
    }
    return n;
}

/* --- a drawing: one shape of one plot
 * ------------------------------------------------------------------------------------ */

struct drawing {
    const struct shape *shape;
    struct pq_out script;
    struct pq_labels labels;
    unsigned height;
};

static void drawing_free(struct drawing *d)
{
    pq_out_free(&d->script);
    pq_labels_free(&d->labels);
}

static double clamp(double v, double low, double high) { return v < low ? low : v > high ? high : v; }

/* Margins in pixels of the picture. */
struct margins {
    double left, right, top, bottom;
};

static void begin(struct drawing *d, struct margins m)
{
    double w = d->shape->width, h = d->height;
    pq_outf(&d->script,
            "set terminal svg size %u,%u dynamic noenhanced font \",%u\"\n"
            "set encoding utf8\nunset key\nunset ytics\n"
            "set border 1 lc rgb 0x%06x\n"
            "set lmargin at screen %.5f\nset rmargin at screen %.5f\nset tmargin at screen %.5f\nset bmargin at screen "
            "%.5f\n",
            d->shape->width, d->height, d->shape->font, PQ_INK(PQ_INK_AXIS, 0), m.left / w, 1 - m.right / w,
            1 - m.top / h, m.bottom / h);
}

static void value_axis(struct drawing *d, const char *unit, struct pq_axis axis)
{
    char words[96];
    axis.most = d->shape->figures;
    pq_axis_write(&axis, 'x', &d->script);
    snprintf(words, sizeof words, "%s%s", pq_short(unit).text, axis.logarithmic ? " (logarithmic scale)" : "");
    pq_outf(&d->script,
            "set xtics textcolor rgb 0x%06x\nset grid xtics lt 1 lw 1 lc rgb 0x%06x\n"
            "set label \"%s\" at graph 0.5, screen %.4f center textcolor rgb 0x%06x\n",
            PQ_INK(PQ_INK_TEXT, 1), PQ_INK(PQ_INK_GRID, 0), pq_labels_add(&d->labels, words, 80).text, 10.0 / d->height,
            PQ_INK(PQ_INK_TEXT, 1));
}

/* across: as a share of the plot's width; at: on the axis of rows. */
static void text_at(struct drawing *d, const char *text, size_t max, double across, double at, const char *align,
                    unsigned ink)
{
    pq_outf(&d->script, "set label \"%s\" at graph %.4f, first %.4f %s textcolor rgb 0x%06x\n",
            pq_labels_add(&d->labels, text, max).text, across, at, align, PQ_INK(PQ_INK_TEXT, ink));
}

static int finish(struct drawing *d, const struct pq_frame *frame, struct pq_out *out, struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf picture = {.cap = PICTURE_CAP};
    struct pq_frame f = *frame;
    char id[64];
    snprintf(id, sizeof id, "%s-%s", frame->id, d->shape->class);
    f.id = id;
    f.class = d->shape->class;
    f.width = d->shape->width;
    f.height = d->height;
    TRY(d->script.error);
    TRY(d->labels.error);
    TRY(pq_gnuplot(pq_span(d->script.buf.at, d->script.buf.len), &picture, why));
    pq_svg_rewrite(pq_span(picture.at, picture.len), &d->labels, &f, out);
    return out->error;
}

/* --- rows of distributions
 * --------------------------------------------------------------------------------------------------- */

static void dots(const struct pq_plot *p, struct drawing *d)
{
    pq_out(&d->script, "$dots << EOD\n");
    for (size_t i = 0; i < p->count; i++) {
        const struct pq_result_metric *m = p->rows[i].entry->metric;
        struct pq_rng rng = pq_rng(p->seed + i);
        size_t wanted = m->count < PQ_PLOT_DOTS ? m->count : PQ_PLOT_DOTS, taken = 0;
        /* Selection sampling: each sample is as likely as any other, and they stay in order. */
        for (size_t k = 0; k < m->count && taken < wanted; k++) {
            if (pq_rng_below(&rng, m->count - k) >= wanted - taken)
                continue;
            taken++;
            double up = pq_rng_unit(&rng) - 0.5;
            if (m->value[k] >= p->low && m->value[k] <= p->high)
                pq_outf(&d->script, "%.9g %.3f %u\n", m->value[k], (double)(i + 1) + up * (d->shape->phone ? 0.3 : 0.5),
                        PQ_INK(PQ_INK_POINT, p->rows[i].colour));
        }
    }
    pq_out(&d->script, "EOD\n");
}

/* A horizontal stroke per row, or a vertical one where from equals to. */
static void strokes(const struct pq_plot *p, struct drawing *d, enum pq_ink ink)
{
    double tall = d->shape->phone ? 0.2 : 0.34;
    pq_outf(&d->script, "$ink%d << EOD\n", (int)ink);
    for (size_t i = 0; i < p->count; i++) {
        const struct pq_report_entry *e = p->rows[i].entry;
        const struct pq_summary *s = &e->summary;
        struct pq_interval x = ink == PQ_INK_WHISKER    ? (struct pq_interval){e->p5, s->p95}
                               : ink == PQ_INK_INTERVAL ? s->median_ci
                                                        : (struct pq_interval){s->median, s->median};
        double from = clamp(x.low, p->low, p->high), to = clamp(x.high, p->low, p->high),
               up = ink == PQ_INK_MEDIAN ? tall : 0;
        if (ink == PQ_INK_INTERVAL && !e->has_interval)
            continue;
        pq_outf(&d->script, "%.9g %.4f %.9g %.4f %u\n", from, (double)(i + 1) - up, to - from, 2 * up,
                PQ_INK(ink, p->rows[i].colour));
    }
    pq_out(&d->script, "EOD\n");
}

static void boxes(const struct pq_plot *p, struct drawing *d)
{
    double tall = d->shape->phone ? 0.16 : 0.28;
    pq_out(&d->script, "$box << EOD\n");
    for (size_t i = 0; i < p->count; i++) {
        const struct pq_summary *s = &p->rows[i].entry->summary;
        pq_outf(&d->script, "%.9g %zu %.9g %.9g %.4f %.4f %u\n", clamp(s->median, p->low, p->high), i + 1,
                clamp(s->q1, p->low, p->high), clamp(s->q3, p->low, p->high), (double)(i + 1) - tall,
                (double)(i + 1) + tall, PQ_INK(PQ_INK_BOX, p->rows[i].colour));
    }
    pq_out(&d->script, "EOD\n");
}

static void row_labels(const struct pq_plot *p, struct drawing *d)
{
    for (size_t i = 0; i < p->count; i++) {
        const struct pq_report_entry *e = p->rows[i].entry;
        struct pq_number value = pq_number(e->summary.median, pq_decimals(e->summary.median));
        double at = (double)(i + 1);
        if (d->shape->phone) {
            text_at(d, p->rows[i].label, d->shape->label_most, 0, at - 0.42, "left", 0);
            text_at(d, value.text, 20, 1, at - 0.42, "right", 1);
        } else {
            text_at(d, p->rows[i].label, d->shape->label_most, -0.012, at, "right", 0);
            text_at(d, value.text, 20, 1.012, at, "left", 1);
        }
    }
}

static size_t characters(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += (*text & 0xc0) != 0x80;
    return n;
}

static struct margins row_margins(const struct pq_plot *p, const struct shape *s)
{
    size_t widest = 0;
    for (size_t i = 0; i < p->count; i++) {
        size_t n = characters(p->rows[i].label);
        n = n > s->label_most ? s->label_most : n;
        widest = n > widest ? n : widest;
    }
    if (s->phone)
        return (struct margins){14, 14, 6, 46};
    return (struct margins){16 + 0.52 * s->font * (double)widest, 74, 6, 46};
}

static int draw_rows(const struct pq_plot *p, const struct shape *s, struct pq_out *out, struct pq_why *why)
{
    DEFER(drawing_free)
    struct drawing d = {.shape = s, .script.buf.cap = SCRIPT_CAP, .height = 52 + s->row * (unsigned)p->count};
    begin(&d, row_margins(p, s));
    value_axis(&d, p->unit, (struct pq_axis){p->low, p->high, p->logarithmic, 0});
    pq_outf(&d.script, "set yrange [%zu.5:%.1f]\n", p->count, s->phone ? 0.3 : 0.5);
    row_labels(p, &d);
    dots(p, &d);
    boxes(p, &d);
    strokes(p, &d, PQ_INK_WHISKER);
    strokes(p, &d, PQ_INK_INTERVAL);
    strokes(p, &d, PQ_INK_MEDIAN);
    pq_outf(&d.script,
            "plot $ink%d using 1:2:3:4:5 with vectors nohead lc rgb variable, "
            "$box using 1:2:3:4:5:6:7 with boxxyerror fs solid noborder lc rgb variable, "
            "$dots using 1:2:3 with dots lc rgb variable, "
            "$ink%d using 1:2:3:4:5 with vectors nohead lc rgb variable, "
            "$ink%d using 1:2:3:4:5 with vectors nohead lc rgb variable\n",
            PQ_INK_WHISKER, PQ_INK_INTERVAL, PQ_INK_MEDIAN);
    return finish(&d, &(struct pq_frame){NULL, p->id, p->title, p->description, 0, 0}, out, why);
}

int pq_plot_rows(const struct pq_plot *p, struct pq_out *out, struct pq_why *why)
{
    for (size_t i = 0; i < PQ_COUNT(shapes); i++)
        TRY(draw_rows(p, &shapes[i], out, why));
    return 0;
}

/* --- cumulative distributions
 * ------------------------------------------------------------------------------------------------ */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int curve(const struct pq_plot *p, size_t i, struct drawing *d)
{
    const struct pq_result_metric *m = p->rows[i].entry->metric;
    DEFER(pq_freep) double *sorted = calloc(m->count, sizeof *sorted);
    if (!sorted)
        return PQ_E_NOMEM;
    memcpy(sorted, m->value, m->count * sizeof *sorted);
    qsort(sorted, m->count, sizeof *sorted, ascending);
    pq_outf(&d->script, "$curve%zu << EOD\n", i);
    for (size_t k = 0; k <= CURVE_STEPS; k++) {
        double q = (double)k / CURVE_STEPS, v = pq_quantile(sorted, m->count, q);
        if (v >= p->low && v <= p->high)
            pq_outf(&d->script, "%.9g %.4f\n", v, 100 * q);
    }
    pq_out(&d->script, "EOD\n");
    return 0;
}

static void share_axis(struct drawing *d)
{
    pq_axis_write(&(struct pq_axis){0, 100, false, 5}, 'y', &d->script);
    pq_outf(&d->script, "set ytics textcolor rgb 0x%06x\nset grid xtics ytics lt 1 lw 1 lc rgb 0x%06x\n",
            PQ_INK(PQ_INK_TEXT, 1), PQ_INK(PQ_INK_GRID, 0));
    pq_outf(&d->script, "set label \"%s\" at graph 0, screen %.4f left textcolor rgb 0x%06x\n",
            pq_labels_add(&d->labels, "% of samples at or below", 60).text, 1 - 12.0 / d->height,
            PQ_INK(PQ_INK_TEXT, 1));
}

static int draw_cumulative(const struct pq_plot *p, const struct shape *s, struct pq_out *out, struct pq_why *why)
{
    DEFER(drawing_free) struct drawing d = {.shape = s, .script.buf.cap = SCRIPT_CAP, .height = s->height};
    begin(&d, (struct margins){36, 16, 28, 46});
    value_axis(&d, p->unit, (struct pq_axis){p->low, p->high, p->logarithmic, 0});
    share_axis(&d);
    for (size_t i = 0; i < p->count; i++)
        TRY(curve(p, i, &d));
    for (size_t i = 0; i < p->count; i++)
        pq_outf(&d.script, "%s$curve%zu using 1:2 with lines lt 1 lc rgb 0x%06x", i ? ", " : "plot ", i,
                PQ_INK(PQ_INK_LINE, p->rows[i].colour));
    pq_out(&d.script, "\n");
    return finish(&d, &(struct pq_frame){NULL, p->id, p->title, p->description, 0, 0}, out, why);
}

int pq_plot_cumulative(const struct pq_plot *p, struct pq_out *out, struct pq_why *why)
{
    for (size_t i = 0; i < PQ_COUNT(shapes); i++)
        TRY(draw_cumulative(p, &shapes[i], out, why));
    return 0;
}

/* --- a course over rounds
 * ------------------------------------------------------------------------------------------------------ */

static struct pq_axis around(const double *v, size_t count)
{
    double low = v[0], high = v[0];
    for (size_t i = 1; i < count; i++) {
        low = fmin(low, v[i]);
        high = fmax(high, v[i]);
    }
    double span = high - low > 0 ? high - low : fabs(high) > 0 ? fabs(high) / 5 : 1;
    /* Drift is judged against the whole: the axis covers at least a fifth of the value. */
    if (span < 0.2 * fabs(high))
        span = 0.2 * fabs(high);
    double middle = (low + high) / 2;
    return (struct pq_axis){low >= 0 && middle < 0.6 * span ? 0 : middle - 0.6 * span, middle + 0.6 * span, false, 4};
}

static int draw_course(const struct pq_plot_course *p, const struct shape *s, struct pq_out *out, struct pq_why *why)
{
    DEFER(drawing_free) struct drawing d = {.shape = s, .script.buf.cap = SCRIPT_CAP, .height = s->height * 2 / 3};
    struct pq_axis y = around(p->value, p->count);
    begin(&d, (struct margins){52, 16, 28, 46});
    value_axis(&d, "round",
               (struct pq_axis){p->round[0],
                                p->round[p->count - 1] > p->round[0] ? p->round[p->count - 1] : p->round[0] + 1, false,
                                0});
    pq_axis_write(&y, 'y', &d.script);
    pq_outf(&d.script, "set ytics textcolor rgb 0x%06x\nset grid ytics lt 1 lw 1 lc rgb 0x%06x\n",
            PQ_INK(PQ_INK_TEXT, 1), PQ_INK(PQ_INK_GRID, 0));
    pq_outf(&d.script, "set label \"%s\" at graph 0, screen %.4f left textcolor rgb 0x%06x\n$course << EOD\n",
            pq_labels_add(&d.labels, p->unit, 60).text, 1 - 12.0 / d.height, PQ_INK(PQ_INK_TEXT, 1));
    for (size_t i = 0; i < p->count; i++)
        pq_outf(&d.script, "%.9g %.9g\n", p->round[i], p->value[i]);
    pq_outf(&d.script,
            "EOD\nplot $course using 1:2 with lines lt 1 lc rgb 0x%06x, $course using 1:2 with dots lc rgb 0x%06x\n",
            PQ_INK(PQ_INK_LINE, 0), PQ_INK(PQ_INK_POINT, 0));
    return finish(&d, &(struct pq_frame){NULL, p->id, p->title, p->description, 0, 0}, out, why);
}

int pq_plot_course(const struct pq_plot_course *p, struct pq_out *out, struct pq_why *why)
{
    for (size_t i = 0; p->count && i < PQ_COUNT(shapes); i++)
        TRY(draw_course(p, &shapes[i], out, why));
    return 0;
}
