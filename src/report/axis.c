#include "report/axis.h"

#include <math.h>

#include "base/cleanup.h"
#include "report/number.h"

/* The step that gives at most `most` figures. */
static double step_of(double span, unsigned most)
{
    double raw = span / most, power = pow(10, floor(log10(raw)));
    static const double steps[] = {1, 2, 5, 10};
    size_t i = 0;
    while (i < 3 && steps[i] * power < raw)
        i++;
    return steps[i] * power;
}

static int decimals_of_step(double step)
{
    int d = (int)ceil(-log10(step) - 1e-9);
    return d < 0 ? 0 : d > 12 ? 12 : d;
}

static void tic(struct pq_out *out, size_t *said, double v, int decimals)
{
    v = v == 0 ? 0 : v; /* no "-0" */
    pq_outf(out, "%s\"%s\" %.17g", (*said)++ ? ", " : "", pq_number(v, decimals).text, v);
}

static void linear(const struct pq_axis *a, struct pq_out *out)
{
    double step = step_of(a->high - a->low, a->most ? a->most : 1);
    size_t said = 0;
    for (double k = ceil(a->low / step - 1e-9); k * step <= a->high + step * 1e-9 && said < 50; k++)
        tic(out, &said, k * step, decimals_of_step(step));
}

static const double of_decade[] = {1, 2, 5};

struct decades {
    int first, last, stride;
    size_t each; /* how many of of_decade */
};

/* Writes the figures that lie on the axis, or counts them where out is NULL. */
static size_t logarithmic(const struct pq_axis *a, struct decades d, struct pq_out *out)
{
    size_t said = 0;
    for (int decade = d.first; decade <= d.last; decade += d.stride)
        for (size_t i = 0; i < d.each; i++) {
            double v = of_decade[i] * pow(10, decade);
            if (v < a->low * (1 - 1e-9) || v > a->high * (1 + 1e-9))
                continue;
            if (out)
                tic(out, &said, v, decade < 0 ? -decade : 0);
            else
                said++;
        }
    return said;
}

static struct decades decades_of(const struct pq_axis *a)
{
    struct decades d = {(int)floor(log10(a->low)), (int)ceil(log10(a->high)), 1, PQ_COUNT(of_decade)};
    if (logarithmic(a, d, NULL) > a->most + 1)
        d.each = 1;
    while (logarithmic(a, d, NULL) > a->most + 1)
        d.stride++;
    return d;
}

void pq_axis_write(const struct pq_axis *a, char name, struct pq_out *out)
{
    pq_outf(out, "set %crange [%.17g:%.17g]\n", name, a->low, a->high);
    if (a->logarithmic)
        pq_outf(out, "set logscale %c 10\n", name);
    pq_outf(out, "set %ctics nomirror scale 0.4 (", name);
    if (a->logarithmic)
        logarithmic(a, decades_of(a), out);
    else
        linear(a, out);
    pq_out(out, ")\n");
}
