#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/file.h"

struct file {
    char *path;
    bool secret;
    struct pq_buf contents;
};

/* Sorted by path. */
struct pq_files {
    struct file *at;
    size_t count, size;
    size_t packed; /* bytes of the packed form */
};

static const char magic[4] = {'P', 'Q', 'F', '1'};
enum { HEAD = 8, FILE_HEAD = 2 + 1 + 3 };

int pq_files_new(struct pq_files **out)
{
    struct pq_files *f = calloc(1, sizeof *f);
    if (!f)
        return PQ_E_NOMEM;
    f->packed = HEAD;
    *out = f;
    return 0;
}

static void file_free(struct file *one)
{
    free(one->path);
    pq_buf_wipe(&one->contents);
}

void pq_files_free(struct pq_files *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->count; i++)
        file_free(&f->at[i]);
    free(f->at);
    free(f);
}

/* Where path is, or where it belongs. */
static size_t place_of(const struct pq_files *f, const char *path, bool *there)
{
    size_t low = 0, high = f->count;
    *there = false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(f->at[middle].path, path);
        if (order == 0) {
            *there = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int grow(struct pq_files *f)
{
    if (f->count < f->size)
        return 0;
    size_t size = f->size ? f->size * 2 : 8;
    struct file *more = realloc(f->at, size * sizeof *more);
    if (!more)
        return PQ_E_NOMEM;
    f->at = more;
    f->size = size;
    return 0;
}

/* Takes the contents over when it succeeds. */
static int insert(struct pq_files *f, size_t place, const char *path, bool secret, struct pq_buf *contents)
{
    size_t len = strlen(path), packed = f->packed + FILE_HEAD + len + contents->len;
    if (len == 0)
        return PQ_E_INVALID;
    if (len > PQ_FILES_PATH_MAX || contents->len > PQ_FILES_FILE_MAX)
        return PQ_E_TOO_LONG;
    if (f->count == PQ_FILES_MAX || packed > PQ_FILES_PACKED_MAX)
        return PQ_E_LIMIT;
    TRY(grow(f));
    char *copy = strdup(path);
    if (!copy)
        return PQ_E_NOMEM;
    memmove(f->at + place + 1, f->at + place, (f->count - place) * sizeof *f->at);
    f->at[place] = (struct file){.path = copy, .secret = secret, .contents = *contents};
    *contents = (struct pq_buf){0};
    f->count++;
    f->packed = packed;
    return 0;
}

static int insert_why(int e, const char *path, struct pq_why *why)
{
    switch (e) {
    case 0:
        return 0;
    case PQ_E_INVALID:
        return pq_why(why, e, "a file's name is empty");
    case PQ_E_TOO_LONG:
        return pq_why(why, e, "%.200s: the path is longer than %d bytes, or the file larger than %d", path,
                      PQ_FILES_PATH_MAX, PQ_FILES_FILE_MAX);
    case PQ_E_LIMIT:
        return pq_why(why, e, "%s is one file too many: at most %d, of %d MiB together", path, PQ_FILES_MAX,
                      PQ_FILES_PACKED_MAX >> 20);
    default:
        return pq_why(why, e, "out of memory while reading %s", path);
    }
}

int pq_files_add(struct pq_files *f, const char *path, bool secret, struct pq_why *why)
{
    bool there;
    size_t place = place_of(f, path, &there);
    if (there && (f->at[place].secret || !secret))
        return 0;
    DEFER(pq_buf_wipe) struct pq_buf contents = {.cap = PQ_FILES_FILE_MAX};
    TRY(secret ? pq_file_read_secret(path, &contents, why) : pq_file_read(path, &contents, why));
    if (!there)
        return insert_why(insert(f, place, path, secret, &contents), path, why);
    f->at[place].secret = true;
    return 0;
}

int pq_files_put(struct pq_files *f, const char *path, bool secret, struct pq_span contents, struct pq_why *why)
{
    bool there;
    size_t place = place_of(f, path, &there);
    if (there && !pq_span_equal(contents, pq_span(f->at[place].contents.at, f->at[place].contents.len)))
        return pq_why(why, PQ_E_EXISTS, "%s is there already, with other contents", path);
    if (there) {
        f->at[place].secret |= secret;
        return 0;
    }
    DEFER(pq_buf_wipe) struct pq_buf copy = {.cap = PQ_FILES_FILE_MAX};
    int e = pq_buf_append(&copy, contents.at, contents.len);
    return insert_why(e < 0 ? e : insert(f, place, path, secret, &copy), path, why);
}

int pq_files_get(const struct pq_files *f, const char *path, struct pq_span *out)
{
    bool there;
    size_t place = place_of(f, path, &there);
    if (!there)
        return PQ_E_NOT_FOUND;
    *out = pq_span(f->at[place].contents.at, f->at[place].contents.len);
    return 0;
}

size_t pq_files_count(const struct pq_files *f) { return f->count; }
const char *pq_files_path(const struct pq_files *f, size_t i) { return f->at[i].path; }

bool pq_files_equal(const struct pq_files *a, const struct pq_files *b)
{
    bool same = a->count == b->count;
    for (size_t i = 0; same && i < a->count; i++) {
        const struct pq_buf *x = &a->at[i].contents, *y = &b->at[i].contents;
        same =
            strcmp(a->at[i].path, b->at[i].path) == 0 && pq_span_equal(pq_span(x->at, x->len), pq_span(y->at, y->len));
    }
    return same;
}

/* --- the packed form ---------------------------------------------------------------------------------------------- */

size_t pq_files_encoded_size(const struct pq_files *f) { return f->packed; }

static int encode_file(const struct file *one, struct pq_writer *out)
{
    struct pq_span path = pq_span_text(one->path);
    TRY(pq_write_u16(out, (uint16_t)path.len));
    TRY(pq_write_bytes(out, path));
    TRY(pq_write_u8(out, one->secret));
    TRY(pq_write_u24(out, (uint32_t)one->contents.len));
    return pq_write_bytes(out, pq_span(one->contents.at, one->contents.len));
}

int pq_files_encode(const struct pq_files *f, struct pq_writer *out)
{
    if (out->size - out->len < f->packed)
        return PQ_E_TOO_LONG;
    TRY(pq_write_bytes(out, pq_span(magic, sizeof magic)));
    TRY(pq_write_u32(out, (uint32_t)f->count));
    for (size_t i = 0; i < f->count; i++)
        TRY(encode_file(&f->at[i], out));
    return 0;
}

static int decode_file(struct pq_reader *in, struct pq_files *f)
{
    struct pq_span path, contents;
    uint8_t secret;
    TRY(pq_read_vector(in, 2, PQ_FILES_PATH_MAX, &path));
    TRY(pq_read_u8(in, &secret));
    TRY(pq_read_vector(in, 3, PQ_FILES_FILE_MAX, &contents));
    if (path.len == 0 || memchr(path.at, 0, path.len) || secret > 1)
        return PQ_E_SYNTAX;
    DEFER(pq_freep) char *name = strndup((const char *)path.at, path.len);
    DEFER(pq_buf_wipe) struct pq_buf copy = {.cap = PQ_FILES_FILE_MAX};
    if (!name)
        return PQ_E_NOMEM;
    if (f->count && strcmp(f->at[f->count - 1].path, name) >= 0)
        return PQ_E_SYNTAX;
    TRY(pq_buf_append(&copy, contents.at, contents.len));
    return insert(f, f->count, name, secret, &copy);
}

int pq_files_decode(struct pq_span bytes, struct pq_files **out)
{
    struct pq_reader in = pq_reader(bytes);
    struct pq_span mark;
    uint32_t count;
    if (bytes.len > PQ_FILES_PACKED_MAX)
        return PQ_E_TOO_LONG;
    TRY(pq_read_bytes(&in, sizeof magic, &mark));
    if (!pq_span_equal(mark, pq_span(magic, sizeof magic)))
        return PQ_E_TYPE;
    TRY(pq_read_u32(&in, &count));
    if (count > PQ_FILES_MAX)
        return PQ_E_TOO_LONG;
    DEFER(pq_files_freep) struct pq_files *f = NULL;
    TRY(pq_files_new(&f));
    for (uint32_t i = 0; i < count; i++)
        TRY(decode_file(&in, f));
    if (pq_reader_left(&in))
        return PQ_E_SYNTAX;
    *out = TAKE(f);
    return 0;
}

/* --- between processes -------------------------------------------------------------------------------------------- */

enum { SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

static int system_why(struct pq_why *why, const char *what)
{
    int err = errno;
    return pq_why(why, pq_error_from_errno(err), "can't %s the contents of files: %s", what, strerror(err));
}

int pq_files_pack(const struct pq_files *f, int *out, struct pq_why *why)
{
    DEFER(pq_closep) int fd = memfd_create("pqplane-files", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)f->packed) < 0)
        return system_why(why, "pack");
    void *at = mmap(NULL, f->packed, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return system_why(why, "pack");
    struct pq_writer w = pq_writer(at, f->packed);
    int e = pq_files_encode(f, &w);
    munmap(at, f->packed); /* a mapping that may be written to forbids the seal */
    if (e < 0)
        return pq_why(why, e, "can't pack the contents of files: %s", pq_error_text(e));
    if (fcntl(fd, F_ADD_SEALS, SEALS) < 0)
        return system_why(why, "seal");
    *out = TAKE_FD(fd);
    return 0;
}

int pq_files_unpack(int fd, struct pq_files **out, struct pq_why *why)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS)
        return pq_why(why, PQ_E_INVALID, "what came in place of the contents of files is no sealed memory");
    if (fstat(fd, &st) < 0)
        return system_why(why, "read");
    size_t len = (size_t)st.st_size;
    if (len == 0)
        return pq_why(why, PQ_E_TRUNCATED, "what came in place of the contents of files is empty");
    void *at = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
        return system_why(why, "read");
    int e = pq_files_decode(pq_span(at, len), out);
    munmap(at, len);
    return e < 0 ? pq_why(why, e, "the packed contents of files can't be read: %s", pq_error_text(e)) : 0;
}
