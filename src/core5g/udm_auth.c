#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

#include "core5g/aka.h"
#include "core5g/identity.h"
#include "core5g/udm.h"
#include "core5g/upstream.h"

/* Another vector for the same subscriber may be under way: then the UDR refuses our write, and we read again. */
enum { ATTEMPTS = 5, SQN_MASK_BITS = 48, PATH_SIZE = 160 };

/* READ the subscription -> WRITE the next SQN -> answer. */
struct auth {
    struct pq_sbi_request *r;
    struct pq_directory *directory;
    char supi[PQ_SUPI_MAX];
    char path[PATH_SIZE];
    char network[PQ_AKA_NAME_MAX + 1];
    bool resync;
    uint8_t rand[16], auts[14]; /* of the failed attempt */
    struct pq_aka_subscriber key;
    uint64_t sqn; /* the next */
    int attempts;
};

static void auth_free(struct auth *a)
{
    OPENSSL_cleanse(a, sizeof *a);
    free(a);
}
PQ_DEFINE_FREEP(struct auth, auth_free)

static void read_subscription(struct auth *a);

/* --- the answer --------------------------------------------------------------------------------------------------- */

/* TS 29.503, 6.3.6.2.3 (AuthenticationInfoResult) and 6.3.6.2.5 (Av5GHeAka). */
static void answer_vector(struct pq_sbi_request *r, const char *supi, const struct pq_aka_vector *v)
{
    char rand[33], autn[33], xres_star[33], kausf[65];
    DEFER(pq_sbi_mut_freep) yyjson_mut_doc *d = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *o = yyjson_mut_obj(d);
    yyjson_mut_doc_set_root(d, o);
    pq_hex_write(v->rand, 16, rand);
    pq_hex_write(v->autn, 16, autn);
    pq_hex_write(v->xres_star, 16, xres_star);
    pq_hex_write(v->kausf, 32, kausf);
    yyjson_mut_obj_add_str(d, o, "authType", "5G_AKA");
    yyjson_mut_val *av = yyjson_mut_obj_add_obj(d, o, "authenticationVector");
    yyjson_mut_obj_add_str(d, av, "avType", "5G_HE_AKA");
    yyjson_mut_obj_add_str(d, av, "rand", rand);
    yyjson_mut_obj_add_str(d, av, "xresStar", xres_star);
    yyjson_mut_obj_add_str(d, av, "autn", autn);
    yyjson_mut_obj_add_str(d, av, "kausf", kausf);
    yyjson_mut_obj_add_str(d, o, "supi", supi);
    pq_sbi_answer_json(r, 200, pq_sbi_type_json, d);
    OPENSSL_cleanse(kausf, sizeof kausf);
    OPENSSL_cleanse(xres_star, sizeof xres_star);
}

static void answer(struct auth *a)
{
    struct pq_aka_vector v;
    uint8_t rand[16];
    int e = RAND_bytes(rand, sizeof rand) == 1 ? pq_aka_vector(&a->key, rand, a->sqn, a->network, &v) : PQ_E_CRYPTO;
    if (e < 0)
        pq_sbi_problem(a->r, 500, "AV_GENERATION_PROBLEM", "%s", pq_error_text(e));
    else
        answer_vector(a->r, a->supi, &v);
    OPENSSL_cleanse(&v, sizeof v);
}

/* --- WRITE -------------------------------------------------------------------------------------------------------- */

static void on_written(void *context, const struct pq_directory_result *result)
{
    DEFER(auth_freep) struct auth *a = context;
    if (!result->error && result->status == 409 && a->attempts < ATTEMPTS)
        read_subscription(TAKE(a));
    else if (result->error || (result->status != 204 && result->status != 200))
        pq_upstream_problem(a->r, PQ_NF_UDR, result);
    else
        answer(a);
}

/* The test makes it fail when the SQN has moved since it was read. */
static void write_sqn(struct auth *a, uint64_t before)
{
    char body[256];
    int n = snprintf(body, sizeof body,
                     "[{\"op\":\"test\",\"path\":\"/sequenceNumber/sqn\",\"value\":\"%012" PRIx64 "\"},"
                     "{\"op\":\"replace\",\"path\":\"/sequenceNumber/sqn\",\"value\":\"%012" PRIx64 "\"}]",
                     before, a->sqn);
    const struct pq_directory_call call = {.to = PQ_NF_UDR,
                                           .method = "PATCH",
                                           .path = a->path,
                                           .type = pq_sbi_type_patch,
                                           .body = pq_span(body, (size_t)n),
                                           .done = on_written,
                                           .context = a};
    int e = pq_directory_call(a->directory, &call);
    if (e < 0) {
        pq_upstream_unsent(a->r, PQ_NF_UDR, e);
        auth_free(a);
    }
}

/* --- READ --------------------------------------------------------------------------------------------------------- */

static int hex_of(yyjson_val *o, const char *name, uint8_t *out, size_t size)
{
    const char *text = yyjson_get_str(yyjson_obj_get(o, name));
    return text ? pq_hex_read(text, out, size) : PQ_E_SYNTAX;
}

static int read_key(yyjson_val *o, struct pq_aka_subscriber *key, uint64_t *sqn)
{
    uint8_t bytes[6];
    TRY(hex_of(o, "encPermanentKey", key->k, sizeof key->k));
    TRY(hex_of(o, "encOpcKey", key->opc, sizeof key->opc));
    TRY(hex_of(o, "authenticationManagementField", key->amf, sizeof key->amf));
    TRY(hex_of(yyjson_obj_get(o, "sequenceNumber"), "sqn", bytes, sizeof bytes));
    *sqn = 0;
    for (size_t i = 0; i < sizeof bytes; i++)
        *sqn = *sqn << 8 | bytes[i];
    return 0;
}

static void on_subscription(void *context, const struct pq_directory_result *result)
{
    DEFER(auth_freep) struct auth *a = context;
    uint64_t sqn = 0;
    if (result->error || result->status != 200) {
        pq_upstream_problem(a->r, PQ_NF_UDR, result);
        return;
    }
    if (read_key(result->json, &a->key, &sqn) < 0) {
        pq_sbi_problem(a->r, 500, "AV_GENERATION_PROBLEM", "the UDR's authentication subscription is not usable");
        return;
    }
    uint64_t base = sqn;
    int e = a->resync ? pq_aka_resync(&a->key, a->rand, a->auts, &base) : 0;
    if (e < 0) {
        pq_sbi_problem(a->r, 403, "AUTHENTICATION_REJECTED", "AUTS does not verify");
        return;
    }
    a->sqn = (base + PQ_AKA_SQN_STEP) & (((uint64_t)1 << SQN_MASK_BITS) - 1);
    write_sqn(TAKE(a), sqn);
}

static void read_subscription(struct auth *a)
{
    const struct pq_directory_call call = {
        .to = PQ_NF_UDR, .method = "GET", .path = a->path, .done = on_subscription, .context = a};
    a->attempts++;
    int e = pq_directory_call(a->directory, &call);
    if (e < 0) {
        pq_upstream_unsent(a->r, PQ_NF_UDR, e);
        auth_free(a);
    }
}

/* --- the request -------------------------------------------------------------------------------------------------- */

/* False: answered. */
static bool read_resync(struct auth *a, yyjson_val *body)
{
    yyjson_val *info = yyjson_obj_get(body, "resynchronizationInfo");
    if (!info)
        return true;
    a->resync = true;
    if (hex_of(info, "rand", a->rand, sizeof a->rand) == 0 && hex_of(info, "auts", a->auts, sizeof a->auts) == 0)
        return true;
    pq_sbi_invalid(a->r, "OPTIONAL_IE_INCORRECT", "resynchronizationInfo", "must have rand and auts in hexadecimal");
    return false;
}

static bool read_request(struct auth *a)
{
    yyjson_val *body = yyjson_doc_get_root(a->r->json);
    const char *network = yyjson_get_str(yyjson_obj_get(body, "servingNetworkName"));
    int e = pq_supi_parse(a->r->parameter[0], a->supi);
    if (e == PQ_E_UNSUPPORTED)
        pq_sbi_problem(a->r, 501, "UNSUPPORTED_PROTECTION_SCHEME", "only the null scheme is supported");
    else if (e < 0)
        pq_sbi_problem(a->r, 400, "INVALID_MSG_FORMAT", "supiOrSuci must be imsi-... or suci-0-...");
    else if (!network)
        pq_sbi_invalid(a->r, "MANDATORY_IE_MISSING", "servingNetworkName", "is mandatory");
    else if (!pq_network_name_is_valid(network))
        pq_sbi_invalid(a->r, "MANDATORY_IE_INCORRECT", "servingNetworkName",
                       "must be like 5G:mnc001.mcc001.3gppnetwork.org");
    else if (!yyjson_get_str(yyjson_obj_get(body, "ausfInstanceId")))
        pq_sbi_invalid(a->r, "MANDATORY_IE_MISSING", "ausfInstanceId", "is mandatory");
    else {
        snprintf(a->network, sizeof a->network, "%s", network);
        return read_resync(a, body);
    }
    return false;
}

void pq_udm_generate_auth_data(struct pq_sbi_request *r)
{
    DEFER(auth_freep) struct auth *a = calloc(1, sizeof *a);
    if (!a) {
        pq_sbi_problem(r, 500, "INSUFFICIENT_RESOURCES", "out of memory");
        return;
    }
    a->r = r;
    a->directory = r->function;
    if (!read_request(a))
        return;
    snprintf(a->path, sizeof a->path,
             "/nudr-dr/v2/subscription-data/%s/authentication-data/authentication-subscription", a->supi);
    read_subscription(TAKE(a));
}
