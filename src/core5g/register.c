#include "core5g/register.h"

#include <ctype.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "core5g/nrf_profile.h"
#include "core5g/sbi.h"

enum { DEFAULT_HEARTBEAT_S = 10, RETRY_S = 1, PATH_SIZE = 96 };

/* IDLE -> REGISTERING -> REGISTERED -> ENDING; a failure goes back to IDLE and tries again. */
enum state { STATE_IDLE, STATE_REGISTERING, STATE_REGISTERED, STATE_ENDING };
static const char *const state_names[] = {"idle", "registering", "registered", "ending"};

struct pq_registration {
    struct ev_loop *loop;
    struct pq_directory *directory;
    char path[PATH_SIZE];
    char instance[37];
    struct pq_buf profile;
    enum state state;
    ev_timer timer;
    void (*done)(void *context);
    void *done_context;
};

static void set_state(struct pq_registration *r, enum state to, const char *reason)
{
    pq_log(reason[0] ? PQ_LOG_WARN : PQ_LOG_INFO, "registration", "was", pq_s(state_names[r->state]), "is",
           pq_s(state_names[to]), "reason", pq_s(reason), NULL);
    r->state = to;
}

static void wait_s(struct pq_registration *r, double seconds)
{
    ev_timer_stop(r->loop, &r->timer);
    ev_timer_set(&r->timer, seconds, 0.);
    ev_timer_start(r->loop, &r->timer);
}

static void call(struct pq_registration *r, const char *method, const char *type, struct pq_span body,
                 void (*done)(void *context, const struct pq_directory_result *result))
{
    const struct pq_directory_call c = {
        .to = PQ_NF_NRF, .method = method, .path = r->path, .type = type, .body = body, .done = done, .context = r};
    int e = pq_directory_call(r->directory, &c);
    if (e < 0)
        done(r, &(struct pq_directory_result){.error = e, .reason = pq_error_text(e)});
}

static void on_deleted(void *context, const struct pq_directory_result *result)
{
    struct pq_registration *r = context;
    if (result->error || result->status != 204)
        pq_log(PQ_LOG_WARN, "deregistration failed", "status", pq_i(result->status), "reason", pq_s(result->reason),
               NULL);
    r->done(r->done_context);
}

static void on_put(void *context, const struct pq_directory_result *result)
{
    struct pq_registration *r = context;
    char reason[64] = "";
    if (r->state == STATE_ENDING) {
        call(r, "DELETE", NULL, pq_span("", 0), on_deleted);
        return;
    }
    if (result->error || (result->status != 201 && result->status != 200)) {
        if (result->error)
            snprintf(reason, sizeof reason, "%s", result->reason);
        else
            snprintf(reason, sizeof reason, "status %d", result->status);
        set_state(r, STATE_IDLE, reason);
        wait_s(r, RETRY_S);
        return;
    }
    int64_t heartbeat = yyjson_get_sint(yyjson_obj_get(result->json, "heartBeatTimer"));
    set_state(r, STATE_REGISTERED, "");
    wait_s(r, heartbeat > 0 ? (double)heartbeat : DEFAULT_HEARTBEAT_S);
    r->timer.repeat = heartbeat > 0 ? (double)heartbeat : DEFAULT_HEARTBEAT_S;
}

/* 404: the NRF has forgotten us, so we register anew (TS 29.510, 5.2.2.3.2). */
static void on_beat(void *context, const struct pq_directory_result *result)
{
    struct pq_registration *r = context;
    if (r->state != STATE_REGISTERED)
        return;
    if (result->error || (result->status != 204 && result->status != 200)) {
        set_state(r, STATE_IDLE, result->error ? result->reason : "heart-beat refused");
        wait_s(r, RETRY_S);
        return;
    }
    ev_timer_again(r->loop, &r->timer);
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int events)
{
    static const char beat[] = "[{\"op\":\"replace\",\"path\":\"/nfStatus\",\"value\":\"REGISTERED\"}]";
    (void)loop, (void)events;
    struct pq_registration *r = w->data;
    if (r->state == STATE_REGISTERED) {
        call(r, "PATCH", pq_sbi_type_patch, pq_span_text(beat), on_beat);
        return;
    }
    if (r->state != STATE_IDLE)
        return;
    set_state(r, STATE_REGISTERING, "");
    call(r, "PUT", NULL, pq_span(r->profile.at, r->profile.len), on_put);
}

void pq_registration_begin(struct pq_registration *r) { wait_s(r, 0.); }

void pq_registration_end(struct pq_registration *r, void (*done)(void *context), void *context)
{
    enum state was = r->state;
    r->done = done;
    r->done_context = context;
    ev_timer_stop(r->loop, &r->timer);
    set_state(r, STATE_ENDING, "");
    /* A PUT under way is followed by the DELETE when it is answered. */
    if (was == STATE_REGISTERED)
        call(r, "DELETE", NULL, pq_span("", 0), on_deleted);
    else if (was == STATE_IDLE)
        done(context);
}

/* The address without its port. */
static void host_text(const struct pq_address *a, char out[PQ_ADDRESS_TEXT])
{
    pq_address_text(a, out);
    char *colon = strrchr(out, ':');
    if (colon)
        *colon = '\0';
    size_t n = strlen(out);
    if (out[0] == '[' && n > 2) {
        memmove(out, out + 1, n - 2);
        out[n - 2] = '\0';
    }
}

int pq_registration_new(const struct pq_registration_settings *how, struct pq_registration **out, struct pq_why *why)
{
    (void)why;
    char host[PQ_ADDRESS_TEXT];
    DEFER(pq_registration_freep) struct pq_registration *r = calloc(1, sizeof *r);
    if (!r)
        return PQ_E_NOMEM;
    host_text(&how->address, host);
    r->loop = how->loop;
    r->directory = how->directory;
    r->profile.cap = PQ_NRF_MAX_PROFILE;
    snprintf(r->path, sizeof r->path, "/nnrf-nfm/v1/nf-instances/%s", how->instance);
    ev_timer_init(&r->timer, on_timer, 0., 0.);
    r->timer.data = r;
    const struct pq_nrf_profile p = {.id = how->instance,
                                     .type = pq_nf_type_names[how->kind],
                                     .fqdn = how->fqdn,
                                     .address = host,
                                     .scheme = how->tls ? "https" : "http",
                                     .port = pq_address_port(&how->address),
                                     .heartbeat_s = DEFAULT_HEARTBEAT_S};
    TRY(pq_nrf_profile_text(&p, &r->profile));
    *out = TAKE(r);
    return 0;
}

void pq_registration_free(struct pq_registration *r)
{
    if (!r)
        return;
    ev_timer_stop(r->loop, &r->timer);
    pq_buf_free(&r->profile);
    free(r);
}

int pq_uuid_choose(const char *text, char out[37], struct pq_why *why)
{
    uint8_t b[16];
    if (text) {
        if (!pq_uuid_is_valid(text))
            return pq_why(why, PQ_E_USAGE,
                          "--instance %s is no UUID: give one like 5b9e4b10-0000-4000-8000-000000000001", text);
        for (size_t i = 0; i < 37; i++)
            out[i] = (char)tolower((unsigned char)text[i]);
        return 0;
    }
    if (RAND_bytes(b, sizeof b) != 1)
        return PQ_E_CRYPTO;
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40); /* version 4 (RFC 9562, 5.4) */
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    snprintf(out, 37, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3],
             b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    return 0;
}
