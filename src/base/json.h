/* json.h - JSON text, appended to a buffer as it comes: for lines and answers that are written and never read back.
 *
 *   struct pq_json j = pq_json(&buf);
 *   pq_json_open(&j, NULL, '{');
 *   pq_json_text(&j, "name", "amf");
 *   pq_json_close(&j, '}');
 *   TRY(j.failed);
 *
 * Spec:   RFC 8259, UTF-8: other bytes come out as U+FFFD. key is NULL in a list and at the top.
 * Owns:   nothing; the buffer is the caller's.
 * Errors: the first one stays in failed (PQ_E_NOMEM, PQ_E_TOO_LONG), and nothing is written after it.
 */
#ifndef PQ_BASE_JSON_H
#define PQ_BASE_JSON_H

#include <stdbool.h>

#include "base/bytes.h"

struct pq_json {
    struct pq_buf *out;
    int failed;
    bool follows; /* a value stands before, in the same list or map */
};

struct pq_json pq_json(struct pq_buf *out);
void pq_json_open(struct pq_json *j, const char *key, char bracket);
void pq_json_close(struct pq_json *j, char bracket);
void pq_json_text(struct pq_json *j, const char *key, const char *value); /* NULL is null */
void pq_json_whole(struct pq_json *j, const char *key, int64_t value);
void pq_json_real(struct pq_json *j, const char *key, double value); /* three decimals; not finite: null */
void pq_json_bool(struct pq_json *j, const char *key, bool value);

#endif
