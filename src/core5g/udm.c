#include "core5g/udm.h"

#include <stdio.h>
#include <string.h>

#include "core5g/identity.h"
#include "core5g/subscribers.h"
#include "core5g/upstream.h"

enum { PATH_SIZE = 192, EVENT_ID = 32 };

/* The SUPI of the path; false: answered. */
static bool supi_of(struct pq_sbi_request *r, char supi[PQ_SUPI_MAX])
{
    int e = pq_supi_parse(r->parameter[0], supi);
    if (e < 0)
        pq_sbi_problem(r, 400, "INVALID_MSG_FORMAT", "the user must be imsi- and 5 to 15 digits");
    return e == 0;
}

static void ask_udr(struct pq_sbi_request *r, const char *method, const char *path, struct pq_span body,
                    void (*done)(void *context, const struct pq_directory_result *result))
{
    const struct pq_directory_call call = {
        .to = PQ_NF_UDR, .method = method, .path = path, .body = body, .done = done, .context = r};
    int e = pq_directory_call(r->function, &call);
    if (e < 0)
        pq_upstream_unsent(r, PQ_NF_UDR, e);
}

/* The request's own body, to be sent on. */
static void send_on(struct pq_sbi_request *r, const char *path,
                    void (*done)(void *context, const struct pq_directory_result *result))
{
    size_t len = 0;
    DEFER(pq_freep) char *text = yyjson_write(r->json, YYJSON_WRITE_NOFLAG, &len);
    if (!text)
        pq_sbi_problem(r, 500, "INSUFFICIENT_RESOURCES", "out of memory");
    else
        ask_udr(r, "PUT", path, pq_span(text, len), done);
}

/* --- Nudm_SDM ----------------------------------------------------------------------------------------------------- */

static void on_data(void *context, const struct pq_directory_result *result)
{
    struct pq_sbi_request *r = context;
    if (result->error || result->status != 200 || !result->json)
        pq_upstream_problem(r, PQ_NF_UDR, result);
    else
        pq_sbi_answer_value(r, 200, result->json);
}

/* plmn-id is a PlmnId as JSON; the home network where it is absent. False: answered. */
static bool plmn_of(struct pq_sbi_request *r, char out[8])
{
    char value[128];
    DEFER(pq_sbi_doc_freep) yyjson_doc *doc = NULL;
    int e = pq_sbi_query(r, "plmn-id", value, sizeof value);
    if (e == PQ_E_NOT_FOUND) {
        snprintf(out, 8, PQ_HOME_MCC PQ_HOME_MNC);
        return true;
    }
    if (e == 0)
        e = pq_sbi_parse(pq_span_text(value), &doc);
    const char *mcc = yyjson_get_str(yyjson_obj_get(yyjson_doc_get_root(doc), "mcc"));
    const char *mnc = yyjson_get_str(yyjson_obj_get(yyjson_doc_get_root(doc), "mnc"));
    if (e < 0 || !mcc || !mnc || strlen(mcc) != 3 || strlen(mnc) < 2 || strlen(mnc) > 3 ||
        strspn(mcc, "0123456789") != 3 || strspn(mnc, "0123456789") != strlen(mnc)) {
        pq_sbi_invalid(r, "OPTIONAL_QUERY_PARAM_INCORRECT", "plmn-id", "must be a PlmnId as JSON");
        return false;
    }
    snprintf(out, 8, "%s%s", mcc, mnc);
    return true;
}

static void get_data(struct pq_sbi_request *r, const char *name)
{
    char supi[PQ_SUPI_MAX], plmn[8], path[PATH_SIZE];
    if (!supi_of(r, supi) || !plmn_of(r, plmn))
        return;
    snprintf(path, sizeof path, "/nudr-dr/v2/subscription-data/%s/%s/provisioned-data/%s", supi, plmn, name);
    ask_udr(r, "GET", path, pq_span("", 0), on_data);
}

static void on_am(struct pq_sbi_request *r) { get_data(r, "am-data"); }
static void on_smf_select(struct pq_sbi_request *r) { get_data(r, "smf-selection-subscription-data"); }
static void on_sm(struct pq_sbi_request *r) { get_data(r, "sm-data"); }

/* --- Nudm_UECM ---------------------------------------------------------------------------------------------------- */

static void access_path(const char *supi, char out[PATH_SIZE])
{
    snprintf(out, PATH_SIZE, "/nudr-dr/v2/subscription-data/%s/context-data/amf-3gpp-access", supi);
}

/* 6.2.6.2.2 (Amf3GppAccessRegistration): 201 for a first registration, 200 for one that replaces it. */
static void on_registered(void *context, const struct pq_directory_result *result)
{
    struct pq_sbi_request *r = context;
    char root[320];
    if (result->error || (result->status != 201 && result->status != 204)) {
        pq_upstream_problem(r, PQ_NF_UDR, result);
        return;
    }
    if (result->status == 201 && pq_sbi_root(r, root, sizeof root) == 0)
        pq_sbi_field(r, "location", "%s/nudm-uecm/v1/%s/registrations/amf-3gpp-access", root, r->parameter[0]);
    pq_sbi_answer_value(r, result->status == 201 ? 201 : 200, yyjson_doc_get_root(r->json));
}

static bool has_all(struct pq_sbi_request *r, const char *const *mandatory, size_t count)
{
    yyjson_val *body = yyjson_doc_get_root(r->json);
    for (size_t i = 0; i < count; i++)
        if (!yyjson_obj_get(body, mandatory[i])) {
            pq_sbi_invalid(r, "MANDATORY_IE_MISSING", mandatory[i], "is mandatory");
            return false;
        }
    return true;
}

static void on_register(struct pq_sbi_request *r)
{
    static const char *const mandatory[] = {"amfInstanceId", "deregCallbackUri", "guami", "ratType"};
    char supi[PQ_SUPI_MAX], path[PATH_SIZE];
    if (!supi_of(r, supi) || !has_all(r, mandatory, PQ_COUNT(mandatory)))
        return;
    access_path(supi, path);
    send_on(r, path, on_registered);
}

static void on_get_registration(struct pq_sbi_request *r)
{
    char supi[PQ_SUPI_MAX], path[PATH_SIZE];
    if (!supi_of(r, supi))
        return;
    access_path(supi, path);
    ask_udr(r, "GET", path, pq_span("", 0), on_data);
}

/* --- Nudm_UEAU: the result of an authentication ------------------------------------------------------------------- */

static void on_event_kept(void *context, const struct pq_directory_result *result)
{
    struct pq_sbi_request *r = context;
    char root[320];
    if (result->error || (result->status != 201 && result->status != 204)) {
        pq_upstream_problem(r, PQ_NF_UDR, result);
        return;
    }
    /* One event a user is kept, so its id is the user's. */
    if (pq_sbi_root(r, root, sizeof root) == 0)
        pq_sbi_field(r, "location", "%s/nudm-ueau/v1/%s/auth-events/%s", root, r->parameter[0], r->parameter[0]);
    pq_sbi_answer_value(r, 201, yyjson_doc_get_root(r->json));
}

static void on_auth_event(struct pq_sbi_request *r)
{
    static const char *const mandatory[] = {"nfInstanceId", "success", "timeStamp", "authType", "servingNetworkName"};
    char supi[PQ_SUPI_MAX], path[PATH_SIZE];
    if (!supi_of(r, supi) || !has_all(r, mandatory, PQ_COUNT(mandatory)))
        return;
    snprintf(path, sizeof path, "/nudr-dr/v2/subscription-data/%s/authentication-data/authentication-status", supi);
    send_on(r, path, on_event_kept);
}

static const struct pq_sbi_route routes[] = {
    {"POST", "/nudm-ueau/v1/{supiOrSuci}/security-information/generate-auth-data", "application/json",
     pq_udm_generate_auth_data},
    {"POST", "/nudm-ueau/v1/{supi}/auth-events", "application/json", on_auth_event},
    {"GET", "/nudm-sdm/v2/{supi}/am-data", NULL, on_am},
    {"GET", "/nudm-sdm/v2/{supi}/smf-select-data", NULL, on_smf_select},
    {"GET", "/nudm-sdm/v2/{supi}/sm-data", NULL, on_sm},
    {"GET", "/nudm-uecm/v1/{ueId}/registrations/amf-3gpp-access", NULL, on_get_registration},
    {"PUT", "/nudm-uecm/v1/{ueId}/registrations/amf-3gpp-access", "application/json", on_register},
};

static void nothing(void *self) { (void)self; }

int pq_udm_new(struct pq_directory *directory, const char *instance, struct pq_function *out)
{
    (void)instance;
    *out = (struct pq_function){routes, PQ_COUNT(routes), directory, nothing};
    return 0;
}
