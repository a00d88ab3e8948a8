#include <string.h>

#include "report/embed.h"
#include "report/page.h"
#include "report/style.h"

enum { PART_CAP = 1 << 20 };

void pq_page_heading(struct pq_page *p, unsigned deeper, const char *id, const char *text)
{
    unsigned level = p->level + deeper;
    pq_outf(
        p->out,
        "<h%u id=\"r%u-%s\">%s<a class=\"anchor\" href=\"#r%u-%s\" aria-label=\"Link to this section\">#</a></h%u>\n",
        level, p->number, id, text, p->number, id, level);
}

void pq_page_table(struct pq_page *p, const char *caption, const char *columns, bool sortable)
{
    pq_out(p->out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"");
    pq_out_html(p->out, caption);
    pq_outf(p->out, "\"><table%s><caption>", sortable ? " class=\"sort\"" : "");
    pq_out_html(p->out, caption);
    pq_out(p->out, "</caption><thead><tr>");
    while (*columns) {
        size_t len = strcspn(columns, "|");
        bool number = *columns == '#';
        pq_outf(p->out, "<th scope=\"col\"%s>%.*s</th>", number ? " class=\"n\"" : "", (int)(len - number),
                columns + number);
        columns += len + (columns[len] == '|');
    }
    pq_out(p->out, "</tr></thead><tbody>\n");
}

void pq_page_table_end(struct pq_page *p) { pq_out(p->out, "</tbody></table></div>\n"); }

static void digest_of(struct pq_out *out, const struct pq_out *part)
{
    struct pq_digest d;
    int e = part->error ? part->error : pq_digest(pq_span(part->buf.at, part->buf.len), &d);
    if (e == 0)
        pq_out_base64(out, pq_span(d.at, sizeof d.at));
    else if (out->error == 0)
        out->error = e;
}

static void write_top(struct pq_report *const *reports, size_t count, struct pq_out *out)
{
    DEFER(pq_out_free) struct pq_out style = {.buf.cap = PART_CAP};
    DEFER(pq_out_free) struct pq_out script = {.buf.cap = PART_CAP};
    pq_style_sheet(&style);
    pq_style_script(&script);
    pq_out(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; base-uri 'none'; "
                "form-action 'none'; "
                "style-src 'sha256-");
    digest_of(out, &style);
    pq_out(out, "'; script-src 'sha256-");
    digest_of(out, &script);
    pq_out(out, "'\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                "<meta name=\"referrer\" content=\"no-referrer\">\n<title>");
    if (count == 1)
        pq_out_html_short(out, reports[0]->title, 120);
    else
        pq_outf(out, "%zu experiments", count);
    pq_out(out, " - pqplane report</title>\n<style>");
    pq_out(out, pq_out_text(&style));
    pq_out(out, "</style>\n</head>\n<body>\n");
}

static void write_bottom(struct pq_out *out)
{
    pq_out(out,
           "<footer><p>Made by pqplane report from the raw samples in this page; nothing in it comes from elsewhere. "
           "Published figures are other people's and are marked so.</p></footer>\n<script>");
    pq_style_script(out);
    pq_out(out, "</script>\n</body>\n</html>\n");
}

static struct pq_page page_of(struct pq_report *const *reports, size_t count, size_t i, struct pq_out *out,
                              struct pq_why *why)
{
    return (struct pq_page){reports[i], out, why, (unsigned)i + 1, count == 1 ? 2 : 3, 0};
}

static void write_header(struct pq_report *const *reports, size_t count, struct pq_out *out, struct pq_why *why)
{
    pq_out(out, "<header>\n<p class=\"kicker\">pqplane report</p>\n");
    if (count == 1) {
        struct pq_page p = page_of(reports, count, 0, out, why);
        pq_page_head(&p, true);
    } else {
        pq_outf(out, "<h1>%zu experiments</h1>\n", count);
    }
    pq_out(out, "</header>\n<nav aria-label=\"Contents\"><div>\n<h2>Contents</h2>\n<ul>\n");
    for (size_t i = 0; i < count; i++) {
        struct pq_page p = page_of(reports, count, i, out, why);
        if (count > 1) {
            pq_outf(out, "<li><a href=\"#r%u-top\">", p.number);
            pq_out_html_short(out, reports[i]->title, 80);
            pq_out(out, "</a>\n<ul>\n");
        }
        pq_page_contents(&p);
        if (count > 1)
            pq_out(out, "</ul></li>\n");
    }
    pq_out(out, "</ul>\n</div></nav>\n");
}

static int write_report(struct pq_page *p, bool alone)
{
    if (!alone) {
        pq_out(p->out, "<article>\n");
        pq_page_head(p, false);
    }
    pq_page_findings(p);
    TRY(pq_page_metrics(p));
    TRY(pq_page_published(p));
    pq_page_errors(p);
    TRY(pq_page_drift(p));
    pq_page_run(p);
    pq_page_methods(p);
    TRY(pq_page_raw(p));
    pq_out(p->out, alone ? "" : "</article>\n");
    return p->out->error;
}

int pq_report_html(struct pq_report *const *reports, size_t count, struct pq_out *out, struct pq_why *why)
{
    write_top(reports, count, out);
    write_header(reports, count, out, why);
    pq_out(out, "<main>\n");
    for (size_t i = 0; i < count; i++) {
        struct pq_page p = page_of(reports, count, i, out, why);
        int e = write_report(&p, count == 1);
        if (e < 0)
            return why && why->text[0] ? e : pq_why(why, e, "can't write the page: %s", pq_error_text(e));
    }
    pq_out(out, "</main>\n");
    write_bottom(out);
    return out->error ? pq_why(why, out->error, "can't write the page: %s", pq_error_text(out->error)) : 0;
}
