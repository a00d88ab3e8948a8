#include "proxy/bundle.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proxy/target.h"

static const char config_entry[] = "config/", addresses_entry[] = "addresses/", sockets_entry[] = "sockets/";
enum { ENTRY_MAX = 1 << 20 };

void pq_bundle_free(struct pq_bundle *b)
{
    pq_proxy_config_free(&b->config);
    pq_files_free(b->files);
    for (size_t i = 0; i < b->named.count; i++)
        free(b->named.at[i]);
    free(b->named.at);
    free(b->sockets);
    *b = (struct pq_bundle){0};
}

/* --- reading ----------------------------------------------------------------------------------------------------- */
static int name_one(struct pq_strings *named, const char *path)
{
    if (!path)
        return 0;
    for (size_t i = 0; i < named->count; i++)
        if (strcmp(named->at[i], path) == 0)
            return 0;
    char **at = reallocarray(named->at, named->count + 1, sizeof at[0]);
    if (!at)
        return PQ_E_NOMEM;
    named->at = at;
    at[named->count] = strdup(path);
    if (!at[named->count])
        return PQ_E_NOMEM;
    named->count++;
    return 0;
}

static bool is_file(const char *key) { return key && strncmp(key, "pkcs11:", 7) != 0; }

static int name_all(const struct pq_tls_settings *s, struct pq_strings *named)
{
    for (size_t i = 0; i < s->identity_count; i++) {
        TRY(name_one(named, s->identities[i].certificate));
        if (is_file(s->identities[i].key))
            TRY(name_one(named, s->identities[i].key));
    }
    TRY(name_one(named, s->ca));
    return name_one(named, s->crl);
}

int pq_bundle_open(const char *path, struct pq_bundle *out, struct pq_why *why)
{
    struct pq_span text;
    *out = (struct pq_bundle){.files = NULL};
    TRY(name_one(&out->named, path));
    TRY(pq_files_new(&out->files));
    TRY(pq_files_add(out->files, path, false, why));
    TRY(pq_files_get(out->files, path, &text));
    TRY(pq_proxy_config_parse(path, (const char *)text.at, text.len, &out->config, why));
    for (size_t i = 0; i < pq_proxy_listener_count(&out->config); i++) {
        struct pq_tls_settings s = pq_proxy_listener_tls(&out->config, pq_proxy_listener_at(&out->config, i));
        TRY(name_all(&s, &out->named));
    }
    return 0;
}

int pq_bundle_fill(struct pq_bundle *b, struct pq_why *why)
{
    for (size_t i = 0; i < pq_proxy_listener_count(&b->config); i++) {
        const struct pq_proxy_listener *l = pq_proxy_listener_at(&b->config, i);
        struct pq_tls_settings s = pq_proxy_listener_tls(&b->config, l);
        int e = pq_tls_settings_files(&s, b->files, why);
        if (e < 0)
            return pq_why_in(why, e, "%s: %s \"%s\"", l->listen.where, pq_proxy_direction_names[l->direction], l->name);
    }
    return pq_proxy_config_resolve(&b->config, &pq_lookup_system, why);
}

/* --- comparing --------------------------------------------------------------------------------------------------- */
static bool is_entry(const char *path) { return path[strlen(path) - 1] == '/'; }

/* All files of a are in b, as they are in a. */
static bool within(const struct pq_files *a, const struct pq_files *b)
{
    for (size_t i = 0; i < pq_files_count(a); i++) {
        const char *path = pq_files_path(a, i);
        struct pq_span x, y;
        if (!is_entry(path) && (pq_files_get(a, path, &x) < 0 || pq_files_get(b, path, &y) < 0 || !pq_span_equal(x, y)))
            return false;
    }
    return true;
}

bool pq_bundle_equal(const struct pq_bundle *b, int packed)
{
    DEFER(pq_files_freep) struct pq_files *other = NULL;
    return pq_files_unpack(packed, &other, NULL) == 0 && within(b->files, other) && within(other, b->files);
}

/* --- carrying ---------------------------------------------------------------------------------------------------- */
static int put(struct pq_files *files, const char *entry, const struct pq_buf *text, struct pq_why *why)
{
    return pq_files_put(files, entry, false, pq_span(text->at, text->len), why);
}

/* A line for each host name: it, then what it stands for. */
static int put_addresses(const struct pq_proxy_target *t, struct pq_buf *out)
{
    for (size_t i = 0; i < pq_proxy_target_named(t); i++) {
        const struct pq_proxy_address *named = pq_proxy_target_at(t, i);
        if (named->known)
            continue;
        TRY(pq_buf_printf(out, "%s", named->text));
        for (size_t k = 0; k < t->count; k++) {
            char text[PQ_ADDRESS_TEXT];
            pq_address_text(&t->places[k].at, text);
            if (t->places[k].named == named)
                TRY(pq_buf_printf(out, " %s", text));
        }
        TRY(pq_buf_printf(out, "\n"));
    }
    return 0;
}

int pq_bundle_pack(struct pq_bundle *b, const uint64_t *sockets, int *fd, struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf addresses = {.cap = ENTRY_MAX};
    DEFER(pq_buf_free) struct pq_buf numbers = {.cap = ENTRY_MAX};
    for (size_t i = 0; i < pq_proxy_listener_count(&b->config); i++) {
        TRY(put_addresses(&pq_proxy_listener_at(&b->config, i)->target, &addresses));
        TRY(pq_buf_printf(&numbers, "%" PRIu64 "\n", sockets[i]));
    }
    TRY(pq_files_put(b->files, config_entry, false, pq_span_text(b->named.at[0]), why));
    TRY(put(b->files, addresses_entry, &addresses, why));
    TRY(put(b->files, sockets_entry, &numbers, why));
    return pq_files_pack(b->files, fd, why);
}

static int get_text(const struct pq_files *files, const char *entry, char **out)
{
    struct pq_span s;
    TRY(pq_files_get(files, entry, &s));
    *out = strndup((const char *)s.at, s.len);
    return *out ? 0 : PQ_E_NOMEM;
}

/* One line of *at, and *at behind it; NULL where there is none. */
static char *next_line(char **at)
{
    char *line = *at, *end = strchr(line, '\n');
    if (!end)
        return NULL;
    *end = '\0';
    *at = end + 1;
    return line;
}

/* Of the line that begins with the name; a lookup, so that nobody is asked again. */
static int look_up(void *context, const char *name, struct pq_address *out, size_t room, size_t *count,
                   struct pq_why *why)
{
    size_t len = strlen(name);
    const char *at = context;
    while (strncmp(at, name, len) != 0 || !strchr(" \n", at[len])) {
        at = strchr(at, '\n');
        if (!at++ || !*at)
            return pq_why(why, PQ_E_NOT_FOUND, "nothing is said of %s", name);
    }
    *count = 0;
    for (at += len; *at == ' ' && *count < room; (*count)++) {
        char text[PQ_ADDRESS_TEXT];
        size_t part = strcspn(++at, " \n");
        snprintf(text, sizeof text, "%.*s", (int)part, at);
        TRY(pq_address_parse(text, &out[*count], why));
        at += part;
    }
    return 0;
}

static int take_addresses(struct pq_bundle *b, struct pq_why *why)
{
    DEFER(pq_freep) char *text = NULL;
    TRY(get_text(b->files, addresses_entry, &text));
    const struct pq_lookup lookup = {look_up, text};
    return pq_proxy_config_resolve(&b->config, &lookup, why);
}

static int take_sockets(struct pq_bundle *b)
{
    DEFER(pq_freep) char *text = NULL;
    size_t count = pq_proxy_listener_count(&b->config);
    TRY(get_text(b->files, sockets_entry, &text));
    b->sockets = calloc(count, sizeof b->sockets[0]);
    if (!b->sockets)
        return PQ_E_NOMEM;
    char *at = text;
    for (size_t i = 0; i < count; i++) {
        int64_t number;
        const char *line = next_line(&at);
        if (!line || pq_int_parse(line, 0, INT64_MAX, &number, NULL) < 0)
            return PQ_E_SYNTAX;
        b->sockets[i] = (uint64_t)number;
    }
    return 0;
}

static int unpack(int fd, struct pq_bundle *b, struct pq_why *why)
{
    DEFER(pq_freep) char *path = NULL;
    struct pq_span text;
    TRY(pq_files_unpack(fd, &b->files, why));
    TRY(get_text(b->files, config_entry, &path));
    TRY(pq_files_get(b->files, path, &text));
    TRY(pq_proxy_config_parse(path, (const char *)text.at, text.len, &b->config, why));
    TRY(take_addresses(b, why));
    return take_sockets(b);
}

int pq_bundle_unpack(int fd, struct pq_bundle *out, struct pq_why *why)
{
    struct pq_bundle b = {.files = NULL};
    int e = unpack(fd, &b, why);
    if (e < 0) {
        pq_bundle_free(&b);
        return pq_why_in(why, e, "the configuration from the supervisor");
    }
    *out = b;
    return 0;
}
