#include <openssl/err.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "tls/internal.h"

enum {
    SESSIONS_MAX = 128,
    SESSIONS_OF_PEER = 32, /* of one peer, that its many connections leave room for others */
    TICKET_SHORT = 1000,   /* bytes that a first flight of one segment has room for */
};

struct session {
    SSL_SESSION *at; /* NULL: free */
    uint64_t number; /* the order in which they came */
    struct pq_buf peer;
};

struct pq_tls_sessions {
    pthread_mutex_t lock;
    uint64_t count;
    struct session all[SESSIONS_MAX];
};

static void drop(struct session *s)
{
    SSL_SESSION_free(s->at);
    pq_buf_free(&s->peer);
    *s = (struct session){0};
}

void pq_tls_sessions_free(struct pq_tls_sessions *s)
{
    for (size_t i = 0; s && i < SESSIONS_MAX; i++)
        drop(&s->all[i]);
    if (s)
        pthread_mutex_destroy(&s->lock);
    free(s);
}

static bool same(const struct pq_buf *a, const struct pq_buf *b)
{
    return pq_span_equal(pq_span(a->at, a->len), pq_span(b->at, b->len));
}

/* Where a new one goes: a free place, or that of the oldest, first of the same peer's if those are many. */
static struct session *place(struct pq_tls_sessions *s, const struct pq_buf *peer)
{
    struct session *oldest = NULL, *own = NULL, *empty = NULL;
    int count = 0;
    for (size_t i = 0; i < SESSIONS_MAX; i++) {
        struct session *at = &s->all[i];
        if (!at->at) {
            empty = at;
            continue;
        }
        oldest = !oldest || at->number < oldest->number ? at : oldest;
        if (!same(&at->peer, peer))
            continue;
        own = !own || at->number < own->number ? at : own;
        count++;
    }
    return count >= SESSIONS_OF_PEER ? own : empty ? empty : oldest;
}

static bool keep(struct pq_tls_sessions *s, const struct pq_buf *peer, SSL_SESSION *session)
{
    struct pq_buf copy = {.cap = peer->cap};
    if (pq_buf_append(&copy, peer->at, peer->len) < 0)
        return false;
    pthread_mutex_lock(&s->lock);
    struct session *to = place(s, peer);
    drop(to);
    *to = (struct session){.at = session, .number = s->count++, .peer = copy};
    pthread_mutex_unlock(&s->lock);
    return true;
}

/* The newest, taken out: no ticket is shown twice (RFC 8446, appendix C.4). */
static SSL_SESSION *take(struct pq_tls_sessions *s, const struct pq_buf *peer)
{
    struct session *newest = NULL;
    SSL_SESSION *session = NULL;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < SESSIONS_MAX; i++)
        if (s->all[i].at && (!newest || s->all[i].number > newest->number) && same(&s->all[i].peer, peer))
            newest = &s->all[i];
    if (newest) {
        session = newest->at;
        newest->at = NULL;
        drop(newest);
    }
    pthread_mutex_unlock(&s->lock);
    return session;
}

/* Who is called: its address and the names that it must show. */
static int note_peer(struct pq_tls *t)
{
    struct sockaddr_storage to;
    socklen_t len = sizeof to;
    t->session_peer.cap = 64 << 10;
    if (t->transport.fd >= 0 && getpeername(t->transport.fd, (struct sockaddr *)&to, &len) == 0)
        TRY(pq_buf_append(&t->session_peer, &to, len < sizeof to ? len : sizeof to));
    for (size_t i = 0; i < t->names.count; i++)
        TRY(pq_buf_append(&t->session_peer, t->names.at[i], strlen(t->names.at[i]) + 1));
    return 0;
}

static bool usable(const struct pq_tls *t, SSL_SESSION *session)
{
    const unsigned char *ticket = NULL;
    size_t len = 0;
    int64_t age = (int64_t)time(NULL) - (int64_t)SSL_SESSION_get_time_ex(session); /* by OpenSSL's clock, both */
    SSL_SESSION_get0_ticket(session, &ticket, &len);
    return SSL_SESSION_is_resumable(session) && age < SSL_SESSION_get_timeout(session) &&
           (!t->context->first_flight_classical || len <= TICKET_SHORT) && pq_tls_session_holds(t, session);
}

int pq_tls_sessions_offer(struct pq_tls *t)
{
    struct pq_tls_sessions *s = t->context->sessions;
    if (!s)
        return 0;
    TRY(note_peer(t));
    for (SSL_SESSION *session; (session = take(s, &t->session_peer));) {
        bool good = usable(t, session);
        bool set = good && SSL_set_session(t->ssl, session);
        SSL_SESSION_free(session);
        if (good)
            return set ? 0 : PQ_E_NOMEM;
    }
    return 0;
}

/* A copy: the connection's own libssl spoils when it ends out of order. 0: the connection keeps its own. */
static int session_came(SSL *ssl, SSL_SESSION *session)
{
    struct pq_tls *t = SSL_get_app_data(ssl);
    ERR_set_mark();
    SSL_SESSION *copy = SSL_SESSION_dup(session);
    if (!copy || !pq_tls_session_complete(t, copy) || !keep(t->context->sessions, &t->session_peer, copy))
        SSL_SESSION_free(copy);
    ERR_pop_to_mark();
    return 0;
}

int pq_tls_sessions_new(struct pq_tls_context *c, struct pq_why *why)
{
    c->sessions = calloc(1, sizeof *c->sessions);
    if (!c->sessions)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    pthread_mutex_init(&c->sessions->lock, NULL);
    SSL_CTX_set_session_cache_mode(c->ssl, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(c->ssl, session_came);
    return 0;
}
