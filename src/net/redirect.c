#include "net/redirect.h"

#include <ctype.h>
#include <errno.h>
#include <linux/netfilter_ipv4.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/config.h"
#include "net/tool.h"

/* nft(8) looks nowhere else. */
#define CGROUP_ROOT "/sys/fs/cgroup"

enum { SAID_CAP = 64 << 20, ORIGINAL_DST_6 = 80 /* linux/netfilter_ipv6/ip6_tables.h, which C can't include here */ };

/* --- what is asked for ------------------------------------------------------------------------------------------- */
int pq_ports_parse(const char *text, struct pq_ports *out, struct pq_why *why)
{
    const char *dash = strchr(text, '-');
    char first[8];
    int64_t low, high;
    snprintf(first, sizeof first, "%.*s", dash ? (int)(dash - text) : 7, text);
    if (pq_int_parse(first, 1, 65535, &low, NULL) < 0 ||
        pq_int_parse(dash ? dash + 1 : text, low, 65535, &high, NULL) < 0)
        return pq_why(why, PQ_E_INVALID, "\"%.40s\" is no port: write 80, or 8000-8100 for several", text);
    *out = (struct pq_ports){(uint16_t)low, (uint16_t)high};
    return 0;
}

static int cgroup_levels(const char *path)
{
    int levels = *path != '\0';
    for (; *path; path++)
        levels += *path == '/';
    return levels;
}

int pq_redirect_cgroup(const char *path, struct pq_redirect *r, struct pq_why *why)
{
    const char *from = path;
    if (strncmp(from, CGROUP_ROOT "/", sizeof CGROUP_ROOT) == 0)
        from += sizeof CGROUP_ROOT;
    from += strspn(from, "/");
    size_t len = strlen(from);
    while (len && from[len - 1] == '/')
        len--;
    bool fits = len && len < sizeof r->cgroup;
    for (size_t i = 0; fits && i < len; i++)
        fits = isprint((unsigned char)from[i]) && from[i] != '"' && !(from[i] == '/' && from[i + 1] == '/');
    if (!fits)
        return pq_why(why, PQ_E_INVALID,
                      "\"%.80s\" is no cgroup: write its path below " CGROUP_ROOT ", such as system.slice/udm.service",
                      path);
    memcpy(r->cgroup, from, len);
    r->cgroup[len] = '\0';
    r->by_cgroup = true;
    return cgroup_levels(r->cgroup) > PQ_CGROUP_LEVELS_MAX
               ? pq_why(why, PQ_E_INVALID, "\"%.80s\" has more than %d levels", path, PQ_CGROUP_LEVELS_MAX)
               : 0;
}

static int check_name(const char *name, struct pq_why *why)
{
    bool fits = *name && strlen(name) < PQ_REDIRECT_NAME;
    for (const char *c = name; *c; c++)
        fits &= isalnum((unsigned char)*c) || *c == '-' || *c == '_';
    return fits ? 0
                : pq_why(why, PQ_E_INVALID, "\"%.60s\" is no name: it has 1 to %d letters, digits, '-' and '_'", name,
                         PQ_REDIRECT_NAME - 1);
}

/* nft takes no set whose intervals overlap. */
static int check_lists(const struct pq_redirect *r, struct pq_why *why)
{
    char later[PQ_NETWORK_TEXT], earlier[PQ_NETWORK_TEXT];
    for (size_t i = 0; i < r->network_count; i++)
        for (size_t k = 0; k < i; k++)
            if (pq_network_overlaps(&r->networks[i], &r->networks[k])) {
                pq_network_text(&r->networks[i], later);
                pq_network_text(&r->networks[k], earlier);
                return pq_why(why, PQ_E_INVALID, "networks: %s and %s overlap: leave out the smaller", earlier, later);
            }
    for (size_t i = 0; i < r->port_count; i++)
        for (size_t k = 0; k < i; k++)
            if (r->ports[i].low <= r->ports[k].high && r->ports[k].low <= r->ports[i].high)
                return pq_why(why, PQ_E_INVALID, "ports: %u-%u and %u-%u overlap: write one range", r->ports[k].low,
                              r->ports[k].high, r->ports[i].low, r->ports[i].high);
    return 0;
}

int pq_redirect_check(const struct pq_redirect *r, struct pq_why *why)
{
    TRY(check_name(r->name, why));
    TRY(check_lists(r, why));
    if (!r->by_cgroup && r->uid == r->except)
        return pq_why(why, PQ_E_INVALID,
                      "user %u is the proxy's own, and its connections would come back to it without end: run the "
                      "function as another user than the proxy's workers",
                      r->uid);
    return 0;
}

/* --- the script -------------------------------------------------------------------------------------------------- */
static int put_ports(const struct pq_redirect *r, struct pq_buf *out)
{
    if (r->port_count == 0)
        return pq_buf_text(out, "meta l4proto tcp ");
    TRY(pq_buf_text(out, "tcp dport { "));
    for (size_t i = 0; i < r->port_count; i++)
        if (r->ports[i].low == r->ports[i].high)
            TRY(pq_buf_printf(out, "%s%u", i ? ", " : "", r->ports[i].low));
        else
            TRY(pq_buf_printf(out, "%s%u-%u", i ? ", " : "", r->ports[i].low, r->ports[i].high));
    return pq_buf_text(out, " } ");
}

/* Those of one family; *any says whether there are some. */
static int put_networks(const struct pq_redirect *r, bool v4, bool *any, struct pq_buf *out)
{
    *any = false;
    for (size_t i = 0; i < r->network_count; i++) {
        char text[PQ_NETWORK_TEXT];
        if (pq_network_is_v4(&r->networks[i]) != v4)
            continue;
        pq_network_text(&r->networks[i], text);
        TRY(pq_buf_printf(out, "%s%s", *any ? ", " : v4 ? "ip daddr { " : "ip6 daddr { ", text));
        *any = true;
    }
    return *any ? pq_buf_text(out, " } ") : 0;
}

static int put_rule(const struct pq_redirect *r, const char *networks, struct pq_buf *out)
{
    if (r->by_cgroup)
        TRY(pq_buf_printf(out, "\t\tsocket cgroupv2 level %d \"%s\" ", cgroup_levels(r->cgroup), r->cgroup));
    else
        TRY(pq_buf_printf(out, "\t\tmeta skuid %u ", r->uid));
    TRY(pq_buf_text(out, networks));
    TRY(put_ports(r, out));
    return pq_buf_printf(out, "counter redirect to :%u\n", r->port);
}

static int put_rules(const struct pq_redirect *r, struct pq_buf *out)
{
    if (r->network_count == 0)
        return put_rule(r, "", out);
    for (int v4 = 1; v4 >= 0; v4--) {
        DEFER(pq_buf_free) struct pq_buf networks = {.cap = out->cap};
        bool any;
        TRY(put_networks(r, v4, &any, &networks));
        if (any)
            TRY(put_rule(r, (const char *)networks.at, out));
    }
    return 0;
}

int pq_redirect_script(const struct pq_redirect *r, struct pq_buf *out)
{
    /* Named, so that there is one to delete; deleted, so that the new one holds nothing of an older one. */
    TRY(pq_buf_printf(out,
                      "table inet " PQ_REDIRECT_PREFIX "%s\n"
                      "delete table inet " PQ_REDIRECT_PREFIX "%s\n"
                      "table inet " PQ_REDIRECT_PREFIX "%s {\n"
                      "\tchain output {\n"
                      "\t\ttype nat hook output priority -100; policy accept;\n"
                      "\t\tmeta skuid %u return\n",
                      r->name, r->name, r->name, r->except));
    if (!r->loopback)
        TRY(pq_buf_text(out, "\t\tip daddr 127.0.0.0/8 return\n\t\tip6 daddr ::1 return\n"));
    TRY(put_rules(r, out));
    return pq_buf_text(out, "\t}\n}\n");
}

/* --- nft --------------------------------------------------------------------------------------------------------- */
static int nft_failed(struct pq_buf *said, struct pq_why *why)
{
    char *text = said->len ? (char *)said->at : NULL;
    if (text && strstr(text, "Operation not permitted"))
        return pq_why(why, PQ_E_PERMISSION,
                      "rules of nftables are root's alone (CAP_NET_ADMIN in this network namespace): run this as root");
    for (char *c = text; c && *c; c++)
        if (*c == '\n' || *c == '\t')
            *c = ' ';
    return pq_why(why, PQ_E_IO, "nft refused: %.500s", text ? text : "no reason given");
}

static int nft(const char *const *argv, const char *script, struct pq_buf *output, struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf errors = {.cap = SAID_CAP};
    int status = 0, e = pq_tool_run(&(struct pq_tool){argv, script, -1}, &status, output, &errors, why);
    if (e == PQ_E_NOENT)
        return pq_why(why, e, "there is no \"nft\" command here: install nftables");
    TRY(e);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : nft_failed(&errors, why);
}

static int nft_script(const char *script, struct pq_why *why)
{
    static const char *const argv[] = {"nft", "-f", "-", NULL};
    DEFER(pq_buf_free) struct pq_buf output = {.cap = SAID_CAP};
    return nft(argv, script, &output, why);
}

static int check_cgroup_is_there(const struct pq_redirect *r, struct pq_why *why)
{
    char path[sizeof CGROUP_ROOT + PQ_REDIRECT_CGROUP];
    struct stat st;
    snprintf(path, sizeof path, CGROUP_ROOT "/%s", r->cgroup);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return 0;
    return pq_why(why, PQ_E_NOENT,
                  "there is no cgroup %s (of version 2): rules know it by its number, so it must be there first; start "
                  "the service, or install from its own ExecStartPre=",
                  path);
}

int pq_redirect_install(const struct pq_redirect *r, struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf script = {.cap = 64 << 10};
    TRY(pq_redirect_check(r, why));
    if (r->by_cgroup)
        TRY(check_cgroup_is_there(r, why));
    TRY(pq_redirect_script(r, &script));
    return nft_script((const char *)script.at, why);
}

int pq_redirects_list(struct pq_redirects *out, struct pq_why *why)
{
    static const char *const argv[] = {"nft", "-j", "list", "ruleset", "inet", NULL};
    DEFER(pq_buf_free) struct pq_buf json = {.cap = SAID_CAP};
    TRY(nft(argv, NULL, &json, why));
    return pq_redirects_parse(pq_span(json.at, json.len), out, why);
}

int pq_redirect_remove(const char *name, struct pq_why *why)
{
    DEFER(pq_redirects_free) struct pq_redirects there = {0};
    char script[64 + PQ_REDIRECT_NAME];
    TRY(check_name(name, why));
    TRY(pq_redirects_list(&there, why));
    size_t i = 0;
    while (i < there.count && strcmp(there.at[i].name, name) != 0)
        i++;
    if (i == there.count)
        return pq_why(why, PQ_E_NOT_FOUND,
                      "there is no redirect \"%s\" here; pqplane redirect show lists what there is", name);
    snprintf(script, sizeof script, "delete table inet " PQ_REDIRECT_PREFIX "%s\n", name);
    return nft_script(script, why);
}

void pq_redirects_free(struct pq_redirects *r)
{
    free(r->at);
    *r = (struct pq_redirects){0};
}

/* --- where to ---------------------------------------------------------------------------------------------------- */
int pq_redirect_original(int fd, struct pq_address *out)
{
    struct pq_address local = pq_address_local(fd), wanted = {.len = sizeof wanted.sa};
    local = pq_address_plain(&local);
    bool v4 = local.sa.ss_family == AF_INET;
    if (!v4 && local.sa.ss_family != AF_INET6)
        return PQ_E_NOT_FOUND;
    if (getsockopt(fd, v4 ? SOL_IP : SOL_IPV6, v4 ? SO_ORIGINAL_DST : ORIGINAL_DST_6, &wanted.sa, &wanted.len) < 0)
        return PQ_E_NOT_FOUND;
    if (pq_address_equal(&wanted, &local))
        return PQ_E_NOT_FOUND;
    *out = wanted;
    return 0;
}
