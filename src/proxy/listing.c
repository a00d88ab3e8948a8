#include "proxy/listing.h"

#include <errno.h>
#include <ev.h>

#include "base/json.h"

enum { BLOCK = PQ_LISTING_ROWS * 4096 };
#define REST 0.0005 /* s between two turns */

struct pq_listing {
    struct pq_connections *set;
    int fd;
    ev_timer turn;
    size_t written;
    void (*done)(void *context, int e);
    void *context;
};

static const char *or_empty(const char *text) { return text ? text : ""; }

static void put_tls(struct pq_json *j, const struct pq_tls_info *i)
{
    static const struct pq_tls_info nothing;
    if (!i)
        i = &nothing;
    pq_json_text(j, "peer_name", or_empty(i->peer));
    pq_json_text(j, "group", or_empty(i->group));
    pq_json_text(j, "signature", or_empty(i->signature));
    pq_json_text(j, "own_signature", or_empty(i->own_signature));
    pq_json_text(j, "cipher", or_empty(i->cipher));
    pq_json_bool(j, "resumed", i->resumed);
}

static void put_address(struct pq_json *j, const char *key, const struct pq_address *a)
{
    char text[PQ_ADDRESS_TEXT];
    pq_address_text(a, text);
    pq_json_text(j, key, text);
}

int pq_row_write(const struct pq_row *r, struct pq_buf *out)
{
    struct pq_json j = pq_json(out);
    pq_json_open(&j, NULL, '{');
    pq_json_text(&j, "kind", r->kind);
    pq_json_whole(&j, "worker", (int64_t)r->worker);
    pq_json_whole(&j, "id", (int64_t)r->id);
    pq_json_text(&j, "route", r->route);
    pq_json_text(&j, "direction", r->direction);
    put_address(&j, "local", r->local);
    put_address(&j, "peer", r->peer);
    put_tls(&j, r->tls);
    pq_json_text(&j, "state", r->state);
    pq_json_whole(&j, "bytes_up", (int64_t)r->bytes_up);
    pq_json_whole(&j, "bytes_down", (int64_t)r->bytes_down);
    pq_json_real(&j, "age_s", (double)r->age_ns / 1e9);
    pq_json_real(&j, "idle_s", r->idle_s);
    if (r->tunnel)
        pq_json_whole(&j, "tunnel", (int64_t)r->tunnel);
    else
        pq_json_text(&j, "tunnel", NULL);
    pq_json_close(&j, '}');
    TRY(j.failed);
    return pq_buf_text(out, "\n");
}

/* --- a listing --------------------------------------------------------------------------------------------------- */
static int write_out(struct pq_listing *l, const struct pq_buf *b)
{
    for (size_t done = 0; done < b->len;) {
        ssize_t n = write(l->fd, b->at + done, b->len - done);
        if (n < 0)
            return pq_error_from_errno(errno);
        done += (size_t)n;
    }
    l->written += b->len;
    return 0;
}

/* PQ_E_CLOSED at the end. */
static int one_turn(struct pq_listing *l)
{
    DEFER(pq_buf_free) struct pq_buf b = {.cap = BLOCK};
    int e = pq_connections_rows(l->set, PQ_LISTING_ROWS, &b);
    if (e < 0 && e != PQ_E_CLOSED)
        return e;
    if (e == 0 && l->written + b.len > PQ_LISTING_MAX) {
        b.len = 0;
        TRY(pq_buf_text(&b, "{\"left_out\":true}\n"));
        e = PQ_E_CLOSED;
    }
    TRY(write_out(l, &b));
    return e;
}

static void on_turn(struct ev_loop *loop, ev_timer *timer, int revents)
{
    (void)loop, (void)revents;
    struct pq_listing *l = timer->data;
    int e = one_turn(l);
    if (e == 0)
        return;
    void (*done)(void *context, int e) = l->done;
    void *context = l->context;
    pq_listing_free(l);
    done(context, e == PQ_E_CLOSED ? 0 : e);
}

int pq_listing_start(struct pq_connections *s, int fd, void (*done)(void *context, int e), void *context,
                     struct pq_listing **out)
{
    struct pq_listing *l = calloc(1, sizeof *l);
    if (!l)
        return PQ_E_NOMEM;
    *l = (struct pq_listing){.set = s, .fd = fd, .done = done, .context = context};
    pq_connections_list(s);
    ev_timer_init(&l->turn, on_turn, REST, REST);
    l->turn.data = l;
    ev_timer_start(s->loop, &l->turn);
    *out = l;
    return 0;
}

void pq_listing_free(struct pq_listing *l)
{
    if (!l)
        return;
    ev_timer_stop(l->set->loop, &l->turn);
    pq_closep(&l->fd);
    free(l);
}
