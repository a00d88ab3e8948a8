#include "proxy/contain.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "proxy/contain_parts.h"

/* What this program was built with that could not work contained: sanitizers trace their own process and read files at
 * its end, coverage writes files then. "" otherwise. */
static const char relaxed_for[] = PQ_CONTAIN_RELAXED;
static bool is_relaxed(void) { return relaxed_for[0] != '\0'; }

/* --- who ---------------------------------------------------------------------------------------------------------- */
/* user_namespaces(7): "inside outside count" a line. */
static bool exists_here(const char *map, unsigned id)
{
    DEFER(pq_fclosep) FILE *f = fopen(map, "re");
    unsigned inside, outside, count;
    if (!f)
        return true;
    while (fscanf(f, "%u %u %u", &inside, &outside, &count) == 3)
        if (id >= inside && id - inside < count)
            return true;
    return false;
}

static int find(const char *name, struct passwd *p, char *space, size_t size, struct pq_why *why)
{
    struct passwd *found = NULL;
    int e = getpwnam_r(name, p, space, size, &found);
    if (e != 0)
        return pq_why(why, pq_error_from_errno(e), "user: \"%.60s\" can't be looked up: %s", name, strerror(e));
    if (!found)
        return pq_why(
            why, PQ_E_CONFIG,
            "user: this host has no user \"%.60s\", whom workers are to become: make it (adduser --system) or "
            "name another",
            name);
    return 0;
}

int pq_contain_user(const char *name, struct pq_contain *out, struct pq_why *why)
{
    struct passwd p;
    char space[16 << 10];
    int count = PQ_CONTAIN_GROUPS_MAX;
    gid_t groups[PQ_CONTAIN_GROUPS_MAX];
    out->change_user = false;
    if (geteuid() != 0)
        return 0;
    name = name ? name : "nobody";
    TRY(find(name, &p, space, sizeof space, why));
    if (getgrouplist(name, p.pw_gid, groups, &count) < 0)
        return pq_why(why, PQ_E_LIMIT, "user: \"%.60s\" is in %d groups, more than the %d that workers take", name,
                      count, PQ_CONTAIN_GROUPS_MAX);
    if (!exists_here("/proc/self/uid_map", p.pw_uid) || !exists_here("/proc/self/gid_map", p.pw_gid))
        return 0;
    out->change_user = p.pw_uid != 0;
    out->uid = p.pw_uid;
    out->gid = p.pw_gid;
    out->group_count = (size_t)count;
    memcpy(out->groups, groups, (size_t)count * sizeof groups[0]);
    return 0;
}

static int become(const struct pq_contain *how, struct pq_why *why)
{
    if (!how->change_user)
        return 0;
    if (setgroups(how->group_count, how->groups) < 0 || setresgid(how->gid, how->gid, how->gid) < 0 ||
        setresuid(how->uid, how->uid, how->uid) < 0)
        return pq_why(why, pq_error_from_errno(errno), "can't become user %u: %s", how->uid, strerror(errno));
    uid_t r, e, s;
    if (getresuid(&r, &e, &s) < 0 || r != how->uid || e != how->uid || s != how->uid || setuid(0) == 0)
        return pq_why(why, PQ_E_PERMISSION, "could become root again after becoming user %u", how->uid);
    return 0;
}

/* --- what it may ---------------------------------------------------------------------------------------------------
 */
static int drop_capabilities(struct pq_why *why)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capset, &head, none) < 0)
        return pq_why(why, pq_error_from_errno(errno), "can't give up capabilities: %s", strerror(errno));
    return 0;
}

/* Of what a later program could gain; only who has CAP_SETPCAP can, and needs to. */
static void drop_bounding_set(void)
{
    for (int i = 0; i <= CAP_LAST_CAP; i++)
        prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
}

int pq_contain_memory(struct pq_why *why)
{
    struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_CORE, &none) < 0 || (!is_relaxed() && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0))
        return pq_why(why, pq_error_from_errno(errno), "core dumps can't be switched off: %s", strerror(errno));
    /* After a change of user the kernel says that a process is not to be traced, and LeakSanitizer traces. */
    if (is_relaxed())
        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    return 0;
}

/* A second thread would go on uncontained. proc_pid_task(5): a folder has a link from each below it and two more. */
static int check_alone(struct pq_why *why)
{
    struct stat st;
    if (stat("/proc/self/task", &st) == 0 && st.st_nlink > 3)
        return pq_why(why, PQ_E_INVALID, "a process with %u threads can't be contained", (unsigned)st.st_nlink - 2);
    return 0;
}

static void say(const struct pq_contain *how, int abi)
{
    if (how->off)
        pq_log(PQ_LOG_WARN, "containment off", "detail", pq_s("the configuration says contain: false"), NULL);
    else if (is_relaxed())
        pq_log(PQ_LOG_WARN, "containment off", "detail", pq_s("this build can't work contained"), "built_with",
               pq_s(relaxed_for), NULL);
    else if (abi == 0)
        pq_log(PQ_LOG_WARN, "containment incomplete", "missing", pq_s("landlock"), "detail",
               pq_s("this kernel has no Landlock, or it is switched off; a filter of system calls keeps files closed"),
               NULL);
    else
        pq_log(PQ_LOG_DEBUG, "contained", "landlock", pq_i(abi), "seccomp", pq_i(1), "user", pq_i(geteuid()), NULL);
}

int pq_contain_worker(const struct pq_contain *how, struct pq_why *why)
{
    int abi = 0;
    bool apply = !is_relaxed();
    struct pq_contain as_built = *how;
    /* Coverage is written by whoever the program was started as. */
    as_built.change_user &= strcmp(relaxed_for, "coverage") != 0;
    TRY(check_alone(why));
    tzset(); /* or the first log line reads the time zone's file */
    drop_bounding_set();
    TRY(become(&as_built, why));
    TRY(drop_capabilities(why));
    TRY(pq_contain_memory(why));
    if (how->before)
        TRY(how->before(how->context, why));
    if (how->off) {
        say(how, 0);
        return 0;
    }
    TRY(check_alone(why));
    if (apply && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return pq_why(why, pq_error_from_errno(errno), "no_new_privs can't be set: %s", strerror(errno));
    TRY(pq_contain_files(how, apply, &abi, why));
    TRY(pq_contain_calls(how, apply, why));
    say(how, abi);
    return 0;
}
