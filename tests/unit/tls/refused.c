#include "refused.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

void refused_expect(const char *who, struct pq_tls *t, int code, struct expected e)
{
    if (code != e.code || pq_tls_reason(t) != e.reason || !strstr(pq_tls_failure(t), e.says))
        fail_msg("%s: %s, %s: \"%s\" (expected %s, %s, \"%s\")", who, pq_error_name(code),
                 pq_tls_reason_label(pq_tls_reason(t)), pq_tls_failure(t), pq_error_name(e.code),
                 pq_tls_reason_label(e.reason), e.says);
}

void refused_run(struct pq_crypto *c, const struct pq_tls_settings *client, const struct pq_tls_settings *server,
                 const char *name, struct expected at_client, struct expected at_server)
{
    struct pair p;
    char byte[8];
    size_t n = 0;
    pair_new(&p, c, client, server, name, PAIR_PLAIN);
    pair_drive(&p);
    /* Under TLS 1.3 a client is done before the server judged its certificate: then its first read learns of it. */
    if (p.client_result == 0)
        p.client_result = pq_tls_read(p.client, byte, sizeof byte, &n);
    refused_expect("client", p.client, p.client_result, at_client);
    refused_expect("server", p.server, p.server_result, at_server);
    if (at_server.reason == PQ_TLS_POLICY_KEX)
        assert_string_equal(pq_tls_info(p.server)->group, "x25519");
    if (at_client.reason == PQ_TLS_POLICY_KEX)
        assert_string_equal(pq_tls_info(p.client)->group, "x25519");
    assert_int_equal(pq_tls_handshake(p.server), p.server_result);
    assert_true(pq_tls_write(p.server, "x", 1, &n) < 0);
    assert_true(pq_tls_read(p.client, byte, sizeof byte, &n) < 0);
    pair_free(&p);
}

struct expected refused_alert(const char *text) { return (struct expected){PQ_E_AUTH, PQ_TLS_PEER_ALERT, text}; }

struct expected refused_handshake(void)
{
    return (struct expected){PQ_E_PROTOCOL, PQ_TLS_PEER_ALERT, "handshake failure"};
}
