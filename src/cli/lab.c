#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/table.h"
#include "cli/cli.h"
#include "cli/experiments.h"
#include "lab/experiment.h"
#include "lab/progress.h"
#include "lab/run.h"
#include "report/published.h"
#include "report/question.h"
#include "version.h"

static const char help[] =
    "usage: pqplane lab run EXPERIMENT [--out DIR] [--seed N] [--repetitions N] [--quick]\n"
    "       pqplane lab list\n"
    "\n"
    "run measures an experiment: a file, or the name of one that list shows. It needs root, or a system that lets "
    "users\n"
    "make user namespaces; its hosts, links, keys and processes are private and vanish with it.\n"
    "\n"
    "  --out DIR        where results.json goes (results/NAME-TIME); one that is there is replaced\n"
    "  --seed N         the same seed visits the cells in the same order (otherwise a random one)\n"
    "  --repetitions N  instead of the file's; fewer than 3 give no intervals and decide nothing\n"
    "  --quick          the smaller load and fewer repetitions that the file names under quick:\n"
    "\n"
    "Ctrl-C ends a run in order: what was measured is kept, the exit status is 130.\n";

enum { INTERRUPTED = 130, SEED_LIMIT = 1 << 30 };

struct options {
    const char *out, *experiment;
    int64_t seed, repetitions; /* -1, 0: not given */
    bool quick, help;
};

static int read_number(const char *option, const char *text, int64_t low, int64_t high, int64_t *out)
{
    struct pq_why why = {{0}};
    return pq_int_parse(text, low, high, out, &why) < 0 ? pq_cli_usage("lab", "%s %s: %s", option, text, why.text) : 0;
}

static int read_options(int argc, char **argv, struct options *o)
{
    static const struct option known[] = {{"out", required_argument, NULL, 'o'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"repetitions", required_argument, NULL, 'r'},
                                          {"quick", no_argument, NULL, 'q'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int e = 0;
    *o = (struct options){.seed = -1};
    opterr = 0;
    optind = 1;
    for (int c; e == 0 && (c = getopt_long(argc, argv, ":h", known, NULL)) != -1;) {
        switch (c) {
        case 'o':
            o->out = optarg;
            break;
        case 's':
            e = read_number("--seed", optarg, 0, INT64_MAX, &o->seed);
            break;
        case 'r':
            e = read_number("--repetitions", optarg, 1, 10000, &o->repetitions);
            break;
        case 'q':
            o->quick = true;
            break;
        case 'h':
            o->help = true;
            return 0;
        case ':':
            return pq_cli_usage("lab", "%s needs a value", argv[optind - 1]);
        default:
            return pq_cli_usage("lab", "there is no option %s", argv[optind - 1]);
        }
    }
    if (e == 0 && optind + 1 != argc)
        return pq_cli_usage("lab", optind == argc ? "name the experiment to run" : "name one experiment, not %d",
                            argc - optind);
    o->experiment = argv[optind];
    return e;
}

/* --- run */

static int check_questions(const struct pq_experiment *x, struct pq_why *why)
{
    DEFER(pq_document_freep) struct pq_document *d = NULL;
    DEFER(pq_document_freep) struct pq_document *published = NULL;
    TRY(pq_document_parse(x->file, x->text, strlen(x->text), &d, why));
    if (x->published_text)
        TRY(pq_document_parse(x->published, x->published_text, strlen(x->published_text), &published, why));
    const struct pq_node *root = pq_document_root(d);
    return pq_question_check(pq_node_get(root, "questions"), root, published ? pq_document_root(published) : NULL, why);
}

/* Small enough to be typed again. */
static uint64_t random_seed(void)
{
    uint32_t v = 0;
    return getrandom(&v, sizeof v, 0) == sizeof v ? v % SEED_LIMIT : (uint64_t)pq_clock_wall_ns() % SEED_LIMIT;
}

/* Makes the folder, so that no two runs get the same one. */
static int default_folder(const struct pq_experiment *x, char *out, size_t size, struct pq_why *why)
{
    enum { SAME_SECOND = 1000 };
    char now[32];
    pq_clock_rfc3339(pq_clock_wall_ns(), now, sizeof now);
    now[19] = 0;
    for (char *c = now; *c; c++)
        if (*c == ':')
            *c = '-';
    TRY(pq_file_make_folders("results", 0755, why));
    for (int i = 1; i <= SAME_SECOND; i++) {
        char number[16] = "";
        if (i > 1)
            snprintf(number, sizeof number, "-%d", i);
        int n = snprintf(out, size, "results/%s-%s%s", x->name, now, number);
        if (n < 0 || (size_t)n >= size)
            return pq_why(why, PQ_E_TOO_LONG, "the folder name is too long");
        if (mkdir(out, 0755) == 0)
            return 0;
        if (errno != EEXIST)
            return pq_why(why, pq_error_from_errno(errno), "can't make the folder %s: %s", out, strerror(errno));
    }
    return pq_why(why, PQ_E_LIMIT, "%d runs began in this second: name a folder with --out", SAME_SECOND);
}

static bool is_plain(const char *text)
{
    return *text &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@%+=,-") == strlen(text);
}

static bool is_printable(const char *text)
{
    while (*text >= ' ' && *text <= '~')
        text++;
    return *text == 0;
}

/* As one word of a shell. $'...' (POSIX 2024) takes what a terminal or JSON would not. */
static int quote(const char *text, struct pq_buf *b)
{
    if (is_plain(text))
        return pq_buf_printf(b, "%s", text);
    bool printable = is_printable(text);
    TRY(pq_buf_text(b, printable ? "'" : "$'"));
    for (; *text; text++) {
        bool as_it_is = *text >= ' ' && *text <= '~' && *text != '\'' && (printable || *text != '\\');
        if (as_it_is)
            TRY(pq_buf_printf(b, "%c", *text));
        else if (printable)
            TRY(pq_buf_printf(b, "'\\''"));
        else
            TRY(pq_buf_printf(b, "\\%03o", (unsigned char)*text));
    }
    return pq_buf_printf(b, "'");
}

static int command_to_repeat(const struct options *o, uint64_t seed, struct pq_buf *b)
{
    TRY(pq_buf_printf(b, "pqplane lab run --seed %llu", (unsigned long long)seed));
    if (o->repetitions)
        TRY(pq_buf_printf(b, " --repetitions %lld", (long long)o->repetitions));
    TRY(pq_buf_printf(b, "%s%s ", o->quick ? " --quick" : "", o->experiment[0] == '-' ? " --" : ""));
    return quote(o->experiment, b);
}

static int run_it(const struct options *o, struct pq_why *why)
{
    DEFER(pq_experiment_freep) struct pq_experiment *x = NULL;
    DEFER(pq_buf_free) struct pq_buf command = {.cap = 5 * PATH_MAX};
    char path[PATH_MAX], folder[PATH_MAX], took[40];
    TRY(pq_experiments_find(o->experiment, path, sizeof path, why));
    TRY(pq_experiment_load(path, o->quick, &x, why));
    TRY(check_questions(x, why));
    if (o->repetitions)
        x->repetitions = o->repetitions;
    uint64_t seed = o->seed < 0 ? random_seed() : (uint64_t)o->seed;
    int e = command_to_repeat(o, seed, &command);
    if (e < 0)
        return pq_why(why, e, "can't write down the command: %s", pq_error_text(e));
    if (o->out && snprintf(folder, sizeof folder, "%s", o->out) >= (int)sizeof folder)
        return pq_why(why, PQ_E_TOO_LONG, "the folder name is too long");
    if (!o->out)
        TRY(default_folder(x, folder, sizeof folder, why));
    fprintf(stderr, "%s: %zu cells, %lld rounds, seed %llu\n", x->name, x->cell_count, (long long)x->repetitions,
            (unsigned long long)seed);
    struct pq_run_summary sum = {0};
    struct pq_run_options how = {.out_folder = folder,
                                 .own_folder = !o->out,
                                 .version = PQ_VERSION,
                                 .command = (const char *)command.at,
                                 .seed = seed,
                                 .bar = isatty(STDERR_FILENO)};
    int64_t began = pq_clock_ns();
    e = pq_run(x, &how, &sum, why);
    pq_progress_duration(pq_clock_ns() - began, took, sizeof took);
    if (sum.written)
        fprintf(stderr, "%s/results.json: %lld of %lld rounds, %llu visits, %llu failures, %s\n", folder,
                (long long)sum.rounds, (long long)x->repetitions, (unsigned long long)sum.visits,
                (unsigned long long)sum.failures, took);
    return e;
}

static int run(int argc, char **argv)
{
    struct options o;
    struct pq_why why = {{0}};
    int status = read_options(argc, argv, &o);
    if (status != 0)
        return status;
    if (o.help)
        return fputs(help, stdout) < 0;
    int e = run_it(&o, &why);
    if (e == 0)
        return 0;
    status = pq_cli_fail("lab", e, &why);
    return e == PQ_E_INTERRUPTED ? INTERRUPTED : status;
}

/* --- list */

static void study_of(const struct pq_experiment *x, char *out, size_t size)
{
    DEFER(pq_document_freep) struct pq_document *d = NULL;
    snprintf(out, size, "-");
    if (x->published_text &&
        pq_document_parse(x->published, x->published_text, strlen(x->published_text), &d, NULL) == 0)
        pq_published_source(pq_document_root(d), out, size);
}

static int list_one(const char *path, struct pq_table *t, struct pq_why *why)
{
    DEFER(pq_experiment_freep) struct pq_experiment *x = NULL;
    char study[200];
    TRY(pq_experiment_load(path, false, &x, why));
    study_of(x, study, sizeof study);
    pq_table_cell(t, "%s", x->name);
    pq_table_cell(t, "%zu", x->cell_count);
    pq_table_cell(t, "%lld", (long long)x->repetitions);
    pq_table_cell(t, "%s", x->why);
    pq_table_cell(t, "%s", study);
    return 0;
}

static int list(int argc, char **argv)
{
    struct pq_why why = {{0}};
    DEFER(pq_table_freep) struct pq_table *t = NULL;
    DEFER(pq_experiments_free) struct pq_strings paths = {0};
    if (argc > 1)
        return pq_cli_usage("lab", "list takes no %s", argv[1]);
    int e = pq_experiments_list(&paths, &why);
    e = e < 0 ? e : pq_table_new("lrrll", &t);
    if (e < 0)
        return pq_cli_fail("lab", e, &why);
    const char *const heading[] = {"experiment", "cells", "rounds", "why", "published study"};
    for (size_t i = 0; i < PQ_COUNT(heading); i++)
        pq_table_cell(t, "%s", heading[i]);
    int status = 0;
    for (size_t i = 0; i < paths.count; i++)
        if (list_one(paths.at[i], t, &why) < 0)
            status = pq_cli_fail("lab", PQ_E_CONFIG, &why); /* the others are listed nevertheless */
    return pq_table_print(t, stdout) < 0 ? pq_cli_fail("lab", PQ_E_NOMEM, NULL) : status;
}

int pq_cli_lab(int argc, char **argv)
{
    if (argc < 2)
        return pq_cli_usage("lab", "say what to do: run or list");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return fputs(help, stdout) < 0;
    if (strcmp(argv[1], "run") == 0)
        return run(argc - 1, argv + 1);
    if (strcmp(argv[1], "list") == 0)
        return list(argc - 1, argv + 1);
    return pq_cli_usage("lab", "there is no \"%s\": say run or list", argv[1]);
}
