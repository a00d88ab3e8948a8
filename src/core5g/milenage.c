#include "core5g/milenage.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

#include "base/cleanup.h"

enum { BLOCK = 16 };

static void cipher_freep(EVP_CIPHER_CTX **c) { EVP_CIPHER_CTX_free(*c); }

static EVP_CIPHER_CTX *cipher_new(const uint8_t k[BLOCK])
{
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    if (c && EVP_EncryptInit_ex2(c, EVP_aes_128_ecb(), k, NULL, NULL) == 1 && EVP_CIPHER_CTX_set_padding(c, 0) == 1)
        return c;
    EVP_CIPHER_CTX_free(c);
    return NULL;
}

static int encrypt(EVP_CIPHER_CTX *c, const uint8_t in[BLOCK], uint8_t out[BLOCK])
{
    int n = 0;
    return EVP_EncryptUpdate(c, out, &n, in, BLOCK) == 1 && n == BLOCK ? 0 : PQ_E_CRYPTO;
}

static void exclusive_or(uint8_t out[BLOCK], const uint8_t a[BLOCK], const uint8_t b[BLOCK])
{
    for (int i = 0; i < BLOCK; i++)
        out[i] = a[i] ^ b[i];
}

/* 4.1: E_K(x ^ rot(y, r) ^ c) ^ OPc; x is zero for OUT2 to OUT5. Each r is a whole number of bytes, each c one low
 * byte. */
static int stage(EVP_CIPHER_CTX *cipher, const uint8_t opc[BLOCK], const uint8_t x[BLOCK], const uint8_t y[BLOCK],
                 int r, uint8_t c, uint8_t out[BLOCK])
{
    uint8_t in[BLOCK];
    for (int i = 0; i < BLOCK; i++)
        in[i] = x[i] ^ y[(i + r / 8) % BLOCK];
    in[BLOCK - 1] ^= c;
    TRY(encrypt(cipher, in, out));
    exclusive_or(out, out, opc);
    OPENSSL_cleanse(in, sizeof in);
    return 0;
}

static int outputs(EVP_CIPHER_CTX *cipher, const uint8_t opc[BLOCK], const uint8_t rand[BLOCK],
                   const uint8_t in1[BLOCK], uint8_t out[5][BLOCK])
{
    static const uint8_t zero[BLOCK];
    uint8_t temp[BLOCK], y[BLOCK];
    exclusive_or(y, rand, opc);
    TRY(encrypt(cipher, y, temp));
    exclusive_or(y, in1, opc);
    TRY(stage(cipher, opc, temp, y, 64, 0, out[0]));
    exclusive_or(y, temp, opc);
    TRY(stage(cipher, opc, zero, y, 0, 1, out[1]));
    TRY(stage(cipher, opc, zero, y, 32, 2, out[2]));
    TRY(stage(cipher, opc, zero, y, 64, 4, out[3]));
    TRY(stage(cipher, opc, zero, y, 96, 8, out[4]));
    OPENSSL_cleanse(temp, sizeof temp);
    OPENSSL_cleanse(y, sizeof y);
    return 0;
}

int pq_milenage(const uint8_t k[16], const uint8_t opc[16], const uint8_t rand[16], const uint8_t sqn[6],
                const uint8_t amf[2], struct pq_milenage *out)
{
    DEFER(cipher_freep) EVP_CIPHER_CTX *cipher = cipher_new(k);
    uint8_t in1[BLOCK], o[5][BLOCK];
    if (!cipher)
        return PQ_E_CRYPTO;
    for (int i = 0; i < 2; i++) {
        memcpy(in1 + 8 * i, sqn, 6);
        memcpy(in1 + 8 * i + 6, amf, 2);
    }
    int e = outputs(cipher, opc, rand, in1, o);
    if (e == 0) {
        memcpy(out->mac_a, o[0], 8);
        memcpy(out->mac_s, o[0] + 8, 8);
        memcpy(out->res, o[1] + 8, 8);
        memcpy(out->ak, o[1], 6);
        memcpy(out->ck, o[2], 16);
        memcpy(out->ik, o[3], 16);
        memcpy(out->ak_star, o[4], 6);
    }
    OPENSSL_cleanse(o, sizeof o);
    return e;
}

int pq_milenage_opc(const uint8_t k[16], const uint8_t op[16], uint8_t opc[16])
{
    DEFER(cipher_freep) EVP_CIPHER_CTX *cipher = cipher_new(k);
    uint8_t out[BLOCK];
    if (!cipher)
        return PQ_E_CRYPTO;
    TRY(encrypt(cipher, op, out));
    exclusive_or(opc, out, op);
    OPENSSL_cleanse(out, sizeof out);
    return 0;
}
