#include "core5g/nrf_store.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/log.h"
#include "core5g/nrf_profile.h"
#include "core5g/sbi.h"

_Static_assert(PQ_NRF_PROFILE_DEPTH + 2 <= PQ_SBI_JSON_DEPTH, "a SearchResult adds an object and a list");

const char *const pq_nrf_state_names[] = {"REGISTERED", "SUSPENDED", "UNDISCOVERABLE", "gone", NULL};

struct pq_nrf_store {
    int64_t heartbeat_ns;
    struct pq_nrf_instance *at; /* in the order of registration */
    size_t count, size;
    int64_t next_silence; /* nothing falls silent before */
};

/* --- the state machine -------------------------------------------------------------------------------------------- */

enum event { EVENT_SILENT, EVENT_LOST, EVENTS };

static const enum pq_nrf_state next_state[][EVENTS] = {
    [PQ_NRF_REGISTERED] = {PQ_NRF_SUSPENDED, PQ_NRF_GONE},
    [PQ_NRF_SUSPENDED] = {PQ_NRF_SUSPENDED, PQ_NRF_GONE},
    [PQ_NRF_UNDISCOVERABLE] = {PQ_NRF_SUSPENDED, PQ_NRF_GONE},
    [PQ_NRF_GONE] = {PQ_NRF_GONE, PQ_NRF_GONE},
};

static void move_on(struct pq_nrf_instance *n, enum event e)
{
    enum pq_nrf_state to = next_state[n->state][e];
    if (to != n->state)
        pq_log(PQ_LOG_INFO, "instance silent", "instance", pq_s(n->id), "type", pq_s(n->type), "was",
               pq_s(pq_nrf_state_names[n->state]), "is", pq_s(pq_nrf_state_names[to]), NULL);
    n->state = to;
}

static void clear(struct pq_nrf_instance *n)
{
    yyjson_doc_free(n->profile);
    free(n->text);
    *n = (struct pq_nrf_instance){.state = PQ_NRF_GONE};
}

static void remove_at(struct pq_nrf_store *s, size_t i)
{
    clear(&s->at[i]);
    memmove(&s->at[i], &s->at[i + 1], (s->count - i - 1) * sizeof *s->at);
    s->count--;
}

/* The store's own writing of nfStatus: what GET shows must be the state. */
static int write_status(struct pq_nrf_instance *n)
{
    yyjson_mut_doc *d = yyjson_doc_mut_copy(n->profile, NULL);
    yyjson_mut_val *root = yyjson_mut_doc_get_root(d);
    yyjson_mut_obj_put(root, yyjson_mut_str(d, "nfStatus"), yyjson_mut_str(d, pq_nrf_state_names[n->state]));
    yyjson_doc *profile = yyjson_mut_doc_imut_copy(d, NULL);
    size_t len = 0;
    char *text = yyjson_mut_write(d, YYJSON_WRITE_NOFLAG, &len);
    yyjson_mut_doc_free(d);
    if (!profile || !text) {
        yyjson_doc_free(profile);
        free(text);
        return PQ_E_NOMEM;
    }
    yyjson_doc_free(n->profile);
    free(n->text);
    n->profile = profile;
    n->text = text;
    n->text_len = len;
    n->version++;
    return 0;
}

static void sweep(struct pq_nrf_store *s, int64_t now)
{
    int64_t next = INT64_MAX;
    if (now < s->next_silence)
        return;
    for (size_t i = 0; i < s->count;) {
        struct pq_nrf_instance *n = &s->at[i];
        int64_t silent_at = n->heard_ns + PQ_NRF_GRACE * s->heartbeat_ns,
                lost_at = n->heard_ns + PQ_NRF_FORGET * s->heartbeat_ns;
        enum pq_nrf_state before = n->state;
        if (!n->forever && now >= silent_at)
            move_on(n, now >= lost_at ? EVENT_LOST : EVENT_SILENT);
        if (n->state == PQ_NRF_GONE) {
            remove_at(s, i);
            continue;
        }
        if (n->state != before && write_status(n) < 0)
            pq_log(PQ_LOG_ERROR, "profile not rewritten", "instance", pq_s(n->id), "reason", pq_s("out of memory"),
                   NULL);
        int64_t at = now >= silent_at ? lost_at : silent_at;
        if (!n->forever && at < next)
            next = at;
        i++;
    }
    s->next_silence = next;
}

static void heard(struct pq_nrf_store *s, struct pq_nrf_instance *n, int64_t now)
{
    n->heard_ns = now;
    if (!n->forever && now + PQ_NRF_GRACE * s->heartbeat_ns < s->next_silence)
        s->next_silence = now + PQ_NRF_GRACE * s->heartbeat_ns;
}

/* --- the list ----------------------------------------------------------------------------------------------------- */

int pq_nrf_store_new(int64_t heartbeat_ns, struct pq_nrf_store **out)
{
    struct pq_nrf_store *s = calloc(1, sizeof *s);
    if (!s)
        return PQ_E_NOMEM;
    s->heartbeat_ns = heartbeat_ns;
    s->next_silence = INT64_MAX;
    *out = s;
    return 0;
}

void pq_nrf_store_free(struct pq_nrf_store *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->count; i++)
        clear(&s->at[i]);
    free(s->at);
    free(s);
}

static struct pq_nrf_instance *find(struct pq_nrf_store *s, const char *id)
{
    for (size_t i = 0; i < s->count; i++)
        if (strcasecmp(s->at[i].id, id) == 0)
            return &s->at[i];
    return NULL;
}

static int make_room(struct pq_nrf_store *s)
{
    if (s->count == PQ_NRF_MAX_INSTANCES)
        return PQ_E_LIMIT;
    if (s->count < s->size)
        return 0;
    size_t size = s->size ? 2 * s->size : 16;
    struct pq_nrf_instance *at = realloc(s->at, size * sizeof *at);
    if (!at)
        return PQ_E_NOMEM;
    s->at = at;
    s->size = size;
    return 0;
}

static enum pq_nrf_state state_of(yyjson_val *profile)
{
    const char *status = yyjson_get_str(yyjson_obj_get(profile, "nfStatus"));
    for (int i = 0; i < PQ_NRF_GONE; i++)
        if (status && strcmp(status, pq_nrf_state_names[i]) == 0)
            return (enum pq_nrf_state)i;
    return PQ_NRF_UNDISCOVERABLE;
}

/* The instance that a checked profile describes; *out owns its parts. */
static int build(const struct pq_nrf_store *s, const char *id, yyjson_val *profile, struct pq_nrf_instance *out,
                 struct pq_nrf_fault *fault)
{
    TRY(pq_nrf_profile_check(id, profile, fault));
    struct pq_nrf_instance n = {0};
    yyjson_mut_doc *d = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_val_mut_copy(d, profile);
    yyjson_mut_doc_set_root(d, root);
    yyjson_mut_obj_put(root, yyjson_mut_str(d, "heartBeatTimer"), yyjson_mut_int(d, s->heartbeat_ns / PQ_NS_PER_S));
    n.profile = yyjson_mut_doc_imut_copy(d, NULL);
    n.text = yyjson_mut_write(d, YYJSON_WRITE_NOFLAG, &n.text_len);
    yyjson_mut_doc_free(d);
    snprintf(n.id, sizeof n.id, "%s", id);
    snprintf(n.type, sizeof n.type, "%s", yyjson_get_str(yyjson_obj_get(profile, "nfType")));
    n.state = state_of(profile);
    int e = !n.profile || !n.text ? PQ_E_NOMEM : n.text_len > PQ_NRF_MAX_PROFILE ? PQ_E_TOO_LONG : 0;
    if (e == 0 && pq_sbi_deeper(pq_span(n.text, n.text_len), PQ_NRF_PROFILE_DEPTH)) {
        *fault = (struct pq_nrf_fault){"profile", "is nested too deep for the answers of discovery", false};
        e = PQ_E_INVALID;
    }
    if (e < 0)
        clear(&n);
    else
        *out = n;
    return e;
}

int pq_nrf_store_put(struct pq_nrf_store *s, int64_t now, const char *id, yyjson_val *profile, bool forever,
                     bool *created, struct pq_nrf_fault *fault)
{
    struct pq_nrf_instance n;
    sweep(s, now);
    TRY(build(s, id, profile, &n, fault));
    struct pq_nrf_instance *old = find(s, id);
    int e = old ? 0 : make_room(s);
    if (e < 0) {
        clear(&n);
        return e;
    }
    n.forever = forever;
    n.version = old ? old->version + 1 : 1;
    if (old)
        clear(old);
    else
        old = &s->at[s->count++];
    *old = n;
    heard(s, old, now);
    *created = n.version == 1;
    return 0;
}

int pq_nrf_store_get(struct pq_nrf_store *s, int64_t now, const char *id, const struct pq_nrf_instance **out)
{
    sweep(s, now);
    const struct pq_nrf_instance *n = find(s, id);
    if (!n)
        return PQ_E_NOT_FOUND;
    *out = n;
    return 0;
}

static bool only_status_and_load(yyjson_val *patch)
{
    yyjson_arr_iter it = yyjson_arr_iter_with(patch);
    for (yyjson_val *op; (op = yyjson_arr_iter_next(&it));) {
        const char *path = yyjson_get_str(yyjson_obj_get(op, "path"));
        if (!path || (strcmp(path, "/nfStatus") != 0 && strcmp(path, "/load") != 0))
            return false;
    }
    return true;
}

static bool takes(yyjson_val *op)
{
    static const char *const taken[] = {"add", "remove", "replace", "test"};
    for (size_t i = 0; i < PQ_COUNT(taken); i++)
        if (yyjson_equals_str(yyjson_obj_get(op, "op"), taken[i]))
            return true;
    return false;
}

static int check_patch(yyjson_val *patch, struct pq_nrf_fault *fault)
{
    yyjson_arr_iter it = yyjson_arr_iter_with(patch);
    if (yyjson_arr_size(patch) > PQ_SBI_PATCH_OPERATIONS) {
        *fault = (struct pq_nrf_fault){"patch", "has too many operations", false};
        return PQ_E_INVALID;
    }
    for (yyjson_val *op; (op = yyjson_arr_iter_next(&it));)
        if (!takes(op)) {
            *fault = (struct pq_nrf_fault){"op", "must be add, remove, replace or test", false};
            return PQ_E_INVALID;
        }
    return 0;
}

static int apply(yyjson_val *before, yyjson_val *patch, yyjson_doc **out, struct pq_nrf_fault *fault)
{
    yyjson_patch_err err = {0};
    yyjson_mut_doc *d = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *after = yyjson_patch(d, before, patch, &err);
    yyjson_mut_doc_set_root(d, after);
    yyjson_doc *doc = after ? yyjson_mut_doc_imut_copy(d, NULL) : NULL;
    yyjson_mut_doc_free(d);
    if (!after && err.code != YYJSON_PATCH_ERROR_MEMORY_ALLOCATION) {
        *fault = (struct pq_nrf_fault){"patch", "does not apply to the profile", false};
        return PQ_E_INVALID;
    }
    if (!doc)
        return PQ_E_NOMEM;
    *out = doc;
    return 0;
}

int pq_nrf_store_patch(struct pq_nrf_store *s, int64_t now, const char *id, yyjson_val *patch, bool *changed,
                       struct pq_nrf_fault *fault)
{
    sweep(s, now);
    struct pq_nrf_instance *n = find(s, id), after;
    if (!n)
        return PQ_E_NOT_FOUND;
    yyjson_doc *doc = NULL;
    TRY(check_patch(patch, fault));
    TRY(apply(yyjson_doc_get_root(n->profile), patch, &doc, fault));
    int e = build(s, id, yyjson_doc_get_root(doc), &after, fault);
    yyjson_doc_free(doc);
    TRY(e);
    after.forever = n->forever;
    after.version = n->version + 1;
    clear(n);
    *n = after;
    heard(s, n, now);
    *changed = !only_status_and_load(patch);
    return 0;
}

int pq_nrf_store_delete(struct pq_nrf_store *s, int64_t now, const char *id)
{
    sweep(s, now);
    struct pq_nrf_instance *n = find(s, id);
    if (!n)
        return PQ_E_NOT_FOUND;
    remove_at(s, (size_t)(n - s->at));
    return 0;
}

size_t pq_nrf_store_count(struct pq_nrf_store *s, int64_t now)
{
    sweep(s, now);
    return s->count;
}

const struct pq_nrf_instance *pq_nrf_store_at(const struct pq_nrf_store *s, size_t i)
{
    return i < s->count ? &s->at[i] : NULL;
}
