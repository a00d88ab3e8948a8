/* Runs a fuzz target over files and folders given on the command line, each input in an exact-size heap buffer. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    struct pq_why why = {{0}};
    DEFER(pq_buf_free) struct pq_buf b = {.cap = 16 << 20};
    if (pq_file_read(path, &b, &why) < 0) {
        fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    DEFER(pq_freep) uint8_t *exact = malloc(b.len ? b.len : 1);
    if (!exact)
        return 1;
    for (size_t i = 0; i < b.len; i++)
        exact[i] = b.at[i];
    LLVMFuzzerTestOneInput(exact, b.len);
    return 0;
}

static int replay(const char *path, size_t *count)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        fprintf(stderr, "%s: no such file or folder\n", path);
        return 1;
    }
    if (!S_ISDIR(st.st_mode)) {
        ++*count;
        return replay_file(path);
    }
    DEFER(pq_closedirp) DIR *d = opendir(path);
    int failed = d ? 0 : 1;
    for (struct dirent *e; d && (e = readdir(d));) {
        char inner[4096];
        if (e->d_name[0] == '.')
            continue;
        snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        failed |= replay(inner, count);
    }
    return failed;
}

int main(int argc, char **argv)
{
    size_t count = 0;
    int failed = argc < 2;
    for (int i = 1; i < argc; i++)
        failed |= replay(argv[i], &count);
    printf("%zu inputs replayed\n", count);
    return failed || count == 0;
}
