#include "report/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DECIMALS = 6 };

static int within(int decimals) { return decimals < 0 ? 0 : decimals > MOST_DECIMALS ? MOST_DECIMALS : decimals; }

int pq_decimals(double scale)
{
    double size = fabs(scale);
    return size > 0 && size < 1e300 ? within(2 - (int)floor(log10(size))) : 0;
}

int pq_decimals_of(double value, struct pq_interval ci)
{
    int own = pq_decimals(value);
    double width = ci.high - ci.low;
    if (!(width > 0))
        return value == floor(value) ? 0 : within(own + 1);
    int wanted = 1 - (int)floor(log10(width));
    int most = value == 0 ? MOST_DECIMALS : own + 2;
    return within(wanted < most ? wanted : most);
}

static void group(char *text, size_t size)
{
    char *digits = text + (*text == '-' || *text == '+');
    size_t whole = strspn(digits, "0123456789");
    if (whole < 5)
        return;
    for (size_t from_end = 3; from_end < whole; from_end += 3) {
        char *at = digits + whole - from_end;
        size_t tail = strlen(at) + 1;
        if ((size_t)(at - text) + tail + 1 > size)
            return;
        memmove(at + 1, at, tail);
        *at = ',';
    }
}

static struct pq_number format(double v, int decimals, const char *how)
{
    struct pq_number n;
    if (fabs(v) >= 1e15) {
        snprintf(n.text, sizeof n.text, "%.3e", v);
        return n;
    }
    double unit = pow(10, -decimals);
    if (fabs(v) < unit / 2)
        v = 0; /* no "-0.00" */
    if (*how == '+')
        snprintf(n.text, sizeof n.text, "%+.*f", decimals, v);
    else
        snprintf(n.text, sizeof n.text, "%.*f", decimals, v);
    group(n.text, sizeof n.text);
    return n;
}

struct pq_number pq_number(double v, int decimals) { return format(v, decimals, ""); }
struct pq_number pq_number_signed(double v, int decimals) { return format(v, decimals, "+"); }

struct pq_number pq_number_exact(double v)
{
    struct pq_number n;
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(n.text, sizeof n.text, "%.*g", digits, v);
        if (strtod(n.text, NULL) == v)
            break;
    }
    return n;
}
