#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../alloc.h"
#include "base/clock.h"
#include "core5g/nrf_discovery.h"
#include "core5g/nrf_profile.h"
#include "core5g/nrf_store.h"
#include "core5g/sbi.h"

#define ID  "5b9e4b10-0000-4000-8000-000000000001"
#define ID2 "5b9e4b10-0000-4000-8000-000000000002"
#define PROFILE(id, type, more)                                                                                        \
    "{\"nfInstanceId\":\"" id "\",\"nfType\":\"" type "\",\"nfStatus\":\"REGISTERED\",\"fqdn\":\"a.example\"" more "}"

enum { BEAT_S = 10 };
static const int64_t second = PQ_NS_PER_S;

static yyjson_doc *json(const char *text)
{
    yyjson_doc *d = NULL;
    assert_int_equal(pq_sbi_parse(pq_span_text(text), &d), 0);
    return d;
}

static int put(struct pq_nrf_store *s, int64_t now, const char *id, const char *text, bool *created,
               struct pq_nrf_fault *fault)
{
    yyjson_doc *d = json(text);
    int e = pq_nrf_store_put(s, now, id, yyjson_doc_get_root(d), false, created, fault);
    yyjson_doc_free(d);
    return e;
}

static int patch(struct pq_nrf_store *s, int64_t now, const char *id, const char *text, bool *changed,
                 struct pq_nrf_fault *fault)
{
    yyjson_doc *d = json(text);
    int e = pq_nrf_store_patch(s, now, id, yyjson_doc_get_root(d), changed, fault);
    yyjson_doc_free(d);
    return e;
}

/* What becomes of an instance, second by second of a clock that the test turns. */
static void life(void **state)
{
    static const char beat[] = "[{\"op\":\"replace\",\"path\":\"/nfStatus\",\"value\":\"REGISTERED\"}]";
    static const struct {
        int64_t at;
        char what; /* 'b' a heart-beat first */
        int want;
        enum pq_nrf_state state;
    } rows[] = {
        {0, ' ', 0, PQ_NRF_REGISTERED},          {19, ' ', 0, PQ_NRF_REGISTERED},
        {20, ' ', 0, PQ_NRF_SUSPENDED},          {21, 'b', 0, PQ_NRF_REGISTERED},
        {40, ' ', 0, PQ_NRF_REGISTERED},         {41, ' ', 0, PQ_NRF_SUSPENDED},
        {120, ' ', 0, PQ_NRF_SUSPENDED},         {121, ' ', PQ_E_NOT_FOUND, PQ_NRF_GONE},
        {122, 'b', PQ_E_NOT_FOUND, PQ_NRF_GONE},
    };
    struct pq_nrf_fault fault = {0};
    bool created = false, changed;
    (void)state;
    DEFER(pq_nrf_store_freep) struct pq_nrf_store *s = NULL;
    assert_int_equal(pq_nrf_store_new(BEAT_S * second, &s), 0);
    assert_int_equal(put(s, 0, ID, PROFILE(ID, "UDM", ""), &created, &fault), 0);
    assert_true(created);
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        const struct pq_nrf_instance *n = NULL;
        if (rows[i].what == 'b')
            assert_int_equal(patch(s, rows[i].at * second, ID, beat, &changed, &fault), rows[i].want);
        assert_int_equal(pq_nrf_store_get(s, rows[i].at * second, ID, &n), rows[i].want);
        if (!n)
            continue;
        assert_int_equal(n->state, rows[i].state);
        /* What GET shows is the state. */
        assert_non_null(strstr(n->text, pq_nrf_state_names[rows[i].state]));
    }
    assert_int_equal(pq_nrf_store_count(s, 122 * second), 0);
}

static void two_instances_fall_silent_apart(void **state)
{
    struct pq_nrf_fault fault;
    const struct pq_nrf_instance *n;
    bool created;
    (void)state;
    DEFER(pq_nrf_store_freep) struct pq_nrf_store *s = NULL;
    assert_int_equal(pq_nrf_store_new(BEAT_S * second, &s), 0);
    assert_int_equal(put(s, 0, ID, PROFILE(ID, "UDM", ""), &created, &fault), 0);
    assert_int_equal(put(s, 5 * second, ID2, PROFILE(ID2, "UDM", ""), &created, &fault), 0);
    assert_int_equal(pq_nrf_store_get(s, 20 * second, ID, &n), 0);
    assert_int_equal(n->state, PQ_NRF_SUSPENDED);
    assert_int_equal(pq_nrf_store_get(s, 24 * second, ID2, &n), 0);
    assert_int_equal(n->state, PQ_NRF_REGISTERED);
    assert_int_equal(pq_nrf_store_get(s, 25 * second, ID2, &n), 0);
    assert_int_equal(n->state, PQ_NRF_SUSPENDED);
    assert_int_equal(pq_nrf_store_count(s, 100 * second), 1);
    assert_int_equal(pq_nrf_store_count(s, 105 * second), 0);
}

static void replace_and_delete(void **state)
{
    struct pq_nrf_fault fault;
    const struct pq_nrf_instance *n;
    bool created;
    (void)state;
    DEFER(pq_nrf_store_freep) struct pq_nrf_store *s = NULL;
    assert_int_equal(pq_nrf_store_new(BEAT_S * second, &s), 0);
    assert_int_equal(put(s, 0, ID, PROFILE(ID, "UDM", ""), &created, &fault), 0);
    assert_int_equal(put(s, 0, ID, PROFILE(ID, "AUSF", ""), &created, &fault), 0);
    assert_false(created);
    assert_int_equal(pq_nrf_store_get(s, 0, "5B9E4B10-0000-4000-8000-000000000001", &n), 0); /* either case */
    assert_string_equal(n->type, "AUSF");
    assert_int_equal(n->version, 2);
    assert_int_equal(pq_nrf_store_count(s, 0), 1);
    assert_int_equal(pq_nrf_store_delete(s, 0, ID), 0);
    assert_int_equal(pq_nrf_store_delete(s, 0, ID), PQ_E_NOT_FOUND);
    assert_int_equal(pq_nrf_store_get(s, 0, ID, &n), PQ_E_NOT_FOUND);
}

static void bad_profiles(void **state)
{
    static const struct {
        const char *text, *param;
        bool missing;
    } rows[] = {
        {"[]", "nfInstanceId", false},
        {"{}", "nfInstanceId", true},
        {PROFILE(ID2, "UDM", ""), "nfInstanceId", false},
        {"{\"nfInstanceId\":7}", "nfInstanceId", false},
        {"{\"nfInstanceId\":\"" ID "\"}", "nfType", true},
        {"{\"nfInstanceId\":\"" ID "\",\"nfType\":\"XYZ\"}", "nfType", false},
        {"{\"nfInstanceId\":\"" ID "\",\"nfType\":\"UDM\"}", "nfStatus", true},
        {"{\"nfInstanceId\":\"" ID "\",\"nfType\":\"UDM\",\"nfStatus\":\"registered\"}", "nfStatus", false},
        {"{\"nfInstanceId\":\"" ID "\",\"nfType\":\"UDM\",\"nfStatus\":\"REGISTERED\"}", "ipv4Addresses", true},
        {PROFILE(ID, "UDM", ",\"nfServices\":{}"), "nfServices", false},
        {PROFILE(ID, "UDM", ",\"nfServices\":[1]"), "nfServices", false},
        {PROFILE(ID, "UDM", ",\"nfServices\":[{}]"), "nfServices/serviceInstanceId", true},
        {PROFILE(ID, "UDM",
                 ",\"nfServices\":[{\"serviceInstanceId\":\"1\",\"serviceName\":\"a\",\"nfServiceStatus\":"
                 "\"REGISTERED\",\"scheme\":\"ftp\"}]"),
         "nfServices/scheme", false},
        {PROFILE(ID, "UDM",
                 ",\"nfServices\":[{\"serviceInstanceId\":\"1\",\"serviceName\":\"a\",\"nfServiceStatus\":"
                 "\"REGISTERED\",\"scheme\":\"http\"}]"),
         "nfServices/versions", true},
    };
    (void)state;
    DEFER(pq_nrf_store_freep) struct pq_nrf_store *s = NULL;
    assert_int_equal(pq_nrf_store_new(BEAT_S * second, &s), 0);
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_nrf_fault fault = {0};
        bool created;
        assert_int_equal(put(s, 0, ID, rows[i].text, &created, &fault), PQ_E_INVALID);
        assert_string_equal(fault.param, rows[i].param);
        assert_int_equal(fault.missing, rows[i].missing);
    }
    assert_int_equal(pq_nrf_store_count(s, 0), 0);
}

static void patches(void **state)
{
    static const struct {
        const char *patch;
        int want;
        bool changed;
        const char *holds;
    } rows[] = {
        {"[{\"op\":\"replace\",\"path\":\"/nfStatus\",\"value\":\"REGISTERED\"}]", 0, false, "REGISTERED"},
        {"[{\"op\":\"replace\",\"path\":\"/nfStatus\",\"value\":\"REGISTERED\"},{\"op\":\"add\",\"path\":\"/"
         "load\",\"value\":50}]",
         0, false, "\"load\":50"},
        {"[{\"op\":\"add\",\"path\":\"/capacity\",\"value\":77}]", 0, true, "\"capacity\":77"},
        {"[{\"op\":\"remove\",\"path\":\"/capacity\"}]", 0, true, NULL},
        {"[{\"op\":\"test\",\"path\":\"/nfType\",\"value\":\"UDM\"},{\"op\":\"replace\",\"path\":\"/"
         "fqdn\",\"value\":\"b.example\"}]",
         0, true, "b.example"},
        {"[{\"op\":\"test\",\"path\":\"/nfType\",\"value\":\"AMF\"}]", PQ_E_INVALID, false, NULL},
        {"[{\"op\":\"replace\",\"path\":\"/none\",\"value\":1}]", PQ_E_INVALID, false, NULL},
        {"[{\"op\":\"replace\",\"path\":\"/nfInstanceId\",\"value\":\"" ID2 "\"}]", PQ_E_INVALID, false, NULL},
        {"[{\"op\":\"remove\",\"path\":\"/nfType\"}]", PQ_E_INVALID, false, NULL},
        {"[{\"op\":\"replace\",\"path\":\"/nfStatus\",\"value\":\"nonsense\"}]", PQ_E_INVALID, false, NULL},
        {"[{\"op\":\"explode\",\"path\":\"/nfStatus\"}]", PQ_E_INVALID, false, NULL},
        {"[{\"op\":\"copy\",\"from\":\"/fqdn\",\"path\":\"/locality\"}]", PQ_E_INVALID, false, NULL},
        {"[{\"op\":\"move\",\"from\":\"/fqdn\",\"path\":\"/locality\"}]", PQ_E_INVALID, false, NULL},
        {"[7]", PQ_E_INVALID, false, NULL},
        {"{}", PQ_E_INVALID, false, NULL},
    };
    struct pq_nrf_fault fault;
    bool created;
    (void)state;
    DEFER(pq_nrf_store_freep) struct pq_nrf_store *s = NULL;
    assert_int_equal(pq_nrf_store_new(BEAT_S * second, &s), 0);
    assert_int_equal(put(s, 0, ID, PROFILE(ID, "UDM", ""), &created, &fault), 0);
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        const struct pq_nrf_instance *n;
        bool changed = false;
        assert_int_equal(pq_nrf_store_get(s, 0, ID, &n), 0);
        char *before = strdup(n->text);
        assert_int_equal(patch(s, 0, ID, rows[i].patch, &changed, &fault), rows[i].want);
        assert_int_equal(pq_nrf_store_get(s, 0, ID, &n), 0);
        if (rows[i].want)
            assert_string_equal(n->text, before); /* unchanged on error */
        else
            assert_int_equal(changed, rows[i].changed);
        if (rows[i].holds)
            assert_non_null(strstr(n->text, rows[i].holds));
        free(before);
    }
    assert_int_equal(patch(s, 0, ID2, "[]", &(bool){false}, &fault), PQ_E_NOT_FOUND);
}

/* The cap, and one more. */
static void patch_operations_cap(void **state)
{
    struct pq_nrf_fault fault;
    bool created, changed;
    (void)state;
    DEFER(pq_nrf_store_freep) struct pq_nrf_store *s = NULL;
    assert_int_equal(pq_nrf_store_new(BEAT_S * second, &s), 0);
    assert_int_equal(put(s, 0, ID, PROFILE(ID, "UDM", ""), &created, &fault), 0);
    for (int over = 0; over < 2; over++) {
        struct pq_buf text = {.cap = PQ_NRF_MAX_PROFILE};
        for (int i = 0; i < PQ_SBI_PATCH_OPERATIONS + over; i++)
            assert_int_equal(pq_buf_printf(&text, "%s{\"op\":\"add\",\"path\":\"/load\",\"value\":1}", i ? "," : "["),
                             0);
        assert_int_equal(pq_buf_append(&text, "]", 2), 0); /* with its NUL */
        assert_int_equal(patch(s, 0, ID, (const char *)text.at, &changed, &fault), over ? PQ_E_INVALID : 0);
        pq_buf_free(&text);
    }
}

/* Levels below a profile's own, by PUT and step by step by PATCH: a found profile must be readable where it is found.
 */
static void profile_depth_cap(void **state)
{
    struct pq_nrf_fault fault = {0};
    bool created, changed;
    (void)state;
    for (int way = 0; way < 2; way++) {
        int e = 0, levels = 1;
        char path[256] = "", text[512];
        struct pq_nrf_filter f;
        struct pq_nrf_query_fault query_fault;
        DEFER(pq_nrf_store_freep) struct pq_nrf_store *s = NULL;
        assert_int_equal(pq_nrf_store_new(BEAT_S * second, &s), 0);
        assert_int_equal(put(s, 0, ID, PROFILE(ID, "UDM", ""), &created, &fault), 0);
        for (; e == 0 && levels < 60; levels++) {
            snprintf(path + strlen(path), sizeof path - strlen(path), "/a");
            if (way) {
                snprintf(text, sizeof text, "[{\"op\":\"add\",\"path\":\"%s\",\"value\":{}}]", path);
                e = patch(s, 0, ID, text, &changed, &fault);
                continue;
            }
            struct pq_buf b = {.cap = 1024};
            assert_int_equal(pq_buf_printf(&b, "%.*s", (int)strlen(PROFILE(ID, "UDM", "")) - 1, PROFILE(ID, "UDM", "")),
                             0);
            assert_int_equal(pq_buf_text(&b, ",\"a\":"), 0);
            for (int i = 0; i < levels; i++)
                assert_int_equal(pq_buf_append(&b, "[", 1), 0);
            for (int i = 0; i < levels; i++)
                assert_int_equal(pq_buf_append(&b, "]", 1), 0);
            assert_int_equal(pq_buf_append(&b, "}", 2), 0);
            e = put(s, 0, ID, (const char *)b.at, &created, &fault);
            pq_buf_free(&b);
        }
        assert_int_equal(e, PQ_E_INVALID);
        assert_int_equal(levels, PQ_NRF_PROFILE_DEPTH + 1);
        struct pq_buf out = {.cap = PQ_SBI_ANSWER_MAX};
        size_t found, given;
        yyjson_doc *answer = NULL;
        assert_int_equal(
            pq_nrf_filter_parse(pq_span_text("target-nf-type=UDM&requester-nf-type=AMF"), &f, &query_fault), 0);
        assert_int_equal(pq_nrf_search(s, 0, &f, NULL, &out, &found, &given), 0);
        assert_int_equal(found, 1);
        assert_int_equal(pq_sbi_parse(pq_span(out.at, out.len), &answer), 0);
        yyjson_doc_free(answer);
        pq_buf_free(&out);
    }
}

static void profile_cap(void **state)
{
    static char text[PQ_NRF_MAX_PROFILE + 300];
    struct pq_nrf_fault fault;
    bool created;
    (void)state;
    DEFER(pq_nrf_store_freep) struct pq_nrf_store *s = NULL;
    assert_int_equal(pq_nrf_store_new(BEAT_S * second, &s), 0);
    /* As stored, with its heartBeatTimer: exactly the cap, then one more. */
    for (int over = 0; over < 2; over++) {
        int n = snprintf(text, sizeof text, "%s", PROFILE(ID, "UDM", ",\"locality\":\"")) - 1;
        size_t fill = PQ_NRF_MAX_PROFILE - (size_t)n - strlen("\"}") - strlen(",\"heartBeatTimer\":10") + (size_t)over;
        memset(text + n, 'x', fill);
        snprintf(text + n + fill, sizeof text - (size_t)n - fill, "\"}");
        assert_int_equal(put(s, 0, ID, text, &created, &fault), over ? PQ_E_TOO_LONG : 0);
    }
}

/* --- discovery ---------------------------------------------------------------------------------------------------- */

static void query_faults(void **state)
{
    static const struct {
        const char *query, *param, *cause;
    } rows[] = {
        {"", "target-nf-type", "MANDATORY_QUERY_PARAM_MISSING"},
        {"requester-nf-type=AMF", "target-nf-type", "MANDATORY_QUERY_PARAM_MISSING"},
        {"target-nf-type=UDM", "requester-nf-type", "MANDATORY_QUERY_PARAM_MISSING"},
        {"target-nf-type=udm&requester-nf-type=AMF", "target-nf-type", "MANDATORY_QUERY_PARAM_INCORRECT"},
        {"target-nf-type=UDM&requester-nf-type=", "requester-nf-type", "MANDATORY_QUERY_PARAM_INCORRECT"},
        {"target-nf-type=%", "target-nf-type", "MANDATORY_QUERY_PARAM_INCORRECT"},
        {"target-nf-type=UDM&requester-nf-type=AMF&limit=0", "limit", "OPTIONAL_QUERY_PARAM_INCORRECT"},
        {"target-nf-type=UDM&requester-nf-type=AMF&limit=x", "limit", "OPTIONAL_QUERY_PARAM_INCORRECT"},
        {"target-nf-type=UDM&requester-nf-type=AMF&service-names=", "service-names", "OPTIONAL_QUERY_PARAM_INCORRECT"},
        {"target-nf-type=UDM&requester-nf-type=AMF&service-names=a,,b", "service-names",
         "OPTIONAL_QUERY_PARAM_INCORRECT"},
        {"target-nf-type=UDM&requester-nf-type=AMF&service-names=a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "service-names",
         "OPTIONAL_QUERY_PARAM_INCORRECT"},
        {"target-nf-type=UDM&requester-nf-type=AMF&target-nf-instance-id=7", "target-nf-instance-id",
         "OPTIONAL_QUERY_PARAM_INCORRECT"},
        {"target-nf-type=UDM&requester-nf-type=AMF&target-plmn-list={}", "target-plmn-list",
         "OPTIONAL_QUERY_PARAM_INCORRECT"},
        {"target-nf-type=UDM&requester-nf-type=AMF&snssais=[{\"sst\":256}]", "snssais",
         "OPTIONAL_QUERY_PARAM_INCORRECT"},
        {"target-nf-type=UDM&requester-nf-type=AMF&=x", "query", "INVALID_QUERY_PARAM"},
    };
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_nrf_filter f;
        struct pq_nrf_query_fault fault = {0};
        assert_int_equal(pq_nrf_filter_parse(pq_span_text(rows[i].query), &f, &fault), PQ_E_INVALID);
        assert_string_equal(fault.param, rows[i].param);
        assert_string_equal(fault.cause, rows[i].cause);
    }
}

static void fill(struct pq_nrf_store *s, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char id[37];
        bool created;
        struct pq_nrf_fault fault;
        struct pq_buf text = {.cap = PQ_NRF_MAX_PROFILE};
        snprintf(id, sizeof id, "5b9e4b10-0000-4000-8000-%012x", i);
        const struct pq_nrf_profile p = {.id = id,
                                         .type = i % 2 ? "UDM" : "AUSF",
                                         .fqdn = i == 1 ? "one.example" : NULL,
                                         .address = "192.0.2.1",
                                         .scheme = "http",
                                         .port = 8000,
                                         .heartbeat_s = BEAT_S};
        assert_int_equal(pq_nrf_profile_text(&p, &text), 0);
        assert_int_equal(put(s, 0, id, (const char *)text.at, &created, &fault), 0);
        pq_buf_free(&text);
    }
}

static void searches(void **state)
{
    static const struct {
        const char *query;
        size_t found, given;
        const char *holds, *lacks;
    } rows[] = {
        {"target-nf-type=UDM&requester-nf-type=AMF", 5, 5, "nudm-sdm", "nausf-auth"},
        {"target-nf-type=UDM&requester-nf-type=AMF&limit=2", 5, 2, "nudm-sdm", NULL},
        {"target-nf-type=UDM&requester-nf-type=AMF&service-names=nudm-ueau", 5, 5, "nudm-ueau", "nudm-sdm"},
        {"target-nf-type=UDM&requester-nf-type=AMF&service-names=nudm-x%2cnudm-ueau", 5, 5, "nudm-ueau", "nudm-sdm"},
        {"target-nf-type=UDM&requester-nf-type=AMF&service-names=nausf-auth", 0, 0, "\"nfInstances\":[]", NULL},
        {"target-nf-type=UDM&requester-nf-type=UPF", 0, 0, NULL, NULL}, /* not among allowedNfTypes */
        {"target-nf-type=SMF&requester-nf-type=AMF", 0, 0, NULL, NULL},
        {"target-nf-type=UDM&requester-nf-type=AMF&target-nf-fqdn=ONE.example", 1, 1, "one.example", NULL},
        {"target-nf-type=UDM&requester-nf-type=AMF&target-nf-instance-id=5b9e4b10-0000-4000-8000-000000000003", 1, 1,
         "000000000003", NULL},
        {"target-nf-type=UDM&requester-nf-type=AMF&target-plmn-list=%5B%7B%22mcc%22%3A%22001%22%2C%22mnc%22%3A%2201%22%"
         "7D%5D",
         5, 5, NULL, NULL},
        {"target-nf-type=UDM&requester-nf-type=AMF&target-plmn-list=[{\"mcc\":\"999\",\"mnc\":\"01\"}]", 0, 0, NULL,
         NULL},
        {"target-nf-type=UDM&requester-nf-type=AMF&snssais=[{\"sst\":1,\"sd\":\"010203\"}]", 5, 5, NULL, NULL},
        {"target-nf-type=UDM&requester-nf-type=AMF&snssais=[{\"sst\":2}]", 0, 0, NULL, NULL},
        {"target-nf-type=UDM&requester-nf-type=AMF&unknown=1", 5, 5, NULL, NULL},
    };
    (void)state;
    DEFER(pq_nrf_store_freep) struct pq_nrf_store *s = NULL;
    assert_int_equal(pq_nrf_store_new(BEAT_S * second, &s), 0);
    fill(s, 10);
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_nrf_filter f;
        struct pq_nrf_query_fault fault = {0};
        struct pq_buf out = {.cap = PQ_SBI_ANSWER_MAX};
        size_t found, given;
        if (pq_nrf_filter_parse(pq_span_text(rows[i].query), &f, &fault) < 0)
            fail_msg("%s: %s %s", rows[i].query, fault.param, fault.reason);
        assert_int_equal(pq_nrf_search(s, 0, &f, NULL, &out, &found, &given), 0);
        yyjson_doc *d = json((const char *)out.at);
        assert_int_equal(yyjson_arr_size(yyjson_obj_get(yyjson_doc_get_root(d), "nfInstances")), rows[i].given);
        assert_int_equal(yyjson_get_uint(yyjson_obj_get(yyjson_doc_get_root(d), "numNfInstComplete")), rows[i].found);
        assert_int_equal(found, rows[i].found);
        assert_int_equal(given, rows[i].given);
        if (rows[i].holds)
            assert_non_null(strstr((const char *)out.at, rows[i].holds));
        if (rows[i].lacks)
            assert_null(strstr((const char *)out.at, rows[i].lacks));
        yyjson_doc_free(d);
        pq_buf_free(&out);
    }
}

/* A silent one, one that asked not to be found, and one deregistered are not found. */
static void only_the_registered_are_found(void **state)
{
    struct pq_nrf_filter f;
    struct pq_nrf_query_fault fault;
    struct pq_nrf_fault why;
    struct pq_buf out = {.cap = PQ_SBI_ANSWER_MAX};
    size_t found, given;
    bool changed;
    (void)state;
    DEFER(pq_nrf_store_freep) struct pq_nrf_store *s = NULL;
    assert_int_equal(pq_nrf_store_new(BEAT_S * second, &s), 0);
    fill(s, 6); /* UDM: 1, 3, 5 */
    assert_int_equal(pq_nrf_filter_parse(pq_span_text("target-nf-type=UDM&requester-nf-type=AMF"), &f, &fault), 0);
    assert_int_equal(patch(s, 15 * second, "5b9e4b10-0000-4000-8000-000000000001",
                           "[{\"op\":\"replace\",\"path\":\"/nfStatus\",\"value\":\"UNDISCOVERABLE\"}]", &changed,
                           &why),
                     0);
    assert_int_equal(patch(s, 15 * second, "5b9e4b10-0000-4000-8000-000000000003",
                           "[{\"op\":\"add\",\"path\":\"/load\",\"value\":1}]", &changed, &why),
                     0);
    assert_int_equal(pq_nrf_search(s, 19 * second, &f, NULL, &out, &found, &given), 0);
    assert_int_equal(found, 2);
    assert_int_equal(pq_nrf_search(s, 20 * second, &f, NULL, &out, &found, &given), 0);
    assert_int_equal(found, 1);
    assert_int_equal(pq_nrf_store_delete(s, 20 * second, "5b9e4b10-0000-4000-8000-000000000003"), 0);
    assert_int_equal(pq_nrf_search(s, 20 * second, &f, NULL, &out, &found, &given), 0);
    assert_int_equal(found, 0);
    pq_buf_free(&out);
}

static void without_memory(void **state)
{
    (void)state;
    yyjson_doc *d = json(PROFILE(ID, "UDM", ""));
    for (long n = 1;; n++) {
        struct pq_nrf_store *s = NULL;
        struct pq_nrf_fault fault;
        bool created;
        pq_alloc_fail_at(n);
        int e = pq_nrf_store_new(BEAT_S * second, &s);
        if (e == 0)
            e = pq_nrf_store_put(s, 0, ID, yyjson_doc_get_root(d), false, &created, &fault);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        pq_nrf_store_free(s);
        if (!reached) {
            assert_int_equal(e, 0);
            break;
        }
        assert_int_equal(e, PQ_E_NOMEM);
    }
    yyjson_doc_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(life),
        cmocka_unit_test(two_instances_fall_silent_apart),
        cmocka_unit_test(replace_and_delete),
        cmocka_unit_test(bad_profiles),
        cmocka_unit_test(patches),
        cmocka_unit_test(patch_operations_cap),
        cmocka_unit_test(profile_depth_cap),
        cmocka_unit_test(profile_cap),
        cmocka_unit_test(query_faults),
        cmocka_unit_test(searches),
        cmocka_unit_test(only_the_registered_are_found),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
