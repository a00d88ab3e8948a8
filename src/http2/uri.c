#include "http2/uri.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

static bool is_unreserved(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_' || c == '~';
}

static bool is_host_char(uint8_t c) { return is_unreserved(c); }

/* What may stand in a path or query as it is (RFC 3986: pchar, "/", "?"), '%' apart; TS 29.510 clients also send JSON's
 * quotes, braces and brackets bare, which hurt nobody. */
static bool is_path_char(uint8_t c) { return c > ' ' && c < 0x7f && c != '#'; }

static int hex_value(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Takes "host" or "[v6]" off the authority. */
static int take_host(struct pq_span *in, struct pq_span *host)
{
    size_t n = 0;
    if (in->len && in->at[0] == '[') {
        while (n < in->len && in->at[n] != ']')
            n++;
        if (n == in->len || n < 3)
            return PQ_E_SYNTAX;
        *host = pq_span(in->at + 1, n - 1);
        for (size_t i = 0; i < host->len; i++)
            if (hex_value(host->at[i]) < 0 && host->at[i] != ':' && host->at[i] != '.')
                return PQ_E_SYNTAX;
        *in = pq_span(in->at + n + 1, in->len - n - 1);
        return 0;
    }
    while (n < in->len && is_host_char(in->at[n]))
        n++;
    if (n == 0 || n > 253)
        return PQ_E_SYNTAX;
    *host = pq_span(in->at, n);
    *in = pq_span(in->at + n, in->len - n);
    return 0;
}

static int parse_port(struct pq_span in, uint16_t *out)
{
    unsigned v = 0;
    if (in.len < 2 || in.len > 6 || in.at[0] != ':')
        return PQ_E_SYNTAX;
    for (size_t i = 1; i < in.len; i++) {
        if (in.at[i] < '0' || in.at[i] > '9')
            return PQ_E_SYNTAX;
        v = v * 10 + (unsigned)(in.at[i] - '0');
    }
    if (v == 0 || v > 65535)
        return PQ_E_SYNTAX;
    *out = (uint16_t)v;
    return 0;
}

static int check_path(struct pq_span in)
{
    for (size_t i = 0; i < in.len; i++)
        if (!is_path_char(in.at[i]))
            return PQ_E_SYNTAX;
    return 0;
}

int pq_uri_split_path(const char *text, struct pq_span *path, struct pq_span *query)
{
    size_t len = strlen(text);
    if (len == 0 || text[0] != '/')
        return PQ_E_SYNTAX;
    if (len > PQ_URI_MAX)
        return PQ_E_TOO_LONG;
    TRY(check_path(pq_span(text, len)));
    const char *mark = strchr(text, '?');
    *path = pq_span(text, mark ? (size_t)(mark - text) : len);
    *query = mark ? pq_span(mark + 1, len - path->len - 1) : pq_span("", 0);
    return 0;
}

int pq_uri_parse(const char *text, struct pq_uri *out)
{
    struct pq_uri u = {0};
    size_t len = strlen(text);
    if (len > PQ_URI_MAX)
        return PQ_E_TOO_LONG;
    u.tls = strncmp(text, "https://", 8) == 0;
    if (!u.tls && strncmp(text, "http://", 7) != 0)
        return PQ_E_SYNTAX;
    const char *at = text + (u.tls ? 8 : 7);
    struct pq_span rest = pq_span(at, strcspn(at, "/?"));
    TRY(take_host(&rest, &u.host));
    u.port = u.tls ? 443 : 80;
    if (rest.len)
        TRY(parse_port(rest, &u.port));
    at += strcspn(at, "/?");
    u.path = pq_span(at, 0);
    u.query = pq_span("", 0);
    if (*at == '/')
        TRY(pq_uri_split_path(at, &u.path, &u.query));
    else if (*at == '?') {
        u.query = pq_span(at + 1, strlen(at + 1));
        TRY(check_path(u.query));
    }
    *out = u;
    return 0;
}

int pq_uri_authority(const struct pq_uri *u, char *out, size_t size)
{
    bool v6 = u->host.len && memchr(u->host.at, ':', u->host.len);
    int n = snprintf(out, size, v6 ? "[%.*s]:%u" : "%.*s:%u", (int)u->host.len, (const char *)u->host.at, u->port);
    return n > 0 && (size_t)n < size ? 0 : PQ_E_TOO_LONG;
}

/* The byte at *i, which moves behind it; negative where the encoding is bad. */
static int next_byte(struct pq_span in, size_t *i)
{
    int v = in.at[(*i)++];
    if (v != '%')
        return v;
    if (in.len - *i < 2)
        return PQ_E_SYNTAX;
    int high = hex_value(in.at[*i]), low = hex_value(in.at[*i + 1]);
    *i += 2;
    return high < 0 || low < 0 || (high | low) == 0 ? PQ_E_SYNTAX : high << 4 | low;
}

int pq_uri_decode(struct pq_span in, char *out, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < in.len; n++)
        TRY(next_byte(in, &i));
    if (n >= size)
        return PQ_E_TOO_LONG;
    n = 0;
    for (size_t i = 0; i < in.len;)
        out[n++] = (char)next_byte(in, &i);
    out[n] = '\0';
    return 0;
}

int pq_uri_encode(struct pq_buf *b, const char *text)
{
    size_t before = b->len;
    for (const char *p = text; *p; p++) {
        int e = is_unreserved((uint8_t)*p) ? pq_buf_append(b, p, 1) : pq_buf_printf(b, "%%%02X", (uint8_t)*p);
        if (e < 0) {
            b->len = before;
            return e;
        }
    }
    return 0;
}

int pq_uri_next_parameter(struct pq_span *query, struct pq_span *name, struct pq_span *value)
{
    struct pq_span rest = *query;
    while (rest.len && rest.at[0] == '&')
        rest = pq_span(rest.at + 1, rest.len - 1);
    if (rest.len == 0)
        return PQ_E_NOT_FOUND;
    const uint8_t *end = memchr(rest.at, '&', rest.len);
    size_t len = end ? (size_t)(end - rest.at) : rest.len;
    const uint8_t *equals = memchr(rest.at, '=', len);
    size_t name_len = equals ? (size_t)(equals - rest.at) : len;
    if (name_len == 0)
        return PQ_E_SYNTAX;
    *name = pq_span(rest.at, name_len);
    *value = equals ? pq_span(equals + 1, len - name_len - 1) : pq_span("", 0);
    *query = pq_span(rest.at + len, rest.len - len);
    return 0;
}
