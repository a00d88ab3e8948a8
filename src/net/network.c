#include "net/network.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/config.h"

enum { MAPPED_BITS = 96 };

static struct in6_addr mapped(const void *v4)
{
    struct in6_addr a = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    memcpy(&a.s6_addr[12], v4, 4);
    return a;
}

static bool is_bit(const struct in6_addr *a, unsigned i) { return a->s6_addr[i / 8] >> (7 - i % 8) & 1; }

static int parse_bits(const char *text, const char *digits, unsigned first, unsigned *bits, struct pq_why *why)
{
    int64_t n = 128 - first;
    if (digits && pq_int_parse(digits, 0, n, &n, NULL) < 0)
        return pq_why(why, PQ_E_INVALID, "\"%.60s\": the prefix after '/' is a number from 0 to %u", text, 128 - first);
    *bits = first + (unsigned)n;
    return 0;
}

static int check_rest(const char *text, const struct pq_network *n, struct pq_why *why)
{
    struct pq_network right = *n;
    char should[PQ_NETWORK_TEXT];
    bool beyond = false;
    for (unsigned i = n->bits; i < 128; i++) {
        beyond |= is_bit(&n->host, i);
        right.host.s6_addr[i / 8] &= (uint8_t)~(1 << (7 - i % 8));
    }
    pq_network_text(&right, should);
    return beyond ? pq_why(why, PQ_E_INVALID, "\"%.60s\" has bits beyond its prefix: write %s", text, should) : 0;
}

int pq_network_parse(const char *text, struct pq_network *out, struct pq_why *why)
{
    char host[INET6_ADDRSTRLEN];
    const char *slash = strchr(text, '/');
    size_t len = slash ? (size_t)(slash - text) : strlen(text);
    struct in_addr v4;
    struct pq_network n;
    snprintf(host, sizeof host, "%.*s", (int)(len < sizeof host ? len : 0), text);
    bool is_v4 = inet_pton(AF_INET, host, &v4) == 1;
    if (is_v4)
        n.host = mapped(&v4);
    else if (inet_pton(AF_INET6, host, &n.host) != 1)
        return pq_why(why, PQ_E_INVALID, "\"%.60s\" is no network: write 198.18.0.0/15 or fd00::/8", text);
    TRY(parse_bits(text, slash ? slash + 1 : NULL, is_v4 ? MAPPED_BITS : 0, &n.bits, why));
    if (!is_v4 && IN6_IS_ADDR_V4MAPPED(&n.host) && n.bits >= MAPPED_BITS)
        return pq_why(why, PQ_E_INVALID, "\"%.60s\" is of IPv4: write it as 198.18.0.0/15", text);
    TRY(check_rest(text, &n, why));
    *out = n;
    return 0;
}

bool pq_network_is_v4(const struct pq_network *n) { return n->bits >= MAPPED_BITS && IN6_IS_ADDR_V4MAPPED(&n->host); }

void pq_network_text(const struct pq_network *n, char out[PQ_NETWORK_TEXT])
{
    char host[INET6_ADDRSTRLEN] = "";
    bool v4 = pq_network_is_v4(n);
    inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? &n->host.s6_addr[12] : n->host.s6_addr, host, sizeof host);
    snprintf(out, PQ_NETWORK_TEXT, "%s/%u", host, v4 ? n->bits - MAPPED_BITS : n->bits);
}

static bool same_bits(const struct in6_addr *a, const struct in6_addr *b, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (is_bit(a, i) != is_bit(b, i))
            return false;
    return true;
}

bool pq_network_overlaps(const struct pq_network *a, const struct pq_network *b)
{
    return pq_network_is_v4(a) == pq_network_is_v4(b) &&
           same_bits(&a->host, &b->host, a->bits < b->bits ? a->bits : b->bits);
}

bool pq_network_holds(const struct pq_network *n, const struct pq_address *a)
{
    struct in6_addr host;
    if (a->sa.ss_family == AF_INET)
        host = mapped(&((const struct sockaddr_in *)(const void *)&a->sa)->sin_addr);
    else if (a->sa.ss_family == AF_INET6)
        host = ((const struct sockaddr_in6 *)(const void *)&a->sa)->sin6_addr;
    else
        return false;
    /* "::/0" is every IPv6 address; that IPv4 is held in the same form here is no reason to be in it. */
    if (IN6_IS_ADDR_V4MAPPED(&host) != pq_network_is_v4(n))
        return false;
    return same_bits(&host, &n->host, n->bits);
}
