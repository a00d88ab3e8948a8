/* page.h - the sections of the HTML page, for html.c; each writes one, headings and contents with it.
 *
 * Spec:   report.h, pq_report_html().
 * Owns:   nothing.
 * Errors: those of plot.h; text's own are kept in out->error.
 */
#ifndef PQ_REPORT_PAGE_H
#define PQ_REPORT_PAGE_H

#include "report/report.h"

struct pq_page {
    const struct pq_report *r;
    struct pq_out *out;
    struct pq_why *why;
    unsigned number; /* of the report on the page, from 1; ids begin "r<number>-" */
    unsigned level;  /* of a section's heading */
    unsigned figures;
};

/* <h2 id="r1-findings">Findings</h2> with its anchor; deeper: 0 for a section's own, 1 below it. text is ours, not
 * escaped. */
void pq_page_heading(struct pq_page *p, unsigned deeper, const char *id, const char *text);
/* A table's head: columns separated by '|', a column of numbers begins with '#'; caption is escaped. */
void pq_page_table(struct pq_page *p, const char *caption, const char *columns, bool sortable);
void pq_page_table_end(struct pq_page *p);

/* Links to the page's sections, as items of a list. */
void pq_page_contents(struct pq_page *p);
void pq_page_head(struct pq_page *p, bool alone);
void pq_page_findings(struct pq_page *p);
PQ_MUST_CHECK int pq_page_metrics(struct pq_page *p);
PQ_MUST_CHECK int pq_page_published(struct pq_page *p);
void pq_page_errors(struct pq_page *p);
PQ_MUST_CHECK int pq_page_drift(struct pq_page *p);
void pq_page_run(struct pq_page *p);
void pq_page_methods(struct pq_page *p);
PQ_MUST_CHECK int pq_page_raw(struct pq_page *p);

#endif
