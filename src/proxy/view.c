#include "proxy/view.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "proxy/target.h"
#include "tls/load.h"

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
    pq_json_open(j, "warm", '{');
    pq_json_whole(j, "connections", l->warm.connections);
    pq_json_whole(j, "cpu", l->warm.cpu);
    pq_json_close(j, '}');
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

/* --- certificates ------------------------------------------------------------------------------------------------ */
static int64_t unix_time(const ASN1_TIME *t)
{
    struct tm tm = {0};
    return t && ASN1_TIME_to_tm(t, &tm) ? (int64_t)timegm(&tm) : 0;
}

/* A chain is of no use any more once one of it has expired. */
static int64_t first_end(const STACK_OF(X509) * chain)
{
    int64_t first = INT64_MAX;
    for (int i = 0; i < sk_X509_num(chain); i++) {
        int64_t end = unix_time(X509_get0_notAfter(sk_X509_value(chain, i)));
        first = end < first ? end : first;
    }
    return first;
}

static void put_algorithm(struct pq_json *j, X509 *leaf)
{
    EVP_PKEY *key = X509_get0_pubkey(leaf);
    const char *type = key ? EVP_PKEY_get0_type_name(key) : NULL;
    char text[128], group[64] = "";
    if (type && strcmp(type, "EC") == 0)
        EVP_PKEY_get_group_name(key, group, sizeof group, NULL);
    snprintf(text, sizeof text, "%s%s%s", type ? type : "unknown", group[0] ? " " : "", group);
    pq_json_text(j, "algorithm", text);
}

static int put_subject(struct pq_json *j, X509 *leaf)
{
    DEFER(BIO_free_allp) BIO *b = BIO_new(BIO_s_mem());
    char text[256] = "";
    if (!b || X509_NAME_print_ex(b, X509_get_subject_name(leaf), 0, XN_FLAG_RFC2253) < 0)
        return PQ_E_NOMEM;
    int n = BIO_read(b, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    pq_json_text(j, "subject", text);
    return 0;
}

static int load_chain(struct pq_crypto *crypto, const struct pq_view *v, const char *path, STACK_OF(X509) * *out,
                      struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf own = {0};
    struct pq_span pem;
    TRY(pq_tls_contents(v->files, path, false, &own, &pem, why));
    return pq_tls_load_chain(pq_crypto_libctx(crypto), path, pem, out, why);
}

static int put_certificate(struct pq_json *j, struct pq_crypto *crypto, const struct pq_view *v,
                           const struct pq_proxy_listener *l, const struct pq_tls_identity *identity, size_t number,
                           struct pq_why *why)
{
    DEFER(pq_x509_stack_freep) STACK_OF(X509) *chain = NULL;
    char until[40];
    struct tm tm = {0};
    TRY(load_chain(crypto, v, identity->certificate, &chain, why));
    X509 *leaf = sk_X509_value(chain, 0);
    time_t end = first_end(chain);
    gmtime_r(&end, &tm);
    strftime(until, sizeof until, "%Y-%m-%dT%H:%M:%SZ", &tm);
    pq_json_open(j, NULL, '{');
    pq_json_text(j, "listener", l->name);
    pq_json_text(j, "direction", pq_proxy_direction_names[l->direction]);
    pq_json_whole(j, "identity", (int64_t)number);
    pq_json_text(j, "file", identity->certificate);
    TRY(put_subject(j, leaf));
    put_algorithm(j, leaf);
    pq_json_whole(j, "chain", sk_X509_num(chain));
    pq_json_text(j, "until", until);
    pq_json_whole(j, "until_unix", end);
    pq_json_close(j, '}');
    return j->failed;
}

static int put_certificates(struct pq_json *j, struct pq_crypto *crypto, const struct pq_view *v, struct pq_why *why)
{
    pq_json_open(j, "certificates", '[');
    for (size_t i = 0; i < pq_proxy_listener_count(v->config); i++) {
        const struct pq_proxy_listener *l = pq_proxy_listener_at(v->config, i);
        struct pq_tls_settings s = pq_proxy_listener_tls(v->config, l);
        for (size_t k = 0; k < s.identity_count; k++)
            TRY(put_certificate(j, crypto, v, l, &s.identities[k], k, why));
    }
    pq_json_close(j, ']');
    return 0;
}

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
    TRY(put_certificates(&j, crypto, v, why));
    put_files(&j, v->files);
    pq_json_close(&j, '}');
    TRY(j.failed);
    return pq_buf_text(out, "\n");
}
