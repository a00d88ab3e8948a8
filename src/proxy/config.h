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
#include "net/lookup.h"
#include "net/network.h"
#include "net/tcp.h"
#include "tls/tls.h"

enum {
    PQ_PROXY_LISTENERS_MAX = 1024,
    PQ_PROXY_PEERS_MAX = 64,  /* names of one listener */
    PQ_PROXY_NAMED_MAX = 16,  /* texts of one target */
    PQ_PROXY_PLACES_MAX = 64, /* addresses that they stand for; what is beyond is left out */
    PQ_PROXY_NETWORKS_MAX = 256,
    PQ_PROXY_CONNECTIONS_MAX = 1000000,
    PQ_PROXY_BUFFER_MIN = 4 << 10,
    PQ_PROXY_BUFFER_MAX = 16 << 20,
    PQ_PROXY_WORKERS_MAX = 64,
};

enum pq_proxy_direction { PQ_PROXY_INGRESS, PQ_PROXY_EGRESS };
extern const char *const pq_proxy_direction_names[]; /* "ingress", "egress" */

/* An address as written. */
struct pq_proxy_address {
    char *text;
    char *where; /* "FILE:LINE:COLUMN" of it */
    bool known;  /* at is: it is a number or a path. What a host name stands for, its target knows */
    struct pq_address at;
};

/* Where a listener leads: alternatives, the most wanted first. */
struct pq_proxy_target {
    struct pq_structs named; /* of struct pq_proxy_address, as written */
    /* What they stand for, each address once; known after pq_proxy_config_resolve(). */
    struct pq_proxy_place {
        struct pq_address at;
        const struct pq_proxy_address *named;
    } *places;
    size_t count;
};

struct pq_proxy_policy {
    bool given;
    struct pq_tls_policy policy;
};

/* PQ_PROXY_UNSET: the general tls's, or the standard. */
enum { PQ_PROXY_UNSET = -1 };
enum pq_proxy_first_flight { PQ_PROXY_FIRST_WHOLE, PQ_PROXY_FIRST_CLASSICAL };
struct pq_proxy_tls {
    struct pq_tls_identity identity; /* short for one of identities */
    struct pq_structs identities;    /* of struct pq_tls_identity */
    char *ca, *crl;
    int crl_stale;            /* enum pq_tls_crl_stale */
    int first_flight;         /* classical: the first ClientHello fits one segment */
    int resumption;           /* 0, 1 */
    int64_t certificates_max; /* bytes of a peer's certificate list; 0: what the policy's largest suite needs */
    struct pq_proxy_policy policy;
};

/* tunnel: local connections as streams of a few long-lived ones, where the peer agrees; connection: one TLS connection
 * each. */
enum pq_proxy_carry { PQ_PROXY_CARRY_TUNNEL, PQ_PROXY_CARRY_CONNECTION };

struct pq_proxy_listener {
    char *name;
    enum pq_proxy_direction direction;
    struct pq_proxy_address listen;
    struct pq_proxy_target target; /* ingress: forward; egress: connect */
    bool plaintext_remote;         /* ingress: forward_remote; egress: listen_remote */
    struct pq_strings peers;
    struct pq_strings authorities; /* ingress: what a tunnel's streams may ask for; none: anything, all is forwarded */
    char *authority;               /* egress: what its streams ask for; NULL: the target's first text */
    int carry;                     /* egress: enum pq_proxy_carry */
    bool transparent; /* egress: the target is where the redirected client wanted to go; there is no connect */
    struct pq_structs networks; /* of struct pq_network; transparent: where that may be; none: anywhere */
    struct pq_proxy_tls tls;
};

struct pq_proxy_config {
    struct {
        int level, format;
    } log;
    int64_t workers;
    char *user;                    /* whom workers become when started as root; NULL: nobody */
    bool contain;                  /* workers get no new privileges, a seccomp filter and Landlock */
    bool watch;                    /* a changed file that the configuration names, or itself, is a reload */
    struct pq_proxy_address admin; /* text NULL: none */
    int64_t resolve;               /* ns between two looks at a host name's addresses */
    char *pkcs11_module;
    bool tcp_nodelay;
    bool whole_flights; /* false: handshake flights leave 4 KB at a time, as other relays send them */
    struct {
        int64_t handshake, connect, idle, drain; /* ns; idle 0: never */
        int64_t grace;                           /* for a connection that a reload no longer allows */
        int64_t retire;                          /* for connections of before an upgrade; 0: as long as they last */
    } timeouts;
    struct {
        int64_t connections;                      /* of all workers together */
        int64_t buffer;                           /* bytes, for each connection and direction */
        int64_t handshakes;                       /* in flight in a worker; strangers get three quarters of it */
        int64_t handshakes_per_source, strangers; /* a second, in all workers together */
    } limits;
    struct {
        int64_t connections; /* to each peer, of each worker */
        int64_t max_age;     /* ns; then a new one takes its place */
    } tunnel;
    struct pq_proxy_tls tls;
    struct pq_structs ingress, egress; /* of struct pq_proxy_listener */
};

PQ_MUST_CHECK int pq_proxy_config_load(const char *path, struct pq_proxy_config *out, struct pq_why *why);
/* The same from memory; neither reads a file nor asks for a name. */
PQ_MUST_CHECK int pq_proxy_config_parse(const char *path, const char *text, size_t len, struct pq_proxy_config *out,
                                        struct pq_why *why);
/* Looks up host names, holds what that shows against the rule on plaintext, and finds loops. */
PQ_MUST_CHECK int pq_proxy_config_resolve(struct pq_proxy_config *config, const struct pq_lookup *lookup,
                                          struct pq_why *why);
/* Looks up one listener's target anew, by the same rules; on error its places stay. Not changed: they are the same
 * ones, in whatever order. */
PQ_MUST_CHECK int pq_proxy_config_lead(struct pq_proxy_config *config, size_t listener, const struct pq_lookup *lookup,
                                       bool *changed, struct pq_why *why);
void pq_proxy_config_free(struct pq_proxy_config *config);

size_t pq_proxy_listener_count(const struct pq_proxy_config *config);
/* Ingress listeners first, then egress, each in the file's order. */
struct pq_proxy_listener *pq_proxy_listener_at(const struct pq_proxy_config *config, size_t i);

/* Whether plaintext may go to or come from there: an ingress forwards it, an egress listens for it. PQ_E_CONFIG with
 * what is wrong, to stand behind the address. */
PQ_MUST_CHECK int pq_proxy_plaintext_stays(const struct pq_proxy_listener *l, const struct pq_address *a,
                                           const char **wrong);
/* The first unix socket on the plain side, which knows no reset; or NULL. */
const struct pq_address *pq_proxy_plaintext_unix(const struct pq_proxy_listener *l);

/* What holds for a listener: its own tls over the general one. The texts stay the configuration's. */
struct pq_tls_settings pq_proxy_listener_tls(const struct pq_proxy_config *config, const struct pq_proxy_listener *l);

#endif
