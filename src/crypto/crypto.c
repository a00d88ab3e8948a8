#include "crypto/crypto.h"

#include <errno.h>
#include <limits.h>
#include <openssl/conf.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/provider.h>
#include <openssl/ssl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { PROVIDERS_MAX = 16, KEPT_KEYS_MAX = 64 };

struct pq_crypto {
    OSSL_LIB_CTX *lib;
    OSSL_PROVIDER *providers[PROVIDERS_MAX];
    size_t count;
    char *token_module; /* of the pkcs11 provider; NULL: not loaded */
    struct {
        char *name;
        EVP_PKEY *key;
    } kept[KEPT_KEYS_MAX];
    size_t kept_count;
    bool sealed;
};

void pq_crypto_free(struct pq_crypto *c)
{
    if (!c)
        return;
    while (c->kept_count) {
        free(c->kept[--c->kept_count].name);
        EVP_PKEY_free(c->kept[c->kept_count].key);
    }
    free(c->token_module);
    while (c->count)
        OSSL_PROVIDER_unload(c->providers[--c->count]);
    OSSL_LIB_CTX_free(c->lib);
    free(c);
}

static int load_with(struct pq_crypto *c, const char *name, OSSL_PARAM *parameters, struct pq_why *why)
{
    if (c->count == PROVIDERS_MAX)
        return pq_why(why, PQ_E_LIMIT, "provider %s: at most %d providers can be loaded", name, PROVIDERS_MAX);
    ERR_clear_error();
    OSSL_PROVIDER *p = parameters ? OSSL_PROVIDER_load_ex(c->lib, name, parameters) : OSSL_PROVIDER_load(c->lib, name);
    if (!p)
        return pq_crypto_why(why, PQ_E_CRYPTO, "the OpenSSL provider %s can't be loaded", name);
    c->providers[c->count++] = p;
    return 0;
}

static int load(struct pq_crypto *c, const char *name, struct pq_why *why) { return load_with(c, name, NULL, why); }

/* A file that OPENSSL_CONF names must be there; the built-in default may be missing. */
static int configure(struct pq_crypto *c, struct pq_why *why)
{
    const char *named = secure_getenv("OPENSSL_CONF");
    unsigned long flags = CONF_MFLAGS_DEFAULT_SECTION | (named && *named ? 0 : CONF_MFLAGS_IGNORE_MISSING_FILE);
    if (named && !*named)
        return 0;
    ERR_clear_error();
    if (CONF_modules_load_file_ex(c->lib, NULL, NULL, flags) <= 0)
        return pq_crypto_why(why, PQ_E_CRYPTO, "OpenSSL's configuration %s%scan't be used", named ? named : "",
                             named ? " (from OPENSSL_CONF) " : "");
    return 0;
}

int pq_crypto_new(struct pq_crypto **out, struct pq_why *why)
{
    /* What OpenSSL sets up once in a process it never tries again: better that this fails here than in a running
     * service. Its configuration is read below, into this library context; "ssl_conf" in it needs libssl's module. */
    const uint64_t once =
        OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_LOAD_SSL_STRINGS | OPENSSL_INIT_LOAD_CRYPTO_STRINGS;
    ERR_clear_error();
    if (!OPENSSL_init_ssl(once, NULL) || SSL_get_ex_data_X509_STORE_CTX_idx() < 0)
        return pq_crypto_why(why, PQ_E_CRYPTO, "OpenSSL can't be initialised");
    DEFER(pq_crypto_freep) struct pq_crypto *c = calloc(1, sizeof *c);
    if (!c)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    c->lib = OSSL_LIB_CTX_new();
    if (!c->lib)
        return pq_crypto_why(why, PQ_E_CRYPTO, "OpenSSL's library context can't be made");
    TRY(configure(c, why));
    /* Loading any provider ends OpenSSL's own fallback to the default one. FIPS is a choice of the configuration. */
    if (!OSSL_PROVIDER_available(c->lib, "fips"))
        TRY(load(c, "default", why));
    ERR_clear_error();
    *out = TAKE(c);
    return 0;
}

int pq_crypto_load(struct pq_crypto *c, const char *provider, struct pq_why *why)
{
    char path[PATH_MAX];
    if (!strchr(provider, '/'))
        return load(c, provider, why);
    /* OpenSSL takes a relative path as one below its own modules folder. */
    if (!realpath(provider, path)) {
        int err = errno;
        return pq_why(why, pq_error_from_errno(err), "the OpenSSL provider %s can't be loaded: %s", provider,
                      strerror(err));
    }
    return load(c, path, why);
}

static void set(OSSL_PARAM *p, const char *name, const char *value)
{
    *p = OSSL_PARAM_construct_utf8_string(name, (char *)(uintptr_t)value, 0);
}

/* Beside what the configuration asks for, such as "fips=yes". */
static int keep_to_own(struct pq_crypto *c, struct pq_why *why)
{
    static const char own[] = "?provider!=pkcs11";
    char *before = EVP_get1_default_properties(c->lib), *both = NULL;
    bool any = before && *before;
    bool ok = asprintf(&both, "%s%s%s", any ? before : "", any ? "," : "", own) >= 0;
    ok = ok && EVP_set_default_properties(c->lib, both);
    OPENSSL_free(before);
    free(both);
    return ok ? 0 : pq_crypto_why(why, PQ_E_CRYPTO, "OpenSSL can't be told to keep to its own algorithms");
}

/* The provider lists what the token can do only once it has its module: then "early". It asks for the PIN once and
 * keeps it, for it may have to log in again; and its own implementations of what OpenSSL does itself are not wanted. */
int pq_crypto_load_token(struct pq_crypto *c, const char *module, struct pq_why *why)
{
    OSSL_PARAM p[4] = {OSSL_PARAM_END, OSSL_PARAM_END, OSSL_PARAM_END, OSSL_PARAM_END};
    if (c->token_module)
        return strcmp(c->token_module, module) == 0
                   ? 0
                   : pq_why(why, PQ_E_CRYPTO, "the PKCS#11 module %s is in use, so %s needs a restart", c->token_module,
                            module);
    set(&p[0], "pkcs11-module-path", module);
    set(&p[1], "pkcs11-module-cache-pins", "cache");
    set(&p[2], "pkcs11-module-load-behavior", "early");
    char *copy = strdup(module);
    if (!copy)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    int e = load_with(c, "pkcs11", p, why);
    if (e < 0) {
        free(copy);
        return e;
    }
    c->token_module = copy;
    return keep_to_own(c, why);
}

EVP_PKEY *pq_crypto_kept_key(const struct pq_crypto *c, const char *name)
{
    for (size_t i = 0; i < c->kept_count; i++)
        if (strcmp(c->kept[i].name, name) == 0)
            return c->kept[i].key;
    return NULL;
}

int pq_crypto_keep_key(struct pq_crypto *c, const char *name, EVP_PKEY *key, struct pq_why *why)
{
    size_t i = 0;
    while (i < c->kept_count && strcmp(c->kept[i].name, name) != 0)
        i++;
    if (i == KEPT_KEYS_MAX)
        return pq_why(why, PQ_E_LIMIT, "at most %d keys of tokens can be used", KEPT_KEYS_MAX);
    char *copy = i == c->kept_count ? strdup(name) : c->kept[i].name;
    if (!copy)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    if (!EVP_PKEY_up_ref(key)) {
        if (i == c->kept_count)
            free(copy);
        return pq_crypto_why(why, PQ_E_NOMEM, "out of memory");
    }
    EVP_PKEY_free(c->kept[i].key);
    c->kept[i].name = copy;
    c->kept[i].key = key;
    c->kept_count += i == c->kept_count;
    return 0;
}

void pq_crypto_seal(struct pq_crypto *c) { c->sealed = true; }
bool pq_crypto_is_sealed(const struct pq_crypto *c) { return c->sealed; }

OSSL_LIB_CTX *pq_crypto_libctx(const struct pq_crypto *c) { return c->lib; }

int pq_crypto_why(struct pq_why *why, int code, const char *context, ...)
{
    char before[512], reason[384] = "no reason given";
    bool first = true;
    va_list args;
    va_start(args, context);
    vsnprintf(before, sizeof before, context, args);
    va_end(args);
    const char *data;
    int flags;
    for (unsigned long e; (e = ERR_get_error_all(NULL, NULL, NULL, &data, &flags)); first = false) {
        const char *text = ERR_reason_error_string(e);
        if (ERR_GET_REASON(e) == ERR_R_MALLOC_FAILURE)
            code = PQ_E_NOMEM;
        if (!first)
            continue;
        if (data && *data && (flags & ERR_TXT_STRING))
            snprintf(reason, sizeof reason, "%s (%s)", text ? text : "unknown error", data);
        else
            snprintf(reason, sizeof reason, "%s", text ? text : "unknown error");
    }
    return pq_why(why, code, "%s: %s", before, code == PQ_E_NOMEM ? "out of memory" : reason);
}
