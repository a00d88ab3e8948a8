#include "tls/internal.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509.h>
#include <string.h>

#include "base/clock.h"
#include "crypto/kind.h"
#include "tls/load.h"

enum {
    FETCHES = 16, /* from the socket in one call, so that no peer keeps a call to itself */
    IDLE_TALK_MAX = 64,
    IDLE_TALK_DATA = 64 << 10
};

void pq_tls_free(struct pq_tls *t)
{
    if (!t)
        return;
    SSL_free(t->ssl);
    pq_transport_free(&t->transport);
    pq_buf_free(&t->path);
    pq_buf_free(&t->session_peer);
    for (size_t i = 0; i < t->names.count; i++)
        free(t->names.at[i]);
    free(t->names.at);
    pq_tls_context_free(t->context);
    free(t);
}

/* One trailing dot marks a DNS name as complete (RFC 6066, section 3: not sent). */
static int copy_names(struct pq_tls *t, const struct pq_strings *names)
{
    if (!names || names->count == 0)
        return 0;
    if (names->count > PQ_TLS_NAMES_MAX)
        return PQ_E_INVALID;
    t->names.at = calloc(names->count, sizeof *t->names.at);
    if (!t->names.at)
        return PQ_E_NOMEM;
    for (size_t i = 0; i < names->count; i++) {
        const char *name = names->at[i];
        if (!pq_tls_name_valid(name))
            return PQ_E_INVALID;
        size_t len = strlen(name);
        bool dot = pq_tls_name_is_dns(name) && len > 1 && name[len - 1] == '.';
        t->names.at[i] = strndup(name, len - dot);
        if (!t->names.at[i])
            return PQ_E_NOMEM;
        t->names.count++;
    }
    return 0;
}

/* RFC 6066, section 3: only DNS names. */
static int set_server_name(struct pq_tls *t)
{
    for (size_t i = 0; i < t->names.count; i++)
        if (pq_tls_name_is_dns(t->names.at[i]))
            return SSL_set_tlsext_host_name(t->ssl, t->names.at[i]) ? 0 : PQ_E_NOMEM;
    return 0;
}

int pq_tls_new_over(struct pq_tls_context *context, int fd, struct pq_tls *other, const struct pq_strings *names,
                    struct pq_tls **out)
{
    DEFER(pq_tls_freep) struct pq_tls *t = calloc(1, sizeof *t);
    if (!t)
        return PQ_E_NOMEM;
    t->context = pq_tls_context_ref(context);
    t->info = (struct pq_tls_info){.version = "",
                                   .group = "",
                                   .signature = "",
                                   .own_signature = "",
                                   .cipher = "",
                                   .peer = t->peer,
                                   .alpn = t->alpn};
    pq_transport_init(&t->transport, fd, other ? &other->transport : NULL);
    t->transport.collect = !context->split_flights;
    if (other)
        other->transport.other = &t->transport;
    TRY(copy_names(t, names));
    ERR_clear_error();
    t->ssl = SSL_new(context->ssl);
    BIO *b = t->ssl ? pq_transport_bio(&t->transport, context->lib, context->method) : NULL;
    if (!b)
        return pq_crypto_why(NULL, PQ_E_NOMEM, "TLS connection");
    SSL_set_bio(t->ssl, b, b);
    if (!SSL_set_app_data(t->ssl, t))
        return pq_crypto_why(NULL, PQ_E_NOMEM, "TLS connection");
    if (context->role == PQ_TLS_SERVER) {
        SSL_set_accept_state(t->ssl);
    } else {
        SSL_set_connect_state(t->ssl);
        TRY(set_server_name(t));
        TRY(pq_tls_sessions_offer(t));
    }
    *out = TAKE(t);
    return 0;
}

int pq_tls_new(struct pq_tls_context *context, int fd, const struct pq_strings *names, struct pq_tls **out)
{
    return pq_tls_new_over(context, fd, NULL, names, out);
}

/* --- the handshake -------------------------------------------------------------------------------------------------
 */

/* Known before the rest: what fails later is logged with it. */
static void note_group(struct pq_tls *t)
{
    t->info.group = pq_tls_group(t->ssl);
    t->info.hello_retry = t->client_hellos > 1;
    t->info.pq_kex = pq_kind_is_pq(pq_kind_of_group(t->info.group));
}

static void note_negotiated(struct pq_tls *t)
{
    const char *text = NULL, *own = NULL;
    const unsigned char *alpn = NULL;
    unsigned alpn_len = 0;
    note_group(t);
    t->info.version = SSL_get_version(t->ssl);
    t->info.signature = SSL_get0_peer_signature_name(t->ssl, &text) && text ? text : "";
    t->info.own_signature = SSL_get0_signature_name(t->ssl, &own) && own ? own : "";
    t->info.cipher = SSL_get_cipher_name(t->ssl);
    SSL_get0_alpn_selected(t->ssl, &alpn, &alpn_len);
    if (alpn_len < sizeof t->alpn && alpn)
        memcpy(t->alpn, alpn, alpn_len);
    t->info.resumed = SSL_session_reused(t->ssl);
    t->info.pq_auth = t->path_is_pq && (t->info.resumed || pq_tls_signature_is_pq(t->context, t->info.signature));
}

static void note_dates(struct pq_tls *t)
{
    struct pq_tls_path path;
    if (t->path.len && pq_tls_path_decode(pq_span(t->path.at, t->path.len), &path) == 0)
        t->info.not_after = pq_tls_path_not_after(&path);
}

/* The callbacks refused what falls short while an alert could still say so; nothing gets past here that they missed. */
static int finish(struct pq_tls *t)
{
    if (SSL_session_reused(t->ssl))
        TRY(pq_tls_session_resumed(t));
    note_negotiated(t);
    t->transport.collect = false;
    TRY(pq_tls_judge_group(t));
    if (t->context->require_pq_auth && !t->info.pq_auth)
        return pq_tls_blame(t, PQ_E_POLICY, PQ_TLS_POLICY_AUTH,
                            "the policy requires pq-auth, but the peer's signature is %s",
                            *t->info.signature ? t->info.signature : "missing");
    if (pq_tls_path_note(t) < 0)
        return pq_tls_blame(t, PQ_E_NOMEM, PQ_TLS_INTERNAL, "out of memory");
    pq_tls_forget_certificate(t);
    note_dates(t);
    t->done = true;
    t->accepted = t->context->role == PQ_TLS_SERVER || t->info.resumed;
    return 0;
}

int pq_tls_handshake(struct pq_tls *t)
{
    if (t->done || t->code < 0)
        return t->code;
    ERR_clear_error();
    t->transport.err = 0;
    t->transport.fetches = FETCHES;
    int64_t start = pq_clock_thread_cpu_ns();
    int r = SSL_do_handshake(t->ssl);
    t->info.cpu_ns += pq_clock_thread_cpu_ns() - start;
    if (r == 1)
        return finish(t);
    int e = pq_tls_judge_failure(t, r);
    if (e == PQ_E_WANT_READ && t->proved && pq_tls_path_note(t) == 0)
        pq_tls_forget_certificate(t); /* whoever stalls now no longer makes us hold it */
    if (e == PQ_E_WANT_READ || e == PQ_E_WANT_WRITE)
        return e;
    note_group(t);
    (void)pq_transport_flush(&t->transport); /* the alert, if libssl wrote one and could not send it */
    return e;
}

/* --- data ----------------------------------------------------------------------------------------------------------
 */

/* KeyUpdates and tickets cost us work and carry no data. One a second may always come, and a burst of IDLE_TALK_MAX, as
 * often as there are IDLE_TALK_DATA bytes of data between. */
void pq_tls_note_idle_talk(struct pq_tls *t, int type)
{
    int64_t now = pq_clock_ns(), seconds = (now - t->idle_talk.last) / PQ_NS_PER_S;
    bool talks = t->idle_talk.data < IDLE_TALK_DATA && seconds < t->idle_talk.count;
    t->accepted |= type == SSL3_MT_NEWSESSION_TICKET;
    t->idle_talk.count = talks ? t->idle_talk.count - (unsigned)seconds + 1 : 1;
    t->idle_talk.data = talks ? t->idle_talk.data : 0;
    t->idle_talk.last = now;
}

static int blame_idle_talk(struct pq_tls *t)
{
    return pq_tls_blame(t, PQ_E_PROTOCOL, PQ_TLS_KEY_UPDATES,
                        "the peer sent more than %d KeyUpdate messages or tickets within a minute and no data between: "
                        "update what it runs",
                        IDLE_TALK_MAX);
}

static void noted_read(struct pq_tls *t, size_t n)
{
    t->accepted = true;
    t->idle_talk.data += n;
}

int pq_tls_read(struct pq_tls *t, void *out, size_t size, size_t *n)
{
    if (!t->done || size == 0)
        return PQ_E_USAGE;
    if (t->code < 0)
        return t->code;
    if (t->read_closed)
        return PQ_E_CLOSED;
    t->transport.fetches = t->held ? 0 : FETCHES;
    for (;;) {
        size_t got = 0;
        ERR_clear_error();
        t->transport.err = 0;
        int r = SSL_read_ex(t->ssl, out, size, &got);
        if (t->idle_talk.count > IDLE_TALK_MAX)
            return blame_idle_talk(t);
        if (r == 1) {
            noted_read(t, got);
            *n = got;
            return 0;
        }
        int e = pq_tls_judge_failure(t, r);
        t->read_closed = e == PQ_E_CLOSED;
        /* A message without data ended the call; what came behind it no event tells of. */
        if (e != PQ_E_WANT_READ || t->transport.err)
            return e;
    }
}

/* Under TLS 1.3 a client may write before the server refused its certificate; when the write then fails, the alert that
 * says why still waits to be read. */
static int judge_write_failure(struct pq_tls *t, int returned)
{
    char byte;
    size_t n;
    if (SSL_get_error(t->ssl, returned) == SSL_ERROR_SYSCALL && t->transport.err != ENOMEM) {
        ERR_clear_error();
        t->transport.fetches = FETCHES;
        int r = SSL_peek_ex(t->ssl, &byte, 1, &n);
        if (r != 1 && SSL_get_error(t->ssl, r) == SSL_ERROR_SSL)
            return pq_tls_judge_failure(t, r);
        t->cannot_write = true; /* what the peer sent before, and whether it ended, is still to be read */
        return PQ_E_RESET;
    }
    return pq_tls_judge_failure(t, returned);
}

int pq_tls_write(struct pq_tls *t, const void *bytes, size_t size, size_t *n)
{
    if (!t->done || size == 0 || t->notified)
        return PQ_E_USAGE;
    if (t->code < 0 || t->cannot_write)
        return t->code < 0 ? t->code : PQ_E_RESET;
    size_t done = 0;
    ERR_clear_error();
    t->transport.err = 0;
    int r = SSL_write_ex(t->ssl, bytes, size, &done);
    t->write_waits = false;
    if (r == 1) {
        *n = done;
        return 0;
    }
    int e = judge_write_failure(t, r);
    t->write_waits = e == PQ_E_WANT_WRITE;
    return e;
}

int pq_tls_close_notify(struct pq_tls *t)
{
    if (!t->done || t->write_waits) /* half a record is out: its rest must go first */
        return PQ_E_USAGE;
    if (t->code < 0 || t->cannot_write)
        return t->code < 0 ? t->code : PQ_E_RESET;
    if (t->notified)
        return 0;
    ERR_clear_error();
    t->transport.err = 0;
    int r = SSL_shutdown(t->ssl);
    if (r < 0)
        return judge_write_failure(t, r);
    t->notified = true;
    return 0;
}

size_t pq_tls_pending(const struct pq_tls *t)
{
    int n = SSL_pending(t->ssl);
    return n > 0 ? (size_t)n : (size_t)(SSL_has_pending(t->ssl) || pq_transport_waiting(&t->transport));
}

void pq_tls_hold(struct pq_tls *t, bool on) { t->held = on; }
void pq_tls_keep_buffers(struct pq_tls *t)
{
    SSL_clear_mode(t->ssl, SSL_MODE_RELEASE_BUFFERS);
    SSL_set_mode(t->ssl, SSL_MODE_ENABLE_PARTIAL_WRITE); /* only setting one tells libssl's record layer */
}

bool pq_tls_accepted(const struct pq_tls *t) { return t->accepted; }
const struct pq_tls_info *pq_tls_info(const struct pq_tls *t) { return &t->info; }
enum pq_tls_reason pq_tls_reason(const struct pq_tls *t) { return t->reason; }
const char *pq_tls_failure(const struct pq_tls *t) { return t->failure; }
