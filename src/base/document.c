#include <libfyaml.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/config.h"
#include "base/file.h"
#include "base/utf8.h"

/* The tree is copied out of libfyaml once: nodes then have NUL-terminated texts and plain positions, and duplicate
 * keys, aliases and depth are judged in one place. */
enum { MAX_FILE = 1 << 20, MAX_DEPTH = 64, MAX_NODES = 100000 };

struct pq_node {
    enum pq_node_kind kind;
    const struct pq_document *document;
    int line, column; /* from 1 */
    char *text;       /* of a scalar */
    char *key;        /* where the parent is a map */
    struct pq_node **items;
    size_t count;
};

struct pq_document {
    char *name;
    struct pq_node *root;
    size_t nodes;
};

static void node_free(struct pq_node *n)
{
    if (!n)
        return;
    for (size_t i = 0; i < n->count; i++)
        node_free(n->items[i]);
    free(n->items);
    free(n->text);
    free(n->key);
    free(n);
}
PQ_DEFINE_FREEP(struct pq_node, node_free)

void pq_document_free(struct pq_document *d)
{
    if (!d)
        return;
    node_free(d->root);
    free(d->name);
    free(d);
}

static void position(struct pq_node *n, struct fy_node *fyn)
{
    n->line = n->column = 1;
    struct fy_token *token = NULL;
    if (fy_node_is_scalar(fyn))
        token = fy_node_get_scalar_token(fyn);
    if (!token)
        token = fy_node_get_start_token(fyn);
    const struct fy_mark *mark = token ? fy_token_start_mark(token) : NULL;
    if (mark) {
        n->line = mark->line + 1;
        n->column = mark->column + 1;
    }
}

static int copy_node(struct pq_document *d, struct fy_node *fyn, int depth, struct pq_node **out, struct pq_why *why);

static int copy_scalar(struct pq_node *n, struct fy_node *fyn, struct pq_why *why)
{
    size_t len = 0;
    const char *text = fy_node_get_scalar(fyn, &len);
    n->text = text ? strndup(text, len) : strdup("");
    if (!n->text)
        return PQ_E_NOMEM;
    if (text && strlen(n->text) != len)
        return pq_node_why(n, why, "a NUL byte stands in this text");
    return 0;
}

static int copy_list(struct pq_document *d, struct pq_node *n, struct fy_node *fyn, int depth, struct pq_why *why)
{
    void *iterator = NULL;
    for (struct fy_node *item; (item = fy_node_sequence_iterate(fyn, &iterator));) {
        TRY(copy_node(d, item, depth, &n->items[n->count], why));
        n->count++;
    }
    return 0;
}

static int copy_map(struct pq_document *d, struct pq_node *n, struct fy_node *fyn, int depth, struct pq_why *why)
{
    void *iterator = NULL;
    for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(fyn, &iterator));) {
        struct fy_node *key = fy_node_pair_key(pair);
        if (!key || !fy_node_is_scalar(key))
            return pq_node_why(n, why, "a key of this map is no plain text");
        DEFER(node_freep) struct pq_node *k = NULL;
        TRY(copy_node(d, key, depth, &k, why));
        if (pq_node_get(n, k->text))
            return pq_node_why(k, why, "\"%s\" stands here twice", k->text);
        struct fy_node *value = fy_node_pair_value(pair);
        if (!value)
            return pq_node_why(k, why, "\"%s\" has no value", k->text);
        struct pq_node *v = NULL;
        TRY(copy_node(d, value, depth, &v, why));
        v->key = TAKE(k->text);
        n->items[n->count++] = v;
    }
    return 0;
}

static int copy_node(struct pq_document *d, struct fy_node *fyn, int depth, struct pq_node **out, struct pq_why *why)
{
    DEFER(node_freep) struct pq_node *n = calloc(1, sizeof *n);
    if (!n)
        return PQ_E_NOMEM;
    n->document = d;
    position(n, fyn);
    if (depth >= MAX_DEPTH)
        return pq_node_why(n, why, "more than %d levels are nested here", MAX_DEPTH);
    if (++d->nodes > MAX_NODES)
        return pq_node_why(n, why, "the file has more than %d values", MAX_NODES);
    if (fy_node_is_alias(fyn))
        return pq_node_why(n, why, "aliases (*name) are not used here: write the value out");
    if (fy_node_is_scalar(fyn)) {
        n->kind = PQ_NODE_SCALAR;
        TRY(copy_scalar(n, fyn, why));
        *out = TAKE(n);
        return 0;
    }
    bool map = fy_node_is_mapping(fyn);
    int count = map ? fy_node_mapping_item_count(fyn) : fy_node_sequence_item_count(fyn);
    n->kind = map ? PQ_NODE_MAP : PQ_NODE_LIST;
    n->items = calloc(count > 0 ? (size_t)count : 1, sizeof(struct pq_node *));
    if (!n->items)
        return PQ_E_NOMEM;
    TRY(map ? copy_map(d, n, fyn, depth + 1, why) : copy_list(d, n, fyn, depth + 1, why));
    *out = TAKE(n);
    return 0;
}

/* libfyaml's first collected error, as one sentence with its place. */
static int syntax_why(struct fy_diag *diag, const char *name, struct pq_why *why)
{
    void *iterator = NULL;
    struct fy_diag_error *e = fy_diag_errors_iterate(diag, &iterator);
    if (!e)
        return pq_why(why, PQ_E_CONFIG, "%s:1:1: this is no YAML document", name);
    return pq_why(why, PQ_E_CONFIG, "%s:%d:%d: %.300s", name, e->line > 0 ? e->line : 1, e->column > 0 ? e->column : 1,
                  e->msg);
}

static void diag_destroyp(struct fy_diag **d)
{
    if (*d)
        fy_diag_destroy(*d);
}

static void parser_destroyp(struct fy_parser **p)
{
    if (*p)
        fy_parser_destroy(*p);
}

static void fy_document_destroyp(struct fy_document **d)
{
    if (*d)
        fy_document_destroy(*d);
}

/* libfyaml takes a NUL or what is no UTF-8 for the end of the input, and is content with what came before. */
static int check_characters(const char *name, const char *text, size_t len, struct pq_why *why)
{
    int line = 1, column = 1;
    for (size_t i = 0, n; i < len; i += n) {
        uint32_t c = 0;
        n = pq_utf8_next(text + i, len - i, &c);
        if (n == 0)
            return pq_why(why, PQ_E_CONFIG, "%s:%d:%d: the byte 0x%02x is no UTF-8 here: save the file as UTF-8", name,
                          line, column, (unsigned char)text[i]);
        if (c == 0)
            return pq_why(why, PQ_E_CONFIG, "%s:%d:%d: a NUL byte stands here", name, line, column);
        column++;
        if (c == '\n') {
            line++;
            column = 1;
        }
    }
    return 0;
}

/* All of the input is to be read: what follows the first document is a mistake, not something to pass over. */
static int end(struct pq_document *d, struct fy_parser *parser, struct fy_diag *diag, struct pq_why *why)
{
    DEFER(fy_document_destroyp) struct fy_document *more = fy_parse_load_document(parser);
    if (fy_parser_get_stream_error(parser) || fy_diag_got_error(diag))
        return syntax_why(diag, d->name, why);
    if (!more)
        return 0;
    const struct fy_mark *mark = fy_document_state_start_mark(fy_document_get_document_state(more));
    return pq_why(why, PQ_E_CONFIG, "%s:%d:%d: the file holds more than one document: a second one starts here",
                  d->name, mark ? mark->line + 1 : 1, mark ? mark->column + 1 : 1);
}

static int parse(struct pq_document *d, const char *text, size_t len, struct pq_why *why)
{
    struct fy_diag_cfg how;
    fy_diag_cfg_default(&how);
    how.fp = NULL;
    DEFER(diag_destroyp) struct fy_diag *diag = fy_diag_create(&how);
    if (!diag)
        return PQ_E_NOMEM;
    fy_diag_set_collect_errors(diag, true);
    struct fy_parse_cfg cfg = {.flags = FYPCF_DEFAULT_PARSE | FYPCF_QUIET | FYPCF_COLLECT_DIAG, .diag = diag};
    DEFER(parser_destroyp) struct fy_parser *parser = fy_parser_create(&cfg);
    if (!parser || fy_parser_set_string(parser, text, len) < 0)
        return PQ_E_NOMEM;
    DEFER(fy_document_destroyp) struct fy_document *doc = fy_parse_load_document(parser);
    if (fy_parser_get_stream_error(parser) || fy_diag_got_error(diag))
        return syntax_why(diag, d->name, why);
    struct fy_node *root = doc ? fy_document_root(doc) : NULL;
    if (!root)
        return pq_why(why, PQ_E_CONFIG, "%s:1:1: the file is empty", d->name);
    TRY(end(d, parser, diag, why));
    return copy_node(d, root, 0, &d->root, why);
}

int pq_document_parse(const char *name, const char *text, size_t len, struct pq_document **out, struct pq_why *why)
{
    if (len > MAX_FILE)
        return pq_why(why, PQ_E_CONFIG, "%s:1:1: the file is larger than %d bytes", name, MAX_FILE);
    DEFER(pq_document_freep) struct pq_document *d = calloc(1, sizeof *d);
    if (!d || !(d->name = strdup(name)))
        return pq_why(why, PQ_E_NOMEM, "out of memory while reading %s", name);
    TRY(check_characters(name, text, len, why));
    int e = parse(d, text, len, why);
    if (e == PQ_E_NOMEM)
        pq_why(why, e, "out of memory while reading %s", name);
    TRY(e);
    *out = TAKE(d);
    return 0;
}

int pq_document_load(const char *path, struct pq_document **out, struct pq_why *why)
{
    DEFER(pq_buf_free) struct pq_buf b = {.cap = MAX_FILE};
    TRY(pq_file_read(path, &b, why));
    return pq_document_parse(path, b.at ? (const char *)b.at : "", b.len, out, why);
}

const struct pq_node *pq_document_root(const struct pq_document *d) { return d->root; }
enum pq_node_kind pq_node_kind(const struct pq_node *n) { return n->kind; }
const char *pq_node_text(const struct pq_node *n) { return n->text; }
size_t pq_node_count(const struct pq_node *n) { return n->count; }

const struct pq_node *pq_node_item(const struct pq_node *n, size_t i)
{
    return n->kind == PQ_NODE_LIST && i < n->count ? n->items[i] : NULL;
}

const struct pq_node *pq_node_pair(const struct pq_node *n, size_t i, const char **key)
{
    if (n->kind != PQ_NODE_MAP || i >= n->count)
        return NULL;
    *key = n->items[i]->key;
    return n->items[i];
}

const struct pq_node *pq_node_get(const struct pq_node *map, const char *key)
{
    for (size_t i = 0; map->kind == PQ_NODE_MAP && i < map->count; i++)
        if (strcmp(map->items[i]->key, key) == 0)
            return map->items[i];
    return NULL;
}

int pq_node_why(const struct pq_node *n, struct pq_why *why, const char *format, ...)
{
    char text[900];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return pq_why(why, PQ_E_CONFIG, "%s:%d:%d: %s", n->document->name, n->line, n->column, text);
}
