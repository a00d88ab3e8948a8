#include "report/svg.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

static const char class_letters[] = "?tgapwbiml";

struct pq_token pq_labels_add(struct pq_labels *l, const char *text, size_t max)
{
    struct pq_token t = {{0}};
    DEFER(pq_out_free) struct pq_out clean = {.buf.cap = 4 * max + 16};
    pq_out_clean(&clean, text, max);
    char **more = realloc(l->at, (l->count + 1) * sizeof *more);
    if (more)
        l->at = more;
    char *copy = more && !clean.error ? strdup(pq_out_text(&clean)) : NULL;
    if (!copy) {
        l->error = PQ_E_NOMEM;
        return t;
    }
    l->at[l->count] = copy;
    snprintf(t.text, sizeof t.text, "PQ%zuQ", l->count++);
    return t;
}

void pq_labels_free(struct pq_labels *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->at[i]);
    free(l->at);
    *l = (struct pq_labels){0};
}

struct pen {
    const struct pq_labels *labels;
    struct pq_out *out;
    char dots[8]; /* class of the path of dots that is open; "" where none is */
    char text_class[8], anchor[8];
    double x, y, size;
};

/* The value of name="..." or name='...' (spaces around = allowed) inside a tag; false where it has none. */
static bool attribute(const char *tag, size_t len, const char *name, const char **at, size_t *value_len)
{
    size_t n = strlen(name);
    for (size_t i = 0; i + n < len; i++) {
        if (memcmp(tag + i, name, n) != 0 || !isspace((unsigned char)tag[i ? i - 1 : 0]))
            continue;
        size_t k = i + n;
        while (k < len && tag[k] == ' ')
            k++;
        if (k == len || tag[k] != '=')
            continue;
        k++;
        while (k < len && tag[k] == ' ')
            k++;
        if (k == len || (tag[k] != '\'' && tag[k] != '"'))
            continue;
        const char *end = memchr(tag + k + 1, tag[k], len - k - 1);
        if (!end)
            return false;
        *at = tag + k + 1;
        *value_len = (size_t)(end - *at);
        return true;
    }
    return false;
}

/* "rgb(  6,   2,   7)" is class b2; any other colour is none of ours. */
static bool class_of(const char *tag, size_t len, const char *name, char out[8])
{
    const char *at;
    size_t n;
    unsigned kind, index, mark;
    char value[40];
    if (!attribute(tag, len, name, &at, &n) || n >= sizeof value)
        return false;
    memcpy(value, at, n);
    value[n] = 0;
    if (sscanf(value, "rgb(%u,%u,%u)", &kind, &index, &mark) != 3 || mark != 7 || kind == 0 || kind >= PQ_INK_END)
        return false;
    snprintf(out, 8, "%c%u", class_letters[kind], index & 255);
    return true;
}

static bool number(const char *tag, size_t len, const char *name, double *out)
{
    const char *at;
    size_t n;
    char value[40], *end;
    if (!attribute(tag, len, name, &at, &n) || n >= sizeof value)
        return false;
    memcpy(value, at, n);
    value[n] = 0;
    *out = strtod(value, &end);
    return end != value;
}

static void end_dots(struct pen *p)
{
    if (p->dots[0])
        pq_out(p->out, "\"/>\n");
    p->dots[0] = 0;
}

/* Coordinates to a tenth of a unit; nothing but what a path may hold. */
static void coordinates(struct pen *p, const char *d, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char c[2] = {d[i], 0};
        if (c[0] == '.') {
            if (i + 1 < len && d[i + 1] != '0' && isdigit((unsigned char)d[i + 1]))
                pq_outf(p->out, ".%c", d[i + 1]);
            while (i + 1 < len && isdigit((unsigned char)d[i + 1]))
                i++;
        } else if (isdigit((unsigned char)c[0]) || (c[0] && strchr("MLZHVhvz,-", c[0]))) {
            pq_out(p->out, c);
        } else if (c[0] == ' ' && i + 1 < len && isdigit((unsigned char)d[i + 1]) && i &&
                   isdigit((unsigned char)d[i - 1])) {
            pq_out(p->out, " ");
        }
    }
}

static void path(struct pen *p, const char *tag, size_t len)
{
    const char *d;
    size_t n;
    char class[8];
    if (!class_of(tag, len, "stroke", class) || !attribute(tag, len, "d", &d, &n))
        return;
    pq_outf(p->out, "<path class=\"%s\" d=\"", class);
    coordinates(p, d, n);
    pq_out(p->out, "\"/>\n");
}

static void polygon(struct pen *p, const char *tag, size_t len)
{
    const char *d;
    size_t n;
    char class[8];
    if (!class_of(tag, len, "fill", class) || !attribute(tag, len, "points", &d, &n))
        return;
    pq_outf(p->out, "<path class=\"%s\" d=\"M", class);
    coordinates(p, d, n);
    pq_out(p->out, "Z\"/>\n");
}

/* Many dots in a row are one path of strokes without length, whose round ends show. */
static void dot(struct pen *p, const char *tag, size_t len)
{
    double x, y;
    char class[8];
    if (!class_of(tag, len, "color", class) || !number(tag, len, "x", &x) || !number(tag, len, "y", &y))
        return;
    if (strcmp(class, p->dots) != 0) {
        end_dots(p);
        pq_outf(p->out, "<path class=\"%s\" d=\"", class);
        memcpy(p->dots, class, sizeof class);
    }
    pq_outf(p->out, "M%.1f %.1fh0", x, y);
}

/* The group around a text has its place, anchor and size. */
static void group(struct pen *p, const char *tag, size_t len)
{
    const char *at;
    size_t n;
    p->text_class[0] = 0;
    if (!attribute(tag, len, "transform", &at, &n) || sscanf(at, "translate(%lf,%lf)", &p->x, &p->y) != 2 ||
        !class_of(tag, len, "fill", p->text_class))
        return;
    snprintf(p->anchor, sizeof p->anchor, "%s", "start");
    if (attribute(tag, len, "text-anchor", &at, &n) && n < sizeof p->anchor)
        snprintf(p->anchor, sizeof p->anchor, "%.*s", (int)n, at);
    if (!number(tag, len, "font-size", &p->size))
        p->size = 12;
}

static bool is_anchor(const char *a)
{
    return strcmp(a, "start") == 0 || strcmp(a, "middle") == 0 || strcmp(a, "end") == 0;
}

/* What stands between <text> and </text>: a token of ours, or a number of the axis. */
static void text(struct pen *p, const char *at, size_t len)
{
    size_t index;
    int used = 0;
    char value[64];
    while (len && isspace((unsigned char)*at))
        at++, len--;
    if (!p->text_class[0] || !is_anchor(p->anchor) || len == 0 || len >= sizeof value)
        return;
    memcpy(value, at, len);
    value[len] = 0;
    pq_outf(p->out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" font-size=\"%.0f\"", p->text_class, p->x, p->y, p->size);
    if (strcmp(p->anchor, "start") != 0)
        pq_outf(p->out, " text-anchor=\"%s\"", p->anchor);
    pq_out(p->out, ">");
    if (sscanf(value, "PQ%zuQ%n", &index, &used) == 1 && used == (int)len && index < p->labels->count)
        pq_out_html(p->out, p->labels->at[index]);
    else
        pq_out_html(p->out, value);
    pq_out(p->out, "</text>\n");
}

static bool tag_is(const char *tag, size_t len, const char *name)
{
    size_t n = strlen(name);
    return len >= n && memcmp(tag, name, n) == 0 && (len == n || isspace((unsigned char)tag[n]) || tag[n] == '/');
}

static void draw(struct pen *p, const char *tag, size_t len)
{
    if (tag_is(tag, len, "use")) {
        dot(p, tag, len);
        return;
    }
    end_dots(p);
    if (tag_is(tag, len, "path"))
        path(p, tag, len);
    else if (tag_is(tag, len, "polygon"))
        polygon(p, tag, len);
    else if (tag_is(tag, len, "g"))
        group(p, tag, len);
}

static void walk(struct pen *p, const char *at, const char *end)
{
    const char *open;
    while (at < end && (open = memchr(at, '<', (size_t)(end - at)))) {
        const char *close = memchr(open, '>', (size_t)(end - open));
        if (!close)
            break;
        size_t len = (size_t)(close - open - 1);
        at = close + 1;
        if (!tag_is(open + 1, len, "text")) {
            draw(p, open + 1, len);
            continue;
        }
        const char *next = memchr(at, '<', (size_t)(end - at));
        if (next)
            text(p, at, (size_t)(next - at));
    }
    end_dots(p);
}

void pq_svg_rewrite(struct pq_span picture, const struct pq_labels *labels, const struct pq_frame *f,
                    struct pq_out *out)
{
    struct pen p = {.labels = labels, .out = out};
    pq_outf(out,
            "<svg class=\"%s\" viewBox=\"0 0 %u %u\" role=\"img\" aria-labelledby=\"%s-t %s-d\">\n<title id=\"%s-t\">",
            f->class, f->width, f->height, f->id, f->id, f->id);
    pq_out_html(out, f->title);
    pq_outf(out, "</title>\n<desc id=\"%s-d\">", f->id);
    pq_out_html(out, f->description);
    pq_out(out, "</desc>\n");
    if (picture.len)
        walk(&p, (const char *)picture.at, (const char *)picture.at + picture.len);
    pq_out(out, "</svg>\n");
    if (labels->error && out->error == 0)
        out->error = labels->error;
}
