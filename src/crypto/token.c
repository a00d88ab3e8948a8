#include "crypto/token.h"

#include <openssl/err.h>
#include <openssl/store.h>
#include <openssl/ui.h>
#include <string.h>

#include "crypto/ossl.h"
#include "crypto/token_module.h"

/* --- the PIN ------------------------------------------------------------------------------------------------------ */

struct pin {
    char text[PQ_TOKEN_PIN_MAX + 1];
};

static void pin_wipe(struct pin *p) { explicit_bzero(p, sizeof *p); }

static int read_pin(const struct pq_token_uri *uri, struct pq_span in, struct pin *out, struct pq_why *why)
{
    if (in.len && in.at[in.len - 1] == '\n')
        in.len--;
    if (in.len && in.at[in.len - 1] == '\r')
        in.len--;
    if (in.len > PQ_TOKEN_PIN_MAX || (in.len && memchr(in.at, 0, in.len)) || (in.len == 0 && uri->pin_file))
        return pq_why(why, PQ_E_CONFIG, "%s must hold a PIN of 1 to %d bytes and nothing else",
                      uri->pin_file ? uri->pin_file : "the PIN's file", PQ_TOKEN_PIN_MAX);
    if (in.len)
        memcpy(out->text, in.at, in.len);
    out->text[in.len] = 0;
    return 0;
}

/* OpenSSL's prompts, answered without a terminal. */
static int nothing_to_do(UI *ui)
{
    (void)ui;
    return 1;
}
static int write_prompt(UI *ui, UI_STRING *text)
{
    (void)ui, (void)text;
    return 1;
}
static int read_answer(UI *ui, UI_STRING *text)
{
    const struct pin *p = UI_get0_user_data(ui);
    return UI_set_result(ui, text, p->text) >= 0;
}

PQ_DEFINE_FREEP(UI_METHOD, UI_destroy_method)

static UI_METHOD *prompts(void)
{
    DEFER(UI_destroy_methodp) UI_METHOD *m = UI_create_method("pqplane PIN");
    if (!m || UI_method_set_opener(m, nothing_to_do) < 0 || UI_method_set_writer(m, write_prompt) < 0 ||
        UI_method_set_reader(m, read_answer) < 0 || UI_method_set_closer(m, nothing_to_do) < 0)
        return NULL;
    return TAKE(m);
}

/* --- the key ------------------------------------------------------------------------------------------------------ */

static void store_close(OSSL_STORE_CTX **s)
{
    if (*s)
        OSSL_STORE_close(*s);
    *s = NULL;
}

/* The keys that the store gives: none, the one, or more than one. */
static int count_keys(OSSL_STORE_CTX *store, EVP_PKEY **out)
{
    int count = 0;
    while (!OSSL_STORE_eof(store)) {
        OSSL_STORE_INFO *info = OSSL_STORE_load(store);
        EVP_PKEY *key = info ? OSSL_STORE_INFO_get1_PKEY(info) : NULL;
        OSSL_STORE_INFO_free(info);
        count += key != NULL;
        if (count == 1 && key)
            *out = key;
        else
            EVP_PKEY_free(key);
    }
    return count;
}

static int load(struct pq_crypto *c, const struct pq_token_module *m, const struct pq_token_uri *uri, struct pin *pin,
                EVP_PKEY **out, struct pq_why *why)
{
    DEFER(UI_destroy_methodp) UI_METHOD *ui = prompts();
    DEFER(EVP_PKEY_freep) EVP_PKEY *key = NULL;
    if (!ui)
        return pq_crypto_why(why, PQ_E_NOMEM, "out of memory");
    ERR_clear_error();
    DEFER(store_close)
    OSSL_STORE_CTX *store =
        OSSL_STORE_open_ex(uri->plain, pq_crypto_libctx(c), "provider=pkcs11", ui, pin, NULL, NULL, NULL);
    if (!store || !OSSL_STORE_expect(store, OSSL_STORE_INFO_PKEY))
        return pq_crypto_why(why, PQ_E_CRYPTO, "the key %s can't be looked for", uri->plain);
    int count = count_keys(store, &key);
    ERR_clear_error();
    if (count == 0)
        return pq_token_module_blame(m, uri, why);
    if (count > 1)
        return pq_why(why, PQ_E_CONFIG,
                      "more than one key fits %s: add what tells them apart, such as id=%%01 or token", uri->plain);
    *out = TAKE(key);
    return 0;
}

/* A first signature: whether the key may sign at all shows now, and the provider asks the token to keep the key in the
 * session, after which SoftHSM signs without its files. */
static int try_to_sign(struct pq_crypto *c, const struct pq_token_uri *uri, EVP_PKEY *key, struct pq_why *why)
{
    static const unsigned char text[] = "pqplane";
    unsigned char signature[8192];
    size_t len = sizeof signature;
    const char *digest = EVP_PKEY_is_a(key, "EC") || EVP_PKEY_is_a(key, "RSA") ? "SHA256" : NULL;
    DEFER(EVP_MD_CTX_freep) EVP_MD_CTX *md = EVP_MD_CTX_new();
    ERR_clear_error();
    if (!md)
        return pq_crypto_why(why, PQ_E_NOMEM, "out of memory");
    if (!EVP_DigestSignInit_ex(md, NULL, digest, pq_crypto_libctx(c), NULL, key, NULL) ||
        EVP_DigestSign(md, signature, &len, text, sizeof text) <= 0)
        return pq_crypto_why(why, PQ_E_CONFIG, "the key %s does not sign", uri->plain);
    ERR_clear_error();
    return 0;
}

static int find(struct pq_crypto *c, const char *module, const struct pq_token_uri *uri, struct pin *pin,
                EVP_PKEY **out, struct pq_why *why)
{
    DEFER(pq_token_module_close) struct pq_token_module m = {0};
    TRY(pq_token_module_open(module, &m, why));
    int e = pq_crypto_load_token(c, module, why);
    if (e < 0) {
        TRY(pq_token_module_try(&m, module, why));
        return e;
    }
    TRY(pq_token_module_ready(&m, uri, pin->text[0] != 0, why));
    return load(c, &m, uri, pin, out, why);
}

static bool belongs(EVP_PKEY *key, const X509 *certificate)
{
    bool fits = !certificate || X509_check_private_key(certificate, key) == 1;
    ERR_clear_error();
    return fits;
}

int pq_token_key(struct pq_crypto *c, const char *module, const struct pq_token_uri *uri, struct pq_span pin_file,
                 const X509 *certificate, EVP_PKEY **out, struct pq_why *why)
{
    DEFER(pin_wipe) struct pin pin;
    if (!module)
        return pq_why(why, PQ_E_CONFIG, "the key %s is in a token: name the token's module with pkcs11: {module: PATH}",
                      uri->plain);
    EVP_PKEY *kept = pq_crypto_kept_key(c, uri->plain);
    if (kept && belongs(kept, certificate)) {
        if (!EVP_PKEY_up_ref(kept))
            return pq_crypto_why(why, PQ_E_NOMEM, "out of memory");
        *out = kept;
        return 0;
    }
    if (pq_crypto_is_sealed(c))
        return pq_why(why, PQ_E_UNSUPPORTED,
                      "the key %s is new to this process, which is contained: another can find it", uri->plain);
    TRY(read_pin(uri, pin_file, &pin, why));
    DEFER(EVP_PKEY_freep) EVP_PKEY *key = NULL;
    TRY(find(c, module, uri, &pin, &key, why));
    TRY(try_to_sign(c, uri, key, why));
    TRY(pq_crypto_keep_key(c, uri->plain, key, why));
    *out = TAKE(key);
    return 0;
}
