#include "proxy/admin_request.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* The next line without its end; "-" stands for a field that is not there. */
static char *next_line(const uint8_t **at, size_t *left)
{
    const uint8_t *end = memchr(*at, '\n', *left);
    size_t len = end ? (size_t)(end - *at) : *left;
    char *line = strndup((const char *)*at, len);
    *at += len + (end != NULL);
    *left -= len + (end != NULL);
    return line;
}

static const char *field(const char *line) { return line && strcmp(line, "-") != 0 ? line : NULL; }

/* Only digits, dots, colons, hexadecimal letters and brackets, or localhost with a port: no name of somebody's. */
static bool harmless(const char *host)
{
    return strncasecmp(host, "localhost", 9) == 0 ? strspn(host + 9, ":0123456789") == strlen(host + 9)
                                                  : strspn(host, "0123456789abcdefABCDEF.:[]") == strlen(host);
}

/* What comes from the network in one request: method, path, and the fields that decide, a line each; then a body. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    char *lines[6];
    for (size_t i = 0; i < PQ_COUNT(lines); i++)
        lines[i] = next_line(&bytes, &len);
    struct pq_admin_request r = {.method = lines[0] ? lines[0] : "",
                                 .path = lines[1] ? lines[1] : "",
                                 .host = field(lines[2]),
                                 .origin = field(lines[3]),
                                 .fetch_site = field(lines[4]),
                                 .length = field(lines[5])};
    for (int over_unix = 0; over_unix < 2; over_unix++) {
        r.unix_socket = over_unix;
        struct pq_admin_verdict v = pq_admin_judge(&r);
        bool changes = v.action == PQ_ADMIN_DRAIN || v.action == PQ_ADMIN_RELOAD || v.action == PQ_ADMIN_SET_LOG_LEVEL;
        if ((v.status == 0) != (v.error == NULL) || (v.status == 405) != (v.allow != NULL))
            abort();
        if (v.status == 0 && !over_unix && r.host && !harmless(r.host))
            abort();
        if (v.status == 0 && changes && r.origin && (!r.host || strcasecmp(r.origin + strlen("http://"), r.host) != 0))
            abort();
        if (v.status == 0 && changes && strcmp(r.method, "GET") == 0)
            abort();
    }
    int level = pq_admin_level(pq_span(bytes, len));
    if (level < -1 || level > PQ_LOG_DEBUG)
        abort();
    for (size_t i = 0; i < PQ_COUNT(lines); i++)
        free(lines[i]);
    return 0;
}
