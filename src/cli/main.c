#include "cli/cli.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "version.h"

int pq_cli_fail(const char *command, int code, const struct pq_why *why)
{
    fprintf(stderr, "pqplane %s: %s\n", command, why && why->text[0] ? why->text : pq_error_text(code));
    return code == PQ_E_USAGE ? 2 : 1;
}

int pq_cli_usage(const char *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "pqplane %s: ", command);
    vfprintf(stderr, format, args);
    fprintf(stderr, "; see: pqplane %s --help\n", command);
    va_end(args);
    return 2;
}

static int version(int argc, char **argv)
{
    (void)argc, (void)argv;
    printf("pqplane %s, %s\n", PQ_VERSION, OpenSSL_version(OPENSSL_VERSION));
    return 0;
}

static const struct pq_command commands[] = {
    {"algorithms", pq_cli_algorithms, "key exchanges and signatures that the loaded OpenSSL providers offer"},
    {"suites", pq_cli_suites, "what a mode and a level stand for"},
    {"pki", pq_cli_pki, "keys and certificates: authorities, leaves, revocation lists"},
    {"nf", pq_cli_nf, "one network function of a 5G core: nrf, ausf, udm or udr"},
    {"load", pq_cli_load, "play the consumer of a network function and time each request"},
    {"proxy", pq_cli_proxy, "the sidecar: post-quantum TLS beside an unmodified network function"},
    {"redirect", pq_cli_redirect, "lead a user's or a cgroup's connections to a transparent egress of the sidecar"},
    {"lab", pq_cli_lab, "measure an experiment: every combination of its factors, in rounds, on private hosts"},
    {"report", pq_cli_report, "what results of the lab show: a table, CSV, or one HTML page"},
    {"version", version, "what this is built of"},
};

static int help(FILE *out)
{
    fprintf(out, "pqplane - post-quantum protection for 5G, O-RAN and SDN control planes\n\nusage: pqplane COMMAND "
                 "[OPTION...]\n\n");
    for (size_t i = 0; i < PQ_COUNT(commands); i++)
        fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].help);
    fprintf(out, "\nEach command explains itself: pqplane COMMAND --help\n");
    return out == stdout ? 0 : 2;
}

static int run(int argc, char **argv)
{
    if (argc < 2)
        return help(stderr);
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return help(stdout);
    if (strcmp(name, "--version") == 0)
        return version(argc - 1, argv + 1);
    for (size_t i = 0; i < PQ_COUNT(commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "pqplane: there is no command \"%s\"; see: pqplane --help\n", name);
    return 2;
}

/* What was printed may still lie in the buffer: it must have arrived before the command has succeeded. */
static int finish(const char *command, int status)
{
    errno = 0;
    if ((fflush(stdout) == 0 && !ferror(stdout)) || status != 0)
        return status;
    fprintf(stderr, "pqplane %s: can't write the output: %s\n", command, strerror(errno ? errno : EIO));
    return 1;
}

int main(int argc, char **argv)
{
    struct pq_why why = {""};
    signal(SIGPIPE, SIG_IGN); /* a reader that went away is an error of the write, not the end of the process */
    if (pq_file_hold_standard(&why) < 0)
        return pq_cli_fail(argc > 1 ? argv[1] : "help", PQ_E_IO, &why);
    return finish(argc > 1 ? argv[1] : "help", run(argc, argv));
}
