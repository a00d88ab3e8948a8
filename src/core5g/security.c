#include "core5g/security.h"

static int check(const struct pq_sbi_security *how, struct pq_why *why)
{
    if (how->certificate && how->key && how->ca)
        return 0;
    return pq_why(why, PQ_E_USAGE,
                  "TLS needs --certificate, --key and --ca together: give all three, or none for plain HTTP/2");
}

static int open_role(const struct pq_sbi_security *how, struct pq_crypto *crypto, enum pq_tls_role role,
                     struct pq_tls_context **out, struct pq_why *why)
{
    char *protocols[] = {(char[]){"h2"}};
    const struct pq_strings alpn = {protocols, PQ_COUNT(protocols)};
    const struct pq_tls_identity identity = {(char *)(uintptr_t)how->certificate, (char *)(uintptr_t)how->key};
    const struct pq_tls_settings settings = {
        .policy = {.mode = how->mode, .level = how->level},
        .identities = &identity,
        .identity_count = 1,
        .ca = (char *)(uintptr_t)how->ca,
        .verify_peer = true,
        .alpn = &alpn,
    };
    return pq_tls_context_new(crypto, role, &settings, out, why);
}

static int open_roles(const struct pq_sbi_security *how, bool server, bool client, struct pq_sbi_tls *t,
                      struct pq_why *why)
{
    TRY(pq_crypto_new(&t->crypto, why));
    if (server)
        TRY(open_role(how, t->crypto, PQ_TLS_SERVER, &t->server, why));
    return client ? open_role(how, t->crypto, PQ_TLS_CLIENT, &t->client, why) : 0;
}

int pq_sbi_tls_open(const struct pq_sbi_security *how, bool server, bool client, struct pq_sbi_tls *out,
                    struct pq_why *why)
{
    struct pq_sbi_tls t = {0};
    if (!how->certificate && !how->key && !how->ca) {
        *out = t;
        return 0;
    }
    TRY(check(how, why));
    int e = open_roles(how, server, client, &t, why);
    if (e < 0)
        pq_sbi_tls_close(&t);
    else
        *out = t;
    return e;
}

void pq_sbi_tls_close(struct pq_sbi_tls *t)
{
    pq_tls_context_free(t->server);
    pq_tls_context_free(t->client);
    pq_crypto_free(t->crypto);
    *t = (struct pq_sbi_tls){0};
}
