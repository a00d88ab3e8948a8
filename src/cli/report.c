#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/file.h"
#include "cli/cli.h"
#include "report/report.h"

enum { WIDEST = 120, WIDTH_OF_A_FILE = 120 };

static const char help[] =
    "usage: pqplane report DIR... [--html FILE] [--csv FILE]\n"
    "       pqplane report --compare DIR DIR\n"
    "\n"
    "Says what the results of pqplane lab show: a table, and an answer to each question of the experiment.\n"
    "DIR is a folder with results.json, or that file.\n"
    "\n"
    "  --html FILE  write one page with tables, plots and the raw data; it needs no network\n"
    "  --csv FILE   write every sample, a row each\n"
    "               FILE - is standard output, of --html or of --csv; the table is left out then\n"
    "  --compare    say what share of the intervals of two runs overlaps\n";

struct options {
    const char *html, *csv;
    bool compare, help;
};

struct reports {
    struct pq_report **at;
    size_t count;
};

static void reports_free(struct reports *r)
{
    for (size_t i = 0; i < r->count; i++)
        pq_report_free(r->at[i]);
    free(r->at);
}

static bool is_output(const char *path) { return path && strcmp(path, "-") == 0; }

static int parse(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {{"html", required_argument, NULL, 'h'},
                                          {"csv", required_argument, NULL, 'c'},
                                          {"compare", no_argument, NULL, 'C'},
                                          {"help", no_argument, NULL, '?' + 256},
                                          {NULL, 0, NULL, 0}};
    optind = 1;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":", longs, NULL)) != -1;) {
        switch (c) {
        case 'h':
            o->html = optarg;
            break;
        case 'c':
            o->csv = optarg;
            break;
        case 'C':
            o->compare = true;
            break;
        case '?' + 256:
            o->help = true;
            return 0;
        case ':':
            return pq_cli_usage("report", "%s needs a value", argv[optind - 1]);
        default:
            return pq_cli_usage("report", "there is no option %s", argv[optind - 1]);
        }
    }
    if (optind == argc)
        return pq_cli_usage("report", "name the folder with results.json");
    if (o->compare && argc - optind != 2)
        return pq_cli_usage("report", "--compare takes two runs, not %d", argc - optind);
    if (o->compare && (o->html || o->csv))
        return pq_cli_usage("report", "--compare writes no file");
    if (is_output(o->html) && is_output(o->csv))
        return pq_cli_usage("report", "standard output takes --html or --csv, not both");
    return 0;
}

static int open_all(char *const *paths, size_t count, struct reports *r, struct pq_why *why)
{
    r->at = calloc(count, sizeof *r->at);
    if (!r->at)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    for (; r->count < count; r->count++)
        TRY(pq_report_open(paths[r->count], &r->at[r->count], why));
    return 0;
}

static unsigned terminal_width(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
        return WIDTH_OF_A_FILE;
    return size.ws_col > WIDEST ? WIDEST : size.ws_col;
}

static int save(const char *path, const struct pq_out *o, struct pq_why *why)
{
    if (!is_output(path))
        return pq_file_write(path, pq_span(o->buf.at, o->buf.len), 0644, PQ_FILE_REPLACE, why);
    if (fwrite(o->buf.at, 1, o->buf.len, stdout) != o->buf.len)
        return pq_why(why, PQ_E_IO, "can't write to standard output: %s", strerror(errno));
    return 0;
}

static int write_csv(const struct reports *r, const char *path, struct pq_why *why)
{
    DEFER(pq_out_free) struct pq_out o = {.buf.cap = PQ_REPORT_CSV_MAX};
    int e = pq_report_csv(r->at, r->count, &o);
    if (e < 0)
        return pq_why(why, e, "%s: %s", path, pq_error_text(e));
    return save(path, &o, why);
}

static int write_html(const struct reports *r, const char *path, struct pq_why *why)
{
    DEFER(pq_out_free) struct pq_out o = {.buf.cap = PQ_REPORT_HTML_MAX};
    TRY(pq_report_html(r->at, r->count, &o, why));
    return save(path, &o, why);
}

static int print(const struct reports *r, struct pq_why *why)
{
    bool terminal = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
    int e = pq_report_print(r->at, r->count, stdout, terminal_width(), terminal);
    return e < 0 ? pq_why(why, e, "can't write the table: %s", pq_error_text(e)) : 0;
}

static int run(const struct reports *r, const struct options *o, struct pq_why *why)
{
    if (o->compare)
        return pq_report_compare(r->at[0], r->at[1], stdout, why);
    if (!is_output(o->csv) && !is_output(o->html))
        TRY(print(r, why));
    if (o->csv)
        TRY(write_csv(r, o->csv, why));
    return o->html ? write_html(r, o->html, why) : 0;
}

int pq_cli_report(int argc, char **argv)
{
    struct options o = {0};
    struct pq_why why = {{0}};
    DEFER(reports_free) struct reports r = {0};
    int status = parse(argc, argv, &o);
    if (status)
        return status;
    if (o.help) {
        fputs(help, stdout);
        return 0;
    }
    int e = open_all(argv + optind, (size_t)(argc - optind), &r, &why);
    if (e == 0)
        e = run(&r, &o, &why);
    if (e == 0 && fflush(stdout) != 0)
        e = pq_why(&why, PQ_E_IO, "can't write to standard output");
    return e < 0 ? pq_cli_fail("report", e, &why) : 0;
}
