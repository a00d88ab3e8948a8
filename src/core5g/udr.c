#include "core5g/udr.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core5g/subscribers.h"

struct udr {
    struct pq_subscribers *subscribers;
};

/* The subscriber that the path names first; NULL: answered. */
static struct pq_subscriber *subscriber_of(struct pq_sbi_request *r)
{
    struct udr *udr = r->function;
    struct pq_subscriber *s = NULL;
    char supi[PQ_SUPI_MAX];
    int e = pq_supi_parse(r->parameter[0], supi);
    if (e < 0) {
        pq_sbi_problem(r, 400, "INVALID_MSG_FORMAT", "ueId must be imsi- and 5 to 15 digits");
        return NULL;
    }
    e = pq_subscribers_find(udr->subscribers, supi, &s);
    if (e == PQ_E_NOT_FOUND)
        pq_sbi_problem(r, 404, "USER_NOT_FOUND", "there is no such subscriber");
    else if (e < 0)
        pq_sbi_problem(r, 500, "INSUFFICIENT_RESOURCES", "%s", pq_error_text(e));
    return s;
}

/* --- authentication data ------------------------------------------------------------------------------------------ */

/* TS 29.505, 5.4.2.2 (AuthenticationSubscription). Keys are not encrypted here: protectionParameterId says so. */
static yyjson_mut_doc *auth_subscription(const struct pq_subscriber *s)
{
    char k[33], opc[33], amf[5], sqn[13];
    yyjson_mut_doc *d = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *o = yyjson_mut_obj(d);
    yyjson_mut_doc_set_root(d, o);
    pq_hex_write(s->key.k, sizeof s->key.k, k);
    pq_hex_write(s->key.opc, sizeof s->key.opc, opc);
    pq_hex_write(s->key.amf, sizeof s->key.amf, amf);
    snprintf(sqn, sizeof sqn, "%012" PRIx64, s->sqn);
    yyjson_mut_obj_add_str(d, o, "authenticationMethod", "5G_AKA");
    yyjson_mut_obj_add_strcpy(d, o, "encPermanentKey", k);
    yyjson_mut_obj_add_str(d, o, "protectionParameterId", "none");
    yyjson_mut_val *number = yyjson_mut_obj_add_obj(d, o, "sequenceNumber");
    yyjson_mut_obj_add_str(d, number, "sqnScheme", "NON_TIME_BASED");
    yyjson_mut_obj_add_strcpy(d, number, "sqn", sqn);
    yyjson_mut_obj_add_int(d, yyjson_mut_obj_add_obj(d, number, "lastIndexes"), "ausf", 0);
    yyjson_mut_obj_add_int(d, number, "indLength", 5);
    yyjson_mut_obj_add_strcpy(d, o, "authenticationManagementField", amf);
    yyjson_mut_obj_add_str(d, o, "algorithmId", "milenage");
    yyjson_mut_obj_add_strcpy(d, o, "encOpcKey", opc);
    return d;
}

static void on_get_auth(struct pq_sbi_request *r)
{
    const struct pq_subscriber *s = subscriber_of(r);
    if (!s)
        return;
    DEFER(pq_sbi_mut_freep) yyjson_mut_doc *d = auth_subscription(s);
    pq_sbi_answer_json(r, 200, pq_sbi_type_json, d);
}

/* Only the sequence number may change (TS 29.505, 5.2.2.3.2), and nothing of the rest may come into it or grow. */
static bool only_sequence_number(yyjson_val *patch)
{
    yyjson_arr_iter it = yyjson_arr_iter_with(patch);
    for (yyjson_val *op; (op = yyjson_arr_iter_next(&it));) {
        yyjson_val *what = yyjson_obj_get(op, "op");
        if (!yyjson_equals_str(what, "test") && !yyjson_equals_str(what, "replace"))
            return false;
        if (!yyjson_equals_str(yyjson_obj_get(op, "path"), "/sequenceNumber/sqn"))
            return false;
    }
    return true;
}

/* The SQN after the patch. PQ_E_EXISTS: a test failed, so someone else was faster. */
static int patched_sqn(const struct pq_subscriber *s, yyjson_val *patch, uint64_t *sqn)
{
    yyjson_patch_err err = {0};
    DEFER(pq_sbi_mut_freep) yyjson_mut_doc *before = auth_subscription(s);
    DEFER(pq_sbi_mut_freep) yyjson_mut_doc *d = yyjson_mut_doc_new(NULL);
    DEFER(pq_sbi_doc_freep) yyjson_doc *fixed = yyjson_mut_doc_imut_copy(before, NULL);
    yyjson_mut_val *after = yyjson_patch(d, yyjson_doc_get_root(fixed), patch, &err);
    if (!after)
        return err.code == YYJSON_PATCH_ERROR_EQUAL               ? PQ_E_EXISTS
               : err.code == YYJSON_PATCH_ERROR_MEMORY_ALLOCATION ? PQ_E_NOMEM
                                                                  : PQ_E_INVALID;
    const char *text = yyjson_mut_get_str(yyjson_mut_obj_get(yyjson_mut_obj_get(after, "sequenceNumber"), "sqn"));
    uint8_t bytes[6];
    if (!text || pq_hex_read(text, bytes, sizeof bytes) < 0)
        return PQ_E_INVALID;
    uint64_t v = 0;
    for (size_t i = 0; i < sizeof bytes; i++)
        v = v << 8 | bytes[i];
    *sqn = v;
    return 0;
}

static void on_patch_auth(struct pq_sbi_request *r)
{
    struct pq_subscriber *s = subscriber_of(r);
    yyjson_val *patch = yyjson_doc_get_root(r->json);
    uint64_t sqn = 0;
    if (!s)
        return;
    if (!yyjson_is_arr(patch) || yyjson_arr_size(patch) == 0) {
        pq_sbi_invalid(r, "INVALID_MSG_FORMAT", "patch", "must be an array of PatchItem");
        return;
    }
    if (yyjson_arr_size(patch) > PQ_SBI_PATCH_OPERATIONS) {
        pq_sbi_invalid(r, "MANDATORY_IE_INCORRECT", "patch", "has too many operations");
        return;
    }
    if (!only_sequence_number(patch)) {
        pq_sbi_problem(r, 403, "MODIFICATION_NOT_ALLOWED", "only test and replace of /sequenceNumber/sqn are allowed");
        return;
    }
    int e = patched_sqn(s, patch, &sqn);
    if (e == PQ_E_EXISTS) {
        pq_sbi_problem(r, 409, NULL, "a test of the patch does not hold: read again");
    } else if (e < 0) {
        pq_sbi_invalid(r, "MANDATORY_IE_INCORRECT", "patch", "does not apply to the authentication subscription");
    } else {
        s->sqn = sqn;
        pq_sbi_answer_empty(r, 204);
    }
}

/* --- documents that others write and read ------------------------------------------------------------------------- */

static void answer_text(struct pq_sbi_request *r, int status, const char *text)
{
    DEFER(pq_buf_free) struct pq_buf body = {.cap = PQ_SBI_BODY_MAX};
    if (pq_buf_text(&body, text) < 0)
        pq_sbi_problem(r, 500, "INSUFFICIENT_RESOURCES", "out of memory");
    else
        pq_sbi_answer(r, status, pq_sbi_type_json, &body);
}

static void answer_kept(struct pq_sbi_request *r, const char *text)
{
    if (!text) {
        pq_sbi_problem(r, 404, "DATA_NOT_FOUND", "nothing is stored there");
        return;
    }
    answer_text(r, 200, text);
}

/* 201 for what is new, 204 for what it replaces. */
static void keep(struct pq_sbi_request *r, char **slot, const char *const *mandatory, size_t count)
{
    yyjson_val *root = yyjson_doc_get_root(r->json);
    for (size_t i = 0; i < count; i++)
        if (!yyjson_obj_get(root, mandatory[i])) {
            pq_sbi_invalid(r, "MANDATORY_IE_MISSING", mandatory[i], "is mandatory");
            return;
        }
    char *text = yyjson_write(r->json, YYJSON_WRITE_NOFLAG, NULL);
    if (!text) {
        pq_sbi_problem(r, 500, "INSUFFICIENT_RESOURCES", "out of memory");
        return;
    }
    bool new = !*slot;
    free(*slot);
    *slot = text;
    if (new)
        answer_text(r, 201, text);
    else
        pq_sbi_answer_empty(r, 204);
}

static void on_put_status(struct pq_sbi_request *r)
{
    static const char *const mandatory[] = {"nfInstanceId", "success", "timeStamp", "authType", "servingNetworkName"};
    struct pq_subscriber *s = subscriber_of(r);
    if (s)
        keep(r, &s->auth_status, mandatory, PQ_COUNT(mandatory));
}

static void on_get_status(struct pq_sbi_request *r)
{
    const struct pq_subscriber *s = subscriber_of(r);
    if (s)
        answer_kept(r, s->auth_status);
}

static void on_put_access(struct pq_sbi_request *r)
{
    static const char *const mandatory[] = {"amfInstanceId", "deregCallbackUri", "guami", "ratType"};
    struct pq_subscriber *s = subscriber_of(r);
    if (s)
        keep(r, &s->amf_access, mandatory, PQ_COUNT(mandatory));
}

static void on_get_access(struct pq_sbi_request *r)
{
    const struct pq_subscriber *s = subscriber_of(r);
    if (s)
        answer_kept(r, s->amf_access);
}

/* --- provisioned data --------------------------------------------------------------------------------------------- */

/* TS 29.503, 6.1.6.2.4 (AccessAndMobilitySubscriptionData), 6.1.6.2.12 (SmfSelectionSubscriptionData), 6.1.6.2.8
 * (SessionManagementSubscriptionData). The GPSI is the MSIN's. */
static const char am_data[] =
    "{\"gpsis\":[\"msisdn-%s\"],\"subscribedUeAmbr\":{\"uplink\":\"1 Gbps\",\"downlink\":\"2 Gbps\"},"
    "\"nssai\":{\"defaultSingleNssais\":[{\"sst\":1,\"sd\":\"010203\"}],\"singleNssais\":[{\"sst\":1,\"sd\":\"112233\"}"
    "]},"
    "\"ratRestrictions\":[],\"rfspIndex\":1,\"subsRegTimer\":3600,\"ueUsageType\":1}";
static const char smf_selection[] =
    "{\"subscribedSnssaiInfos\":{\"01010203\":{\"dnnInfos\":[{\"dnn\":\"internet\",\"defaultDnnIndicator\":true}]},"
    "\"01112233\":{\"dnnInfos\":[{\"dnn\":\"internet\"}]}}}";
static const char sm_data[] =
    "[{\"singleNssai\":{\"sst\":1,\"sd\":\"010203\"},\"dnnConfigurations\":{\"internet\":{"
    "\"pduSessionTypes\":{\"defaultSessionType\":\"IPV4\",\"allowedSessionTypes\":[\"IPV4\",\"IPV6\",\"IPV4V6\"]},"
    "\"sscModes\":{\"defaultSscMode\":\"SSC_MODE_1\",\"allowedSscModes\":[\"SSC_MODE_1\",\"SSC_MODE_2\",\"SSC_MODE_3\"]"
    "},"
    "\"5gQosProfile\":{\"5qi\":9,\"arp\":{\"priorityLevel\":8,\"preemptCap\":\"NOT_PREEMPT\",\"preemptVuln\":\"NOT_"
    "PREEMPTABLE\"},"
    "\"priorityLevel\":8},\"sessionAmbr\":{\"uplink\":\"200 Mbps\",\"downlink\":\"100 Mbps\"}}}}]";

static void answer_provisioned(struct pq_sbi_request *r, const char *format)
{
    DEFER(pq_buf_free) struct pq_buf body = {.cap = 4096};
    if (!subscriber_of(r))
        return;
    if (strcmp(r->parameter[1], PQ_HOME_MCC PQ_HOME_MNC) != 0) {
        pq_sbi_problem(r, 404, "DATA_NOT_FOUND", "no data for that serving network");
        return;
    }
    int e = format == am_data ? pq_buf_printf(&body, am_data, r->parameter[0] + 10) : pq_buf_text(&body, format);
    if (e < 0)
        pq_sbi_problem(r, 500, "INSUFFICIENT_RESOURCES", "out of memory");
    else
        pq_sbi_answer(r, 200, pq_sbi_type_json, &body);
}

static void on_am(struct pq_sbi_request *r) { answer_provisioned(r, am_data); }
static void on_smf_selection(struct pq_sbi_request *r) { answer_provisioned(r, smf_selection); }
static void on_sm(struct pq_sbi_request *r) { answer_provisioned(r, sm_data); }

#define DATA "/nudr-dr/v2/subscription-data/{ueId}"
static const struct pq_sbi_route routes[] = {
    {"GET", DATA "/authentication-data/authentication-subscription", NULL, on_get_auth},
    {"PATCH", DATA "/authentication-data/authentication-subscription", "application/json-patch+json", on_patch_auth},
    {"GET", DATA "/authentication-data/authentication-status", NULL, on_get_status},
    {"PUT", DATA "/authentication-data/authentication-status", "application/json", on_put_status},
    {"GET", DATA "/context-data/amf-3gpp-access", NULL, on_get_access},
    {"PUT", DATA "/context-data/amf-3gpp-access", "application/json", on_put_access},
    {"GET", DATA "/{servingPlmnId}/provisioned-data/am-data", NULL, on_am},
    {"GET", DATA "/{servingPlmnId}/provisioned-data/smf-selection-subscription-data", NULL, on_smf_selection},
    {"GET", DATA "/{servingPlmnId}/provisioned-data/sm-data", NULL, on_sm},
};

static void udr_free(void *self)
{
    struct udr *udr = self;
    if (udr)
        pq_subscribers_free(udr->subscribers);
    free(udr);
}

static void udr_freep(struct udr **udr) { udr_free(*udr); }

int pq_udr_new(uint64_t subscribers, struct pq_function *out)
{
    DEFER(udr_freep) struct udr *udr = calloc(1, sizeof *udr);
    if (!udr)
        return PQ_E_NOMEM;
    TRY(pq_subscribers_new(subscribers, &udr->subscribers));
    *out = (struct pq_function){routes, PQ_COUNT(routes), TAKE(udr), udr_free};
    return 0;
}
