#include <string.h>

#include "base/bytes.h"
#include "crypto/kind.h"
#include "tls/internal.h"

enum {
    LIST_DEFAULT = 24 << 10, /* three certificates of ML-DSA-87, so that a peer costs 256 KiB at most */
    LIST_UNKNOWN = 256 << 10,
    LIST_MAX = 16 << 20,
    SIGNATURE_DEFAULT = 4627, /* bytes: ML-DSA-87 */
    LONG_SIGNATURES = 3,      /* of an authority with longer ones, in one list */
};

/* A scheme that is not ours may have signatures and keys of any size. */
static bool all_known(const char *sigalgs)
{
    char name[128];
    for (const char *at = sigalgs; *at;) {
        size_t len = strcspn(at, ":");
        size_t skip = *at == '?';
        snprintf(name, sizeof name, "%.*s", (int)(len - skip), at + skip);
        if (!strchr(name, '+') && (pq_kind_of_signature(name) == PQ_KIND_UNKNOWN || pq_kind_experimental(name)))
            return false;
        at += len + (at[len] != 0);
    }
    return true;
}

/* SLH-DSA has no scheme for handshakes, so that only the anchors tell of it. */
static int64_t default_list(const struct pq_tls_context *c)
{
    int64_t longest = 0;
    for (size_t i = 0; i < c->trust.anchor_count; i++) {
        const EVP_PKEY *key = X509_get0_pubkey(c->trust.anchors[i].x);
        int64_t size = key ? EVP_PKEY_get_size(key) : 0;
        longest = size > longest ? size : longest;
    }
    if (!all_known(c->sigalgs))
        return LIST_UNKNOWN;
    return longest > SIGNATURE_DEFAULT ? LIST_DEFAULT + LONG_SIGNATURES * longest : LIST_DEFAULT;
}

int pq_tls_set_list_cap(struct pq_tls_context *c, int64_t wanted, struct pq_why *why)
{
    if (wanted < 0 || wanted > LIST_MAX)
        return pq_why(why, PQ_E_CONFIG, "the cap of a certificate list must be within 1 and %d bytes", LIST_MAX);
    c->list_cap = wanted ? wanted : default_list(c);
    SSL_CTX_set_max_cert_list(c->ssl, (long)c->list_cap);
    return 0;
}

/* RFC 8446, section 4.4.2. */
int pq_tls_count_certificates(struct pq_span message, size_t *out)
{
    struct pq_reader r = pq_reader(message);
    struct pq_span header, context, list, part;
    size_t count = 0;
    TRY(pq_read_bytes(&r, 4, &header));
    TRY(pq_read_vector(&r, 1, 0xff, &context));
    TRY(pq_read_vector(&r, 3, 0xffffff, &list));
    for (r = pq_reader(list); pq_reader_left(&r); count++) {
        TRY(pq_read_vector(&r, 3, 0xffffff, &part));
        TRY(pq_read_vector(&r, 2, 0xffff, &part));
    }
    *out = count;
    return 0;
}

/* Behind the header stands a length, of whichever message; the largest fits none. */
void pq_tls_spoil(const void *message, size_t len)
{
    enum { HEADER = 4, LENGTH = 2 };
    if (len >= HEADER + LENGTH)
        memset((uint8_t *)(uintptr_t)message + HEADER, 0xff, LENGTH);
}

void pq_tls_judge_list(struct pq_tls *t, const void *message, size_t len)
{
    size_t count = 0;
    if (pq_tls_count_certificates(pq_span(message, len), &count) < 0 || count <= PQ_TLS_PATH_CERTIFICATES_MAX)
        return;
    (void)pq_tls_blame(t, PQ_E_PROTOCOL, PQ_TLS_CERTIFICATES_TOO_LONG,
                       "the peer sent %zu certificates, and a path has %d at most: shorten its chain", count,
                       PQ_TLS_PATH_CERTIFICATES_MAX);
    pq_tls_spoil(message, len);
}
