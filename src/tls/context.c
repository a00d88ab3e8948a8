#include "tls/internal.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "crypto/kind.h"
#include "crypto/token.h"
#include "tls/load.h"

enum {
    ALPN_MAX = 4096,
    SECURITY_LEVEL = 2 /* of OpenSSL: 112 bits or more; the suite's lists are what sets the level */
};

struct pq_tls_context *pq_tls_context_ref(struct pq_tls_context *c)
{
    atomic_fetch_add_explicit(&c->references, 1, memory_order_relaxed);
    return c;
}

int64_t pq_tls_context_not_after(const struct pq_tls_context *c) { return c->not_after; }

void pq_tls_context_free(struct pq_tls_context *c)
{
    if (!c || atomic_fetch_sub_explicit(&c->references, 1, memory_order_acq_rel) != 1)
        return;
    SSL_CTX_free(c->ssl);
    BIO_meth_free(c->method);
    free(c->groups);
    free(c->sigalgs);
    free(c->own_sigalgs);
    pq_buf_free(&c->alpn);
    pq_tls_sessions_free(c->sessions);
    EVP_CIPHER_free(c->ticket_cipher);
    pq_tls_trust_free(&c->trust);
    free(c);
}

/* --- identity ------------------------------------------------------------------------------------------------------
 */

static const struct {
    const char *scheme, *type, *group;
} schemes[] = {
    {"ecdsa_secp256r1_sha256", "EC", "prime256v1"},
    {"ecdsa_secp384r1_sha384", "EC", "secp384r1"},
    {"ecdsa_secp521r1_sha512", "EC", "secp521r1"},
    {"ecdsa_brainpoolP256r1tls13_sha256", "EC", "brainpoolP256r1"},
    {"ecdsa_brainpoolP384r1tls13_sha384", "EC", "brainpoolP384r1"},
    {"ecdsa_brainpoolP512r1tls13_sha512", "EC", "brainpoolP512r1"},
    {"rsa_pss_rsae_sha256", "RSA", NULL},
    {"rsa_pss_rsae_sha384", "RSA", NULL},
    {"rsa_pss_rsae_sha512", "RSA", NULL},
    {"rsa_pss_pss_sha256", "RSA-PSS", NULL},
    {"rsa_pss_pss_sha384", "RSA-PSS", NULL},
    {"rsa_pss_pss_sha512", "RSA-PSS", NULL},
};

/* Schemes of other algorithms are named as their keys are: "mldsa65", "ed25519". */
static bool scheme_fits(const char *scheme, const EVP_PKEY *key)
{
    char group[80] = "";
    if (strchr(scheme, '+')) /* "ECDSA+SHA256": OpenSSL's older form, left to OpenSSL */
        return true;
    EVP_PKEY_get_group_name(key, group, sizeof group, NULL);
    for (size_t i = 0; i < PQ_COUNT(schemes); i++)
        if (!strcasecmp(scheme, schemes[i].scheme))
            return EVP_PKEY_is_a(key, schemes[i].type) && (!schemes[i].group || !strcmp(group, schemes[i].group));
    return EVP_PKEY_is_a(key, scheme);
}

static int check_scheme(const struct pq_tls_context *c, const char *file, const EVP_PKEY *key, struct pq_why *why)
{
    char name[128], group[80] = "";
    for (const char *at = c->own_sigalgs; *at;) {
        size_t len = strcspn(at, ":");
        size_t skip = *at == '?';
        snprintf(name, sizeof name, "%.*s", (int)(len - skip), at + skip);
        if (scheme_fits(name, key))
            return 0;
        at += len + (at[len] != 0);
    }
    const char *type = EVP_PKEY_get0_type_name(key);
    EVP_PKEY_get_group_name(key, group, sizeof group, NULL);
    return pq_why(
        why, PQ_E_CONFIG,
        "%s: the certificate's key is %s%s%s, which the policy does not sign with (sigalgs %s): issue a certificate "
        "that fits the policy, or change its mode, level or sigalgs",
        file, type ? type : "unknown", *group ? " " : "", group, c->own_sigalgs);
}

static void warn_of_dates(const char *file, const X509 *x)
{
    struct tm at = {0};
    char date[32];
    bool over = X509_cmp_current_time(X509_get0_notAfter(x)) < 0;
    bool early = X509_cmp_current_time(X509_get0_notBefore(x)) > 0;
    if (!over && !early)
        return;
    ASN1_TIME_to_tm(over ? X509_get0_notAfter(x) : X509_get0_notBefore(x), &at);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &at);
    pq_log(PQ_LOG_WARN, over ? "own certificate expired" : "own certificate not yet valid", "file", pq_s(file),
           over ? "not_after" : "not_before", pq_s(date), NULL);
}

/* OpenSSL keeps one for each kind of key. */
static int blame_twin(const struct pq_tls_identity *id, const EVP_PKEY *key, struct pq_why *why)
{
    const char *type = EVP_PKEY_get0_type_name(key);
    ERR_clear_error();
    return pq_why(why, PQ_E_CONFIG,
                  "%s: another identity has a key of the same kind (%s): name one of each kind, such as ML-DSA and EC",
                  id->certificate, type ? type : "unknown");
}

static int load_token_key(struct pq_crypto *crypto, const struct pq_tls_settings *how, const char *key,
                          const X509 *leaf, EVP_PKEY **out, struct pq_why *why)
{
    DEFER(pq_token_uri_free) struct pq_token_uri uri = {0};
    DEFER(pq_buf_wipe) struct pq_buf own = {0};
    struct pq_span pin = {0};
    TRY(pq_token_uri_parse(key, &uri, why));
    if (uri.pin_file)
        TRY(pq_tls_contents(how->files, uri.pin_file, true, &own, &pin, why));
    return pq_token_key(crypto, how->pkcs11_module, &uri, pin, leaf, out, why);
}

static int load_identity(struct pq_crypto *crypto, const struct pq_tls_settings *how, const struct pq_tls_identity *id,
                         STACK_OF(X509) * *chain, EVP_PKEY **key, struct pq_why *why)
{
    OSSL_LIB_CTX *lib = pq_crypto_libctx(crypto);
    DEFER(pq_buf_free) struct pq_buf own = {0};
    DEFER(pq_buf_wipe) struct pq_buf own_key = {0};
    struct pq_span pem;
    TRY(pq_tls_contents(how->files, id->certificate, false, &own, &pem, why));
    TRY(pq_tls_load_chain(lib, id->certificate, pem, chain, why));
    if (pq_token_is_uri(id->key))
        return load_token_key(crypto, how, id->key, sk_X509_value(*chain, 0), key, why);
    TRY(pq_tls_contents(how->files, id->key, true, &own_key, &pem, why));
    return pq_tls_load_key(lib, id->key, pem, key, why);
}

/* With its certificate: what OpenSSL finds out when it compares the two is kept with the key. */
int pq_tls_settings_keys(struct pq_crypto *c, const struct pq_tls_settings *how, struct pq_why *why)
{
    for (size_t i = 0; i < how->identity_count; i++) {
        const struct pq_tls_identity *id = &how->identities[i];
        DEFER(pq_x509_stack_freep) STACK_OF(X509) *chain = NULL;
        DEFER(EVP_PKEY_freep) EVP_PKEY *key = NULL;
        if (!id->certificate || !id->key || !pq_token_is_uri(id->key))
            continue;
        TRY(load_identity(c, how, id, &chain, &key, why));
        (void)X509_check_private_key(sk_X509_value(chain, 0), key);
        ERR_clear_error();
    }
    return 0;
}

static void note_not_after(struct pq_tls_context *c, const X509 *x)
{
    int64_t at = pq_tls_seconds(X509_get0_notAfter(x));
    if (c->not_after == 0 || at < c->not_after)
        c->not_after = at;
}

static int set_identity(struct pq_tls_context *c, struct pq_crypto *crypto, const struct pq_tls_settings *how,
                        const struct pq_tls_identity *id, struct pq_why *why)
{
    DEFER(pq_x509_stack_freep) STACK_OF(X509) *chain = NULL;
    DEFER(EVP_PKEY_freep) EVP_PKEY *key = NULL;
    if (!id->certificate)
        return pq_why(why, PQ_E_CONFIG, "the key %s needs its certificate: name the certificate's file",
                      id->key ? id->key : "(none)");
    if (!id->key)
        return pq_why(why, PQ_E_CONFIG, "the certificate %s needs its key: name the key's file", id->certificate);
    TRY(load_identity(crypto, how, id, &chain, &key, why));
    if (c->require_pq_auth && !pq_tls_chain_is_pq(c, chain))
        return pq_why(why, PQ_E_CONFIG,
                      "%s: the policy requires pq-auth, but the certificate's key or a signature in its chain is not "
                      "post-quantum",
                      id->certificate);
    DEFER(X509_freep) X509 *leaf = sk_X509_shift(chain);
    if (!X509_get0_pubkey(leaf))
        return pq_crypto_why(why, PQ_E_CONFIG, "%s: the certificate's key can't be used", id->certificate);
    if (!X509_check_private_key(leaf, key)) {
        ERR_clear_error();
        return pq_why(why, PQ_E_CONFIG, "the key in %s does not belong to the certificate in %s", id->key,
                      id->certificate);
    }
    TRY(check_scheme(c, id->certificate, key, why));
    warn_of_dates(id->certificate, leaf);
    note_not_after(c, leaf);
    for (int i = 0; i < sk_X509_num(chain); i++)
        note_not_after(c, sk_X509_value(chain, i));
    ERR_clear_error();
    if (!SSL_CTX_use_cert_and_key(c->ssl, leaf, key, chain, 0)) /* 0: replaces none */
        return ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_NOT_REPLACING_CERTIFICATE
                   ? blame_twin(id, key, why)
                   : pq_crypto_why(why, PQ_E_CONFIG, "OpenSSL does not take the certificate in %s", id->certificate);
    return 0;
}

/* --- trust ---------------------------------------------------------------------------------------------------------
 */

static int set_trust(struct pq_tls_context *c, const struct pq_tls_settings *how, struct pq_why *why)
{
    X509_STORE *store = SSL_CTX_get_cert_store(c->ssl);
    unsigned long flags = X509_V_FLAG_PARTIAL_CHAIN; /* an anchor need not be self-signed (RFC 5280, section 6.1.1) */
    TRY(pq_tls_trust_load(&c->trust, c->lib, how, store, why));
    if (how->crl)
        flags |= X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL;
    if (!X509_STORE_set_flags(store, flags))
        return pq_crypto_why(why, PQ_E_CRYPTO, "OpenSSL's certificate store can't be set up");
    /* A client always asks, so that its callback sees the chain; the callback lets all pass where nothing is to be
     * verified. */
    int verify = c->role == PQ_TLS_CLIENT ? SSL_VERIFY_PEER : SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    SSL_CTX_set_verify(c->ssl, c->role == PQ_TLS_CLIENT || how->verify_peer ? verify : SSL_VERIFY_NONE, NULL);
    SSL_CTX_set_verify_depth(c->ssl, PQ_TLS_CHAIN_MAX);
    SSL_CTX_set_cert_verify_callback(c->ssl, pq_tls_verify_callback, c);
    return 0;
}

/* --- ALPN ----------------------------------------------------------------------------------------------------------
 */

static int select_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *in,
                       unsigned in_len, void *context)
{
    (void)ssl;
    const struct pq_tls_context *c = context;
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, out_len, c->alpn.at, (unsigned)c->alpn.len, in, in_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return c->alpn_optional ? SSL_TLSEXT_ERR_NOACK : SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* RFC 7301, section 3.1. */
static int write_alpn(struct pq_buf *out, const struct pq_strings *names, struct pq_why *why)
{
    out->cap = ALPN_MAX;
    for (size_t i = 0; i < names->count; i++) {
        size_t len = strlen(names->at[i]);
        if (len == 0 || len > 255)
            return pq_why(why, PQ_E_CONFIG, "an ALPN protocol's name has 1 to 255 bytes");
        int e = pq_buf_append(out, &(uint8_t){(uint8_t)len}, 1);
        if (e == 0)
            e = pq_buf_append(out, names->at[i], len);
        if (e < 0)
            return pq_why(why, e == PQ_E_NOMEM ? e : PQ_E_CONFIG, "the ALPN protocols' names: %s", pq_error_text(e));
    }
    return 0;
}

static int set_alpn(struct pq_tls_context *c, const struct pq_tls_settings *how, struct pq_why *why)
{
    if (!how->alpn || how->alpn->count == 0)
        return 0;
    TRY(write_alpn(&c->alpn, how->alpn, why));
    c->alpn_optional = how->alpn_optional;
    if (c->role == PQ_TLS_SERVER)
        SSL_CTX_set_alpn_select_cb(c->ssl, select_alpn, c);
    else if (SSL_CTX_set_alpn_protos(c->ssl, c->alpn.at, (unsigned)c->alpn.len))
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    return 0;
}

/* --- all of it -----------------------------------------------------------------------------------------------------
 */

static void on_message(int sent, int version, int type, const void *bytes, size_t len, SSL *ssl, void *context)
{
    (void)version, (void)context;
    struct pq_tls *t = SSL_get_app_data(ssl);
    if (!t || type != SSL3_RT_HANDSHAKE || len == 0)
        return;
    int message = *(const unsigned char *)bytes;
    /* RFC 8446, section 4.4.3: a second ClientHello follows a HelloRetryRequest and nothing else. */
    t->client_hellos += message == SSL3_MT_CLIENT_HELLO;
    if (!sent && message == SSL3_MT_CERTIFICATE)
        pq_tls_judge_list(t, bytes, len);
    if (message == SSL3_MT_ENCRYPTED_EXTENSIONS) /* so ServerHello has been made, or judged */
        pq_tls_forget_exchange(t);
    /* Where no certificate will come whose callback judges the group. */
    if (!sent && message == SSL3_MT_ENCRYPTED_EXTENSIONS && SSL_session_reused(ssl) && pq_tls_judge_group(t) < 0)
        pq_tls_spoil(bytes, len);
    if (!sent && message == SSL3_MT_FINISHED && t->proved && pq_tls_path_note(t) == 0)
        pq_tls_forget_certificate(t);
    t->proved |= !sent && message == SSL3_MT_CERTIFICATE_VERIFY;
    if (!sent && t->done)
        pq_tls_note_idle_talk(t, message);
}

static int set_protocol(struct pq_tls_context *c, struct pq_why *why)
{
    SSL_CTX *s = c->ssl;
    if (!SSL_CTX_set_min_proto_version(s, TLS1_3_VERSION) || !SSL_CTX_set_max_proto_version(s, TLS1_3_VERSION) ||
        !SSL_CTX_set_num_tickets(s, 0))
        return pq_crypto_why(why, PQ_E_CRYPTO, "OpenSSL can't be set to TLS 1.3");
    SSL_CTX_set_security_level(s, SECURITY_LEVEL);
    SSL_CTX_set_options(s, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION |
                               SSL_OP_SERVER_PREFERENCE | SSL_OP_NO_RX_CERTIFICATE_COMPRESSION |
                               SSL_OP_NO_TX_CERTIFICATE_COMPRESSION);
    SSL_CTX_set_mode(s, SSL_MODE_NO_AUTO_CHAIN | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
    /* A read must return after each record: a flood of KeyUpdates would otherwise keep one connection's read to itself.
     */
    SSL_CTX_clear_mode(s, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_read_ahead(s, 1); /* one recv for a record's header, its body and those behind it */
    SSL_CTX_set_session_cache_mode(s, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_msg_callback(s, on_message);
    if (c->role == PQ_TLS_SERVER) {
        SSL_CTX_set_tlsext_servername_callback(s, pq_tls_hello_callback);
        SSL_CTX_set_tlsext_servername_arg(s, c);
    }
    return 0;
}

static int check_settings(enum pq_tls_role role, const struct pq_tls_settings *how, struct pq_why *why)
{
    const struct pq_tls_policy *p = &how->policy;
    if (p->mode == PQ_MODE_PLAIN || p->mode > PQ_MODE_PURE || !pq_suite_find((enum pq_mode)p->mode, (int)p->level))
        return pq_why(why, PQ_E_CONFIG, "a TLS policy needs a mode (classical, hybrid, pure) and a level (1, 3, 5)");
    if (role == PQ_TLS_SERVER && how->identity_count == 0 && !how->judge_only)
        return pq_why(why, PQ_E_CONFIG, "a TLS server needs a certificate and its key");
    if (how->identity_count > PQ_TLS_IDENTITIES_MAX)
        return pq_why(why, PQ_E_CONFIG, "%zu identities are more than the %d that stand side by side",
                      how->identity_count, PQ_TLS_IDENTITIES_MAX);
    if (p->require_pq_auth && !how->verify_peer)
        return pq_why(why, PQ_E_CONFIG, "the policy requires pq-auth, so the peer's certificate must be verified");
    return 0;
}

enum pq_tls_role pq_tls_context_role(const struct pq_tls_context *t) { return t->role; }

int pq_tls_context_new(struct pq_crypto *crypto, enum pq_tls_role role, const struct pq_tls_settings *how,
                       struct pq_tls_context **out, struct pq_why *why)
{
    TRY(check_settings(role, how, why));
    DEFER(pq_tls_context_freep) struct pq_tls_context *c = calloc(1, sizeof *c);
    if (!c)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    c->references = 1;
    c->role = role;
    c->lib = pq_crypto_libctx(crypto);
    c->verify_peer = how->verify_peer;
    c->split_flights = how->split_flights;
    c->first_flight_classical = how->first_flight_classical;
    c->require_pq_kex = how->policy.require_pq_kex;
    c->require_pq_auth = how->policy.require_pq_auth;
    ERR_clear_error();
    c->ssl = SSL_CTX_new_ex(c->lib, NULL, role == PQ_TLS_SERVER ? TLS_server_method() : TLS_client_method());
    if (!c->ssl)
        return pq_crypto_why(why, PQ_E_CRYPTO, "OpenSSL's TLS can't be set up");
    if (pq_transport_method(&c->method) < 0)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    TRY(set_protocol(c, why));
    TRY(pq_tls_set_algorithms(c, how, why));
    TRY(set_trust(c, how, why));
    TRY(pq_tls_set_list_cap(c, how->max_certificate_list, why));
    for (size_t i = 0; i < how->identity_count && !how->judge_only; i++)
        TRY(set_identity(c, crypto, how, &how->identities[i], why));
    TRY(set_alpn(c, how, why));
    TRY(pq_tls_set_resumption(c, how, why));
    *out = TAKE(c);
    return 0;
}
