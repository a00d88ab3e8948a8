#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <string.h>

#include "base/clock.h"
#include "tls/internal.h"

enum {
    FORM = 1,
    HEADER = 9, /* form, and when the peer authenticated, in seconds since 1970 */
    TICKET_LIFETIME_S = 3600,
    AUTHENTICATION_S = 24 * 3600, /* resumed again and again; then certificates are due once more */
    CLOCK_SKEW_S = 300,           /* of hosts that share ticket keys */
};

static int64_t now_s(void) { return pq_clock_wall_ns() / PQ_NS_PER_S; }

/* --- what goes with a session: when the peer authenticated, and how (path.h) ----------------------------------------
 */

static int write_record(const struct pq_tls *t, SSL_SESSION *session)
{
    uint8_t bytes[HEADER + PQ_TLS_PATH_SIZE_MAX];
    struct pq_writer w = pq_writer(bytes, sizeof bytes);
    TRY(pq_write_u8(&w, FORM));
    TRY(pq_write_u64(&w, (uint64_t)now_s()));
    TRY(pq_write_bytes(&w, pq_span(t->path.at, t->path.len)));
    return SSL_SESSION_set1_ticket_appdata(session, bytes, w.len) ? 0 : PQ_E_NOMEM;
}

static int read_record(SSL_SESSION *session, int64_t *since_s, struct pq_span *path)
{
    void *bytes = NULL;
    size_t len = 0;
    uint8_t form;
    uint64_t since;
    SSL_SESSION_get0_ticket_appdata(session, &bytes, &len);
    struct pq_reader r = pq_reader(pq_span(bytes, len));
    TRY(pq_read_u8(&r, &form));
    if (form != FORM)
        return PQ_E_TYPE;
    TRY(pq_read_u64(&r, &since));
    *since_s = (int64_t)since;
    return pq_read_bytes(&r, pq_reader_left(&r), path);
}

bool pq_tls_session_holds(const struct pq_tls *t, SSL_SESSION *session)
{
    const struct pq_tls_context *c = t->context;
    enum pq_tls_reason reason;
    int64_t since, now = now_s();
    struct pq_span path;
    if (read_record(session, &since, &path) < 0 || since > now + CLOCK_SKEW_S || now - since >= AUTHENTICATION_S)
        return false;
    return !c->verify_peer || pq_tls_path_check(c, path, &t->names, now, &reason, NULL) == 0;
}

/* A session that can be resumed has a record, and no longer a life than its peer's certificates. */
bool pq_tls_session_complete(struct pq_tls *t, SSL_SESSION *session)
{
    struct pq_tls_path path;
    struct pq_span bytes;
    int64_t since, now = now_s();
    if (!SSL_session_reused(t->ssl) && write_record(t, session) < 0)
        return false;
    if (read_record(session, &since, &bytes) < 0)
        return false;
    int64_t end = since + AUTHENTICATION_S;
    if (t->context->verify_peer) {
        if (pq_tls_path_decode(bytes, &path) < 0)
            return false;
        end = pq_tls_path_not_after(&path) < end ? pq_tls_path_not_after(&path) : end;
    }
    long life = end - now < TICKET_LIFETIME_S ? (long)(end - now) : TICKET_LIFETIME_S;
    return life > 0 && SSL_SESSION_set_timeout(session, life);
}

int pq_tls_session_resumed(struct pq_tls *t)
{
    int64_t since;
    struct pq_span path;
    SSL_SESSION *session = SSL_get_session(t->ssl);
    if (read_record(session, &since, &path) < 0 || !pq_tls_session_holds(t, session))
        return pq_tls_blame(t, PQ_E_AUTH, PQ_TLS_INTERNAL, "a session was resumed that does not let the peer in");
    int e = t->context->verify_peer ? pq_tls_path_told(t->context, path, t->peer, &t->path_is_pq) : 0;
    t->path.cap = PQ_TLS_PATH_SIZE_MAX;
    pq_buf_free(&t->path);
    if (e == 0 && path.len)
        e = pq_buf_append(&t->path, path.at, path.len);
    return e < 0 ? pq_tls_blame(t, e, PQ_TLS_INTERNAL, "%s", pq_error_text(e)) : 0;
}

/* --- a server's tickets ---------------------------------------------------------------------------------------------
 */

/* RFC 5077, section 4: encrypted, then authenticated. 1: done, 0: no such key, or no ticket wanted; -1: failed. */
static int with_key(const struct pq_tls_context *c, const struct pq_tls_ticket_key *key, const unsigned char *iv,
                    EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac, int encrypt)
{
    OSSL_PARAM how[] = {
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, (void *)(uintptr_t)key->mac, sizeof key->mac),
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char[]){"SHA256"}, 0),
        OSSL_PARAM_construct_end(),
    };
    return EVP_CipherInit_ex2(cipher, c->ticket_cipher, key->cipher, iv, encrypt, NULL) &&
                   EVP_MAC_CTX_set_params(mac, how)
               ? 1
               : -1;
}

static int ticket_key(SSL *ssl, unsigned char name[16], unsigned char *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac,
                      int encrypt)
{
    const struct pq_tls *t = SSL_get_app_data(ssl);
    const struct pq_tls_context *c = t->context;
    struct pq_tls_ticket_key key;
    if (encrypt && t->no_ticket)
        return 0;
    if (!pq_tls_ticket_key_find(c->tickets, encrypt ? NULL : name, pq_clock_ns(), &key))
        return 0;
    int done = 1;
    if (encrypt) {
        memcpy(name, key.id, sizeof key.id);
        done = RAND_bytes_ex(c->lib, iv, (size_t)EVP_CIPHER_get_iv_length(c->ticket_cipher), 0) > 0 ? 1 : -1;
    }
    done = done == 1 ? with_key(c, &key, iv, cipher, mac, encrypt) : done;
    OPENSSL_cleanse(&key, sizeof key);
    return done;
}

static int ticket_made(SSL *ssl, void *context)
{
    (void)context;
    struct pq_tls *t = SSL_get_app_data(ssl);
    if (pq_tls_path_note(t) < 0)
        return 0;
    pq_tls_forget_certificate(t); /* or the ticket would hold it */
    if (t->spoilt)
        return 0;
    t->no_ticket = !pq_tls_session_complete(t, SSL_get_session(ssl));
    return 1;
}

/* Where not, a full handshake follows. */
static SSL_TICKET_RETURN ticket_came(SSL *ssl, SSL_SESSION *session, const unsigned char *name, size_t name_len,
                                     SSL_TICKET_STATUS status, void *context)
{
    (void)name, (void)name_len, (void)context;
    bool opened = status == SSL_TICKET_SUCCESS || status == SSL_TICKET_SUCCESS_RENEW;
    bool holds = opened && pq_tls_session_holds(SSL_get_app_data(ssl), session);
    return holds ? SSL_TICKET_RETURN_USE_RENEW : SSL_TICKET_RETURN_IGNORE_RENEW;
}

/* --- a context ------------------------------------------------------------------------------------------------------
 */

static bool hash_text(EVP_MD_CTX *md, const char *text) { return EVP_DigestUpdate(md, text, strlen(text) + 1); }

static bool hash_list(EVP_MD_CTX *md, X509_CRL *list)
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    return X509_CRL_digest(list, EVP_sha256(), digest, &len) && EVP_DigestUpdate(md, digest, len);
}

/* Who resumes is shown no certificate, so a session of before ours was replaced must not go on. */
static bool hash_own(const struct pq_tls_context *c, EVP_MD_CTX *md)
{
    bool ok = true;
    for (long at = SSL_CERT_SET_FIRST; ok && SSL_CTX_set_current_cert(c->ssl, at); at = SSL_CERT_SET_NEXT) {
        uint8_t digest[EVP_MAX_MD_SIZE];
        unsigned len = 0;
        ok = X509_digest(SSL_CTX_get0_certificate(c->ssl), EVP_sha256(), digest, &len) &&
             EVP_DigestUpdate(md, digest, len);
    }
    return ok;
}

/* Of all that a peer is judged by, so that a ticket of before a change is of another world, whichever process made it.
 */
static bool hash_policy(const struct pq_tls_context *c, const struct pq_tls_settings *how, EVP_MD_CTX *md)
{
    const uint8_t flags[] = {
        FORM, c->verify_peer, c->require_pq_kex, c->require_pq_auth, (uint8_t)how->crl_stale, !!c->trust.lists};
    bool ok = EVP_DigestUpdate(md, flags, sizeof flags) && hash_text(md, c->groups) && hash_text(md, c->sigalgs) &&
              hash_text(md, how->policy.ciphersuites ? how->policy.ciphersuites : "");
    for (size_t i = 0; i < c->trust.anchor_count; i++) {
        const unsigned char *name = NULL;
        size_t len = 0;
        ok = ok && X509_NAME_get0_der(X509_get_subject_name(c->trust.anchors[i].x), &name, &len) &&
             EVP_DigestUpdate(md, name, len) && EVP_DigestUpdate(md, c->trust.anchors[i].key, PQ_TLS_KEY_HASH);
    }
    for (int i = 0; i < sk_X509_CRL_num(c->trust.lists); i++)
        ok = ok && hash_list(md, sk_X509_CRL_value(c->trust.lists, i));
    return ok;
}

static int set_session_context(struct pq_tls_context *c, const struct pq_tls_settings *how, struct pq_why *why)
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    EVP_MD *sha = EVP_MD_fetch(c->lib, "SHA256", NULL);
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    bool ok = sha && md && EVP_DigestInit_ex2(md, sha, NULL) && hash_policy(c, how, md) && hash_own(c, md) &&
              EVP_DigestFinal_ex(md, digest, &len) && SSL_CTX_set_session_id_context(c->ssl, digest, len);
    EVP_MD_CTX_free(md);
    EVP_MD_free(sha);
    return ok ? 0 : pq_crypto_why(why, PQ_E_CRYPTO, "session tickets can't be set up");
}

int pq_tls_set_resumption(struct pq_tls_context *c, const struct pq_tls_settings *how, struct pq_why *why)
{
    if (!how->resume)
        return 0;
    if (c->role == PQ_TLS_CLIENT)
        return pq_tls_sessions_new(c, why);
    if (!how->tickets)
        return 0;
    c->tickets = how->tickets;
    c->ticket_cipher = EVP_CIPHER_fetch(c->lib, "AES-256-CBC", NULL);
    SSL_CTX_clear_options(c->ssl, SSL_OP_NO_TICKET);
    SSL_CTX_set_timeout(c->ssl, TICKET_LIFETIME_S);
    if (!c->ticket_cipher || !SSL_CTX_set_num_tickets(c->ssl, 1) ||
        !SSL_CTX_set_tlsext_ticket_key_evp_cb(c->ssl, ticket_key) ||
        !SSL_CTX_set_session_ticket_cb(c->ssl, ticket_made, ticket_came, NULL))
        return pq_crypto_why(why, PQ_E_CRYPTO, "session tickets can't be set up");
    return set_session_context(c, how, why);
}
