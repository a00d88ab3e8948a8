/* answer.h - a question answered from the samples, in plain sentences with figures.
 *
 * A difference is called one only when its interval excludes zero; fewer than PQ_ROUNDS_LEAST rounds give no interval.
 *
 * Spec:   docs/experiments.md, "Questions"; intervals are those of base/stats.h.
 * Owns:   an answer's texts are freed by pq_answer_free(); ask and because point into the question's document.
 * Errors: PQ_E_NOMEM. A question whose cells were not measured is an answer (PQ_NOT_MEASURED), no error.
 */
#ifndef PQ_REPORT_ANSWER_H
#define PQ_REPORT_ANSWER_H

#include "report/question.h"
#include "report/results.h"

enum { PQ_ROUNDS_LEAST = 3 };

enum pq_verdict { PQ_HOLDS, PQ_FAILS, PQ_UNDECIDED, PQ_NOT_MEASURED };

struct pq_answer {
    enum pq_question_kind kind;
    enum pq_verdict verdict;
    const char *ask, *because; /* because may be NULL */
    char *finding;             /* one plain sentence */
    char *figures;             /* its figures with unit and interval, a statement a line; "" where there are none */
    char *published_key;       /* reaches: the figure compared with, in full; else NULL */
};

/* "holds", "fails", "undecided", "not measured" */
const char *pq_verdict_text(enum pq_verdict v);

/* The verdict in the words of its kind of question: "within limit", "not reached", "no difference", ... */
const char *pq_answer_label(const struct pq_answer *a);

PQ_MUST_CHECK int pq_question_answer(const struct pq_question *q, const struct pq_results *r,
                                     const struct pq_node *published, struct pq_answer *out);
void pq_answer_free(struct pq_answer *a);

/* A quantity's value; PQ_NOT_MEASURED comes as PQ_E_NOT_FOUND with the reason in missing. */
struct pq_measured {
    struct pq_estimate estimate;
    const char *unit;
    bool has_interval;
};
PQ_MUST_CHECK int pq_quantity_measure(const struct pq_quantity *q, const struct pq_results *r, struct pq_measured *out,
                                      struct pq_why *missing);

#endif
