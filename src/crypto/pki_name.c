#include "crypto/pki_name.h"

#include <arpa/inet.h>
#include <string.h>

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

int pq_pki_name_check(const char *name, struct pq_why *why)
{
    static const char *const taken[] = {"root", "intermediate", "crl"};
    size_t len = strlen(name);
    bool good = len > 0 && len <= PQ_PKI_COMMON_NAME_MAX && name[0] != '.' && name[0] != '-';
    for (size_t i = 0; i < len && good; i++)
        good = is_letter(name[i]) || is_digit(name[i]) || (name[i] && strchr("._-", name[i]));
    if (!good)
        return pq_why(why, PQ_E_INVALID,
                      "\"%.80s\" can't name a certificate: use 1 to %d letters, digits, '.', '_' and '-', beginning "
                      "with a letter or digit",
                      name, PQ_PKI_COMMON_NAME_MAX);
    for (size_t i = 0; i < PQ_COUNT(taken); i++)
        if (strcmp(taken[i], name) == 0)
            return pq_why(why, PQ_E_INVALID, "the name \"%s\" is the authority's own: use another", name);
    return 0;
}

int pq_pki_common_name(const char *text, X509_NAME **out, struct pq_why *why)
{
    size_t len = strlen(text);
    bool good = len > 0 && len <= PQ_PKI_COMMON_NAME_MAX;
    for (size_t i = 0; i < len && good; i++)
        good = (unsigned char)text[i] >= ' ' && text[i] != 0x7f;
    if (!good)
        return pq_why(why, PQ_E_INVALID,
                      "\"%.80s\" can't be a common name: it takes 1 to %d bytes without control characters", text,
                      PQ_PKI_COMMON_NAME_MAX);
    DEFER(X509_NAME_freep) X509_NAME *name = X509_NAME_new();
    if (!name)
        return pq_why(why, PQ_E_NOMEM, "out of memory");
    if (!X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_UTF8, (const unsigned char *)text, (int)len, -1, 0))
        return pq_crypto_why(why, PQ_E_INVALID, "\"%.80s\" can't be a common name", text);
    *out = TAKE(name);
    return 0;
}

/* --- subject alternative names -------------------------------------------------------------------------------------
 */
static int text_name(int type, const char *text, GENERAL_NAME **out, struct pq_why *why)
{
    DEFER(GENERAL_NAME_freep) GENERAL_NAME *name = GENERAL_NAME_new();
    DEFER(ASN1_OCTET_STRING_freep) ASN1_IA5STRING *value = ASN1_IA5STRING_new();
    if (!name || !value || !ASN1_STRING_set(value, text, -1))
        return pq_crypto_why(why, PQ_E_NOMEM, "out of memory");
    GENERAL_NAME_set0_value(name, type, TAKE(value));
    *out = TAKE(name);
    return 0;
}

/* Labels of letters, digits and inner hyphens; the first may be '*'. */
static bool is_host(const char *text)
{
    size_t len = strlen(text), label = 0;
    if (len == 0 || len > 253)
        return false;
    const char *at = strncmp(text, "*.", 2) == 0 ? text + 2 : text;
    if (!*at)
        return false;
    for (;; at++) {
        if (*at == '.' || !*at) {
            if (label == 0 || label > 63 || at[-1] == '-')
                return false;
            label = 0;
            if (!*at)
                return true;
        } else if (!is_letter(*at) && !is_digit(*at) && (*at != '-' || label == 0)) {
            return false;
        } else {
            label++;
        }
    }
}

static int dns_name(const char *text, GENERAL_NAME **out, struct pq_why *why)
{
    if (!is_host(text))
        return pq_why(why, PQ_E_INVALID,
                      "\"%.80s\" is no DNS name: labels of letters, digits and '-' are, \"amf.5gc.example\"; "
                      "write an internationalised name as its A-labels (\"xn--...\")",
                      text);
    return text_name(GEN_DNS, text, out, why);
}

static int ip_name(const char *text, GENERAL_NAME **out, struct pq_why *why)
{
    unsigned char bytes[16];
    int len = inet_pton(AF_INET, text, bytes) == 1 ? 4 : inet_pton(AF_INET6, text, bytes) == 1 ? 16 : 0;
    if (!len)
        return pq_why(why, PQ_E_INVALID, "\"%.80s\" is no IP address: \"198.18.0.1\" and \"fd00::1\" are", text);
    DEFER(GENERAL_NAME_freep) GENERAL_NAME *name = GENERAL_NAME_new();
    DEFER(ASN1_OCTET_STRING_freep) ASN1_OCTET_STRING *value = ASN1_OCTET_STRING_new();
    if (!name || !value || !ASN1_OCTET_STRING_set(value, bytes, len))
        return pq_crypto_why(why, PQ_E_NOMEM, "out of memory");
    GENERAL_NAME_set0_value(name, GEN_IPADD, TAKE(value));
    *out = TAKE(name);
    return 0;
}

/* RFC 3986: a scheme, ':', then printable ASCII without space and without what a URI must escape. */
static bool is_uri(const char *text)
{
    size_t scheme = 0, len = strlen(text);
    while (is_letter(text[scheme]) ||
           (scheme && (is_digit(text[scheme]) || (text[scheme] && strchr("+-.", text[scheme])))))
        scheme++;
    if (scheme == 0 || text[scheme] != ':' || !text[scheme + 1] || len > PQ_PKI_URI_MAX)
        return false;
    for (size_t i = scheme + 1; i < len; i++)
        if (text[i] <= ' ' || text[i] > '~' || strchr("\"<>\\^`{|}", text[i]))
            return false;
    return true;
}

static int uri_name(const char *text, GENERAL_NAME **out, struct pq_why *why)
{
    if (!is_uri(text))
        return pq_why(why, PQ_E_INVALID,
                      "\"%.80s\" is no URI of at most %d bytes: \"https://amf.5gc.example/\" and \"urn:uuid:...\" are",
                      text, PQ_PKI_URI_MAX);
    return text_name(GEN_URI, text, out, why);
}

static int nf_name(const char *text, GENERAL_NAME **out, struct pq_why *why)
{
    static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    char uri[sizeof "urn:uuid:" + sizeof form] = "urn:uuid:";
    bool good = strlen(text) == sizeof form - 1;
    for (size_t i = 0; i < sizeof form - 1 && good; i++) {
        good = form[i] == '-' ? text[i] == '-' : is_hex(text[i]);
        uri[9 + i] = is_letter(text[i]) ? (char)(text[i] | 0x20) : text[i];
    }
    if (!good)
        return pq_why(why, PQ_E_INVALID,
                      "\"%.80s\" is no NF instance id: a UUID is, \"4947a69a-f61b-4bc1-b9da-47c9c5d14b64\"", text);
    return text_name(GEN_URI, uri, out, why);
}

static const struct {
    const char *prefix;
    int (*make)(const char *text, GENERAL_NAME **out, struct pq_why *why);
} forms[] = {{"DNS:", dns_name}, {"IP:", ip_name}, {"URI:", uri_name}, {"NF:", nf_name}};

static int one(const char *text, GENERAL_NAME **out, struct pq_why *why)
{
    for (size_t i = 0; i < PQ_COUNT(forms); i++)
        if (strncmp(text, forms[i].prefix, strlen(forms[i].prefix)) == 0)
            return forms[i].make(text + strlen(forms[i].prefix), out, why);
    return pq_why(why, PQ_E_INVALID,
                  "\"%.80s\" is no subject alternative name: it begins with DNS:, IP:, URI: or NF:", text);
}

int pq_pki_san(const struct pq_strings *san, GENERAL_NAMES **out, struct pq_why *why)
{
    if (san->count == 0) {
        *out = NULL;
        return 0;
    }
    if (san->count > PQ_PKI_SAN_MAX)
        return pq_why(why, PQ_E_INVALID, "%zu subject alternative names are too many: at most %d", san->count,
                      PQ_PKI_SAN_MAX);
    DEFER(GENERAL_NAMES_freep) GENERAL_NAMES *names = GENERAL_NAMES_new();
    if (!names)
        return pq_crypto_why(why, PQ_E_NOMEM, "out of memory");
    for (size_t i = 0; i < san->count; i++) {
        DEFER(GENERAL_NAME_freep) GENERAL_NAME *name = NULL;
        TRY(one(san->at[i], &name, why));
        if (!sk_GENERAL_NAME_push(names, name))
            return pq_crypto_why(why, PQ_E_NOMEM, "out of memory");
        name = NULL;
    }
    *out = TAKE(names);
    return 0;
}
