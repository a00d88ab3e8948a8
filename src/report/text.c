#include "report/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

void pq_out_free(struct pq_out *o) { pq_buf_free(&o->buf); }

const char *pq_out_text(const struct pq_out *o) { return o->buf.at ? (const char *)o->buf.at : ""; }

static void bytes(struct pq_out *o, const char *at, size_t len)
{
    if (o->error == 0)
        o->error = pq_buf_append(&o->buf, at, len);
}

void pq_out(struct pq_out *o, const char *text) { bytes(o, text, strlen(text)); }

void pq_outf(struct pq_out *o, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    if (o->error)
        return;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0) {
        o->error = PQ_E_NOMEM;
        return;
    }
    bytes(o, text, (size_t)n);
    free(text);
}

/* One character: its code point, or -1 where the bytes are no UTF-8 (then one byte is taken). */
static long decode(const char **at)
{
    static const struct {
        unsigned char mask, lead;
        unsigned more;
        long least;
    } forms[] = {{0x80, 0x00, 0, 0}, {0xe0, 0xc0, 1, 0x80}, {0xf0, 0xe0, 2, 0x800}, {0xf8, 0xf0, 3, 0x10000}};
    const unsigned char *p = (const unsigned char *)*at;
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        if ((p[0] & forms[f].mask) != forms[f].lead)
            continue;
        long c = p[0] & (unsigned char)~forms[f].mask;
        unsigned i = 1;
        for (; i <= forms[f].more && (p[i] & 0xc0) == 0x80; i++)
            c = c << 6 | (p[i] & 0x3f);
        if (i <= forms[f].more || c < forms[f].least || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
            break;
        *at += i;
        return c;
    }
    *at += 1;
    return -1;
}

/* Invisible, or turns the reading order, or steers a terminal. */
static bool acts(long c)
{
    static const struct {
        long first, last;
    } ranges[] = {
        {-1, 0x1f},       {0x7f, 0x9f},     {0xad, 0xad},       {0x61c, 0x61c},   {0x180e, 0x180e},
        {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},   {0xfe00, 0xfe0f}, {0xfeff, 0xfeff},
        {0xfff0, 0xfffb}, {0xfffe, 0xffff}, {0xe0000, 0xe0fff},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (c >= ranges[i].first && c <= ranges[i].last)
            return true;
    return false;
}

static const char *entity(long c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    case '`':
        return "&#96;";
    default:
        return NULL;
    }
}

/* What stands for the next character of data. */
static struct pq_span piece(const char **text, bool html, bool lines)
{
    const char *from = *text;
    long c = decode(text);
    const char *instead = html ? entity(c) : NULL;
    if (c == '\n' || c == '\t')
        instead = lines ? NULL : " ";
    else if (acts(c))
        instead = "\xef\xbf\xbd";
    return instead ? pq_span_text(instead) : pq_span(from, (size_t)(*text - from));
}

static void copy(struct pq_out *o, const char *text, size_t max, bool html, bool lines)
{
    for (size_t n = 0; *text; n++) {
        if (n == max) {
            pq_out(o, "…");
            return;
        }
        struct pq_span p = piece(&text, html, lines);
        bytes(o, (const char *)p.at, p.len);
    }
}

void pq_out_clean(struct pq_out *o, const char *text, size_t max) { copy(o, text, max, false, false); }
void pq_out_html(struct pq_out *o, const char *text) { copy(o, text, PQ_TEXT_ALL, true, false); }
void pq_out_html_short(struct pq_out *o, const char *text, size_t max) { copy(o, text, max, true, false); }
void pq_out_html_lines(struct pq_out *o, const char *text) { copy(o, text, PQ_TEXT_ALL, true, true); }

void pq_out_csv(struct pq_out *o, const char *text)
{
    DEFER(pq_out_free) struct pq_out clean = {.buf.cap = o->buf.cap};
    if (*text && strchr("=+-@\t\r\n", *text))
        pq_out(&clean, "'");
    copy(&clean, text, PQ_TEXT_ALL, false, false);
    if (clean.error && o->error == 0)
        o->error = clean.error;
    const char *field = pq_out_text(&clean);
    if (!field[strcspn(field, "\",; ")]) {
        pq_out(o, field);
        return;
    }
    pq_out(o, "\"");
    for (const char *quote; (quote = strchr(field, '"')); field = quote + 1) {
        bytes(o, field, (size_t)(quote - field));
        pq_out(o, "\"\"");
    }
    pq_out(o, field);
    pq_out(o, "\"");
}

struct pq_short pq_short(const char *text)
{
    enum { CHARACTERS = 60 };
    struct pq_short s = {{0}};
    struct pq_writer w = pq_writer(s.text, sizeof s.text - 1);
    for (size_t n = 0; *text; n++) {
        struct pq_span p = n < CHARACTERS ? piece(&text, false, false) : pq_span_text("…");
        if (pq_write_bytes(&w, p) < 0 || n == CHARACTERS)
            break;
    }
    return s;
}
