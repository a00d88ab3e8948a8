#include "report/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"

#define BAD "\xef\xbf\xbd"

static void data_is_harmless(void **state)
{
    (void)state;
    static const struct {
        const char *in, *plain, *html, *lines, *csv;
    } rows[] = {
        {"", "", "", "", ""},
        {"a", "a", "a", "a", "a"},
        {"<b>&\"'`", "<b>&\"'`", "&lt;b&gt;&amp;&quot;&#39;&#96;", "&lt;b&gt;&amp;&quot;&#39;&#96;", "\"<b>&\"\"'`\""},
        {"a\nb\tc", "a b c", "a b c", "a\nb\tc", "\"a b c\""},
        {"a\r", "a" BAD, "a" BAD, "a" BAD, "a" BAD},
        {"\x1b[31m\x07\x7f", BAD "[31m" BAD BAD, BAD "[31m" BAD BAD, BAD "[31m" BAD BAD, BAD "[31m" BAD BAD},
        {"\xc2\x9b"
         "2J",
         BAD "2J", BAD "2J", BAD "2J", BAD "2J"}, /* C1: CSI */
        {"\xe2\x80\xae"
         "abc",
         BAD "abc", BAD "abc", BAD "abc", BAD "abc"}, /* right-to-left override */
        {"\xe2\x81\xa6x\xe2\x81\xa9", BAD "x" BAD, BAD "x" BAD, BAD "x" BAD, BAD "x" BAD},
        {"\xe2\x80\xa8", BAD, BAD, BAD, BAD},                                 /* line separator */
        {"\xff\xc3", BAD BAD, BAD BAD, BAD BAD, BAD BAD},                     /* no UTF-8 */
        {"\xc0\xaf", BAD BAD, BAD BAD, BAD BAD, BAD BAD},                     /* overlong */
        {"\xed\xa0\x80", BAD BAD BAD, BAD BAD BAD, BAD BAD BAD, BAD BAD BAD}, /* surrogate */
        {"\xf4\x90\x80\x80", BAD BAD BAD BAD, BAD BAD BAD BAD, BAD BAD BAD BAD, BAD BAD BAD BAD},
        {"é ש 😀", "é ש 😀", "é ש 😀", "é ש 😀", "\"é ש 😀\""},
        {"=1+1", "=1+1", "=1+1", "=1+1", "'=1+1"},
        {"+1", "+1", "+1", "+1", "'+1"},
        {"-1", "-1", "-1", "-1", "'-1"},
        {"@A1", "@A1", "@A1", "@A1", "'@A1"},
        {"\t=1", " =1", " =1", "\t=1", "\"' =1\""},
        {"a,b", "a,b", "a,b", "a,b", "\"a,b\""},
        {"a=1", "a=1", "a=1", "a=1", "a=1"},
    };
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_out o[4] = {{.buf.cap = 1000}, {.buf.cap = 1000}, {.buf.cap = 1000}, {.buf.cap = 1000}};
        pq_out_clean(&o[0], rows[i].in, PQ_TEXT_ALL);
        pq_out_html(&o[1], rows[i].in);
        pq_out_html_lines(&o[2], rows[i].in);
        pq_out_csv(&o[3], rows[i].in);
        assert_string_equal(pq_out_text(&o[0]), rows[i].plain);
        assert_string_equal(pq_out_text(&o[1]), rows[i].html);
        assert_string_equal(pq_out_text(&o[2]), rows[i].lines);
        assert_string_equal(pq_out_text(&o[3]), rows[i].csv);
        for (size_t k = 0; k < 4; k++)
            pq_out_free(&o[k]);
    }
}

static void long_text_is_cut(void **state)
{
    (void)state;
    DEFER(pq_out_free) struct pq_out o = {.buf.cap = 100};
    pq_out_clean(&o, "éééé", 4);
    pq_out(&o, "|");
    pq_out_clean(&o, "ééééé", 4);
    pq_out(&o, "|");
    pq_out_html_short(&o, "<<<", 2);
    assert_string_equal(pq_out_text(&o), "éééé|éééé…|&lt;&lt;…");
    char longer[10001];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(strlen(pq_short(longer).text), 60 + strlen("…"));
}

static void the_first_failure_is_kept(void **state)
{
    (void)state;
    DEFER(pq_out_free) struct pq_out o = {.buf.cap = 4};
    pq_out(&o, "1234");
    assert_int_equal(o.error, 0);
    pq_out(&o, "5");
    assert_int_equal(o.error, PQ_E_TOO_LONG);
    pq_outf(&o, "%d", 6);
    pq_out_csv(&o, "7");
    assert_string_equal(pq_out_text(&o), "1234");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_is_harmless),
        cmocka_unit_test(long_text_is_cut),
        cmocka_unit_test(the_first_failure_is_kept),
    };
    return cmocka_run_group_tests_name("report/text", tests, NULL, NULL);
}
