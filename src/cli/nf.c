#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "core5g/nf.h"

static const char help[] =
    "usage: pqplane nf KIND --listen ADDRESS [OPTION...]\n"
    "\n"
    "Runs one network function of a 5G core, with real state and real 5G-AKA, for measurements and trials.\n"
    "KIND is nrf, ausf, udm or udr. HTTP/2 is plain (prior knowledge) or, with a certificate, mutual TLS.\n"
    "\n"
    "  --listen ADDRESS       where to serve, \"127.0.0.1:8000\"; port 0 takes a free one\n"
    "  --instance UUID        the NF instance's id (default: random)\n"
    "  --fqdn NAME            its domain name, for its profile\n"
    "  --nrf URI              the NRF: to register with, and to find what is not named below\n"
    "  --ausf, --udm, --udr URI\n"
    "  --register             register with the NRF, send heart-beats, deregister at the end\n"
    "  --connection kept|new  connections to others: kept and shared (default), or one for every request\n"
    "  --idle-timeout D       a connection without requests is closed after this, both ways (default 60s)\n"
    "  --timeout D            of a request to another function (default 10s)\n"
    "  --tcp-nodelay on|off   off leaves Nagle's algorithm on, only to reproduce studies (default on)\n"
    "  --write message|frame  frame sends each HTTP/2 frame by itself, 1 ms apart, only to reproduce studies (default "
    "message)\n"
    "\n"
    "UDR:  --subscribers N    imsi-001010000000001 and on, with keys that follow from the number (default 1000)\n"
    "NRF:  --instances N      registered from the start (default 0)\n"
    "      --instance-type T  their NFType (default AUSF)\n"
    "      --heartbeat D      the interval that it asks for; twice silent suspends, ten times forgets (default 60s)\n"
    "\n"
    "TLS:  --certificate FILE --key FILE --ca FILE  PEM; all three, or none for plain HTTP/2\n"
    "      --mode classical|hybrid|pure --level 1|3|5  the suite (default hybrid, 3)\n"
    "\n"
    "  --ready-fd N           write \"ready KIND ADDRESS\" to descriptor N once listening, then close it\n"
    "  --log-level L          error, warn, info, debug (default warn)\n"
    "  --log-format F         logfmt, json\n"
    "  --log-file FILE        append the log there instead of writing it to standard error\n"
    "\n"
    "SIGTERM deregisters, finishes the requests there are, and exits 0; a second one exits at once.\n";

static int read_kind(const char *text, struct pq_nf_settings *s)
{
    for (int i = 0; pq_nf_kind_names[i]; i++)
        if (strcmp(text, pq_nf_kind_names[i]) == 0) {
            s->kind = (enum pq_nf_kind)i;
            return 0;
        }
    return pq_cli_usage("nf", "there is no network function \"%s\": nrf, ausf, udm and udr are played", text);
}

int pq_cli_nf(int argc, char **argv)
{
    struct pq_nf_settings s = {.subscribers = 1000,
                               .instance_type = "AUSF",
                               .heartbeat_ns = 60 * PQ_NS_PER_S,
                               .ready_fd = -1,
                               .security = {.mode = PQ_MODE_HYBRID, .level = 3}};
    const struct pq_option table[] = {
        {"listen", PQ_OPTION_TEXT, &s.listen, 0, 0, NULL},
        {"instance", PQ_OPTION_TEXT, &s.instance, 0, 0, NULL},
        {"fqdn", PQ_OPTION_TEXT, &s.fqdn, 0, 0, NULL},
        {"nrf", PQ_OPTION_TEXT, &s.nrf, 0, 0, NULL},
        {"ausf", PQ_OPTION_TEXT, &s.ausf, 0, 0, NULL},
        {"udm", PQ_OPTION_TEXT, &s.udm, 0, 0, NULL},
        {"udr", PQ_OPTION_TEXT, &s.udr, 0, 0, NULL},
        {"register", PQ_OPTION_FLAG, &s.registers, 0, 0, NULL},
        {"connection", PQ_OPTION_EITHER, &s.fresh, 0, 0, pq_option_connection},
        {"tcp-nodelay", PQ_OPTION_EITHER, &s.nagle, 0, 0, pq_option_nodelay},
        {"write", PQ_OPTION_EITHER, &s.by_frame, 0, 0, pq_option_write},
        {"idle-timeout", PQ_OPTION_DURATION, &s.idle_ns, 0, 0, NULL},
        {"timeout", PQ_OPTION_DURATION, &s.timeout_ns, 0, 0, NULL},
        {"subscribers", PQ_OPTION_INT, &s.subscribers, 1, 1000000, NULL},
        {"instances", PQ_OPTION_INT, &s.instances, 0, 10000, NULL},
        {"instance-type", PQ_OPTION_TEXT, &s.instance_type, 0, 0, NULL},
        {"heartbeat", PQ_OPTION_DURATION, &s.heartbeat_ns, 0, 0, NULL},
        PQ_OPTIONS_SECURITY(s.security),
        {"ready-fd", PQ_OPTION_FD, &s.ready_fd, 0, 0, NULL},
        PQ_OPTIONS_LOG,
    };
    if (argc < 2)
        return pq_cli_usage("nf", "name the network function: nrf, ausf, udm or udr");
    if (strcmp(argv[1], "--help") != 0 && strcmp(argv[1], "-h") != 0) {
        int status = read_kind(argv[1], &s);
        if (status)
            return status;
        argv++, argc--;
    }
    int status = pq_options_read("nf", help, table, PQ_COUNT(table), argc, argv);
    if (status >= 0)
        return status;
    if (!s.listen)
        return pq_cli_usage("nf", "--listen ADDRESS says where to serve");
    if (!pq_nf_type_is_known(s.instance_type))
        return pq_cli_usage("nf", "--instance-type %s is no NFType of TS 29.510", s.instance_type);
    if (s.heartbeat_ns < PQ_NS_PER_S)
        return pq_cli_usage("nf", "--heartbeat is counted in whole seconds: give 1s or more");
    struct pq_why why = {{0}};
    int e = pq_nf_run(&s, &why);
    return e < 0 ? pq_cli_fail("nf", e, &why) : 0;
}
