#include "report/report.h"

#include <inttypes.h>
#include <string.h>

#include "base/table.h"
#include "report/number.h"

enum { NARROWEST = 40, LABEL_CAP = 1 << 16, LABEL_MOST = 80, LABEL_LEAST = 12 };

static size_t characters(const char *text, size_t bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++)
        n += (text[i] & 0xc0) != 0x80;
    return n;
}

/* The bytes of at most n characters at the beginning. */
static size_t head_bytes(const char *text, size_t bytes, size_t n)
{
    size_t i = 0;
    for (; i < bytes; i++)
        if ((text[i] & 0xc0) != 0x80 && n-- == 0)
            break;
    return i;
}

/* Words of clean text, the first line after `used` characters, later ones indented. A word wider than a line is cut. */
static void wrap(FILE *out, const char *text, unsigned width, unsigned used, unsigned indent)
{
    size_t column = used, room = width - indent;
    bool fresh = true;
    while (*text) {
        size_t bytes = head_bytes(text, strcspn(text, " "), room), n = characters(text, bytes);
        if (!(fresh && column == indent) && column + !fresh + n > width) {
            fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
            fresh = true;
        }
        if (!fresh)
            fputc(' ', out);
        fwrite(text, 1, bytes, out);
        column += n + !fresh;
        fresh = false;
        text += bytes;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

/* Data in a sentence of ours: cleaned, then wrapped. */
static int say(FILE *out, unsigned width, unsigned used, unsigned indent, const char *text)
{
    DEFER(pq_out_free) struct pq_out clean = {.buf.cap = 1 << 20};
    pq_out_clean(&clean, text, 4000);
    if (clean.error)
        return clean.error;
    wrap(out, pq_out_text(&clean), width, used, indent);
    return 0;
}

/* Each line of ours by itself, indented. */
static int say_lines(FILE *out, unsigned width, const char *text)
{
    while (*text) {
        size_t len = strcspn(text, "\n");
        DEFER(pq_freep) char *line = strndup(text, len);
        if (!line)
            return PQ_E_NOMEM;
        fputs("    ", out);
        TRY(say(out, width, 4, 6, line));
        text += len + (text[len] == '\n');
    }
    return 0;
}

static void cell_numbers(struct pq_table *t, const struct pq_report *r, size_t cell, size_t metric, bool with_p95)
{
    const struct pq_report_entry *e = pq_report_entry(r, cell, metric);
    const struct pq_summary *s = &e->summary;
    struct pq_interval ci = e->has_interval ? s->median_ci : (struct pq_interval){s->median, s->median};
    int d = pq_decimals_of(s->median, ci);
    pq_table_cell(t, "%s", pq_number(s->median, d).text);
    pq_table_cell(t, "%s", pq_short(r->metrics[metric].unit).text);
    if (e->has_interval)
        pq_table_cell(t, "%s to %s", pq_number(ci.low, d).text, pq_number(ci.high, d).text);
    else
        pq_table_cell(t, "-");
    if (with_p95)
        pq_table_cell(t, "%s", pq_number(s->p95, d).text);
    pq_table_cell(t, "%zu", s->n);
}

static int fill_table(const struct pq_report *r, size_t label_most, bool with_p95, struct pq_table *t)
{
    static const char *const heads[] = {"cell", "metric", "median", "unit", ("95" PQ_NBSP "% interval"),
                                        "p95",  "n",      "errors"};
    for (size_t i = 0; i < PQ_COUNT(heads); i++)
        if (with_p95 || strcmp(heads[i], "p95") != 0)
            pq_table_cell(t, "%s", heads[i]);
    for (size_t i = 0; i < r->results->cell_count; i++) {
        DEFER(pq_out_free) struct pq_out label = {.buf.cap = LABEL_CAP};
        DEFER(pq_out_free) struct pq_out cut = {.buf.cap = LABEL_CAP};
        size_t metric = pq_report_primary(r, i);
        pq_report_cell_label(r, i, NULL, &label);
        pq_out_clean(&cut, pq_out_text(&label), label_most);
        TRY(label.error);
        TRY(cut.error);
        pq_table_cell(t, "%s", pq_out_text(&cut));
        if (metric < r->metric_count) {
            pq_table_cell(t, "%s", pq_short(r->metrics[metric].name).text);
            cell_numbers(t, r, i, metric, with_p95);
        } else {
            for (size_t k = 0; k < 5 + (size_t)with_p95; k++)
                pq_table_cell(t, "-");
        }
        pq_table_cell(t, "%" PRIu64, pq_report_cell_errors(&r->results->cells[i]));
    }
    return 0;
}

static size_t longest_line(const char *text)
{
    size_t longest = 0;
    while (*text) {
        size_t bytes = strcspn(text, "\n"), n = characters(text, bytes);
        longest = n > longest ? n : longest;
        text += bytes + (text[bytes] == '\n');
    }
    return longest;
}

static int render(const struct pq_report *r, size_t label_most, bool with_p95, char **text)
{
    size_t len;
    DEFER(pq_fclosep) FILE *f = open_memstream(text, &len);
    DEFER(pq_table_freep) struct pq_table *t = NULL;
    if (!f)
        return PQ_E_NOMEM;
    TRY(pq_table_new(with_p95 ? "llrlrrrr" : "llrlrrr", &t));
    TRY(fill_table(r, label_most, with_p95, t));
    return pq_table_print(t, f);
}

static size_t widest_label(const struct pq_report *r)
{
    size_t widest = 0;
    for (size_t i = 0; i < r->results->cell_count; i++) {
        DEFER(pq_out_free) struct pq_out label = {.buf.cap = LABEL_CAP};
        pq_report_cell_label(r, i, NULL, &label);
        size_t n = characters(pq_out_text(&label), label.buf.len);
        widest = n > widest ? n : widest;
    }
    return widest > LABEL_MOST ? LABEL_MOST + 1 : widest;
}

/* Where the table is wider than the terminal, first p95 gives way, then the names of the cells do. */
static int print_cells(const struct pq_report *r, FILE *out, unsigned width)
{
    DEFER(pq_freep) char *text = NULL;
    TRY(render(r, LABEL_MOST, true, &text));
    if (longest_line(text) > width) {
        pq_freep(&text);
        TRY(render(r, LABEL_MOST, false, &text));
    }
    size_t longest = longest_line(text);
    if (longest > width) {
        size_t over = longest - width, widest = widest_label(r);
        pq_freep(&text);
        TRY(render(r, widest > over + LABEL_LEAST ? widest - over - 1 : LABEL_LEAST, false, &text));
    }
    fputs(text, out);
    return 0;
}

static const struct {
    const char *mark, *colour;
} marks[] = {
    [PQ_HOLDS] = {"✓", "\x1b[32m"},
    [PQ_FAILS] = {"✗", "\x1b[31m"},
    [PQ_UNDECIDED] = {"?", "\x1b[33m"},
    [PQ_NOT_MEASURED] = {"–", "\x1b[2m"},
};

static int print_answer(const struct pq_answer *a, FILE *out, unsigned width, bool colour)
{
    fprintf(out, "%s%s%s ", colour ? marks[a->verdict].colour : "", marks[a->verdict].mark, colour ? "\x1b[0m" : "");
    TRY(say(out, width, 2, 2, a->ask));
    fprintf(out, "  %s: ", pq_answer_label(a));
    TRY(say(out, width, 4 + (unsigned)strlen(pq_answer_label(a)), 4, a->finding));
    TRY(say_lines(out, width, a->figures));
    return a->because ? say_lines(out, width, a->because) : 0;
}

static int print_head(const struct pq_report *r, FILE *out, unsigned width)
{
    const struct pq_results *res = r->results;
    DEFER(pq_out_free) struct pq_out line = {.buf.cap = 1 << 20};
    TRY(say(out, width, 0, 0, r->title));
    pq_outf(&line, "%zu cells, started %s, pqplane %s, seed %" PRIu64 "%s%s", res->cell_count,
            pq_short(res->started).text, pq_short(res->version).text, res->seed, res->quick ? ", a quick run" : "",
            res->complete ? "" : ", INCOMPLETE: the run was ended early");
    TRY(line.error);
    TRY(say(out, width, 0, 0, pq_out_text(&line)));
    for (size_t i = 0; i < r->problem_count; i++) {
        fputs("! ", out);
        TRY(say(out, width, 2, 2, r->problems[i].text));
    }
    for (size_t i = 0; i < res->note_count; i++) {
        fputs("! ", out);
        TRY(say(out, width, 2, 2, res->notes[i]));
    }
    fputc('\n', out);
    return 0;
}

int pq_report_print(struct pq_report *const *reports, size_t count, FILE *out, unsigned width, bool colour)
{
    width = width < NARROWEST ? NARROWEST : width;
    for (size_t i = 0; i < count; i++) {
        if (i)
            fputc('\n', out);
        TRY(print_head(reports[i], out, width));
        TRY(print_cells(reports[i], out, width));
        for (size_t k = 0; k < reports[i]->questions.count; k++) {
            fputc('\n', out);
            TRY(print_answer(&reports[i]->answers[k], out, width, colour));
        }
    }
    return ferror(out) ? PQ_E_IO : 0;
}
