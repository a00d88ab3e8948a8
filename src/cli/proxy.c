#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/config.h"
#include "cli/cli.h"
#include "proxy/supervisor.h"

static const char help[] =
    "usage: pqplane proxy --config FILE [--check] [--ready-fd N] [--log-file FILE]\n"
    "\n"
    "Protects the traffic of an unmodified network function: mutual post-quantum TLS towards its peers,\n"
    "plaintext on the loopback interface or a unix socket towards the function.\n"
    "\n"
    "  --config FILE    listeners, keys and policy (YAML)\n"
    "  --check          only check the file, what it names and that keys fit; exit status 0 or 1\n"
    "  --ready-fd N     write \"ready NAME ADDRESS\" for each listener to descriptor N, then close it\n"
    "  --log-file FILE  append the log there instead of writing it to standard error\n"
    "\n"
    "SIGTERM lets open connections finish (timeouts.drain) and exits 0; a second one exits at once. SIGHUP reads the\n"
    "configuration and its files anew, and opens the log anew. SIGUSR2 puts the program as it lies there now in this\n"
    "one's place, without closing a connection.\n";

struct options {
    const char *config, *log_file;
    bool check, help;
    int ready_fd; /* -1: none */
};

static int read_options(int argc, char **argv, struct options *o)
{
    static const struct option known[] = {
        {"config", required_argument, NULL, 'c'},   {"check", no_argument, NULL, 'k'},
        {"ready-fd", required_argument, NULL, 'r'}, {"log-file", required_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0}};
    int64_t fd;
    *o = (struct options){.ready_fd = -1};
    opterr = 0;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, ":h", known, NULL)) != -1;) {
        switch (c) {
        case 'c':
            o->config = optarg;
            break;
        case 'k':
            o->check = true;
            break;
        case 'l':
            o->log_file = optarg;
            break;
        case 'h':
            o->help = true;
            return 0;
        case 'r':
            if (pq_int_parse(optarg, 0, 65535, &fd, NULL) < 0 || fcntl((int)fd, F_GETFD) < 0)
                return pq_cli_usage("proxy", "--ready-fd %s is no open descriptor", optarg);
            o->ready_fd = (int)fd;
            break;
        case ':':
            return pq_cli_usage("proxy", "%s needs a value", argv[optind - 1]);
        default:
            return pq_cli_usage("proxy", "there is no option %s", argv[optind - 1]);
        }
    }
    if (optind < argc)
        return pq_cli_usage("proxy", "\"%s\" is too much", argv[optind]);
    if (!o->config)
        return pq_cli_usage("proxy", "name the configuration with --config FILE");
    return 0;
}

int pq_cli_proxy(int argc, char **argv)
{
    struct options o;
    struct pq_why why = {""};
    int status = read_options(argc, argv, &o);
    if (status)
        return status;
    if (o.help) {
        fputs(help, stdout);
        return 0;
    }
    struct pq_supervisor_how how = {.config = o.config, .log_file = o.log_file, .ready_fd = o.ready_fd};
    int e = o.check ? pq_supervisor_check(o.config, &why) : pq_supervisor_run(&how, &why);
    if (e < 0)
        return pq_cli_fail("proxy", e, &why);
    if (o.check)
        printf("%s: ok\n", o.config);
    return 0;
}
