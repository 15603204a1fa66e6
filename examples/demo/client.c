/* C client of the demonstration: calls the calculator over Sojourn IPC through stubs generated from
 * idl/examples/calc.idl, or over a Unix socket, and prints the time of a call.
 *
 * The arguments are `adaptive|park @NAME` or `blocking|spinning PATH`. The output is two medians in
 * nanoseconds: of add(a, b), and of the sum of 4096 numbers. `cargo xtask demo` builds and starts
 * this program. */
#define _GNU_SOURCE
#include "calc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BATCHES = 301, CALLS = 200, TERMS = 4096 };

struct way {
    int socket;   /* -1 for Sojourn */
    int spinning; /* read again at once instead of waiting */
    calc_client calc;
};

static int32_t terms[TERMS];

static void fail(const char *what)
{
    fprintf(stderr, "demo client: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void fail_status(const char *what, sj_status status)
{
    fprintf(stderr, "demo client: %s: %s\n", what, sj_status_text(status));
    exit(1);
}

static void read_all(const struct way *way, void *target, size_t len)
{
    char *at = target;
    while (len > 0) {
        ssize_t count = recv(way->socket, at, len, way->spinning ? MSG_DONTWAIT : 0);
        if (count > 0) {
            at += count;
            len -= (size_t)count;
        } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
            fail("recv");
        }
    }
}

static int64_t ask(const struct way *way, uint32_t op, uint32_t count, const int32_t *numbers)
{
    char request[8 + sizeof terms];
    memcpy(request, &op, 4);
    memcpy(request + 4, &count, 4);
    memcpy(request + 8, numbers, count * sizeof *numbers);
    size_t len = 8 + count * sizeof *numbers, sent = 0;
    while (sent < len) {
        ssize_t part = send(way->socket, request + sent, len - sent, MSG_NOSIGNAL);
        if (part < 0 && errno != EINTR)
            fail("send");
        sent += part > 0 ? (size_t)part : 0;
    }
    int64_t answer;
    read_all(way, &answer, sizeof answer);
    return answer;
}

static int64_t add(struct way *way, int32_t a, int32_t b)
{
    int32_t numbers[2] = {a, b}, result;
    if (way->socket >= 0)
        return ask(way, 0, 2, numbers);
    sj_status status = calc_add(&way->calc, a, b, &result);
    if (status != SJ_OK)
        fail_status("add", status);
    return result;
}

static int64_t sum(struct way *way)
{
    int64_t result;
    if (way->socket >= 0)
        return ask(way, 1, TERMS, terms);
    sj_status status = calc_sum(&way->calc, TERMS, terms, &result);
    if (status != SJ_OK)
        fail_status("sum", status);
    return result;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Returns the median over batches of the time of one call, in nanoseconds. */
static int64_t measure(struct way *way, int big)
{
    static int64_t batches[BATCHES];
    for (int batch = 0; batch < BATCHES; batch++) {
        int64_t start = sj_now_ns();
        for (int call = 0; call < CALLS; call++) {
            int64_t got = big ? sum(way) : add(way, call, batch);
            int64_t want = big ? (int64_t)TERMS * (TERMS - 1) / 2 : call + batch;
            if (got != want) {
                fprintf(stderr, "demo client: wrong answer %lld\n", (long long)got);
                exit(1);
            }
        }
        batches[batch] = (sj_now_ns() - start) / CALLS;
    }
    qsort(batches, BATCHES, sizeof *batches, compare);
    return batches[BATCHES / 2];
}

static int connect_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        fail(path);
    return fd;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: client adaptive|park @NAME, or blocking|spinning PATH\n");
        return 2;
    }
    struct way way = {.socket = -1, .spinning = !strcmp(argv[1], "spinning")};
    for (int32_t i = 0; i < TERMS; i++)
        terms[i] = i;
    sj_connection *connection = NULL;
    if (argv[2][0] == '@') {
        sj_options options;
        calc_options(&options);
        options.wait = strcmp(argv[1], "park") ? 0 : 2;
        sj_status status = sj_connect(argv[2], &options, &connection);
        if (status == SJ_OK)
            status = calc_bind(&way.calc, connection);
        if (status != SJ_OK)
            fail_status(argv[2], status);
    } else {
        way.socket = connect_socket(argv[2]);
    }
    measure(&way, 0); /* to warm up */
    printf("%lld %lld\n", (long long)measure(&way, 0), (long long)measure(&way, 1));
    if (connection) {
        calc_unbind(&way.calc);
        sj_disconnect(connection);
    }
    return 0;
}
