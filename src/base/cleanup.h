/* cleanup.h - the one cleanup idiom: DEFER on the declaration, TAKE where ownership leaves; no goto beside it.
 *
 * Spec:   the compiler's cleanup attribute.
 * Owns:   a DEFERred variable owns what it points to until it is TAKEn.
 * Errors: none.
 */
#ifndef PQ_BASE_CLEANUP_H
#define PQ_BASE_CLEANUP_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DEFER(function) __attribute__((cleanup(function)))

/* Moves a pointer out of a variable and leaves NULL; TAKE_FD the same for a descriptor, leaving -1. */
#define TAKE(pointer)                                                                                                  \
    __extension__({                                                                                                    \
        __typeof__(pointer) taken_ = (pointer);                                                                        \
        (pointer) = NULL;                                                                                              \
        taken_;                                                                                                        \
    })
#define TAKE_FD(fd)                                                                                                    \
    __extension__({                                                                                                    \
        int taken_ = (fd);                                                                                             \
        (fd) = -1;                                                                                                     \
        taken_;                                                                                                        \
    })

/* Returns from the function with the error if there is one. */
#define TRY(expression)                                                                                                \
    do {                                                                                                               \
        int try_ = (expression);                                                                                       \
        if (try_ < 0)                                                                                                  \
            return try_;                                                                                               \
    } while (0)

#define PQ_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Defines NAME_freep(), the cleanup function for a variable of that pointer type. */
#define PQ_DEFINE_FREEP(type, function)                                                                                \
    static inline void function##p(type **p)                                                                           \
    {                                                                                                                  \
        if (*p)                                                                                                        \
            function(*p);                                                                                              \
        *p = NULL;                                                                                                     \
    }

static inline void pq_freep(void *p)
{
    void **pp = p;
    free(*pp);
    *pp = NULL;
}
static inline void pq_closep(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}
static inline void pq_fclosep(FILE **f)
{
    if (*f)
        fclose(*f);
    *f = NULL;
}
static inline void pq_closedirp(DIR **d)
{
    if (*d)
        closedir(*d);
    *d = NULL;
}

#endif
