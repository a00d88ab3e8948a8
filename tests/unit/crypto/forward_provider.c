/* A provider that brings no algorithm of its own: it announces X25519 and Ed25519, which others implement, to TLS under
 * other names and private code points. What lists algorithms must find both without knowing them. */
#include <openssl/core_dispatch.h>
#include <openssl/core_names.h>
#include <openssl/params.h>
#include <string.h>

static unsigned int group_id = 0xfe01, scheme_id = 0xfe02, bits = 128, is_kem = 0;
static int tls13 = 0x0304, unbounded = 0, never = -1;

#define TEXT(key, text) OSSL_PARAM_utf8_string(key, (char *)(text), sizeof(text))

static const OSSL_PARAM group[] = {
    TEXT(OSSL_CAPABILITY_TLS_GROUP_NAME, "x25519_again"),
    TEXT(OSSL_CAPABILITY_TLS_GROUP_NAME_INTERNAL, "X25519"),
    TEXT(OSSL_CAPABILITY_TLS_GROUP_ALG, "X25519"),
    OSSL_PARAM_uint(OSSL_CAPABILITY_TLS_GROUP_ID, &group_id),
    OSSL_PARAM_uint(OSSL_CAPABILITY_TLS_GROUP_SECURITY_BITS, &bits),
    OSSL_PARAM_uint(OSSL_CAPABILITY_TLS_GROUP_IS_KEM, &is_kem),
    OSSL_PARAM_int(OSSL_CAPABILITY_TLS_GROUP_MIN_TLS, &tls13),
    OSSL_PARAM_int(OSSL_CAPABILITY_TLS_GROUP_MAX_TLS, &unbounded),
    OSSL_PARAM_int(OSSL_CAPABILITY_TLS_GROUP_MIN_DTLS, &never),
    OSSL_PARAM_int(OSSL_CAPABILITY_TLS_GROUP_MAX_DTLS, &never),
    OSSL_PARAM_END,
};

static const OSSL_PARAM scheme[] = {
    TEXT(OSSL_CAPABILITY_TLS_SIGALG_IANA_NAME, "ed25519_again"),
    TEXT(OSSL_CAPABILITY_TLS_SIGALG_NAME, "ed25519_again"),
    TEXT(OSSL_CAPABILITY_TLS_SIGALG_OID, "1.3.101.112"),
    TEXT(OSSL_CAPABILITY_TLS_SIGALG_SIG_NAME, "ED25519"),
    TEXT(OSSL_CAPABILITY_TLS_SIGALG_KEYTYPE, "ED25519"),
    OSSL_PARAM_uint(OSSL_CAPABILITY_TLS_SIGALG_CODE_POINT, &scheme_id),
    OSSL_PARAM_uint(OSSL_CAPABILITY_TLS_SIGALG_SECURITY_BITS, &bits),
    OSSL_PARAM_int(OSSL_CAPABILITY_TLS_SIGALG_MIN_TLS, &tls13),
    OSSL_PARAM_int(OSSL_CAPABILITY_TLS_SIGALG_MAX_TLS, &unbounded),
    OSSL_PARAM_int(OSSL_CAPABILITY_TLS_SIGALG_MIN_DTLS, &never),
    OSSL_PARAM_int(OSSL_CAPABILITY_TLS_SIGALG_MAX_DTLS, &never),
    OSSL_PARAM_END,
};

static int capabilities(void *context, const char *capability, OSSL_CALLBACK *tell, void *arg)
{
    (void)context;
    if (strcmp(capability, "TLS-GROUP") == 0)
        return tell(group, arg);
    if (strcmp(capability, "TLS-SIGALG") == 0)
        return tell(scheme, arg);
    return 0;
}

static const OSSL_DISPATCH functions[] = {
    {OSSL_FUNC_PROVIDER_GET_CAPABILITIES, (void (*)(void))capabilities},
    OSSL_DISPATCH_END,
};

OSSL_provider_init_fn OSSL_provider_init;

int OSSL_provider_init(const OSSL_CORE_HANDLE *handle, const OSSL_DISPATCH *in, const OSSL_DISPATCH **out,
                       void **context)
{
    (void)in;
    *out = functions;
    *context = (void *)handle;
    return 1;
}
