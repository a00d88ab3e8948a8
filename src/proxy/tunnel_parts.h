/* tunnel_parts.h - what the files of the tunnel share: a loop's tunnels, one tunnel, one stream.
 *
 * In one turn of the loop, events only mark what they touched. Then, before the loop waits again, each touched tunnel
 * is pumped once: nghttp2 asks the streams for data, which are read from the local sockets straight into the tunnel's
 * buffer behind their frame's head, and all frames of the turn leave in as few TLS records as they fit.
 *
 * Spec:   see tunnel.h. Nothing is freed inside nghttp2's callbacks: they mark a stream, the pump ends it.
 * Owns:   see tunnel.h. A stream lives until its local descriptor is closed and nghttp2 has closed it too.
 * Errors: functions that say so return false where the tunnel or stream has ended, and is no more.
 */
#ifndef PQ_PROXY_TUNNEL_PARTS_H
#define PQ_PROXY_TUNNEL_PARTS_H

#include <ev.h>
#include <netinet/in.h>
#include <nghttp2/nghttp2.h>
#include <sys/queue.h>
#include <sys/uio.h>

#include "proxy/doom.h"
#include "proxy/relay.h"
#include "proxy/tunnel.h"

enum {
    PQ_TUNNEL_FRAME_HEAD = 9,       /* RFC 9113, section 4.1 */
    PQ_TUNNEL_OUT = 64 << 10,       /* bytes of DATA frames that are gathered before they are sent */
    PQ_TUNNEL_OUT_SPARE = 32 << 10, /* room for other frames beside them */
    PQ_TUNNEL_IN = 64 << 10,        /* bytes that are read before they are looked at */
    PQ_TUNNEL_STREAMS = 1 << 15,    /* of one tunnel; limits.connections may be less */
    PQ_TUNNEL_AUTHORITY = 256,
    PQ_TUNNEL_CALM = 4000, /* what a peer may cost at once: see pq_tunnel_spend() */
    PQ_TUNNEL_GATHER = 16, /* pieces of one stream that are written together */
};

/* An address in little room: of a unix socket only that it is one. */
struct pq_tunnel_address {
    struct sockaddr_in6 at;
    socklen_t len;
};

TAILQ_HEAD(pq_carried_list, pq_carried);
TAILQ_HEAD(pq_tunnel_list, pq_tunnel);

/* All tunnels of one loop, and what they share. */
struct pq_tunnel_loop {
    struct pq_connections *set;
    ev_prepare flush;
    ev_idle again; /* active while there is more to pump, so that the loop does not wait */
    ev_timer sweep;
    struct pq_ring_pool rings;
    struct pq_tunnel_list tunnels, dirty;
    struct pq_carried_list streams; /* whose local descriptor is open */
    TAILQ_HEAD(, pq_tunnels) egress;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    uint8_t *in;    /* PQ_TUNNEL_IN bytes */
    uint8_t *spare; /* an out buffer that no tunnel holds; may be NULL */
    struct {        /* what came for one stream and is written together */
        struct pq_carried *stream;
        struct iovec at[PQ_TUNNEL_GATHER];
        int count;
    } gather;
    double now; /* monotonic, in seconds: this turn's */
    int64_t tunnel_count, last_id;
    /* The next ones that pq_tunnel_rows() tells of. */
    struct pq_tunnel *listed_tunnel;
    struct pq_carried *listed_stream;
    uint64_t turn;
    int64_t timed; /* streams that wait for a time: for a tunnel, for their function, for an acknowledgement */
};

/* CONNECTING -> HANDSHAKE -> PROVING -> OPEN -> DRAINING -> CLOSING -> ENDED; an ingress's begins with OPEN. */
enum pq_tunnel_state {
    PQ_TUNNEL_CONNECTING,
    PQ_TUNNEL_HANDSHAKE,
    PQ_TUNNEL_PROVING, /* the peer has not yet shown that it accepted our certificate: its SETTINGS do */
    PQ_TUNNEL_OPEN,
    PQ_TUNNEL_DRAINING, /* no new streams */
    PQ_TUNNEL_CLOSING,  /* close_notify went out; the peer's end is awaited */
    PQ_TUNNEL_ENDED
};
extern const char *const pq_tunnel_state_names[];

struct pq_tunnel {
    TAILQ_ENTRY(pq_tunnel) of_loop, of_dirty, of_owner;
    struct pq_tunnel_loop *loop;
    struct pq_route *route;
    struct pq_tunnels *owner; /* NULL: an ingress's */
    int64_t id;
    enum pq_tunnel_state state;
    struct pq_address peer;
    int fd; /* -1: none */
    struct pq_tls *tls;
    struct pq_handshake handshake;
    struct pq_upstream_try attempt;
    ev_io io;
    unsigned watched;
    ev_timer timer;       /* of the state */
    struct pq_doom *doom; /* NULL: a reload allows the peer still */
    nghttp2_session *h2;
    struct {
        uint8_t *at; /* PQ_TUNNEL_OUT + PQ_TUNNEL_OUT_SPARE bytes, or NULL while it holds nothing */
        size_t len, sent;
    } out;
    bool can_read, can_write;
    unsigned read_on, write_on; /* which readiness lets the next read or write go on */
    bool dirty, said_last;
    bool aged;      /* another takes its place as soon as that is open */
    bool abandoned; /* in its handshake: it ends once the thread has given it back */
    bool room;      /* a stream ended */
    bool said_goaway;
    uint32_t said_error; /* of our GOAWAY */
    size_t came;         /* bytes whose window on the connection is not yet given back */
    bool more;           /* there is more to send than found room */
    bool starved;        /* memory ran out where nothing could be said */
    struct pq_carried_list touched;
    struct pq_carried_list gone;    /* local side done, nghttp2's not */
    uint64_t flushed;               /* the loop's turn when it was last pumped */
    int64_t streams, carried, lost; /* open in nghttp2; ever; died with the tunnel */
    uint64_t round;
    uint64_t up, down;
    struct { /* the head of a request that is coming in */
        char authority[PQ_TUNNEL_AUTHORITY];
        size_t bytes;
        bool connect, other_method;
    } request;
    struct { /* what a peer may do that moves nothing */
        double left;
        double at;
        const char *broken; /* the frame that was one too many */
    } calm;
    double heard, asked; /* when something came last; when PING went out that is not answered, or 0 */
    uint32_t goaway;     /* the peer's error code */
    bool goaway_came, settings_came;
    int64_t started, took_connect, took_handshake, phase_started; /* ns */
    char lost_text[512];                                          /* addresses of lost local connections */
};

struct pq_carried {
    TAILQ_ENTRY(pq_carried) of_loop, of_touched, of_waiting;
    struct pq_tunnel_loop *loop;
    struct pq_route *route;
    struct pq_tunnels *owner; /* an egress's; NULL: an ingress's */
    struct pq_tunnel *tunnel; /* NULL: none yet, or no longer */
    int64_t tunnel_id;
    int32_t id; /* 0: not one of nghttp2's */
    int fd;     /* -1: none */
    bool news;  /* its state changed since the last step */
    bool done;  /* the local side is closed */
    ev_io io;
    uint8_t watched;
    bool touched, waiting, connecting, timed;
    bool can_read;       /* the local socket may have more */
    bool deferred;       /* nghttp2 does not ask until it is told to */
    bool answered;       /* 2xx: the function is connected */
    bool lost;           /* bytes were dropped, since their sink had gone */
    bool over;           /* ends with why */
    bool suspect;        /* a sweep found it idle */
    bool again;          /* refused unseen: another tunnel may take it */
    uint8_t out, in;     /* enum pq_flow_state: to the tunnel, to the local socket */
    uint8_t why, gone;   /* enum pq_proxy_end: of the end; of the side that takes no more */
    uint8_t tries;       /* tunnels that refused it */
    uint16_t status;     /* of the answer */
    uint32_t code;       /* to be sent with RST_STREAM, or the peer's */
    uint64_t round;      /* of the tunnel when it last gave data */
    int unacknowledged;  /* bytes that the local kernel still held when last looked at */
    struct pq_ring ring; /* to the local socket */
    uint64_t pulled;     /* bytes given to the tunnel */
    uint64_t delivered;  /* to the local socket */
    size_t taken;        /* bytes whose window on the stream is not yet given back */
    double active;       /* when something last moved */
    double deadline;     /* for a tunnel or the function */
    int64_t started, took_connect;
    struct pq_tunnel_address local;
    struct pq_upstream_try attempt; /* to connect to the function */
    char *detail;                   /* owned; may be NULL */
};

/* --- a loop's ----------------------------------------------------------------------------------------------------- */
/* Made when it is first needed. NULL: out of memory. */
struct pq_tunnel_loop *pq_tunnel_loop_of(struct pq_connections *set);
void pq_tunnel_loop_clock(struct pq_tunnel_loop *l);
void pq_tunnel_loop_use(struct pq_connections *set, const struct pq_generation *g);
/* Streams that wait for a time are looked at ten times a second, others seldom. */
void pq_tunnel_loop_timed(struct pq_tunnel_loop *l, struct pq_carried *s, bool on);

/* Before it leaves its loop's list, so that a listing goes on behind it. */
void pq_tunnel_unlist(struct pq_tunnel *t);
void pq_carried_unlist(struct pq_carried *s);

/* --- a tunnel's --------------------------------------------------------------------------------------------------- */
PQ_MUST_CHECK int pq_tunnel_new(struct pq_tunnel_loop *l, struct pq_route *route, struct pq_tunnels *owner,
                                struct pq_tunnel **out);
/* TLS is done: HTTP/2 begins, and SETTINGS go out with the next pump. */
PQ_MUST_CHECK int pq_tunnel_begin(struct pq_tunnel *t);
void pq_tunnel_opened(struct pq_tunnel *t); /* says so */
void pq_tunnel_watch(struct pq_tunnel *t, unsigned wants);
void pq_tunnel_touch(struct pq_tunnel *t);
void pq_tunnel_drain(struct pq_tunnel *t);
/* False where it has ended. */
bool pq_tunnel_pump(struct pq_tunnel *t);
/* There is more to do than the last pump did. */
bool pq_tunnel_wants_pump(const struct pq_tunnel *t);
bool pq_tunnel_takes_streams(const struct pq_tunnel *t);
/* No function: stops it. */
void pq_tunnel_set_timer(struct pq_tunnel *t, double after, void (*expired)(struct ev_loop *, ev_timer *, int));
/* Ends it at once, with every stream that is not over. detail may be NULL. */
void pq_tunnel_end(struct pq_tunnel *t, enum pq_proxy_end why, const char *detail);
/* TLS gave the error e. */
void pq_tunnel_end_tls(struct pq_tunnel *t, int e);
/* A reload's rules: who is no longer allowed is drained, and ends after timeouts.grace. */
void pq_tunnel_recheck_all(struct pq_connections *set, struct pq_generation *now);
/* GOAWAY and the like, as far as the socket takes it now. */
void pq_tunnel_last_words(struct pq_tunnel *t);
PQ_MUST_CHECK int pq_tunnel_callbacks(nghttp2_session_callbacks **out);
/* The peer may cost us that much without moving anything; false: it was too much. */
bool pq_tunnel_spend(struct pq_tunnel *t, double cost, const char *what);

/* --- a stream's --------------------------------------------------------------------------------------------------- */
/* Of a local descriptor, which is still the caller's where it fails. */
PQ_MUST_CHECK int pq_carried_new(struct pq_tunnel_loop *l, struct pq_route *route, struct pq_tunnels *owner, int fd,
                                 const struct pq_address *local, struct pq_carried **out);
/* The route of another generation. */
void pq_carried_move(struct pq_carried *s, struct pq_route *route);
/* It has become one of the tunnel's. */
void pq_carried_join(struct pq_carried *s, struct pq_tunnel *t, int32_t id);
/* The tunnel has nothing more to do with it. */
void pq_carried_leave(struct pq_carried *s);
void pq_carried_touch(struct pq_carried *s);
/* Its local side ends with that reason at the next step; the first reason stays. */
void pq_carried_fail(struct pq_carried *s, enum pq_proxy_end why, uint32_t code, const char *detail);
/* Does what can be done outside of nghttp2's callbacks; false where it has gone, or waits for another tunnel. */
bool pq_carried_step(struct pq_carried *s);
/* Sets what the loop waits for, after a pump. */
void pq_carried_watch(struct pq_carried *s);
/* nghttp2's: gives data to the tunnel. */
nghttp2_ssize pq_carried_pull(nghttp2_session *h2, int32_t id, uint8_t *buf, size_t length, uint32_t *flags,
                              nghttp2_data_source *source, void *user);
/* Bytes that came; they stay where they are until pq_carried_gathered(). */
void pq_carried_take(struct pq_carried *s, const uint8_t *bytes, size_t len);
void pq_carried_gathered(struct pq_tunnel_loop *l);
void pq_carried_took_end(struct pq_carried *s); /* END_STREAM came */
/* nghttp2 closed it, or the tunnel ended (lost). */
void pq_carried_closed(struct pq_carried *s, uint32_t code, bool lost);
/* The function is connected, or could not be. */
/* To the function: its address, or the next one where that fails. */
void pq_carried_connect(struct pq_carried *s);
/* What it waits for in vain, and whether it is idle. It may be gone after that. */
void pq_carried_sweep(struct pq_carried *s);
struct pq_address pq_carried_address(const struct pq_carried *s);
void pq_carried_free(struct pq_carried *s);
/* Gives the local descriptor of one that waits back. */
PQ_MUST_CHECK int pq_carried_release(struct pq_carried *s);

/* --- the ends' ---------------------------------------------------------------------------------------------------- */
/* Ingress: counts and logs a request that got no stream of ours. */
void pq_tunnel_refused(struct pq_tunnel *t, enum pq_proxy_end why, const char *detail);
/* A request's head is complete. False: out of memory. */
bool pq_tunnel_request(struct pq_tunnel *t, int32_t id);
/* Egress: what happened to one of the owner's tunnels. */
void pq_tunnel_connect_ready(struct pq_tunnel *t);
void pq_tunnels_unproven(struct pq_tunnel *t, int e); /* the handshake failed, or an alert came in place of SETTINGS */
void pq_tunnels_alone(struct pq_tunnel *t);           /* the peer speaks no tunnel */
void pq_tunnels_opened(struct pq_tunnel *t);
void pq_tunnels_changed(struct pq_tunnel *t); /* it has room, or takes no more */
void pq_tunnels_ended(struct pq_tunnel *t, enum pq_proxy_end why, const char *detail);
void pq_tunnels_again(struct pq_carried *s); /* refused before anything of it had gone: another tunnel may take it */
void pq_tunnels_sweep(struct pq_tunnels *o);
bool pq_tunnels_awaited(const struct pq_tunnels *o);                /* somebody waits */
void pq_tunnels_left(struct pq_carried *s);                         /* it no longer waits */
void pq_tunnels_inherit(struct pq_tunnel *t, struct pq_route *now); /* a reload keeps it */
struct pq_tunnels *pq_tunnels_next(struct pq_tunnels *o);
void pq_tunnels_free(struct pq_tunnels *o);

#endif
