/* options.h - a command's options by a table: --name VALUE or --name=VALUE.
 *
 * Spec:   cli.h (exit status 2 for wrong usage).
 * Owns:   texts point into argv.
 * Errors: as an exit status; the sentence is on standard error.
 */
#ifndef PQ_CLI_OPTIONS_H
#define PQ_CLI_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

enum pq_option_type {
    PQ_OPTION_TEXT,     /* const char * */
    PQ_OPTION_FLAG,     /* bool; no value */
    PQ_OPTION_EITHER,   /* bool: false for the first word of choices, true for the second */
    PQ_OPTION_CHOICE,   /* int: index into choices */
    PQ_OPTION_INT,      /* int64_t within low..high */
    PQ_OPTION_DURATION, /* int64_t nanoseconds, more than 0: "250ms" */
    PQ_OPTION_FD,       /* int: an open descriptor */
    PQ_OPTION_LOG_LEVEL,
    PQ_OPTION_LOG_FORMAT,
    PQ_OPTION_LOG_FILE /* take effect at once */
};

struct pq_option {
    const char *name; /* without the dashes */
    enum pq_option_type type;
    void *to;
    int64_t low, high;
    const char *const *choices;
};

extern const char *const pq_option_connection[]; /* kept, new */
extern const char *const pq_option_nodelay[];    /* on, off */
extern const char *const pq_option_write[];      /* message, frame */
extern const char *const pq_option_modes[];      /* those of crypto/suite.h without plain: index 0 is no choice */

#define PQ_OPTIONS_SECURITY(security)                                                                                  \
    {"certificate", PQ_OPTION_TEXT, &(security).certificate, 0, 0, NULL},                                              \
        {"key", PQ_OPTION_TEXT, &(security).key, 0, 0, NULL}, {"ca", PQ_OPTION_TEXT, &(security).ca, 0, 0, NULL},      \
        {"mode", PQ_OPTION_CHOICE, &(security).mode, 1, 0, pq_option_modes},                                           \
    {                                                                                                                  \
        "level", PQ_OPTION_INT, &(security).level, 1, 5, NULL                                                          \
    }
#define PQ_OPTIONS_LOG                                                                                                 \
    {"log-level", PQ_OPTION_LOG_LEVEL, NULL, 0, 0, NULL}, {"log-format", PQ_OPTION_LOG_FORMAT, NULL, 0, 0, NULL},      \
    {                                                                                                                  \
        "log-file", PQ_OPTION_LOG_FILE, NULL, 0, 0, NULL                                                               \
    }

/* Reads argv[1] and on. -1: go on; else the exit status to end with (0 after --help). */
int pq_options_read(const char *command, const char *help, const struct pq_option *table, size_t count, int argc,
                    char **argv);

#endif
