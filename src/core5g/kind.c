#include "core5g/kind.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

#include "base/cleanup.h"

const char *const pq_nf_kind_names[] = {"nrf", "ausf", "udm", "udr", NULL};
const char *const pq_nf_type_names[] = {"NRF", "AUSF", "UDM", "UDR", NULL};

static const char *const types[] = {
    "NRF",   "UDM",      "AMF",       "SMF",    "AUSF",  "NEF",     "PCF",  "SMSF",     "NSSF",  "UDR",
    "LMF",   "GMLC",     "5G_EIR",    "SEPP",   "UPF",   "N3IWF",   "AF",   "UDSF",     "BSF",   "CHF",
    "NWDAF", "PCSCF",    "CBCF",      "HSS",    "UCMF",  "SOR_AF",  "SPAF", "MME",      "SCSAS", "SCEF",
    "SCP",   "NSSAAF",   "ICSCF",     "SCSCF",  "DRA",   "IMS_AS",  "AANF", "5G_DDNMF", "NSACF", "MFAF",
    "EASDF", "DCCF",     "MB_SMF",    "TSCTSF", "ADRF",  "GBA_BSF", "CEF",  "MB_UPF",   "NSWOF", "PKMF",
    "MNPF",  "SMS_GMSC", "SMS_IWMSC", "MBSF",   "MBSTF", "PANF",
};

bool pq_nf_type_is_known(const char *text)
{
    for (size_t i = 0; i < PQ_COUNT(types); i++)
        if (strcmp(text, types[i]) == 0)
            return true;
    return false;
}

bool pq_uuid_is_valid(const char *text)
{
    for (size_t i = 0; i < 36; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? text[i] != '-' : !isxdigit((unsigned char)text[i]))
            return false;
    }
    return text[36] == '\0';
}
