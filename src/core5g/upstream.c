#include "core5g/upstream.h"

#include <stdio.h>
#include <string.h>

/* Causes of the subscriber's matter, which the consumer must see. */
static const char *const passed_on[] = {"USER_NOT_FOUND",          "DATA_NOT_FOUND",
                                        "CONTEXT_NOT_FOUND",       "SERVING_NETWORK_NOT_AUTHORIZED",
                                        "AUTHENTICATION_REJECTED", "UNSUPPORTED_PROTECTION_SCHEME",
                                        "INVALID_SCHEME_OUTPUT"};

static const char *known_cause(yyjson_val *json)
{
    const char *cause = yyjson_get_str(yyjson_obj_get(json, "cause"));
    for (size_t i = 0; cause && i < PQ_COUNT(passed_on); i++)
        if (strcmp(cause, passed_on[i]) == 0)
            return passed_on[i];
    return NULL;
}

void pq_upstream_unsent(struct pq_sbi_request *r, enum pq_nf_kind asked, int e)
{
    const char *type = pq_nf_type_names[asked];
    if (e == PQ_E_CONFIG)
        pq_sbi_problem(r, 500, "SYSTEM_FAILURE", "neither --%s nor --nrf says where the %s is", pq_nf_kind_names[asked],
                       type);
    else if (e == PQ_E_TIMEOUT)
        pq_sbi_problem(r, 504, "TIMED_OUT_REQUEST", "the %s did not answer in time", type);
    else if (e == PQ_E_NOMEM || e == PQ_E_LIMIT)
        pq_sbi_problem(r, 503, "NF_CONGESTION", "%s", pq_error_text(e));
    else if (e == PQ_E_NOT_FOUND)
        pq_sbi_problem(r, 504, "TARGET_NF_NOT_REACHABLE", "the NRF knows no %s", type);
    else
        pq_sbi_problem(r, 504, "TARGET_NF_NOT_REACHABLE", "the %s can't be reached: %s", type, pq_error_text(e));
}

/* The function itself may be well. */
static void undiscovered(struct pq_sbi_request *r, enum pq_nf_kind asked, int e)
{
    const char *type = pq_nf_type_names[asked];
    if (e == PQ_E_TIMEOUT)
        pq_sbi_problem(r, 504, "TIMED_OUT_REQUEST", "the NRF did not say in time where the %s is", type);
    else if (e == PQ_E_NOMEM || e == PQ_E_LIMIT)
        pq_sbi_problem(r, 503, "NF_CONGESTION", "%s", pq_error_text(e));
    else
        pq_sbi_problem(r, 504, "TARGET_NF_NOT_REACHABLE", "the NRF can't be asked where the %s is: %s", type,
                       pq_error_text(e));
}

void pq_upstream_problem(struct pq_sbi_request *r, enum pq_nf_kind asked, const struct pq_directory_result *result)
{
    const char *cause = known_cause(result->json);
    if (result->undiscovered)
        undiscovered(r, asked, result->error);
    else if (result->error)
        pq_upstream_unsent(r, asked, result->error);
    else if (cause && (result->status == 403 || result->status == 404 || result->status == 501))
        pq_sbi_problem(r, result->status, cause, "says the %s", pq_nf_type_names[asked]);
    else
        pq_sbi_problem(r, 500, "SYSTEM_FAILURE", "the %s answered %d", pq_nf_type_names[asked], result->status);
}
