// The programs of the study of memory systems (`sojourn-bench papers --table memory`): plain calls,
// with markers around the measured part. They run in the traced virtual machine and know nothing of
// who has the protocol.
//
//     traced pipe    MARK WARM COUNT                  ping-pong with a child over two pipes
//     traced tcp     MARK WARM COUNT ADDRESS PORT     questions to `traced answer tcp`
//     traced udp     MARK WARM COUNT ADDRESS PORT     questions to `traced answer udp`
//     traced redis   MARK WARM COUNT ADDRESS PORT     SET and GET, to a Redis server
//     traced answer  MARK tcp|udp ADDRESS PORT        makes MARK when it can be asked
//
// With the variable UDP_SERVER datagrams go by that server (sojourn-udpd), whose library for C is
// the file UDP_LIBRARY.
//
// WARM operations come first, untraced: a session leaves the kernel meanwhile. Then the program
// makes the file MARK, waits until somebody has removed it, and makes WARM operations that warm the
// caches of the model and COUNT that are measured. Then it makes MARK once more, and ends when it
// is gone.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sojourn/markers.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

// Bytes of a message there and back.
#define SIZE 64

static void fail(const char *what)
{
    fprintf(stderr, "traced: %s: %s\n", what, strerror(errno));
    exit(1);
}

// The functions of sojourn/udp.h that are used.
static struct {
    void *socket;
    void *(*bind)(const char *server, const struct sockaddr_in *local, uint32_t wait);
    ssize_t (*sendto)(void *socket, const void *data, size_t len, const struct sockaddr_in *to);
    ssize_t (*recvfrom)(void *socket, void *data, size_t size, struct sockaddr_in *from, int64_t ns);
} served;

// One end of a conversation.
struct end {
    int in, out;
    unsigned char number;
    struct sockaddr_in peer;
};

static void put(struct end *end, const void *bytes, size_t size)
{
    if (served.socket != NULL) {
        if (served.sendto(served.socket, bytes, size, &end->peer) != (ssize_t)size)
            fail("sj_udp_sendto");
        return;
    }
    for (size_t done = 0; done < size;) {
        ssize_t wrote = write(end->out, (const char *)bytes + done, size - done);
        if (wrote <= 0)
            fail("write");
        done += (size_t)wrote;
    }
}

static void take(struct end *end, void *bytes, size_t size)
{
    if (served.socket != NULL) {
        if (served.recvfrom(served.socket, bytes, size, &end->peer, INT64_MAX) != (ssize_t)size)
            fail("sj_udp_recvfrom");
        return;
    }
    for (size_t done = 0; done < size;) {
        ssize_t got = read(end->in, (char *)bytes + done, size - done);
        if (got <= 0)
            fail("read");
        done += (size_t)got;
    }
}

// One message there and back.
static void ping(struct end *end)
{
    unsigned char bytes[SIZE];
    memset(bytes, ++end->number, SIZE);
    put(end, bytes, SIZE);
    take(end, bytes, SIZE);
    if (bytes[0] != end->number || bytes[SIZE - 1] != end->number) {
        errno = EBADMSG;
        fail("what came back");
    }
}

static void answer(struct end *end)
{
    unsigned char bytes[SIZE];
    for (;;) {
        take(end, bytes, SIZE);
        put(end, bytes, SIZE);
    }
}

// A value stored and read back.
static void store_and_load(struct end *end)
{
    static const char stored[] = "+OK\r\n";
    char request[128], reply[128];
    int number = ++end->number;
    int length = snprintf(request, sizeof request,
                          "*3\r\n$3\r\nSET\r\n$5\r\nk:%03d\r\n$3\r\n%03d\r\n", number, number);
    put(end, request, (size_t)length);
    take(end, reply, sizeof stored - 1);
    length = snprintf(request, sizeof request, "*2\r\n$3\r\nGET\r\n$5\r\nk:%03d\r\n", number);
    put(end, request, (size_t)length);
    length = snprintf(request, sizeof request, "$3\r\n%03d\r\n", number);
    take(end, reply, (size_t)length);
    if (memcmp(reply, request, (size_t)length) != 0) {
        errno = EBADMSG;
        fail("what came back");
    }
}

static void make(const char *mark)
{
    int made = open(mark, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (made < 0)
        fail(mark);
    close(made);
}

static void await_removal(const char *mark)
{
    make(mark);
    while (access(mark, F_OK) == 0)
        usleep(1000);
}

static void trace(void (*once)(struct end *), struct end *end, char **words)
{
    const char *mark = words[0];
    long warm = atol(words[1]), count = atol(words[2]);
    for (long i = 0; i < warm; i++)
        once(end);
    await_removal(mark);
    SOJOURN_TRACE();
    for (long i = 0; i < warm; i++)
        once(end);
    SOJOURN_BEGIN();
    for (long i = 0; i < count; i++)
        once(end);
    SOJOURN_END();
    await_removal(mark);
}

static void pipes(char **words)
{
    int there[2], back[2];
    if (pipe(there) != 0 || pipe(back) != 0)
        fail("pipe");
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0) {
        struct end far = { .in = there[0], .out = back[1] };
        close(there[1]);
        close(back[0]);
        answer(&far);
    }
    struct end near = { .in = back[0], .out = there[1] };
    close(there[0]);
    close(back[1]);
    trace(ping, &near, words);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static struct sockaddr_in address(char **words)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(words[1])) };
    if (inet_pton(AF_INET, words[0], &address.sin_addr) != 1)
        fail(words[0]);
    return address;
}

static int connected(int type, char **words)
{
    struct sockaddr_in to = address(words);
    int one = 1, socket_ = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    if (socket_ < 0 || connect(socket_, (struct sockaddr *)&to, sizeof to) != 0)
        fail("connect");
    if (type == SOCK_STREAM)
        setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return socket_;
}

// Makes a socket of the UDP server's, if there is one.
static int is_served(const struct sockaddr_in *local)
{
    const char *server = getenv("UDP_SERVER"), *path = getenv("UDP_LIBRARY");
    if (server == NULL || path == NULL)
        return 0;
    void *library = dlopen(path, RTLD_NOW);
    if (library == NULL)
        fail(dlerror());
    *(void **)&served.bind = dlsym(library, "sj_udp_bind");
    *(void **)&served.sendto = dlsym(library, "sj_udp_sendto");
    *(void **)&served.recvfrom = dlsym(library, "sj_udp_recvfrom");
    if (served.bind == NULL || served.sendto == NULL || served.recvfrom == NULL)
        fail(path);
    served.socket = served.bind(server, local, 0);
    if (served.socket == NULL)
        fail("sj_udp_bind");
    return 1;
}

static void answer_all(char **words)
{
    int is_udp = strcmp(words[1], "udp") == 0, one = 1;
    struct sockaddr_in here = address(words + 2), from;
    socklen_t length = sizeof from;
    struct end end = { .in = -1, .out = -1 };
    if (is_udp && is_served(&here)) {
        make(words[0]);
        answer(&end);
    }
    int socket_ = socket(AF_INET, (is_udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0);
    setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (socket_ < 0 || bind(socket_, (struct sockaddr *)&here, sizeof here) != 0)
        fail("bind");
    if (!is_udp && listen(socket_, 1) != 0)
        fail("listen");
    make(words[0]);
    if (is_udp) {
        char first;
        if (recvfrom(socket_, &first, 1, MSG_PEEK, (struct sockaddr *)&from, &length) < 0
            || connect(socket_, (struct sockaddr *)&from, length) != 0)
            fail("recvfrom");
    } else {
        socket_ = accept(socket_, NULL, NULL);
        if (socket_ < 0)
            fail("accept");
        setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    end.in = end.out = socket_;
    answer(&end);
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    if (count == 6 && strcmp(what, "answer") == 0) {
        answer_all(words + 2);
        return 0;
    }
    if (count == 5 && strcmp(what, "pipe") == 0) {
        pipes(words + 2);
        return 0;
    }
    if (count == 7 && what[0] != 'p') {
        struct sockaddr_in any = { .sin_family = AF_INET };
        struct end end = { .in = -1, .out = -1, .peer = address(words + 5) };
        int is_udp = strcmp(what, "udp") == 0;
        if (!is_udp || !is_served(&any))
            end.in = end.out = connected(is_udp ? SOCK_DGRAM : SOCK_STREAM, words + 5);
        trace(strcmp(what, "redis") == 0 ? store_and_load : ping, &end, words + 2);
        return 0;
    }
    fprintf(stderr, "usage: see the source\n");
    return 2;
}
