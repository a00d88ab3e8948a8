/* program.h - OpenSSL's own s_server and s_client as peers, over TCP.
 *
 * Spec:   openssl-s_server(1), openssl-s_client(1).
 * Owns:   a started program runs until program_finish(); descriptors are the caller's.
 * Errors: none: assertions. Where there is no openssl program the test is skipped.
 */
#ifndef PQ_TESTS_TLS_PROGRAM_H
#define PQ_TESTS_TLS_PROGRAM_H

#include <sys/types.h>

#include "pair.h"

struct program {
    pid_t pid;
    int in, out; /* its standard input and output */
};

/* "openssl" and its arguments, then NULL. */
struct program program_start(const char *const arguments[]);
/* Ends it if it did not end; true when it ended well by itself. */
bool program_finish(struct program *p, bool wait_for_it);
/* Reads its output up to what follows mark, to the end of that line. */
void program_read_until(struct program *p, const char *mark, char *line, size_t size);

/* A connection to an s_server that was told to accept on 127.0.0.1:0. */
int program_dial(struct program *server);
int program_dial_port(int port);
int program_port(int fd); /* of the other end */
/* For s_client -connect. */
int program_listen(char address[64]);
int program_accept(int listener);

/* One side, until the handshake is done, which pair_shake() expects, or failed; pair_take() until data, an end or an
 * error came. */
int pair_try_shake(struct pq_tls *t, int fd);
void pair_shake(struct pq_tls *t, int fd);
int pair_take(struct pq_tls *t, int fd, char *out, size_t size);

#endif
