#include "proxy/view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <yyjson.h>

#include <cmocka.h>

#include "../alloc.h"
#include "../tls/certs.h"

struct world {
    struct certs certs;
    const struct cert *root, *leaf, *other;
    const char *crl;
};

static int make_world(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    certs_new(&w->certs);
    w->root = certs_make(&w->certs, (struct cert_how){.algorithm = "p384", .name = "root", .ca = true});
    const struct cert *middle = certs_make(
        &w->certs,
        (struct cert_how){
            .algorithm = "p384", .name = "middle", .issuer = w->root, .ca = true, .from_s = -9, .to_s = 900});
    w->leaf = certs_make(
        &w->certs,
        (struct cert_how){.algorithm = "ML-DSA-65", .name = "leaf", .issuer = middle, .from_s = -9, .to_s = 9000});
    w->other = certs_make(&w->certs, (struct cert_how){.algorithm = "p256", .name = "other", .issuer = w->root});
    w->crl = certs_crl(&w->certs, "list", w->root, w->other, -9, 5000);
    *state = w;
    return 0;
}

static int free_world(void **state)
{
    certs_free(&((struct world *)*state)->certs);
    free(*state);
    return 0;
}

static void free_config(struct pq_proxy_config *c) { pq_proxy_config_free(c); }

static void read_config(const char *text, struct pq_proxy_config *out)
{
    struct pq_why why = {""};
    if (pq_proxy_config_parse("p.yaml", text, strlen(text), out, &why) < 0)
        fail_msg("%s in %s", why.text, text);
}

static char *view_of(const struct world *w, const struct pq_proxy_config *c)
{
    struct pq_buf out = {.cap = PQ_VIEW_MAX};
    struct pq_why why = {""};
    const struct pq_view v = {.file = "p.yaml", .config = c, .generation = 3};
    if (pq_view_write(w->certs.crypto, &v, &out, &why) < 0)
        fail_msg("%s", why.text);
    return (char *)out.at;
}

static yyjson_doc *parse(const char *text)
{
    yyjson_doc *d = yyjson_read(text, strlen(text), 0);
    assert_non_null(d);
    return d;
}

static char *config_part(const char *view)
{
    yyjson_doc *d = parse(view);
    char *text = yyjson_val_write(yyjson_obj_get(yyjson_doc_get_root(d), "config"), 0, NULL);
    yyjson_doc_free(d);
    assert_non_null(text);
    return text;
}

static char *long_text(const struct world *w)
{
    static char text[4096];
    snprintf(text, sizeof text,
             "log: {level: debug, format: json}\n"
             "workers: 4\nuser: sidecar\ncontain: false\nwatch: false\nadmin: '127.0.0.1:9901'\nresolve: 90s\n"
             "pkcs11: {module: /usr/lib/m.so}\ntcp_nodelay: false\nwhole_flights: false\n"
             "timeouts: {handshake: 1500us, connect: 250ms, idle: 0, drain: 2h, grace: 3s, retire: 1min}\n"
             "limits: {connections: 5, buffer: 1MiB, handshakes: 6, handshakes_per_source: 7, strangers: 8}\n"
             "tunnel: {connections: 3, max_age: 1d}\n"
             "tls: {identities: [{certificate: %s, key: %s}, {certificate: %s, key: %s}], ca: %s, crl_stale: warn,\n"
             "      first_flight: classical, resumption: false, certificates_max: 100KiB,\n"
             "      policy: {mode: pure, level: 5, require: [pq-kex, pq-auth], groups: MLKEM1024}}\n"
             "ingress: [{name: sbi, listen: '198.51.100.2:7777', forward: '127.0.0.1:8000', peers: [a.example, b],\n"
             "           authorities: ['c:1'], tls: {crl: %s, policy: {mode: classical, level: 1}}}]\n"
             "egress: [{name: nrf, listen: 'unix:/run/nrf.sock', connect: 'peer.example:7777', peers: [nrf.example],\n"
             "          authority: 'd:2', carry: connection, transparent: false},\n"
             "         {name: far, listen: '127.0.0.1:9', transparent: true, networks: [10.0.0.0/8, 'fd00::/8'], "
             "peers: x}]\n",
             w->leaf->chain, w->leaf->key_file, w->other->chain, w->other->key_file, w->root->chain, w->crl);
    return text;
}

static char *short_text(const struct world *w)
{
    static char text[2048];
    snprintf(text, sizeof text,
             "tls: {certificate: %s, key: '%s', ca: %s}\n"
             "ingress: [{name: sbi, listen: '127.0.0.1:0', forward: '127.0.0.1:9', forward_remote: true}]\n",
             w->leaf->chain, "pkcs11:token=a;object=b?pin-value=1234&module-name=x", w->root->chain);
    return text;
}

/* What it shows can be used as a configuration, and then shows the same. */
static void the_config_is_one(void **state)
{
    const struct world *w = *state;
    static const char *const parts[] = {
        "\"workers\":4",
        "\"user\":\"sidecar\"",
        "\"handshake\":\"1500us\",\"connect\":\"250ms\",\"idle\":\"0s\",\"drain\":\"2h\",\"grace\":\"3s\",\"retire\":"
        "\"1min\"",
        "\"buffer\":\"1MiB\"",
        "\"max_age\":\"24h\"",
        "\"policy\":{\"mode\":\"classical\",\"level\":1,\"require\":[]}",
        "\"policy\":{\"mode\":\"pure\",\"level\":5,\"groups\":\"MLKEM1024\",\"require\":[\"pq-kex\",\"pq-auth\"]}",
        "\",\"crl_stale\":\"warn\",\"first_flight\":\"classical\",\"resumption\":false,"
        "\"certificates_max\":\"100KiB\"",
        "\"transparent\":false",
        "\"listen_remote\":false,\"transparent\":true,\"networks\":[\"10.0.0.0/8\",\"fd00::/8\"]",
        "\"listen\":\"unix:/run/nrf.sock\"",
    };
    for (int is_long = 0; is_long < 2; is_long++) {
        DEFER(free_config) struct pq_proxy_config first = {0}, second = {0};
        read_config(is_long ? long_text(w) : short_text(w), &first);
        DEFER(pq_freep) char *view = view_of(w, &first);
        DEFER(pq_freep) char *config = config_part(view);
        read_config(config, &second);
        DEFER(pq_freep) char *again = view_of(w, &second);
        DEFER(pq_freep) char *config_again = config_part(again);
        assert_string_equal(config, config_again);
        for (size_t i = 0; is_long && i < PQ_COUNT(parts); i++)
            if (!strstr(config, parts[i]))
                fail_msg("no %s in %s", parts[i], config);
    }
}

static void a_pin_is_not_shown(void **state)
{
    const struct world *w = *state;
    DEFER(free_config) struct pq_proxy_config c = {0};
    read_config(short_text(w), &c);
    DEFER(pq_freep) char *view = view_of(w, &c);
    assert_null(strstr(view, "1234"));
    assert_non_null(strstr(view, "\"key\":\"pkcs11:token=a;object=b?pin-value=...&module-name=x\""));
}

static void certificates_have_names_and_ends(void **state)
{
    const struct world *w = *state;
    DEFER(free_config) struct pq_proxy_config c = {0};
    read_config(long_text(w), &c);
    DEFER(pq_freep) char *view = view_of(w, &c);
    yyjson_doc *d = parse(view);
    yyjson_val *root = yyjson_doc_get_root(d), *list = yyjson_obj_get(root, "certificates");
    static const struct {
        const char *listener, *direction, *subject, *algorithm;
        int identity, chain;
    } rows[] = {{"sbi", "ingress", "CN=leaf", "ML-DSA-65", 0, 2}, {"sbi", "ingress", "CN=other", "EC prime256v1", 1, 1},
                {"nrf", "egress", "CN=leaf", "ML-DSA-65", 0, 2},  {"nrf", "egress", "CN=other", "EC prime256v1", 1, 1},
                {"far", "egress", "CN=leaf", "ML-DSA-65", 0, 2},  {"far", "egress", "CN=other", "EC prime256v1", 1, 1}};
    assert_int_equal(yyjson_get_int(yyjson_obj_get(root, "generation")), 3);
    assert_string_equal(yyjson_get_str(yyjson_obj_get(root, "file")), "p.yaml");
    assert_int_equal(yyjson_arr_size(list), PQ_COUNT(rows));
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        yyjson_val *row = yyjson_arr_get(list, i);
        assert_string_equal(yyjson_get_str(yyjson_obj_get(row, "listener")), rows[i].listener);
        assert_string_equal(yyjson_get_str(yyjson_obj_get(row, "direction")), rows[i].direction);
        assert_string_equal(yyjson_get_str(yyjson_obj_get(row, "subject")), rows[i].subject);
        assert_string_equal(yyjson_get_str(yyjson_obj_get(row, "algorithm")), rows[i].algorithm);
        assert_int_equal(yyjson_get_int(yyjson_obj_get(row, "identity")), rows[i].identity);
        assert_int_equal(yyjson_get_int(yyjson_obj_get(row, "chain")), rows[i].chain);
    }
    /* The intermediate's end comes first. */
    int64_t left = yyjson_get_sint(yyjson_obj_get(yyjson_arr_get(list, 0), "until_unix")) - (int64_t)time(NULL);
    assert_true(left > 500 && left <= 900);
    static const struct {
        const char *key, *name;
        int64_t at_least, at_most; /* s from now */
    } dates[] = {{"authorities", "CN=root", 1800, 3600}, {"revocation_lists", "CN=root", 3000, 5000}};
    for (size_t i = 0; i < PQ_COUNT(dates); i++) {
        yyjson_val *all = yyjson_obj_get(root, dates[i].key), *row = yyjson_arr_get(all, 0);
        assert_int_equal(yyjson_arr_size(all), 1); /* one file, though two listeners name it */
        assert_string_equal(yyjson_get_str(yyjson_obj_get(row, "name")), dates[i].name);
        assert_int_equal(yyjson_get_int(yyjson_obj_get(row, "number")), 0);
        left = yyjson_get_sint(yyjson_obj_get(row, "until_unix")) - (int64_t)time(NULL);
        assert_true(left > dates[i].at_least && left <= dates[i].at_most);
    }
    yyjson_doc_free(d);
}

static void files_may_be_in_memory(void **state)
{
    const struct world *w = *state;
    DEFER(free_config) struct pq_proxy_config c = {0};
    DEFER(pq_files_freep) struct pq_files *files = NULL;
    struct pq_buf out = {.cap = PQ_VIEW_MAX};
    struct pq_why why = {""};
    read_config(short_text(w), &c);
    assert_int_equal(pq_files_new(&files), 0);
    const struct pq_view v = {.file = "p.yaml", .config = &c, .files = files, .generation = 3};
    assert_int_equal(pq_view_write(w->certs.crypto, &v, &out, &why), PQ_E_NOENT);
    pq_buf_free(&out);
    assert_int_equal(pq_files_add(files, w->leaf->chain, false, &why), 0);
    assert_int_equal(pq_files_add(files, w->root->chain, false, &why), 0);
    assert_int_equal(pq_view_write(w->certs.crypto, &v, &out, &why), 0);
    char end[2 * CERTS_PATH + 20];
    snprintf(end, sizeof end, "\"files\":[\"%s\",\"%s\"]}\n", w->leaf->chain, w->root->chain);
    assert_non_null(strstr((char *)out.at, end));
    pq_buf_free(&out);
}

static void every_allocation_may_fail(void **state)
{
    const struct world *w = *state;
    DEFER(free_config) struct pq_proxy_config c = {0};
    read_config(long_text(w), &c);
    const struct pq_view v = {.file = "p.yaml", .config = &c, .generation = 3};
    for (long n = 1;; n++) {
        struct pq_buf out = {.cap = PQ_VIEW_MAX};
        struct pq_why why = {""};
        pq_alloc_fail_at(n);
        int e = pq_view_write(w->certs.crypto, &v, &out, &why);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        if (e == 0) /* OpenSSL can do without some of its memory, and an algorithm then has no name */
            yyjson_doc_free(parse((char *)out.at));
        else
            assert_true(reached && e == PQ_E_NOMEM);
        pq_buf_free(&out);
        if (!reached)
            break;
    }
}

int main(void)
{
    if (!pq_alloc_hook_openssl())
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_config_is_one),
        cmocka_unit_test(a_pin_is_not_shown),
        cmocka_unit_test(certificates_have_names_and_ends),
        cmocka_unit_test(files_may_be_in_memory),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_world, free_world);
}
