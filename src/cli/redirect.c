#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <yyjson.h>

#include "base/cleanup.h"
#include "base/config.h"
#include "base/table.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "net/redirect.h"

static const char help[] =
    "usage: pqplane redirect install --name NAME (--uid USER | --cgroup PATH) --port N [--except USER]\n"
    "                                [--networks LIST] [--ports LIST] [--loopback] [--dry-run]\n"
    "       pqplane redirect remove  --name NAME [--dry-run]\n"
    "       pqplane redirect show    [--name NAME] [--json]\n"
    "\n"
    "Leads the TCP connections that one user's or one cgroup's processes open to a transparent egress of pqplane "
    "proxy\n"
    "(transparent: true), by rules of nftables in this network namespace, for IPv4 and IPv6. Needs root.\n"
    "\n"
    "  --name NAME      of the redirect; its table is inet pqplane-NAME\n"
    "  --uid USER       whose connections: a user's name or number\n"
    "  --cgroup PATH    or those from this cgroup of version 2 and all below it: system.slice/udm.service\n"
    "  --port N         where the egress listens: on 127.0.0.1 and on [::1], or on [::] for both\n"
    "  --except USER    who is never redirected: whom the proxy's workers run as (default nobody)\n"
    "  --networks LIST  only to these: 10.0.0.0/8,fd00::/8 (default all)\n"
    "  --ports LIST     only to these ports: 7777,8000-8100 (default all)\n"
    "  --loopback       also what goes to 127.0.0.0/8 and ::1\n"
    "  --dry-run        only print what nft would read\n"
    "  --json           print JSON\n"
    "\n"
    "install replaces a redirect of that name in one step, so it may be run again. Rules last until they are removed, "
    "the\n"
    "host restarts, or somebody flushes nftables; show --name NAME fails where there is none. With --cgroup, install\n"
    "again each time the cgroup was made anew: systemd makes a service's at each start.\n";

struct options {
    const char *name, *uid, *cgroup, *except, *networks, *ports;
    int64_t port;
    bool loopback, dry_run, json;
};

/* --- install ----------------------------------------------------------------------------------------------------- */
static int find_user(const char *option, const char *text, uid_t *out, struct pq_why *why)
{
    int64_t number;
    struct passwd p, *found = NULL;
    char space[16 << 10];
    if (pq_int_parse(text, 0, UINT32_MAX - 1, &number, NULL) == 0) {
        *out = (uid_t)number;
        return 0;
    }
    if (getpwnam_r(text, &p, space, sizeof space, &found) != 0 || !found)
        return pq_why(why, PQ_E_INVALID, "--%s: this host has no user \"%.60s\"", option, text);
    *out = p.pw_uid;
    return 0;
}

/* One item of a list by commas, of which *list then holds the rest; false at its end. */
static bool next_item(const char **list, char *item, size_t size)
{
    if (!*list)
        return false;
    size_t len = strcspn(*list, ",");
    snprintf(item, size, "%.*s", (int)(len < size ? len : size - 1), *list);
    *list = (*list)[len] ? *list + len + 1 : NULL;
    return true;
}

static int read_lists(const struct options *o, struct pq_redirect *r, struct pq_why *why)
{
    char item[PQ_NETWORK_TEXT];
    for (const char *rest = o->networks; next_item(&rest, item, sizeof item);) {
        if (r->network_count == PQ_REDIRECT_LIST_MAX)
            return pq_why(why, PQ_E_INVALID, "--networks: more than %d", PQ_REDIRECT_LIST_MAX);
        TRY(pq_network_parse(item, &r->networks[r->network_count], why));
        r->network_count++;
    }
    for (const char *rest = o->ports; next_item(&rest, item, sizeof item);) {
        if (r->port_count == PQ_REDIRECT_LIST_MAX)
            return pq_why(why, PQ_E_INVALID, "--ports: more than %d", PQ_REDIRECT_LIST_MAX);
        TRY(pq_ports_parse(item, &r->ports[r->port_count], why));
        r->port_count++;
    }
    return 0;
}

static int read_redirect(const struct options *o, struct pq_redirect *r, struct pq_why *why)
{
    if (strlen(o->name) >= sizeof r->name)
        return pq_why(why, PQ_E_INVALID, "--name: more than %zu characters", sizeof r->name - 1);
    snprintf(r->name, sizeof r->name, "%s", o->name);
    r->port = (uint16_t)o->port;
    r->loopback = o->loopback;
    if (o->cgroup)
        TRY(pq_redirect_cgroup(o->cgroup, r, why));
    else
        TRY(find_user("uid", o->uid, &r->uid, why));
    TRY(find_user("except", o->except ? o->except : "nobody", &r->except, why));
    TRY(read_lists(o, r, why));
    return pq_redirect_check(r, why);
}

static int install(const struct options *o, struct pq_why *why)
{
    struct pq_redirect r = {0};
    DEFER(pq_buf_free) struct pq_buf script = {.cap = 64 << 10};
    TRY(read_redirect(o, &r, why));
    if (!o->dry_run)
        return pq_redirect_install(&r, why);
    TRY(pq_redirect_script(&r, &script));
    fputs((const char *)script.at, stdout);
    return 0;
}

static int remove_one(const struct options *o, struct pq_why *why)
{
    if (!o->dry_run)
        return pq_redirect_remove(o->name, why);
    printf("delete table inet " PQ_REDIRECT_PREFIX "%s\n", o->name);
    return 0;
}

/* --- show -------------------------------------------------------------------------------------------------------- */
static int who(const struct pq_redirect *r, struct pq_buf *out)
{
    int64_t number;
    if (!r->by_cgroup)
        return pq_buf_printf(out, "uid %u", r->uid);
    /* nft gives a cgroup that is gone by its number. */
    if (pq_int_parse(r->cgroup, 0, INT64_MAX, &number, NULL) == 0)
        return pq_buf_printf(out, "cgroup %s, which is gone", r->cgroup);
    return pq_buf_printf(out, "cgroup %s", r->cgroup);
}

static int networks(const struct pq_redirect *r, struct pq_buf *out)
{
    for (size_t i = 0; i < r->network_count; i++) {
        char text[PQ_NETWORK_TEXT];
        pq_network_text(&r->networks[i], text);
        TRY(pq_buf_printf(out, "%s%s", i ? "," : "", text));
    }
    return r->network_count ? 0 : pq_buf_text(out, "all");
}

static int ports(const struct pq_redirect *r, struct pq_buf *out)
{
    for (size_t i = 0; i < r->port_count; i++) {
        TRY(pq_buf_printf(out, "%s%u", i ? "," : "", r->ports[i].low));
        if (r->ports[i].high != r->ports[i].low)
            TRY(pq_buf_printf(out, "-%u", r->ports[i].high));
    }
    return r->port_count ? 0 : pq_buf_text(out, "all");
}

static int add_row(struct pq_table *t, const struct pq_redirect *r)
{
    static int (*const texts[])(const struct pq_redirect *r, struct pq_buf *out) = {who, networks, ports};
    pq_table_cell(t, "%s%s", r->name, r->edited ? " (edited)" : "");
    for (size_t i = 0; i < PQ_COUNT(texts); i++) {
        DEFER(pq_buf_free) struct pq_buf text = {.cap = 64 << 10};
        TRY(texts[i](r, &text));
        pq_table_cell(t, "%s", (const char *)text.at);
    }
    pq_table_cell(t, "%s", r->loopback ? "yes" : "no");
    pq_table_cell(t, "%u", r->port);
    pq_table_cell(t, "%u", r->except);
    pq_table_cell(t, "%llu", (unsigned long long)r->connections);
    return 0;
}

static int print_table(const struct pq_redirects *all)
{
    static const char *const heads[] = {"name",     "of",      "to networks", "to ports",
                                        "loopback", "to port", "except",      "connections"};
    DEFER(pq_table_freep) struct pq_table *t = NULL;
    TRY(pq_table_new("lllllrrr", &t));
    for (size_t i = 0; i < PQ_COUNT(heads); i++)
        pq_table_cell(t, "%s", heads[i]);
    for (size_t i = 0; i < all->count; i++)
        TRY(add_row(t, &all->at[i]));
    return pq_table_print(t, stdout);
}

static void free_document(yyjson_mut_doc **d) { yyjson_mut_doc_free(*d); }

static bool put_lists(yyjson_mut_doc *d, yyjson_mut_val *o, const struct pq_redirect *r)
{
    yyjson_mut_val *to = yyjson_mut_obj_add_arr(d, o, "networks"), *at = yyjson_mut_obj_add_arr(d, o, "ports");
    bool done = to && at;
    for (size_t i = 0; done && i < r->network_count; i++) {
        char text[PQ_NETWORK_TEXT];
        pq_network_text(&r->networks[i], text);
        done = yyjson_mut_arr_add_strcpy(d, to, text);
    }
    for (size_t i = 0; done && i < r->port_count; i++) {
        yyjson_mut_val *range = yyjson_mut_arr_add_arr(d, at);
        done = range && yyjson_mut_arr_add_uint(d, range, r->ports[i].low) &&
               yyjson_mut_arr_add_uint(d, range, r->ports[i].high);
    }
    return done;
}

static bool put(yyjson_mut_doc *d, yyjson_mut_val *list, const struct pq_redirect *r)
{
    yyjson_mut_val *o = yyjson_mut_arr_add_obj(d, list);
    return o && yyjson_mut_obj_add_str(d, o, "name", r->name) &&
           (r->by_cgroup ? yyjson_mut_obj_add_str(d, o, "cgroup", r->cgroup)
                         : yyjson_mut_obj_add_uint(d, o, "uid", r->uid)) &&
           put_lists(d, o, r) && yyjson_mut_obj_add_bool(d, o, "loopback", r->loopback) &&
           yyjson_mut_obj_add_uint(d, o, "port", r->port) && yyjson_mut_obj_add_uint(d, o, "except", r->except) &&
           yyjson_mut_obj_add_uint(d, o, "connections", r->connections) &&
           yyjson_mut_obj_add_bool(d, o, "edited", r->edited);
}

static int print_json(const struct pq_redirects *all)
{
    DEFER(free_document) yyjson_mut_doc *d = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = d ? yyjson_mut_obj(d) : NULL;
    yyjson_mut_val *list = root ? yyjson_mut_obj_add_arr(d, root, "redirects") : NULL;
    if (!list)
        return PQ_E_NOMEM;
    yyjson_mut_doc_set_root(d, root);
    for (size_t i = 0; i < all->count; i++)
        if (!put(d, list, &all->at[i]))
            return PQ_E_NOMEM;
    return yyjson_mut_write_fp(stdout, d, YYJSON_WRITE_PRETTY | YYJSON_WRITE_NEWLINE_AT_END, NULL, NULL) ? 0 : PQ_E_IO;
}

static int show(const struct options *o, struct pq_why *why)
{
    DEFER(pq_redirects_free) struct pq_redirects all = {0};
    TRY(pq_redirects_list(&all, why));
    if (o->name) {
        size_t i = 0;
        while (i < all.count && strcmp(all.at[i].name, o->name) != 0)
            i++;
        if (i == all.count)
            return pq_why(why, PQ_E_NOT_FOUND, "there is no redirect \"%.60s\" here", o->name);
        all.at[0] = all.at[i];
        all.count = 1;
    }
    return o->json ? print_json(&all) : print_table(&all);
}

/* --- the command ------------------------------------------------------------------------------------------------- */
static const struct {
    const char *name;
    int (*run)(const struct options *o, struct pq_why *why);
    bool of_one, makes; /* needs a name; makes a redirect */
} verbs[] = {
    {"install", install, true, true},
    {"remove", remove_one, true, false},
    {"show", show, false, false},
};

static int usage_of(size_t verb, const struct options *o)
{
    if (verbs[verb].of_one && !o->name)
        return pq_cli_usage("redirect", "%s needs --name NAME", verbs[verb].name);
    if (!verbs[verb].makes && (o->uid || o->cgroup || o->port || o->except || o->networks || o->ports || o->loopback))
        return pq_cli_usage("redirect", "%s takes --name and how to print, nothing else", verbs[verb].name);
    if (verbs[verb].makes && (!o->uid == !o->cgroup || !o->port))
        return pq_cli_usage("redirect", "install needs --uid USER or --cgroup PATH, one of them, and --port N");
    return 0;
}

int pq_cli_redirect(int argc, char **argv)
{
    struct options o = {0};
    struct pq_why why = {""};
    const struct pq_option table[] = {
        {"name", PQ_OPTION_TEXT, &o.name, 0, 0, NULL},       {"uid", PQ_OPTION_TEXT, &o.uid, 0, 0, NULL},
        {"cgroup", PQ_OPTION_TEXT, &o.cgroup, 0, 0, NULL},   {"port", PQ_OPTION_INT, &o.port, 1, 65535, NULL},
        {"except", PQ_OPTION_TEXT, &o.except, 0, 0, NULL},   {"networks", PQ_OPTION_TEXT, &o.networks, 0, 0, NULL},
        {"ports", PQ_OPTION_TEXT, &o.ports, 0, 0, NULL},     {"loopback", PQ_OPTION_FLAG, &o.loopback, 0, 0, NULL},
        {"dry-run", PQ_OPTION_FLAG, &o.dry_run, 0, 0, NULL}, {"json", PQ_OPTION_FLAG, &o.json, 0, 0, NULL},
    };
    size_t verb = 0;
    if (argc > 1 && argv[1][0] != '-') {
        while (verb < PQ_COUNT(verbs) && strcmp(verbs[verb].name, argv[1]) != 0)
            verb++;
        if (verb == PQ_COUNT(verbs))
            return pq_cli_usage("redirect", "there is no \"%s\": it is install, remove or show", argv[1]);
        argc--, argv++;
    } else if (argc < 2 || (strcmp(argv[1], "--help") != 0 && strcmp(argv[1], "-h") != 0)) {
        return pq_cli_usage("redirect", "say what to do: install, remove or show");
    }
    int status = pq_options_read("redirect", help, table, PQ_COUNT(table), argc, argv);
    if (status >= 0)
        return status;
    status = usage_of(verb, &o);
    if (status)
        return status;
    int e = verbs[verb].run(&o, &why);
    return e < 0 ? pq_cli_fail("redirect", e, &why) : 0;
}
