#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/config.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/cli.h"
#include "proxy/proxy.h"

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
    "SIGTERM lets open connections finish (timeouts.drain) and exits 0; a second one exits at once.\n";

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

static int open_log(const char *path, int *fd, struct pq_why *why)
{
    if (!path)
        return 0;
    *fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (*fd < 0)
        return pq_why(why, pq_error_from_errno(errno), "%s can't be opened: %s", path, strerror(errno));
    pq_log_to(*fd);
    return 0;
}

static int tell_ready(const struct pq_proxy *p, int fd, struct pq_why *why)
{
    if (fd < 0)
        return 0;
    DEFER(pq_closep) int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    DEFER(pq_fclosep) FILE *out = copy < 0 ? NULL : fdopen(copy, "w");
    if (out)
        (void)TAKE_FD(copy);
    int e = out ? pq_proxy_ready(p, out) : PQ_E_IO;
    pq_file_close(fd);
    return e < 0 ? pq_why(why, e, "descriptor %d can't be written to", fd) : 0;
}

static int run(const struct options *o, const struct pq_proxy_config *config, struct pq_crypto *crypto,
               struct pq_why *why)
{
    DEFER(pq_proxy_freep) struct pq_proxy *proxy = NULL;
    TRY(pq_proxy_new(crypto, config, &proxy, why));
    if (o->check)
        return 0;
    TRY(pq_proxy_listen(proxy, why));
    TRY(tell_ready(proxy, o->ready_fd, why));
    return pq_proxy_run(proxy);
}

static void free_config(struct pq_proxy_config *c) { pq_proxy_config_free(c); }

static int proxy(const struct options *o, struct pq_why *why)
{
    DEFER(pq_closep) int log_fd = -1;
    DEFER(free_config) struct pq_proxy_config config = {0};
    TRY(pq_proxy_config_load(o->config, &config, why));
    TRY(pq_proxy_config_resolve(&config, why));
    pq_log_set((enum pq_log_level)config.log.level, (enum pq_log_format)config.log.format);
    DEFER(pq_crypto_freep) struct pq_crypto *crypto = NULL;
    TRY(pq_crypto_new(&crypto, why));
    if (!o->check)
        TRY(open_log(o->log_file, &log_fd, why));
    int e = run(o, &config, crypto, why);
    pq_log_to(STDERR_FILENO);
    return e;
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
    int e = proxy(&o, &why);
    if (e < 0)
        return pq_cli_fail("proxy", e, &why);
    if (o.check)
        printf("%s: ok\n", o.config);
    return 0;
}
