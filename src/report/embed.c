#include "report/embed.h"

#include <limits.h>
#include <openssl/comp.h>
#include <openssl/evp.h>
#include <string.h>

#include "base/cleanup.h"

/* CRC-32 of RFC 1952, section 8, by bits: files here are a few megabytes. */
static uint32_t crc32_of(struct pq_span in)
{
    uint32_t table[256], crc = 0xffffffff;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c & 1 ? 0xedb88320 ^ c >> 1 : c >> 1;
        table[i] = c;
    }
    for (size_t i = 0; i < in.len; i++)
        crc = table[(crc ^ in.at[i]) & 0xff] ^ crc >> 8;
    return ~crc;
}

static void little_endian(uint8_t *at, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(v >> (8 * i));
}

static void ctx_free(COMP_CTX **ctx) { COMP_CTX_free(*ctx); }

enum { GZIP_HEAD = 10, ZLIB_HEAD = 2, ZLIB_TAIL = 4, GZIP_TAIL = 8 };

/* What zlib makes (RFC 1950) is two bytes, the deflated data and a checksum; gzip (RFC 1952) has other ends. */
int pq_gzip(struct pq_span in, struct pq_buf *out)
{
    static const uint8_t head[GZIP_HEAD] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255};
    if (in.len > INT_MAX - (1 << 20))
        return PQ_E_TOO_LONG;
    COMP_METHOD *method = COMP_zlib_oneshot();
    DEFER(ctx_free) COMP_CTX *ctx = method ? COMP_CTX_new(method) : NULL;
    if (!ctx)
        return PQ_E_UNSUPPORTED;
    size_t most = in.len + in.len / 1000 + 1024;
    DEFER(pq_freep) uint8_t *z = malloc(most);
    if (!z)
        return PQ_E_NOMEM;
    int n = COMP_compress_block(ctx, z, (int)most, (unsigned char *)(uintptr_t)in.at, (int)in.len);
    if (n < ZLIB_HEAD + ZLIB_TAIL)
        return PQ_E_CRYPTO;
    uint8_t tail[GZIP_TAIL];
    little_endian(tail, crc32_of(in));
    little_endian(tail + 4, (uint32_t)in.len);
    size_t body = (size_t)n - ZLIB_HEAD - ZLIB_TAIL;
    TRY(pq_buf_reserve(out, GZIP_HEAD + body + GZIP_TAIL));
    TRY(pq_buf_append(out, head, sizeof head));
    TRY(pq_buf_append(out, z + ZLIB_HEAD, body));
    return pq_buf_append(out, tail, sizeof tail);
}

void pq_out_base64(struct pq_out *o, struct pq_span bytes)
{
    enum { CHUNK = 3 * 1024 };
    unsigned char text[CHUNK / 3 * 4 + 1];
    for (size_t at = 0; at < bytes.len; at += CHUNK) {
        size_t n = bytes.len - at < CHUNK ? bytes.len - at : CHUNK;
        EVP_EncodeBlock(text, bytes.at + at, (int)n);
        pq_out(o, (const char *)text);
    }
}

int pq_digest(struct pq_span bytes, struct pq_digest *out)
{
    struct pq_digest d;
    size_t len = sizeof d.at;
    if (EVP_Q_digest(NULL, "SHA256", NULL, bytes.len ? bytes.at : (const uint8_t *)"", bytes.len, d.at, &len) != 1)
        return PQ_E_CRYPTO;
    for (size_t i = 0; i < sizeof d.at; i++)
        snprintf(d.hex + 2 * i, 3, "%02x", d.at[i]);
    *out = d;
    return 0;
}
