#include "proxy/view.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "proxy/target.h"
#include "proxy/view_dates.h"

/* --- values as the file has them --------------------------------------------------------------------------------- */
struct unit {
    const char *name;
    int64_t size;
};

/* In the largest unit that loses nothing; the last one's size is 1. */
static void put_quantity(struct pq_json *j, const char *key, int64_t value, const struct unit *u)
{
    char text[40];
    while (u->size > 1 && value % u->size != 0)
        u++;
    snprintf(text, sizeof text, "%" PRId64 "%s", value / u->size, u->name);
    pq_json_text(j, key, text);
}

static void put_duration(struct pq_json *j, const char *key, int64_t ns)
{
    static const struct unit units[] = {{"h", 3600 * PQ_NS_PER_S}, {"min", 60 * PQ_NS_PER_S}, {"s", PQ_NS_PER_S},
                                        {"ms", PQ_NS_PER_MS},      {"us", PQ_NS_PER_US},      {"ns", 1}};
    put_quantity(j, key, ns, ns ? units : units + 2);
}

static void put_size(struct pq_json *j, const char *key, int64_t bytes)
{
    static const struct unit units[] = {{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}};
    put_quantity(j, key, bytes, bytes ? units : units + 3);
}

static void put_optional(struct pq_json *j, const char *key, const char *text)
{
    if (text)
        pq_json_text(j, key, text);
}

static void put_strings(struct pq_json *j, const char *key, const struct pq_strings *s)
{
    if (s->count == 0)
        return;
    pq_json_open(j, key, '[');
    for (size_t i = 0; i < s->count; i++)
        pq_json_text(j, NULL, s->at[i]);
    pq_json_close(j, ']');
}

/* RFC 7512, section 2.4: the PIN is an attribute of the URI's query. */
static void put_key(struct pq_json *j, const char *key)
{
    static const char pin[] = "pin-value=";
    const char *found = strncmp(key, "pkcs11:", 7) == 0 ? strcasestr(key, pin) : NULL;
    if (!found) {
        pq_json_text(j, "key", key);
        return;
    }
    char shown[1024];
    found += strlen(pin);
    snprintf(shown, sizeof shown, "%.*s...%s", (int)(found - key), key, found + strcspn(found, "&;"));
    pq_json_text(j, "key", shown);
}

/* The path of a unix socket as it is used, whatever folder the file is in. */
static void put_address(struct pq_json *j, const char *key, const struct pq_proxy_address *a)
{
    char text[PQ_ADDRESS_TEXT];
    if (!a->text)
        return;
    pq_address_text(&a->at, text);
    pq_json_text(j, key, a->known && a->at.sa.ss_family == AF_UNIX ? text : a->text);
}

/* --- tls --------------------------------------------------------------------------------------------------------- */
static void put_policy(struct pq_json *j, const struct pq_tls_policy *p)
{
    pq_json_open(j, "policy", '{');
    pq_json_text(j, "mode", pq_mode_names[p->mode]);
    pq_json_whole(j, "level", p->level);
    put_optional(j, "groups", p->groups);
    put_optional(j, "sigalgs", p->sigalgs);
    put_optional(j, "ciphersuites", p->ciphersuites);
    pq_json_open(j, "require", '[');
    if (p->require_pq_kex)
        pq_json_text(j, NULL, "pq-kex");
    if (p->require_pq_auth)
        pq_json_text(j, NULL, "pq-auth");
    pq_json_close(j, ']');
    pq_json_close(j, '}');
}

static int either(int own, int general, int standard)
{
    return own != PQ_PROXY_UNSET ? own : general != PQ_PROXY_UNSET ? general : standard;
}

static void put_tls(struct pq_json *j, const struct pq_proxy_config *c, const struct pq_proxy_listener *l)
{
    const struct pq_proxy_tls *own = &l->tls, *general = &c->tls;
    struct pq_tls_settings s = pq_proxy_listener_tls(c, l);
    int64_t most = own->certificates_max ? own->certificates_max : general->certificates_max;
    pq_json_open(j, "tls", '{');
    pq_json_open(j, "identities", '[');
    for (size_t i = 0; i < s.identity_count; i++) {
        pq_json_open(j, NULL, '{');
        pq_json_text(j, "certificate", s.identities[i].certificate);
        put_key(j, s.identities[i].key);
        pq_json_close(j, '}');
    }
    pq_json_close(j, ']');
    pq_json_text(j, "ca", s.ca);
    put_optional(j, "crl", s.crl);
    pq_json_text(j, "crl_stale", s.crl_stale == PQ_TLS_CRL_REFUSE ? "refuse" : "warn");
    pq_json_text(j, "first_flight", s.first_flight_classical ? "classical" : "whole");
    pq_json_bool(j, "resumption", either(own->resumption, general->resumption, true));
    if (most)
        put_size(j, "certificates_max", most);
    put_policy(j, &s.policy);
    pq_json_close(j, '}');
}

/* --- listeners --------------------------------------------------------------------------------------------------- */
static void put_target(struct pq_json *j, const char *key, const struct pq_proxy_target *t)
{
    if (pq_proxy_target_named(t) == 1) {
        put_address(j, key, pq_proxy_target_at(t, 0));
        return;
    }
    pq_json_open(j, key, '[');
    for (size_t i = 0; i < pq_proxy_target_named(t); i++)
        put_address(j, NULL, pq_proxy_target_at(t, i));
    pq_json_close(j, ']');
}

static void put_ingress(struct pq_json *j, const struct pq_proxy_listener *l)
{
    put_target(j, "forward", &l->target);
    pq_json_bool(j, "forward_remote", l->plaintext_remote);
    put_strings(j, "authorities", &l->authorities);
}

static void put_transparent(struct pq_json *j, const struct pq_proxy_listener *l)
{
    const struct pq_network *networks = l->networks.at;
    pq_json_bool(j, "listen_remote", l->plaintext_remote);
    pq_json_bool(j, "transparent", true);
    if (l->networks.count == 0)
        return;
    pq_json_open(j, "networks", '[');
    for (size_t i = 0; i < l->networks.count; i++) {
        char text[PQ_NETWORK_TEXT];
        pq_network_text(&networks[i], text);
        pq_json_text(j, NULL, text);
    }
    pq_json_close(j, ']');
}

static void put_egress(struct pq_json *j, const struct pq_proxy_listener *l)
{
    if (l->transparent) {
        put_transparent(j, l);
        return;
    }
    put_target(j, "connect", &l->target);
    pq_json_bool(j, "listen_remote", l->plaintext_remote);
    put_optional(j, "authority", l->authority);
    pq_json_text(j, "carry", l->carry == PQ_PROXY_CARRY_TUNNEL ? "tunnel" : "connection");
    pq_json_bool(j, "transparent", false);
}

static void put_listeners(struct pq_json *j, const struct pq_proxy_config *c, enum pq_proxy_direction d)
{
    pq_json_open(j, pq_proxy_direction_names[d], '[');
    for (size_t i = 0; i < pq_proxy_listener_count(c); i++) {
        const struct pq_proxy_listener *l = pq_proxy_listener_at(c, i);
        if (l->direction != d)
            continue;
        pq_json_open(j, NULL, '{');
        pq_json_text(j, "name", l->name);
        put_address(j, "listen", &l->listen);
        if (d == PQ_PROXY_INGRESS)
            put_ingress(j, l);
        else
            put_egress(j, l);
        put_strings(j, "peers", &l->peers);
        put_tls(j, c, l);
        pq_json_close(j, '}');
    }
    pq_json_close(j, ']');
}

/* --- the whole file ---------------------------------------------------------------------------------------------- */
static void put_limits(struct pq_json *j, const struct pq_proxy_config *c)
{
    pq_json_open(j, "timeouts", '{');
    put_duration(j, "handshake", c->timeouts.handshake);
    put_duration(j, "connect", c->timeouts.connect);
    put_duration(j, "idle", c->timeouts.idle);
    put_duration(j, "drain", c->timeouts.drain);
    put_duration(j, "grace", c->timeouts.grace);
    put_duration(j, "retire", c->timeouts.retire);
    pq_json_close(j, '}');
    pq_json_open(j, "limits", '{');
    pq_json_whole(j, "connections", c->limits.connections);
    put_size(j, "buffer", c->limits.buffer);
    pq_json_whole(j, "handshakes", c->limits.handshakes);
    pq_json_whole(j, "handshakes_per_source", c->limits.handshakes_per_source);
    pq_json_whole(j, "strangers", c->limits.strangers);
    pq_json_close(j, '}');
    pq_json_open(j, "tunnel", '{');
    pq_json_whole(j, "connections", c->tunnel.connections);
    put_duration(j, "max_age", c->tunnel.max_age);
    pq_json_close(j, '}');
}

static void put_config(struct pq_json *j, const struct pq_proxy_config *c)
{
    pq_json_open(j, "config", '{');
    pq_json_open(j, "log", '{');
    pq_json_text(j, "level", pq_log_level_names[c->log.level]);
    pq_json_text(j, "format", pq_log_format_names[c->log.format]);
    pq_json_close(j, '}');
    pq_json_whole(j, "workers", c->workers);
    put_optional(j, "user", c->user);
    pq_json_bool(j, "contain", c->contain);
    pq_json_bool(j, "watch", c->watch);
    put_address(j, "admin", &c->admin);
    put_duration(j, "resolve", c->resolve);
    if (c->pkcs11_module) {
        pq_json_open(j, "pkcs11", '{');
        pq_json_text(j, "module", c->pkcs11_module);
        pq_json_close(j, '}');
    }
    pq_json_bool(j, "tcp_nodelay", c->tcp_nodelay);
    pq_json_bool(j, "whole_flights", c->whole_flights);
    put_limits(j, c);
    if (c->ingress.count)
        put_listeners(j, c, PQ_PROXY_INGRESS);
    if (c->egress.count)
        put_listeners(j, c, PQ_PROXY_EGRESS);
    pq_json_close(j, '}');
}

/* --- all of it --------------------------------------------------------------------------------------------------- */
static void put_files(struct pq_json *j, const struct pq_files *files)
{
    pq_json_open(j, "files", '[');
    for (size_t i = 0; files && i < pq_files_count(files); i++)
        pq_json_text(j, NULL, pq_files_path(files, i));
    pq_json_close(j, ']');
}

int pq_view_write(struct pq_crypto *crypto, const struct pq_view *v, struct pq_buf *out, struct pq_why *why)
{
    struct pq_json j = pq_json(out);
    pq_json_open(&j, NULL, '{');
    pq_json_whole(&j, "generation", (int64_t)v->generation);
    pq_json_text(&j, "file", v->file);
    put_config(&j, v->config);
    TRY(pq_view_dates(&j, crypto, v, why));
    put_files(&j, v->files);
    pq_json_close(&j, '}');
    TRY(j.failed);
    return pq_buf_text(out, "\n");
}
