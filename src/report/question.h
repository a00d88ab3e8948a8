/* question.h - the questions of an experiment: read and checked before a run, answered after it.
 *
 *   - ask: Does a sidecar cost a request less than 5 %?
 *     ratio: {of: QUANTITY, to: QUANTITY}
 *     at_most: 1.05
 *     or_contains: 1
 *   - ask: ...
 *     difference: QUANTITY with minus
 *     at_most: 1                                 # in the metric's unit; or at_least, or both
 *   - ask: ...
 *     reaches: {published: KEY, within_factor: 2, options: [{name: TEXT, difference: QUANTITY}, ...]}
 *   - ask: ...
 *     varies: {metric: M, cells: [{FACTOR: VALUE, ...}, ...], labels: [TEXT, ...]}
 *
 *   QUANTITY is {metric: M, cell: {FACTOR: VALUE, ...}, minus: {FACTOR: VALUE, ...}}: the median of M in that cell,
 * less that in the minus cell. A cell is named by all factors that it has. minus is such a cell, or names only the
 * factors that differ. Each question may carry holds:, fails: and because: sentences.
 *
 * Spec:   docs/experiments.md, "Questions".
 * Owns:   *out points into the document of its nodes, which must outlive it.
 * Errors: PQ_E_CONFIG (the sentence begins "FILE:LINE:COLUMN:"), PQ_E_NOMEM.
 */
#ifndef PQ_REPORT_QUESTION_H
#define PQ_REPORT_QUESTION_H

#include <stdbool.h>

#include "base/cleanup.h"
#include "base/config.h"
#include "report/published.h"

enum { PQ_QUESTIONS_MAX = 200, PQ_QUESTION_CELLS_MAX = 32 };

enum pq_question_kind { PQ_QUESTION_RATIO, PQ_QUESTION_DIFFERENCE, PQ_QUESTION_REACHES, PQ_QUESTION_VARIES };

struct pq_quantity {
    const char *metric;
    const struct pq_node *cell;
    const struct pq_node *minus; /* NULL: the cell's own median */
};

struct pq_option {
    const char *name; /* of an option; of a cell of varies: NULL where it has no label */
    struct pq_quantity quantity;
};

struct pq_question {
    enum pq_question_kind kind;
    const struct pq_node *node;
    const char *ask, *holds, *fails, *because; /* the last three: NULL where not given */
    bool has_at_most, has_at_least, has_or_contains;
    double at_most, at_least, or_contains;
    struct pq_quantity of, to; /* ratio; difference has only of */
    const char *published;     /* reaches: the key */
    double within_factor;      /* reaches: 1 or more */
    struct pq_option *options; /* reaches: the options; varies: the cells */
    size_t option_count;
};

struct pq_questions {
    struct pq_question *at;
    size_t count;
};

/* questions may be NULL: then there are none. */
PQ_MUST_CHECK int pq_questions_read(const struct pq_node *questions, struct pq_questions *out, struct pq_why *why);
void pq_questions_free(struct pq_questions *q);

/* One quantity alone, as in a published figure's "ours". */
PQ_MUST_CHECK int pq_quantity_read(const struct pq_node *n, struct pq_quantity *out, struct pq_why *why);

/* What a run could not answer is found before it: every question is read, each metric is in the experiment's list, each
 * cell is one that the experiment makes (factors, when, exclude), each published key is a figure. experiment is the
 * root of the experiment's document, published that of the published figures; either may be NULL: then that is not
 * checked. */
PQ_MUST_CHECK int pq_question_check(const struct pq_node *questions, const struct pq_node *experiment,
                                    const struct pq_node *published, struct pq_why *why);

#endif
