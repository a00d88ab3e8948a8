#include "cli/experiments.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { ABOVE = 5 };

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int find_folder(char *out, size_t size, struct pq_why *why)
{
    char at[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", at, sizeof at - 1);
    at[n > 0 ? n : 0] = 0;
    for (int i = 0; i <= ABOVE; i++) {
        char *slash = strrchr(at, '/');
        if (!slash)
            break;
        *slash = 0;
        const char *const places[] = {"experiments", "share/pqplane/experiments"};
        for (size_t p = 0; p < PQ_COUNT(places); p++)
            if (snprintf(out, size, "%s/%s", at, places[p]) < (int)size && is_folder(out))
                return 0;
    }
    snprintf(out, size, "experiments");
    return is_folder(out)
               ? 0
               : pq_why(why, PQ_E_NOENT, "no folder of experiments comes with this program: name an experiment's file");
}

int pq_experiments_find(const char *given, char *path, size_t size, struct pq_why *why)
{
    char folder[PATH_MAX];
    size_t len = strlen(given);
    if (strchr(given, '/') || (len > 5 && strcmp(given + len - 5, ".yaml") == 0))
        return snprintf(path, size, "%s", given) < (int)size ? 0 : pq_why(why, PQ_E_TOO_LONG, "the path is too long");
    TRY(find_folder(folder, sizeof folder, why));
    int n = snprintf(path, size, "%s/%s.yaml", folder, given);
    if (n < 0 || (size_t)n >= size)
        return pq_why(why, PQ_E_TOO_LONG, "the path is too long");
    return access(path, F_OK) == 0
               ? 0
               : pq_why(why, PQ_E_NOENT,
                        "there is no experiment \"%.100s\" in %.500s: see pqplane lab list, or name a file", given,
                        folder);
}

int pq_experiments_list(struct pq_strings *out, struct pq_why *why)
{
    char folder[PATH_MAX], pattern[PATH_MAX];
    TRY(find_folder(folder, sizeof folder, why));
    if (snprintf(pattern, sizeof pattern, "%s/*.yaml", folder) >= (int)sizeof pattern)
        return pq_why(why, PQ_E_TOO_LONG, "the path is too long");
    glob_t found = {0};
    int e = glob(pattern, 0, NULL, &found);
    if (e != 0) {
        globfree(&found);
        return pq_why(why, e == GLOB_NOMATCH ? PQ_E_NOENT : PQ_E_IO, "there is no experiment in %s", folder);
    }
    struct pq_strings paths = {calloc(found.gl_pathc, sizeof(char *)), 0};
    for (size_t i = 0; paths.at && i < found.gl_pathc; i++) {
        paths.at[i] = strdup(found.gl_pathv[i]);
        if (!paths.at[i])
            break;
        paths.count++;
    }
    bool whole = paths.at && paths.count == found.gl_pathc;
    globfree(&found);
    if (!whole) {
        pq_experiments_free(&paths);
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    }
    *out = paths;
    return 0;
}

void pq_experiments_free(struct pq_strings *paths)
{
    for (size_t i = 0; i < paths->count; i++)
        free(paths->at[i]);
    free(paths->at);
    *paths = (struct pq_strings){0};
}
