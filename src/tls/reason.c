#include "tls/internal.h"

#include <errno.h>
#include <openssl/err.h>
#include <stdarg.h>
#include <string.h>

static const char *const labels[] = {
#define X(name, label) label,
    PQ_TLS_REASONS(X)
#undef X
};

const char *pq_tls_reason_label(enum pq_tls_reason r)
{
    return (unsigned)r < PQ_TLS_REASON_COUNT ? labels[r] : "unknown";
}

int pq_tls_blame(struct pq_tls *t, int code, enum pq_tls_reason reason, const char *format, ...)
{
    if (t->code < 0)
        return t->code;
    t->code = code;
    t->reason = reason;
    va_list args;
    va_start(args, format);
    vsnprintf(t->failure, sizeof t->failure, format, args);
    va_end(args);
    return code;
}

/* --- alerts of the peer (RFC 8446, section 6) ----------------------------------------------------------------------
 */

static const struct {
    int alert, code;
    enum pq_tls_reason reason;
    const char *advice;
} alerts[] = {
    {SSL_AD_BAD_CERTIFICATE, PQ_E_AUTH, PQ_TLS_PEER_ALERT, "it does not accept our certificate: see its log"},
    {SSL_AD_UNSUPPORTED_CERTIFICATE, PQ_E_AUTH, PQ_TLS_PEER_ALERT,
     "it can't use our certificate's kind: compare both policies"},
    {SSL_AD_CERTIFICATE_REVOKED, PQ_E_AUTH, PQ_TLS_PEER_ALERT, "our certificate is revoked: issue another"},
    {SSL_AD_CERTIFICATE_EXPIRED, PQ_E_AUTH, PQ_TLS_PEER_ALERT,
     "it takes our certificate for expired or not yet valid: renew it, compare the clocks"},
    {SSL_AD_CERTIFICATE_UNKNOWN, PQ_E_AUTH, PQ_TLS_PEER_ALERT, "it does not accept our certificate: see its log"},
    {SSL_AD_UNKNOWN_CA, PQ_E_AUTH, PQ_TLS_PEER_ALERT,
     "it does not trust our certificate's authority: add our root to its CA file"},
    {TLS13_AD_CERTIFICATE_REQUIRED, PQ_E_AUTH, PQ_TLS_PEER_ALERT,
     "it demands a certificate and we showed none: configure one whose key fits its signature algorithms"},
    {SSL_AD_ACCESS_DENIED, PQ_E_AUTH, PQ_TLS_PEER_ALERT, "it does not admit us: see its log"},
    {SSL_AD_DECRYPT_ERROR, PQ_E_AUTH, PQ_TLS_PEER_ALERT, "a signature or Finished did not verify there"},
    {SSL_AD_HANDSHAKE_FAILURE, PQ_E_PROTOCOL, PQ_TLS_PEER_ALERT,
     "no group, signature algorithm or cipher suite suits both, or its policy refuses: compare both policies"},
    {SSL_AD_INSUFFICIENT_SECURITY, PQ_E_PROTOCOL, PQ_TLS_PEER_ALERT,
     "it demands stronger algorithms: compare both policies"},
    {SSL_AD_PROTOCOL_VERSION, PQ_E_PROTOCOL, PQ_TLS_VERSION,
     "it does not speak TLS 1.3, the only version spoken here: enable TLS 1.3 there"},
    {SSL_AD_NO_APPLICATION_PROTOCOL, PQ_E_PROTOCOL, PQ_TLS_ALPN, "it does not speak our application protocol"},
    {SSL_AD_INTERNAL_ERROR, PQ_E_PROTOCOL, PQ_TLS_PEER_ALERT, "it failed itself: see its log"},
};

/* OpenSSL names only the alerts that TLS 1.2 has. */
static const char *alert_text(int alert)
{
    switch (alert) {
    case TLS13_AD_MISSING_EXTENSION:
        return "missing extension";
    case TLS13_AD_CERTIFICATE_REQUIRED:
        return "certificate required";
    case SSL_AD_NO_APPLICATION_PROTOCOL:
        return "no application protocol";
    default:
        return SSL_alert_desc_string_long(alert);
    }
}

static int blame_alert(struct pq_tls *t, int alert)
{
    const char *text = alert_text(alert);
    size_t i = 0;
    while (i < PQ_COUNT(alerts) && alerts[i].alert != alert)
        i++;
    bool known = i < PQ_COUNT(alerts);
    return pq_tls_blame(t, known ? alerts[i].code : PQ_E_PROTOCOL, known ? alerts[i].reason : PQ_TLS_PEER_ALERT,
                        "the peer refused with the alert \"%s\" (%d): %s", text, alert,
                        known ? alerts[i].advice : "see its log");
}

/* --- failures found here -------------------------------------------------------------------------------------------
 */

enum about { ABOUT_NOTHING, ABOUT_GROUPS, ABOUT_SIGALGS, ABOUT_CAP };

static const char old_version[] = "the peer does not speak TLS 1.3, the only version spoken here: enable TLS 1.3 there";
static const char no_group[] = "no key-exchange group suits both: give the peer one of";
static const char no_sigalg[] = "no signature algorithm suits both: give the peer one of";

static const struct {
    int reason;
    enum pq_tls_reason is;
    int code;
    enum about about;
    const char *text;
} rows[] = {
    {SSL_R_UNSUPPORTED_PROTOCOL, PQ_TLS_VERSION, PQ_E_PROTOCOL, ABOUT_NOTHING, old_version},
    {SSL_R_VERSION_TOO_LOW, PQ_TLS_VERSION, PQ_E_PROTOCOL, ABOUT_NOTHING, old_version},
    {SSL_R_WRONG_SSL_VERSION, PQ_TLS_VERSION, PQ_E_PROTOCOL, ABOUT_NOTHING, old_version},
    {SSL_R_UNKNOWN_PROTOCOL, PQ_TLS_VERSION, PQ_E_PROTOCOL, ABOUT_NOTHING, old_version},
    {SSL_R_NO_SUITABLE_KEY_SHARE, PQ_TLS_NO_SHARED_GROUP, PQ_E_PROTOCOL, ABOUT_GROUPS, no_group},
    {SSL_R_NO_SUITABLE_GROUPS, PQ_TLS_NO_SHARED_GROUP, PQ_E_PROTOCOL, ABOUT_GROUPS, no_group},
    {SSL_R_NO_SHARED_GROUPS, PQ_TLS_NO_SHARED_GROUP, PQ_E_PROTOCOL, ABOUT_GROUPS, no_group},
    {SSL_R_BAD_KEY_SHARE, PQ_TLS_PROTOCOL, PQ_E_PROTOCOL, ABOUT_NOTHING, "the peer sent an unusable key share"},
    {SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM, PQ_TLS_NO_SHARED_SIGALG, PQ_E_PROTOCOL, ABOUT_SIGALGS, no_sigalg},
    {SSL_R_NO_SHARED_SIGNATURE_ALGORITHMS, PQ_TLS_NO_SHARED_SIGALG, PQ_E_PROTOCOL, ABOUT_SIGALGS, no_sigalg},
    {SSL_R_WRONG_SIGNATURE_TYPE, PQ_TLS_NO_SHARED_SIGALG, PQ_E_PROTOCOL, ABOUT_SIGALGS, no_sigalg},
    {SSL_R_NO_SHARED_CIPHER, PQ_TLS_NO_SHARED_CIPHER, PQ_E_PROTOCOL, ABOUT_NOTHING,
     "no cipher suite suits both: compare both policies' ciphersuites"},
    {SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE, PQ_TLS_NO_CERTIFICATE, PQ_E_AUTH, ABOUT_SIGALGS,
     "the peer showed no certificate: configure one there whose key fits one of"},
    {SSL_R_EXCESSIVE_MESSAGE_SIZE, PQ_TLS_CERTIFICATES_TOO_LONG, PQ_E_PROTOCOL, ABOUT_CAP,
     "the peer sent more certificates than the cap allows: shorten its chain, or raise certificates_max in the "
     "configuration's tls, now"},
    {SSL_R_BAD_SIGNATURE, PQ_TLS_BAD_CERTIFICATE, PQ_E_AUTH, ABOUT_NOTHING,
     "the peer's signature of the handshake is wrong: it does not hold its certificate's key"},
    {SSL_R_NO_APPLICATION_PROTOCOL, PQ_TLS_PROTOCOL, PQ_E_PROTOCOL, ABOUT_NOTHING,
     "the peer offers another application protocol than ours"},
};

static int blame_row(struct pq_tls *t, size_t i)
{
    char cap[32];
    snprintf(cap, sizeof cap, "%lld bytes", (long long)t->context->list_cap);
    const char *list = rows[i].about == ABOUT_GROUPS    ? t->context->groups
                       : rows[i].about == ABOUT_SIGALGS ? t->context->sigalgs
                       : rows[i].about == ABOUT_CAP     ? cap
                                                        : "";
    /* Before anything was agreed on, no certificate can have come. */
    if (rows[i].is == PQ_TLS_CERTIFICATES_TOO_LONG && !*pq_tls_group(t->ssl))
        return pq_tls_blame(t, PQ_E_PROTOCOL, PQ_TLS_PROTOCOL,
                            "the peer sent a message that is longer than TLS allows");
    return pq_tls_blame(t, rows[i].code, rows[i].is, "%s%s%.300s", rows[i].text, *list ? " " : "", list);
}

static int blame_reset(struct pq_tls *t)
{
    if (t->transport.err == ETIMEDOUT)
        return pq_tls_blame(t, PQ_E_TIMEOUT, PQ_TLS_TIMEOUT, "the peer no longer answers");
    return pq_tls_blame(t, PQ_E_RESET, PQ_TLS_RESET, "the peer %s the connection %s%s%s",
                        t->transport.eof ? "closed" : "reset",
                        t->done ? "without saying that its data was complete" : "during the handshake: see its log",
                        t->transport.err ? ": " : "", t->transport.err ? strerror(t->transport.err) : "");
}

static int blame_not_tls(struct pq_tls *t)
{
    return pq_tls_blame(t, PQ_E_PROTOCOL, PQ_TLS_NOT_TLS,
                        "the peer does not speak TLS: check its port, and that TLS is switched on there");
}

static int blame_queue(struct pq_tls *t)
{
    unsigned long first = ERR_peek_error();
    bool nomem = t->transport.err == ENOMEM, eof = false, peer = false;
    size_t row = PQ_COUNT(rows);
    int alert = -1;
    for (unsigned long e; (e = ERR_get_error());) {
        int reason = ERR_GET_REASON(e);
        nomem |= reason == ERR_R_MALLOC_FAILURE;
        if (ERR_GET_LIB(e) != ERR_LIB_SSL)
            continue;
        eof |= reason == SSL_R_UNEXPECTED_EOF_WHILE_READING;
        peer |=
            !ERR_COMMON_ERROR(e); /* libssl's own reasons are about what came; common ones about what failed below */
        if (alert < 0 && reason >= SSL_AD_REASON_OFFSET && reason < SSL_AD_REASON_OFFSET + 256)
            alert = reason - SSL_AD_REASON_OFFSET;
        for (size_t i = 0; row == PQ_COUNT(rows) && i < PQ_COUNT(rows); i++)
            if (rows[i].reason == reason)
                row = i;
    }
    if (nomem)
        return pq_tls_blame(t, PQ_E_NOMEM, PQ_TLS_INTERNAL, "out of memory");
    if (!t->done && pq_transport_not_tls(&t->transport))
        return blame_not_tls(t);
    if (alert >= 0)
        return blame_alert(t, alert);
    if (eof)
        return blame_reset(t);
    if (row < PQ_COUNT(rows))
        return blame_row(t, row);
    const char *text = first ? ERR_reason_error_string(first) : NULL;
    if (!peer)
        return pq_tls_blame(t, PQ_E_CRYPTO, PQ_TLS_INTERNAL, "the cryptographic library failed: %s",
                            text ? text : "no reason given");
    return pq_tls_blame(t, PQ_E_PROTOCOL, PQ_TLS_PROTOCOL, "the peer broke the protocol: %s",
                        text ? text : "no reason given");
}

int pq_tls_judge_failure(struct pq_tls *t, int returned)
{
    switch (SSL_get_error(t->ssl, returned)) {
    case SSL_ERROR_WANT_READ: /* plain text may be too short to look like a record, and its sender waits for an answer
                               */
        return !t->done && pq_transport_not_tls(&t->transport) ? blame_not_tls(t) : PQ_E_WANT_READ;
    case SSL_ERROR_WANT_WRITE:
        return PQ_E_WANT_WRITE;
    case SSL_ERROR_ZERO_RETURN:
        if (t->done)
            return PQ_E_CLOSED;
        t->transport.eof = true;
        return blame_reset(t);
    case SSL_ERROR_SYSCALL:
        if (t->transport.err == ENOMEM)
            return pq_tls_blame(t, PQ_E_NOMEM, PQ_TLS_INTERNAL, "out of memory");
        if (!t->transport.err && !t->transport.eof)
            return pq_tls_blame(t, PQ_E_CRYPTO, PQ_TLS_INTERNAL, "the cryptographic library failed and gave no reason");
        return !t->done && pq_transport_not_tls(&t->transport) ? blame_not_tls(t) : blame_reset(t);
    default:
        return blame_queue(t);
    }
}
