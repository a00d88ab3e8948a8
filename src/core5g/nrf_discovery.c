#include "core5g/nrf_discovery.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/config.h"
#include "core5g/kind.h"
#include "core5g/sbi.h"
#include "http2/uri.h"

enum { VALUE_MAX = 1024 };

static const char missing_cause[] = "MANDATORY_QUERY_PARAM_MISSING";
static const char mandatory_cause[] = "MANDATORY_QUERY_PARAM_INCORRECT";
static const char optional_cause[] = "OPTIONAL_QUERY_PARAM_INCORRECT";

/* --- the parameters ----------------------------------------------------------------------------------------------- */

static int wrong(struct pq_nrf_query_fault *fault, const char *param, const char *reason, const char *cause)
{
    *fault = (struct pq_nrf_query_fault){param, reason, cause};
    return PQ_E_INVALID;
}

static int read_type(const char *value, char out[16], const char *param, struct pq_nrf_query_fault *fault)
{
    if (!pq_nf_type_is_known(value))
        return wrong(fault, param, "is no NFType", mandatory_cause);
    snprintf(out, 16, "%s", value);
    return 0;
}

static int read_target_type(struct pq_nrf_filter *f, const char *value, struct pq_nrf_query_fault *fault)
{
    return read_type(value, f->target_type, "target-nf-type", fault);
}

static int read_requester_type(struct pq_nrf_filter *f, const char *value, struct pq_nrf_query_fault *fault)
{
    return read_type(value, f->requester_type, "requester-nf-type", fault);
}

/* A list of names between commas. */
static int read_names(struct pq_nrf_filter *f, const char *value, struct pq_nrf_query_fault *fault)
{
    while (*value) {
        size_t n = strcspn(value, ",");
        if (n == 0 || n >= sizeof f->names[0] || f->name_count == PQ_NRF_NAMES)
            return wrong(fault, "service-names", "must be a list of service names", optional_cause);
        snprintf(f->names[f->name_count++], sizeof f->names[0], "%.*s", (int)n, value);
        value += n + (value[n] == ',');
    }
    return f->name_count ? 0 : wrong(fault, "service-names", "must not be empty", optional_cause);
}

static int read_instance(struct pq_nrf_filter *f, const char *value, struct pq_nrf_query_fault *fault)
{
    if (!pq_uuid_is_valid(value))
        return wrong(fault, "target-nf-instance-id", "must be a UUID", optional_cause);
    snprintf(f->instance, sizeof f->instance, "%s", value);
    return 0;
}

static int read_fqdn(struct pq_nrf_filter *f, const char *value, struct pq_nrf_query_fault *fault)
{
    size_t n = strlen(value);
    if (n == 0 || n >= sizeof f->fqdn)
        return wrong(fault, "target-nf-fqdn", "must be a domain name", optional_cause);
    snprintf(f->fqdn, sizeof f->fqdn, "%s", value);
    return 0;
}

static int read_limit(struct pq_nrf_filter *f, const char *value, struct pq_nrf_query_fault *fault)
{
    int64_t n = 0;
    if (pq_int_parse(value, 1, 1000000, &n, NULL) < 0)
        return wrong(fault, "limit", "must be a number of at least 1", optional_cause);
    f->limit = (size_t)n;
    return 0;
}

/* The first object of a JSON array. */
static yyjson_val *first_of(const char *value, yyjson_doc **doc)
{
    if (pq_sbi_parse(pq_span_text(value), doc) < 0)
        return NULL;
    yyjson_val *first = yyjson_arr_get_first(yyjson_doc_get_root(*doc));
    return yyjson_is_obj(first) ? first : NULL;
}

static int read_plmn(struct pq_nrf_filter *f, const char *value, struct pq_nrf_query_fault *fault)
{
    DEFER(pq_sbi_doc_freep) yyjson_doc *doc = NULL;
    yyjson_val *first = first_of(value, &doc);
    const char *mcc = yyjson_get_str(yyjson_obj_get(first, "mcc")), *mnc = yyjson_get_str(yyjson_obj_get(first, "mnc"));
    if (!mcc || !mnc || strlen(mcc) != 3 || strlen(mnc) < 2 || strlen(mnc) > 3)
        return wrong(fault, "target-plmn-list", "must be a JSON array of PlmnId", optional_cause);
    snprintf(f->mcc, sizeof f->mcc, "%s", mcc);
    snprintf(f->mnc, sizeof f->mnc, "%s", mnc);
    return 0;
}

static int read_snssai(struct pq_nrf_filter *f, const char *value, struct pq_nrf_query_fault *fault)
{
    DEFER(pq_sbi_doc_freep) yyjson_doc *doc = NULL;
    yyjson_val *first = first_of(value, &doc), *sst = yyjson_obj_get(first, "sst");
    const char *sd = yyjson_get_str(yyjson_obj_get(first, "sd"));
    if (!yyjson_is_uint(sst) || yyjson_get_uint(sst) > 255 || (sd && strlen(sd) != 6))
        return wrong(fault, "snssais", "must be a JSON array of Snssai", optional_cause);
    f->sst = (int)yyjson_get_uint(sst);
    snprintf(f->sd, sizeof f->sd, "%s", sd ? sd : "");
    return 0;
}

static const struct {
    const char *name;
    int (*read)(struct pq_nrf_filter *f, const char *value, struct pq_nrf_query_fault *fault);
} parameters[] = {
    {"target-nf-type", read_target_type}, {"requester-nf-type", read_requester_type},
    {"service-names", read_names},        {"target-nf-instance-id", read_instance},
    {"target-nf-fqdn", read_fqdn},        {"limit", read_limit},
    {"target-plmn-list", read_plmn},      {"snssais", read_snssai},
};

static int read_parameter(struct pq_nrf_filter *f, struct pq_span name, struct pq_span encoded,
                          struct pq_nrf_query_fault *fault)
{
    char value[VALUE_MAX];
    for (size_t i = 0; i < PQ_COUNT(parameters); i++) {
        if (!pq_span_equal(name, pq_span_text(parameters[i].name)))
            continue;
        if (pq_uri_decode(encoded, value, sizeof value) < 0)
            return wrong(fault, parameters[i].name, "is badly encoded or too long",
                         i < 2 ? mandatory_cause : optional_cause);
        return parameters[i].read(f, value, fault);
    }
    return 0;
}

int pq_nrf_filter_parse(struct pq_span query, struct pq_nrf_filter *out, struct pq_nrf_query_fault *fault)
{
    struct pq_nrf_filter f = {.sst = -1, .limit = SIZE_MAX};
    struct pq_span name, value;
    int e;
    while ((e = pq_uri_next_parameter(&query, &name, &value)) == 0)
        TRY(read_parameter(&f, name, value, fault));
    if (e != PQ_E_NOT_FOUND)
        return wrong(fault, "query", "is malformed", "INVALID_QUERY_PARAM");
    if (!f.target_type[0])
        return wrong(fault, "target-nf-type", "is mandatory", missing_cause);
    if (!f.requester_type[0])
        return wrong(fault, "requester-nf-type", "is mandatory", missing_cause);
    *out = f;
    return 0;
}

/* --- which instances fit ------------------------------------------------------------------------------------------ */

static bool list_has(yyjson_val *list, const char *text)
{
    yyjson_arr_iter it = yyjson_arr_iter_with(list);
    for (yyjson_val *v; (v = yyjson_arr_iter_next(&it));)
        if (yyjson_equals_str(v, text))
            return true;
    return false;
}

/* An absent list allows every type. */
static bool allows(yyjson_val *o, const char *type)
{
    yyjson_val *list = yyjson_obj_get(o, "allowedNfTypes");
    return !list || list_has(list, type);
}

static bool service_fits(const struct pq_nrf_filter *f, yyjson_val *service)
{
    if (!allows(service, f->requester_type))
        return false;
    for (size_t i = 0; i < f->name_count; i++)
        if (yyjson_equals_str(yyjson_obj_get(service, "serviceName"), f->names[i]))
            return true;
    return f->name_count == 0;
}

static bool has_service(const struct pq_nrf_filter *f, yyjson_val *profile)
{
    if (f->name_count == 0)
        return true;
    yyjson_arr_iter it = yyjson_arr_iter_with(yyjson_obj_get(profile, "nfServices"));
    for (yyjson_val *v; (v = yyjson_arr_iter_next(&it));)
        if (service_fits(f, v))
            return true;
    return false;
}

/* An absent list stands for the whole network, as for the NRF's own PLMN. */
static bool has_plmn(const struct pq_nrf_filter *f, yyjson_val *list)
{
    if (!f->mcc[0] || !list)
        return true;
    yyjson_arr_iter it = yyjson_arr_iter_with(list);
    for (yyjson_val *v; (v = yyjson_arr_iter_next(&it));)
        if (yyjson_equals_str(yyjson_obj_get(v, "mcc"), f->mcc) && yyjson_equals_str(yyjson_obj_get(v, "mnc"), f->mnc))
            return true;
    return false;
}

static bool has_snssai(const struct pq_nrf_filter *f, yyjson_val *list)
{
    if (f->sst < 0 || !list)
        return true;
    yyjson_arr_iter it = yyjson_arr_iter_with(list);
    for (yyjson_val *v; (v = yyjson_arr_iter_next(&it));) {
        const char *sd = yyjson_get_str(yyjson_obj_get(v, "sd"));
        if (yyjson_get_int(yyjson_obj_get(v, "sst")) == f->sst && strcasecmp(sd ? sd : "", f->sd) == 0)
            return true;
    }
    return false;
}

bool pq_nrf_filter_fits(const struct pq_nrf_filter *f, const struct pq_nrf_instance *n)
{
    if (n->state != PQ_NRF_REGISTERED || strcmp(n->type, f->target_type) != 0)
        return false;
    if (f->instance[0] && strcasecmp(f->instance, n->id) != 0)
        return false;
    yyjson_val *profile = yyjson_doc_get_root(n->profile);
    const char *fqdn = yyjson_get_str(yyjson_obj_get(profile, "fqdn"));
    if (f->fqdn[0] && (!fqdn || strcasecmp(fqdn, f->fqdn) != 0))
        return false;
    return allows(profile, f->requester_type) && has_service(f, profile) &&
           has_plmn(f, yyjson_obj_get(profile, "plmnList")) && has_snssai(f, yyjson_obj_get(profile, "sNssais"));
}

/* --- the answer --------------------------------------------------------------------------------------------------- */

/* Only the services that were asked for. */
static int append_filtered(struct pq_buf *out, const struct pq_nrf_filter *f, const struct pq_nrf_instance *n)
{
    DEFER(pq_sbi_mut_freep) yyjson_mut_doc *d = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_val_mut_copy(d, yyjson_doc_get_root(n->profile));
    yyjson_mut_val *list = yyjson_mut_arr(d);
    yyjson_arr_iter it = yyjson_arr_iter_with(yyjson_obj_get(yyjson_doc_get_root(n->profile), "nfServices"));
    for (yyjson_val *v; (v = yyjson_arr_iter_next(&it));)
        if (service_fits(f, v))
            yyjson_mut_arr_append(list, yyjson_val_mut_copy(d, v));
    yyjson_mut_obj_put(root, yyjson_mut_str(d, "nfServices"), list);
    size_t len = 0;
    DEFER(pq_freep) char *text = yyjson_mut_val_write(root, YYJSON_WRITE_NOFLAG, &len);
    return text ? pq_buf_append(out, text, len) : PQ_E_NOMEM;
}

static int append_instance(struct pq_buf *out, const struct pq_nrf_filter *f, const struct pq_nrf_instance *n,
                           bool first)
{
    if (!first)
        TRY(pq_buf_append(out, ",", 1));
    return f->name_count ? append_filtered(out, f, n) : pq_buf_append(out, n->text, n->text_len);
}

int pq_nrf_search(struct pq_nrf_store *s, int64_t now, const struct pq_nrf_filter *f, const char *search,
                  struct pq_buf *out, size_t *found, size_t *given)
{
    size_t fits = 0, count = pq_nrf_store_count(s, now);
    TRY(pq_buf_printf(out, "{\"validityPeriod\":%d,\"nfInstances\":[", PQ_NRF_VALIDITY_S));
    for (size_t i = 0; i < count; i++) {
        const struct pq_nrf_instance *n = pq_nrf_store_at(s, i);
        if (!pq_nrf_filter_fits(f, n))
            continue;
        if (fits < f->limit)
            TRY(append_instance(out, f, n, fits == 0));
        fits++;
    }
    TRY(pq_buf_text(out, "]"));
    if (search)
        TRY(pq_buf_printf(out, ",\"searchId\":\"%s\"", search));
    TRY(pq_buf_printf(out, ",\"numNfInstComplete\":%zu}", fits));
    *found = fits;
    *given = fits < f->limit ? fits : f->limit;
    return 0;
}
