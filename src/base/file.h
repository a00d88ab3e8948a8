/* file.h - whole small files.
 *
 * Spec:   none.
 * Owns:   pq_file_read() fills the caller's buffer, which the caller frees (pq_buf_free, or pq_buf_wipe for a key).
 * Errors: PQ_E_NOENT, PQ_E_PERMISSION, PQ_E_EXISTS, PQ_E_TOO_LONG (larger than out->cap), PQ_E_LIMIT (disk full),
 * PQ_E_IO; why says which file and what the system said.
 */
#ifndef PQ_BASE_FILE_H
#define PQ_BASE_FILE_H

#include <sys/types.h>

#include "base/bytes.h"

/* Regular files only: a FIFO or a device could keep a reader waiting. */
PQ_MUST_CHECK int pq_file_read(const char *path, struct pq_buf *out, struct pq_why *why);
/* The same for a key; PQ_E_CONFIG where the file's mode lets others read it. */
PQ_MUST_CHECK int pq_file_read_secret(const char *path, struct pq_buf *out, struct pq_why *why);

enum pq_file_how {
    PQ_FILE_NEW,    /* PQ_E_EXISTS if there is one */
    PQ_FILE_REPLACE /* written beside it, synced, then renamed: readers see the old or the new whole. A link is
                     * followed; a device, pipe or socket is written to as it is */
};
PQ_MUST_CHECK int pq_file_write(const char *path, struct pq_span bytes, mode_t mode, enum pq_file_how how,
                                struct pq_why *why);
/* mkdir -p; existing folders are fine. */
PQ_MUST_CHECK int pq_file_make_folders(const char *path, mode_t mode, struct pq_why *why);
/* rm -r of a folder, without following links and without leaving its file system. */
PQ_MUST_CHECK int pq_file_remove_tree(const char *path, struct pq_why *why);

/* A file or socket that is opened later must not get the number of standard input, output or error, or messages would
 * be written into it: the first opens /dev/null where one of them is closed; the second closes a descriptor, but puts
 * /dev/null in the place of these three. */
PQ_MUST_CHECK int pq_file_hold_standard(struct pq_why *why);
void pq_file_close(int fd);

#endif
