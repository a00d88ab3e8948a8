#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *text;
    enum pq_blame blame;
} rows[] = {
#define X(name, blame, text) {#name, text, PQ_BLAME_##blame},
    PQ_ERRORS(X)
#undef X
};

static int row_of(int code) { return code > PQ_E_BASE && code < PQ_E_END ? code - PQ_E_BASE - 1 : -1; }

const char *pq_error_text(int code)
{
    int row = row_of(code);
    if (row >= 0)
        return rows[row].text;
    return code == 0 ? "success" : "unknown error";
}

const char *pq_error_name(int code)
{
    int row = row_of(code);
    if (row >= 0)
        return rows[row].name;
    return code == 0 ? "OK" : "UNKNOWN";
}

enum pq_blame pq_error_blame(int code)
{
    int row = row_of(code);
    return row >= 0 ? rows[row].blame : PQ_BLAME_US;
}

int pq_error_from_errno(int err)
{
    static const struct {
        int err, code;
    } map[] = {
        {ENOMEM, PQ_E_NOMEM},           {ENOBUFS, PQ_E_NOMEM},        {ENOENT, PQ_E_NOENT},
        {ENOTDIR, PQ_E_NOENT},          {EEXIST, PQ_E_EXISTS},        {EACCES, PQ_E_PERMISSION},
        {EPERM, PQ_E_PERMISSION},       {EMFILE, PQ_E_LIMIT},         {ENFILE, PQ_E_LIMIT},
        {ENOSPC, PQ_E_LIMIT},           {EDQUOT, PQ_E_LIMIT},         {EINVAL, PQ_E_INVALID},
        {EOPNOTSUPP, PQ_E_UNSUPPORTED}, {ENOSYS, PQ_E_UNSUPPORTED},   {EAFNOSUPPORT, PQ_E_UNSUPPORTED},
        {ETIMEDOUT, PQ_E_TIMEOUT},      {ECONNREFUSED, PQ_E_REFUSED}, {EHOSTUNREACH, PQ_E_REFUSED},
        {ENETUNREACH, PQ_E_REFUSED},    {ECONNRESET, PQ_E_RESET},     {EPIPE, PQ_E_RESET},
        {ECONNABORTED, PQ_E_RESET},     {EINTR, PQ_E_INTERRUPTED},
    };
    for (size_t i = 0; i < sizeof map / sizeof map[0]; i++)
        if (map[i].err == err)
            return map[i].code;
    return PQ_E_IO;
}

int pq_why(struct pq_why *why, int code, const char *format, ...)
{
    if (!why)
        return code;
    va_list args;
    va_start(args, format);
    vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
    return code;
}

int pq_why_in(struct pq_why *why, int code, const char *format, ...)
{
    if (!why)
        return code;
    struct pq_why inner = *why;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof why->text)
        snprintf(why->text + n, sizeof why->text - (size_t)n, ": %s", inner.text);
    return code;
}
