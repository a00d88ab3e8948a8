#include "tls/transport.h"

#include <errno.h>
#include <limits.h>
#include <openssl/bio.h>
#include <string.h>
#include <sys/socket.h>

enum {
    FLIGHT_MAX = 1 << 20, /* bytes of one flight */
    RECORD_HEADER = 5,
    RECORD_MAX = RECORD_HEADER + 16384 + 256,
    CHANGE_CIPHER_SPEC = 20, /* content types, which go on to: */
    APPLICATION_DATA = 23,
    MAJOR = 3 /* of the version in a record */
};

void pq_transport_init(struct pq_transport *t, int fd, struct pq_transport *other)
{
    *t = (struct pq_transport){.fd = fd, .other = other, .collect = true};
    t->in.cap = t->out.cap = FLIGHT_MAX;
}

void pq_transport_free(struct pq_transport *t)
{
    pq_buf_free(&t->in);
    pq_buf_free(&t->out);
}

/* The bytes taken, or -1 with err set. */
static ssize_t give(struct pq_transport *t, const void *bytes, size_t len)
{
    ssize_t n;
    if (t->other) {
        if (pq_buf_append(&t->other->in, bytes, len) < 0) {
            t->err = ENOMEM;
            return -1;
        }
        n = (ssize_t)len;
    } else {
        do
            n = send(t->fd, bytes, len, MSG_NOSIGNAL);
        while (n < 0 && errno == EINTR);
        if (n < 0)
            t->err = errno == EWOULDBLOCK ? EAGAIN : errno;
    }
    t->sent += n > 0 ? (uint64_t)n : 0;
    return n;
}

/* The bytes that came, 0 at the end of the stream, or -1 with err set. */
static ssize_t receive(struct pq_transport *t, void *out, size_t size)
{
    ssize_t n;
    do
        n = t->fetches ? recv(t->fd, out, size, 0) : (errno = EAGAIN, -1);
    while (n < 0 && errno == EINTR);
    t->fetches -= t->fetches > 0;
    if (n < 0)
        t->err = errno == EWOULDBLOCK ? EAGAIN : errno;
    t->eof |= n == 0;
    for (ssize_t i = 0; i < n && t->received + (size_t)i < sizeof t->first; i++)
        t->first[t->received + (size_t)i] = ((const uint8_t *)out)[i];
    t->received += n > 0 ? (uint64_t)n : 0;
    return n;
}

/* How many of these bytes are whole records; all of them where they are none, or too long to be one: libssl is to say
 * so. */
static size_t whole_records(const uint8_t *at, size_t len)
{
    size_t whole = 0;
    while (len - whole >= RECORD_HEADER) {
        const uint8_t *record = at + whole;
        size_t size = RECORD_HEADER + (size_t)(record[3] << 8 | record[4]);
        if (record[0] < CHANGE_CIPHER_SPEC || record[0] > APPLICATION_DATA || record[1] != MAJOR || size > RECORD_MAX)
            return len;
        if (size > len - whole)
            break;
        whole += size;
    }
    return whole;
}

/* A record was long, and of the next one little has come: the memory goes back. */
static void shrink(struct pq_buf *b)
{
    enum { SPARE = 2048 };
    struct pq_buf less = {.cap = b->cap};
    if (b->len && b->size < b->len + SPARE)
        return;
    if (b->len && (pq_buf_reserve_tight(&less, b->len) < 0 || pq_buf_append(&less, b->at, b->len) < 0))
        return;
    pq_buf_free(b);
    *b = less;
}

static ssize_t take(struct pq_transport *t, void *out, size_t size)
{
    size_t n = size < t->in.len ? size : t->in.len;
    memcpy(out, t->in.at, n);
    pq_buf_consume(&t->in, n);
    shrink(&t->in);
    return (ssize_t)n;
}

/* During the handshake. What is no whole record yet stays here, in as much memory as it needs. */
static ssize_t take_records(struct pq_transport *t, void *out, size_t size)
{
    uint8_t fresh[RECORD_MAX];
    while (t->ready == 0) {
        ssize_t n = receive(t, fresh, sizeof fresh);
        if (n <= 0)
            return n;
        if (pq_buf_reserve_tight(&t->in, (size_t)n) < 0 || pq_buf_append(&t->in, fresh, (size_t)n) < 0) {
            t->err = ENOMEM;
            return -1;
        }
        t->ready = whole_records(t->in.at, t->in.len);
    }
    ssize_t n = take(t, out, size < t->ready ? size : t->ready);
    t->ready -= (size_t)n;
    if (t->ready == 0)
        t->ready = whole_records(t->in.at, t->in.len);
    return n;
}

static ssize_t fetch(struct pq_transport *t, void *out, size_t size)
{
    if (t->fd >= 0 && t->collect)
        return take_records(t, out, size);
    if (t->other && t->in.len == 0) {
        t->err = EAGAIN;
        return -1;
    }
    return t->in.len ? take(t, out, size) : receive(t, out, size);
}

bool pq_transport_flush(struct pq_transport *t)
{
    while (t->out.len) {
        ssize_t n = give(t, t->out.at, t->out.len);
        if (n <= 0)
            return false;
        pq_buf_consume(&t->out, (size_t)n);
    }
    pq_buf_free(&t->out);
    return true;
}

static int bio_write(BIO *b, const char *bytes, size_t len, size_t *n)
{
    struct pq_transport *t = BIO_get_data(b);
    BIO_clear_retry_flags(b);
    *n = 0;
    if (t->collect) {
        if (pq_buf_reserve_tight(&t->out, len) < 0 || pq_buf_append(&t->out, bytes, len) < 0) {
            t->err = ENOMEM;
            return 0;
        }
        *n = len;
        return 1;
    }
    ssize_t done = pq_transport_flush(t) ? give(t, bytes, len) : -1;
    if (done < 0) {
        if (t->err == EAGAIN)
            BIO_set_retry_write(b);
        return 0;
    }
    *n = (size_t)done;
    return 1;
}

static int bio_read(BIO *b, char *out, size_t size, size_t *n)
{
    struct pq_transport *t = BIO_get_data(b);
    BIO_clear_retry_flags(b);
    *n = 0;
    ssize_t got = fetch(t, out, size);
    if (got < 0 && t->err == EAGAIN)
        BIO_set_retry_read(b);
    if (got <= 0)
        return 0;
    *n = (size_t)got;
    return 1;
}

static long bio_ctrl(BIO *b, int command, long argument, void *pointer)
{
    (void)argument, (void)pointer;
    struct pq_transport *t = BIO_get_data(b);
    if (command == BIO_CTRL_EOF)
        return t->eof;
    if (command != BIO_CTRL_FLUSH)
        return 0;
    BIO_clear_retry_flags(b);
    if (pq_transport_flush(t))
        return 1;
    if (t->err == EAGAIN)
        BIO_set_retry_write(b);
    return -1;
}

int pq_transport_method(BIO_METHOD **out)
{
    BIO_METHOD *m = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "pqplane transport");
    if (!m)
        return PQ_E_NOMEM;
    BIO_meth_set_write_ex(m, bio_write);
    BIO_meth_set_read_ex(m, bio_read);
    BIO_meth_set_ctrl(m, bio_ctrl);
    *out = m;
    return 0;
}

BIO *pq_transport_bio(struct pq_transport *t, OSSL_LIB_CTX *lib, const BIO_METHOD *method)
{
    BIO *b = BIO_new_ex(lib, method);
    if (!b)
        return NULL;
    BIO_set_data(b, t);
    BIO_set_init(b, 1);
    return b;
}

bool pq_transport_not_tls(const struct pq_transport *t)
{
    if (t->received >= 1 && (t->first[0] < CHANGE_CIPHER_SPEC || t->first[0] > APPLICATION_DATA))
        return true;
    return t->received >= 2 && t->first[1] != MAJOR;
}
