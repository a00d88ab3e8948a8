#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "core5g/kind.h"
#include "core5g/load.h"

static const char help[] =
    "usage: pqplane load --target URI --workload discovery|authentication --json FILE [OPTION...]\n"
    "\n"
    "Plays the consumer (AMF): sends one request after the other and times each from the request to the end of\n"
    "the response. With --connection new that begins before connect() and has its parts: TCP, TLS, HTTP.\n"
    "\n"
    "  --target URI           http://HOST:PORT, or https:// with a certificate\n"
    "  --workload W           discovery: GET at an NRF; authentication: POST at an AUSF\n"
    "  --requests N           measured (default 1000)\n"
    "  --warmup N             before them, not measured (default 20)\n"
    "  --connection kept|new  one connection for all (default), or one for every request\n"
    "  --timeout D            of a request (default 10s)\n"
    "  --tcp-nodelay on|off   off leaves Nagle's algorithm on, only to reproduce studies (default on)\n"
    "  --json FILE            the samples; - is standard output\n"
    "\n"
    "discovery:       --nf-type T      the target-nf-type asked for (default AUSF)\n"
    "                 --body-bytes N   asks with a limit that brings the answer nearest to N bytes; the NRF must\n"
    "                                  hold enough instances (default: all there are)\n"
    "authentication:  --subscribers N  goes through the first N in turn (default 1)\n"
    "\n"
    "TLS:  --certificate FILE --key FILE --ca FILE  PEM; all three, or none for plain HTTP/2\n"
    "      --mode classical|hybrid|pure --level 1|3|5  the suite (default hybrid, 3)\n"
    "      --name NAME        what the server's certificate must show (default: the target's host)\n"
    "\n"
    "  --log-level L, --log-format F, --log-file FILE  as for pqplane nf\n"
    "\n"
    "Failed requests are counted by reason and are no samples; the exit status is 0 when any request succeeded.\n";

static int write_out(const char *path, const struct pq_buf *json, struct pq_why *why)
{
    if (strcmp(path, "-") != 0)
        return pq_file_write(path, pq_span(json->at, json->len), 0644, PQ_FILE_REPLACE, why);
    if (fwrite(json->at, 1, json->len, stdout) != json->len || fflush(stdout) != 0)
        return pq_why(why, PQ_E_IO, "standard output: %s", strerror(errno));
    return 0;
}

static int run(const struct pq_load_settings *s, const char *path)
{
    struct pq_why why = {{0}};
    DEFER(pq_buf_free) struct pq_buf json = {.cap = (size_t)1 << 32};
    int e = pq_load_run(s, &json, &why);
    int written = json.len ? write_out(path, &json, &why) : 0;
    if (e < 0)
        return pq_cli_fail("load", e, &why);
    if (written < 0)
        return pq_cli_fail("load", written, &why);
    if (strstr((const char *)json.at, "\"samples\":[]"))
        return pq_cli_fail("load", PQ_E_PROTOCOL,
                           &(struct pq_why){"no request succeeded: see \"errors\" in the JSON and the log"});
    return 0;
}

int pq_cli_load(int argc, char **argv)
{
    const char *path = NULL;
    int workload = -1;
    struct pq_load_settings s = {.requests = 1000,
                                 .warmup = 20,
                                 .nf_type = "AUSF",
                                 .subscribers = 1,
                                 .timeout_ns = 10 * PQ_NS_PER_S,
                                 .security = {.mode = PQ_MODE_HYBRID, .level = 3}};
    const struct pq_option table[] = {
        {"target", PQ_OPTION_TEXT, &s.target, 0, 0, NULL},
        {"workload", PQ_OPTION_CHOICE, &workload, 0, 0, pq_load_workload_names},
        {"requests", PQ_OPTION_INT, &s.requests, 1, PQ_LOAD_MAX_REQUESTS, NULL},
        {"warmup", PQ_OPTION_INT, &s.warmup, 0, PQ_LOAD_MAX_REQUESTS, NULL},
        {"connection", PQ_OPTION_EITHER, &s.fresh, 0, 0, pq_option_connection},
        {"tcp-nodelay", PQ_OPTION_EITHER, &s.nagle, 0, 0, pq_option_nodelay},
        {"body-bytes", PQ_OPTION_INT, &s.body_bytes, 1, 16 * 1024 * 1024, NULL},
        {"nf-type", PQ_OPTION_TEXT, &s.nf_type, 0, 0, NULL},
        {"subscribers", PQ_OPTION_INT, &s.subscribers, 1, 1000000, NULL},
        {"timeout", PQ_OPTION_DURATION, &s.timeout_ns, 0, 0, NULL},
        {"name", PQ_OPTION_TEXT, &s.name, 0, 0, NULL},
        PQ_OPTIONS_SECURITY(s.security),
        {"json", PQ_OPTION_TEXT, &path, 0, 0, NULL},
        PQ_OPTIONS_LOG,
    };
    int status = pq_options_read("load", help, table, PQ_COUNT(table), argc, argv);
    if (status >= 0)
        return status;
    if (!s.target || workload < 0 || !path)
        return pq_cli_usage("load", "--target URI, --workload W and --json FILE are needed");
    if (!pq_nf_type_is_known(s.nf_type))
        return pq_cli_usage("load", "--nf-type %s is no NFType of TS 29.510", s.nf_type);
    s.workload = (enum pq_load_workload)workload;
    return run(&s, path);
}
