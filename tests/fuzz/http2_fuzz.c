/* An HTTP/2 server with a network function behind it is fed raw bytes, then the end of stream. */
#include <ev.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "core5g/nrf.h"
#include "http2/server.h"

enum { TURNS = 2000, INPUT_MAX = 64 * 1024 /* what a socket pair takes at once */ };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct ev_loop *loop;
static struct pq_http2_server *server;
static struct pq_function function;
static struct pq_sbi_router router;

static void set_up(void)
{
    const struct pq_nrf_settings nrf = {.heartbeat_ns = 1000000000, .instances = 3, .instance_type = "UDM"};
    struct pq_http2_server_settings s = {
        .name = "fuzz", .request = pq_sbi_serve, .context = &router, .limits = {.body = 4096}};
    signal(SIGPIPE, SIG_IGN);
    pq_log_set(PQ_LOG_ERROR, PQ_LOG_LOGFMT);
    loop = ev_loop_new(EVFLAG_AUTO);
    if (!loop || pq_nrf_new(&nrf, &function, NULL) < 0 || pq_address_parse("127.0.0.1:0", &s.address, NULL) < 0)
        abort();
    router = (struct pq_sbi_router){function.routes, function.route_count, function.self};
    if (pq_http2_server_new(loop, &s, &server, NULL) < 0)
        abort();
}

static void drain(int fd)
{
    uint8_t bytes[4096];
    while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int ends[2];
    if (!server)
        set_up();
    if (size > INPUT_MAX)
        return 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) < 0)
        abort();
    if (pq_http2_server_adopt(server, ends[0]) < 0)
        abort();
    /* In two pieces, so that frames are cut at any place. */
    size_t half = size / 2;
    for (size_t sent = 0; sent < size;) {
        size_t end = sent < half ? half : size;
        ssize_t n = send(ends[1], data + sent, end - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n <= 0)
            break;
        sent += (size_t)n;
        ev_run(loop, EVRUN_NOWAIT);
        drain(ends[1]);
    }
    shutdown(ends[1], SHUT_WR);
    for (int i = 0; i < TURNS && pq_http2_server_counts(server).open; i++) {
        ev_run(loop, EVRUN_NOWAIT);
        drain(ends[1]);
    }
    close(ends[1]);
    for (int i = 0; i < TURNS && pq_http2_server_counts(server).open; i++)
        ev_run(loop, EVRUN_NOWAIT);
    /* Whatever came, the end of its stream ends the connection. */
    if (pq_http2_server_counts(server).open)
        abort();
    return 0;
}
