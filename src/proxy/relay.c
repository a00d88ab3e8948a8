#include "proxy/relay.h"

#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "net/tcp.h"

/* A flow hands the loop back after so many turns, since other connections wait; the kernel reports it ready again. */
enum { TURNS_MAX = 8 };

const char *const pq_flow_state_names[] = {"open", "flushing", "ending", "ended", "broken"};

enum event { SOURCE_ENDED, DELIVERED, END_PASSED, SINK_GONE };

/* What each state makes of each event; STAY where the event can't come or changes nothing. */
enum { STAY = -1 };
static const int next_state[][4] = {
    /*                    SOURCE_ENDED      DELIVERED       END_PASSED     SINK_GONE */
    [PQ_FLOW_OPEN] = {PQ_FLOW_FLUSHING, STAY, STAY, PQ_FLOW_BROKEN},
    [PQ_FLOW_FLUSHING] = {STAY, PQ_FLOW_ENDING, STAY, PQ_FLOW_ENDED},
    [PQ_FLOW_ENDING] = {STAY, STAY, PQ_FLOW_ENDED, PQ_FLOW_ENDED},
    [PQ_FLOW_ENDED] = {STAY, STAY, STAY, STAY},
    [PQ_FLOW_BROKEN] = {PQ_FLOW_ENDED, STAY, STAY, STAY},
};

static void advance(struct pq_relay *r, struct pq_flow *f, enum event e)
{
    int next = next_state[f->state][e];
    if (next == STAY)
        return;
    f->state = (enum pq_flow_state)next;
    r->progress++;
}

static enum pq_relay_side other(enum pq_relay_side side)
{
    return side == PQ_RELAY_LOCAL ? PQ_RELAY_PEER : PQ_RELAY_LOCAL;
}

/* --- one side ---------------------------------------------------------------------------------------------------- */
static void blocked_read(struct pq_relay_end *s, int e)
{
    s->can_read = false;
    s->read_on = e == PQ_E_WANT_WRITE ? PQ_RELAY_WRITE : PQ_RELAY_READ;
}

static void blocked_write(struct pq_relay_end *s, int e)
{
    s->can_write = false;
    s->write_on = e == PQ_E_WANT_READ ? PQ_RELAY_READ : PQ_RELAY_WRITE;
}

static int side_read(struct pq_relay_end *s, uint8_t *at, size_t room, size_t *n)
{
    int e = s->tls ? pq_tls_read(s->tls, at, room, n) : pq_tcp_read(s->fd, at, room, n);
    if (e == PQ_E_WANT_READ || e == PQ_E_WANT_WRITE)
        blocked_read(s, e);
    else if (e == 0 && *n < room && (!s->tls || (*n < PQ_TLS_RECORD && pq_tls_pending(s->tls) == 0)))
        /* Probably drained, which a whole record is not: another is behind it. If not, the loop says so at once, and
         * one read is spared where it was. */
        s->can_read = false;
    return e;
}

/* PQ_E_CLOSED where the sink ended its own direction in order before it stopped taking ours, so that what it sent is
 * whole. On a plain socket EPIPE tells so: the kernel keeps it for a reset that comes after FIN; an earlier one is
 * ECONNRESET, after which a read would show an end of stream that was none. On TLS the end is authenticated: reading on
 * is safe. */
static int side_write(struct pq_relay_end *s, const uint8_t *at, size_t len, size_t *n)
{
    int e = s->tls ? pq_tls_write(s->tls, at, len, n) : pq_tcp_write(s->fd, at, len, n);
    if (e == PQ_E_WANT_READ || e == PQ_E_WANT_WRITE)
        blocked_write(s, e);
    else if (e == PQ_E_RESET && (s->tls || errno == EPIPE))
        e = PQ_E_CLOSED;
    return e;
}

static int side_end(struct pq_relay_end *s)
{
    if (!s->tls)
        return shutdown(s->fd, SHUT_WR) < 0 ? PQ_E_CLOSED : 0;
    int e = pq_tls_close_notify(s->tls);
    if (e == PQ_E_WANT_READ || e == PQ_E_WANT_WRITE)
        blocked_write(s, e);
    else if (e < 0)
        e = PQ_E_CLOSED;
    return e;
}

/* --- one flow ---------------------------------------------------------------------------------------------------- */
static bool has_room(const struct pq_ring *r) { return r->size - r->len >= r->size / 4; }

static bool takes_more(const struct pq_flow *f)
{
    return f->state == PQ_FLOW_BROKEN || (f->state == PQ_FLOW_OPEN && has_room(&f->ring));
}

static int fail(struct pq_relay *r, enum pq_relay_side side, int e)
{
    r->failed = side;
    return e;
}

/* The sink takes no more. Whatever it still sends is to be read to its end, which shows whether it was one. */
static void sink_gone(struct pq_relay *r, enum pq_relay_side source)
{
    struct pq_flow *f = &r->flow[source];
    r->failed = other(source);
    r->lost |= f->ring.len > 0;
    pq_ring_consume(&f->ring, f->ring.len);
    advance(r, f, SINK_GONE);
    r->end[other(source)].can_read = true;
    r->look_again = true;
}

static int fill(struct pq_relay *r, enum pq_relay_side source, bool *moved)
{
    struct pq_flow *f = &r->flow[source];
    struct pq_relay_end *s = &r->end[source];
    while (s->can_read && takes_more(f)) {
        uint8_t *at;
        size_t room, n = 0;
        TRY(pq_ring_room(&f->ring, r->pool, &at, &room));
        int e = side_read(s, at, room, &n);
        if (e == PQ_E_WANT_READ || e == PQ_E_WANT_WRITE)
            return 0;
        *moved = true;
        if (e == PQ_E_CLOSED) {
            s->can_read = false;
            advance(r, f, SOURCE_ENDED);
            return 0;
        }
        if (e < 0)
            return fail(r, source, e);
        if (f->state == PQ_FLOW_BROKEN)
            return 0; /* dropped: the ring stays empty */
        pq_ring_filled(&f->ring, n);
        r->progress++;
    }
    return 0;
}

static int drain(struct pq_relay *r, enum pq_relay_side source, bool *moved)
{
    struct pq_flow *f = &r->flow[source];
    enum pq_relay_side sink = other(source);
    struct pq_relay_end *s = &r->end[sink];
    while (s->can_write && f->ring.len) {
        size_t len, n = 0;
        const uint8_t *at = pq_ring_front(&f->ring, &len);
        int e = side_write(s, at, len, &n);
        if (e == PQ_E_WANT_READ || e == PQ_E_WANT_WRITE)
            return 0;
        *moved = true;
        if (e == PQ_E_CLOSED) {
            sink_gone(r, source);
            return 0;
        }
        if (e < 0)
            return fail(r, sink, e);
        pq_ring_consume(&f->ring, n);
        f->bytes += n;
        r->progress++;
    }
    return 0;
}

static void pass_end(struct pq_relay *r, enum pq_relay_side source)
{
    struct pq_flow *f = &r->flow[source];
    struct pq_relay_end *s = &r->end[other(source)];
    if (f->state == PQ_FLOW_FLUSHING && f->ring.len == 0)
        advance(r, f, DELIVERED);
    if (f->state != PQ_FLOW_ENDING || !s->can_write)
        return;
    int e = side_end(s);
    if (e == 0)
        advance(r, f, END_PASSED);
    else if (e == PQ_E_CLOSED)
        sink_gone(r, source);
}

static int flow_pump(struct pq_relay *r, enum pq_relay_side source)
{
    struct pq_flow *f = &r->flow[source];
    struct pq_relay_end *s = &r->end[source];
    bool more = true;
    int e = 0;
    /* Of what TLS holds already no event tells, so that much is always moved; no more is taken in for it. */
    for (int turn = 0; e == 0 && more && (turn < TURNS_MAX || s->tls); turn++) {
        more = false;
        if (turn == TURNS_MAX)
            pq_tls_hold(s->tls, true);
        e = fill(r, source, &more);
        if (e == 0)
            e = drain(r, source, &more);
    }
    if (s->tls)
        pq_tls_hold(s->tls, false);
    TRY(e);
    pass_end(r, source);
    if (f->ring.len == 0)
        pq_ring_release(&f->ring, r->pool);
    return 0;
}

/* --- both -------------------------------------------------------------------------------------------------------- */
static bool all_acknowledged(struct pq_relay *r, int fd)
{
    int waiting = 0;
    if (ioctl(fd, SIOCOUTQ, &waiting) < 0)
        return true;
    r->progress += waiting < r->unacknowledged;
    r->unacknowledged = waiting;
    return waiting == 0;
}

static bool lingers(const struct pq_relay *r, enum pq_relay_side source)
{
    return r->flow[source].state == PQ_FLOW_BROKEN && r->flow[other(source)].state == PQ_FLOW_ENDED;
}

bool pq_relay_lingers(const struct pq_relay *r) { return lingers(r, PQ_RELAY_LOCAL) || lingers(r, PQ_RELAY_PEER); }

static int outcome(struct pq_relay *r)
{
    bool both_ended = r->flow[PQ_RELAY_LOCAL].state == PQ_FLOW_ENDED && r->flow[PQ_RELAY_PEER].state == PQ_FLOW_ENDED;
    /* The source of a broken flow may learn that what it sent is lost once it has all that it was sent itself. */
    if (r->lost && (both_ended || pq_relay_lingers(r)) && all_acknowledged(r, r->end[other(r->failed)].fd))
        return PQ_E_RESET;
    return both_ended ? PQ_E_CLOSED : 0;
}

void pq_relay_init(struct pq_relay *r, int local_fd, int peer_fd, struct pq_tls *peer_tls, struct pq_ring_pool *pool)
{
    *r = (struct pq_relay){.pool = pool};
    for (int i = 0; i < 2; i++)
        r->end[i] = (struct pq_relay_end){
            .can_read = true, .can_write = true, .read_on = PQ_RELAY_READ, .write_on = PQ_RELAY_WRITE};
    r->end[PQ_RELAY_LOCAL].fd = local_fd;
    r->end[PQ_RELAY_PEER].fd = peer_fd;
    r->end[PQ_RELAY_PEER].tls = peer_tls;
}

void pq_relay_free(struct pq_relay *r)
{
    for (int i = 0; i < 2 && r->pool; i++)
        pq_ring_release(&r->flow[i].ring, r->pool);
}

int pq_relay_pump(struct pq_relay *r, enum pq_relay_side side, unsigned ready)
{
    struct pq_relay_end *s = &r->end[side];
    s->can_read |= (ready & s->read_on) != 0;
    s->can_write |= (ready & s->write_on) != 0;
    do {
        r->look_again = false; /* set at most once by each flow */
        TRY(flow_pump(r, side));
        TRY(flow_pump(r, other(side)));
    } while (r->look_again);
    return outcome(r);
}

unsigned pq_relay_wants(const struct pq_relay *r, enum pq_relay_side side)
{
    const struct pq_flow *out = &r->flow[side], *in = &r->flow[other(side)];
    unsigned wants = 0;
    if (takes_more(out))
        wants |= r->end[side].read_on;
    if (in->ring.len || in->state == PQ_FLOW_ENDING)
        wants |= r->end[side].write_on;
    return wants;
}
