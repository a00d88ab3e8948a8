/* The page's head, its contents and its findings. */
#include <inttypes.h>
#include <string.h>

#include "report/metric.h"
#include "report/number.h"
#include "report/page.h"

static const struct {
    const char *id, *title;
} sections[] = {
    {"findings", "Findings"},
    {"metrics", "Measurements"},
    {"published", "Published figures"},
    {"errors", "Errors"},
    {"drift", "Drift"},
    {"run", "What ran where"},
    {"methods", "How it was measured"},
    {"raw", "Run it again, raw data"},
};

static bool has_section(const struct pq_report *r, const char *id)
{
    return strcmp(id, "findings") == 0    ? r->questions.count > 0
           : strcmp(id, "published") == 0 ? r->published != NULL
           : strcmp(id, "drift") == 0     ? r->results->calibration_count > 1
                                          : true;
}

void pq_page_contents(struct pq_page *p)
{
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        if (!has_section(p->r, sections[i].id))
            continue;
        pq_outf(p->out, "<li><a href=\"#r%u-%s\">%s</a>", p->number, sections[i].id, sections[i].title);
        if (strcmp(sections[i].id, "metrics") == 0 && p->r->metric_count) {
            pq_out(p->out, "\n<ul>\n");
            for (size_t k = 0; k < p->r->metric_count; k++) {
                DEFER(pq_out_free) struct pq_out title = {.buf.cap = 4096};
                pq_metric_title(p->r->metrics[k].name, &title);
                pq_outf(p->out, "<li><a href=\"#r%u-m%zu\">", p->number, k + 1);
                pq_out_html(p->out, pq_out_text(&title));
                pq_out(p->out, "</a></li>\n");
            }
            pq_out(p->out, "</ul>");
        }
        pq_out(p->out, "</li>\n");
    }
}

static void fact(struct pq_page *p, const char *name, const char *value)
{
    if (!*value)
        return;
    pq_outf(p->out, "<dt>%s</dt><dd>", name);
    pq_out_html_short(p->out, value, 300);
    pq_out(p->out, "</dd>\n");
}

static void warn(struct pq_page *p, const char *text)
{
    pq_out(p->out, "<p class=\"warn\">");
    pq_out_html_short(p->out, text, 2000);
    pq_out(p->out, "</p>\n");
}

static void notes(struct pq_page *p)
{
    const struct pq_results *r = p->r->results;
    if (r->note_count == 0)
        return;
    pq_out(p->out, "<div class=\"warn\"><ul>\n");
    for (size_t i = 0; i < r->note_count; i++) {
        pq_out(p->out, "<li>");
        pq_out_html_short(p->out, r->notes[i], 2000);
        pq_out(p->out, "</li>\n");
    }
    pq_out(p->out, "</ul></div>\n");
}

/* What is known of the host or the libraries, a line each. */
static void facts(struct pq_page *p, const char *name, struct pq_facts f)
{
    if (f.count == 0)
        return;
    pq_outf(p->out, "<dt>%s</dt><dd>", name);
    for (size_t i = 0; i < f.count; i++) {
        pq_out(p->out, i ? "<br><span class=\"soft\">" : "<span class=\"soft\">");
        pq_out_html_short(p->out, f.at[i].name, 60);
        pq_out(p->out, "</span> ");
        pq_out_html_short(p->out, f.at[i].value, 200);
    }
    pq_out(p->out, "</dd>\n");
}

static size_t samples(const struct pq_results *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->cell_count; i++)
        for (size_t k = 0; k < r->cells[i].metric_count; k++)
            n += r->cells[i].metrics[k].count;
    return n;
}

static const char *known(struct pq_facts facts, const char *name)
{
    const char *value = pq_fact(facts, name);
    return value && *value ? value : NULL;
}

/* The run on one line: how much, when, where. */
static void summary(struct pq_page *p)
{
    const struct pq_results *r = p->r->results;
    const char *cpu = known(r->host, "cpu"), *cores = known(r->host, "cores"),
               *openssl = known(r->libraries, "openssl");
    pq_outf(p->out, "<p class=\"soft\">%zu cells, %s samples, measured ", r->cell_count,
            pq_number((double)samples(r), 0).text);
    if (strspn(r->started, "0123456789-") == 10)
        pq_outf(p->out, "%.10s", r->started);
    else
        pq_out_html_short(p->out, r->started, 40);
    if (cpu) {
        pq_out(p->out, " on ");
        pq_out_html_short(p->out, cpu, 100);
    }
    if (cores) {
        pq_out(p->out, " (cores: ");
        pq_out_html_short(p->out, cores, 12);
        pq_out(p->out, ")");
    }
    if (openssl) {
        pq_out(p->out, " with OpenSSL ");
        pq_out_html_short(p->out, openssl, 40);
    }
    pq_outf(p->out, ". <a href=\"#r%u-run\">More of the run</a></p>\n", p->number);
}

void pq_page_head(struct pq_page *p, bool alone)
{
    const struct pq_results *r = p->r->results;
    pq_outf(p->out, alone ? "<h1 id=\"r%u-top\">" : "<h2 id=\"r%u-top\">", p->number);
    pq_out_html_short(p->out, p->r->title, 200);
    pq_out(p->out, alone ? "</h1>\n" : "</h2>\n");
    if (*p->r->reason) {
        pq_out(p->out, "<p class=\"lead\">");
        pq_out_html_short(p->out, p->r->reason, 1000);
        pq_out(p->out, "</p>\n");
    }
    if (!r->complete)
        warn(p, "This run was ended early: what follows is what had been measured by then.");
    if (r->quick)
        warn(p,
             "This was a quick run with few repetitions: its intervals are wide, and it is no basis for a decision.");
    for (size_t i = 0; i < p->r->problem_count; i++)
        warn(p, p->r->problems[i].text);
    notes(p);
    summary(p);
}

void pq_page_run(struct pq_page *p)
{
    const struct pq_results *r = p->r->results;
    pq_out(p->out, "<section>\n");
    pq_page_heading(p, 0, "run", "What ran where");
    pq_out(p->out, "<dl class=\"facts\">\n");
    fact(p, "Experiment", r->experiment);
    pq_outf(p->out, "<dt>Measured</dt><dd>%zu cells, %s samples</dd>\n", r->cell_count,
            pq_number((double)samples(r), 0).text);
    fact(p, "Started", r->started);
    fact(p, "Finished", r->finished);
    facts(p, "Host", r->host);
    facts(p, "Libraries", r->libraries);
    fact(p, "pqplane", r->version);
    pq_outf(p->out, "<dt>Seed</dt><dd>%" PRIu64 "</dd>\n</dl>\n</section>\n", r->seed);
}

static const struct {
    const char *class, *mark;
} looks[] = {
    [PQ_HOLDS] = {"holds", "✓"},
    [PQ_FAILS] = {"fails", "✗"},
    [PQ_UNDECIDED] = {"undecided", "?"},
    [PQ_NOT_MEASURED] = {"unmeasured", "–"},
};

static void paragraph(struct pq_page *p, const char *class, const char *text)
{
    if (!text || !*text)
        return;
    pq_outf(p->out, "<p class=\"%s\">", class);
    pq_out_html_short(p->out, text, 8000);
    pq_out(p->out, "</p>\n");
}

static void figure_lines(struct pq_page *p, const char *text)
{
    if (!*text)
        return;
    pq_out(p->out, "<ul class=\"figures\">\n");
    while (*text) {
        DEFER(pq_out_free) struct pq_out line = {.buf.cap = 1 << 16};
        size_t len = strcspn(text, "\n");
        pq_outf(&line, "%.*s", (int)len, text);
        pq_out(p->out, "<li>");
        pq_out_html(p->out, pq_out_text(&line));
        pq_out(p->out, "</li>\n");
        text += len + (text[len] == '\n');
    }
    pq_out(p->out, "</ul>\n");
}

/* Good and bad are colours of limits; that something differs is neither. */
static bool limited(const struct pq_answer *a)
{
    return a->verdict > PQ_FAILS || a->kind == PQ_QUESTION_RATIO || a->kind == PQ_QUESTION_DIFFERENCE;
}

void pq_page_findings(struct pq_page *p)
{
    if (p->r->questions.count == 0)
        return;
    pq_out(p->out, "<section>\n");
    pq_page_heading(p, 0, "findings", "Findings");
    pq_out(p->out, "<ol class=\"findings\">\n");
    for (size_t i = 0; i < p->r->questions.count; i++) {
        const struct pq_answer *a = &p->r->answers[i];
        pq_outf(p->out,
                "<li><div class=\"verdict %s\"><b aria-hidden=\"true\">%s</b>%s</div>\n<div><h%u id=\"r%u-q%zu\">",
                limited(a) ? looks[a->verdict].class : "plain", looks[a->verdict].mark, pq_answer_label(a),
                p->level + 1, p->number, i + 1);
        pq_out_html_short(p->out, a->ask, 1000);
        pq_outf(p->out, "</h%u>\n", p->level + 1);
        paragraph(p, "say", a->finding);
        figure_lines(p, a->figures);
        paragraph(p, "soft", a->because);
        pq_out(p->out, "</div></li>\n");
    }
    pq_out(p->out, "</ol>\n</section>\n");
}
