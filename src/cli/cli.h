/* cli.h - the commands: one row a command, one file a command.
 *
 * Spec:   exit status 0 done, 1 failed, 2 wrong usage (the sentence goes to standard error, "pqplane COMMAND: ...").
 * Owns:   nothing.
 * Errors: see the exit status.
 */
#ifndef PQ_CLI_CLI_H
#define PQ_CLI_CLI_H

#include "base/error.h"

struct pq_command {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name; returns the exit status */
    const char *help;                  /* one line */
};

int pq_cli_algorithms(int argc, char **argv);
int pq_cli_suites(int argc, char **argv);
int pq_cli_pki(int argc, char **argv);
int pq_cli_nf(int argc, char **argv);
int pq_cli_load(int argc, char **argv);
int pq_cli_proxy(int argc, char **argv);
int pq_cli_redirect(int argc, char **argv);
int pq_cli_lab(int argc, char **argv);
int pq_cli_report(int argc, char **argv);

/* Prints "pqplane COMMAND: sentence" and returns the exit status for the error. */
int pq_cli_fail(const char *command, int code, const struct pq_why *why);
/* The same for wrong usage; ends with "see: pqplane COMMAND --help". */
int pq_cli_usage(const char *command, const char *format, ...) PQ_PRINTF(2, 3);

#endif
