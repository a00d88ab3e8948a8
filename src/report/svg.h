/* svg.h - gnuplot's SVG made fit for our page: only paths and text are kept, colours become classes of the page's style
 * sheet (which knows light and dark), and tokens become the data's texts.
 *
 * A script says colours as PQ_INK(kind, index): kind and index then name the class, such as "b2". A text is the token
 * of pq_labels_add(). Whatever else the picture holds is dropped.
 *
 * Spec:   SVG 1.1 as gnuplot's terminal writes it.
 * Owns:   the labels copy their texts; pq_labels_free() frees them.
 * Errors: kept in out->error; pq_labels_add() keeps its own in labels->error.
 */
#ifndef PQ_REPORT_SVG_H
#define PQ_REPORT_SVG_H

#include "report/text.h"

/* The letter of the class, in this order from 1: text, grid, axis, points, whisker, box, interval, median, line. */
enum pq_ink {
    PQ_INK_TEXT = 1,
    PQ_INK_GRID,
    PQ_INK_AXIS,
    PQ_INK_POINT,
    PQ_INK_WHISKER,
    PQ_INK_BOX,
    PQ_INK_INTERVAL,
    PQ_INK_MEDIAN,
    PQ_INK_LINE,
    PQ_INK_END
};
/* 0xRRGGBB for gnuplot. */
#define PQ_INK(kind, index) ((unsigned)(kind) << 16 | (unsigned)(index) << 8 | 7u)

struct pq_labels {
    char **at;
    size_t count;
    int error;
};
struct pq_token {
    char text[32];
};
/* Cleans and shortens the text to max characters. */
struct pq_token pq_labels_add(struct pq_labels *l, const char *text, size_t max);
void pq_labels_free(struct pq_labels *l);

struct pq_frame {
    const char *class, *id; /* of the <svg>; ids within begin with id */
    const char *title, *description;
    unsigned width, height;
};
void pq_svg_rewrite(struct pq_span picture, const struct pq_labels *labels, const struct pq_frame *frame,
                    struct pq_out *out);

#endif
