#include "net/message.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"

struct ends {
    int to, from;
};

static struct ends ends(void)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    return (struct ends){pair[0], pair[1]};
}

static int send_text(int to, const char *text, const int *fds, size_t count)
{
    struct iovec part = {(void *)(uintptr_t)text, strlen(text)};
    return pq_message_send(to, &part, 1, fds, count);
}

static size_t open_descriptors(void)
{
    size_t n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void descriptors_come_with_their_message(void **state)
{
    (void)state;
    struct ends e = ends();
    int pipes[2], got[PQ_MESSAGE_FDS];
    char head[2], text[16] = "", byte;
    size_t len = 0, count = 9;
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(send_text(e.to, "two words", pipes, 2), 0);
    struct iovec parts[] = {{head, sizeof head}, {text, sizeof text - 1}};
    assert_int_equal(pq_message_receive(e.from, parts, 2, &len, got, PQ_MESSAGE_FDS, &count), 0);
    assert_int_equal(len, strlen("two words"));
    assert_memory_equal(head, "tw", 2);
    assert_string_equal(text, "o words");
    assert_int_equal(count, 2);
    assert_true(fcntl(got[0], F_GETFD) & FD_CLOEXEC);
    assert_int_equal(write(got[1], "x", 1), 1);
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    assert_int_equal(pq_message_receive(e.from, parts, 2, &len, got, PQ_MESSAGE_FDS, &count), PQ_E_WANT_READ);
    close(e.to);
    assert_int_equal(pq_message_receive(e.from, parts, 2, &len, got, PQ_MESSAGE_FDS, &count), PQ_E_CLOSED);
    assert_int_equal(send_text(e.from, "nobody", NULL, 0), PQ_E_CLOSED);
    close(e.from);
    for (int i = 0; i < 2; i++) {
        close(pipes[i]);
        close(got[i]);
    }
}

/* Nothing of it stays open here, and what the caller has is as it was. */
static void what_does_not_fit_is_lost_whole(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t fds, room;
        int want;
    } rows[] = {
        {"12345678", 0, 0, 0},
        {"12345678", 1, 1, 0},
        {"123456789", 0, 0, PQ_E_TOO_LONG},
        {"123456789", 1, 1, PQ_E_TOO_LONG},
        {"1", 1, 0, PQ_E_TOO_LONG},
        {"1", 2, 1, PQ_E_TOO_LONG},
        {"1", PQ_MESSAGE_FDS, PQ_MESSAGE_FDS - 1, PQ_E_TOO_LONG},
        {"1", PQ_MESSAGE_FDS, PQ_MESSAGE_FDS, 0},
    };
    const int standard[PQ_MESSAGE_FDS] = {1, 1, 1, 1};
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct ends e = ends();
        char text[8];
        int got[PQ_MESSAGE_FDS] = {-1, -1, -1, -1};
        size_t len = 77, count = 77, before = open_descriptors();
        struct iovec part = {text, sizeof text};
        assert_int_equal(send_text(e.to, rows[i].text, standard, rows[i].fds), 0);
        assert_int_equal(pq_message_receive(e.from, &part, 1, &len, got, rows[i].room, &count), rows[i].want);
        assert_int_equal(len, rows[i].want ? 77 : strlen(rows[i].text));
        assert_int_equal(count, rows[i].want ? 77 : rows[i].fds);
        for (size_t k = 0; k < PQ_MESSAGE_FDS; k++)
            if (rows[i].want == 0 && k < rows[i].fds)
                close(got[k]);
            else
                assert_int_equal(got[k], -1);
        assert_int_equal(open_descriptors(), before);
        close(e.to);
        close(e.from);
    }
    assert_int_equal(send_text(-1, "1", standard, PQ_MESSAGE_FDS + 1), PQ_E_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptors_come_with_their_message),
        cmocka_unit_test(what_does_not_fit_is_lost_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
