#include "report/svg.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "report/embed.h"
#include "report/gnuplot.h"

#define START                                                                                                          \
    "<svg class=\"desk\" viewBox=\"0 0 9 8\" role=\"img\" aria-labelledby=\"i-t i-d\">\n<title "                       \
    "id=\"i-t\">T&lt;</title>\n<desc id=\"i-d\">D&amp;</desc>\n"

static void only_what_is_ours_is_kept(void **state)
{
    (void)state;
    static const struct {
        const char *in, *want;
    } rows[] = {
        {"", ""},
        {"<script>alert(1)</script><image href='x'/><title>x</title>", ""},
        {"<path stroke='rgb(  3,   0,   7)'  d='M68.25,237.60 L692.05,237.60  '/>",
         "<path class=\"a0\" d=\"M68.2,237.6L692,237.6\"/>\n"},
        {"<path stroke='rgb(1,2,3)' d='M1,1'/><path stroke='currentColor' d='M1,1'/><path d='M1,1'/>", ""},
        {"<path stroke='rgb(99,0,7)' d='M1,1'/>", ""},
        {"<path stroke='rgb(2,0,7)' d='M1,1\"/><script x'/>", ""},
        {"<polygon fill = 'rgb(6, 2, 7)' fill-opacity = '1' points = '1.00,2.00 3.55,4.00 '/>",
         "<path class=\"b2\" d=\"M1,2 3.5,4Z\"/>\n"},
        {"<use xlink:href='#gpDot' x='1.5' y='2' color='rgb(  4,   1,   7)'/>\n\n<use xlink:href='#gpDot' x='3' y='4' "
         "color='rgb(  4,   1,   7)'/>"
         "<use xlink:href='#gpDot' x='5' y='6' color='rgb(4,2,7)'/>",
         "<path class=\"p1\" d=\"M1.5 2.0h0M3.0 4.0h0\"/>\n<path class=\"p2\" d=\"M5.0 6.0h0\"/>\n"},
        {"<g transform=\"translate(59.15,169.13)\" stroke=\"none\" fill=\"rgb(1,0,7)\" font-size=\"13.00\"  "
         "text-anchor=\"end\">\n\t\t<text>PQ1Q</text>",
         "<text class=\"t0\" x=\"59.1\" y=\"169.1\" font-size=\"13\" text-anchor=\"end\">&lt;b&gt;</text>\n"},
        {"<g transform=\"translate(1,2)\" fill=\"rgb(1,1,7)\" font-size=\"12\"><text> 0.5</text>",
         "<text class=\"t1\" x=\"1.0\" y=\"2.0\" font-size=\"12\">0.5</text>\n"},
        {"<g transform=\"translate(1,2)\" fill=\"rgb(1,1,7)\" text-anchor=\"x'onl\"><text>1</text>", ""},
        {"<g transform=\"translate(1,2)\" fill=\"rgb(1,1,7)\"><text>PQ9Q</text>",
         "<text class=\"t1\" x=\"1.0\" y=\"2.0\" font-size=\"12\">PQ9Q</text>\n"},
        {"<g fill=\"red\"><text>1</text>", ""},
        {"<path stroke='rgb(2,0,7)' d='M1,1'", ""},
        {"<text", ""},
        {"<text>", ""},
    };
    DEFER(pq_labels_free) struct pq_labels labels = {0};
    assert_string_equal(pq_labels_add(&labels, "a", 10).text, "PQ0Q");
    assert_string_equal(pq_labels_add(&labels, "<b>", 10).text, "PQ1Q");
    struct pq_frame frame = {"desk", "i", "T<", "D&", 9, 8};
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        DEFER(pq_out_free) struct pq_out o = {.buf.cap = 10000};
        DEFER(pq_out_free) struct pq_out want = {.buf.cap = 10000};
        pq_outf(&want, START "%s</svg>\n", rows[i].want);
        pq_svg_rewrite(pq_span_text(rows[i].in), &labels, &frame, &o);
        assert_int_equal(o.error, 0);
        assert_string_equal(pq_out_text(&o), pq_out_text(&want));
    }
}

static void gnuplot_draws_or_says_why(void **state)
{
    (void)state;
    struct pq_why why = {{0}};
    DEFER(pq_buf_free) struct pq_buf picture = {.cap = 1 << 20};
    int e = pq_gnuplot(pq_span_text("set terminal svg size 100,100\nplot 1\n"), &picture, &why);
    if (e == PQ_E_UNSUPPORTED)
        skip();
    assert_int_equal(e, 0);
    assert_non_null(strstr((const char *)picture.at, "<svg"));
    DEFER(pq_buf_free) struct pq_buf none = {.cap = 1 << 20};
    assert_int_equal(pq_gnuplot(pq_span_text("this is no command\n"), &none, &why), PQ_E_IO);
    assert_non_null(strstr(why.text, "gnuplot failed"));
    DEFER(pq_buf_free) struct pq_buf small = {.cap = 100};
    assert_int_equal(pq_gnuplot(pq_span_text("set terminal svg size 100,100\nplot 1\n"), &small, &why), PQ_E_TOO_LONG);
}

static void digests_and_base64(void **state)
{
    (void)state;
    struct pq_digest d;
    assert_int_equal(pq_digest(pq_span_text("abc"), &d), 0);
    assert_string_equal(d.hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    DEFER(pq_out_free) struct pq_out o = {.buf.cap = 100};
    pq_out_base64(&o, pq_span_text("foobar!"));
    assert_string_equal(pq_out_text(&o), "Zm9vYmFyIQ==");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_is_ours_is_kept),
        cmocka_unit_test(gnuplot_draws_or_says_why),
        cmocka_unit_test(digests_and_base64),
    };
    return cmocka_run_group_tests_name("report/svg", tests, NULL, NULL);
}
