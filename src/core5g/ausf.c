#include "core5g/ausf.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "core5g/aka.h"
#include "core5g/identity.h"
#include "core5g/upstream.h"

enum { ID_SIZE = 33, NAME_SIZE = 64, LIFETIME_S = 60, ROOT_SIZE = 320 };

struct context {
    char id[ID_SIZE]; /* "" where free: eight digits of the slot, then random ones */
    char supi[PQ_SUPI_MAX];
    char network[NAME_SIZE];
    uint8_t xres_star[16], kseaf[32];
    int64_t began_ns;
};

struct ausf {
    struct pq_directory *directory;
    char instance[37];
    struct context contexts[PQ_AUSF_CONTEXTS];
    uint32_t next;
};

/* --- contexts ----------------------------------------------------------------------------------------------------- */

static struct context *find(struct ausf *ausf, const char *id)
{
    uint8_t slot[4];
    char digits[9];
    snprintf(digits, sizeof digits, "%s", id);
    if (strlen(id) != ID_SIZE - 1 || pq_hex_read(digits, slot, sizeof slot) < 0)
        return NULL;
    uint32_t i = (uint32_t)slot[0] << 24 | (uint32_t)slot[1] << 16 | (uint32_t)slot[2] << 8 | slot[3];
    if (i >= PQ_AUSF_CONTEXTS || CRYPTO_memcmp(ausf->contexts[i].id, id, ID_SIZE) != 0)
        return NULL;
    struct context *c = &ausf->contexts[i];
    return pq_clock_ns() - c->began_ns < LIFETIME_S * PQ_NS_PER_S ? c : NULL;
}

static int new_context(struct ausf *ausf, struct context **out)
{
    uint8_t bytes[16];
    if (RAND_bytes(bytes, sizeof bytes) != 1)
        return PQ_E_CRYPTO;
    uint32_t i = ausf->next++ % PQ_AUSF_CONTEXTS;
    for (int b = 0; b < 4; b++)
        bytes[b] = (uint8_t)(i >> (24 - 8 * b));
    struct context *c = &ausf->contexts[i];
    OPENSSL_cleanse(c, sizeof *c);
    pq_hex_write(bytes, sizeof bytes, c->id);
    c->began_ns = pq_clock_ns();
    *out = c;
    return 0;
}

/* --- POST ue-authentications -------------------------------------------------------------------------------------- */

struct vector_texts {
    const char *rand, *autn;
    uint8_t rand_bytes[16], xres_star[16], kausf[32];
    const char *supi;
};

static int hex_of(yyjson_val *o, const char *name, uint8_t *out, size_t size, const char **text)
{
    const char *t = yyjson_get_str(yyjson_obj_get(o, name));
    if (text)
        *text = t;
    return t ? pq_hex_read(t, out, size) : PQ_E_SYNTAX;
}

/* TS 29.503, 6.3.6.2.3. */
static int read_vector(yyjson_val *json, struct vector_texts *v)
{
    uint8_t autn[16];
    yyjson_val *av = yyjson_obj_get(json, "authenticationVector");
    v->supi = yyjson_get_str(yyjson_obj_get(json, "supi"));
    if (!v->supi || strlen(v->supi) >= PQ_SUPI_MAX || !yyjson_equals_str(yyjson_obj_get(json, "authType"), "5G_AKA"))
        return PQ_E_SYNTAX;
    TRY(hex_of(av, "rand", v->rand_bytes, 16, &v->rand));
    TRY(hex_of(av, "autn", autn, 16, &v->autn));
    TRY(hex_of(av, "xresStar", v->xres_star, 16, NULL));
    return hex_of(av, "kausf", v->kausf, 32, NULL);
}

/* TS 29.509, 6.1.6.2.3 (UEAuthenticationCtx). */
static void answer_challenge(struct pq_sbi_request *r, const struct context *c, const struct vector_texts *v,
                             const uint8_t hxres_star[16])
{
    char root[ROOT_SIZE] = "", href[ROOT_SIZE + 128], hex[33];
    if (pq_sbi_root(r, root, sizeof root) < 0)
        root[0] = '\0';
    snprintf(href, sizeof href, "%s/nausf-auth/v1/ue-authentications/%s/5g-aka-confirmation", root, c->id);
    pq_hex_write(hxres_star, 16, hex);
    DEFER(pq_sbi_mut_freep) yyjson_mut_doc *d = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *o = yyjson_mut_obj(d);
    yyjson_mut_doc_set_root(d, o);
    yyjson_mut_obj_add_str(d, o, "authType", "5G_AKA");
    yyjson_mut_val *av = yyjson_mut_obj_add_obj(d, o, "5gAuthData");
    yyjson_mut_obj_add_str(d, av, "rand", v->rand);
    yyjson_mut_obj_add_str(d, av, "autn", v->autn);
    yyjson_mut_obj_add_str(d, av, "hxresStar", hex);
    yyjson_mut_val *link = yyjson_mut_obj_add_obj(d, yyjson_mut_obj_add_obj(d, o, "_links"), "5g-aka");
    yyjson_mut_obj_add_str(d, link, "href", href);
    yyjson_mut_obj_add_str(d, o, "servingNetworkName", c->network);
    pq_sbi_field(r, "location", "%s/nausf-auth/v1/ue-authentications/%s", root, c->id);
    pq_sbi_answer_json(r, 201, pq_sbi_type_hal, d);
}

static int make_context(struct ausf *ausf, const struct vector_texts *v, const char *network, struct context **out,
                        uint8_t hxres_star[16])
{
    struct context *c;
    uint8_t kseaf[32];
    TRY(pq_aka_hxres_star(v->rand_bytes, v->xres_star, hxres_star));
    TRY(pq_aka_kseaf(v->kausf, network, kseaf));
    TRY(new_context(ausf, &c));
    snprintf(c->supi, sizeof c->supi, "%s", v->supi);
    snprintf(c->network, sizeof c->network, "%s", network);
    memcpy(c->xres_star, v->xres_star, sizeof c->xres_star);
    memcpy(c->kseaf, kseaf, sizeof c->kseaf);
    OPENSSL_cleanse(kseaf, sizeof kseaf);
    *out = c;
    return 0;
}

static void on_vector(void *context, const struct pq_directory_result *result)
{
    struct pq_sbi_request *r = context;
    struct vector_texts v;
    struct context *c;
    uint8_t hxres_star[16];
    if (result->error || result->status != 200) {
        pq_upstream_problem(r, PQ_NF_UDM, result);
        return;
    }
    if (read_vector(result->json, &v) < 0) {
        pq_sbi_problem(r, 500, "AV_GENERATION_PROBLEM", "the UDM's vector is not usable");
        return;
    }
    const char *network = yyjson_get_str(yyjson_obj_get(yyjson_doc_get_root(r->json), "servingNetworkName"));
    int e = make_context(r->function, &v, network, &c, hxres_star);
    if (e < 0)
        pq_sbi_problem(r, 500, "AV_GENERATION_PROBLEM", "%s", pq_error_text(e));
    else
        answer_challenge(r, c, &v, hxres_star);
    OPENSSL_cleanse(&v, sizeof v);
}

/* AuthenticationInfoRequest of what the AMF sent. */
static void ask_udm(struct pq_sbi_request *r, const char *user, const char *network, yyjson_val *resync)
{
    struct ausf *ausf = r->function;
    char path[128];
    size_t len = 0;
    DEFER(pq_sbi_mut_freep) yyjson_mut_doc *d = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *o = yyjson_mut_obj(d);
    yyjson_mut_doc_set_root(d, o);
    yyjson_mut_obj_add_str(d, o, "servingNetworkName", network);
    yyjson_mut_obj_add_str(d, o, "ausfInstanceId", ausf->instance);
    if (resync)
        yyjson_mut_obj_add_val(d, o, "resynchronizationInfo", yyjson_val_mut_copy(d, resync));
    DEFER(pq_freep) char *body = yyjson_mut_write(d, YYJSON_WRITE_NOFLAG, &len);
    snprintf(path, sizeof path, "/nudm-ueau/v1/%s/security-information/generate-auth-data", user);
    const struct pq_directory_call call = {
        .to = PQ_NF_UDM, .method = "POST", .path = path, .body = pq_span(body, len), .done = on_vector, .context = r};
    int e = body ? pq_directory_call(ausf->directory, &call) : PQ_E_NOMEM;
    if (e < 0)
        pq_upstream_unsent(r, PQ_NF_UDM, e);
}

/* TS 29.509, 6.1.6.2.2 (AuthenticationInfo). */
static void on_authenticate(struct pq_sbi_request *r)
{
    yyjson_val *body = yyjson_doc_get_root(r->json);
    const char *user = yyjson_get_str(yyjson_obj_get(body, "supiOrSuci"));
    const char *network = yyjson_get_str(yyjson_obj_get(body, "servingNetworkName"));
    char supi[PQ_SUPI_MAX];
    if (!user)
        pq_sbi_invalid(r, "MANDATORY_IE_MISSING", "supiOrSuci", "is mandatory");
    else if (!network)
        pq_sbi_invalid(r, "MANDATORY_IE_MISSING", "servingNetworkName", "is mandatory");
    else if (!pq_network_name_is_valid(network))
        pq_sbi_problem(r, 403, "SERVING_NETWORK_NOT_AUTHORIZED", "the serving network name is no 5G network's");
    else if (pq_supi_parse(user, supi) == PQ_E_UNSUPPORTED)
        pq_sbi_problem(r, 501, "UNSUPPORTED_PROTECTION_SCHEME", "only the null scheme is supported");
    else if (pq_supi_parse(user, supi) < 0)
        pq_sbi_invalid(r, "MANDATORY_IE_INCORRECT", "supiOrSuci", "must be imsi-... or suci-0-...");
    else
        ask_udm(r, user, network, yyjson_obj_get(body, "resynchronizationInfo"));
}

/* --- PUT 5g-aka-confirmation -------------------------------------------------------------------------------------- */

static void on_event_sent(void *context, const struct pq_directory_result *result)
{
    (void)context;
    if (result->error || result->status != 201)
        pq_log(PQ_LOG_WARN, "authentication event not kept", "status", pq_i(result->status), "reason",
               pq_s(result->reason), NULL);
}

/* The home network learns the result; the AMF does not wait for that. */
static void send_event(struct ausf *ausf, const struct context *c, bool success)
{
    char path[128], body[384], now[32];
    pq_clock_rfc3339(pq_clock_wall_ns(), now, sizeof now);
    snprintf(path, sizeof path, "/nudm-ueau/v1/%s/auth-events", c->supi);
    int n = snprintf(body, sizeof body,
                     "{\"nfInstanceId\":\"%s\",\"success\":%s,\"timeStamp\":\"%s\",\"authType\":\"5G_AKA\","
                     "\"servingNetworkName\":\"%s\"}",
                     ausf->instance, success ? "true" : "false", now, c->network);
    const struct pq_directory_call call = {.to = PQ_NF_UDM,
                                           .method = "POST",
                                           .path = path,
                                           .body = pq_span(body, (size_t)n),
                                           .done = on_event_sent,
                                           .context = ausf};
    int e = pq_directory_call(ausf->directory, &call);
    if (e < 0)
        on_event_sent(ausf, &(struct pq_directory_result){.error = e, .reason = pq_error_text(e)});
}

/* TS 29.509, 6.1.6.2.9 (ConfirmationDataResponse). */
static void answer_result(struct pq_sbi_request *r, const struct context *c, bool success)
{
    char kseaf[65];
    DEFER(pq_sbi_mut_freep) yyjson_mut_doc *d = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *o = yyjson_mut_obj(d);
    yyjson_mut_doc_set_root(d, o);
    yyjson_mut_obj_add_str(d, o, "authResult", success ? "AUTHENTICATION_SUCCESS" : "AUTHENTICATION_FAILURE");
    pq_hex_write(c->kseaf, sizeof c->kseaf, kseaf);
    if (success) {
        yyjson_mut_obj_add_str(d, o, "supi", c->supi);
        yyjson_mut_obj_add_str(d, o, "kseaf", kseaf);
    }
    pq_sbi_answer_json(r, 200, pq_sbi_type_json, d);
    OPENSSL_cleanse(kseaf, sizeof kseaf);
}

/* resStar is null where the UE gave no usable answer: then authentication fails. */
static void on_confirm(struct pq_sbi_request *r)
{
    struct ausf *ausf = r->function;
    struct context *c = find(ausf, r->parameter[0]);
    yyjson_val *value = yyjson_obj_get(yyjson_doc_get_root(r->json), "resStar");
    uint8_t res_star[16];
    if (!c) {
        pq_sbi_problem(r, 404, "CONTEXT_NOT_FOUND", "no such authentication is under way");
        return;
    }
    if (!value) {
        pq_sbi_invalid(r, "MANDATORY_IE_MISSING", "resStar", "is mandatory");
        return;
    }
    if (!yyjson_is_null(value) &&
        (!yyjson_is_str(value) || pq_hex_read(yyjson_get_str(value), res_star, sizeof res_star) < 0)) {
        pq_sbi_invalid(r, "MANDATORY_IE_INCORRECT", "resStar", "must be 32 hexadecimal digits, or null");
        return;
    }
    bool success = yyjson_is_str(value) && CRYPTO_memcmp(res_star, c->xres_star, sizeof res_star) == 0;
    struct context used = *c;
    OPENSSL_cleanse(c, sizeof *c);
    answer_result(r, &used, success);
    send_event(ausf, &used, success);
    OPENSSL_cleanse(&used, sizeof used);
}

static void on_delete(struct pq_sbi_request *r)
{
    struct context *c = find(r->function, r->parameter[0]);
    if (!c) {
        pq_sbi_problem(r, 404, "CONTEXT_NOT_FOUND", "no such authentication is under way");
        return;
    }
    OPENSSL_cleanse(c, sizeof *c);
    pq_sbi_answer_empty(r, 204);
}

static const struct pq_sbi_route routes[] = {
    {"POST", "/nausf-auth/v1/ue-authentications", "application/json", on_authenticate},
    {"PUT", "/nausf-auth/v1/ue-authentications/{authCtxId}/5g-aka-confirmation", "application/json", on_confirm},
    {"DELETE", "/nausf-auth/v1/ue-authentications/{authCtxId}/5g-aka-confirmation", NULL, on_delete},
};

static void ausf_free(void *self)
{
    struct ausf *ausf = self;
    if (ausf)
        OPENSSL_cleanse(ausf->contexts, sizeof ausf->contexts);
    free(ausf);
}

int pq_ausf_new(struct pq_directory *directory, const char *instance, struct pq_function *out)
{
    struct ausf *ausf = calloc(1, sizeof *ausf);
    if (!ausf)
        return PQ_E_NOMEM;
    ausf->directory = directory;
    snprintf(ausf->instance, sizeof ausf->instance, "%s", instance);
    *out = (struct pq_function){routes, PQ_COUNT(routes), ausf, ausf_free};
    return 0;
}
