#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proxy/contain_parts.h"

/* The rights that each version of the interface added (landlock(7), "Landlock ABI versions"). What a version does not
 * know it refuses to handle, and what is not handled is allowed. RESOLVE_UNIX is left out: a function that restarts has
 * a new socket, which no rule made now could name. */
static const struct {
    int abi;
    uint64_t files, net, scope;
} versions[] = {
    {1,
     LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_READ_FILE |
         LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
         LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
         LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
         LANDLOCK_ACCESS_FS_MAKE_SYM,
     0, 0},
    {2, LANDLOCK_ACCESS_FS_REFER, 0, 0},
    {3, LANDLOCK_ACCESS_FS_TRUNCATE, 0, 0},
    {4, 0, LANDLOCK_ACCESS_NET_BIND_TCP, 0},
    {5, LANDLOCK_ACCESS_FS_IOCTL_DEV, 0, 0},
    {6, 0, 0, LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL},
};

static const uint64_t of_files =
    LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_TRUNCATE;
static const uint64_t reading = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
static const uint64_t writing = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR |
                                LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_TRUNCATE |
                                LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE;

static struct landlock_ruleset_attr handled(int abi)
{
    struct landlock_ruleset_attr a = {0};
    for (size_t i = 0; i < PQ_COUNT(versions) && versions[i].abi <= abi; i++) {
        a.handled_access_fs |= versions[i].files;
        a.handled_access_net |= versions[i].net;
        a.scoped |= versions[i].scope;
    }
    return a;
}

static int allow(int rules, uint64_t known, const char *path, uint64_t rights, struct pq_why *why)
{
    DEFER(pq_closep) int fd = open(path, O_PATH | O_CLOEXEC);
    struct stat st;
    if (fd < 0 && (errno == ENOENT || errno == EACCES))
        return 0;
    if (fd < 0 || fstat(fd, &st) < 0)
        return pq_why(why, pq_error_from_errno(errno), "%s: %s", path, strerror(errno));
    rights &= S_ISDIR(st.st_mode) ? known : known & of_files;
    struct landlock_path_beneath_attr rule = {.allowed_access = rights, .parent_fd = fd};
    if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
        return pq_why(why, pq_error_from_errno(errno), "no Landlock rule for %s: %s", path, strerror(errno));
    return 0;
}

int pq_contain_files(const struct pq_contain *how, bool apply, int *abi, struct pq_why *why)
{
    int version = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    *abi = version < 0 ? 0 : version; /* ENOSYS: not built in; EOPNOTSUPP: switched off at boot */
    if (version <= 0)
        return 0;
    struct landlock_ruleset_attr a = handled(version);
    DEFER(pq_closep) int rules = (int)syscall(SYS_landlock_create_ruleset, &a, sizeof a, 0);
    if (rules < 0)
        return pq_why(why, pq_error_from_errno(errno), "no Landlock rules to be had: %s", strerror(errno));
    for (size_t i = 0; i < how->read_count; i++)
        TRY(allow(rules, a.handled_access_fs, how->reads[i], reading, why));
    for (size_t i = 0; i < how->write_count; i++)
        TRY(allow(rules, a.handled_access_fs, how->writes[i], writing, why));
    if (apply && syscall(SYS_landlock_restrict_self, rules, 0) < 0)
        return pq_why(why, pq_error_from_errno(errno), "Landlock refused: %s", strerror(errno));
    return 0;
}
