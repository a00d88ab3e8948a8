#include "base/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../alloc.h"
#include "base/bytes.h"

struct inner {
    char *name;
    int64_t size;
};
struct outer {
    char *text;
    bool on;
    int64_t number, wait;
    double share;
    int colour;
    struct pq_strings names;
    struct inner one;
    struct pq_structs many;
};

static void inner_defaults(void *out) { ((struct inner *)out)->size = 7; }

static const struct pq_field inner_fields[] = {
    {.name = "name", .type = PQ_FIELD_STRING, .offset = offsetof(struct inner, name), .required = true},
    {.name = "size", .type = PQ_FIELD_SIZE, .offset = offsetof(struct inner, size), .low = 1, .high = 1 << 20},
};
static const struct pq_schema inner_schema = {
    .what = "an inner", .size = sizeof(struct inner), .fields = inner_fields, .count = 2, .defaults = inner_defaults};

static const char *const colours[] = {"red", "green", NULL};

static int outer_check(const struct pq_node *n, void *out, struct pq_why *why)
{
    struct outer *o = out;
    return o->on && o->number == 13 ? pq_node_why(n, why, "on and 13 do not go together") : 0;
}

static const struct pq_field outer_fields[] = {
    {.name = "text", .type = PQ_FIELD_STRING, .offset = offsetof(struct outer, text)},
    {.name = "on", .type = PQ_FIELD_BOOL, .offset = offsetof(struct outer, on)},
    {.name = "number", .type = PQ_FIELD_INT, .offset = offsetof(struct outer, number), .low = 1, .high = 100},
    {.name = "wait", .type = PQ_FIELD_DURATION, .offset = offsetof(struct outer, wait)},
    {.name = "share", .type = PQ_FIELD_REAL, .offset = offsetof(struct outer, share), .low = 0, .high = 1},
    {.name = "colour", .type = PQ_FIELD_CHOICE, .offset = offsetof(struct outer, colour), .choices = colours},
    {.name = "names", .type = PQ_FIELD_STRINGS, .offset = offsetof(struct outer, names)},
    {.name = "one", .type = PQ_FIELD_STRUCT, .offset = offsetof(struct outer, one), .of = &inner_schema},
    {.name = "many", .type = PQ_FIELD_STRUCTS, .offset = offsetof(struct outer, many), .of = &inner_schema},
};
static const struct pq_schema outer_schema = {.what = "the file",
                                              .size = sizeof(struct outer),
                                              .fields = outer_fields,
                                              .count = PQ_COUNT(outer_fields),
                                              .check = outer_check};

static const char good[] = "# a comment\n"
                           "text: hello\n"
                           "on: true\n"
                           "number: 42\n"
                           "wait: 1.5ms\n"
                           "share: 0.25\n"
                           "colour: green\n"
                           "names: [a, b]\n"
                           "one: {name: x}\n"
                           "many:\n"
                           "  - {name: y, size: 4KiB}\n"
                           "  - name: z\n";

static void a_good_file_fills_every_field(void **state)
{
    (void)state;
    struct outer o;
    struct pq_why why = {{0}};
    assert_int_equal(pq_config_parse("good.yaml", good, strlen(good), &outer_schema, &o, &why), 0);
    assert_string_equal(o.text, "hello");
    assert_true(o.on);
    assert_int_equal(o.number, 42);
    assert_int_equal(o.wait, 1500000);
    assert_true(o.share == 0.25);
    assert_int_equal(o.colour, 1);
    assert_int_equal(o.names.count, 2);
    assert_string_equal(o.names.at[1], "b");
    assert_string_equal(o.one.name, "x");
    assert_int_equal(o.one.size, 7);
    assert_int_equal(o.many.count, 2);
    assert_int_equal(((struct inner *)o.many.at)[0].size, 4096);
    assert_int_equal(((struct inner *)o.many.at)[1].size, 7);
    pq_config_free(&outer_schema, &o);
    assert_null(o.text);
}

static void mistakes_are_named_with_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"txet: x", "f:1:7: the file has no \"txet\"; it has text, on, number, wait, share, colour, names, one, many"},
        {"on: yes", "f:1:5: on: \"yes\" is neither true nor false"},
        {"on: nope", "f:1:5: on: \"nope\" is neither true nor false"},
        {"number: 010", "f:1:9: number: \"010\" is no whole number"},
        {"number: 0x10", "f:1:9: number: \"0x10\" is no whole number"},
        {"number: 101", "f:1:9: number: 101 is not between 1 and 100"},
        {"number: 99999999999999999999", "f:1:9: number: 99999999999999999999 is not between 1 and 100"},
        {"number: [1]", "f:1:9: \"number\" must be a single value"},
        {"\n\nwait: 5",
         "f:3:7: wait: \"5\" is no duration: write a number and a unit (ns, us, ms, s, min, h, d), for example 250ms"},
        {"wait: 5 ms", "f:1:7: wait: \"5 ms\" is no duration"},
        {"wait: -5ms", "f:1:7: wait: \"-5ms\" is no duration"},
        {"wait: 400000d", "f:1:7: wait: \"400000d\" is no duration"},
        {"share: 1.5", "f:1:8: share: 1.5 is not between 0 and 1"},
        {"share: nan", "f:1:8: share: \"nan\" is no number"},
        {"colour: blue", "f:1:9: colour: \"blue\" is none of red, green"},
        {"names: {a: b}", "f:1:8: \"names\" must be a list of texts"},
        {"names: [[a]]", "must be a list of texts"},
        {"text: ''", "\"text\" is empty"},
        {"one: {size: 5KiB}", "f:1:6: an inner needs \"name\""},
        {"one: {name: a, size: 2MiB}", "f:1:22: size: 2MiB is not between 1 and 1048576 bytes"},
        {"one: {name: a, size: 5KB}", "f:1:22: size: \"5KB\" is no size"},
        {"one: [a]", "an inner must be written as a map"},
        {"many: {name: a}", "f:1:7: \"many\" must be a list"},
        {"many: [{name: a}, {nam: b}]", "f:1:25: an inner has no \"nam\""},
        {"on: true\nnumber: 13", "on and 13 do not go together"},
        {"text: a\ntext: b", "f:2:"},
        {"text: *x", "f:1:"},
        {"text: [a", "f:"},
        {"- a", "f:1:1: the file must be written as a map (key: value)"},
        {"", "f:1:1: "},
        {"\xff\xfe\xfd", "f:1:"},
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct outer o;
        struct pq_why why = {{0}};
        int e = pq_config_parse("f", rows[i].text, strlen(rows[i].text), &outer_schema, &o, &why);
        if (e != PQ_E_CONFIG || !strstr(why.text, rows[i].says))
            print_error("row %zu (%s): %d: %s\n", i, rows[i].text, e, why.text);
        assert_int_equal(e, PQ_E_CONFIG);
        assert_non_null(strstr(why.text, rows[i].says));
        assert_null(o.text);
    }
}

static void nothing_of_a_file_is_passed_over(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len;
        const char *says;
    } rows[] = {
#define ROW(text, says) {text, sizeof(text) - 1, says}
        ROW("# h\xe9 there\nnumber: 0", "f:1:4: the byte 0xe9 is no UTF-8 here"),
        ROW("on: true # \xc3\xa9\xff\nnumber: 0", "f:1:13: the byte 0xff is no UTF-8 here"),
        ROW("on: true\n\xff", "f:2:1: the byte 0xff"),
        ROW("on: true\n# \xc0\xaf\n", "f:2:3: the byte 0xc0"),
        ROW("on: true\n# \xed\xa0\x80\n", "f:2:3: the byte 0xed"),
        ROW("on: true\n# \xf4\x90\x80\x80\n", "f:2:3: the byte 0xf4"),
        ROW("on: true\n# \xe2\x82", "f:2:3: the byte 0xe2"),
        ROW("on: true\n#\0\nnumber: 0", "f:2:2: a NUL byte stands here"),
        ROW("on: true\n\0", "f:2:1: a NUL byte stands here"),
        ROW("on: true\n...\nnumber: 0", "f:3:1: the file holds more than one document"),
        ROW("on: true\n---\nnumber: 0", "f:2:1: the file holds more than one document"),
        ROW("on: true\n---\n", "f:2:1: the file holds more than one document"),
        ROW("---\non: true\n...\n---\n", "f:4:1: the file holds more than one document"),
        ROW("---\n---\non: true\n", "f:"),
        ROW("on: true\n...\n]", "f:3:"),
        ROW("on: true\n...\nx: [", "f:4:1: flow sequence"),
        ROW("on: true\n]", "f:2:"),
#undef ROW
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_document *d = NULL;
        struct pq_why why = {{0}};
        int e = pq_document_parse("f", rows[i].text, rows[i].len, &d, &why);
        if (e != PQ_E_CONFIG || !strstr(why.text, rows[i].says))
            print_error("row %zu (%s): %d: %s\n", i, rows[i].text, e, why.text);
        assert_int_equal(e, PQ_E_CONFIG);
        assert_non_null(strstr(why.text, rows[i].says));
        assert_null(d);
    }
    static const char *const whole[] = {"on: true",
                                        "---\non: true\n...\n",
                                        "%YAML 1.2\n---\non: true\n",
                                        "on: true\n...\n# the end\n\n",
                                        "# h\xc3\xa9 \xf0\x9f\x99\x82\non: true\n",
                                        "\xef\xbb\xbfon: true\n",
                                        "on: true\r\n"};
    for (size_t i = 0; i < PQ_COUNT(whole); i++) {
        struct pq_document *d = NULL;
        struct pq_why why = {{0}};
        int e = pq_document_parse("f", whole[i], strlen(whole[i]), &d, &why);
        if (e != 0)
            print_error("whole %zu: %s\n", i, why.text);
        assert_int_equal(e, 0);
        assert_non_null(pq_node_get(pq_document_root(d), "on"));
        pq_document_free(d);
    }
}

static void put_utf8(char out[5], uint32_t c)
{
    memset(out, 0, 5);
    if (c < 0x80) {
        out[0] = (char)c;
        return;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf00 >> n & 0xff) | c);
}

/* Whatever character a comment holds: either it is a mistake, or what follows it counts. */
static void no_character_hides_what_follows(void **state)
{
    (void)state;
    for (uint32_t c = 1; c < 0x10400; c++) {
        char text[64], utf8[5];
        put_utf8(utf8, c);
        snprintf(text, sizeof text, "on: true\n# %s\nnumber: 3\n", utf8);
        struct pq_document *d = NULL;
        struct pq_why why = {{0}};
        int e = pq_document_parse("f", text, strlen(text), &d, &why);
        bool seen = e == 0 && pq_node_get(pq_document_root(d), "number");
        pq_document_free(d);
        bool surrogate = c >= 0xd800 && c <= 0xdfff, usual = (c >= 0x20 && c <= 0x7e) || (c >= 0xa0 && c < 0xd800);
        if ((e != PQ_E_CONFIG && !seen) || (surrogate && e == 0) || (usual && e != 0))
            fail_msg("U+%04X: %d %s", c, e, why.text);
    }
}

static void depth_and_size_have_caps(void **state)
{
    (void)state;
    struct pq_document *d = NULL;
    struct pq_why why = {{0}};
    char deep[200] = "";
    memset(deep, '[', 63);
    memset(deep + 63, ']', 63);
    assert_int_equal(pq_document_parse("f", deep, 126, &d, &why), 0);
    pq_document_free(d);
    memset(deep, '[', 65);
    memset(deep + 65, ']', 65);
    assert_int_equal(pq_document_parse("f", deep, 130, &d, &why), PQ_E_CONFIG);
    static char large[(1 << 20) + 1];
    memset(large, 'a', sizeof large);
    assert_int_equal(pq_document_parse("f", large, sizeof large - 1, &d, &why), 0);
    pq_document_free(d);
    assert_int_equal(pq_document_parse("f", large, sizeof large, &d, &why), PQ_E_CONFIG);
}

static void units_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ns;
    } rows[] = {{"0", 0},
                {"1ns", 1},
                {"250ms", 250000000},
                {"1.5s", 1500000000},
                {"2min", 120000000000},
                {"1h", 3600000000000},
                {"1d", 86400000000000}};
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        int64_t v = -1;
        assert_int_equal(pq_duration_parse(rows[i].text, &v, NULL), 0);
        assert_true(v == rows[i].ns);
    }
    int64_t v = 5;
    assert_int_equal(pq_size_parse("1.5KiB", &v, NULL), 0);
    assert_int_equal(v, 1536);
    assert_int_equal(pq_size_parse("9223372036854775808B", &v, NULL), PQ_E_CONFIG);
    assert_int_equal(pq_int_parse("-5", -10, 0, &v, NULL), 0);
    assert_int_equal(v, -5);
    assert_int_equal(pq_int_parse("+5", 0, 10, &v, NULL), PQ_E_CONFIG);
    assert_int_equal(pq_int_parse("", 0, 10, &v, NULL), PQ_E_CONFIG);
}

static void every_failed_allocation_of_ours_is_an_error(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        struct outer o;
        struct pq_why why = {{0}};
        pq_alloc_fail_at(n);
        int e = pq_config_parse("good.yaml", good, strlen(good), &outer_schema, &o, &why);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        pq_config_free(&outer_schema, &o);
        assert_int_equal(e, reached ? PQ_E_NOMEM : 0);
        if (!reached)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_file_fills_every_field),
        cmocka_unit_test(mistakes_are_named_with_their_place),
        cmocka_unit_test(nothing_of_a_file_is_passed_over),
        cmocka_unit_test(no_character_hides_what_follows),
        cmocka_unit_test(depth_and_size_have_caps),
        cmocka_unit_test(units_are_exact),
        cmocka_unit_test(every_failed_allocation_of_ours_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
