#include "crypto/token_module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* --- PKCS #11 v2.40 ----------------------------------------------------------------------------------------------- */

typedef unsigned long ck_rv;

enum {
    CKR_OK = 0,
    CKR_CRYPTOKI_ALREADY_INITIALIZED = 0x191,
    CKF_LOGIN_REQUIRED = 0x4,
    CKF_USER_PIN_LOCKED = 0x40000,
    CKF_SERIAL_SESSION = 0x4,
    CKS_RO_USER_FUNCTIONS = 1,
    CKS_RW_USER_FUNCTIONS = 3,
};

/* Texts are padded with blanks and do not end in a NUL. */
struct ck_token_info {
    char label[32], manufacturer[32], model[16], serial[16];
    unsigned long flags, counts[10];
    unsigned char versions[4];
    char utc_time[16];
};
struct ck_session_info {
    unsigned long slot, state, flags, device_error;
};

struct pq_ck_functions {
    unsigned char version[2];
    ck_rv (*initialize)(void *arguments);
    ck_rv (*finalize)(void *reserved);
    void (*before_slots[2])(void);
    ck_rv (*get_slot_list)(unsigned char with_token, unsigned long *slots, unsigned long *count);
    void (*get_slot_info)(void);
    ck_rv (*get_token_info)(unsigned long slot, struct ck_token_info *out);
    void (*before_sessions[5])(void);
    ck_rv (*open_session)(unsigned long slot, unsigned long flags, void *application, void *notify, unsigned long *out);
    ck_rv (*close_session)(unsigned long session);
    void (*close_all_sessions)(void);
    ck_rv (*get_session_info)(unsigned long session, struct ck_session_info *out);
};

enum { SLOTS_MAX = 64 };

/* --- the module --------------------------------------------------------------------------------------------------- */

void pq_token_module_close(struct pq_token_module *m)
{
    if (m->library)
        dlclose(m->library);
    *m = (struct pq_token_module){0};
}

int pq_token_module_open(const char *path, struct pq_token_module *out, struct pq_why *why)
{
    typedef ck_rv get_list(struct pq_ck_functions * *out);
    struct pq_ck_functions *list = NULL;
    DEFER(pq_token_module_close) struct pq_token_module m = {.library = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
    if (!m.library)
        return pq_why(why, PQ_E_CONFIG, "the PKCS#11 module %s can't be loaded: %s", path, dlerror());
    get_list *get = NULL;
    void *symbol = dlsym(m.library, "C_GetFunctionList");
    memcpy(&get, &symbol, sizeof get); /* ISO C has no way from an object's pointer to a function's */
    if (!get || get(&list) != CKR_OK || !list)
        return pq_why(why, PQ_E_CONFIG, "%s is no PKCS#11 module: name the library that came with the token", path);
    out->library = TAKE(m.library);
    out->call = list;
    return 0;
}

int pq_token_module_try(const struct pq_token_module *m, const char *path, struct pq_why *why)
{
    ck_rv rv = m->call->initialize(NULL);
    if (rv == CKR_OK)
        m->call->finalize(NULL);
    if (rv == CKR_OK || rv == CKR_CRYPTOKI_ALREADY_INITIALIZED)
        return 0;
    return pq_why(
        why, PQ_E_CONFIG,
        "the PKCS#11 module %s can't be initialised (its error 0x%lx): see its own documentation and log, and "
        "whether this user may read its configuration",
        path, rv);
}

/* --- tokens ------------------------------------------------------------------------------------------------------- */

static bool is_padded(const char *field, size_t size, const char *text)
{
    size_t len = text ? strlen(text) : 0;
    if (!text)
        return true;
    if (len > size || memcmp(field, text, len) != 0)
        return false;
    while (len < size && field[len] == ' ')
        len++;
    return len == size;
}

static bool fits(const struct ck_token_info *t, const struct pq_token_uri *u)
{
    return is_padded(t->label, sizeof t->label, u->token) &&
           is_padded(t->manufacturer, sizeof t->manufacturer, u->manufacturer) &&
           is_padded(t->serial, sizeof t->serial, u->serial) && is_padded(t->model, sizeof t->model, u->model);
}

static void label_of(const struct ck_token_info *t, char out[33])
{
    int len = sizeof t->label;
    while (len && t->label[len - 1] == ' ')
        len--;
    snprintf(out, 33, "%.*s", len, t->label);
}

/* How many tokens fit; the last of them, and the labels of those that are there. */
struct found {
    size_t count;
    unsigned long slot;
    struct ck_token_info token;
    char labels[256];
};

static void look(const struct pq_token_module *m, const struct pq_token_uri *u, struct found *out)
{
    unsigned long slots[SLOTS_MAX], count = SLOTS_MAX;
    *out = (struct found){0};
    if (m->call->get_slot_list(1, slots, &count) != CKR_OK)
        return;
    for (unsigned long i = 0; i < count && i < SLOTS_MAX; i++) {
        struct ck_token_info token;
        char label[33];
        if (m->call->get_token_info(slots[i], &token) != CKR_OK)
            continue;
        label_of(&token, label);
        size_t len = strlen(out->labels);
        if (*label)
            snprintf(out->labels + len, sizeof out->labels - len, "%s\"%s\"", len ? ", " : "", label);
        if (!fits(&token, u))
            continue;
        out->count++;
        out->slot = slots[i];
        out->token = token;
    }
}

int pq_token_module_ready(const struct pq_token_module *m, const struct pq_token_uri *uri, bool has_pin,
                          struct pq_why *why)
{
    struct found f;
    char label[33];
    look(m, uri, &f);
    if (f.count == 0)
        return pq_why(why, PQ_E_CONFIG, "no token fits %s: the PKCS#11 module has %s%s", uri->plain,
                      *f.labels ? "the tokens " : "none", f.labels);
    label_of(&f.token, label);
    if (f.token.flags & CKF_USER_PIN_LOCKED)
        return pq_why(why, PQ_E_CONFIG,
                      "the PIN of the token \"%s\" is locked after wrong ones: set a new PIN with the token's own tool",
                      label);
    if ((f.token.flags & CKF_LOGIN_REQUIRED) && !has_pin)
        return pq_why(why, PQ_E_CONFIG,
                      "the token \"%s\" wants a PIN: write it into a file of mode 0600 and add "
                      "?pin-source=file:/PATH to the key's URI",
                      label);
    return 0;
}

/* A login holds for all sessions that a process has with a token. */
static bool is_logged_in(const struct pq_token_module *m, unsigned long slot)
{
    unsigned long session;
    struct ck_session_info info = {0};
    if (m->call->open_session(slot, CKF_SERIAL_SESSION, NULL, NULL, &session) != CKR_OK)
        return false;
    bool known = m->call->get_session_info(session, &info) == CKR_OK;
    m->call->close_session(session);
    return known && (info.state == CKS_RO_USER_FUNCTIONS || info.state == CKS_RW_USER_FUNCTIONS);
}

int pq_token_module_blame(const struct pq_token_module *m, const struct pq_token_uri *uri, struct pq_why *why)
{
    struct found f;
    char label[33];
    look(m, uri, &f);
    label_of(&f.token, label);
    if (f.count && (f.token.flags & CKF_LOGIN_REQUIRED) && !is_logged_in(m, f.slot))
        return pq_why(why, PQ_E_CONFIG,
                      "the token \"%s\" does not take the PIN in %s: correct it before the token locks itself", label,
                      uri->pin_file ? uri->pin_file : "use");
    return pq_why(why, PQ_E_CONFIG, "the token \"%s\" holds no private key that fits %s: compare object and id", label,
                  uri->plain);
}
