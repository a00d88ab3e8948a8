/* log.h - one event a line, to standard error: logfmt or JSON.
 *
 *   pq_log(PQ_LOG_INFO, "connection closed", "peer", pq_s(peer), "bytes_in", pq_i(n), "handshake_ms", pq_f(ms), NULL);
 *
 * Spec:   logfmt: key=value, values quoted where they hold a space, a quote, '=' or a control character (escaped);
 *         JSON is RFC 8259. Both are UTF-8: other bytes come out as U+FFFD. A line ends at 4096 bytes.
 * Owns:   nothing; the values are read before the call returns. Safe from several threads: a line is one write(2).
 * Errors: none; a line that can't be written at once, such as to a full pipe, is dropped and counted.
 */
#ifndef PQ_BASE_LOG_H
#define PQ_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum pq_log_level { PQ_LOG_ERROR, PQ_LOG_WARN, PQ_LOG_INFO, PQ_LOG_DEBUG };
enum pq_log_format { PQ_LOG_LOGFMT, PQ_LOG_JSON };

struct pq_log_value {
    enum { PQ_LOG_TEXT, PQ_LOG_INT, PQ_LOG_REAL } kind;
    const char *text;
    int64_t integer;
    double real;
};

static inline struct pq_log_value pq_s(const char *v) { return (struct pq_log_value){PQ_LOG_TEXT, v ? v : "", 0, 0}; }
static inline struct pq_log_value pq_i(int64_t v) { return (struct pq_log_value){PQ_LOG_INT, 0, v, 0}; }
static inline struct pq_log_value pq_f(double v) { return (struct pq_log_value){PQ_LOG_REAL, 0, 0, v}; }

extern const char *const pq_log_level_names[];  /* "error", "warn", "info", "debug", NULL */
extern const char *const pq_log_format_names[]; /* "logfmt", "json", NULL */

void pq_log_set(enum pq_log_level level, enum pq_log_format format);
void pq_log_set_format(enum pq_log_format format);
void pq_log_to(int fd); /* standard error unless told */
int pq_log_on(enum pq_log_level level);
/* After event come pairs of const char *key and struct pq_log_value, then NULL. */
void pq_log(enum pq_log_level level, const char *event, ...) __attribute__((sentinel));
uint64_t pq_log_dropped(void);
/* Nothing that the calling thread logs is written while it is on. */
void pq_log_mute(bool on);

/* Keep the level and the count of dropped lines in memory that processes share; NULL: in this process's own. Before
 * other threads log. */
void pq_log_level_in(_Atomic int *level);
void pq_log_count_dropped(_Atomic uint64_t *in);

#endif
