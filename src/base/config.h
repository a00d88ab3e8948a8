/* config.h - YAML 1.2 into C structs, by a table of fields, types and units. Every mistake is one sentence that begins
 * "FILE:LINE:COLUMN:" and says what would be right.
 *
 * Spec:   YAML 1.2 core schema (libfyaml parses); units below. A file is at most 1 MiB, 64 levels deep.
 * Owns:   pq_config_load() fills a caller's struct, whose strings and lists pq_config_free() frees. Nodes live as long
 * as their document. Errors: PQ_E_CONFIG (with line and column), PQ_E_NOENT and the like (file), PQ_E_NOMEM. On error
 * *out is freed and zeroed.
 */
#ifndef PQ_BASE_CONFIG_H
#define PQ_BASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"

/* --- the document as a tree, for what a table can't describe ------------------------------------------------------ */
struct pq_node; /* one node of the document; its position is known */
struct pq_document;

PQ_MUST_CHECK int pq_document_load(const char *path, struct pq_document **out, struct pq_why *why);
/* name stands for the file in messages. text need not outlive the call. */
PQ_MUST_CHECK int pq_document_parse(const char *name, const char *text, size_t len, struct pq_document **out,
                                    struct pq_why *why);
void pq_document_free(struct pq_document *d);
PQ_DEFINE_FREEP(struct pq_document, pq_document_free)
const struct pq_node *pq_document_root(const struct pq_document *d);

enum pq_node_kind { PQ_NODE_SCALAR, PQ_NODE_LIST, PQ_NODE_MAP };
enum pq_node_kind pq_node_kind(const struct pq_node *n);
/* The scalar's text; NULL for a list or map. */
const char *pq_node_text(const struct pq_node *n);
size_t pq_node_count(const struct pq_node *n); /* items of a list, pairs of a map, 0 for a scalar */
const struct pq_node *pq_node_item(const struct pq_node *n, size_t i); /* i-th of a list */
const struct pq_node *pq_node_pair(const struct pq_node *n, size_t i,
                                   const char **key);                          /* i-th of a map, in file order */
const struct pq_node *pq_node_get(const struct pq_node *map, const char *key); /* NULL where there is none */
/* PQ_E_CONFIG with "FILE:LINE:COLUMN: " before the sentence. */
int pq_node_why(const struct pq_node *n, struct pq_why *why, const char *format, ...) PQ_PRINTF(3, 4);

/* --- a table of fields -----------------------------------------------------------------------------------------------
 */
enum pq_field_type {
    PQ_FIELD_STRING,   /* char *, not empty */
    PQ_FIELD_BOOL,     /* bool: true or false, nothing else */
    PQ_FIELD_INT,      /* int64_t, decimal, within low..high */
    PQ_FIELD_REAL,     /* double, within low..high */
    PQ_FIELD_DURATION, /* int64_t nanoseconds: "250ms" (ns, us, ms, s, min, h, d); a number without unit is refused but
                          0 */
    PQ_FIELD_SIZE,     /* int64_t bytes: "64KiB" (B, KiB, MiB, GiB) */
    PQ_FIELD_CHOICE,   /* int: index into choices */
    PQ_FIELD_STRINGS,  /* struct pq_strings; a single scalar is a list of one */
    PQ_FIELD_STRUCT,   /* a struct in place, described by of */
    PQ_FIELD_STRUCTS,  /* struct pq_structs: a list of structs described by of */
    PQ_FIELD_CUSTOM    /* whatever custom() makes of the node; custom_free() frees it (may be NULL) */
};

struct pq_strings {
    char **at;
    size_t count;
};
struct pq_structs {
    void *at; /* count elements of of->size bytes */
    size_t count;
};

struct pq_field {
    const char *name;
    enum pq_field_type type;
    size_t offset;
    bool required;
    int64_t low, high;          /* inclusive; both 0: no limit but the type's (never negative for DURATION and SIZE) */
    const char *const *choices; /* CHOICE: names, NULL-terminated */
    const struct pq_schema *of; /* STRUCT, STRUCTS */
    int (*custom)(const struct pq_node *n, void *out, struct pq_why *why);
    void (*custom_free)(void *out);
};

struct pq_schema {
    const char *what; /* names the struct in messages: "a listener" */
    size_t size;
    const struct pq_field *fields;
    size_t count;
    void (*defaults)(void *out); /* may be NULL: all zero */
    /* What spans several fields; called when all are read. May be NULL. n is the map's node, for positions. */
    int (*check)(const struct pq_node *n, void *out, struct pq_why *why);
};

PQ_MUST_CHECK int pq_config_load(const char *path, const struct pq_schema *schema, void *out, struct pq_why *why);
PQ_MUST_CHECK int pq_config_parse(const char *name, const char *text, size_t len, const struct pq_schema *schema,
                                  void *out, struct pq_why *why);
PQ_MUST_CHECK int pq_config_read(const struct pq_node *map, const struct pq_schema *schema, void *out,
                                 struct pq_why *why);
void pq_config_free(const struct pq_schema *schema, void *out);

/* The units alone: "250ms" and "64KiB" as above. PQ_E_CONFIG with a sentence that says what is right. */
PQ_MUST_CHECK int pq_duration_parse(const char *text, int64_t *out_ns, struct pq_why *why);
PQ_MUST_CHECK int pq_size_parse(const char *text, int64_t *out_bytes, struct pq_why *why);
/* A whole decimal number within low..high. */
PQ_MUST_CHECK int pq_int_parse(const char *text, int64_t low, int64_t high, int64_t *out, struct pq_why *why);

#endif
