/* Data calls on pipes, Unix and TCP sockets: results, errors, unchanged errno, bad pointers. */
#include "check.h"

static void stream(int in, int out, int is_socket) {
    char b[64];
    void *none = mmap(0, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct iovec two[2] = {{"ab", 2}, {"cde", 3}};
    struct iovec into[2] = {{b, 1}, {b + 10, 30}};
    SAY(write(out, "hello", 5));
    SAY(read(in, b, 3));
    SAY(read(in, b, sizeof b));
    SAY(writev(out, two, 2));
    SAY(readv(in, into, 2));
    CHECK(b[0] == 'a' && !memcmp(b + 10, "bcde", 4));
    SAY(write(out, b, 0));
    SAY(read(in, b, 0));
    SAY(writev(out, two, 0));
    SAY(writev(out, two, -1));
    SAY(readv(in, into, 1025));
    SAY(write(out, none, 5));
    SAY(write(out, (void *)-4096, 5));
    SAY(write(out, 0, 5));
    SAY(write(out, "0123456789", 10));
    SAY(read(in, none, 5));
    SAY(read(in, 0, 5));
    SAY(readv(in, none, 1));
    SAY(read(in, b, (size_t)-1));
    into[1].iov_len = (size_t)-1;
    SAY(readv(in, into, 2));
    into[1].iov_len = 30;
    SAY(preadv2(in, into, 2, -1, 0));
    SAY(pwritev2(out, two, 2, -1, 0));
    SAY(preadv2(in, into, 1, -1, RWF_NOWAIT));
    SAY(preadv2(in, into, 2, 5, 0));
    SAY(read(in, b, sizeof b));
    if (is_socket) {
        SAY(send(out, "wxyz", 4, MSG_NOSIGNAL));
        SAY(recv(in, b, 2, MSG_PEEK));
        SAY(recv(in, b, 4, MSG_WAITALL));
        SAY(recv(in, b, 4, MSG_DONTWAIT));
        SAY(send(out, none, 4, 0));
        SAY(send(out, "q", 1, MSG_MORE));
        SAY(send(out, "r", 1, 0));
        SAY(recv(in, b, 1, MSG_CMSG_CLOEXEC));
        SAY(recv(in, none, 1, 0));
        SAY(recv(in, b, 8, MSG_DONTWAIT));
        SAY(recv(in, b, 8, MSG_ERRQUEUE | MSG_DONTWAIT));
        struct sockaddr_storage who;
        socklen_t len = sizeof who;
        SAY(sendto(out, "st", 2, 0, 0, 0));
        SAY(recvfrom(in, b, 8, 0, (void *)&who, &len));
        SAY(len);
    } else {
        SAY(send(out, "x", 1, 0));
        SAY(recv(in, b, 1, 0));
    }
    int n = -1;
    SAY(write(out, "four", 4));
    SAY(ioctl(in, FIONREAD, &n));
    SAY(n);
    SAY(ioctl(in, FIONREAD, none));
    n = 1;
    SAY(ioctl(in, FIONBIO, &n));
    SAY(read(in, b, 8));
    SAY(read(in, b, 8));
    SAY(fcntl(in, F_SETFL, fcntl(in, F_GETFL) & ~O_NONBLOCK));
    /* The far end of the buffer is inaccessible: the bytes that fit before it are delivered. */
    char *edge = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(edge + 4096, 4096, PROT_NONE);
    SAY(write(out, "edge", 4));
    SAY(read(in, edge + 4092, 1000));
    SAY(fcntl(in, F_SETFL, O_NONBLOCK));
    /* Calls that send files, and calls that only the kernel serves. */
    char name[] = "/tmp/sojourn-io-XXXXXX";
    int file = mkstemp(name);
    unlink(name);
    off_t at = 2;
    SAY(write(file, "0123456789", 10));
    SAY(sendfile(out, file, &at, 4));
    SAY(at);
    SAY(read(in, b, 8));
    SAY(sendfile(out, file, none, 4));
    SAY(sendfile(out, -1, 0, 4));
    close(file);
    int p[2];
    CHECK(!pipe(p));
    SAY(write(out, "spliced", 7));
    SAY(splice(in, 0, p[1], 0, 100, 0));
    SAY(read(p[0], b, 10));
    close(p[0]);
    close(p[1]);
    /* The end of the stream. */
    close(out);
    SAY(read(in, b, 8));
    SAY(read(in, b, 8));
    close(in);
    SAY(read(in, b, 8));
    SAY(write(out, b, 8));
    SAY(read(-1, b, 8));
}

int main(void) {
    int p[2];
    signal(SIGPIPE, SIG_IGN);
    CHECK(!pipe(p));
    stream(p[0], p[1], 0);
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, p));
    stream(p[0], p[1], 1);
    CHECK(!tcp_pair(p));
    stream(p[0], p[1], 1);
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, p));
    close(p[0]);
    SAY(write(p[1], "x", 1));
    SAY(send(p[1], "x", 1, 0));
    SAY(pipe((void *)1));
    SAY(socket(99, 1, 1));
    SAY(setsockopt(p[1], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0, 20000}, sizeof(struct timeval)));
    SAY(shutdown(p[1], 7));
    /* Enough calls to make a move worthwhile, but there is no server. */
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, p));
    for (int i = 0; i < 20000; i++) {
        int64_t word = i;
        CHECK(write(p[0], &word, 8) == 8);
        CHECK(read(p[1], &word, 8) == 8 && word == i);
    }
    return 0;
}
