#include "pair.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>

#include <cmocka.h>

static char *protocols[] = {(char[]){"h2"}, (char[]){"http/1.1"}};
const struct pq_strings pair_h2 = {protocols, 1}, pair_http1 = {protocols + 1, 1}, pair_both = {protocols, 2};

struct pq_tls_settings pair_settings(enum pq_mode mode, int level, const struct cert *own, const struct cert *root)
{
    return (struct pq_tls_settings){
        .policy = {.mode = (int)mode, .level = level},
        .identities = own ? &own->identity : NULL,
        .identity_count = own != NULL,
        .ca = root ? (char *)(uintptr_t)root->chain : NULL,
        .verify_peer = root,
    };
}

static void stream(int *a, int *b)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    *a = fds[0];
    *b = fds[1];
}

void pair_new(struct pair *p, struct pq_crypto *c, const struct pq_tls_settings *client,
              const struct pq_tls_settings *server, const char *name, int how)
{
    struct pq_why why = {{0}};
    *p = (struct pair){.relay = {-1, -1}};
    if (pq_tls_context_new(c, PQ_TLS_CLIENT, client, &p->client_context, &why) < 0)
        fail_msg("client: %s", why.text);
    if (pq_tls_context_new(c, PQ_TLS_SERVER, server, &p->server_context, &why) < 0)
        fail_msg("server: %s", why.text);
    if (how == PAIR_ONE_BYTE) {
        stream(&p->client_fd, &p->relay[0]);
        stream(&p->server_fd, &p->relay[1]);
    } else {
        stream(&p->client_fd, &p->server_fd);
    }
    char *at[] = {(char *)(uintptr_t)name};
    struct pq_strings names = {at, 1};
    assert_int_equal(pq_tls_new(p->client_context, p->client_fd, name ? &names : NULL, &p->client), 0);
    assert_int_equal(pq_tls_new(p->server_context, p->server_fd, NULL, &p->server), 0);
}

bool pair_try(struct pair *p, struct pq_tls_context *client, struct pq_tls_context *server, const char *name)
{
    int fds[2];
    char *at[] = {(char *)(uintptr_t)name};
    struct pq_strings names = {at, 1};
    *p = (struct pair){.client_fd = -1,
                       .server_fd = -1,
                       .relay = {-1, -1},
                       .client_context = pq_tls_context_ref(client),
                       .server_context = pq_tls_context_ref(server)};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0)
        return false;
    p->client_fd = fds[0];
    p->server_fd = fds[1];
    return pq_tls_new(client, fds[0], name ? &names : NULL, &p->client) == 0 &&
           pq_tls_new(server, fds[1], NULL, &p->server) == 0;
}

void pair_free(struct pair *p)
{
    pq_tls_free(p->client);
    pq_tls_free(p->server);
    pq_tls_context_free(p->client_context);
    pq_tls_context_free(p->server_context);
    int fds[] = {p->client_fd, p->server_fd, p->relay[0], p->relay[1]};
    for (size_t i = 0; i < PQ_COUNT(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static bool carry(struct pair *p)
{
    bool any = false;
    for (int i = 0; i < 2 && p->relay[0] >= 0; i++) {
        char byte;
        if (recv(p->relay[i], &byte, 1, 0) == 1 && send(p->relay[1 - i], &byte, 1, MSG_NOSIGNAL) == 1) {
            p->moved++;
            any = true;
        }
    }
    return any;
}

static bool waits(int code) { return code == PQ_E_WANT_READ || code == PQ_E_WANT_WRITE; }

void pair_drive(struct pair *p)
{
    p->client_result = p->server_result = PQ_E_WANT_READ;
    /* Two sides that both wait for data, with none under way, would wait for ever. */
    for (int idle = 0; idle < 4 && (waits(p->client_result) || waits(p->server_result));) {
        if (waits(p->client_result))
            p->client_result = pq_tls_handshake(p->client);
        if (waits(p->server_result))
            p->server_result = pq_tls_handshake(p->server);
        bool moved = carry(p) || p->client_result == PQ_E_WANT_WRITE || p->server_result == PQ_E_WANT_WRITE;
        idle = moved ? 0 : idle + 1;
    }
}

int pair_read(struct pair *p, struct pq_tls *t, void *out, size_t size, size_t *n)
{
    int e = pq_tls_read(t, out, size, n);
    while (e == PQ_E_WANT_READ && carry(p))
        e = pq_tls_read(t, out, size, n);
    return e;
}

void pair_expect_done(struct pair *p)
{
    pair_drive(p);
    if (p->client_result < 0 || p->server_result < 0)
        fail_msg("client %s: %s; server %s: %s", pq_error_name(p->client_result), pq_tls_failure(p->client),
                 pq_error_name(p->server_result), pq_tls_failure(p->server));
}
