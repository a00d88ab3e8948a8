#include "proxy/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "proxy/target.h"

#define TLS     "tls: {certificate: a.crt, key: a.key, ca: root.crt}\n"
#define INGRESS "ingress: [{name: sbi, listen: '198.18.0.2:7777', forward: '127.0.0.1:8000'}]\n"
#define EGRESS  "egress: [{name: nrf, listen: '127.0.0.1:9001', connect: '198.18.0.2:7777', peers: [nrf.example]}]\n"

static int parse(const char *text, struct pq_proxy_config *c, struct pq_why *why)
{
    return pq_proxy_config_parse("etc/p.yaml", text, strlen(text), c, why);
}

static void free_config(struct pq_proxy_config *c) { pq_proxy_config_free(c); }

static void defaults_hold(void **state)
{
    (void)state;
    DEFER(free_config) struct pq_proxy_config c = {0};
    assert_int_equal(parse(TLS INGRESS "timeouts: {idle: 0}\nlimits: {connections: 7}\n", &c, NULL), 0);
    assert_int_equal(c.log.level, PQ_LOG_INFO);
    assert_int_equal(c.log.format, PQ_LOG_LOGFMT);
    assert_true(c.tcp_nodelay);
    assert_int_equal(c.timeouts.handshake, 5 * PQ_NS_PER_S);
    assert_int_equal(c.timeouts.connect, 5 * PQ_NS_PER_S);
    assert_int_equal(c.timeouts.idle, 0);
    assert_int_equal(c.timeouts.drain, 30 * PQ_NS_PER_S);
    assert_int_equal(c.limits.connections, 7);
    assert_int_equal(c.limits.buffer, 65536);
}

static void all_keys_are_read(void **state)
{
    (void)state;
    DEFER(free_config) struct pq_proxy_config c = {0};
    struct pq_why why = {""};
    int e =
        parse("log: {level: debug, format: json}\n"
              "tcp_nodelay: false\n"
              "timeouts: {handshake: 1s, connect: 250ms, idle: 5min, drain: 2s}\n"
              "limits: {connections: 12, buffer: 128KiB}\n"
              "tls: {certificate: a.crt, key: /k/a.key, ca: root.crt, crl: crl.pem, policy: {mode: hybrid, level: 5}, "
              "crl_stale: warn}\n"
              "ingress:\n"
              "  - {name: sbi, listen: '198.18.0.2:7777', forward: 'unix:/run/nrf.sock', peers: [amf.example, "
              "'urn:uuid:1'],\n"
              "     tls: {ca: other.crt, crl_stale: refuse, policy: {mode: pure, level: 1, require: [pq-kex]}}}\n"
              "  - {name: far, listen: '[::]:7778', forward: '198.18.0.9:80', forward_remote: true}\n"
              "egress:\n"
              "  - {name: nrf, listen: 'unix:/run/egress.sock', connect: 'nrf.example:7777', peers: nrf.example}\n",
              &c, &why);
    if (e < 0)
        fail_msg("%s", why.text);
    assert_int_equal(c.log.level, PQ_LOG_DEBUG);
    assert_int_equal(c.log.format, PQ_LOG_JSON);
    assert_false(c.tcp_nodelay);
    assert_int_equal(c.timeouts.connect, 250 * PQ_NS_PER_MS);
    assert_int_equal(c.timeouts.idle, 300 * PQ_NS_PER_S);
    assert_int_equal(c.limits.buffer, 131072);
    assert_int_equal(pq_proxy_listener_count(&c), 3);
    const struct pq_proxy_listener *sbi = pq_proxy_listener_at(&c, 0), *far = pq_proxy_listener_at(&c, 1),
                                   *nrf = pq_proxy_listener_at(&c, 2);
    assert_int_equal(sbi->direction, PQ_PROXY_INGRESS);
    assert_int_equal(sbi->peers.count, 2);
    assert_true(sbi->listen.known);
    assert_string_equal(pq_proxy_target_at(&sbi->target, 0)->where, "etc/p.yaml:7:54");
    assert_true(far->plaintext_remote);
    assert_int_equal(nrf->direction, PQ_PROXY_EGRESS);
    assert_false(pq_proxy_target_at(&nrf->target, 0)->known);
    assert_string_equal(nrf->peers.at[0], "nrf.example");

    struct pq_tls_settings s = pq_proxy_listener_tls(&c, sbi);
    assert_string_equal(s.identities->certificate, "etc/a.crt");
    assert_string_equal(s.identities->key, "/k/a.key");
    assert_string_equal(s.ca, "etc/other.crt");
    assert_string_equal(s.crl, "etc/crl.pem");
    assert_int_equal(s.crl_stale, PQ_TLS_CRL_REFUSE);
    assert_true(s.verify_peer);
    assert_int_equal(s.policy.mode, PQ_MODE_PURE);
    assert_true(s.policy.require_pq_kex);
    s = pq_proxy_listener_tls(&c, nrf);
    assert_string_equal(s.ca, "etc/root.crt");
    assert_int_equal(s.crl_stale, PQ_TLS_CRL_WARN);
    assert_int_equal(s.policy.mode, PQ_MODE_HYBRID);
    assert_int_equal(s.policy.level, 5);
}

static const struct {
    const char *text, *says;
} mistakes[] = {
    {TLS, "1:1: there is nothing to do: name at least one listener"},
    {INGRESS, "1:11: \"sbi\" has no tls.certificate: name the file here or in the general tls"},
    {"tls: {certificate: a.crt, ca: root.crt}\n" INGRESS, "\"sbi\" has no tls.key"},
    {"tls: {certificate: a.crt, key: a.key}\n" INGRESS, "\"sbi\" has no tls.ca"},
    {TLS INGRESS "colour: red\n", "3:9: the proxy's configuration has no \"colour\""},
    {TLS "ingress: [{name: sbi, listen: '127.0.0.1:1', forward: '127.0.0.1:2', connect: '127.0.0.1:3'}]\n",
     "an ingress has no \"connect\""},
    {TLS "egress: [{name: a, listen: '127.0.0.1:1', forward: '127.0.0.1:2', peers: [x]}]\n",
     "an egress has no \"forward\""},
    {TLS "ingress: [{listen: '127.0.0.1:1', forward: '127.0.0.1:2'}]\n", "an ingress needs \"name\""},
    {TLS "ingress: [{name: 'a b', listen: '127.0.0.1:1', forward: '127.0.0.1:2'}]\n",
     "2:19: name: \"a b\" may hold letters, digits, '-', '_' and '.' only"},
    {TLS INGRESS "timeouts: {handshake: 5}\n", "3:23: handshake: "},
    {TLS INGRESS "timeouts: {handshake: 0}\n", "3:23: handshake: 0 is not between 0.001s and 604800s"},
    {TLS INGRESS "timeouts: {drain: 605000s}\n", "3:19: drain: 605000s is not between 0s and 604800s"},
    {TLS INGRESS "limits: {buffer: 65536}\n", "3:18: buffer: "},
    {TLS INGRESS "limits: {buffer: 4095B}\n", "buffer: 4095B is not between 4096 and 16777216 bytes"},
    {TLS INGRESS "limits: {buffer: 16777217B}\n", "is not between 4096 and 16777216 bytes"},
    {TLS INGRESS "limits: {connections: 0}\n", "3:23: connections: "},
    {TLS INGRESS "limits: {connections: 1000001}\n", "3:23: connections: "},
    {TLS INGRESS "tcp_nodelay: yes\n", "\"yes\" is neither true nor false"},
    {TLS INGRESS "log: {level: loud}\n", "\"loud\" is none of error, warn, info, debug"},
    /* plaintext stays on the host */
    {TLS "ingress: [{name: sbi, listen: '198.18.0.2:1', forward: '198.18.0.3:80'}]\n",
     "2:57: 198.18.0.3:80 is another host, and what an ingress forwards is plaintext"},
    {TLS "ingress: [{name: sbi, listen: '198.18.0.2:1', forward: '[fd00::1]:80'}]\n", "set forward_remote: true"},
    {TLS "ingress: [{name: sbi, listen: '198.18.0.2:1', forward: '0.0.0.0:80'}]\n", "is another host"},
    {TLS "egress: [{name: a, listen: '198.18.0.2:1', connect: '198.18.0.3:80', peers: [x]}]\n",
     "2:29: 198.18.0.2:1 can be reached from other hosts, and what an egress listens for is plaintext"},
    {TLS "egress: [{name: a, listen: '0.0.0.0:1', connect: '198.18.0.3:80', peers: [x]}]\n", "set listen_remote: true"},
    {TLS "egress: [{name: a, listen: '[::]:1', connect: '198.18.0.3:80', peers: [x]}]\n", "set listen_remote: true"},
    {TLS "egress: [{name: a, listen: '127.0.0.1:1', connect: '198.18.0.3:80', forward_remote: true, peers: [x]}]\n",
     "an egress has no \"forward_remote\""},
    /* transparent */
    {TLS "egress: [{name: a, listen: '127.0.0.1:1', peers: [x]}]\n",
     "2:10: an egress needs \"connect\", or transparent: true"},
    {TLS "egress: [{name: a, listen: '127.0.0.1:1', peers: [x], transparent: true, connect: '198.18.0.3:80'}]\n",
     "2:84: connect: a transparent egress leads each connection to where its client wanted to go"},
    {TLS "egress: [{name: a, listen: 'unix:/x', peers: [x], transparent: true}]\n",
     "no rule redirects to a unix socket"},
    {TLS "egress: [{name: a, listen: '198.18.0.2:1', peers: [x], transparent: true}]\n", "set listen_remote: true"},
    {TLS "egress: [{name: a, listen: '127.0.0.1:1', peers: [x], transparent: true, carry: tunnel}]\n",
     "carries each connection alone"},
    {TLS "egress: [{name: a, listen: '127.0.0.1:1', peers: [x], transparent: true, authority: 'a:1'}]\n",
     "carries each connection alone"},
    {TLS "egress: [{name: a, listen: '127.0.0.1:1', peers: [x], connect: '198.18.0.3:80', networks: 10.0.0.0/8}]\n",
     "networks: an egress with connect has one target"},
    {TLS
     "egress: [{name: a, listen: '127.0.0.1:1', peers: [x], transparent: true, networks: [10.0.0.0/8, 10.0.0.1/8]}]\n",
     "2:97: \"10.0.0.1/8\" has bits beyond its prefix: write 10.0.0.0/8"},
    {TLS "egress: [{name: a, listen: '127.0.0.1:1', peers: [x], transparent: true, networks: []}]\n", "name 1 to 256"},
    {TLS "egress: [{name: a, listen: '127.0.0.1:1', peers: [x], transparent: true, networks: [[x]]}]\n",
     "a network is a single text"},
    /* names of peers */
    {TLS "egress: [{name: a, listen: '127.0.0.1:1', connect: '198.18.0.3:80'}]\n",
     "2:10: egress \"a\" needs \"peers\""},
    {TLS "egress: [{name: a, listen: '127.0.0.1:1', connect: '198.18.0.3:80', peers: []}]\n",
     "peers: names at least one peer"},
    {TLS "ingress: [{name: a, listen: '127.0.0.1:1', forward: '127.0.0.1:80', peers: []}]\n",
     "peers: names at least one peer"},
    {TLS "egress: [{name: a, listen: '127.0.0.1:1', connect: '198.18.0.3:80', peers: ['*.example']}]\n",
     "2:78: peers: \"*.example\" is no name"},
    {TLS "egress: [{name: a, listen: '127.0.0.1:1', connect: '198.18.0.3:80', peers: [x, 'a b']}]\n",
     "\"a b\" is no name"},
    /* addresses */
    {TLS "ingress: [{name: a, listen: 7777, forward: '127.0.0.1:80'}]\n", "2:29: \"7777\" is no address"},
    {TLS "ingress: [{name: a, listen: '127.0.0.1:65536', forward: '127.0.0.1:80'}]\n", "is no address"},
    {TLS "ingress: [{name: a, listen: '1.2.3:80', forward: '127.0.0.1:80'}]\n", "\"1.2.3:80\" is no address"},
    {TLS "ingress: [{name: a, listen: 'localhost:80', forward: '127.0.0.1:80'}]\n", "a listener needs the number"},
    {TLS "ingress: [{name: a, listen: ['127.0.0.1:80'], forward: '127.0.0.1:80'}]\n", "an address is a single text"},
    {TLS "ingress: [{name: a, listen: '127.0.0.1:80', forward: '127.0.0.1:0'}]\n",
     "forward: nothing answers on port 0"},
    {TLS "ingress: [{name: a, listen: '127.0.0.1:80', forward: []}]\n", "name 1 to 16 addresses"},
    {TLS "egress: [{name: a, listen: '127.0.0.1:80', connect: ['a:1','a:2','a:3','a:4','a:5','a:6','a:7','a:8','a:9',"
         "'b:1','b:2','b:3','b:4','b:5','b:6','b:7','b:8'], peers: [x]}]\n",
     "name 1 to 16 addresses"},
    {TLS "ingress: [{name: a, listen: '127.0.0.1:80', forward: ['127.0.0.1:1', '127.0.0.1:0']}]\n",
     "2:71: forward: nothing answers on port 0"},
    {TLS "ingress: [{name: a, listen: '127.0.0.1:80', forward: ['127.0.0.1:1', '198.18.0.3:80']}]\n",
     "2:71: 198.18.0.3:80 is another host"},
    {TLS "egress: [{name: a, listen: '127.0.0.1:80', connect: ['a.b:1', 'a..b:80'], peers: [x]}]\n",
     "\"a..b:80\" is no address"},
    {TLS "ingress: [{name: a, listen: '127.0.0.1:80', forward: [['127.0.0.1:1']]}]\n", "an address is a single text"},
    {TLS "ingress: [{name: a, listen: '127.0.0.1:80', forward: {a: b}}]\n", "an address is a single text"},
    {TLS "egress: [{name: a, listen: '127.0.0.1:80', connect: 'a..b:80', peers: [x]}]\n", "\"a..b:80\" is no address"},
    {TLS "egress: [{name: a, listen: '127.0.0.1:80', connect: 'a.b', peers: [x]}]\n", "\"a.b\" is no address"},
    {TLS "egress: [{name: a, listen: 'unix:', connect: 'a.b:1', peers: [x]}]\n",
     "a unix socket's path has 1 to 107 characters"},
    /* two of one */
    {TLS
     "ingress: [{name: a, listen: '127.0.0.1:1', forward: '127.0.0.1:80'}, {name: a, listen: '127.0.0.1:2', forward: "
     "'127.0.0.1:80'}]\n",
     "2:77: name: there is already a listener \"a\""},
    {TLS "ingress: [{name: a, listen: '127.0.0.1:1', forward: '127.0.0.1:80'}]\n"
         "egress: [{name: b, listen: '127.0.0.1:1', connect: '127.0.0.1:80', peers: [x]}]\n",
     "3:29: listen: 127.0.0.1:1 is taken by \"a\""},
    {TLS "ingress: [{name: a, listen: '0.0.0.0:1', forward: '127.0.0.1:80'}]\n"
         "egress: [{name: b, listen: '127.0.0.1:1', connect: '127.0.0.1:80', peers: [x]}]\n",
     "is taken by \"a\", which listens on 0.0.0.0:1"},
    {TLS "egress: [{name: a, listen: 'unix:/x', connect: '127.0.0.1:80', peers: [x]},\n"
         "         {name: b, listen: 'unix:/x', connect: '127.0.0.1:80', peers: [x]}]\n",
     "unix:/x is taken by \"a\""},
    {TLS "egress: [{name: a, listen: 'unix:./u', connect: '127.0.0.1:80', peers: [x]},\n"
         "         {name: b, listen: 'unix:u', connect: '127.0.0.1:80', peers: [x]}]\n",
     "3:29: listen: unix:u is taken by \"a\", which listens on unix:./u"},
    {TLS "egress: [{name: a, listen: 'unix:/r//./u', connect: '127.0.0.1:80', peers: [x]},\n"
         "         {name: b, listen: 'unix:/r/u', connect: '127.0.0.1:80', peers: [x]}]\n",
     "unix:/r/u is taken by \"a\""},
    {TLS "ingress: [{name: a, listen: '[::]:1', forward: '127.0.0.1:80'}, {name: b, listen: '0.0.0.0:1', forward: "
         "'127.0.0.1:80'}]\n",
     "2:84: listen: 0.0.0.0:1 is taken by \"a\", which listens on [::]:1"},
    {TLS "ingress: [{name: a, listen: '127.0.0.1:1', forward: '127.0.0.1:80'}, {name: b, listen: '[::]:1', forward: "
         "'127.0.0.1:80'}]\n",
     "[::]:1 is taken by \"a\", which listens on 127.0.0.1:1"},
    {TLS "ingress: [{name: a, listen: '127.0.0.1:1', forward: '127.0.0.1:80'}, {name: b, listen: "
         "'[::ffff:127.0.0.1]:1', forward: '127.0.0.1:80'}]\n",
     "is taken by \"a\""},
    /* the admin listener */
    {TLS INGRESS "admin: '0.0.0.0:9901'\n",
     "3:9: admin: 0.0.0.0:9901 can be reached from other hosts, and whoever reaches it can stop the proxy"},
    {TLS INGRESS "admin: '[::]:9901'\n", "admin: [::]:9901 can be reached from other hosts"},
    {TLS INGRESS "admin: '198.18.0.2:9901'\n", "admin: 198.18.0.2:9901 can be reached from other hosts"},
    {TLS INGRESS "admin: 'localhost:9901'\n", "3:9: "},
    {TLS INGRESS "admin: 9901\n", "\"9901\" is no address"},
    {TLS EGRESS "admin: '127.0.0.1:9001'\n",
     "3:9: admin: 127.0.0.1:9001 is taken by \"nrf\", which listens on 127.0.0.1:9001"},
    {TLS "egress: [{name: a, listen: 'unix:./u', connect: '127.0.0.1:80', peers: [x]}]\nadmin: 'unix:u'\n",
     "3:9: admin: unix:u is taken by \"a\", which listens on unix:./u"},
    /* "etc/" and 104 more are one too many */
    {TLS
     "egress: [{name: a, connect: '127.0.0.1:80', peers: [x], listen: 'unix:"
     "12345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234'}]\n",
     "a unix socket's path has 1 to 107 characters, with the folder of this file where it is relative"},
    /* policy */
    {"tls: {certificate: a, key: b, ca: c, policy: {mode: classical, level: 3, require: [pq-kex]}}\n" INGRESS,
     "mode classical offers nothing that is pq-kex"},
    {"tls: {certificate: a, key: b, ca: c, policy: {mode: classical, level: 3, require: [pq-auth]}}\n" INGRESS,
     "mode classical offers nothing that is pq-auth"},
    {"tls: {certificate: a, key: b, ca: c, policy: {mode: hybrid, groups: 'X25519:secp384r1', require: "
     "pq-kex}}\n" INGRESS,
     "1:70: groups: X25519:secp384r1 offers nothing that is pq-kex"},
    {"tls: {certificate: a, key: b, ca: c, policy: {mode: pure, groups: '-X25519MLKEM768:?X448', require: "
     "pq-kex}}\n" INGRESS,
     "offers nothing that is pq-kex"},
    {"tls: {certificate: a, key: b, ca: c, policy: {groups: nonsense, require: pq-kex}}\n" INGRESS,
     "groups: nonsense offers nothing that is pq-kex"},
    {"tls: {certificate: a, key: b, ca: c, policy: {mode: hybrid, sigalgs: [ed25519, 'ECDSA+SHA256'], require: "
     "[pq-kex, pq-auth]}}\n" INGRESS,
     "sigalgs: ed25519:ECDSA+SHA256 offers nothing that is pq-auth"},
    {TLS "ingress: [{name: a, listen: '127.0.0.1:1', forward: '127.0.0.1:80', tls: {certificate: x.crt}}]\n",
     "a certificate goes with its key"},
    {TLS "ingress: [{name: a, listen: '127.0.0.1:1', forward: '127.0.0.1:80', tls: {policy: {mode: plain}}}]\n",
     "mode"},
    {TLS "ingress: [{name: a, listen: '127.0.0.1:1', forward: '127.0.0.1:80', tls: {policy: {level: 2}}}]\n", "level"},
};

static void a_transparent_egress_has_no_target(void **state)
{
    (void)state;
    DEFER(free_config) struct pq_proxy_config c = {0};
    struct pq_why why = {""};
    int e = parse(TLS "egress: [{name: a, listen: '127.0.0.1:15001', peers: [x], transparent: true, networks: "
                      "[10.0.0.0/8, 'fd00::/8']}, {name: b, listen: '[::1]:15001', peers: [x], transparent: true}]\n",
                  &c, &why);
    if (e < 0 || pq_proxy_config_resolve(&c, &pq_lookup_system, &why) < 0)
        fail_msg("%s", why.text);
    const struct pq_proxy_listener *l = pq_proxy_listener_at(&c, 0);
    assert_true(l->transparent && l->target.named.count == 0 && l->target.count == 0);
    assert_int_equal(l->networks.count, 2);
    assert_int_equal(pq_proxy_listener_at(&c, 1)->networks.count, 0);
}

static void mistakes_are_named_with_their_place(void **state)
{
    (void)state;
    static const struct pq_proxy_config zero;
    for (size_t i = 0; i < PQ_COUNT(mistakes); i++) {
        struct pq_proxy_config c;
        struct pq_why why = {""};
        memset(&c, 0x55, sizeof c);
        int e = parse(mistakes[i].text, &c, &why);
        if (e != PQ_E_CONFIG)
            fail_msg("%s: %s instead of CONFIG", mistakes[i].text, pq_error_name(e));
        if (strncmp(why.text, "etc/p.yaml:", 11) != 0 || !strstr(why.text, mistakes[i].says))
            fail_msg("%s\nsays: %s\nnot:  %s", mistakes[i].text, why.text, mistakes[i].says);
        assert_memory_equal(&c, &zero, sizeof c);
    }
}

static const char *const good[] = {
    TLS INGRESS EGRESS,
    TLS "egress: [{name: a, listen: '[::1]:1', connect: '198.18.0.3:80', peers: ['198.18.0.3']}]\n",
    TLS "egress: [{name: a, listen: '127.9.9.9:1', connect: 'a-b.c_d.example:80', peers: ['urn:uuid:x']}]\n",
    TLS "egress: [{name: a, listen: '0.0.0.0:1', listen_remote: true, connect: '198.18.0.3:80', peers: [x]}]\n",
    TLS
    "ingress: [{name: a, listen: '127.0.0.1:0', forward: '127.0.0.1:80'}, {name: b, listen: '127.0.0.1:0', forward: "
    "'127.0.0.1:80'}]\n",
    TLS
    "ingress: [{name: a, listen: '127.0.0.1:1', forward: '127.0.0.1:80'}, {name: b, listen: '127.0.0.2:1', forward: "
    "'127.0.0.1:80'}]\n",
    TLS INGRESS "limits: {buffer: 4KiB, connections: 1000000}\ntimeouts: {handshake: 1ms, idle: 7d}\n",
    TLS INGRESS "limits: {buffer: 16MiB, connections: 1}\n",
    "tls: {certificate: a, key: b, ca: c, policy: {mode: classical, level: 1, require: [pq-kex], groups: "
    "X25519MLKEM768}}\n" INGRESS,
    "tls: {certificate: a, key: b, ca: c, policy: {mode: classical, require: [pq-kex, pq-auth], groups: "
    "'X25519/?*MLKEM768', sigalgs: [ed25519, mldsa44]}}\n" INGRESS,
    "tls: {certificate: a, key: b, ca: c, policy: {require: pq-kex, groups: DEFAULT}}\n" INGRESS,
    TLS "ingress: [{name: a, listen: '0.0.0.0:1', forward: '127.0.0.1:80'}]\n"
        "egress: [{name: b, listen: '[::1]:1', connect: '127.0.0.1:80', peers: [x]}]\n",
    TLS "egress: [{name: a, listen: 'unix:r/u', connect: '127.0.0.1:80', peers: [x]},\n"
        "         {name: b, listen: 'unix:/r/u', connect: '127.0.0.1:80', peers: [x]}]\n",
    TLS "egress: [{name: a, connect: '127.0.0.1:80', peers: [x], listen: 'unix:"
        "1234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123'}]\n",
};

static void good_files_are_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(good); i++) {
        struct pq_proxy_config c = {0};
        struct pq_why why = {""};
        if (parse(good[i], &c, &why) < 0)
            fail_msg("%s: %s", good[i], why.text);
        pq_proxy_config_free(&c);
    }
}

static char *many(size_t count, const char *before, const char *item, const char *after)
{
    size_t len = strlen(before) + strlen(after) + count * (strlen(item) + 8) + 1;
    char *text = malloc(len);
    assert_non_null(text);
    size_t used = (size_t)snprintf(text, len, "%s", before);
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, len - used, "%s%zu%s", item, i, i + 1 < count ? "," : "");
    snprintf(text + used, len - used, "%s", after);
    return text;
}

static void caps_hold_and_one_more_is_refused(void **state)
{
    (void)state;
    for (size_t over = 0; over < 2; over++) {
        struct pq_proxy_config c = {0};
        struct pq_why why = {""};
        char *text = many(PQ_PROXY_PEERS_MAX + over,
                          TLS "egress: [{name: a, listen: '127.0.0.1:1', connect: 'a.b:1', peers: [", "p", "]}]\n");
        int e = parse(text, &c, &why);
        assert_int_equal(e, over ? PQ_E_CONFIG : 0);
        pq_proxy_config_free(&c);
        free(text);
        static const char name[] = TLS "egress: [{name: a, listen: '127.0.0.1:1', connect: 'a.b:1', peers: [";
        char longer[800];
        snprintf(longer, sizeof longer, "%s%0*d]}]\n", name, (int)(255 + over), 0);
        e = parse(longer, &c, &why);
        assert_int_equal(e, over ? PQ_E_CONFIG : 0);
        pq_proxy_config_free(&c);
    }
}

static void too_many_listeners_are_refused(void **state)
{
    (void)state;
    for (size_t over = 0; over < 2; over++) {
        size_t count = PQ_PROXY_LISTENERS_MAX + over, size = 200 + count * 100;
        char *text = malloc(size);
        assert_non_null(text);
        size_t used = (size_t)snprintf(text, size, "%singress:\n", TLS);
        for (size_t i = 0; i < count; i++)
            used += (size_t)snprintf(text + used, size - used,
                                     "  - {name: n%zu, listen: '127.0.0.1:%zu', forward: 'unix:/x'}\n", i, i + 1);
        struct pq_proxy_config c = {0};
        struct pq_why why = {""};
        assert_int_equal(parse(text, &c, &why), over ? PQ_E_CONFIG : 0);
        if (over)
            assert_non_null(strstr(why.text, "1025 listeners are more than the 1024"));
        pq_proxy_config_free(&c);
        free(text);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        struct pq_proxy_config c = {0};
        struct pq_why why = {""};
        pq_alloc_fail_at(n);
        int e = parse("tls: {certificate: a.crt, key: a.key, ca: root.crt, policy: {mode: hybrid, groups: "
                      "X25519MLKEM768, require: pq-kex}}\n" INGRESS
                      "egress: [{name: u, listen: 'unix:u', connect: 'a.example:1', peers: [x]}, {name: t, listen: "
                      "'127.0.0.1:2', transparent: true, networks: [10.0.0.0/8], peers: x}]\n",
                      &c, &why);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        pq_proxy_config_free(&c);
        if (!reached) {
            assert_int_equal(e, 0);
            assert_true(n > 20);
            break;
        }
        assert_int_equal(e, PQ_E_NOMEM);
    }
}

static void names_are_looked_up_later(void **state)
{
    (void)state;
    struct pq_proxy_config c = {0};
    struct pq_why why = {""};
    assert_int_equal(parse(TLS "ingress: [{name: a, listen: '127.0.0.1:1', forward: 'localhost:80'}]\n", &c, &why), 0);
    assert_int_equal(pq_proxy_config_resolve(&c, &pq_lookup_system, &why), 0);
    assert_true(pq_proxy_listener_at(&c, 0)->target.count > 0);
    assert_int_equal(pq_address_port(&pq_proxy_listener_at(&c, 0)->target.places[0].at), 80);
    pq_proxy_config_free(&c);
    assert_int_equal(
        parse(TLS "ingress: [{name: a, listen: '127.0.0.1:1', forward: 'nowhere.invalid:80'}]\n", &c, &why), 0);
    assert_int_equal(pq_proxy_config_resolve(&c, &pq_lookup_system, &why), PQ_E_NOT_FOUND);
    assert_non_null(strstr(why.text, "etc/p.yaml:2:54: the name in nowhere.invalid:80 can't be resolved"));
    pq_proxy_config_free(&c);
}

/* Whoever asks for "two" gets two addresses, one of them twice; "far" is on another host. */
static int ask(void *context, const char *text, struct pq_address *out, size_t room, size_t *count, struct pq_why *why)
{
    static const char *const two[] = {"127.0.0.1:80", "[::1]:80", "127.0.0.1:80"};
    int *asked = context;
    ++*asked;
    if (strcmp(text, "two:80") != 0 && strcmp(text, "far:80") != 0)
        return pq_why(why, PQ_E_NOT_FOUND, "there is no %s", text);
    assert_true(room >= PQ_COUNT(two));
    for (size_t i = 0; i < PQ_COUNT(two); i++)
        assert_int_equal(pq_address_parse(text[0] == 't' ? two[i] : "198.18.0.9:80", &out[i], NULL), 0);
    *count = PQ_COUNT(two);
    return 0;
}

static void a_target_has_several_places(void **state)
{
    static const char *const places[] = {"unix:/run/x", "127.0.0.1:80", "[::1]:80", "127.0.0.2:81"};
    (void)state;
    struct pq_proxy_config c = {0};
    struct pq_why why = {""};
    int asked = 0;
    const struct pq_lookup lookup = {ask, &asked};
    assert_int_equal(
        parse(TLS "ingress: [{name: a, listen: '198.18.0.2:1', forward: ['unix:/run/x', 'two:80', '127.0.0.2:81']}]\n",
              &c, &why),
        0);
    const struct pq_proxy_target *t = &pq_proxy_listener_at(&c, 0)->target;
    assert_int_equal(t->count, 0);
    assert_int_equal(pq_proxy_config_resolve(&c, &lookup, &why), 0);
    assert_int_equal(pq_proxy_config_resolve(&c, &lookup, &why), 0); /* again: nothing leaks */
    assert_int_equal(asked, 2);
    assert_int_equal(t->count, PQ_COUNT(places));
    for (size_t i = 0; i < PQ_COUNT(places); i++) {
        char text[PQ_ADDRESS_TEXT];
        pq_address_text(&t->places[i].at, text);
        assert_string_equal(text, places[i]);
    }
    assert_string_equal(t->places[2].named->text, "two:80");
    pq_proxy_config_free(&c);
}

/* What was loopback when the file was written may be another host now. */
static void a_name_that_leaves_the_host_is_refused(void **state)
{
    (void)state;
    struct pq_proxy_config c = {0};
    struct pq_why why = {""};
    int asked = 0;
    const struct pq_lookup lookup = {ask, &asked};
    assert_int_equal(
        parse(TLS "ingress: [{name: a, listen: '198.18.0.2:1', forward: ['127.0.0.1:80', 'far:80']}]\n", &c, &why), 0);
    assert_int_equal(pq_proxy_config_resolve(&c, &lookup, &why), PQ_E_CONFIG);
    assert_non_null(strstr(why.text, "etc/p.yaml:2:72: far:80 is another host, and what an ingress forwards"));
    pq_proxy_config_free(&c);
    assert_int_equal(
        parse(TLS "ingress: [{name: a, listen: '198.18.0.2:1', forward: 'far:80', forward_remote: true}]\n", &c, &why),
        0);
    assert_int_equal(pq_proxy_config_resolve(&c, &lookup, &why), 0);
    pq_proxy_config_free(&c);
}

static const struct {
    const char *text, *says; /* NULL: nothing is wrong */
} ways[] = {
    {TLS INGRESS "admin: '127.0.0.1:8000'\n",
     "2:60: 127.0.0.1:8000 is the admin listener, which is for this host alone: name the address of the function"},
    {TLS INGRESS "admin: '[::1]:8000'\n", NULL},
    {TLS "ingress: [{name: a, listen: '127.0.0.1:1', forward: 'unix:u'}]\nadmin: 'unix:./u'\n",
     "unix:u is the admin listener"},
    {TLS "egress: [{name: a, listen: '127.0.0.1:9001', connect: '127.0.0.1:9001', peers: [x]}]\n",
     "2:56: 127.0.0.1:9001 leads back to \"a\" itself, so one client would become connections without end: name the "
     "address of the peer"},
    {TLS "egress: [{name: a, listen: '[::]:9001', listen_remote: true, connect: 'localhost:9001', peers: [x]}]\n",
     "localhost:9001 leads back to \"a\""},
    {TLS "egress: [{name: a, listen: '0.0.0.0:9001', listen_remote: true, connect: '127.0.0.2:9001', peers: [x]}]\n",
     "leads back to \"a\""},
    {TLS "egress: [{name: a, listen: '[::]:9001', listen_remote: true, connect: '127.0.0.2:9001', peers: [x]}]\n",
     "leads back to \"a\""},
    {TLS "egress: [{name: a, listen: '127.0.0.1:9001', connect: '0.0.0.0:9001', peers: [x]}]\n", "leads back to \"a\""},
    {TLS "egress: [{name: a, listen: '[::1]:9001', connect: '[::]:9001', peers: [x]}]\n", "leads back to \"a\""},
    {TLS "egress: [{name: a, listen: 'unix:./u', connect: 'unix:u', peers: [x]}]\n", "leads back to \"a\""},
    {TLS "ingress: [{name: a, listen: '127.0.0.1:1', forward: '127.0.0.1:1'}]\n",
     "leads back to \"a\" itself, so one client would become connections without end: name the address of the "
     "function"},
    {TLS "egress: [{name: a, listen: '127.0.0.1:1', connect: '198.18.0.3:80', peers: [x]},\n"
         "         {name: b, listen: '127.0.0.1:2', connect: '127.0.0.1:1', peers: [x]}]\n",
     "3:53: on 127.0.0.1:1 listens the egress \"a\", for plaintext, and \"b\" speaks TLS"},
    {TLS "ingress: [{name: a, listen: '127.0.0.1:1', forward: '127.0.0.1:2'}]\n"
         "egress: [{name: b, listen: '127.0.0.1:2', connect: '127.0.0.1:1', peers: [x]}]\n",
     "3:53: 127.0.0.1:1 leads back to \"a\" itself"},
    {TLS "ingress: [{name: a, listen: '127.0.0.1:1', forward: ['127.0.0.1:80', '127.0.0.1:2']},\n"
         "          {name: c, listen: '127.0.0.1:3', forward: 'unix:/x'}]\n"
         "egress: [{name: b, listen: '127.0.0.1:2', connect: ['198.18.0.3:80', '127.0.0.1:3', '127.0.0.1:1'], peers: "
         "[x]}]\n",
     "4:86: 127.0.0.1:1 leads back to \"a\""},
    {TLS "ingress: [{name: a, listen: '127.0.0.1:1', forward: '127.0.0.1:80'}]\n"
         "egress: [{name: b, listen: '127.0.0.1:2', connect: '127.0.0.1:1', peers: [x]}]\n",
     NULL},
    {TLS "ingress: [{name: a, listen: '127.0.0.1:1', forward: '127.0.0.1:2'}]\n"
         "egress: [{name: b, listen: '127.0.0.1:2', connect: '198.18.0.3:1', peers: [x]}]\n",
     NULL},
    {TLS "egress: [{name: a, listen: '0.0.0.0:1', listen_remote: true, connect: '198.18.0.3:1', peers: [x]}]\n", NULL},
    {TLS "egress: [{name: a, listen: '127.0.0.1:1', connect: '[::1]:1', peers: [x]}]\n", NULL},
};

static void loops_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(ways); i++) {
        DEFER(free_config) struct pq_proxy_config c = {0};
        struct pq_why why = {""};
        assert_int_equal(parse(ways[i].text, &c, &why), 0);
        int e = pq_proxy_config_resolve(&c, &pq_lookup_system, &why);
        assert_int_equal(e, ways[i].says ? PQ_E_CONFIG : 0);
        if (ways[i].says && (strncmp(why.text, "etc/p.yaml:", 11) != 0 || !strstr(why.text, ways[i].says)))
            fail_msg("%s\nsays: %s\nnot:  %s", ways[i].text, why.text, ways[i].says);
    }
}

static void unix_paths_are_relative_to_the_file(void **state)
{
    (void)state;
    static const char text[] =
        TLS "ingress: [{name: a, listen: '127.0.0.1:1', forward: 'unix:./run//f.sock'}]\n"
            "egress: [{name: b, listen: 'unix:/run/./e.sock', connect: 'unix:../.p/x', peers: [x]}]\n";
    static const struct {
        const char *file, *forward, *connect;
    } rows[] = {
        {"etc/p.yaml", "unix:etc/run/f.sock", "unix:etc/../.p/x"},
        {"./p.yaml", "unix:run/f.sock", "unix:../.p/x"},
        {"p.yaml", "unix:run/f.sock", "unix:../.p/x"},
        {"/p.yaml", "unix:/run/f.sock", "unix:/../.p/x"},
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        DEFER(free_config) struct pq_proxy_config c = {0};
        char at[PQ_ADDRESS_TEXT];
        assert_int_equal(pq_proxy_config_parse(rows[i].file, text, strlen(text), &c, NULL), 0);
        pq_address_text(&pq_proxy_target_at(&pq_proxy_listener_at(&c, 0)->target, 0)->at, at);
        assert_string_equal(at, rows[i].forward);
        pq_address_text(&pq_proxy_target_at(&pq_proxy_listener_at(&c, 1)->target, 0)->at, at);
        assert_string_equal(at, rows[i].connect);
        pq_address_text(&pq_proxy_listener_at(&c, 1)->listen.at, at);
        assert_string_equal(at, "unix:/run/e.sock");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_hold),
        cmocka_unit_test(all_keys_are_read),
        cmocka_unit_test(a_transparent_egress_has_no_target),
        cmocka_unit_test(mistakes_are_named_with_their_place),
        cmocka_unit_test(good_files_are_taken),
        cmocka_unit_test(caps_hold_and_one_more_is_refused),
        cmocka_unit_test(too_many_listeners_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(names_are_looked_up_later),
        cmocka_unit_test(a_target_has_several_places),
        cmocka_unit_test(a_name_that_leaves_the_host_is_refused),
        cmocka_unit_test(loops_are_refused),
        cmocka_unit_test(unix_paths_are_relative_to_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
