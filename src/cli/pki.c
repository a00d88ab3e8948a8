#include "cli/cli.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/config.h"
#include "crypto/pki.h"
#include "crypto/pki_show.h"

static const char help_text[] =
    "usage: pqplane pki init  --dir DIR --root ALGORITHM [--intermediate ALGORITHM] [--name CN] [--valid 3650d]\n"
    "       pqplane pki issue --dir DIR --name NAME --algorithm ALGORITHM [--dns HOST] [--ip ADDRESS] [--uri URI] "
    "[--nf UUID]\n"
    "                         [--not-before -2d] [--valid 90d]\n"
    "       pqplane pki crl   --dir DIR [--revoke NAME-OR-SERIAL] [--valid 7d]\n"
    "       pqplane pki show  FILE...\n"
    "\n"
    "init makes an authority in DIR: root.crt, root.key, intermediate.crt and intermediate.key where asked for, and "
    "crl.pem\n"
    "(valid 30 days). issue makes NAME.crt (with the intermediate, without the root) and NAME.key. crl writes crl.pem "
    "anew.\n"
    "show tells what certificates, keys and revocation lists are; it never prints a secret. Nothing is ever "
    "overwritten.\n"
    "\n"
    "  --dns, --ip, --uri, --nf, --revoke  may be repeated; --nf takes an NF instance id\n"
    "  --valid      how long: 90d, 12h, 30min, 10s\n"
    "  --not-before the beginning, from now: 1h, -2d\n"
    "\n"
    "ALGORITHM is p256 p384 p521 ed25519 ed448 rsa2048 rsa3072 rsa4096 mldsa44 mldsa65 mldsa87, slhdsa128s slhdsa128f\n"
    "slhdsa192s slhdsa192f slhdsa256s slhdsa256f (SHA2), slhdsashake128s ... (SHAKE), or a provider's own name for "
    "one.\n";

enum { LIST_MAX = 256, SHOW_CAP = 64 << 20 };

struct options {
    char *dir, *root, *intermediate, *name, *algorithm, *valid, *not_before;
    char *san[LIST_MAX], *revoke[LIST_MAX];
    size_t san_count, revoke_count;
};

static void options_free(struct options *o)
{
    for (size_t i = 0; i < o->san_count; i++)
        free(o->san[i]);
}

enum { INIT = 1, ISSUE = 2, CRL = 4 };

static const struct row {
    const char *name;
    unsigned verbs;    /* that take it */
    unsigned required; /* verbs that can't do without */
    size_t offset;     /* of the char * in struct options, for those that come once */
    const char *san;   /* prefix of a subject alternative name */
} rows[] = {
    {"--dir", INIT | ISSUE | CRL, INIT | ISSUE | CRL, offsetof(struct options, dir), NULL},
    {"--root", INIT, INIT, offsetof(struct options, root), NULL},
    {"--intermediate", INIT, 0, offsetof(struct options, intermediate), NULL},
    {"--name", INIT | ISSUE, ISSUE, offsetof(struct options, name), NULL},
    {"--algorithm", ISSUE, ISSUE, offsetof(struct options, algorithm), NULL},
    {"--valid", INIT | ISSUE | CRL, 0, offsetof(struct options, valid), NULL},
    {"--not-before", ISSUE, 0, offsetof(struct options, not_before), NULL},
    {"--dns", ISSUE, 0, 0, "DNS"},
    {"--ip", ISSUE, 0, 0, "IP"},
    {"--uri", ISSUE, 0, 0, "URI"},
    {"--nf", ISSUE, 0, 0, "NF"},
    {"--revoke", CRL, 0, offsetof(struct options, revoke), NULL},
};

/* Returns the exit status. */
static int take(struct options *o, const struct row *r, char *value)
{
    if (r->san) {
        if (o->san_count == LIST_MAX)
            return pq_cli_usage("pki", "more than %d names", LIST_MAX);
        if (asprintf(&o->san[o->san_count], "%s:%s", r->san, value) < 0)
            return pq_cli_fail("pki", PQ_E_NOMEM, NULL);
        o->san_count++;
        return 0;
    }
    if (r->offset == offsetof(struct options, revoke)) {
        if (o->revoke_count == LIST_MAX)
            return pq_cli_usage("pki", "more than %d certificates to revoke at once", LIST_MAX);
        o->revoke[o->revoke_count++] = value;
        return 0;
    }
    char **once = (char **)(void *)((char *)o + r->offset);
    if (*once)
        return pq_cli_usage("pki", "%s is given twice", r->name);
    *once = value;
    return 0;
}

static const struct row *find(const char *text, size_t len, unsigned verb)
{
    for (size_t i = 0; i < PQ_COUNT(rows); i++)
        if ((rows[i].verbs & verb) && strlen(rows[i].name) == len && strncmp(rows[i].name, text, len) == 0)
            return &rows[i];
    return NULL;
}

static int read_options(int argc, char **argv, unsigned verb, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        char *equals = strncmp(argv[i], "--", 2) == 0 ? strchr(argv[i], '=') : NULL;
        size_t len = equals ? (size_t)(equals - argv[i]) : strlen(argv[i]);
        const struct row *r = find(argv[i], len, verb);
        if (!r)
            return pq_cli_usage("pki", "%s takes no \"%s\"", argv[0], argv[i]);
        char *value = equals ? equals + 1 : ++i < argc ? argv[i] : NULL;
        if (!value || !*value)
            return pq_cli_usage("pki", "%s needs a value", r->name);
        int status = take(o, r, value);
        if (status)
            return status;
    }
    for (size_t i = 0; i < PQ_COUNT(rows); i++)
        if ((rows[i].required & verb) && !*(char **)(void *)((char *)o + rows[i].offset))
            return pq_cli_usage("pki", "%s needs %s", argv[0], rows[i].name);
    return 0;
}

/* Whole seconds of "90d" and, where it may be negative, "-2d". */
static int seconds(const char *option, const char *text, bool negative, int64_t *out)
{
    struct pq_why why = {{0}};
    int64_t ns = 0;
    bool minus = negative && text[0] == '-';
    if (pq_duration_parse(text + minus, &ns, &why) < 0)
        return pq_cli_usage("pki", "%s: %s", option, why.text);
    if (ns % PQ_NS_PER_S || (!negative && ns == 0))
        return pq_cli_usage("pki", "%s: %s is not a whole number of seconds above 0", option, text);
    *out = ns / PQ_NS_PER_S * (minus ? -1 : 1);
    return 0;
}

static int run_init(struct pq_crypto *c, const struct options *o, struct pq_why *why)
{
    struct pq_pki_init how = {.folder = o->dir, .root = o->root, .intermediate = o->intermediate, .name = o->name};
    int status = seconds("--valid", o->valid ? o->valid : "3650d", false, &how.valid_s);
    return status ? status : pq_pki_init(c, &how, why);
}

static int run_issue(struct pq_crypto *c, const struct options *o, struct pq_why *why)
{
    struct pq_pki_issue how = {
        .folder = o->dir, .name = o->name, .algorithm = o->algorithm, .san = {(char **)o->san, o->san_count}};
    int status = o->valid ? seconds("--valid", o->valid, false, &how.valid_s) : 0;
    if (status == 0 && o->not_before)
        status = seconds("--not-before", o->not_before, true, &how.not_before_s);
    return status ? status : pq_pki_issue(c, &how, why);
}

static int run_crl(struct pq_crypto *c, const struct options *o, struct pq_why *why)
{
    struct pq_pki_crl how = {.folder = o->dir, .revoke = {(char **)o->revoke, o->revoke_count}};
    int status = seconds("--valid", o->valid ? o->valid : "7d", false, &how.valid_s);
    return status ? status : pq_pki_crl(c, &how, why);
}

static int show(int argc, char **argv)
{
    struct pq_why why = {{0}};
    DEFER(pq_crypto_freep) struct pq_crypto *c = NULL;
    if (argc < 2)
        return pq_cli_usage("pki", "show needs a file");
    int e = pq_crypto_new(&c, &why);
    if (e < 0)
        return pq_cli_fail("pki", e, &why);
    int status = 0;
    for (int i = 1; i < argc; i++) {
        DEFER(pq_buf_free) struct pq_buf text = {.cap = SHOW_CAP};
        e = pq_pki_show_file(c, argv[i], (time_t)(pq_clock_wall_ns() / PQ_NS_PER_S), &text, &why);
        fwrite(text.len ? (const char *)text.at : "", 1, text.len, stdout);
        if (e < 0)
            status = pq_cli_fail("pki", e, &why);
    }
    if (fflush(stdout) != 0)
        return pq_cli_fail("pki", PQ_E_IO, NULL);
    return status;
}

/* run gives 0, an exit status above 0 that has been explained, or an error. */
static const struct {
    const char *name;
    unsigned verb;
    int (*run)(struct pq_crypto *c, const struct options *o, struct pq_why *why);
} verbs[] = {{"init", INIT, run_init}, {"issue", ISSUE, run_issue}, {"crl", CRL, run_crl}};

static int run(size_t verb, int argc, char **argv)
{
    struct pq_why why = {{0}};
    DEFER(options_free) struct options o = {0};
    DEFER(pq_crypto_freep) struct pq_crypto *c = NULL;
    int e = read_options(argc, argv, verbs[verb].verb, &o);
    if (e == 0)
        e = pq_crypto_new(&c, &why);
    if (e == 0)
        e = verbs[verb].run(c, &o, &why);
    return e < 0 ? pq_cli_fail("pki", e, &why) : e;
}

int pq_cli_pki(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(help_text, stdout);
            return 0;
        }
    if (argc < 2)
        return pq_cli_usage("pki", "say what to do: init, issue, crl or show");
    if (strcmp(argv[1], "show") == 0)
        return show(argc - 1, argv + 1);
    for (size_t i = 0; i < PQ_COUNT(verbs); i++)
        if (strcmp(verbs[i].name, argv[1]) == 0)
            return run(i, argc - 1, argv + 1);
    return pq_cli_usage("pki", "there is no \"%s\": init, issue, crl and show there are", argv[1]);
}
