#include "core5g/identity.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

/* Takes digits up to '-' or the end; moves *at behind them. */
static int digits(const char **at, size_t low, size_t high, char *out)
{
    size_t n = 0;
    while (isdigit((unsigned char)(*at)[n]))
        n++;
    if (n < low || n > high || ((*at)[n] != '-' && (*at)[n] != '\0'))
        return PQ_E_SYNTAX;
    memcpy(out, *at, n);
    out[n] = '\0';
    *at += n + ((*at)[n] == '-');
    return 0;
}

static int parse_suci(const char *at, char supi[PQ_SUPI_MAX])
{
    char mcc[4], mnc[4], routing[5], scheme[2], key[4], msin[11], text[PQ_SUPI_MAX + 16];
    TRY(digits(&at, 3, 3, mcc));
    TRY(digits(&at, 2, 3, mnc));
    TRY(digits(&at, 1, 4, routing));
    TRY(digits(&at, 1, 1, scheme));
    if (strcmp(scheme, "0") != 0)
        return PQ_E_UNSUPPORTED;
    TRY(digits(&at, 1, 3, key));
    TRY(digits(&at, 1, 10, msin));
    if (*at || at[-1] == '-')
        return PQ_E_SYNTAX;
    int n = snprintf(text, sizeof text, "imsi-%s%s%s", mcc, mnc, msin);
    if (n >= PQ_SUPI_MAX)
        return PQ_E_SYNTAX;
    memcpy(supi, text, (size_t)n + 1);
    return 0;
}

int pq_supi_parse(const char *text, char supi[PQ_SUPI_MAX])
{
    char imsi[16];
    if (strncmp(text, "suci-0-", 7) == 0)
        return parse_suci(text + 7, supi);
    if (strncmp(text, "imsi-", 5) != 0)
        return PQ_E_SYNTAX;
    const char *at = text + 5;
    TRY(digits(&at, 5, 15, imsi));
    if (*at || at[-1] == '-')
        return PQ_E_SYNTAX;
    memcpy(supi, text, strlen(text) + 1);
    return 0;
}

bool pq_network_name_is_valid(const char *text)
{
    static const char pattern[] = "5G:mnc###.mcc###.3gppnetwork.org";
    size_t i = 0;
    for (; pattern[i]; i++)
        if (pattern[i] == '#' ? !isdigit((unsigned char)text[i]) : text[i] != pattern[i])
            return false;
    return text[i] == '\0';
}

static int nibble(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int pq_hex_read(const char *text, uint8_t *out, size_t size)
{
    if (strlen(text) != 2 * size)
        return PQ_E_SYNTAX;
    for (size_t i = 0; i < 2 * size; i++)
        if (nibble(text[i]) < 0)
            return PQ_E_SYNTAX;
    for (size_t i = 0; i < size; i++)
        out[i] = (uint8_t)(nibble(text[2 * i]) << 4 | nibble(text[2 * i + 1]));
    return 0;
}

void pq_hex_write(const uint8_t *in, size_t size, char *out)
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < size; i++) {
        out[2 * i] = hex[in[i] >> 4];
        out[2 * i + 1] = hex[in[i] & 15];
    }
    out[2 * size] = '\0';
}
