#include "cli/options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/config.h"
#include "base/log.h"
#include "cli/cli.h"

enum { GO_ON = -1 };

const char *const pq_option_connection[] = {"kept", "new", NULL};
const char *const pq_option_nodelay[] = {"on", "off", NULL};
const char *const pq_option_write[] = {"message", "frame", NULL};
const char *const pq_option_modes[] = {"", "classical", "hybrid", "pure", NULL};

static enum pq_log_level log_level = PQ_LOG_WARN;
static enum pq_log_format log_format = PQ_LOG_LOGFMT;

/* The index of value in names, from low on; negative where it is none of them. */
static int choose(const char *const *names, int64_t low, const char *value)
{
    for (int i = (int)low; names[i]; i++)
        if (strcmp(names[i], value) == 0)
            return i;
    return -1;
}

static int not_one_of(const char *command, const struct pq_option *o, const char *const *names, const char *value)
{
    char list[128] = "";
    for (size_t i = (size_t)o->low; names[i]; i++) {
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", names[i]);
    }
    return pq_cli_usage(command, "--%s %s: it is one of %s", o->name, value, list);
}

static int set_choice(const char *command, const struct pq_option *o, const char *const *names, const char *value,
                      int *out)
{
    int i = choose(names, o->low, value);
    if (i < 0)
        return not_one_of(command, o, names, value);
    *out = i;
    return GO_ON;
}

static int set_fd(const char *command, const struct pq_option *o, const char *value)
{
    int64_t fd;
    if (pq_int_parse(value, 0, 65535, &fd, NULL) < 0 || fcntl((int)fd, F_GETFD) < 0)
        return pq_cli_usage(command, "--%s %s is no open descriptor", o->name, value);
    *(int *)o->to = (int)fd;
    return GO_ON;
}

static int set_log_file(const char *command, const char *value)
{
    int fd = open(value, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0)
        return pq_cli_usage(command, "--log-file %s can't be opened: %s", value, strerror(errno));
    pq_log_to(fd);
    return GO_ON;
}

static int set_duration(const char *command, const struct pq_option *o, const char *value)
{
    struct pq_why why = {{0}};
    int64_t ns = 0;
    if (pq_duration_parse(value, &ns, &why) < 0)
        return pq_cli_usage(command, "--%s: %s", o->name, why.text);
    if (ns <= 0)
        return pq_cli_usage(command, "--%s must be more than 0", o->name);
    *(int64_t *)o->to = ns;
    return GO_ON;
}

static int set_int(const char *command, const struct pq_option *o, const char *value)
{
    struct pq_why why = {{0}};
    if (pq_int_parse(value, o->low, o->high, o->to, &why) < 0)
        return pq_cli_usage(command, "--%s: %s", o->name, why.text);
    return GO_ON;
}

static int set_log(const char *command, const struct pq_option *o, const char *value)
{
    int i = 0, status = set_choice(
                   command, o, o->type == PQ_OPTION_LOG_LEVEL ? pq_log_level_names : pq_log_format_names, value, &i);
    if (status != GO_ON)
        return status;
    if (o->type == PQ_OPTION_LOG_LEVEL)
        log_level = (enum pq_log_level)i;
    else
        log_format = (enum pq_log_format)i;
    pq_log_set(log_level, log_format);
    return GO_ON;
}

static int set(const char *command, const struct pq_option *o, const char *value)
{
    int i = 0, status;
    switch (o->type) {
    case PQ_OPTION_TEXT:
        *(const char **)o->to = value;
        return GO_ON;
    case PQ_OPTION_FLAG:
        *(bool *)o->to = true;
        return GO_ON;
    case PQ_OPTION_CHOICE:
        return set_choice(command, o, o->choices, value, o->to);
    case PQ_OPTION_EITHER:
        status = set_choice(command, o, o->choices, value, &i);
        if (status == GO_ON)
            *(bool *)o->to = i == 1;
        return status;
    case PQ_OPTION_INT:
        return set_int(command, o, value);
    case PQ_OPTION_DURATION:
        return set_duration(command, o, value);
    case PQ_OPTION_FD:
        return set_fd(command, o, value);
    case PQ_OPTION_LOG_FILE:
        return set_log_file(command, value);
    default:
        return set_log(command, o, value);
    }
}

static const struct pq_option *find(const struct pq_option *table, size_t count, const char *name, size_t len)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0)
            return &table[i];
    return NULL;
}

/* One option; *i moves over its value. */
static int read_one(const char *command, const struct pq_option *table, size_t count, int argc, char **argv, int *i)
{
    const char *name = argv[*i] + 2, *equals = strchr(name, '=');
    if (strncmp(argv[*i], "--", 2) != 0)
        return pq_cli_usage(command, "\"%s\" is no option", argv[*i]);
    const struct pq_option *o = find(table, count, name, equals ? (size_t)(equals - name) : strlen(name));
    if (!o)
        return pq_cli_usage(command, "there is no option %s", argv[*i]);
    if (o->type == PQ_OPTION_FLAG)
        return equals ? pq_cli_usage(command, "--%s takes no value", o->name) : set(command, o, NULL);
    const char *value = equals ? equals + 1 : *i + 1 < argc ? argv[++*i] : NULL;
    if (!value || !*value)
        return pq_cli_usage(command, "--%s needs a value", o->name);
    return set(command, o, value);
}

int pq_options_read(const char *command, const char *help, const struct pq_option *table, size_t count, int argc,
                    char **argv)
{
    pq_log_set(log_level, log_format);
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(help, stdout);
            return 0;
        }
    for (int i = 1; i < argc; i++) {
        int status = read_one(command, table, count, argc, argv, &i);
        if (status != GO_ON)
            return status;
    }
    return GO_ON;
}
