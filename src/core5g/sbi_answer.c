#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core5g/sbi_request.h"

static struct pq_request *of(struct pq_sbi_request *r) { return (struct pq_request *)(void *)r; }

int pq_sbi_root(const struct pq_sbi_request *r, char *out, size_t size)
{
    const struct pq_http2_message *m = &((const struct pq_request *)(const void *)r)->x->request;
    const char *authority = m->authority[0] ? m->authority : pq_http2_get(m, "host");
    int n = snprintf(out, size, "%s://%s", m->scheme, authority ? authority : "");
    return n > 0 && (size_t)n < size ? 0 : PQ_E_TOO_LONG;
}

void pq_sbi_field(struct pq_sbi_request *r, const char *name, const char *format, ...)
{
    struct pq_request *q = of(r);
    char value[PQ_SBI_FIELD_MAX];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(value, sizeof value, format, args);
    va_end(args);
    if (q->field_count == PQ_SBI_FIELDS || n < 0 || (size_t)n >= sizeof value)
        return;
    char *copy = strdup(value);
    if (copy)
        q->fields[q->field_count++] = (struct pq_http2_field){name, copy};
}

static void end(struct pq_request *q, int status, const char *type, struct pq_buf *body)
{
    struct pq_http2_field fields[PQ_SBI_FIELDS + 1];
    size_t n = 0;
    if (type)
        fields[n++] = (struct pq_http2_field){"content-type", type};
    for (size_t i = 0; i < q->field_count; i++)
        fields[n++] = q->fields[i];
    struct pq_http2_exchange *x = q->x;
    yyjson_doc_free(q->r.json);
    pq_http2_respond(x, &(struct pq_http2_answer){.status = status, .fields = fields, .field_count = n, .body = body});
    for (size_t i = 0; i < q->field_count; i++)
        free((char *)(uintptr_t)q->fields[i].value);
    free(q);
}

void pq_sbi_answer(struct pq_sbi_request *r, int status, const char *type, struct pq_buf *body)
{
    end(of(r), status, type, body);
}

void pq_sbi_answer_empty(struct pq_sbi_request *r, int status) { end(of(r), status, NULL, NULL); }

static void answer_text(struct pq_sbi_request *r, int status, const char *type, char *text, size_t len)
{
    struct pq_buf body = {.at = (uint8_t *)text, .len = len, .size = len + 1, .cap = len};
    if (text)
        end(of(r), status, type, &body);
    else
        end(of(r), 500, NULL, NULL);
}

void pq_sbi_answer_json(struct pq_sbi_request *r, int status, const char *type, const yyjson_mut_doc *doc)
{
    size_t len = 0;
    char *text = yyjson_mut_write(doc, YYJSON_WRITE_NOFLAG, &len);
    answer_text(r, status, type, text, len);
}

void pq_sbi_answer_value(struct pq_sbi_request *r, int status, const yyjson_val *value)
{
    size_t len = 0;
    char *text = yyjson_val_write(value, YYJSON_WRITE_NOFLAG, &len);
    answer_text(r, status, pq_sbi_type_json, text, len);
}

/* --- ProblemDetails ----------------------------------------------------------------------------------------------- */

static const struct {
    int status;
    const char *title;
} titles[] = {
    {400, "Bad Request"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
};

static const char *title_of(int status)
{
    for (size_t i = 0; i < PQ_COUNT(titles); i++)
        if (titles[i].status == status)
            return titles[i].title;
    return "Error";
}

static yyjson_mut_doc *problem(int status, const char *cause, const char *detail)
{
    yyjson_mut_doc *d = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *o = yyjson_mut_obj(d);
    yyjson_mut_doc_set_root(d, o);
    yyjson_mut_obj_add_str(d, o, "title", title_of(status));
    yyjson_mut_obj_add_int(d, o, "status", status);
    yyjson_mut_obj_add_strcpy(d, o, "detail", detail);
    if (cause)
        yyjson_mut_obj_add_str(d, o, "cause", cause);
    return d;
}

static void end_problem(struct pq_request *q, int status, const yyjson_mut_doc *d)
{
    pq_sbi_answer_json(&q->r, status, "application/problem+json", d);
}

void pq_sbi_problem(struct pq_sbi_request *r, int status, const char *cause, const char *format, ...)
{
    char detail[256];
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    DEFER(pq_sbi_mut_freep) yyjson_mut_doc *d = problem(status, cause, detail);
    end_problem(of(r), status, d);
}

void pq_sbi_invalid(struct pq_sbi_request *r, const char *cause, const char *param, const char *reason)
{
    char detail[256];
    snprintf(detail, sizeof detail, "%s: %s", param, reason);
    DEFER(pq_sbi_mut_freep) yyjson_mut_doc *d = problem(400, cause, detail);
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(d, yyjson_mut_doc_get_root(d), "invalidParams");
    yyjson_mut_val *item = yyjson_mut_arr_add_obj(d, list);
    yyjson_mut_obj_add_str(d, item, "param", param);
    yyjson_mut_obj_add_str(d, item, "reason", reason);
    end_problem(of(r), 400, d);
}
