#include "cli/cli.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <yyjson.h>

#include "base/table.h"
#include "crypto/catalogue.h"

PQ_DEFINE_FREEP(yyjson_mut_doc, yyjson_mut_doc_free)

static const char help_text[] =
    "usage: pqplane algorithms [--json] [--provider NAME-OR-PATH]...\n"
    "\n"
    "Lists every key exchange and signature algorithm that the loaded OpenSSL providers offer to TLS 1.3, and "
    "post-quantum\n"
    "ones without a TLS code point (\"-\"). Sizes are bytes, measured on a fresh key; a signature's is the longest "
    "there is;\n"
    "RSA is shown with 2048 bits. A category (\"cat\") is NIST's; \"answer\" is a KEM's ciphertext or the server's "
    "share.\n"
    "\n"
    "  --json      one document: {\"openssl\": TEXT, \"algorithms\": [{\"name\", \"use\": \"key-exchange\" or "
    "\"signature\",\n"
    "              \"kind\": \"classical\", \"hybrid\", \"pq\" or \"unknown\", \"experimental\", \"category\", "
    "\"security_bits\",\n"
    "              \"code_point\", \"public_key_bytes\", \"ciphertext_bytes\", \"signature_bytes\", \"provider\"}]};\n"
    "              null stands for what there is not\n"
    "  --provider  loads another provider beside those there are\n";

static void number(struct pq_table *t, long n, long none)
{
    if (n == none)
        pq_table_cell(t, "-");
    else
        pq_table_cell(t, "%ld", n);
}

static void code_point(struct pq_table *t, int n)
{
    if (n < 0)
        pq_table_cell(t, "-");
    else
        pq_table_cell(t, "0x%04x", (unsigned)n);
}

/* A provider that was loaded by its path is named by it: "/usr/lib/.../oqsprovider.so". */
static void provider_name(struct pq_table *t, const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *base = slash ? slash + 1 : *name ? name : "-";
    size_t len = strlen(base);
    pq_table_cell(t, "%.*s", (int)(len > 3 && strcmp(base + len - 3, ".so") == 0 ? len - 3 : len), base);
}

static int print_use(const struct pq_catalogue *all, enum pq_use use)
{
    static const char *const heads[][8] = {
        {"key exchange", "kind", "cat", "bits", "code", "key share", "answer", "provider"},
        {"signature", "kind", "cat", "bits", "code", "public key", "signature", "provider"},
    };
    DEFER(pq_table_freep) struct pq_table *t = NULL;
    TRY(pq_table_new("llrrlrrl", &t));
    for (size_t i = 0; i < PQ_COUNT(heads[0]); i++)
        pq_table_cell(t, "%s", heads[use][i]);
    for (size_t i = 0; i < all->count; i++) {
        const struct pq_algorithm *a = &all->at[i];
        if (a->use != use)
            continue;
        pq_table_cell(t, "%s", a->name);
        pq_table_cell(t, "%s%s", pq_kind_names[a->kind], a->experimental ? "*" : "");
        number(t, a->category, 0);
        number(t, a->security_bits, 0);
        code_point(t, a->code_point);
        number(t, a->size.public_key, -1);
        number(t, use == PQ_USE_SIGNATURE ? a->size.signature : a->size.ciphertext, -1);
        provider_name(t, a->provider);
    }
    return pq_table_print(t, stdout);
}

static int print_tables(const struct pq_catalogue *all)
{
    TRY(print_use(all, PQ_USE_KEY_EXCHANGE));
    putchar('\n');
    TRY(print_use(all, PQ_USE_SIGNATURE));
    for (size_t i = 0; i < all->count; i++)
        if (all->at[i].experimental)
            return puts("\n* experimental: not standardised, or not for general use") < 0 ? PQ_E_IO : 0;
    return 0;
}

static bool put_number(yyjson_mut_doc *d, yyjson_mut_val *o, const char *key, long n, long none)
{
    return n == none ? yyjson_mut_obj_add_null(d, o, key) : yyjson_mut_obj_add_int(d, o, key, n);
}

static bool put_algorithm(yyjson_mut_doc *d, yyjson_mut_val *list, const struct pq_algorithm *a)
{
    yyjson_mut_val *o = yyjson_mut_arr_add_obj(d, list);
    return o && yyjson_mut_obj_add_str(d, o, "name", a->name) &&
           yyjson_mut_obj_add_str(d, o, "use", pq_use_names[a->use]) &&
           yyjson_mut_obj_add_str(d, o, "kind", pq_kind_names[a->kind]) &&
           yyjson_mut_obj_add_bool(d, o, "experimental", a->experimental) &&
           put_number(d, o, "category", a->category, 0) && put_number(d, o, "security_bits", a->security_bits, 0) &&
           put_number(d, o, "code_point", a->code_point, -1) &&
           put_number(d, o, "public_key_bytes", a->size.public_key, -1) &&
           put_number(d, o, "ciphertext_bytes", a->size.ciphertext, -1) &&
           put_number(d, o, "signature_bytes", a->size.signature, -1) &&
           yyjson_mut_obj_add_str(d, o, "provider", a->provider);
}

static int print_json(const struct pq_catalogue *all)
{
    DEFER(yyjson_mut_doc_freep) yyjson_mut_doc *d = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = d ? yyjson_mut_obj(d) : NULL;
    if (!root || !yyjson_mut_obj_add_str(d, root, "openssl", OpenSSL_version(OPENSSL_VERSION)))
        return PQ_E_NOMEM;
    yyjson_mut_doc_set_root(d, root);
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(d, root, "algorithms");
    if (!list)
        return PQ_E_NOMEM;
    for (size_t i = 0; i < all->count; i++)
        if (!put_algorithm(d, list, &all->at[i]))
            return PQ_E_NOMEM;
    return yyjson_mut_write_fp(stdout, d, YYJSON_WRITE_PRETTY | YYJSON_WRITE_NEWLINE_AT_END, NULL, NULL) ? 0 : PQ_E_IO;
}

int pq_cli_algorithms(int argc, char **argv)
{
    struct pq_why why = {{0}};
    bool json = false;
    DEFER(pq_crypto_freep) struct pq_crypto *c = NULL;
    DEFER(pq_catalogue_free) struct pq_catalogue all = {0};
    int e = pq_crypto_new(&c, &why);
    for (int i = 1; i < argc && e == 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(help_text, stdout);
            return 0;
        }
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strncmp(argv[i], "--provider=", 11) == 0)
            e = pq_crypto_load(c, argv[i] + 11, &why);
        else if (strcmp(argv[i], "--provider") == 0 && i + 1 < argc)
            e = pq_crypto_load(c, argv[++i], &why);
        else if (strcmp(argv[i], "--provider") == 0)
            return pq_cli_usage("algorithms", "--provider needs a name or a path");
        else
            return pq_cli_usage("algorithms", "there is no option \"%s\"", argv[i]);
    }
    if (e == 0)
        e = pq_catalogue_new(c, &all, &why);
    if (e == 0)
        e = json ? print_json(&all) : print_tables(&all);
    if (e == 0 && fflush(stdout) != 0)
        e = pq_why(&why, PQ_E_IO, "can't write to standard output");
    return e < 0 ? pq_cli_fail("algorithms", e, &why) : 0;
}
