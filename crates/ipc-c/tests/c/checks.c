/* The client of the C tests. */
#define _GNU_SOURCE
#include "checks.h"

#include <errno.h>

#define LIMIT within_ms(20000)

static void call(sj_connection *c, uint16_t op, const void *body, size_t len, sj_in *in)
{
    sj_out out;
    sj_start(c, op, len, &out);
    CHECK(out.body && out.body_len == len && ((uintptr_t)out.body & 7) == 0);
    memcpy(out.body, body, len);
    CHECK_STATUS(SJ_OK, sj_call(c, &out, LIMIT, in));
}

static void check_bodies(sj_connection *c)
{
    static const size_t lens[] = {0, 1, 7, 8, 47, 48, 49, 111, 112, 113, 1000, 4096, 65000, 65536, 70000, 200000, 3000000};
    unsigned char *body = malloc(3000000);
    sj_in in;
    CHECK(body);
    for (size_t i = 0; i < 3000000; i++)
        body[i] = pattern(i);
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        call(c, OP_ECHO, body, lens[i], &in);
        CHECK(in.body_len == lens[i] && memcmp(in.body, body, lens[i]) == 0);
        CHECK((in.n_items | in.n_fds | in.n_grants) == 0 && in.fault == 0);
        CHECK(((uintptr_t)in.body & 7) == 0);
        uint64_t wanted = lens[i];
        call(c, OP_LARGE, &wanted, 8, &in);
        CHECK(in.body_len == lens[i] && memcmp(in.body, body, lens[i]) == 0);
    }
    /* A body may turn out shorter than it was begun. */
    for (size_t len = 8; len <= 100000; len *= 10) {
        sj_out out;
        sj_start(c, OP_ECHO, len, &out);
        memset(out.body, 5, len);
        out.body_len = len - 3;
        CHECK_STATUS(SJ_OK, sj_call(c, &out, LIMIT, &in));
        CHECK(in.body_len == len - 3 && in.body[len - 4] == 5);
    }
    free(body);
}

static void check_items(sj_connection *c)
{
    static const size_t lens[][4] = {{0, 0, 0, 0}, {1, 2, 3, 4}, {65536, 0, 0, 9}, {1000000, 1, 0, 70000}, {8, 16, 4096, 100}};
    unsigned char *memory = malloc(1000000), *copy = malloc(1000000);
    sj_out out;
    sj_in in;
    CHECK(memory && copy);
    for (size_t i = 0; i < 1000000; i++)
        memory[i] = pattern(i);
    for (size_t row = 0; row < sizeof lens / sizeof *lens; row++) {
        for (int forever = 0; forever < 2; forever++) {
            sj_start(c, OP_ECHO, 4, &out);
            memcpy(out.body, "head", 4);
            for (unsigned i = 0; i < 4; i++) {
                out.items[i].data = lens[row][i] ? memory + i : NULL;
                out.items[i].len = lens[row][i];
            }
            out.n_items = 4;
            CHECK_STATUS(SJ_OK, sj_call(c, &out, forever ? SJ_FOREVER : LIMIT, &in));
            CHECK(in.n_items == 4 && in.body_len == 4 && memcmp(in.body, "head", 4) == 0);
            for (unsigned i = 0; i < 4; i++) {
                CHECK(in.item_lens[i] == lens[row][i]);
                CHECK_STATUS(SJ_OK, sj_item_copy(&in, i, copy, lens[row][i]));
                CHECK(memcmp(copy, memory + i, lens[row][i]) == 0);
                const void *item = sj_item(&in, i);
                CHECK(item && sj_item(&in, i) == item && memcmp(item, memory + i, lens[row][i]) == 0);
                CHECK_STATUS(SJ_INVALID, sj_item_copy(&in, i, copy, lens[row][i] + 1));
            }
            CHECK_STATUS(SJ_INVALID, sj_item_copy(&in, 4, copy, 0));
        }
    }
    uint64_t wanted = 300000;
    call(c, OP_ITEM, &wanted, 8, &in);
    CHECK(in.n_items == 1 && in.item_lens[0] == wanted);
    CHECK_STATUS(SJ_OK, sj_item_copy(&in, 0, copy, wanted));
    CHECK(memcmp(copy, memory, wanted) == 0);
    free(memory);
    free(copy);
}

static void check_fds(sj_connection *c)
{
    int ends[2];
    char text[8];
    sj_out out;
    sj_in in;
    CHECK(pipe(ends) == 0);
    sj_start(c, OP_FDS, 0, &out);
    out.fds[0] = ends[1];
    out.fds[1] = ends[1];
    out.n_fds = 2;
    CHECK_STATUS(SJ_OK, sj_call(c, &out, LIMIT, &in));
    close(ends[1]);
    CHECK(in.n_fds == 1);
    CHECK(read(ends[0], text, 5) == 5 && memcmp(text, "hello", 5) == 0);
    CHECK(read(ends[0], text, 5) == 5);
    CHECK(read(ends[0], text, 5) == 0); /* nobody else has it */
    close(ends[0]);
    int fd = in.fds[0];
    CHECK(sj_take_fd(&in, 0) == fd && sj_take_fd(&in, 0) == -1 && sj_take_fd(&in, 1) == -1);
    CHECK(read(fd, text, sizeof text) == 4 && memcmp(text, "back", 4) == 0);
    close(fd);
    /* One that is not taken is closed with its message. */
    sj_start(c, OP_FDS, 0, &out);
    CHECK_STATUS(SJ_OK, sj_call(c, &out, LIMIT, &in));
    fd = in.fds[0];
    call(c, OP_ECHO, "x", 1, &in);
    CHECK(read(fd, text, 1) == -1 && errno == EBADF);
    sj_start(c, OP_FDS, 0, &out);
    out.fds[0] = 9999;
    out.n_fds = 1;
    CHECK_STATUS(SJ_SYSTEM, sj_call(c, &out, LIMIT, &in));
    CHECK(errno == EBADF);
}

static void check_faults_and_deadlines(sj_connection *c)
{
    sj_out out;
    sj_in in, kept;
    sj_start(c, OP_FAULT, 0, &out);
    CHECK_STATUS(SJ_FAULT, sj_call(c, &out, LIMIT, &in));
    CHECK(in.fault == 0x1234 && in.body_len == 0 && in.n_items == 0 && sj_item(&in, 0) == NULL);
    int64_t before = sj_now_ns();
    sj_start(c, OP_NEVER, 0, &out);
    CHECK_STATUS(SJ_TIMEOUT, sj_call(c, &out, within_ms(30), &in));
    int64_t took = sj_now_ns() - before;
    CHECK(took >= 30000000 && took < 5000000000);
    /* An answer that comes too late is not taken for another. */
    sj_start(c, OP_KEEP, 0, &out);
    CHECK_STATUS(SJ_TIMEOUT, sj_call(c, &out, within_ms(10), &kept));
    call(c, OP_RELEASE, "now", 3, &in);
    CHECK(in.body_len == 3 && memcmp(in.body, "now", 3) == 0);
    for (int i = 0; i < 100; i++) {
        call(c, OP_ECHO, &i, sizeof i, &in);
        CHECK(in.body_len == sizeof i && memcmp(in.body, &i, sizeof i) == 0);
    }
    CHECK_STATUS(SJ_INVALID, sj_item_copy(&kept, 0, &out, 0));
}

static void check_many_calls(sj_connection *c)
{
    sj_out out;
    sj_in in;
    sj_pending pending[8], one_more;
    for (unsigned char i = 0; i < 8; i++) {
        /* Some are answered by a deferred reply, when the last comes. */
        sj_start(c, i == 7 ? OP_RELEASE : i & 1 ? OP_KEEP : OP_ECHO, 1, &out);
        out.body[0] = i;
        CHECK_STATUS(SJ_OK, sj_submit(c, &out, LIMIT, &pending[i]));
    }
    sj_start(c, OP_ECHO, 0, &out);
    CHECK_STATUS(SJ_BUSY, sj_submit(c, &out, LIMIT, &one_more));
    for (unsigned char i = 8; i-- > 1;) {
        CHECK_STATUS(SJ_OK, sj_finish(c, pending[i], LIMIT, &in));
        if (i & 1 && i != 7)
            CHECK(in.body_len == 4 && memcmp(in.body, "late", 4) == 0);
        else
            CHECK(in.body_len == 1 && in.body[0] == i);
        CHECK_STATUS(SJ_INVALID, sj_finish(c, pending[i], LIMIT, &in));
        CHECK_STATUS(SJ_INVALID, sj_give_up(c, pending[i]));
    }
    CHECK_STATUS(SJ_OK, sj_give_up(c, pending[0]));
    CHECK_STATUS(SJ_INVALID, sj_finish(c, pending[0], LIMIT, &in));
    one_more.opaque = UINT64_MAX;
    CHECK_STATUS(SJ_INVALID, sj_finish(c, one_more, LIMIT, &in));
}

static void check_one_way(sj_connection *c)
{
    sj_out out;
    sj_in in;
    uint64_t bits = 0, before, more;
    call(c, OP_COUNT, "", 0, &in);
    before = load64(in.body);
    for (int i = 0; i < 500; i++) {
        sj_start(c, 99, i % 3 ? 8 : 500, &out);
        memset(out.body, i, out.body_len);
        CHECK_STATUS(SJ_OK, sj_send(c, &out, LIMIT));
    }
    call(c, OP_COUNT, "", 0, &in);
    CHECK(load64(in.body) == before + 500);
    CHECK_STATUS(SJ_OK, sj_notify(c, 1));
    CHECK_STATUS(SJ_OK, sj_notify(c, 4));
    while (bits != 10) {
        CHECK_STATUS(SJ_OK, sj_wait_notify(c, LIMIT, &more));
        bits |= more;
        CHECK((bits & ~UINT64_C(10)) == 0);
    }
    bits = 8;
    call(c, OP_NOTIFY, &bits, 8, &in);
    CHECK_STATUS(SJ_OK, sj_wait_notify(c, LIMIT, &more));
    CHECK(more == 16);
    CHECK_STATUS(SJ_TIMEOUT, sj_wait_notify(c, within_ms(5), &more));
}

static void check_who(sj_connection *c)
{
    sj_in in;
    uint32_t who[3], own[3] = {(uint32_t)getpid(), getuid(), getgid()};
    call(c, OP_WHO, "", 0, &in);
    CHECK(in.body_len == 20);
    memcpy(who, in.body, sizeof who);
    CHECK(memcmp(who, own, sizeof who) == 0);
    CHECK(load64(in.body + 12) == BADGE);
    CHECK(sj_self(c).generation > 0 && sj_socket(c) >= 0 && sj_reason(c) == 0);
}

static void check_grants(sj_connection *c)
{
    sj_memory *read_only, *writable;
    size_t len;
    uint32_t ids[2];
    uint64_t sum = 0;
    sj_out out;
    sj_in in;
    CHECK_STATUS(SJ_OK, sj_memory_new(100000, 0, &read_only));
    CHECK_STATUS(SJ_OK, sj_memory_new(4096, SJ_GRANT_WRITE, &writable));
    CHECK_STATUS(SJ_INVALID, sj_memory_new(0, 0, &writable));
    unsigned char *memory = sj_memory_map(read_only, &len);
    CHECK(memory && len == 100000);
    for (size_t i = 0; i < len; i++)
        memory[i] = pattern(i);
    for (size_t i = 10; i < 50010; i++)
        sum += pattern(i);
    CHECK_STATUS(SJ_OK, sj_memory_register(c, read_only, LIMIT, &ids[0]));
    CHECK_STATUS(SJ_OK, sj_memory_register(c, writable, LIMIT, &ids[1]));
    sj_start(c, OP_GRANT, 0, &out);
    memset(out.grants, 0, sizeof out.grants);
    out.grants[0].id = ids[0];
    out.grants[0].offset = 10;
    out.grants[0].len = 50000;
    out.grants[1].id = ids[1];
    out.grants[1].flags = SJ_GRANT_WRITE;
    out.grants[1].len = 100;
    out.n_grants = 2;
    CHECK_STATUS(SJ_OK, sj_call(c, &out, LIMIT, &in));
    CHECK(in.body_len == 8 && load64(in.body) == sum);
    unsigned char *written = sj_memory_map(writable, NULL);
    CHECK(load64(written + 8) == sum && load64(written) == 0);
    for (int round = 0; round < 2; round++) {
        sj_start(c, OP_KEPT, 0, &out);
        out.grants[0].id = ids[1];
        out.grants[0].flags = SJ_GRANT_KEEP;
        out.grants[0].offset = 0;
        out.grants[0].len = 100;
        out.grants[1] = out.grants[0];
        out.grants[1].flags = 0; /* may not be kept */
        out.n_grants = round ? 0 : 2;
        CHECK_STATUS(SJ_OK, sj_call(c, &out, LIMIT, &in));
        CHECK(in.body[0] == (round ? 'k' : 0));
        written[0] = 'k';
        CHECK(round || sj_memory_unregister(c, ids[1], LIMIT) == SJ_OK);
    }
    sj_memory_free(writable);
    CHECK_STATUS(SJ_OK, sj_memory_unregister(c, ids[0], LIMIT));
    sj_memory_free(read_only);
}

/* Whatever C does with a connection is an error and nothing worse. */
static void check_misuse(sj_connection *c)
{
    sj_out out, other;
    sj_in in;
    sj_connection *none = NULL;
    CHECK_STATUS(SJ_INVALID, sj_connect(NULL, NULL, &none));
    CHECK_STATUS(SJ_INVALID, sj_connect("", NULL, &none));
    CHECK(strlen(sj_error()) > 0);
    CHECK_STATUS(SJ_INVALID, sj_connect("@x", NULL, NULL));
    CHECK_STATUS(SJ_SYSTEM, sj_connect("@nobody-serves-this-name", NULL, &none));
    CHECK(errno == ENOENT && strstr(sj_error(), "nobody-serves-this-name"));
    CHECK_STATUS(SJ_INVALID, sj_call(NULL, &out, LIMIT, &in));
    CHECK_STATUS(SJ_INVALID, sj_call(c, NULL, LIMIT, &in));
    sj_start(NULL, 1, 1, &out);
    sj_disconnect(NULL);
    sj_start(c, OP_ECHO, 3, &out);
    CHECK_STATUS(SJ_INVALID, sj_call(c, &out, LIMIT, NULL));
    memcpy(out.body, "yes", 3);
    CHECK_STATUS(SJ_OK, sj_call(c, &out, LIMIT, &in));
    CHECK(memcmp(in.body, "yes", 3) == 0);
    CHECK_STATUS(SJ_INVALID, sj_call(c, &out, LIMIT, &in)); /* sent already */
    sj_start(c, OP_ECHO, 3, &other);
    sj_start(c, OP_ECHO, 3, &out);
    CHECK_STATUS(SJ_INVALID, sj_call(c, &other, LIMIT, &in));
    out.body_len = 4;
    CHECK_STATUS(SJ_INVALID, sj_call(c, &out, LIMIT, &in));
    sj_start(c, OP_ECHO, 3, &out);
    out.n_items = 200;
    CHECK_STATUS(SJ_INVALID, sj_call(c, &out, LIMIT, &in));
    sj_start(c, OP_ECHO, (size_t)20 << 20, &out); /* larger than max_message, but there is room to write it */
    memset(out.body, 1, (size_t)20 << 20);
    CHECK_STATUS(SJ_TOO_LARGE, sj_call(c, &out, LIMIT, &in));
    sj_start(c, OP_ECHO, (size_t)-1, &out);
    CHECK(out.body == NULL);
    CHECK_STATUS(SJ_TOO_LARGE, sj_call(c, &out, LIMIT, &in));
    call(c, OP_MISUSE, "", 0, &in);
    CHECK(in.body_len == 3 && memcmp(in.body, "end", 3) == 0);
}

static int waits(sj_connection *c, uint32_t wait, uint32_t spin_us)
{
    sj_wait now = {9, 9};
    return sj_set_wait(c, NULL, &now) == SJ_OK && now.wait == wait && now.spin_us == spin_us;
}

/* A connection that changes how it waits, between calls and within one. */
static void check_waiting(sj_connection *c)
{
    static const sj_wait ways[] = {{2, 0}, {1, 30}, {1, 0}, {3, 0}, {0, 0}};
    sj_wait was = {0, 0}, before, none = {4, 0};
    sj_out out;
    sj_in in;
    CHECK_STATUS(SJ_OK, sj_set_wait(c, NULL, NULL));
    CHECK(waits(c, 0, 0));
    for (size_t i = 0; i < 2 * sizeof ways / sizeof *ways; i++) {
        const sj_wait *way = &ways[i % 5];
        sj_start(c, OP_ECHO, 3, &out);
        memcpy(out.body, "way", 3);
        CHECK_STATUS(SJ_OK, sj_set_wait(c, way, &before));
        CHECK(before.wait == was.wait && before.spin_us == was.spin_us);
        was = *way;
        CHECK_STATUS(SJ_OK, sj_call(c, &out, LIMIT, &in));
        CHECK(in.body_len == 3 && memcmp(in.body, "way", 3) == 0);
        CHECK_STATUS(SJ_OK, sj_set_wait(c, way, NULL));
        CHECK(memcmp(in.body, "way", 3) == 0);
    }
    before = ways[0]; /* one structure for both */
    CHECK_STATUS(SJ_OK, sj_set_wait(c, &before, &before));
    CHECK(before.wait == 0 && waits(c, 2, 0));
    CHECK_STATUS(SJ_INVALID, sj_set_wait(c, &none, &before));
    CHECK_STATUS(SJ_INVALID, sj_set_wait(NULL, &ways[1], &before));
    CHECK(before.wait == 0 && waits(c, 2, 0));
    CHECK_STATUS(SJ_OK, sj_set_wait(c, &was, NULL));
    CHECK(waits(c, 0, 0));
}

static void check_expulsion(sj_connection *other, const char *address)
{
    sj_options options;
    sj_connection *c;
    sj_out out, mine;
    sj_in in;
    memset(&options, 0, sizeof options);
    options.wait = 4;
    CHECK_STATUS(SJ_INVALID, sj_connect(address, &options, &c));
    options.wait = 1;
    options.spin_us = 20;
    options.check_uid = 1;
    options.server_uid = getuid() + 1;
    CHECK_STATUS(SJ_REFUSED, sj_connect(address, &options, &c));
    CHECK(errno == EPERM);
    options.server_uid = getuid();
    CHECK_STATUS(SJ_OK, sj_connect(address, &options, &c));
    sj_start(other, OP_ECHO, 1, &out);
    sj_start(c, OP_ECHO, 1, &mine);
    CHECK_STATUS(SJ_INVALID, sj_call(c, &out, LIMIT, &in)); /* begun on another connection */
    mine.body[0] = 'm';
    CHECK_STATUS(SJ_OK, sj_call(c, &mine, LIMIT, &in));
    CHECK(in.body[0] == 'm');
    call(c, OP_ECHO, "a", 1, &in);
    sj_start(c, OP_EXPEL, 0, &out);
    CHECK_STATUS(SJ_DISCONNECTED, sj_call(c, &out, LIMIT, &in));
    CHECK(sj_reason(c) == SJ_REASON_BAD_MESSAGE);
    sj_start(c, OP_ECHO, 0, &out);
    CHECK_STATUS(SJ_DISCONNECTED, sj_call(c, &out, LIMIT, &in));
    CHECK(strlen(sj_reason_text(sj_reason(c))) > 0);
    sj_disconnect(c);
}

void check_all(sj_connection *c, const char *address)
{
    sj_in in;
    uint64_t mark = UINT64_C(0x1122334455667788);
    check_bodies(c);
    check_items(c);
    check_fds(c);
    check_many_calls(c);
    check_faults_and_deadlines(c); /* leaves a call unanswered for good */
    check_one_way(c);
    check_who(c);
    check_grants(c);
    check_misuse(c);
    check_waiting(c);
    check_expulsion(c, address);
    call(c, OP_ELSEWHERE, &mark, 8, &in);
    CHECK(in.body_len == 8 && load64(in.body) == mark);
}

void check_stop(sj_connection *c)
{
    sj_in in;
    call(c, OP_STOP, "stop", 4, &in);
    CHECK(in.body_len == 4);
}
