/* alloc.h - fails the n-th allocation of code under test. Link with fail_alloc_args (tests/unit/meson.build) and
 * include this in exactly one file of the program.
 *
 *   for (long n = 1; ; n++) {
 *       pq_alloc_fail_at(n);
 *       int e = function_under_test();
 *       bool reached = pq_alloc_failed();
 *       pq_alloc_fail_at(0);
 *       if (!reached) { assert_int_equal(e, 0); break; }     // ran to its end without meeting the n-th
 *       assert_int_equal(e, PQ_E_NOMEM);                     // and nothing leaks (ASan) or crashes
 *   }
 *
 * Spec:   GNU ld --wrap: only calls from statically linked objects (ours) are seen; for OpenSSL's own allocations use
 *         pq_alloc_hook_openssl() before any other OpenSSL call.
 * Owns:   nothing.
 * Errors: none.
 */
#ifndef PQ_TESTS_ALLOC_H
#define PQ_TESTS_ALLOC_H

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
int __real_vasprintf(char **out, const char *format, va_list args);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
int __wrap_vasprintf(char **out, const char *format, va_list args);
int __wrap_asprintf(char **out, const char *format, ...);

/* Allocations until the one that fails, of all threads; 0: none fails. */
static _Atomic long pq_alloc_left;
static _Atomic bool pq_alloc_hit;

static inline void pq_alloc_fail_at(long n)
{
    pq_alloc_left = n;
    if (n)
        pq_alloc_hit = false;
}
static inline bool pq_alloc_failed(void) { return pq_alloc_hit; }

static inline bool pq_alloc_fails_now(void)
{
    if (pq_alloc_left == 0 || --pq_alloc_left > 0)
        return false;
    pq_alloc_hit = true;
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t n) { return pq_alloc_fails_now() ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { return pq_alloc_fails_now() ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { return pq_alloc_fails_now() ? NULL : __real_realloc(p, n); }
char *__wrap_strdup(const char *s) { return pq_alloc_fails_now() ? NULL : __real_strdup(s); }
char *__wrap_strndup(const char *s, size_t n) { return pq_alloc_fails_now() ? NULL : __real_strndup(s, n); }
int __wrap_vasprintf(char **out, const char *format, va_list args)
{
    return pq_alloc_fails_now() ? -1 : __real_vasprintf(out, format, args);
}
int __wrap_asprintf(char **out, const char *format, ...)
{
    if (pq_alloc_fails_now())
        return -1;
    va_list args;
    va_start(args, format);
    int n = __real_vasprintf(out, format, args);
    va_end(args);
    return n;
}

#ifdef OPENSSL_VERSION_NUMBER
#include <openssl/crypto.h>
static void *pq_alloc_ossl_malloc(size_t n, const char *f, int l)
{
    (void)f, (void)l;
    return pq_alloc_fails_now() ? NULL : __real_malloc(n);
}
static void *pq_alloc_ossl_realloc(void *p, size_t n, const char *f, int l)
{
    (void)f, (void)l;
    return pq_alloc_fails_now() ? NULL : __real_realloc(p, n);
}
static void pq_alloc_ossl_free(void *p, const char *f, int l)
{
    (void)f, (void)l;
    free(p);
}
/* 1 on success. */
static inline int pq_alloc_hook_openssl(void)
{
    return CRYPTO_set_mem_functions(pq_alloc_ossl_malloc, pq_alloc_ossl_realloc, pq_alloc_ossl_free);
}
#endif

#endif
