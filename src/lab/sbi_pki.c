#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "crypto/pki.h"
#include "lab/sbi_internal.h"
#include "tls/tls.h"

/* Classical is what operators run: P-256 throughout. The others are one PQ algorithm for the whole authority over
 * leaves with ML-DSA-65, so that only what the chain costs to verify differs between them. SLH-DSA issues leaves from
 * the root: an intermediate's further 7,856 bytes would measure the number of certificates instead. */
static const struct authority {
    const char *name, *root, *intermediate, *leaf;
} authorities[] = {
    {"classical", "p256", "p256", "p256"},         {"mldsa44", "mldsa44", "mldsa44", "mldsa65"},
    {"mldsa65", "mldsa65", "mldsa65", "mldsa65"},  {"mldsa87", "mldsa87", "mldsa87", "mldsa65"},
    {"slhdsa128s", "slhdsa128s", NULL, "mldsa65"},
};
static const char *const leaves[] = {"amf", "nrf", "ausf", "udm", "udr"};
enum { HOUR_S = 3600, DAY_S = 24 * HOUR_S, HANDSHAKES = 10 };

static int issue(struct pq_sbi *s, const char *folder, const struct authority *a, const char *leaf, struct pq_why *why)
{
    char dns[64];
    snprintf(dns, sizeof dns, "DNS:%s.5gc.example", leaf);
    char *san[] = {dns};
    struct pq_pki_issue how = {.folder = folder,
                               .name = leaf,
                               .algorithm = a->leaf,
                               .san = {san, 1},
                               .not_before_s = -HOUR_S,
                               .valid_s = DAY_S};
    return pq_pki_issue(s->crypto, &how, why);
}

int pq_sbi_authority(struct pq_sbi *s, const char *name, struct pq_why *why)
{
    char folder[PQ_SBI_PATH];
    snprintf(folder, sizeof folder, "%s/pki/%s", s->lab->folder, name);
    if (access(folder, F_OK) == 0)
        return 0;
    for (size_t i = 0; i < PQ_COUNT(authorities); i++) {
        const struct authority *a = &authorities[i];
        if (strcmp(a->name, name) != 0)
            continue;
        TRY(pq_file_make_folders(folder, 0700, why));
        struct pq_pki_init how = {.folder = folder, .root = a->root, .intermediate = a->intermediate, .valid_s = DAY_S};
        TRY(pq_pki_init(s->crypto, &how, why));
        for (size_t l = 0; l < PQ_COUNT(leaves); l++)
            TRY(issue(s, folder, a, leaves[l], why));
        return 0;
    }
    return pq_why(why, PQ_E_INVALID, "there is no certification authority \"%s\"", name);
}

void pq_sbi_pki_path(const struct pq_sbi *s, const struct pq_sbi_cell *c, const char *file, char out[PQ_SBI_PATH])
{
    snprintf(out, PQ_SBI_PATH, "%s/pki/%s/%s", s->lab->folder, c->authority, file);
}

static int context(struct pq_sbi *s, const struct pq_sbi_cell *c, enum pq_tls_role role, const char *host,
                   struct pq_tls_context **out, struct pq_why *why)
{
    char certificate[PQ_SBI_PATH], key[PQ_SBI_PATH], ca[PQ_SBI_PATH], file[32];
    snprintf(file, sizeof file, "%s.crt", host);
    pq_sbi_pki_path(s, c, file, certificate);
    snprintf(file, sizeof file, "%s.key", host);
    pq_sbi_pki_path(s, c, file, key);
    pq_sbi_pki_path(s, c, "root.crt", ca);
    const struct pq_tls_identity identity = {certificate, key};
    struct pq_tls_settings how = {.policy = {.mode = (int)c->deployment->mode,
                                             .level = c->deployment->level,
                                             .require_pq_kex = c->deployment->require_pq,
                                             .require_pq_auth = c->deployment->require_pq},
                                  .identities = &identity,
                                  .identity_count = 1,
                                  .ca = ca,
                                  .verify_peer = true};
    return pq_tls_context_new(s->crypto, role, &how, out, why);
}

int pq_sbi_memory_handshakes(struct pq_sbi *s, const struct pq_sbi_cell *c, struct pq_visit *v, struct pq_why *why)
{
    DEFER(pq_tls_context_freep) struct pq_tls_context *client = NULL;
    DEFER(pq_tls_context_freep) struct pq_tls_context *server = NULL;
    TRY(context(s, c, PQ_TLS_CLIENT, c->hosts[0], &client, why));
    TRY(context(s, c, PQ_TLS_SERVER, c->hosts[1], &server, why));
    for (int i = 0; i <= HANDSHAKES; i++) {
        struct pq_tls_memory_cost cost;
        TRY(pq_tls_memory_handshake(client, server, &cost, why));
        /* CPU time of both sides: unlike elapsed time it is the same on a machine that does other things too. The first
         * handshake fills caches that the others find full. */
        double ms = (double)(cost.client_cpu_ns + cost.server_cpu_ns) / PQ_NS_PER_MS;
        if (i > 0 && pq_record_sample(v->lab->record, "memory_handshake_ms", ms, pq_clock_ns()) < 0)
            return pq_why(why, PQ_E_NOMEM, "out of memory");
    }
    return 0;
}
