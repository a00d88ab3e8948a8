#include "net/network.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"

static const struct {
    const char *text, *again, *says; /* again: as it is written; says: what the error does */
} networks[] = {
    {"10.0.0.0/8", "10.0.0.0/8", NULL},
    {"0.0.0.0/0", "0.0.0.0/0", NULL},
    {"198.18.0.1", "198.18.0.1/32", NULL},
    {"198.18.0.1/32", "198.18.0.1/32", NULL},
    {"fd00::/8", "fd00::/8", NULL},
    {"::/0", "::/0", NULL},
    {"fd00::1", "fd00::1/128", NULL},
    {"FD00:0::/9", "fd00::/9", NULL},
    {"", NULL, "is no network"},
    {"/8", NULL, "is no network"},
    {"10.0.0/8", NULL, "is no network"},
    {"example.org", NULL, "is no network"},
    {"fd00::1%lo", NULL, "is no network"},
    {"1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:1111", NULL, "is no network"},
    {"10.0.0.0/33", NULL, "from 0 to 32"},
    {"10.0.0.0/-1", NULL, "from 0 to 32"},
    {"10.0.0.0/", NULL, "from 0 to 32"},
    {"10.0.0.0/08", NULL, "from 0 to 32"},
    {"fd00::/129", NULL, "from 0 to 128"},
    {"10.0.0.1/8", NULL, "write 10.0.0.0/8"},
    {"10.0.0.0/6", NULL, "write 8.0.0.0/6"},
    {"fd00::1/64", NULL, "write fd00::/64"},
    {"::ffff:10.0.0.0/104", NULL, "is of IPv4"},
    {"::ffff:0:0/96", NULL, "is of IPv4"},
};

static void networks_are_read_and_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(networks); i++) {
        struct pq_network n = {.bits = 999};
        struct pq_why why = {""};
        char text[PQ_NETWORK_TEXT];
        int e = pq_network_parse(networks[i].text, &n, &why);
        if (networks[i].says) {
            if (e != PQ_E_INVALID || !strstr(why.text, networks[i].says) || n.bits != 999)
                fail_msg("%s: %d %s", networks[i].text, e, why.text);
            continue;
        }
        if (e < 0)
            fail_msg("%s: %s", networks[i].text, why.text);
        pq_network_text(&n, text);
        assert_string_equal(text, networks[i].again);
    }
}

static const struct {
    const char *network, *address;
    bool held;
} rows[] = {
    {"10.0.0.0/8", "10.255.255.255:80", true},
    {"10.0.0.0/8", "[::ffff:10.1.2.3]:80", true},
    {"10.0.0.0/8", "11.0.0.0:80", false},
    {"10.0.0.0/8", "9.255.255.255:80", false},
    {"10.0.0.0/8", "[a00::1]:80", false},
    {"10.0.0.128/25", "10.0.0.127:80", false},
    {"10.0.0.128/25", "10.0.0.128:80", true},
    {"198.18.0.1", "198.18.0.1:1", true},
    {"198.18.0.1", "198.18.0.0:1", false},
    {"0.0.0.0/0", "255.255.255.255:1", true},
    {"0.0.0.0/0", "[::1]:1", false},
    {"::/0", "[fd00::1]:1", true},
    {"::/0", "10.0.0.1:1", false},
    {"::/0", "[::ffff:10.0.0.1]:1", false},
    {"fd00::/8", "[fdff::]:1", true},
    {"fd00::/8", "[fe00::]:1", false},
    {"::/0", "unix:/x", false},
};

static void an_address_is_in_it_or_not(void **state)
{
    (void)state;
    for (size_t i = 0; i < PQ_COUNT(rows); i++) {
        struct pq_network n;
        struct pq_address a;
        assert_int_equal(pq_network_parse(rows[i].network, &n, NULL), 0);
        assert_int_equal(pq_address_parse(rows[i].address, &a, NULL), 0);
        if (pq_network_holds(&n, &a) != rows[i].held)
            fail_msg("%s %s", rows[i].network, rows[i].address);
    }
}

static void networks_overlap_where_one_is_in_the_other(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool overlap;
    } pairs[] = {{"10.0.0.0/8", "10.1.0.0/16", true}, {"10.0.0.0/16", "10.1.0.0/16", false},
                 {"0.0.0.0/0", "::/0", false},        {"::/0", "fd00::/8", true},
                 {"10.0.0.0/8", "10.0.0.0/8", true},  {"0.0.0.0/0", "198.18.0.1", true}};
    for (size_t i = 0; i < PQ_COUNT(pairs); i++) {
        struct pq_network a, b;
        assert_int_equal(pq_network_parse(pairs[i].a, &a, NULL), 0);
        assert_int_equal(pq_network_parse(pairs[i].b, &b, NULL), 0);
        if (pq_network_overlaps(&a, &b) != pairs[i].overlap || pq_network_overlaps(&b, &a) != pairs[i].overlap)
            fail_msg("%s %s", pairs[i].a, pairs[i].b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_are_read_and_written),
        cmocka_unit_test(an_address_is_in_it_or_not),
        cmocka_unit_test(networks_overlap_where_one_is_in_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
