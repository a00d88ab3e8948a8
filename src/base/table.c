#include "base/table.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct pq_table {
    char *columns;
    size_t width, count, size;
    char **cells;
    bool failed;
};

int pq_table_new(const char *columns, struct pq_table **out)
{
    if (!*columns)
        return PQ_E_INVALID;
    struct pq_table *t = calloc(1, sizeof *t);
    if (!t)
        return PQ_E_NOMEM;
    t->columns = strdup(columns);
    if (!t->columns) {
        free(t);
        return PQ_E_NOMEM;
    }
    t->width = strlen(columns);
    *out = t;
    return 0;
}

void pq_table_free(struct pq_table *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->count; i++)
        free(t->cells[i]);
    free(t->cells);
    free(t->columns);
    free(t);
}

void pq_table_cell(struct pq_table *t, const char *format, ...)
{
    if (t->count == t->size) {
        size_t size = t->size ? 2 * t->size : 32;
        char **cells = realloc(t->cells, size * sizeof *cells);
        if (!cells) {
            t->failed = true;
            return;
        }
        t->cells = cells;
        t->size = size;
    }
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0) {
        t->failed = true;
        return;
    }
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    t->cells[t->count++] = text;
}

static size_t characters(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += (*text & 0xc0) != 0x80;
    return n;
}

static void pad(FILE *out, size_t n)
{
    while (n-- > 0)
        fputc(' ', out);
}

int pq_table_print(const struct pq_table *t, FILE *out)
{
    if (t->failed)
        return PQ_E_NOMEM;
    size_t *widest = calloc(t->width, sizeof *widest);
    if (!widest)
        return PQ_E_NOMEM;
    for (size_t i = 0; i < t->count; i++) {
        size_t n = characters(t->cells[i]);
        if (n > widest[i % t->width])
            widest[i % t->width] = n;
    }
    for (size_t i = 0; i < t->count; i++) {
        size_t column = i % t->width, gap = widest[column] - characters(t->cells[i]);
        bool last = column + 1 == t->width;
        if (t->columns[column] == 'r')
            pad(out, gap);
        fputs(t->cells[i], out);
        if (t->columns[column] != 'r' && !last)
            pad(out, gap);
        fputs(last ? "\n" : "  ", out);
    }
    free(widest);
    return 0;
}
