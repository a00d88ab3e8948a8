#include "lab/host.h"

#include <ev.h>
#include <inttypes.h>
#include <libfyaml.h>
#include <nghttp2/nghttp2.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sched.h>
#include <string.h>
#include <sys/utsname.h>
#include <yyjson.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"

/* The rest of the first line that starts with key, after separators; "unknown" where there is none. */
static void look_up(const char *path, const char *key, char *out, size_t size)
{
    DEFER(pq_buf_free) struct pq_buf b = {.cap = 4 << 20};
    snprintf(out, size, "unknown");
    if (pq_file_read(path, &b, NULL) < 0 || b.len == 0)
        return;
    size_t len = strlen(key);
    for (const char *line = (const char *)b.at; line; line = (line = strchr(line, '\n')) ? line + 1 : NULL) {
        if (strncmp(line, key, len) != 0)
            continue;
        line += len;
        line += strspn(line, " \t:=\"");
        snprintf(out, size, "%.*s", (int)strcspn(line, "\"\n"), line);
        return;
    }
}

static int64_t usable_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

static void find_virtual(char *out, size_t size)
{
    char flags[4096], maker[PQ_FACT_TEXT];
    look_up("/proc/cpuinfo", "flags", flags, sizeof flags);
    bool hypervisor = strstr(flags, " hypervisor ") != NULL;
    look_up("/sys/class/dmi/id/sys_vendor", "", maker, sizeof maker);
    if (!hypervisor)
        snprintf(out, size, "no sign of it");
    else
        snprintf(out, size, strcmp(maker, "unknown") == 0 ? "yes" : "yes (%.100s)", maker);
}

static void add_library(struct pq_host_facts *f, const char *name, const char *version)
{
    f->libraries[f->library_count].name = name;
    snprintf(f->libraries[f->library_count++].version, sizeof f->libraries[0].version, "%s", version);
}

void pq_host_facts(struct pq_host_facts *out)
{
    char memory[PQ_FACT_TEXT], ev[32];
    struct utsname u;
    *out = (struct pq_host_facts){.cores = usable_cores()};
    look_up("/proc/cpuinfo", "model name", out->cpu, sizeof out->cpu);
    look_up("/etc/os-release", "PRETTY_NAME", out->distribution, sizeof out->distribution);
    look_up("/proc/meminfo", "MemTotal", memory, sizeof memory);
    out->memory_kib = strtoll(memory, NULL, 10);
    snprintf(out->kernel, sizeof out->kernel, "%s", uname(&u) == 0 ? u.release : "unknown");
    find_virtual(out->virtual_machine, sizeof out->virtual_machine);
    snprintf(ev, sizeof ev, "%d.%d", ev_version_major(), ev_version_minor());
    add_library(out, "openssl", OpenSSL_version(OPENSSL_VERSION_STRING));
    add_library(out, "nghttp2", nghttp2_version(0)->version_str);
    add_library(out, "libev", ev);
    add_library(out, "libfyaml", fy_library_version());
    add_library(out, "yyjson", YYJSON_VERSION_STRING);
}

int64_t pq_host_work_ns(void)
{
    enum { BLOCK = 1 << 16, BLOCKS = 256 };
    static unsigned char block[BLOCK];
    unsigned char digest[EVP_MAX_MD_SIZE];
    int64_t before = pq_clock_ns();
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    int ok = c && EVP_DigestInit_ex(c, EVP_sha256(), NULL);
    for (int i = 0; ok && i < BLOCKS; i++)
        ok = EVP_DigestUpdate(c, block, sizeof block);
    ok = ok && EVP_DigestFinal_ex(c, digest, NULL);
    EVP_MD_CTX_free(c);
    return ok ? pq_clock_ns() - before : 0;
}

int64_t pq_host_steal_ns(void)
{
    char line[256];
    int64_t steal = 0;
    look_up("/proc/stat", "cpu ", line, sizeof line);
    if (sscanf(line, "%*d %*d %*d %*d %*d %*d %*d %" SCNd64, &steal) != 1)
        return 0;
    return steal * (PQ_NS_PER_S / sysconf(_SC_CLK_TCK));
}
