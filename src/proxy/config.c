#include "proxy/config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "crypto/kind.h"
#include "proxy/address.h"
#include "proxy/target.h"
#include "proxy/transparent.h"

const char *const pq_proxy_direction_names[] = {"ingress", "egress"};

/* --- tls --------------------------------------------------------------------------------------------------------- */
/* Whether a list has an algorithm that is post-quantum. A sign may stand before a name (SSL_CTX_set1_groups_list(3)):
 * '?' if known, '*' with a key share, '-' not. DEFAULT is OpenSSL's own list, which holds some of each. */
static bool offers_pq(const char *list, enum pq_kind (*kind)(const char *name))
{
    char name[128];
    for (const char *at = list; *at;) {
        size_t len = strcspn(at, ":/");
        snprintf(name, sizeof name, "%.*s", (int)len, at);
        if (name[0] != '-' && (pq_kind_is_pq(kind(name)) || strcmp(name, "DEFAULT") == 0))
            return true;
        at += len + (at[len] != '\0');
    }
    return false;
}

/* own, where there is one, replaces what the mode's suite brings. */
static int check_required(const struct pq_node *n, const struct pq_tls_policy *p, const char *required, const char *key,
                          const char *own, const char *suites, enum pq_kind (*kind)(const char *name),
                          struct pq_why *why)
{
    if (offers_pq(own ? own : suites, kind))
        return 0;
    if (own)
        return pq_node_why(pq_node_get(n, key), why,
                           "%s: %.80s offers nothing that is %s, which require demands: no handshake would ever "
                           "succeed; add a post-quantum algorithm, or drop %s from require",
                           key, own, required, required);
    return pq_node_why(n, why,
                       "mode %s offers nothing that is %s, which require demands: no handshake would ever succeed; "
                       "take mode hybrid or pure, or drop %s from require",
                       pq_mode_names[p->mode], required, required);
}

static int check_policy(const struct pq_node *n, const struct pq_tls_policy *p, struct pq_why *why)
{
    const struct pq_suite *suite = pq_suite_find((enum pq_mode)p->mode, (int)p->level);
    if (p->require_pq_kex)
        TRY(check_required(n, p, "pq-kex", "groups", p->groups, suite->groups, pq_kind_of_group, why));
    if (p->require_pq_auth)
        TRY(check_required(n, p, "pq-auth", "sigalgs", p->sigalgs, suite->sigalgs, pq_kind_of_signature, why));
    return 0;
}

static int policy_read(const struct pq_node *n, void *out, struct pq_why *why)
{
    struct pq_proxy_policy p = {.given = true};
    TRY(pq_config_read(n, &pq_tls_policy_schema, &p.policy, why));
    int e = check_policy(n, &p.policy, why);
    if (e < 0)
        pq_config_free(&pq_tls_policy_schema, &p.policy);
    else
        memcpy(out, &p, sizeof p);
    return e;
}

static void policy_free(void *out) { pq_config_free(&pq_tls_policy_schema, &((struct pq_proxy_policy *)out)->policy); }

static const char *const crl_stale_names[] = {"refuse", "warn", NULL};
static const char *const first_flight_names[] = {"whole", "classical", NULL};
static const char *const carry_names[] = {"tunnel", "connection", NULL};

static int switch_read(const struct pq_node *n, void *out, struct pq_why *why)
{
    const char *text = pq_node_text(n);
    bool on = text && strcmp(text, "true") == 0;
    if (!on && (!text || strcmp(text, "false") != 0))
        return pq_node_why(n, why, "expected true or false");
    *(int *)out = on;
    return 0;
}

static const struct pq_field identity_fields[] = {
    {.name = "certificate",
     .type = PQ_FIELD_STRING,
     .offset = offsetof(struct pq_tls_identity, certificate),
     .required = true},
    {.name = "key", .type = PQ_FIELD_STRING, .offset = offsetof(struct pq_tls_identity, key), .required = true},
};
static const struct pq_schema identity_schema = {.what = "an identity",
                                                 .size = sizeof(struct pq_tls_identity),
                                                 .fields = identity_fields,
                                                 .count = PQ_COUNT(identity_fields)};

static void tls_defaults(void *out)
{
    *(struct pq_proxy_tls *)out = (struct pq_proxy_tls){
        .crl_stale = PQ_PROXY_UNSET, .first_flight = PQ_PROXY_UNSET, .resumption = PQ_PROXY_UNSET};
}

static int check_tls(const struct pq_node *n, void *out, struct pq_why *why)
{
    const struct pq_proxy_tls *t = out;
    const struct pq_node *list = pq_node_get(n, "identities");
    if (list && (t->identity.certificate || t->identity.key))
        return pq_node_why(list, why, "identities: certificate and key beside it are one too many: move them into it");
    if (list && (t->identities.count == 0 || t->identities.count > PQ_TLS_IDENTITIES_MAX))
        return pq_node_why(list, why, "identities: name 1 to %d", PQ_TLS_IDENTITIES_MAX);
    return 0;
}

static const struct pq_field tls_fields[] = {
    {.name = "certificate", .type = PQ_FIELD_STRING, .offset = offsetof(struct pq_proxy_tls, identity.certificate)},
    {.name = "key", .type = PQ_FIELD_STRING, .offset = offsetof(struct pq_proxy_tls, identity.key)},
    {.name = "identities",
     .type = PQ_FIELD_STRUCTS,
     .offset = offsetof(struct pq_proxy_tls, identities),
     .of = &identity_schema},
    {.name = "ca", .type = PQ_FIELD_STRING, .offset = offsetof(struct pq_proxy_tls, ca)},
    {.name = "crl", .type = PQ_FIELD_STRING, .offset = offsetof(struct pq_proxy_tls, crl)},
    {.name = "crl_stale",
     .type = PQ_FIELD_CHOICE,
     .offset = offsetof(struct pq_proxy_tls, crl_stale),
     .choices = crl_stale_names},
    {.name = "first_flight",
     .type = PQ_FIELD_CHOICE,
     .offset = offsetof(struct pq_proxy_tls, first_flight),
     .choices = first_flight_names},
    {.name = "resumption",
     .type = PQ_FIELD_CUSTOM,
     .offset = offsetof(struct pq_proxy_tls, resumption),
     .custom = switch_read},
    {.name = "certificates_max",
     .type = PQ_FIELD_SIZE,
     .offset = offsetof(struct pq_proxy_tls, certificates_max),
     .low = 1 << 10,
     .high = 16 << 20},
    {.name = "policy",
     .type = PQ_FIELD_CUSTOM,
     .offset = offsetof(struct pq_proxy_tls, policy),
     .custom = policy_read,
     .custom_free = policy_free},
};
static const struct pq_schema tls_schema = {
    "tls", sizeof(struct pq_proxy_tls), tls_fields, PQ_COUNT(tls_fields), tls_defaults, check_tls};

/* --- listeners --------------------------------------------------------------------------------------------------- */
int pq_proxy_plaintext_stays(const struct pq_proxy_listener *l, const struct pq_address *a, const char **wrong)
{
    bool ingress = l->direction == PQ_PROXY_INGRESS;
    if (l->plaintext_remote || pq_proxy_address_is_local(a))
        return 0;
    *wrong = ingress
                 ? "is another host, and what an ingress forwards is plaintext: forward to a loopback address or a "
                   "unix socket, or set forward_remote: true where the network between is trusted"
                 : "can be reached from other hosts, and what an egress listens for is plaintext: listen on a loopback "
                   "address or a unix socket, or set listen_remote: true where the network between is trusted";
    return PQ_E_CONFIG;
}

/* A name as a certificate shows it: RFC 9525 has no use for a pattern on this side. */
static int check_peers(const struct pq_node *map, const struct pq_proxy_listener *l, struct pq_why *why)
{
    const struct pq_node *n = pq_node_get(map, "peers");
    if (n && l->peers.count == 0)
        return pq_node_why(n, why,
                           "peers: names at least one peer; without the key any peer that the CA vouches for may come");
    if (l->peers.count > PQ_PROXY_PEERS_MAX)
        return pq_node_why(n, why, "peers: more than %d names", PQ_PROXY_PEERS_MAX);
    for (size_t i = 0; i < l->peers.count; i++)
        for (const char *c = l->peers.at[i]; *c; c++)
            if (!isgraph((unsigned char)*c) || *c == '*' || c - l->peers.at[i] > 254)
                return pq_node_why(pq_node_kind(n) == PQ_NODE_LIST ? pq_node_item(n, i) : n, why,
                                   "peers: \"%.60s\" is no name: write a whole DNS name, an IP address or a URI "
                                   "(urn:uuid:...), without a pattern",
                                   l->peers.at[i]);
    return 0;
}

const struct pq_address *pq_proxy_plaintext_unix(const struct pq_proxy_listener *l)
{
    const struct pq_proxy_address *egress = &l->listen;
    if (l->direction == PQ_PROXY_EGRESS)
        return egress->at.sa.ss_family == AF_UNIX ? &egress->at : NULL;
    for (size_t i = 0; i < pq_proxy_target_named(&l->target); i++)
        if (pq_proxy_target_at(&l->target, i)->at.sa.ss_family == AF_UNIX)
            return &pq_proxy_target_at(&l->target, i)->at;
    return NULL;
}

static int check_plaintext(const struct pq_node *n, const struct pq_proxy_listener *l, const struct pq_proxy_address *a,
                           struct pq_why *why)
{
    const char *wrong;
    return a->known && pq_proxy_plaintext_stays(l, &a->at, &wrong) < 0 ? pq_node_why(n, why, "%s %s", a->text, wrong)
                                                                       : 0;
}

static int check_target(const struct pq_node *map, const struct pq_proxy_listener *l, struct pq_why *why)
{
    const char *key = l->direction == PQ_PROXY_INGRESS ? "forward" : "connect";
    for (size_t i = 0; i < pq_proxy_target_named(&l->target); i++) {
        const struct pq_node *n = pq_proxy_target_node(pq_node_get(map, key), i);
        const struct pq_proxy_address *a = pq_proxy_target_at(&l->target, i);
        if (a->known && a->at.sa.ss_family != AF_UNIX && pq_address_port(&a->at) == 0)
            return pq_node_why(n, why, "%s: nothing answers on port 0", key);
        if (l->direction == PQ_PROXY_INGRESS)
            TRY(check_plaintext(n, l, a, why));
    }
    return 0;
}

static int check_listener(const struct pq_node *map, struct pq_proxy_listener *l, enum pq_proxy_direction direction,
                          struct pq_why *why)
{
    l->direction = direction;
    for (const char *c = l->name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("-_.", *c))
            return pq_node_why(pq_node_get(map, "name"), why,
                               "name: \"%.60s\" may hold letters, digits, '-', '_' and '.' only", l->name);
    TRY(check_target(map, l, why));
    if (direction == PQ_PROXY_EGRESS)
        TRY(check_plaintext(pq_node_get(map, "listen"), l, &l->listen, why));
    return check_peers(map, l, why);
}

static int check_ingress(const struct pq_node *map, void *out, struct pq_why *why)
{
    return check_listener(map, out, PQ_PROXY_INGRESS, why);
}

static int check_egress(const struct pq_node *map, void *out, struct pq_why *why)
{
    struct pq_proxy_listener *l = out;
    if (!pq_node_get(map, "peers"))
        return pq_node_why(
            map, why,
            "egress \"%s\" needs \"peers\": the names of which one must be in the peer's certificate, or anyone "
            "whom the CA vouches for could stand in for it",
            l->name);
    TRY(pq_transparent_check(map, l, why));
    return check_listener(map, out, PQ_PROXY_EGRESS, why);
}

#define LISTENER_FIELDS(target_name, needed, remote_name)                                                              \
    {.name = "name", .type = PQ_FIELD_STRING, .offset = offsetof(struct pq_proxy_listener, name), .required = true},   \
        {.name = "listen",                                                                                             \
         .type = PQ_FIELD_CUSTOM,                                                                                      \
         .offset = offsetof(struct pq_proxy_listener, listen),                                                         \
         .required = true,                                                                                             \
         .custom = pq_proxy_address_read_numeric,                                                                      \
         .custom_free = pq_proxy_address_free},                                                                        \
        {.name = target_name,                                                                                          \
         .type = PQ_FIELD_CUSTOM,                                                                                      \
         .offset = offsetof(struct pq_proxy_listener, target),                                                         \
         .required = needed,                                                                                           \
         .custom = pq_proxy_target_read,                                                                               \
         .custom_free = pq_proxy_target_free},                                                                         \
        {.name = "peers", .type = PQ_FIELD_STRINGS, .offset = offsetof(struct pq_proxy_listener, peers)},              \
        {.name = remote_name, .type = PQ_FIELD_BOOL, .offset = offsetof(struct pq_proxy_listener, plaintext_remote)},  \
    {                                                                                                                  \
        .name = "tls", .type = PQ_FIELD_STRUCT, .offset = offsetof(struct pq_proxy_listener, tls), .of = &tls_schema   \
    }

static void listener_defaults(void *out)
{
    struct pq_proxy_listener *l = out;
    memset(l, 0, sizeof *l);
    tls_defaults(&l->tls);
}

static const struct pq_field ingress_fields[] = {
    LISTENER_FIELDS("forward", true, "forward_remote"),
    {.name = "authorities", .type = PQ_FIELD_STRINGS, .offset = offsetof(struct pq_proxy_listener, authorities)},
};
static const struct pq_field egress_fields[] = {
    LISTENER_FIELDS("connect", false, "listen_remote"),
    {.name = "authority", .type = PQ_FIELD_STRING, .offset = offsetof(struct pq_proxy_listener, authority)},
    {.name = "carry",
     .type = PQ_FIELD_CHOICE,
     .offset = offsetof(struct pq_proxy_listener, carry),
     .choices = carry_names},
    {.name = "transparent", .type = PQ_FIELD_BOOL, .offset = offsetof(struct pq_proxy_listener, transparent)},
    {.name = "networks",
     .type = PQ_FIELD_CUSTOM,
     .offset = offsetof(struct pq_proxy_listener, networks),
     .custom = pq_transparent_networks_read,
     .custom_free = pq_transparent_networks_free},
};
static const struct pq_schema ingress_schema = {.what = "an ingress",
                                                .size = sizeof(struct pq_proxy_listener),
                                                .fields = ingress_fields,
                                                .count = PQ_COUNT(ingress_fields),
                                                .defaults = listener_defaults,
                                                .check = check_ingress};
static const struct pq_schema egress_schema = {.what = "an egress",
                                               .size = sizeof(struct pq_proxy_listener),
                                               .fields = egress_fields,
                                               .count = PQ_COUNT(egress_fields),
                                               .defaults = listener_defaults,
                                               .check = check_egress};

/* --- the file ---------------------------------------------------------------------------------------------------- */
static const struct pq_node *listener_node(const struct pq_node *root, const struct pq_proxy_config *c, size_t i)
{
    return i < c->ingress.count ? pq_node_item(pq_node_get(root, "ingress"), i)
                                : pq_node_item(pq_node_get(root, "egress"), i - c->ingress.count);
}

static int check_name(const struct pq_node *node, const struct pq_proxy_listener *later,
                      const struct pq_proxy_listener *earlier, struct pq_why *why)
{
    return strcmp(later->name, earlier->name) == 0
               ? pq_node_why(pq_node_get(node, "name"), why, "name: there is already a listener \"%s\"", later->name)
               : 0;
}

static int check_identity(const struct pq_node *node, const struct pq_proxy_config *c,
                          const struct pq_proxy_listener *l, struct pq_why *why)
{
    struct pq_tls_settings s = pq_proxy_listener_tls(c, l);
    if (!l->tls.identity.certificate != !l->tls.identity.key)
        return pq_node_why(pq_node_get(node, "tls"), why, "a certificate goes with its key: name both or neither");
    const char *missing = !s.identities->certificate ? "certificate" : !s.identities->key ? "key" : !s.ca ? "ca" : NULL;
    if (missing)
        return pq_node_why(node, why, "\"%s\" has no tls.%s: name the file here or in the general tls", l->name,
                           missing);
    return 0;
}

static int check_all(const struct pq_node *root, void *out, struct pq_why *why)
{
    struct pq_proxy_config *c = out;
    size_t count = pq_proxy_listener_count(c);
    if (count == 0)
        return pq_node_why(root, why, "there is nothing to do: name at least one listener under ingress or egress");
    if (count > PQ_PROXY_LISTENERS_MAX)
        return pq_node_why(root, why, "%zu listeners are more than the %d that one proxy takes", count,
                           PQ_PROXY_LISTENERS_MAX);
    for (size_t i = 0; i < count; i++) {
        const struct pq_node *node = listener_node(root, c, i);
        for (size_t k = 0; k < i; k++)
            TRY(check_name(node, pq_proxy_listener_at(c, i), pq_proxy_listener_at(c, k), why));
        TRY(check_identity(node, c, pq_proxy_listener_at(c, i), why));
    }
    return 0;
}

static const struct pq_proxy_config standard = {
    .log = {PQ_LOG_INFO, PQ_LOG_LOGFMT},
    .workers = 1,
    .contain = true,
    .watch = true,
    .resolve = 30 * PQ_NS_PER_S,
    .tcp_nodelay = true,
    .whole_flights = true,
    .timeouts = {.handshake = 5 * PQ_NS_PER_S,
                 .connect = 5 * PQ_NS_PER_S,
                 .idle = 600 * PQ_NS_PER_S,
                 .drain = 30 * PQ_NS_PER_S,
                 .grace = 10 * PQ_NS_PER_S},
    .limits =
        {.connections = 8000, .buffer = 64 << 10, .handshakes = 1024, .handshakes_per_source = 50, .strangers = 200},
    .tunnel = {.connections = 2, .max_age = 3600 * PQ_NS_PER_S},
    .tls = {.crl_stale = PQ_PROXY_UNSET, .first_flight = PQ_PROXY_UNSET, .resumption = PQ_PROXY_UNSET},
};
static void defaults(void *out) { memcpy(out, &standard, sizeof standard); }
/* A group that is there and leaves a key out has the same. */
static void log_defaults(void *out) { memcpy(out, &standard.log, sizeof standard.log); }
static void timeout_defaults(void *out) { memcpy(out, &standard.timeouts, sizeof standard.timeouts); }
static void limit_defaults(void *out) { memcpy(out, &standard.limits, sizeof standard.limits); }
static void tunnel_defaults(void *out) { memcpy(out, &standard.tunnel, sizeof standard.tunnel); }

/* Whoever reaches it can stop the proxy. */
static int admin_read(const struct pq_node *n, void *out, struct pq_why *why)
{
    struct pq_proxy_address a = {0};
    int e = pq_proxy_address_read_numeric(n, &a, why);
    if (e == 0 && !pq_proxy_address_is_local(&a.at))
        e = pq_node_why(
            n, why,
            "admin: %s can be reached from other hosts, and whoever reaches it can stop the proxy: listen on "
            "a loopback address or a unix socket",
            a.text);
    if (e < 0)
        pq_proxy_address_free(&a);
    else
        memcpy(out, &a, sizeof a);
    return e;
}

#define AT(member)            offsetof(struct pq_proxy_config, member)
#define WITHIN(group, member) (AT(group.member) - AT(group))
#define TIMEOUT(timeout, least)                                                                                        \
    {.name = #timeout,                                                                                                 \
     .type = PQ_FIELD_DURATION,                                                                                        \
     .offset = WITHIN(timeouts, timeout),                                                                              \
     .low = least,                                                                                                     \
     .high = 7 * 86400 * PQ_NS_PER_S}

static const struct pq_field log_fields[] = {
    {.name = "level", .type = PQ_FIELD_CHOICE, .offset = WITHIN(log, level), .choices = pq_log_level_names},
    {.name = "format", .type = PQ_FIELD_CHOICE, .offset = WITHIN(log, format), .choices = pq_log_format_names},
};
static const struct pq_field timeout_fields[] = {
    TIMEOUT(handshake, PQ_NS_PER_MS),
    TIMEOUT(connect, PQ_NS_PER_MS),
    TIMEOUT(idle, 0),
    TIMEOUT(drain, 0),
    TIMEOUT(grace, 0),
    TIMEOUT(retire, 0),
};
#define LIMIT(limit, least, most)                                                                                      \
    {.name = #limit, .type = PQ_FIELD_INT, .offset = WITHIN(limits, limit), .low = least, .high = most}
static const struct pq_field limit_fields[] = {
    LIMIT(connections, 1, PQ_PROXY_CONNECTIONS_MAX),
    {.name = "buffer",
     .type = PQ_FIELD_SIZE,
     .offset = WITHIN(limits, buffer),
     .low = PQ_PROXY_BUFFER_MIN,
     .high = PQ_PROXY_BUFFER_MAX},
    LIMIT(handshakes, 1, 100000),
    LIMIT(handshakes_per_source, 1, 1000000),
    LIMIT(strangers, 1, 1000000),
};
static const struct pq_field tunnel_fields[] = {
    {.name = "connections", .type = PQ_FIELD_INT, .offset = WITHIN(tunnel, connections), .low = 1, .high = 64},
    {.name = "max_age",
     .type = PQ_FIELD_DURATION,
     .offset = WITHIN(tunnel, max_age),
     .low = PQ_NS_PER_S,
     .high = 30 * 86400 * PQ_NS_PER_S},
};
static const struct pq_field pkcs11_fields[] = {
    {.name = "module", .type = PQ_FIELD_STRING, .offset = 0, .required = true},
};
static const struct pq_schema log_schema = {"log", sizeof standard.log, log_fields, PQ_COUNT(log_fields), log_defaults,
                                            NULL};
static const struct pq_schema timeout_schema = {
    "timeouts", sizeof standard.timeouts, timeout_fields, PQ_COUNT(timeout_fields), timeout_defaults, NULL};
static const struct pq_schema limit_schema = {
    "limits", sizeof standard.limits, limit_fields, PQ_COUNT(limit_fields), limit_defaults, NULL};
static const struct pq_schema tunnel_schema = {
    "tunnel", sizeof standard.tunnel, tunnel_fields, PQ_COUNT(tunnel_fields), tunnel_defaults, NULL};
static const struct pq_schema pkcs11_schema = {
    .what = "pkcs11", .size = sizeof(char *), .fields = pkcs11_fields, .count = PQ_COUNT(pkcs11_fields)};

static const struct pq_field fields[] = {
    {.name = "log", .type = PQ_FIELD_STRUCT, .offset = AT(log), .of = &log_schema},
    {.name = "workers", .type = PQ_FIELD_INT, .offset = AT(workers), .low = 1, .high = PQ_PROXY_WORKERS_MAX},
    {.name = "user", .type = PQ_FIELD_STRING, .offset = AT(user)},
    {.name = "contain", .type = PQ_FIELD_BOOL, .offset = AT(contain)},
    {.name = "watch", .type = PQ_FIELD_BOOL, .offset = AT(watch)},
    {.name = "admin",
     .type = PQ_FIELD_CUSTOM,
     .offset = AT(admin),
     .custom = admin_read,
     .custom_free = pq_proxy_address_free},
    {.name = "resolve",
     .type = PQ_FIELD_DURATION,
     .offset = AT(resolve),
     .low = PQ_NS_PER_S,
     .high = 7 * 86400 * PQ_NS_PER_S},
    {.name = "pkcs11", .type = PQ_FIELD_STRUCT, .offset = AT(pkcs11_module), .of = &pkcs11_schema},
    {.name = "tcp_nodelay", .type = PQ_FIELD_BOOL, .offset = AT(tcp_nodelay)},
    {.name = "whole_flights", .type = PQ_FIELD_BOOL, .offset = AT(whole_flights)},
    {.name = "timeouts", .type = PQ_FIELD_STRUCT, .offset = AT(timeouts), .of = &timeout_schema},
    {.name = "limits", .type = PQ_FIELD_STRUCT, .offset = AT(limits), .of = &limit_schema},
    {.name = "tunnel", .type = PQ_FIELD_STRUCT, .offset = AT(tunnel), .of = &tunnel_schema},
    {.name = "tls", .type = PQ_FIELD_STRUCT, .offset = AT(tls), .of = &tls_schema},
    {.name = "ingress", .type = PQ_FIELD_STRUCTS, .offset = AT(ingress), .of = &ingress_schema},
    {.name = "egress", .type = PQ_FIELD_STRUCTS, .offset = AT(egress), .of = &egress_schema},
};
static const struct pq_schema schema = {
    "the proxy's configuration", sizeof(struct pq_proxy_config), fields, PQ_COUNT(fields), defaults, check_all};

/* --- paths ------------------------------------------------------------------------------------------------------- */
static int beside(const char *file, char **path)
{
    const char *slash = strrchr(file, '/');
    if (!*path || **path == '/' || !slash)
        return 0;
    char *whole;
    if (asprintf(&whole, "%.*s/%s", (int)(slash - file), file, *path) < 0)
        return PQ_E_NOMEM;
    free(*path);
    *path = whole;
    return 0;
}

/* A key in a token has a URI (RFC 7512). */
static int beside_key(const char *file, char **key)
{
    return *key && strncmp(*key, "pkcs11:", 7) == 0 ? 0 : beside(file, key);
}

static int beside_tls(const char *file, struct pq_proxy_tls *t)
{
    struct pq_tls_identity *identities = t->identities.at;
    for (size_t i = 0; i < t->identities.count; i++) {
        TRY(beside(file, &identities[i].certificate));
        TRY(beside_key(file, &identities[i].key));
    }
    TRY(beside(file, &t->identity.certificate));
    TRY(beside_key(file, &t->identity.key));
    TRY(beside(file, &t->ca));
    return beside(file, &t->crl);
}

static int beside_listener(const char *file, struct pq_proxy_listener *l, struct pq_why *why)
{
    TRY(beside_tls(file, &l->tls));
    TRY(pq_proxy_address_beside(&l->listen, file, why));
    for (size_t i = 0; i < pq_proxy_target_named(&l->target); i++)
        TRY(pq_proxy_address_beside(pq_proxy_target_at(&l->target, i), file, why));
    return 0;
}

/* --- addresses together ------------------------------------------------------------------------------------------ */
static int check_listen(const struct pq_proxy_config *c, size_t i, struct pq_why *why)
{
    const struct pq_proxy_listener *later = pq_proxy_listener_at(c, i);
    for (size_t k = 0; k < i; k++) {
        const struct pq_proxy_listener *earlier = pq_proxy_listener_at(c, k);
        if (pq_proxy_address_collides(&later->listen.at, &earlier->listen.at))
            return pq_why(why, PQ_E_CONFIG, "%s: listen: %s is taken by \"%s\", which listens on %s",
                          later->listen.where, later->listen.text, earlier->name, earlier->listen.text);
    }
    return 0;
}

static size_t reached(const struct pq_proxy_config *c, const struct pq_address *a)
{
    size_t i = 0;
    while (i < pq_proxy_listener_count(c) && !pq_proxy_address_reaches(a, &pq_proxy_listener_at(c, i)->listen.at))
        i++;
    return i;
}

enum { NOT_SEEN, ON_THE_WAY, SEEN };

/* Follows what one client of a listener would become; who is met again while on the way leads back to itself. */
static int follow(const struct pq_proxy_config *c, size_t i, uint8_t state[PQ_PROXY_LISTENERS_MAX], struct pq_why *why)
{
    const struct pq_proxy_listener *l = pq_proxy_listener_at(c, i);
    state[i] = ON_THE_WAY;
    for (size_t k = 0; k < l->target.count; k++) {
        const struct pq_proxy_place *p = &l->target.places[k];
        size_t next = reached(c, &p->at);
        if (next == pq_proxy_listener_count(c))
            continue;
        const struct pq_proxy_listener *to = pq_proxy_listener_at(c, next);
        if (state[next] == ON_THE_WAY)
            return pq_why(
                why, PQ_E_CONFIG,
                "%s: %s leads back to \"%s\" itself, so one client would become connections without end: name "
                "the address of the %s",
                p->named->where, p->named->text, to->name, l->direction == PQ_PROXY_INGRESS ? "function" : "peer");
        if (state[next] == NOT_SEEN)
            TRY(follow(c, next, state, why));
        if (l->direction == PQ_PROXY_EGRESS && to->direction == PQ_PROXY_EGRESS)
            return pq_why(
                why, PQ_E_CONFIG,
                "%s: on %s listens the egress \"%s\", for plaintext, and \"%s\" speaks TLS: connect to an ingress "
                "or another TLS server",
                p->named->where, p->named->text, to->name, l->name);
    }
    state[i] = SEEN;
    return 0;
}

/* Or a peer could stop us. */
static int keep_admin(const struct pq_proxy_config *c, const struct pq_proxy_listener *l, struct pq_why *why)
{
    for (size_t i = 0; c->admin.text && i < l->target.count; i++) {
        const struct pq_proxy_place *p = &l->target.places[i];
        if (pq_proxy_address_reaches(&p->at, &c->admin.at))
            return pq_why(why, PQ_E_CONFIG,
                          "%s: %s is the admin listener, which is for this host alone: name the address of the %s",
                          p->named->where, p->named->text, l->direction == PQ_PROXY_INGRESS ? "function" : "peer");
    }
    return 0;
}

static int check_loops(const struct pq_proxy_config *c, struct pq_why *why)
{
    uint8_t state[PQ_PROXY_LISTENERS_MAX] = {NOT_SEEN};
    for (size_t i = 0; i < pq_proxy_listener_count(c); i++)
        if (state[i] == NOT_SEEN)
            TRY(follow(c, i, state, why));
    for (size_t i = 0; i < pq_proxy_listener_count(c); i++)
        TRY(keep_admin(c, pq_proxy_listener_at(c, i), why));
    return 0;
}

static int check_admin(const struct pq_proxy_config *c, const struct pq_proxy_listener *l, struct pq_why *why)
{
    if (c->admin.text && pq_proxy_address_collides(&c->admin.at, &l->listen.at))
        return pq_why(why, PQ_E_CONFIG, "%s: admin: %s is taken by \"%s\", which listens on %s", c->admin.where,
                      c->admin.text, l->name, l->listen.text);
    return 0;
}

/* What the fields alone can't show, since it takes the file's folder. */
static int complete(const char *file, struct pq_proxy_config *c, struct pq_why *why)
{
    int e = beside_tls(file, &c->tls);
    if (e == 0 && c->admin.text)
        e = pq_proxy_address_beside(&c->admin, file, why);
    for (size_t i = 0; e == 0 && i < pq_proxy_listener_count(c); i++) {
        e = beside_listener(file, pq_proxy_listener_at(c, i), why);
        if (e == 0)
            e = check_listen(c, i, why);
        if (e == 0)
            e = check_admin(c, pq_proxy_listener_at(c, i), why);
    }
    if (e < 0)
        pq_proxy_config_free(c);
    return e;
}

/* --- interface --------------------------------------------------------------------------------------------------- */
int pq_proxy_config_load(const char *path, struct pq_proxy_config *out, struct pq_why *why)
{
    TRY(pq_config_load(path, &schema, out, why));
    return complete(path, out, why);
}

int pq_proxy_config_parse(const char *path, const char *text, size_t len, struct pq_proxy_config *out,
                          struct pq_why *why)
{
    TRY(pq_config_parse(path, text, len, &schema, out, why));
    return complete(path, out, why);
}

void pq_proxy_config_free(struct pq_proxy_config *config) { pq_config_free(&schema, config); }

static int resolve(struct pq_proxy_listener *l, const struct pq_lookup *lookup, struct pq_why *why)
{
    const char *wrong;
    TRY(pq_proxy_target_resolve(&l->target, lookup, why));
    for (size_t i = 0; l->direction == PQ_PROXY_INGRESS && i < l->target.count; i++) {
        const struct pq_proxy_place *p = &l->target.places[i];
        if (pq_proxy_plaintext_stays(l, &p->at, &wrong) < 0)
            return pq_why(why, PQ_E_CONFIG, "%s: %s %s", p->named->where, p->named->text, wrong);
    }
    return 0;
}

int pq_proxy_config_resolve(struct pq_proxy_config *config, const struct pq_lookup *lookup, struct pq_why *why)
{
    for (size_t i = 0; i < pq_proxy_listener_count(config); i++)
        TRY(resolve(pq_proxy_listener_at(config, i), lookup, why));
    return check_loops(config, why);
}

/* The same places; those of a target are all different. */
static bool same_places(const struct pq_proxy_target *a, const struct pq_proxy_target *b)
{
    size_t found = 0;
    for (size_t i = 0; i < a->count; i++)
        for (size_t k = 0; k < b->count; k++)
            found += pq_address_equal(&a->places[i].at, &b->places[k].at);
    return a->count == b->count && found == a->count;
}

int pq_proxy_config_lead(struct pq_proxy_config *config, size_t listener, const struct pq_lookup *lookup, bool *changed,
                         struct pq_why *why)
{
    struct pq_proxy_listener *l = pq_proxy_listener_at(config, listener);
    struct pq_proxy_target old = l->target;
    l->target.places = NULL;
    l->target.count = 0;
    int e = resolve(l, lookup, why);
    if (e == 0)
        e = check_loops(config, why);
    if (e == 0 && !same_places(&old, &l->target)) {
        free(old.places);
        *changed = true;
        return 0;
    }
    free(l->target.places);
    l->target = old;
    *changed = false;
    return e;
}

size_t pq_proxy_listener_count(const struct pq_proxy_config *config)
{
    return config->ingress.count + config->egress.count;
}

struct pq_proxy_listener *pq_proxy_listener_at(const struct pq_proxy_config *config, size_t i)
{
    struct pq_proxy_listener *ingress = config->ingress.at, *egress = config->egress.at;
    return i < config->ingress.count ? &ingress[i] : &egress[i - config->ingress.count];
}

struct pq_tls_settings pq_proxy_listener_tls(const struct pq_proxy_config *config, const struct pq_proxy_listener *l)
{
    const struct pq_proxy_tls *general = &config->tls, *own = &l->tls;
    struct pq_tls_settings s = {.verify_peer = true, .split_flights = !config->whole_flights};
    const struct pq_proxy_tls *whose =
        own->identity.certificate || own->identity.key || own->identities.count ? own : general;
    s.identities = whose->identities.count ? whose->identities.at : &whose->identity;
    s.identity_count = whose->identities.count ? whose->identities.count : 1;
    int first = own->first_flight != PQ_PROXY_UNSET ? own->first_flight : general->first_flight;
    s.resume = (own->resumption != PQ_PROXY_UNSET ? own->resumption : general->resumption) != 0; /* unset: yes */
    s.first_flight_classical = first == PQ_PROXY_FIRST_CLASSICAL;
    s.max_certificate_list = own->certificates_max ? own->certificates_max : general->certificates_max;
    s.pkcs11_module = config->pkcs11_module;
    s.ca = own->ca ? own->ca : general->ca;
    s.crl = own->crl ? own->crl : general->crl;
    int stale = own->crl_stale != PQ_PROXY_UNSET ? own->crl_stale : general->crl_stale;
    s.crl_stale = stale == PQ_PROXY_UNSET ? PQ_TLS_CRL_REFUSE : stale;
    if (own->policy.given)
        s.policy = own->policy.policy;
    else if (general->policy.given)
        s.policy = general->policy.policy;
    else
        pq_tls_policy_schema.defaults(&s.policy);
    return s;
}
