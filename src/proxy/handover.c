#include "proxy/handover.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "net/message.h"

int pq_handover_send(int channel, const char *text, int fd)
{
    struct iovec part = {(void *)(uintptr_t)text, strlen(text)};
    return part.iov_len < PQ_HANDOVER_TEXT ? pq_message_send(channel, &part, 1, &fd, fd >= 0) : PQ_E_TOO_LONG;
}

int pq_handover_receive(int channel, char text[PQ_HANDOVER_TEXT], int *fd)
{
    struct iovec part = {text, PQ_HANDOVER_TEXT - 1};
    size_t len = 0, count = 0;
    *fd = -1;
    int e = pq_message_receive(channel, &part, 1, &len, fd, 1, &count);
    if (e < 0)
        return e == PQ_E_TOO_LONG ? PQ_E_SYNTAX : e;
    text[len] = '\0';
    if (strlen(text) == len)
        return 0;
    pq_closep(fd);
    return PQ_E_SYNTAX;
}

/* --- a socket ---------------------------------------------------------------------------------------------------- */
int pq_handover_socket_write(const struct pq_listening *l, char *out, size_t size)
{
    char address[PQ_ADDRESS_TEXT];
    pq_address_text(&l->at, address);
    int n =
        snprintf(out, size, "%s %s %" PRIu64 " %" PRIu64, l->name, address, (uint64_t)l->device, (uint64_t)l->inode);
    return n < 0 || (size_t)n >= size ? PQ_E_TOO_LONG : 0;
}

/* The last word of a text: *at is cut before it. NULL where there is but one. */
static char *last_word(char *at)
{
    char *space = strrchr(at, ' ');
    if (!space)
        return NULL;
    *space = '\0';
    return space + 1;
}

/* A path may hold spaces; a listener's name does not. */
int pq_handover_socket_read(const char *text, struct pq_listening *out)
{
    DEFER(pq_freep) char *copy = strdup(text);
    if (!copy)
        return PQ_E_NOMEM;
    struct pq_listening l = {.fd = -1};
    int64_t device, inode;
    const char *inode_text = last_word(copy), *device_text = inode_text ? last_word(copy) : NULL;
    char *address = device_text ? strchr(copy, ' ') : NULL;
    if (!address || address == copy || pq_int_parse(inode_text, 0, INT64_MAX, &inode, NULL) < 0 ||
        pq_int_parse(device_text, 0, INT64_MAX, &device, NULL) < 0)
        return PQ_E_SYNTAX;
    *address++ = '\0';
    if (pq_address_parse(address, &l.at, NULL) < 0)
        return PQ_E_SYNTAX;
    l.device = (dev_t)device;
    l.inode = (ino_t)inode;
    l.name = strdup(copy);
    if (!l.name)
        return PQ_E_NOMEM;
    *out = l;
    return 0;
}

/* --- keys -------------------------------------------------------------------------------------------------------- */
void pq_handover_keys_write(const uint8_t *keys, size_t size, char *out)
{
    for (size_t i = 0; i < size; i++)
        snprintf(out + 2 * i, 3, "%02x", keys[i]);
}

static int digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

int pq_handover_keys_read(const char *text, uint8_t *out, size_t size)
{
    if (strlen(text) != 2 * size)
        return PQ_E_SYNTAX;
    for (size_t i = 0; i < 2 * size; i++)
        if (digit(text[i]) < 0)
            return PQ_E_SYNTAX;
    for (size_t i = 0; i < size; i++)
        out[i] = (uint8_t)(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
    return 0;
}
