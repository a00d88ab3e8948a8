/* pki_fixture.h - an authority in a folder of its own for each test.
 *
 * Spec:   none.
 * Owns:   pki_fresh() makes the folder top (the authority goes to dir, in it), pki_gone() removes it.
 * Errors: of what is called; where that must work, the test fails.
 */
#ifndef PQ_TESTS_PKI_FIXTURE_H
#define PQ_TESTS_PKI_FIXTURE_H

#include <sys/types.h>

#include "crypto/ossl.h"
#include "crypto/pki.h"

extern struct pq_crypto *crypto;
extern char top[64], dir[96];
extern struct pq_why why;

const char *pki_path(const char *name);
int pki_setup(void **state);
int pki_teardown(void **state);
int pki_fresh(void **state);
int pki_gone(void **state);
size_t pki_files(const char *folder);
int pki_init(const char *root, const char *intermediate);
int pki_issue(const char *name, const char *algorithm, const char **san, size_t count);
int pki_revoke(const char **what, size_t count);
int pki_verdict(const char *name);
mode_t pki_mode(const char *name);
X509 *pki_load(const char *name);

#endif
