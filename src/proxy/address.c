#include "proxy/address.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

/* The host part of "host:port" or "[IPv6]:port"; false where the text has no such form. */
static bool host_of(const char *text, char *host, size_t size)
{
    const char *colon = strrchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : 0;
    bool bracketed = len >= 2 && text[0] == '[' && text[len - 1] == ']';
    if (bracketed) {
        text++;
        len -= 2;
    }
    if (len == 0 || len >= size || (!bracketed && memchr(text, ':', len)))
        return false;
    memcpy(host, text, len);
    host[len] = '\0';
    return true;
}

static bool is_numeric(const char *text)
{
    char host[256];
    struct in6_addr any;
    return strncmp(text, "unix:", 5) == 0 ||
           (host_of(text, host, sizeof host) &&
            (inet_pton(AF_INET, host, &any) == 1 || inet_pton(AF_INET6, host, &any) == 1));
}

/* RFC 1123, section 2.1, and the port that follows; what looks like a number is a mistyped address. */
static bool is_name(const char *text)
{
    char host[256];
    int64_t port;
    if (!host_of(text, host, sizeof host) || pq_int_parse(strrchr(text, ':') + 1, 1, 65535, &port, NULL) < 0)
        return false;
    const char *last = strrchr(host, '.');
    if (isdigit((unsigned char)*(last ? last + 1 : host)))
        return false;
    for (const char *c = host; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '-' && *c != '_' && (*c != '.' || c == host || c[-1] == '.'))
            return false;
    return true;
}

static int fill(const struct pq_node *n, const char *text, struct pq_proxy_address *a, struct pq_why *why)
{
    if (is_numeric(text)) {
        struct pq_why inner = {""};
        int e = pq_address_parse(text, &a->at, &inner);
        if (e == PQ_E_NOMEM)
            return e;
        if (e < 0)
            return pq_node_why(n, why, "%s", inner.text);
        a->known = true;
    } else if (!is_name(text)) {
        return pq_node_why(n, why, "\"%.80s\" is no address: write host:port, [IPv6]:port or unix:/path", text);
    }
    struct pq_why where = {""};
    (void)pq_node_why(n, &where, "%s", "");
    char *end = strrchr(where.text, ':');
    if (end)
        *end = '\0';
    a->text = strdup(text);
    a->where = strdup(where.text);
    return a->text && a->where ? 0 : PQ_E_NOMEM;
}

int pq_proxy_address_read(const struct pq_node *n, void *out, struct pq_why *why)
{
    const char *text = pq_node_text(n);
    if (!text)
        return pq_node_why(n, why, "an address is a single text, host:port, [IPv6]:port or unix:/path");
    struct pq_proxy_address a = {0};
    int e = fill(n, text, &a, why);
    if (e < 0)
        pq_proxy_address_free(&a);
    else
        memcpy(out, &a, sizeof a);
    return e;
}

int pq_proxy_address_read_numeric(const struct pq_node *n, void *out, struct pq_why *why)
{
    const char *text = pq_node_text(n);
    if (text && !is_numeric(text) && is_name(text))
        return pq_node_why(n, why, "listen: \"%.80s\" is a name; a listener needs the number that it stands for", text);
    return pq_proxy_address_read(n, out, why);
}

void pq_proxy_address_free(void *address)
{
    struct pq_proxy_address *a = address;
    free(a->text);
    free(a->where);
    *a = (struct pq_proxy_address){0};
}

bool pq_proxy_address_is_local(const struct pq_address *a)
{
    const struct sockaddr_in *in = (const void *)&a->sa;
    const struct sockaddr_in6 *in6 = (const void *)&a->sa;
    switch (a->sa.ss_family) {
    case AF_UNIX:
        return true;
    case AF_INET:
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    case AF_INET6:
        return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) ||
               (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr) && in6->sin6_addr.s6_addr[12] == 127);
    default:
        return false;
    }
}

/* IPv4 in its mapped form, so that one comparison serves both families. */
static struct in6_addr host_bytes(const struct pq_address *a)
{
    const struct sockaddr_in *in = (const void *)&a->sa;
    struct in6_addr host = {0};
    if (a->sa.ss_family == AF_INET6)
        return ((const struct sockaddr_in6 *)(const void *)&a->sa)->sin6_addr;
    host.s6_addr[10] = host.s6_addr[11] = 0xff;
    memcpy(&host.s6_addr[12], &in->sin_addr, sizeof in->sin_addr);
    return host;
}

static bool is_any_v4(const struct in6_addr *h)
{
    static const uint8_t none[4];
    return IN6_IS_ADDR_V4MAPPED(h) && memcmp(&h->s6_addr[12], none, sizeof none) == 0;
}

/* A listener on [::] takes IPv4's port, too (ipv6(7), IPV6_V6ONLY off). */
static bool covers(const struct in6_addr *listener, const struct in6_addr *host)
{
    return IN6_IS_ADDR_UNSPECIFIED(listener) || (is_any_v4(listener) && IN6_IS_ADDR_V4MAPPED(host)) ||
           IN6_ARE_ADDR_EQUAL(listener, host);
}

static bool same_path(const struct pq_address *a, const struct pq_address *b)
{
    return a->sa.ss_family == AF_UNIX && b->sa.ss_family == AF_UNIX &&
           strcmp(((const struct sockaddr_un *)(const void *)&a->sa)->sun_path,
                  ((const struct sockaddr_un *)(const void *)&b->sa)->sun_path) == 0;
}

/* Port 0 is a port of the kernel's choice: always another. */
static bool same_port(const struct pq_address *a, const struct pq_address *b)
{
    return pq_address_port(a) != 0 && pq_address_port(a) == pq_address_port(b);
}

bool pq_proxy_address_collides(const struct pq_address *a, const struct pq_address *b)
{
    if (!same_port(a, b))
        return same_path(a, b);
    struct in6_addr x = host_bytes(a), y = host_bytes(b);
    return covers(&x, &y) || covers(&y, &x);
}

bool pq_proxy_address_reaches(const struct pq_address *target, const struct pq_address *listener)
{
    if (!same_port(target, listener))
        return same_path(target, listener);
    struct in6_addr to = host_bytes(target), at = host_bytes(listener);
    /* Linux connects to loopback where asked for the address that stands for any. */
    if (IN6_IS_ADDR_UNSPECIFIED(&to))
        to = in6addr_loopback;
    else if (is_any_v4(&to))
        to.s6_addr[12] = 127, to.s6_addr[15] = 1;
    bool loopback = IN6_IS_ADDR_LOOPBACK(&to) || (IN6_IS_ADDR_V4MAPPED(&to) && to.s6_addr[12] == 127);
    return IN6_ARE_ADDR_EQUAL(&to, &at) || (loopback && covers(&at, &to));
}

/* --- paths ------------------------------------------------------------------------------------------------------- */
/* "./" and a second slash say nothing; ".." may lead through a link and stays. */
static void tidy(char *path)
{
    char *to = path;
    for (const char *from = path; *from;) {
        bool starts = to == path || to[-1] == '/';
        if (starts && from[0] == '.' && from[1] == '/')
            from += 1 + strspn(from + 1, "/");
        else if (*from == '/' && to > path && to[-1] == '/')
            from++;
        else
            *to++ = *from++;
    }
    *to = '\0';
}

int pq_proxy_address_beside(struct pq_proxy_address *a, const char *file, struct pq_why *why)
{
    if (!a->known || a->at.sa.ss_family != AF_UNIX)
        return 0;
    const char *path = ((const struct sockaddr_un *)(const void *)&a->at.sa)->sun_path, *slash = strrchr(file, '/');
    int folder = *path != '/' && slash ? (int)(slash - file + 1) : 0;
    DEFER(pq_freep) char *text = NULL;
    if (asprintf(&text, "unix:%.*s%s", folder, file, path) < 0) {
        text = NULL;
        return PQ_E_NOMEM;
    }
    tidy(text + strlen("unix:"));
    struct pq_why inner = {""};
    int e = pq_address_parse(text, &a->at, &inner);
    return e < 0 ? pq_why(why, PQ_E_CONFIG, "%s: %s: %s, with the folder of this file where it is relative", a->where,
                          text, inner.text)
                 : 0;
}
