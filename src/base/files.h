/* files.h - the contents of named files, read once, kept in memory and carried to another process.
 *
 * What a configuration names is read by one process and used by others, which may not read files at all: all of it is
 * of one moment, and none of it is read twice.
 *
 * Spec:   the packed form, big-endian: "PQF1", a count of 4 bytes, then for each file its path (behind a length of 2
 *         bytes), 1 if secret or 0, and its contents (behind a length of 3 bytes); paths ascend, so that a set has one
 *         form only. It travels in a memfd that is sealed, so that it can't change while it is read.
 * Owns:   a set owns its contents, all wiped when it is freed; a span from it lives as long. pq_files_pack() gives a
 *         descriptor to close.
 * Errors: PQ_E_NOENT and the like (a file), PQ_E_CONFIG (a secret that others may read), PQ_E_TOO_LONG, PQ_E_LIMIT,
 *         PQ_E_NOMEM, PQ_E_IO: why says which and where. Unpacking: PQ_E_TRUNCATED, PQ_E_TYPE (no set),
 *         PQ_E_SYNTAX, PQ_E_TOO_LONG, PQ_E_INVALID (not sealed). On error nothing has changed.
 */
#ifndef PQ_BASE_FILES_H
#define PQ_BASE_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/bytes.h"
#include "base/cleanup.h"

enum {
    PQ_FILES_MAX = 16384,            /* files of a set */
    PQ_FILES_PATH_MAX = 4095,        /* bytes of a path */
    PQ_FILES_FILE_MAX = 4 << 20,     /* bytes of a file */
    PQ_FILES_PACKED_MAX = 256 << 20, /* bytes of a packed set */
};

struct pq_files;
PQ_MUST_CHECK int pq_files_new(struct pq_files **out);
void pq_files_free(struct pq_files *f);
PQ_DEFINE_FREEP(struct pq_files, pq_files_free)

/* Reads a regular file; one that is there already stays as it is (but is secret from now on where secret). A secret's
 * file that others may read is refused. */
PQ_MUST_CHECK int pq_files_add(struct pq_files *f, const char *path, bool secret, struct pq_why *why);
/* The same with contents that the caller has. PQ_E_EXISTS where there are others under this name. */
PQ_MUST_CHECK int pq_files_put(struct pq_files *f, const char *path, bool secret, struct pq_span contents,
                               struct pq_why *why);
/* PQ_E_NOT_FOUND where the set has no such file. */
PQ_MUST_CHECK int pq_files_get(const struct pq_files *f, const char *path, struct pq_span *out);

size_t pq_files_count(const struct pq_files *f);
const char *pq_files_path(const struct pq_files *f, size_t i); /* in ascending order */
/* The same paths with the same contents. */
bool pq_files_equal(const struct pq_files *a, const struct pq_files *b);

/* A sealed memfd that holds the set, close-on-exec. Unpacking reads it from its beginning, wherever its offset is. */
PQ_MUST_CHECK int pq_files_pack(const struct pq_files *f, int *fd, struct pq_why *why);
PQ_MUST_CHECK int pq_files_unpack(int fd, struct pq_files **out, struct pq_why *why);

/* The packed form itself. */
size_t pq_files_encoded_size(const struct pq_files *f);
PQ_MUST_CHECK int pq_files_encode(const struct pq_files *f, struct pq_writer *out);
PQ_MUST_CHECK int pq_files_decode(struct pq_span in, struct pq_files **out);

#endif
