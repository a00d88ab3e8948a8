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

int pq_proxy_address_resolve(struct pq_proxy_address *a, struct pq_why *why)
{
    if (a->known)
        return 0;
    int e = pq_address_parse(a->text, &a->at, why);
    if (e < 0)
        return pq_why_in(why, e, "%s", a->where);
    a->known = true;
    return 0;
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

static bool is_wildcard(const struct pq_address *a)
{
    return a->sa.ss_family == AF_INET6
               ? IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)(const void *)&a->sa)->sin6_addr)
               : ((const struct sockaddr_in *)(const void *)&a->sa)->sin_addr.s_addr == htonl(INADDR_ANY);
}

bool pq_proxy_address_collides(const struct pq_address *a, const struct pq_address *b)
{
    char x[PQ_ADDRESS_TEXT], y[PQ_ADDRESS_TEXT];
    if (a->sa.ss_family != b->sa.ss_family)
        return false;
    pq_address_text(a, x);
    pq_address_text(b, y);
    if (a->sa.ss_family == AF_UNIX)
        return strcmp(x, y) == 0;
    /* Port 0 is a port of the kernel's choice: always another. */
    return pq_address_port(a) != 0 && pq_address_port(a) == pq_address_port(b) &&
           (strcmp(x, y) == 0 || is_wildcard(a) || is_wildcard(b));
}
