/* sojourn/idl/random.h - random values for generated tests, exactly as docs/reference/idl-random.md
 * says.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef SOJOURN_IDL_RANDOM_H
#define SOJOURN_IDL_RANDOM_H

#include <sojourn/idl/client.h>
#include <sojourn/idl/server.h>

#include <fcntl.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sj_random {
    uint64_t state;
    uint32_t depth;
    sj_arena *arena; /* where values are put */
    void **last;     /* by type: the last finished object behind a ptr pointer */
} sj_random;

/* What the two sides of a run count: each for itself. */
typedef struct sj_test {
    uint64_t seed, k;
    uint32_t errors; /* of one-way operations, told with the next call */
    uint32_t calls;
} sj_test;

static inline void sj_random_stream(sj_random *r, sj_arena *arena, uint64_t seed, uint16_t opnum, uint32_t dir, uint32_t types)
{
    uint64_t x = seed * UINT64_C(0x9E3779B97F4A7C15) + opnum * UINT64_C(0xBF58476D1CE4E5B9) + dir * UINT64_C(0x94D049BB133111EB);
    x ^= x >> 30;
    x *= UINT64_C(0xBF58476D1CE4E5B9);
    x ^= x >> 27;
    x *= UINT64_C(0x94D049BB133111EB);
    x ^= x >> 31;
    r->state = x ? x : 1;
    r->depth = 0;
    r->arena = arena;
    r->last = (void **)sj_arena_zeroed(arena, (types + 1) * sizeof(void *));
}

static inline uint64_t sj_random_next(sj_random *r)
{
    r->state ^= r->state >> 12;
    r->state ^= r->state << 25;
    r->state ^= r->state >> 27;
    return r->state * UINT64_C(0x2545F4914F6CDD1D);
}

static inline uint64_t sj_random_bits(sj_random *r, unsigned width) { return sj_random_next(r) >> (64 - width); }

static inline uint64_t sj_random_below(sj_random *r, uint64_t n) { return sj_random_next(r) % (n ? n : 1); }

static inline float sj_random_float(sj_random *r)
{
    return (float)((int32_t)sj_random_bits(r, 24) - 0x800000) / 16.0f;
}

/* low + a number below count; count 0 stands for 2 to the 64. */
static inline uint64_t sj_random_ranged(sj_random *r, uint64_t low, uint64_t count)
{
    return low + (count ? sj_random_below(r, count) : sj_random_next(r));
}

/* A small number from low on, of `count` there are (0: more than can be said). */
static inline uint64_t sj_random_counter(sj_random *r, uint64_t low, uint64_t count)
{
    uint64_t most = r->depth > 3 ? 1 : 9u >> r->depth;
    if (most == 0)
        most = 1;
    return low + sj_random_below(r, count && count < most ? count : most);
}

/* Whether an array can have these numbers, a string this bound. */
static inline bool sj_random_is_possible(int64_t size, int64_t first, int64_t count)
{
    return size >= 0 && size <= 64 && first >= 0 && count >= 0 && first + count <= size;
}

static inline bool sj_random_is_bound(int64_t bound) { return bound >= 1; }

static inline bool sj_random_present(sj_random *r) { return r->depth < 4 && sj_random_bits(r, 2) != 0; }

/* Memory for a value, zero. Ends the test if there is none. */
static inline void *sj_random_memory(sj_random *r, size_t n, size_t size)
{
    void *p = sj_arena_zeroed(r->arena, n * size);
    if (!p)
        abort();
    return p;
}

static inline size_t sj_random_length(sj_random *r, int64_t bound)
{
    return sj_random_below(r, bound < 17 ? (uint64_t)(bound < 1 ? 1 : bound) : 17);
}

/* bound: INT64_MAX for none. `to`: the buffer, or NULL for a new one. */
static inline char *sj_random_string(sj_random *r, int64_t bound, char *to)
{
    size_t n = sj_random_length(r, bound);
    if (!to)
        to = (char *)sj_random_memory(r, n + 1, 1);
    for (size_t i = 0; i < n; i++)
        to[i] = (char)(1 + sj_random_below(r, 255));
    to[n] = 0;
    return to;
}

static inline uint16_t *sj_random_wide(sj_random *r, int64_t bound, uint16_t *to)
{
    size_t n = sj_random_length(r, bound);
    if (!to)
        to = (uint16_t *)sj_random_memory(r, n + 1, 2);
    for (size_t i = 0; i < n; i++)
        to[i] = (uint16_t)(1 + sj_random_below(r, 65535));
    to[n] = 0;
    return to;
}

static inline int sj_random_fd(sj_random *r) { return sj_random_bits(r, 1) ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1; }

/* uuid: of the declared interface, or NULL. */
static inline void sj_random_interface(sj_random *r, const unsigned char *uuid, sj_interface_ref *to)
{
    memset(to, 0, sizeof *to);
    to->fd = -1;
    if (!sj_random_bits(r, 1))
        return;
    for (unsigned i = 0; i < 16; i++)
        to->uuid[i] = uuid ? uuid[i] : (unsigned char)sj_random_bits(r, 8);
    to->fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static inline void sj_random_bytes(sj_random *r, void *to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)to)[i] = (unsigned char)sj_random_bits(r, 8);
}

/* A body of its own for comparison. */
typedef struct sj_test_body {
    unsigned char *bytes;
    size_t size;
    uint32_t n_fds;
    bool ok;
} sj_test_body;

static inline void sj_test_body_end(sj_test_body *b, const sj_enc *e, bool ok)
{
    b->bytes = e->body;
    b->size = e->pos;
    b->n_fds = e->n_fds;
    b->ok = ok;
}

static inline bool sj_test_same(const sj_test_body *a, const sj_test_body *b)
{
    return a->ok && b->ok && a->size == b->size && (a->size == 0 || memcmp(a->bytes, b->bytes, a->size) == 0);
}

static inline void sj_test_report(const char *what, uint64_t k, const sj_test_body *a, const sj_test_body *b)
{
    fprintf(stderr, "%s: call %llu differs: %zu and %zu bytes, encoded %d and %d\n", what, (unsigned long long)k, a->size, b->size,
            a->ok, b->ok);
    for (size_t i = 0; i < a->size && i < b->size; i++)
        if (a->bytes[i] != b->bytes[i]) {
            fprintf(stderr, "  first difference at byte %zu: %02x and %02x\n", i, a->bytes[i], b->bytes[i]);
            break;
        }
}

/* Connects to a server that may be about to start. */
static inline sj_connection *sj_test_connect(const char *address, const sj_options *options)
{
    sj_connection *c = NULL;
    sj_status status = SJ_REFUSED;
    for (int i = 0; i < 1000 && status != SJ_OK; i++) {
        status = sj_connect(address, options, &c);
        if (status != SJ_OK)
            (void)usleep(10000);
    }
    if (status != SJ_OK)
        fprintf(stderr, "%s: %s\n", address, sj_status_text(status));
    return status == SJ_OK ? c : NULL;
}

/* Serves until the first client has come and gone. Answers 0 if all went well. */
static inline int sj_test_serve(const char *address, const sj_options *options, const sj_router *router)
{
    sj_endpoint *endpoint = NULL;
    sj_server *server = NULL;
    sj_status status = sj_listen(address, options, &endpoint);
    if (status == SJ_OK)
        status = sj_server_new(endpoint, &server);
    if (status != SJ_OK) {
        fprintf(stderr, "%s: %s\n", address, sj_status_text(status));
        return 2;
    }
    sj_service service;
    sj_service_init(&service, server, router);
    sj_event event;
    sj_out out;
    bool gone = false;
    int reason = 0;
    while (status == SJ_OK && !gone) {
        status = sj_recv(server, sj_now_ns() + INT64_C(60000000000), &event);
        gone = status == SJ_OK && event.kind == SJ_EVENT_GONE;
        reason = gone ? event.reason : 0;
        if (status == SJ_OK && sj_service_handle(&service, &event, &out)) {
            status = sj_reply(server, &out);
            status = status == SJ_GONE ? SJ_OK : status; /* it has what it wanted and left: the event comes next */
            sj_service_clean(&service);
        }
    }
    sj_service_free(&service);
    sj_server_free(server);
    sj_close(endpoint);
    if (status != SJ_OK)
        fprintf(stderr, "server: %s (%d)\n", sj_status_text(status), reason);
    return status == SJ_OK ? 0 : 1;
}

/* Changes a few bits or words of a body, or its length (at most by 8 bytes more: there is room). */
static inline size_t sj_test_mutate(sj_random *r, unsigned char *body, size_t size)
{
    uint64_t times = 1 + sj_random_below(r, 2);
    while (times--) {
        size_t words = size / 8, at = words ? 8 * sj_random_below(r, words) : 0;
        uint64_t how = sj_random_below(r, 7);
        if (how == 0 || words == 0) {
            size = words && sj_random_bits(r, 1) ? at : size;
            continue;
        }
        uint64_t w = sj_ld64(body + at);
        if (how == 1)
            w = sj_random_next(r);
        else if (how == 2)
            w = 0;
        else if (how == 3)
            w++;
        else if (how == 4)
            w ^= UINT64_C(1) << (32 + sj_random_below(r, 3));
        else
            w ^= UINT64_C(1) << sj_random_below(r, 64);
        sj_st64(body + at, w);
    }
    return size;
}

#ifdef __cplusplus
}
#endif
#endif
