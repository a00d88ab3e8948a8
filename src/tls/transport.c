#include "tls/transport.h"

#include <errno.h>
#include <limits.h>
#include <openssl/bio.h>
#include <string.h>
#include <sys/socket.h>

enum { FLIGHT_MAX = 1 << 20 }; /* bytes of one flight: 4 times the default cap of a certificate list */

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
static ssize_t fetch(struct pq_transport *t, void *out, size_t size)
{
    if (t->fetches == 0) {
        t->err = EAGAIN;
        return -1;
    }
    t->fetches--;
    if (!t->other) {
        ssize_t n;
        do
            n = recv(t->fd, out, size, 0);
        while (n < 0 && errno == EINTR);
        if (n < 0)
            t->err = errno == EWOULDBLOCK ? EAGAIN : errno;
        return n;
    }
    if (t->in.len == 0) {
        t->err = EAGAIN;
        return -1;
    }
    size_t n = size < t->in.len ? size : t->in.len;
    memcpy(out, t->in.at, n);
    pq_buf_consume(&t->in, n);
    return (ssize_t)n;
}

bool pq_transport_flush(struct pq_transport *t)
{
    while (t->out.len) {
        ssize_t n = give(t, t->out.at, t->out.len);
        if (n <= 0)
            return false;
        pq_buf_consume(&t->out, (size_t)n);
    }
    return true;
}

static int bio_write(BIO *b, const char *bytes, size_t len, size_t *n)
{
    struct pq_transport *t = BIO_get_data(b);
    BIO_clear_retry_flags(b);
    *n = 0;
    if (t->collect) {
        if (pq_buf_append(&t->out, bytes, len) < 0) {
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
    if (got == 0)
        t->eof = true;
    if (got <= 0)
        return 0;
    for (size_t i = 0; t->received + i < sizeof t->first && i < (size_t)got; i++)
        t->first[t->received + i] = (uint8_t)out[i];
    t->received += (uint64_t)got;
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
    enum { CHANGE_CIPHER_SPEC = 20, APPLICATION_DATA = 23, MAJOR = 3 };
    if (t->received >= 1 && (t->first[0] < CHANGE_CIPHER_SPEC || t->first[0] > APPLICATION_DATA))
        return true;
    return t->received >= 2 && t->first[1] != MAJOR;
}
