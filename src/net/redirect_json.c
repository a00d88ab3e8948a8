#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include "base/cleanup.h"
#include "base/config.h"
#include "net/redirect.h"

/* libnftables-json(5): {"nftables": [{"table": {...}}, {"chain": {...}}, {"rule": {"table": NAME, "expr": [...]}},
 * ...]}. What a table holds beyond what the script writes makes it "edited": it is told, not explained. */

/* --- tables ------------------------------------------------------------------------------------------------------ */
static struct pq_redirect *find(const struct pq_redirects *all, const char *name)
{
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->at[i].name, name) == 0)
            return &all->at[i];
    return NULL;
}

/* NULL where the table is not one of ours. */
static const char *our_name(const char *table)
{
    size_t prefix = strlen(PQ_REDIRECT_PREFIX);
    return table && strncmp(table, PQ_REDIRECT_PREFIX, prefix) == 0 && strlen(table + prefix) < PQ_REDIRECT_NAME
               ? table + prefix
               : NULL;
}

static int add(struct pq_redirects *all, const char *name)
{
    if (find(all, name))
        return 0;
    if (all->count == PQ_REDIRECTS_MAX)
        return PQ_E_TOO_LONG;
    struct pq_redirect *at = realloc(all->at, (all->count + 1) * sizeof *at);
    if (!at)
        return PQ_E_NOMEM;
    all->at = at;
    at[all->count] = (struct pq_redirect){.loopback = true};
    snprintf(at[all->count++].name, PQ_REDIRECT_NAME, "%s", name);
    return 0;
}

/* --- matches ----------------------------------------------------------------------------------------------------- */
static const char *text(yyjson_val *v, const char *key)
{
    const char *t = yyjson_get_str(yyjson_obj_get(v, key));
    return t ? t : "";
}

static int64_t number(yyjson_val *v, int64_t most)
{
    return yyjson_is_int(v) && yyjson_get_sint(v) >= 0 && yyjson_get_sint(v) <= most ? yyjson_get_sint(v) : -1;
}

static bool take_network(struct pq_redirect *r, yyjson_val *v)
{
    char whole[PQ_NETWORK_TEXT + 16];
    yyjson_val *prefix = yyjson_obj_get(v, "prefix");
    if (prefix)
        snprintf(whole, sizeof whole, "%.60s/%d", text(prefix, "addr"),
                 (int)number(yyjson_obj_get(prefix, "len"), 128));
    else
        snprintf(whole, sizeof whole, "%.60s", yyjson_is_str(v) ? yyjson_get_str(v) : "");
    if (r->network_count == PQ_REDIRECT_LIST_MAX || pq_network_parse(whole, &r->networks[r->network_count], NULL) < 0)
        return false;
    r->network_count++;
    return true;
}

static bool take_ports(struct pq_redirect *r, yyjson_val *v)
{
    yyjson_val *range = yyjson_obj_get(v, "range");
    int64_t low = number(range ? yyjson_arr_get(range, 0) : v, 65535);
    int64_t high = number(range ? yyjson_arr_get(range, 1) : v, 65535);
    if (low < 1 || high < low || r->port_count == PQ_REDIRECT_LIST_MAX)
        return false;
    r->ports[r->port_count++] = (struct pq_ports){(uint16_t)low, (uint16_t)high};
    return true;
}

/* One value or a set of them. */
static bool take_each(struct pq_redirect *r, yyjson_val *v, bool (*take)(struct pq_redirect *r, yyjson_val *v))
{
    yyjson_val *set = yyjson_obj_get(v, "set"), *one;
    size_t i, count;
    if (!set)
        return take(r, v);
    yyjson_arr_foreach(set, i, count, one) if (!take(r, one)) return false;
    return true;
}

static bool take_uid(uid_t *to, yyjson_val *v)
{
    int64_t n = number(v, UINT32_MAX);
    if (n < 0)
        return false;
    *to = (uid_t)n;
    return true;
}

/* A cgroup that is gone shows as its number. */
static bool take_cgroup(struct pq_redirect *r, yyjson_val *v)
{
    if (!yyjson_is_str(v))
        return false;
    snprintf(r->cgroup, sizeof r->cgroup, "%s", yyjson_get_str(v));
    r->by_cgroup = true;
    return true;
}

/* What a rule says on its way to its verdict. Both families' rules say the same of all but networks, so ports are taken
 * from the first. */
static bool take_match(struct pq_redirect *r, yyjson_val *match, bool first)
{
    yyjson_val *left = yyjson_obj_get(match, "left"), *right = yyjson_obj_get(match, "right");
    yyjson_val *meta = yyjson_obj_get(left, "meta"), *payload = yyjson_obj_get(left, "payload");
    if (strcmp(text(match, "op"), "==") != 0)
        return false;
    if (strcmp(text(meta, "key"), "skuid") == 0)
        return take_uid(&r->uid, right);
    if (strcmp(text(meta, "key"), "l4proto") == 0)
        return true;
    if (strcmp(text(yyjson_obj_get(left, "socket"), "key"), "cgroupv2") == 0)
        return take_cgroup(r, right);
    if (strcmp(text(payload, "field"), "daddr") == 0)
        return take_each(r, right, take_network);
    if (strcmp(text(payload, "field"), "dport") == 0)
        return !first || take_each(r, right, take_ports);
    return false;
}

/* --- rules ------------------------------------------------------------------------------------------------------- */
static bool take_redirect(struct pq_redirect *r, yyjson_val *rule, yyjson_val *to)
{
    yyjson_val *one;
    size_t i, count;
    int64_t port = number(yyjson_obj_get(to, "port"), 65535);
    bool known = port > 0, first = r->port == 0;
    yyjson_arr_foreach(rule, i, count, one)
    {
        yyjson_val *match = yyjson_obj_get(one, "match"), *counter = yyjson_obj_get(one, "counter");
        if (match)
            known &= take_match(r, match, first);
        else if (counter)
            r->connections += yyjson_get_uint(yyjson_obj_get(counter, "packets"));
    }
    r->port = (uint16_t)(port > 0 ? port : 0);
    return known;
}

static bool take_return(struct pq_redirect *r, yyjson_val *rule)
{
    struct pq_redirect there = {.except = r->except};
    yyjson_val *match = yyjson_obj_get(yyjson_arr_get(rule, 0), "match");
    if (!match || yyjson_arr_size(rule) != 2 || !take_match(&there, match, true))
        return false;
    if (there.network_count)
        r->loopback = false;
    else
        r->except = there.uid;
    return true;
}

static bool take_rule(struct pq_redirect *r, yyjson_val *rule)
{
    yyjson_val *last = yyjson_arr_get_last(rule), *to = yyjson_obj_get(last, "redirect");
    return to ? take_redirect(r, rule, to) : yyjson_obj_get(last, "return") ? take_return(r, rule) : false;
}

static int take_object(struct pq_redirects *all, yyjson_val *object)
{
    yyjson_val *table = yyjson_obj_get(object, "table"), *rule = yyjson_obj_get(object, "rule");
    yyjson_val *of = table ? table : rule;
    const char *name = our_name(text(of, table ? "name" : "table"));
    if (!of || !name || strcmp(text(of, "family"), "inet") != 0)
        return 0;
    TRY(add(all, name));
    struct pq_redirect *r = find(all, name);
    if (rule && !take_rule(r, yyjson_obj_get(rule, "expr")))
        r->edited = true;
    return 0;
}

static void free_document(yyjson_doc **d) { yyjson_doc_free(*d); }

int pq_redirects_parse(struct pq_span json, struct pq_redirects *out, struct pq_why *why)
{
    DEFER(free_document) yyjson_doc *d = yyjson_read((const char *)json.at, json.len, 0);
    DEFER(pq_redirects_free) struct pq_redirects all = {0};
    yyjson_val *list = yyjson_obj_get(yyjson_doc_get_root(d), "nftables"), *one;
    size_t i, count;
    if (!yyjson_is_arr(list))
        return pq_why(why, PQ_E_SYNTAX, "nft did not answer in the form of libnftables-json(5)");
    yyjson_arr_foreach(list, i, count, one)
    {
        int e = take_object(&all, one);
        if (e == PQ_E_TOO_LONG)
            return pq_why(why, e, "there are more than %d redirects", PQ_REDIRECTS_MAX);
        TRY(e);
    }
    *out = all;
    all = (struct pq_redirects){0};
    return 0;
}
