#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include "tls/internal.h"

/* libssl keeps for a connection's life what only its handshake needed: for ML-DSA-65 and ML-KEM-768 half of what an
 * idle connection takes. It has no calls to let go of these; but there are calls that refill the objects. */

/* A certificate of 104 bytes that nobody signed. */
static const uint8_t stub[] = {0x30, 0x66, 0x30, 0x5a, 0x02, 0x01, 0x01, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, /**/
                               0x30, 0x00, 0x30, 0x1e,                                                             /**/
                               0x17, 0x0d, '7',  '0',  '0',  '1',  '0',  '1',  '0',  '0',  '0',  '0',  '0',  '0',  'Z',
                               0x17, 0x0d, '7',  '0',  '0',  '1',  '0',  '1',  '0',  '0',  '0',  '0',  '0',  '0',  'Z',
                               0x30, 0x00, 0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00, 0,
                               0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,
                               0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,
                               0,    0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x01, 0x00};

/* d2i_X509(3) fills an object that is there already with what it reads. Where it fails, for want of memory, it lets go
 * of the object, which is then good for nothing but to be freed. */
void pq_tls_forget_certificate(struct pq_tls *t)
{
    X509 *x = SSL_get0_peer_certificate(t->ssl);
    const unsigned char *at = stub;
    if (!x || t->forgot || !X509_up_ref(x))
        return;
    t->forgot = true;
    t->spoilt = !d2i_X509(&x, &at, sizeof stub);
    X509_free(x);
    ERR_clear_error();
}

/* EVP_PKEY_set_type(3) frees the key that was there: the private key too, which must not outlive the exchange. */
static void empty(EVP_PKEY *key)
{
    ERR_set_mark();
    EVP_PKEY_set_type(key, EVP_PKEY_X25519);
    ERR_pop_to_mark();
    EVP_PKEY_free(key);
}

void pq_tls_forget_exchange(struct pq_tls *t)
{
    EVP_PKEY *own = NULL, *theirs = NULL;
    if (SSL_get_tmp_key(t->ssl, &own))
        empty(own);
    if (SSL_get_peer_tmp_key(t->ssl, &theirs))
        empty(theirs);
}
