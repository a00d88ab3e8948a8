#include "cli/cli.h"

#include <stdio.h>
#include <string.h>
#include <yyjson.h>

#include "base/table.h"
#include "crypto/suite.h"

PQ_DEFINE_FREEP(yyjson_mut_doc, yyjson_mut_doc_free)

static const char help_text[] =
    "usage: pqplane suites [--json]\n"
    "\n"
    "Lists what a mode (plain, classical, hybrid, pure) and a level (NIST category 1, 3 or 5) stand for.\n"
    "\n"
    "  --json  one document: {\"suites\": [{\"name\", \"mode\", \"level\", \"groups\", \"server_groups\", "
    "\"signature_algorithms\",\n"
    "          \"key\", \"cipher_suites\"}]}; lists are arrays in order of preference, server_groups is OpenSSL's "
    "text\n"
    "          (\"/\" separates what is preferred even at the cost of another round trip)\n";

/* The n-th item of a list, "" behind its end; "-" for an empty list. */
static void item(struct pq_table *t, const char *list, size_t n)
{
    if (!*list && n == 0)
        list = "-";
    for (; n && *list; n--) {
        list += strcspn(list, ":");
        list += *list == ':';
    }
    pq_table_cell(t, "%.*s", (int)strcspn(list, ":"), list);
}

static size_t item_count(const char *list)
{
    size_t n = *list != 0;
    for (; *list; list++)
        n += *list == ':';
    return n;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* An item a line, so that the table fits a terminal. */
static void add_suite(struct pq_table *t, const struct pq_suite *s)
{
    size_t lines =
        larger(larger(item_count(s->groups), item_count(s->sigalgs)), larger(item_count(s->ciphersuites), 1));
    for (size_t i = 0; i < lines; i++) {
        pq_table_cell(t, "%s", i ? "" : s->name);
        item(t, s->groups, i);
        item(t, s->sigalgs, i);
        item(t, s->key, i);
        item(t, s->ciphersuites, i);
    }
}

static int print_table(const struct pq_suite *suites, size_t count)
{
    static const char *const heads[] = {"suite", "groups", "signatures", "key", "cipher suites"};
    DEFER(pq_table_freep) struct pq_table *t = NULL;
    TRY(pq_table_new("lllll", &t));
    for (size_t i = 0; i < PQ_COUNT(heads); i++)
        pq_table_cell(t, "%s", heads[i]);
    for (size_t i = 0; i < count; i++)
        add_suite(t, &suites[i]);
    TRY(pq_table_print(t, stdout));
    for (size_t i = 0; i < count; i++)
        if (strcmp(suites[i].groups, suites[i].server_groups) != 0)
            printf("\na server's groups for %s: %s\n", suites[i].name, suites[i].server_groups);
    return 0;
}

static bool put_list(yyjson_mut_doc *d, yyjson_mut_val *o, const char *key, const char *list)
{
    yyjson_mut_val *items_of = yyjson_mut_obj_add_arr(d, o, key);
    if (!items_of)
        return false;
    while (*list) {
        size_t len = strcspn(list, ":");
        if (!yyjson_mut_arr_add_strncpy(d, items_of, list, len))
            return false;
        list += len + (list[len] == ':');
    }
    return true;
}

static bool put_suite(yyjson_mut_doc *d, yyjson_mut_val *list, const struct pq_suite *s)
{
    yyjson_mut_val *o = yyjson_mut_arr_add_obj(d, list);
    return o && yyjson_mut_obj_add_str(d, o, "name", s->name) &&
           yyjson_mut_obj_add_str(d, o, "mode", pq_mode_names[s->mode]) &&
           yyjson_mut_obj_add_int(d, o, "level", s->level) && put_list(d, o, "groups", s->groups) &&
           yyjson_mut_obj_add_str(d, o, "server_groups", s->server_groups) &&
           put_list(d, o, "signature_algorithms", s->sigalgs) && yyjson_mut_obj_add_str(d, o, "key", s->key) &&
           put_list(d, o, "cipher_suites", s->ciphersuites);
}

static int print_json(const struct pq_suite *suites, size_t count)
{
    DEFER(yyjson_mut_doc_freep) yyjson_mut_doc *d = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = d ? yyjson_mut_obj(d) : NULL;
    yyjson_mut_val *list = root ? yyjson_mut_obj_add_arr(d, root, "suites") : NULL;
    if (!list)
        return PQ_E_NOMEM;
    yyjson_mut_doc_set_root(d, root);
    for (size_t i = 0; i < count; i++)
        if (!put_suite(d, list, &suites[i]))
            return PQ_E_NOMEM;
    return yyjson_mut_write_fp(stdout, d, YYJSON_WRITE_PRETTY | YYJSON_WRITE_NEWLINE_AT_END, NULL, NULL) ? 0 : PQ_E_IO;
}

int pq_cli_suites(int argc, char **argv)
{
    bool json = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(help_text, stdout);
            return 0;
        }
        if (strcmp(argv[i], "--json") != 0)
            return pq_cli_usage("suites", "there is no option \"%s\"", argv[i]);
        json = true;
    }
    struct pq_why why = {{0}};
    size_t count = 0;
    const struct pq_suite *suites = pq_suites(&count);
    int e = json ? print_json(suites, count) : print_table(suites, count);
    if (e == 0 && fflush(stdout) != 0)
        e = pq_why(&why, PQ_E_IO, "can't write to standard output");
    return e < 0 ? pq_cli_fail("suites", e, &why) : 0;
}
