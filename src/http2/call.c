#include "http2/call.h"

#include <stdio.h>
#include <string.h>

static int copy_text(struct pq_call *call, const struct pq_http2_call *how)
{
    DEFER(pq_buf_free) struct pq_buf b = {.cap = PQ_HTTP2_MAX_HEADER_LIST};
    TRY(pq_buf_append(&b, how->method, strlen(how->method) + 1));
    TRY(pq_buf_append(&b, how->path, strlen(how->path) + 1));
    for (size_t i = 0; i < how->field_count; i++) {
        TRY(pq_buf_append(&b, how->fields[i].name, strlen(how->fields[i].name) + 1));
        TRY(pq_buf_append(&b, how->fields[i].value, strlen(how->fields[i].value) + 1));
    }
    call->text = (char *)TAKE(b.at);
    call->field_count = how->field_count;
    return 0;
}

int pq_call_new(const struct pq_http2_call *how, size_t max_body, struct pq_call **out)
{
    if (how->field_count > PQ_CALL_FIELDS)
        return PQ_E_INVALID;
    DEFER(pq_call_freep) struct pq_call *call = calloc(1, sizeof *call);
    if (!call)
        return PQ_E_NOMEM;
    pq_http2_message_init(&call->response, max_body);
    TRY(copy_text(call, how));
    call->body.cap = how->body.len;
    if (how->body.len)
        TRY(pq_buf_append(&call->body, how->body.at, how->body.len));
    call->done = how->done;
    call->context = how->context;
    *out = TAKE(call);
    return 0;
}

void pq_call_free(struct pq_call *call)
{
    if (!call)
        return;
    pq_http2_message_clear(&call->response);
    pq_buf_free(&call->body);
    free(call->text);
    free(call);
}

static nghttp2_ssize read_body(nghttp2_session *h2, int32_t id, uint8_t *out, size_t size, uint32_t *flags,
                               nghttp2_data_source *source, void *user)
{
    (void)h2, (void)id, (void)user;
    struct pq_call *call = source->ptr;
    size_t n = call->body.len - call->body_sent;
    if (n > size)
        n = size;
    memcpy(out, call->body.at + call->body_sent, n);
    call->body_sent += n;
    if (call->body_sent == call->body.len)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (nghttp2_ssize)n;
}

static nghttp2_nv nv(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value), NGHTTP2_NV_FLAG_NONE};
}

int32_t pq_call_submit(struct pq_call *call, nghttp2_session *h2, const char *scheme, const char *authority)
{
    nghttp2_nv nvs[PQ_CALL_FIELDS + 5];
    char length[24];
    size_t n = 0;
    const char *at = call->text;
    const char *path = at + strlen(at) + 1;
    nvs[n++] = nv(":method", at);
    nvs[n++] = nv(":scheme", scheme);
    nvs[n++] = nv(":authority", authority);
    nvs[n++] = nv(":path", path);
    at = path + strlen(path) + 1;
    for (size_t i = 0; i < call->field_count; i++) {
        const char *value = at + strlen(at) + 1;
        nvs[n++] = nv(at, value);
        at = value + strlen(value) + 1;
    }
    snprintf(length, sizeof length, "%zu", call->body.len);
    if (call->body.len)
        nvs[n++] = nv("content-length", length);
    nghttp2_data_provider2 provider = {.source.ptr = call, .read_callback = read_body};
    return nghttp2_submit_request2(h2, NULL, nvs, n, call->body.len ? &provider : NULL, call);
}

void pq_call_rewind(struct pq_call *call)
{
    pq_http2_message_clear(&call->response);
    call->body_sent = 0;
    call->response_done = false;
    call->at = NULL;
    call->id = 0;
}

void pq_call_put_first(struct pq_call **list, struct pq_call *call)
{
    call->next = *list;
    call->link = list;
    if (call->next)
        call->next->link = &call->next;
    *list = call;
}

void pq_call_put_last(struct pq_call **list, struct pq_call *call)
{
    while (*list)
        list = &(*list)->next;
    pq_call_put_first(list, call);
}

void pq_call_take_out(struct pq_call *call)
{
    if (!call->link)
        return;
    *call->link = call->next;
    if (call->next)
        call->next->link = call->link;
    call->link = NULL;
    call->next = NULL;
}
