/* config.h - the proxy's configuration: listeners on both sides of a function, and what protects the traffic between.
 *
 *   ingress: [{name: sbi, listen: 198.18.0.2:7777, forward: 127.0.0.1:8000}]
 *   egress:  [{name: nrf, listen: 127.0.0.1:9001, connect: 198.18.0.2:7777, peers: [nrf.5gc.example]}]
 *   tls:     {certificate: sbi.crt, key: sbi.key, ca: root.crt, policy: {mode: hybrid, level: 3, require: [pq-kex]}}
 *
 * Spec:   docs/guide, "The proxy's file". A listener's own tls replaces the general one key by key (policy as a whole).
 *         Plaintext stays on the host: an ingress forwards to, and an egress listens on, a loopback address or a unix
 *         socket, unless forward_remote or listen_remote says otherwise. Relative paths, also of unix sockets, are
 *         relative to the file. No target leads back to its own listener.
 * Owns:   pq_proxy_config_load() fills the caller's struct; pq_proxy_config_free() frees what it holds.
 * Errors: PQ_E_CONFIG with FILE:LINE:COLUMN, PQ_E_NOENT and the like (file), PQ_E_NOT_FOUND (a name that does not
 *         resolve), PQ_E_NOMEM. On error *out is freed and zeroed.
 */
#ifndef PQ_PROXY_CONFIG_H
#define PQ_PROXY_CONFIG_H

#include "base/config.h"
#include "net/tcp.h"
#include "tls/tls.h"

enum {
    PQ_PROXY_LISTENERS_MAX = 1024,
    PQ_PROXY_PEERS_MAX = 64, /* names of one listener */
    PQ_PROXY_CONNECTIONS_MAX = 1000000,
    PQ_PROXY_BUFFER_MIN = 4 << 10,
    PQ_PROXY_BUFFER_MAX = 16 << 20,
};

enum pq_proxy_direction { PQ_PROXY_INGRESS, PQ_PROXY_EGRESS };
extern const char *const pq_proxy_direction_names[]; /* "ingress", "egress" */

/* An address as written; numbers are known when the file is read, a host name only after pq_proxy_config_resolve(). */
struct pq_proxy_address {
    char *text;
    char *where; /* "FILE:LINE:COLUMN" of it */
    bool known;
    struct pq_address at;
};

struct pq_proxy_policy {
    bool given;
    struct pq_tls_policy policy;
};

struct pq_proxy_tls {
    char *certificate, *key, *ca, *crl;
    struct pq_proxy_policy policy;
};

struct pq_proxy_listener {
    char *name;
    enum pq_proxy_direction direction;
    struct pq_proxy_address listen;
    struct pq_proxy_address target; /* ingress: forward; egress: connect */
    bool plaintext_remote;          /* ingress: forward_remote; egress: listen_remote */
    struct pq_strings peers;
    struct pq_proxy_tls tls;
    const struct pq_proxy_listener *leads_to; /* the listener of this file that target reaches, or NULL; resolved */
};

struct pq_proxy_config {
    struct {
        int level, format;
    } log;
    bool tcp_nodelay;
    bool whole_flights; /* false: handshake flights leave 4 KB at a time, as other relays send them */
    struct {
        int64_t handshake, connect, idle, drain; /* ns; idle 0: never */
    } timeouts;
    struct {
        int64_t connections;
        int64_t buffer; /* bytes, for each connection and direction */
    } limits;
    struct pq_proxy_tls tls;
    struct pq_structs ingress, egress; /* of struct pq_proxy_listener */
};

PQ_MUST_CHECK int pq_proxy_config_load(const char *path, struct pq_proxy_config *out, struct pq_why *why);
/* The same from memory; neither reads a file nor asks for a name. */
PQ_MUST_CHECK int pq_proxy_config_parse(const char *path, const char *text, size_t len, struct pq_proxy_config *out,
                                        struct pq_why *why);
/* Looks up host names (blocking), holds what that shows against the rule on plaintext, and finds loops. */
PQ_MUST_CHECK int pq_proxy_config_resolve(struct pq_proxy_config *config, struct pq_why *why);
void pq_proxy_config_free(struct pq_proxy_config *config);

size_t pq_proxy_listener_count(const struct pq_proxy_config *config);
/* Ingress listeners first, then egress, each in the file's order. */
struct pq_proxy_listener *pq_proxy_listener_at(const struct pq_proxy_config *config, size_t i);

/* Where the function is: an ingress forwards to it, an egress listens for it. */
const struct pq_proxy_address *pq_proxy_plaintext_side(const struct pq_proxy_listener *l);

/* What holds for a listener: its own tls over the general one. The texts stay the configuration's. */
struct pq_tls_settings pq_proxy_listener_tls(const struct pq_proxy_config *config, const struct pq_proxy_listener *l);

#endif
