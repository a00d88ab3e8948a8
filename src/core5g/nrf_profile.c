#include "core5g/nrf_profile.h"

#include <string.h>
#include <strings.h>

#include "core5g/kind.h"

static int missing(struct pq_nrf_fault *f, const char *param)
{
    *f = (struct pq_nrf_fault){param, "is mandatory", true};
    return PQ_E_INVALID;
}

static int wrong(struct pq_nrf_fault *f, const char *param, const char *reason)
{
    *f = (struct pq_nrf_fault){param, reason, false};
    return PQ_E_INVALID;
}

/* A mandatory text. */
static int text_of(yyjson_val *o, const char *name, const char *param, const char **out, struct pq_nrf_fault *f)
{
    yyjson_val *v = yyjson_obj_get(o, name);
    if (!v)
        return missing(f, param);
    if (!yyjson_is_str(v) || yyjson_get_len(v) == 0)
        return wrong(f, param, "must be a text");
    *out = yyjson_get_str(v);
    return 0;
}

static int check_service(yyjson_val *service, struct pq_nrf_fault *f)
{
    const char *text;
    if (!yyjson_is_obj(service))
        return wrong(f, "nfServices", "must hold objects");
    TRY(text_of(service, "serviceInstanceId", "nfServices/serviceInstanceId", &text, f));
    TRY(text_of(service, "serviceName", "nfServices/serviceName", &text, f));
    TRY(text_of(service, "nfServiceStatus", "nfServices/nfServiceStatus", &text, f));
    TRY(text_of(service, "scheme", "nfServices/scheme", &text, f));
    if (strcmp(text, "http") != 0 && strcmp(text, "https") != 0)
        return wrong(f, "nfServices/scheme", "must be http or https");
    yyjson_val *versions = yyjson_obj_get(service, "versions");
    if (!versions)
        return missing(f, "nfServices/versions");
    return yyjson_arr_size(versions) ? 0 : wrong(f, "nfServices/versions", "must be a list of at least one");
}

static int check_services(yyjson_val *profile, struct pq_nrf_fault *f)
{
    yyjson_val *services = yyjson_obj_get(profile, "nfServices"), *service;
    if (!services)
        return 0;
    if (!yyjson_is_arr(services))
        return wrong(f, "nfServices", "must be a list");
    yyjson_arr_iter it = yyjson_arr_iter_with(services);
    while ((service = yyjson_arr_iter_next(&it)))
        TRY(check_service(service, f));
    return 0;
}

int pq_nrf_profile_check(const char *id, yyjson_val *profile, struct pq_nrf_fault *f)
{
    const char *text = NULL;
    if (!yyjson_is_obj(profile))
        return wrong(f, "nfInstanceId", "the body must be an object");
    TRY(text_of(profile, "nfInstanceId", "nfInstanceId", &text, f));
    if (strcasecmp(text, id) != 0)
        return wrong(f, "nfInstanceId", "differs from the one in the path");
    if (!pq_uuid_is_valid(text))
        return wrong(f, "nfInstanceId", "must be a UUID");
    TRY(text_of(profile, "nfType", "nfType", &text, f));
    if (!pq_nf_type_is_known(text))
        return wrong(f, "nfType", "is no NFType");
    TRY(text_of(profile, "nfStatus", "nfStatus", &text, f));
    if (strcmp(text, "REGISTERED") != 0 && strcmp(text, "SUSPENDED") != 0 && strcmp(text, "UNDISCOVERABLE") != 0)
        return wrong(f, "nfStatus", "is no NFStatus");
    if (!yyjson_obj_get(profile, "fqdn") && !yyjson_arr_size(yyjson_obj_get(profile, "ipv4Addresses")) &&
        !yyjson_arr_size(yyjson_obj_get(profile, "ipv6Addresses")))
        return missing(f, "ipv4Addresses");
    return check_services(profile, f);
}

/* --- realistic ones ----------------------------------------------------------------------------------------------- */

static const struct {
    const char *type, *name, *version, *full;
} services[] = {
    {"NRF", "nnrf-nfm", "v1", "1.3.0"},
    {"NRF", "nnrf-disc", "v1", "1.3.0"},
    {"AUSF", "nausf-auth", "v1", "1.2.2"},
    {"UDM", "nudm-sdm", "v2", "2.2.2"},
    {"UDM", "nudm-uecm", "v1", "1.2.2"},
    {"UDM", "nudm-ueau", "v1", "1.2.2"},
    {"UDR", "nudr-dr", "v2", "2.2.1"},
    {"AMF", "namf-comm", "v1", "1.2.3"},
    {"AMF", "namf-evts", "v1", "1.2.1"},
    {"SMF", "nsmf-pdusession", "v1", "1.2.3"},
    {"PCF", "npcf-am-policy-control", "v1", "1.2.1"},
    {"NSSF", "nnssf-nsselection", "v2", "2.2.0"},
};

static void add_service(yyjson_mut_doc *d, yyjson_mut_val *list, const struct pq_nrf_profile *how, size_t row, size_t n)
{
    char id[48];
    snprintf(id, sizeof id, "%s-%zu", services[row].name, n + 1);
    yyjson_mut_val *o = yyjson_mut_arr_add_obj(d, list);
    yyjson_mut_obj_add_strcpy(d, o, "serviceInstanceId", id);
    yyjson_mut_obj_add_str(d, o, "serviceName", services[row].name);
    yyjson_mut_val *version = yyjson_mut_arr_add_obj(d, yyjson_mut_obj_add_arr(d, o, "versions"));
    yyjson_mut_obj_add_str(d, version, "apiVersionInUri", services[row].version);
    yyjson_mut_obj_add_str(d, version, "apiFullVersion", services[row].full);
    yyjson_mut_obj_add_str(d, o, "scheme", how->scheme);
    yyjson_mut_obj_add_str(d, o, "nfServiceStatus", "REGISTERED");
    yyjson_mut_val *end = yyjson_mut_arr_add_obj(d, yyjson_mut_obj_add_arr(d, o, "ipEndPoints"));
    yyjson_mut_obj_add_str(d, end, strchr(how->address, ':') ? "ipv6Address" : "ipv4Address", how->address);
    yyjson_mut_obj_add_str(d, end, "transport", "TCP");
    yyjson_mut_obj_add_int(d, end, "port", how->port);
    yyjson_mut_obj_add_int(d, o, "priority", 1);
    yyjson_mut_obj_add_int(d, o, "capacity", 100);
    yyjson_mut_obj_add_int(d, o, "load", 0);
}

static void add_slices(yyjson_mut_doc *d, yyjson_mut_val *o)
{
    yyjson_mut_val *plmn = yyjson_mut_arr_add_obj(d, yyjson_mut_obj_add_arr(d, o, "plmnList"));
    yyjson_mut_obj_add_str(d, plmn, "mcc", "001");
    yyjson_mut_obj_add_str(d, plmn, "mnc", "01");
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(d, o, "sNssais");
    yyjson_mut_val *slice = yyjson_mut_arr_add_obj(d, list);
    yyjson_mut_obj_add_int(d, slice, "sst", 1);
    yyjson_mut_obj_add_str(d, slice, "sd", "010203");
}

static void add_head(yyjson_mut_doc *d, yyjson_mut_val *o, const struct pq_nrf_profile *how)
{
    yyjson_mut_obj_add_str(d, o, "nfInstanceId", how->id);
    yyjson_mut_obj_add_str(d, o, "nfType", how->type);
    yyjson_mut_obj_add_str(d, o, "nfStatus", "REGISTERED");
    yyjson_mut_obj_add_int(d, o, "heartBeatTimer", how->heartbeat_s);
    add_slices(d, o);
    if (how->fqdn)
        yyjson_mut_obj_add_str(d, o, "fqdn", how->fqdn);
    bool v6 = strchr(how->address, ':') != NULL;
    yyjson_mut_val *addresses = yyjson_mut_obj_add_arr(d, o, v6 ? "ipv6Addresses" : "ipv4Addresses");
    yyjson_mut_arr_add_str(d, addresses, how->address);
    yyjson_mut_val *allowed = yyjson_mut_obj_add_arr(d, o, "allowedNfTypes");
    static const char *const consumers[] = {"AMF", "AUSF", "UDM", "SMF", "PCF", "NEF", "SCP", "NRF"};
    for (size_t i = 0; i < PQ_COUNT(consumers); i++)
        yyjson_mut_arr_add_str(d, allowed, consumers[i]);
    yyjson_mut_obj_add_int(d, o, "priority", 1);
    yyjson_mut_obj_add_int(d, o, "capacity", 100);
    yyjson_mut_obj_add_int(d, o, "load", 0);
}

int pq_nrf_profile_text(const struct pq_nrf_profile *how, struct pq_buf *out)
{
    yyjson_mut_doc *d = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *o = yyjson_mut_obj(d);
    yyjson_mut_doc_set_root(d, o);
    add_head(d, o, how);
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(d, o, "nfServices");
    for (size_t i = 0, n = 0; i < PQ_COUNT(services); i++)
        if (strcmp(services[i].type, how->type) == 0)
            add_service(d, list, how, i, n++);
    size_t len = 0;
    DEFER(pq_freep) char *text = yyjson_mut_write(d, YYJSON_WRITE_NOFLAG, &len);
    yyjson_mut_doc_free(d);
    return text ? pq_buf_append(out, text, len) : PQ_E_NOMEM;
}
