/* URIs of keys in tokens. The tokens themselves are tested with the sidecar that uses them. */
#include "crypto/token.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../alloc.h"

static void which_keys_are_uris(void **state)
{
    (void)state;
    assert_true(pq_token_is_uri("pkcs11:object=a"));
    assert_false(pq_token_is_uri("/etc/pkcs11:key"));
    assert_false(pq_token_is_uri("pkcs11"));
}

static const struct {
    const char *uri, *plain, *pin_file, *token, *serial;
} good[] = {
    {"pkcs11:token=lab;object=leaf", "pkcs11:token=lab;object=leaf;type=private", "", "lab", ""},
    {"pkcs11:token=my%20lab;id=%00%01;type=private?pin-source=file:/run/a%20pin",
     "pkcs11:token=my%20lab;id=%00%01;type=private", "/run/a pin", "my lab", ""},
    {"pkcs11:serial=1%3b2;object=a;slot-id=3?pin-source=/pin", "pkcs11:serial=1%3b2;object=a;slot-id=3;type=private",
     "/pin", "", "1;2"},
    {"pkcs11:object=a?pin-source=file:///run/pin", "pkcs11:object=a;type=private", "/run/pin", "", ""},
    {"pkcs11:object=", "pkcs11:object=;type=private", "", "", ""},
    {"pkcs11:object=a?", "pkcs11:object=a;type=private", "", "", ""},
    {"pkcs11:token=a;token=b;object=c?pin-source=/x&pin-source=/y", "pkcs11:token=a;token=b;object=c;type=private",
     "/y", "b", ""},
};

static const struct {
    const char *uri, *says;
} bad[] = {
    {"file:/a", "it does not begin with pkcs11:"},
    {"pkcs11:", "it names no key: add object=LABEL or id=%01"},
    {"pkcs11:token=lab", "it names no key"},
    {"pkcs11:object=a;type=cert", "type=cert: it must be private"},
    {"pkcs11:object", "\"object\" is no attribute (NAME=VALUE)"},
    {"pkcs11:=a;object=b", "is no attribute"},
    {"pkcs11:object=a;;", "is no attribute"},
    {"pkcs11:token=%4;object=a", "token: malformed message"},
    {"pkcs11:token=%zz;object=a", "token: malformed message"},
    {"pkcs11:token=%", "token: malformed message"},
    {"pkcs11:token=%00;object=a", "token: malformed message"},
    {"pkcs11:object=a b", "it holds a blank or a byte beyond ASCII"},
    {"pkcs11:object=\xc3\xa4", "it holds a blank or a byte beyond ASCII"},
    {"pkcs11:object=a?pin-source=pin", "pin-source: name a file by its whole path"},
    {"pkcs11:object=a?pin-source=file:pin", "pin-source: name a file by its whole path"},
    {"pkcs11:object=a?pin-source=%7c/bin/cat", "pin-source: name a file by its whole path"},
    {"pkcs11:object=a?pin-source=", "pin-source: name a file by its whole path"},
    {"pkcs11:object=a?pin-value=secret", "pin-value: a PIN has no place here"},
    {"pkcs11:object=a?module-path=/x", "the module is named by pkcs11: {module: PATH}, not here"},
    {"pkcs11:object=a?colour=red", "the query has no attribute \"colour\" but pin-source"},
};

static void expect(const char *is, const char *want) { assert_string_equal(is ? is : "", want); }

static void uris(void **state)
{
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(good); i++) {
        DEFER(pq_token_uri_free) struct pq_token_uri u = {0};
        struct pq_why why = {{0}};
        if (pq_token_uri_parse(good[i].uri, &u, &why) < 0)
            fail_msg("%s", why.text);
        expect(u.plain, good[i].plain);
        expect(u.pin_file, good[i].pin_file);
        expect(u.token, good[i].token);
        expect(u.serial, good[i].serial);
    }
    for (size_t i = 0; i < PQ_COUNT(bad); i++) {
        struct pq_token_uri u = {0};
        struct pq_why why = {{0}};
        assert_int_equal(pq_token_uri_parse(bad[i].uri, &u, &why), PQ_E_CONFIG);
        if (!strstr(why.text, bad[i].says) || strstr(why.text, "secret"))
            fail_msg("%s: \"%s\" (expected \"%s\")", bad[i].uri, why.text, bad[i].says);
        assert_null(u.plain);
    }
}

static void long_ones(void **state)
{
    (void)state;
    char uri[PQ_TOKEN_URI_MAX + 2];
    struct pq_token_uri u = {0};
    struct pq_why why = {{0}};
    memset(uri, 'a', sizeof uri);
    memcpy(uri, "pkcs11:object=", 14);
    uri[PQ_TOKEN_URI_MAX + 1] = 0;
    assert_int_equal(pq_token_uri_parse(uri, &u, &why), PQ_E_CONFIG);
    assert_non_null(strstr(why.text, "longer than 1024 bytes"));
    uri[PQ_TOKEN_URI_MAX] = 0;
    assert_int_equal(pq_token_uri_parse(uri, &u, &why), 0);
    pq_token_uri_free(&u);
}

static void failing_allocations(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        struct pq_token_uri u = {0};
        struct pq_why why = {{0}};
        pq_alloc_fail_at(n);
        int e = pq_token_uri_parse("pkcs11:token=a;serial=b;object=c?pin-source=/x", &u, &why);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        pq_token_uri_free(&u);
        if (!reached) {
            assert_int_equal(e, 0);
            break;
        }
        assert_int_equal(e, PQ_E_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(which_keys_are_uris),
        cmocka_unit_test(uris),
        cmocka_unit_test(long_ones),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
