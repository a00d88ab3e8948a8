/* An ingress's end of a tunnel is fed raw bytes, as a peer that has authenticated could send them, then the end of the
 * stream. */
#include <ev.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "proxy/shared.h"
#include "proxy/tunnel.h"
#include "proxy/upstream.h"

enum { TURNS = 200, INPUT_MAX = 64 * 1024 /* what a socket pair takes at once */ };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct ev_loop *loop;
static struct pq_proxy_config config;
static struct pq_shared *shared;
static struct pq_connections set;
static struct pq_route route;
static int function = -1;

static void set_up(void)
{
    static char text[512];
    char at[PQ_ADDRESS_TEXT];
    struct pq_address any, bound;
    pq_log_set(PQ_LOG_ERROR - 1, PQ_LOG_LOGFMT);
    if (pq_address_parse("127.0.0.1:0", &any, NULL) < 0 || pq_tcp_listen(&any, 0, &function, NULL) < 0)
        abort();
    bound = pq_address_local(function);
    pq_address_text(&bound, at);
    snprintf(text, sizeof text,
             "tls: {certificate: a, key: b, ca: c}\nlimits: {buffer: 4KiB, connections: 100}\n"
             "ingress: [{name: f, listen: '127.0.0.1:0', forward: '%s', authorities: [nrf]}]\n",
             at);
    loop = ev_loop_new(EVFLAG_AUTO);
    if (!loop || pq_proxy_config_parse("f.yaml", text, strlen(text), &config, NULL) < 0 ||
        pq_proxy_config_resolve(&config, &pq_lookup_system, NULL) < 0 || pq_shared_new(&shared) < 0 ||
        pq_connections_init(&set, loop, &config, shared, 0, NULL) < 0)
        abort();
    route.how = pq_proxy_listener_at(&config, 0);
    if (pq_upstream_new(&route.how->target, &route.upstream) < 0)
        abort();
}

/* The function answers what it is sent with a few bytes, and closes. */
static void serve(void)
{
    char bytes[4096];
    int fd;
    while (pq_tcp_accept(function, &fd, NULL) == 0) {
        ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n > 0)
            n = send(fd, bytes, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
        close(fd);
    }
}

static void turn(int fd)
{
    uint8_t bytes[4096];
    ev_run(loop, EVRUN_NOWAIT);
    serve();
    while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct pq_address from = {.sa.ss_family = AF_UNIX};
    int ends[2];
    if (!loop)
        set_up();
    if (size > INPUT_MAX)
        return 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) < 0)
        abort();
    pq_tunnel_serve(&set, &route, ends[0], NULL, &from);
    /* In two pieces, so that frames are cut at any place. */
    size_t half = size / 2;
    for (size_t sent = 0; sent < size;) {
        size_t end = sent < half ? half : size;
        ssize_t n = send(ends[1], data + sent, end - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n <= 0)
            break;
        sent += (size_t)n;
        turn(ends[1]);
    }
    for (int i = 0; i < 3; i++)
        turn(ends[1]);
    close(ends[1]);
    for (int i = 0; i < TURNS && pq_tunnel_count(&set); i++) {
        ev_run(loop, EVRUN_NOWAIT);
        serve();
    }
    /* Whatever came, the end of its stream ends the tunnel; a stream may still wait for the function. */
    if (pq_tunnel_count(&set))
        abort();
    pq_tunnel_end_all(&set, PQ_PROXY_DRAIN);
    if (set.count)
        abort();
    set.draining = false;
    return 0;
}
