/* What generated C promises beyond values: context handles, faults, refusals, memory, direct and
 * deferred calls. */
#define _GNU_SOURCE
#include "local.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>

extern void *fake_local;
extern size_t fake_threshold;
extern sj_wait fake_waited;

static int failures, rundowns, told;
static sj_deferred put_off;

#define CHECK(condition)                                                  \
    do {                                                                  \
        if (!(condition)) {                                               \
            fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition); \
            failures++;                                                   \
        }                                                                 \
    } while (0)

struct counter { int32_t value; };

static sj_outcome warmer(void *self, sj_invocation *call, double t, struct local_label *l, double *u, double *result)
{
    (void)self, (void)call;
    *u = t + l->count;
    *result = t;
    free(l->text);
    l->text = NULL;
    l->count++;
    __atomic_sub_fetch(&labels_alive, 1, __ATOMIC_RELAXED);
    return 0;
}

sj_outcome by_hand_server(void *self, sj_invocation *call, int32_t a, int32_t *result)
{
    (void)self, (void)call;
    *result = a * 2;
    return a == 13 ? SJ_FAULT_USER + 13 : 0;
}

static sj_outcome cached(void *self, sj_invocation *call, int32_t a, int32_t *result)
{
    return by_hand_server(self, call, a, result);
}

static sj_outcome pooled(void *self, sj_invocation *call, int32_t a, char **result)
{
    (void)self;
    *result = (char *)sj_arena_alloc(call->arena, 32);
    snprintf(*result, 32, "number %d", a);
    return 0;
}

static sj_outcome direct(void *self, sj_invocation *call, int32_t a, const char *s, int32_t *length, int32_t *result)
{
    (void)self;
    *length = (int32_t)strlen(s);
    *result = call->server ? a : -a; /* which way it came */
    return 0;
}

static sj_outcome later(void *self, sj_invocation *call, const sj_deferred *right, uint32_t n, const char *what)
{
    (void)self, (void)call, (void)n;
    put_off = *right;
    int16_t a[3] = {1, 2, 3};
    char *back = (char *)(uintptr_t)what;
    return local_things_later_reply(&put_off, 3, a, &back) == SJ_OK ? 0 : SJ_FAULT_USER;
}

static void tell(void *self, sj_invocation *call, const char *what)
{
    (void)self, (void)call;
    told += what[0];
}

static sj_outcome checked(void *self, sj_invocation *call, int32_t a, uint32_t *result)
{
    (void)self, (void)call;
    *result = (uint32_t)a;
    return 0;
}

static sj_outcome into(void *self, sj_invocation *call, char **s, uint32_t *n, int32_t **values)
{
    (void)self;
    *n = 3;
    *values = (int32_t *)sj_arena_zeroed(call->arena, 3 * sizeof(int32_t));
    (*values)[2] = 7;
    *s = sj_arena_string(call->arena, "twelve chars");
    return 0;
}

static sj_outcome apart(void *self, sj_invocation *call, uint32_t n, char **name, uint32_t *m, point **points, remark *last,
                        remark *all)
{
    (void)self;
    *name = sj_arena_string(call->arena, "apart");
    *m = 2;
    *points = (point *)sj_arena_zeroed(call->arena, 2 * sizeof(point));
    (*points)[1].y = 5;
    last->text = sj_arena_string(call->arena, "last");
    last->where = *points + 1;
    for (uint32_t i = 0; i < n; i++) {
        all[i].text = sj_arena_string(call->arena, "one of all");
        all[i].where = i ? last->where : NULL;
    }
    return 0;
}

/* Hands back what came, and something of its own. */
static sj_outcome pass(void *self, sj_invocation *call, int a, int *b, tagged_fd *c, int *d)
{
    (void)self, (void)call, (void)b;
    c->fd = a;
    *d = dup(a);
    return 0;
}

static sj_outcome open_counter(void *self, sj_invocation *call, int32_t start, counter *result)
{
    (void)self, (void)call;
    struct counter *c = (struct counter *)malloc(sizeof *c);
    c->value = start;
    *result = c;
    return 0;
}

static sj_outcome count(void *self, sj_invocation *call, counter c, int32_t *result)
{
    (void)self, (void)call;
    *result = c ? ++((struct counter *)c)->value : -1;
    return 0;
}

static sj_outcome close_counter(void *self, sj_invocation *call, counter *c)
{
    (void)self, (void)call;
    free(*c);
    *c = NULL;
    return 0;
}

static void run_down(void *self, counter c)
{
    (void)self;
    rundowns++;
    free(c);
}

static local_things_server implementation;

static void *serve(void *unused)
{
    (void)unused;
    sj_server *server;
    sj_router router;
    sj_service service;
    sj_event event;
    sj_out out;
    sj_server_new(NULL, &server);
    sj_router_init(&router);
    sj_router_add(&router, &local_things_interface, &implementation);
    sj_service_init(&service, server, &router);
    do {
        sj_recv(server, SJ_FOREVER, &event);
        if (sj_service_handle(&service, &event, &out)) {
            sj_reply(server, &out);
            sj_service_clean(&service);
        }
    } while (event.kind != SJ_EVENT_GONE);
    sj_service_free(&service);
    sj_server_free(server);
    return NULL;
}

static void check_contexts(local_things_client *c)
{
    counter one, two, stale;
    int32_t n;
    CHECK(local_things_open_counter(c, 5, &one) == SJ_OK && one);
    CHECK(local_things_open_counter(c, 100, &two) == SJ_OK && two != one);
    CHECK(local_things_count(c, one, &n) == SJ_OK && n == 6);
    CHECK(local_things_count(c, NULL, &n) == SJ_OK && n == -1);
    stale = one;
    CHECK(local_things_close_counter(c, &one) == SJ_OK && !one);
    CHECK(local_things_count(c, stale, &n) == SJ_FAULT && c->stub.fault == SJ_FAULT_BAD_CONTEXT);
    CHECK(local_things_open_counter(c, 1, &one) == SJ_OK && one != stale); /* the slot again, another generation */
    CHECK(local_things_count(c, (counter)(uintptr_t)99, &n) == SJ_FAULT && c->stub.fault == SJ_FAULT_BAD_CONTEXT);
    CHECK(local_things_count(c, two, &n) == SJ_OK && n == 101);
}

static bool is_in(const sj_arena *a, const void *p)
{
    for (const sj_chunk *c = a->chunks; c; c = c->next)
        if ((const unsigned char *)p >= (const unsigned char *)(c + 1) && (const unsigned char *)p < (const unsigned char *)(c + 1) + c->size)
            return true;
    return false;
}

/* Every parameter has its memory from where the ACF says, and the operation's where it says
 * nothing. */
static void check_apart(local_things_client *c)
{
    char *name;
    uint32_t m;
    point *points;
    remark last, all[2];
    const int before = test_allocations;
    sj_arena mine;
    memset(&mine, 0, sizeof mine);
    c->stub.results = &mine;
    CHECK(local_things_apart(c, 2, &name, &m, &points, &last, all) == SJ_OK);
    CHECK(test_allocations == before + 1 && m == 2 && points[1].y == 5);
    CHECK(strcmp(name, "apart") == 0 && is_in(&test_pool, name) && is_in(&test_pool, points));
    CHECK(strcmp(last.text, "last") == 0 && last.where->y == 5 && is_in(&mine, last.text) && is_in(&mine, last.where));
    CHECK(strcmp(all[1].text, "one of all") == 0 && is_in(&test_pool, all[1].text) && is_in(&test_pool, all[1].where));
    CHECK(all[0].where == NULL);
    c->stub.results = NULL;
    sj_arena_free(&mine);
}

static void check_memory(local_things_client *c)
{
    char *first, *second, text[16];
    int32_t values[2], *more;
    uint32_t n;
    CHECK(local_things_pooled(c, 1, &first) == SJ_OK);
    CHECK(local_things_pooled(c, 2, &second) == SJ_OK);
    CHECK(strcmp(first, "number 1") == 0 && strcmp(second, "number 2") == 0); /* in the pool for good */
    CHECK(local_things_into(c, text, sizeof text, &n, values, 2) == SJ_TOO_LARGE);
    CHECK(strcmp(text, "twelve chars") == 0);
    CHECK(local_things_into(c, text, 4, &n, values, 2) == SJ_TOO_LARGE);
    sj_arena mine;
    memset(&mine, 0, sizeof mine);
    c->stub.results = &mine;
    CHECK(local_things_allocated(c, &first, &n, &more) == SJ_OK && test_allocations == 2);
    CHECK(local_things_by_hand(c, 4, &values[0]) == SJ_OK);
    CHECK(strcmp(first, "twelve chars") == 0 && n == 3 && more[2] == 7);
    c->stub.results = NULL;
    sj_arena_free(&mine);
}

static int open_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) != -1;
    return n;
}

static bool is_same_file(int a, int b)
{
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

static void check_descriptors(local_things_client *c)
{
    int before = open_descriptors(), ends[2], d, n;
    CHECK(pipe(ends) == 0);
    int b = ends[1];
    tagged_fd t = {5, -1};
    CHECK(local_things_pass(c, ends[0], &b, &t, &d) == SJ_OK);
    CHECK(b != ends[1] && is_same_file(b, ends[1]) && is_same_file(t.fd, ends[0]) && is_same_file(d, ends[0]));
    CHECK(t.fd != d && t.tag == 5);
    close(b), close(d), close(t.fd), close(ends[0]), close(ends[1]);
    CHECK(local_things_by_hand(c, 1, &n) == SJ_OK); /* the message before is gone on both sides */
    CHECK(open_descriptors() == before);
}

static void check_calls(local_things_client *c)
{
    int32_t n, length;
    uint32_t status = 77;
    int16_t a[3];
    char *back;
    struct local_label l = {strdup("a label"), 4};
    char *mine = l.text; /* what comes back takes its place */
    double u, r;
    CHECK(local_things_warmer(c, 300.0, &l, &u, &r) == SJ_OK && u == 304.0 && r == 300.0 && l.count == 5 && !l.text);
    CHECK(labels_alive == 0); /* the server gave back what it was given */
    free(mine);
    CHECK(local_things_by_hand(c, 21, &n) == SJ_OK && n == 42);
    CHECK(local_things_by_hand(c, 13, &n) == SJ_FAULT && c->stub.fault == SJ_FAULT_USER + 13);
    CHECK(local_things_cached(c, 1234, &n) == SJ_OK && n == 4321); /* the user's client side */
    CHECK(local_things_cached(c, 5, &n) == SJ_OK && n == 10);
    CHECK(local_things_later(c, 3, "echo", a, &back) == SJ_OK && a[2] == 3 && strcmp(back, "echo") == 0);
    CHECK(local_things_tell(c, "A") == SJ_OK);
    CHECK(local_things_checked(c, 7, &status) == SJ_OK && status == 7);
    CHECK(local_things_checked(c, 11, &status) == SJ_OK && status == SJ_INVALID); /* comm_status */
    CHECK(local_things_timed(c, 1, &status) == SJ_OK && status == SJ_FAULT_UNKNOWN_OPERATION); /* not implemented */
    CHECK(local_things_direct(c, 3, "four", &length, &n) == SJ_OK && n == 3 && length == 4);
}

static bool is_wait(sj_wait w, uint32_t wait, uint32_t spin_us) { return w.wait == wait && w.spin_us == spin_us; }

/* The connection waits as it was told to, and nothing that a call did stays. */
static bool is_as_before(local_things_client *c)
{
    sj_wait now;
    return sj_set_wait(c->stub.connection, NULL, &now) == SJ_OK && is_wait(now, 1, 7);
}

/* sync(..) of an operation: for its calls, and whatever comes of them. */
static void check_waiting(local_things_client *c)
{
    int32_t n;
    uint32_t status;
    char *text;
    sj_options options;
    local_things_options(&options);
    CHECK(options.wait == 1 && options.spin_us == 7);
    const sj_wait as_connected = {options.wait, options.spin_us};
    CHECK(sj_set_wait(c->stub.connection, &as_connected, NULL) == SJ_OK);
    CHECK(local_things_by_hand(c, 1, &n) == SJ_OK && is_wait(fake_waited, 2, 0) && is_as_before(c));
    CHECK(local_things_by_hand(c, 13, &n) == SJ_FAULT && is_wait(fake_waited, 2, 0) && is_as_before(c));
    CHECK(local_things_pooled(c, 1, &text) == SJ_OK && is_wait(fake_waited, 1, 7) && is_as_before(c));
    CHECK(local_things_tell(c, "B") == SJ_OK && is_wait(fake_waited, 1, 0) && is_as_before(c));
    CHECK(local_things_checked(c, 7, &status) == SJ_OK && is_wait(fake_waited, 0, 0) && is_as_before(c));
    CHECK(local_things_timed(c, 1, &status) == SJ_OK && is_wait(fake_waited, 1, 20) && is_as_before(c));
    CHECK(local_things_checked(c, 11, &status) == SJ_OK && status == SJ_INVALID); /* refused before it is sent */
    CHECK(is_wait(fake_waited, 1, 20) && is_as_before(c));
}

/* A message that breaks the rules, sent by hand. on_violation(fault): told so, and the connection
 * lives on. */
static void check_violation(local_things_client *c)
{
    sj_out out;
    sj_start(c->stub.connection, (uint16_t)(c->stub.base + 2), 16, &out);
    memset(out.body, 0, 16);
    CHECK(sj_call(c->stub.connection, &out, SJ_FOREVER, &c->stub.in) == SJ_FAULT);
    CHECK(c->stub.in.fault == SJ_FAULT_BAD_MESSAGE);
    sj_start(c->stub.connection, 500, 0, &out);
    CHECK(sj_call(c->stub.connection, &out, SJ_FOREVER, &c->stub.in) == SJ_FAULT);
    CHECK(c->stub.in.fault == SJ_FAULT_UNKNOWN_OPERATION);
}

static void check_local(sj_connection *connection)
{
    static local_things_client c;
    static sj_router router;
    int32_t n, length;
    sj_router_init(&router);
    sj_router_add(&router, &local_things_interface, &implementation);
    fake_local = &router;
    CHECK(local_things_bind(&c, connection) == SJ_OK);
    CHECK(local_things_direct(&c, 3, "four", &length, &n) == SJ_OK && n == -3 && length == 4);
    CHECK(local_things_by_hand(&c, 3, &n) == SJ_OK && n == 6); /* not by_ref: through the transport */
    local_things_unbind(&c);
    fake_local = NULL;
}

int main(void)
{
    alarm(60);
    implementation.warmer = warmer;
    implementation.cached = cached;
    implementation.pooled = pooled;
    implementation.allocated = implementation.into = into;
    implementation.apart = apart;
    implementation.direct = direct;
    implementation.later = later;
    implementation.tell = tell;
    implementation.checked = checked;
    implementation.pass = pass;
    implementation.open_counter = open_counter;
    implementation.count = count;
    implementation.close_counter = close_counter;
    implementation.counter_rundown = run_down;
    fake_threshold = 8;
    sj_endpoint *endpoint;
    sj_connection *connection;
    pthread_t thread;
    sj_listen("", NULL, &endpoint);
    pthread_create(&thread, NULL, serve, NULL);
    CHECK(sj_connect("", NULL, &connection) == SJ_OK);
    static local_things_client c;
    CHECK(local_things_bind(&c, connection) == SJ_OK);
    check_contexts(&c);
    check_memory(&c);
    check_apart(&c);
    check_descriptors(&c);
    check_calls(&c);
    check_waiting(&c);
    check_violation(&c);
    check_local(connection);
    local_things_unbind(&c);
    sj_disconnect(connection);
    pthread_join(thread, NULL);
    CHECK(rundowns == 2); /* `two`, and the second `one` */
    CHECK(told == 'A' + 'B');
    sj_arena_free(&test_pool);
    sj_close(endpoint);
    return failures != 0;
}
