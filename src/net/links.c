#include "net/links.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "net/namespace.h"
#include "net/tool.h"

/* What ip said, as part of a sentence: one line, without "Command failed -:3". */
static void one_line(struct pq_buf *said)
{
    char *text = said->at ? (char *)said->at : (char[]){0};
    char *tail = strstr(text, "\nCommand failed");
    if (tail)
        *tail = 0;
    for (char *c = text; *c; c++)
        if (*c == '\n')
            *c = ' ';
}

static int ip_failed(int status, struct pq_buf *said, struct pq_why *why)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    one_line(said);
    const char *text = said->len ? (const char *)said->at : "no reason given";
    if (strstr(text, "Unknown device type") || strstr(text, "Operation not supported"))
        return pq_why(
            why, PQ_E_UNSUPPORTED,
            "the kernel lacks a kind of interface that is needed here (ip: %.300s): load or enable veth and bridge",
            text);
    return pq_why(why, PQ_E_IO, "ip failed: %.400s", text);
}

int pq_ip_batch(int netns, const char *batch, struct pq_why *why)
{
    static const char *const argv[] = {"ip", "-batch", "-", NULL};
    DEFER(pq_buf_free) struct pq_buf said = {.cap = 1 << 20};
    int status = 0, e = pq_tool_run(&(struct pq_tool){argv, batch, netns}, &status, &said, NULL, why);
    if (e == PQ_E_NOENT)
        return pq_why(why, e, "there is no \"ip\" command here: install iproute2");
    TRY(e);
    return ip_failed(status, &said, why);
}

struct counting {
    const char *device;
    struct pq_link_counts *out;
};

static int count_here(void *context, struct pq_why *why)
{
    struct counting *c = context;
    DEFER(pq_buf_free) struct pq_buf b = {.cap = 1 << 20};
    TRY(pq_file_read("/proc/thread-self/net/dev", &b, why));
    size_t len = strlen(c->device);
    for (char *line = b.len ? (char *)b.at : NULL; line; line = (line = strchr(line, '\n')) ? line + 1 : NULL) {
        line += strspn(line, " ");
        if (strncmp(line, c->device, len) != 0 || line[len] != ':')
            continue;
        struct pq_link_counts v;
        if (sscanf(line + len + 1, "%" SCNu64 " %" SCNu64 " %*u %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64, &v.bytes_in,
                   &v.packets_in, &v.bytes_out, &v.packets_out) != 4)
            return pq_why(why, PQ_E_SYNTAX, "/proc/net/dev is not in the form that proc_net(5) shows");
        *c->out = v;
        return 0;
    }
    return pq_why(why, PQ_E_NOT_FOUND, "there is no interface %s", c->device);
}

int pq_link_counts(int netns, const char *device, struct pq_link_counts *out, struct pq_why *why)
{
    struct counting c = {device, out};
    return netns < 0 ? count_here(&c, why) : pq_netns_within(netns, count_here, &c, why);
}

static int no_offload_here(void *context, struct pq_why *why)
{
    const char *device = context;
    const uint32_t what[] = {ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO};
    DEFER(pq_closep) int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (size_t i = 0; i < PQ_COUNT(what); i++) {
        struct ethtool_value v = {.cmd = what[i], .data = 0};
        struct ifreq r = {.ifr_data = (char *)&v};
        snprintf(r.ifr_name, sizeof r.ifr_name, "%s", device);
        if (s < 0 || ioctl(s, SIOCETHTOOL, &r) < 0)
            return pq_why(why, PQ_E_UNSUPPORTED, "can't switch segmentation offload of %s off: %s", device,
                          strerror(errno));
    }
    return 0;
}

int pq_link_no_offload(int netns, const char *device, struct pq_why *why)
{
    char name[IFNAMSIZ];
    snprintf(name, sizeof name, "%s", device);
    return netns < 0 ? no_offload_here(name, why) : pq_netns_within(netns, no_offload_here, name, why);
}
