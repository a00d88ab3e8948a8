/* text.h - text for a page, a table file and a terminal: what data holds can't act there.
 *
 * Spec:   HTML (escaping of text and attribute values), RFC 4180 (CSV). Control characters, marks that turn the reading
 *         order, invisible characters and bytes that are no UTF-8 come out as U+FFFD everywhere.
 * Owns:   a struct pq_out owns its bytes until pq_out_free(). Set buf.cap before the first call.
 * Errors: kept in .error (PQ_E_NOMEM, PQ_E_TOO_LONG): the calls after the first failure do nothing, so that a page is
 *         written straight down and judged once.
 */
#ifndef PQ_REPORT_TEXT_H
#define PQ_REPORT_TEXT_H

#include "base/bytes.h"

struct pq_out {
    struct pq_buf buf;
    int error;
};

void pq_out_free(struct pq_out *o);
const char *pq_out_text(const struct pq_out *o); /* never NULL */

/* Our own words: nothing is escaped. */
void pq_out(struct pq_out *o, const char *text);
void pq_outf(struct pq_out *o, const char *format, ...) PQ_PRINTF(2, 3);

enum { PQ_TEXT_ALL = 1 << 24 };
/* Keeps a figure and its unit on one line. */
#define PQ_NBSP "\xc2\xa0"

/* Data as one line of plain text, at most max characters: a longer one ends in "…". */
void pq_out_clean(struct pq_out *o, const char *text, size_t max);
/* Data as text or attribute value of a page, on one line. */
void pq_out_html(struct pq_out *o, const char *text);
void pq_out_html_short(struct pq_out *o, const char *text, size_t max);
/* The same with its line ends, for <pre>. */
void pq_out_html_lines(struct pq_out *o, const char *text);
/* Data as one CSV field; a first character that a spreadsheet takes for a formula gets a ' before it. */
void pq_out_csv(struct pq_out *o, const char *text);

/* What a name looks like inside a sentence of struct pq_why: cleaned, at most 60 characters. */
struct pq_short {
    char text[256];
};
struct pq_short pq_short(const char *text);

#endif
