#include "proxy/resolver.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

static bool no_thread;
int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *context);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *context);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *context)
{
    return no_thread ? EAGAIN : __real_pthread_create(t, a, f, context);
}

/* --- a name server ------------------------------------------------------------------------------------------------ */
static struct {
    pthread_mutex_t lock;
    const char *far, *near; /* what they stand for, space-separated; NULL: nobody knows */
    bool hold;
    sem_t go, held;
    atomic_int asked, answered;
} server = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void now_says(const char *far, const char *near)
{
    pthread_mutex_lock(&server.lock);
    server.far = far;
    server.near = near;
    pthread_mutex_unlock(&server.lock);
}

static int ask(void *context, const char *name, struct pq_address *out, size_t room, size_t *count, struct pq_why *why)
{
    (void)context;
    pthread_mutex_lock(&server.lock);
    const char *at = name[0] == 'f' ? server.far : server.near;
    bool hold = server.hold;
    server.hold = false;
    pthread_mutex_unlock(&server.lock);
    atomic_fetch_add(&server.asked, 1);
    if (hold) {
        sem_post(&server.held);
        sem_wait(&server.go);
    }
    atomic_fetch_add(&server.answered, 1);
    if (!at)
        return pq_why(why, PQ_E_NOT_FOUND, "nobody knows %s", name);
    for (*count = 0; *at && *count < room; ++*count) {
        char text[64];
        size_t len = strcspn(at, " ");
        snprintf(text, sizeof text, "%.*s", (int)len, at);
        if (pq_address_parse(text, &out[*count], why) < 0)
            return PQ_E_INVALID;
        at += len + strspn(at + len, " ");
    }
    return 0;
}
static const struct pq_lookup lookup = {ask, NULL};

/* --- the world ---------------------------------------------------------------------------------------------------- */
#define TLS "tls: {certificate: a.crt, key: a.key, ca: ca.crt}\n"
static const char text[] =
    TLS "ingress: [{name: in, listen: '198.18.0.2:1', forward: ['near.example:80', 'unix:/x']}]\n"
        "egress: [{name: eg, listen: '127.0.0.1:2', connect: 'far.example:80', peers: [x]},\n"
        "         {name: no, listen: '127.0.0.1:3', connect: '198.18.0.9:80', peers: [x]}]\n";
enum { IN, EG, NO };

static struct ev_loop *loop;
static struct pq_proxy_config config;
static struct pq_resolver *resolver;
static int changes, changed_listener;
static int log_pipe[2];

static void on_change(void *context, size_t listener)
{
    (void)context;
    changes++;
    changed_listener = (int)listener;
    ev_break(loop, EVBREAK_ALL);
}

static void read_config(struct pq_proxy_config *c)
{
    struct pq_why why = {""};
    if (pq_proxy_config_parse("p.yaml", text, strlen(text), c, &why) < 0 ||
        pq_proxy_config_resolve(c, &lookup, &why) < 0)
        fail_msg("%s", why.text);
    c->resolve = PQ_NS_PER_MS;
}

static int begin(void **state)
{
    (void)state;
    static const struct pq_resolver_how how = {.lookup = &lookup, .changed = on_change};
    changes = 0;
    sem_init(&server.go, 0, 0);
    sem_init(&server.held, 0, 0);
    now_says("198.18.0.3:80 198.18.0.4:80", "127.0.0.1:80");
    loop = ev_loop_new(0);
    assert_int_equal(pipe2(log_pipe, O_NONBLOCK), 0);
    pq_log_to(log_pipe[1]);
    read_config(&config);
    if (pq_resolver_new(loop, &how, &resolver) < 0 || pq_resolver_set(resolver, &config, NULL) < 0)
        fail_msg("no resolver");
    ev_ref(loop); /* the resolver keeps no loop running */
    return 0;
}

static int finish(void **state)
{
    (void)state;
    pq_resolver_free(resolver);
    ev_loop_destroy(loop);
    pq_proxy_config_free(&config);
    pq_log_to(STDERR_FILENO);
    for (int i = 0; i < 2; i++)
        close(log_pipe[i]);
    return 0;
}

static const char *places(size_t listener)
{
    static char all[256];
    const struct pq_proxy_target *t = &pq_proxy_listener_at(&config, listener)->target;
    all[0] = '\0';
    for (size_t i = 0; i < t->count; i++) {
        char one[PQ_ADDRESS_TEXT];
        pq_address_text(&t->places[i].at, one);
        size_t len = strlen(all);
        snprintf(all + len, sizeof all - len, "%s%s", i ? " " : "", one);
    }
    return all;
}

static char logged_text[8192];
static const char *logged(void)
{
    ssize_t n = read(log_pipe[0], logged_text, sizeof logged_text - 1);
    logged_text[n > 0 ? n : 0] = '\0';
    return logged_text;
}

static int times(const char *haystack, const char *needle)
{
    int n = 0;
    while ((haystack = strstr(haystack, needle))) {
        haystack += strlen(needle);
        n++;
    }
    return n;
}

/* Two whole rounds with what the server says now. */
static void some_rounds(void)
{
    int from = atomic_load(&server.asked);
    while (atomic_load(&server.asked) < from + 6)
        ev_run(loop, EVRUN_ONCE);
    ev_run(loop, EVRUN_NOWAIT);
}

/* --- tests -------------------------------------------------------------------------------------------------------- */
static void new_addresses_are_told(void **state)
{
    (void)state;
    some_rounds();
    assert_int_equal(changes, 0);
    assert_string_equal(places(EG), "198.18.0.3:80 198.18.0.4:80");
    now_says("198.18.0.4:80 198.18.0.3:80", "127.0.0.1:80"); /* the other way round: no change */
    some_rounds();
    assert_int_equal(changes, 0);
    now_says("198.18.0.4:80 198.18.0.5:80", "127.0.0.1:80");
    while (changes == 0)
        ev_run(loop, 0);
    assert_int_equal(changed_listener, EG);
    assert_string_equal(places(EG), "198.18.0.4:80 198.18.0.5:80");
    assert_true(pq_resolver_changed(resolver, EG));
    assert_false(pq_resolver_changed(resolver, IN));
    assert_non_null(
        strstr(logged(), "event=\"addresses changed\" route=eg addresses=\"198.18.0.4:80, 198.18.0.5:80\"\n"));
    now_says("198.18.0.4:80 198.18.0.5:80", "127.0.0.2:80");
    while (changes == 1)
        ev_run(loop, 0);
    assert_int_equal(changed_listener, IN);
    assert_string_equal(places(IN), "127.0.0.2:80 unix:/x");
    assert_string_equal(places(NO), "198.18.0.9:80");
}

static void a_failed_lookup_changes_nothing_and_is_told_once(void **state)
{
    (void)state;
    now_says(NULL, "127.0.0.1:80");
    some_rounds();
    some_rounds();
    assert_int_equal(changes, 0);
    assert_string_equal(places(EG), "198.18.0.3:80 198.18.0.4:80");
    assert_int_equal(times(logged(), "level=warn event=\"lookup failed\" route=eg name=far.example:80 detail=\"nobody "
                                     "knows far.example:80\"\n"),
                     1);
    assert_int_equal(times(logged_text, "\n"), 1);
    now_says("198.18.0.3:80 198.18.0.4:80", "127.0.0.1:80");
    some_rounds();
    assert_int_equal(times(logged(), "event=\"lookup works again\" route=eg name=far.example:80\n"), 1);
    assert_int_equal(changes, 0);
}

static void plaintext_stays_on_the_host(void **state)
{
    (void)state;
    now_says("198.18.0.3:80 198.18.0.4:80", "198.18.0.7:80");
    some_rounds();
    some_rounds();
    assert_int_equal(changes, 0);
    assert_string_equal(places(IN), "127.0.0.1:80 unix:/x");
    assert_int_equal(times(logged(), "event=\"addresses refused\" route=in detail=\"p.yaml:2:57: near.example:80 is "
                                     "another host, and what an ingress forwards is plaintext"),
                     1);
    now_says("198.18.0.3:80 198.18.0.4:80", "127.0.0.3:80");
    while (changes == 0)
        ev_run(loop, 0);
    assert_string_equal(places(IN), "127.0.0.3:80 unix:/x");
}

static void no_circle_comes_about(void **state)
{
    (void)state;
    now_says("127.0.0.1:2", "127.0.0.1:80"); /* the egress itself */
    some_rounds();
    assert_int_equal(changes, 0);
    assert_string_equal(places(EG), "198.18.0.3:80 198.18.0.4:80");
    assert_non_null(strstr(logged(), "addresses refused"));
    assert_non_null(strstr(logged_text, "leads back to"));
}

static void answers_to_an_old_question_are_dropped(void **state)
{
    (void)state;
    some_rounds();
    pthread_mutex_lock(&server.lock);
    server.hold = true;
    pthread_mutex_unlock(&server.lock);
    while (sem_trywait(&server.held) < 0)
        ev_run(loop, EVRUN_ONCE | EVRUN_NOWAIT);
    now_says("198.18.0.99:80", "127.0.0.1:80");
    assert_int_equal(pq_resolver_set(resolver, NULL, NULL), 0);
    int answered = atomic_load(&server.answered);
    sem_post(&server.go);
    while (atomic_load(&server.answered) == answered)
        sched_yield();
    for (int i = 0; i < 100; i++)
        ev_run(loop, EVRUN_NOWAIT);
    assert_int_equal(changes, 0);
    assert_string_equal(places(EG), "198.18.0.3:80 198.18.0.4:80");
}

/* The test ends while its thread still waits for an answer; sanitizers see whether it then touches what is gone. */
static void the_end_waits_for_no_answer(void **state)
{
    (void)state;
    pthread_mutex_lock(&server.lock);
    server.hold = true;
    pthread_mutex_unlock(&server.lock);
    sem_wait(&server.held);
    pq_resolver_free(resolver);
    resolver = NULL;
    int answered = atomic_load(&server.answered);
    sem_post(&server.go);
    while (atomic_load(&server.answered) == answered)
        sched_yield();
}

static void no_thread_is_told(void **state)
{
    (void)state;
    static const struct pq_resolver_how how = {.lookup = &lookup, .changed = on_change};
    DEFER(pq_resolver_freep) struct pq_resolver *r = NULL;
    struct pq_why why = {""};
    assert_int_equal(pq_resolver_new(loop, &how, &r), 0);
    no_thread = true;
    assert_int_equal(pq_resolver_set(r, &config, &why), PQ_E_LIMIT);
    no_thread = false;
    assert_non_null(strstr(why.text, "can't start the thread that looks up host names"));
    assert_false(pq_resolver_changed(r, EG));
    assert_int_equal(pq_resolver_set(r, &config, &why), 0);
}

/* With a resolver of its own that never asks, so that no thread allocates meanwhile. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const struct pq_resolver_how how = {.lookup = &lookup, .changed = on_change};
    pq_resolver_free(TAKE(resolver));
    config.resolve = 3600 * PQ_NS_PER_S;
    for (long n = 1;; n++) {
        DEFER(pq_resolver_freep) struct pq_resolver *r = NULL;
        pq_alloc_fail_at(n);
        int e = pq_resolver_new(loop, &how, &r);
        if (e == 0)
            e = pq_resolver_set(r, &config, NULL);
        bool reached = pq_alloc_failed();
        pq_alloc_fail_at(0);
        if (!reached) {
            assert_int_equal(e, 0);
            assert_true(n > 5);
            break;
        }
        assert_int_equal(e, PQ_E_NOMEM);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(new_addresses_are_told),
        TEST(a_failed_lookup_changes_nothing_and_is_told_once),
        TEST(plaintext_stays_on_the_host),
        TEST(no_circle_comes_about),
        TEST(answers_to_an_old_question_are_dropped),
        TEST(the_end_waits_for_no_answer),
        TEST(no_thread_is_told),
        TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
