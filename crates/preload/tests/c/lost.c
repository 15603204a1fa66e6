/* Two processes send each other numbered bytes all the time, over a session that moves. One of them
   also offers new sessions to the server, so that it notices when the server does not answer; the
   other one sends the server nothing. `lost MS [tcp]` */
#include "check.h"

static int fd;
static int64_t end;
static volatile int is_over;

static unsigned char byte(unsigned long at) { return at % 251; }

static void *send_all(void *unused) {
    unsigned char b[3000];
    for (unsigned long at = 0; now_ms() < end;) {
        for (int i = 0; i < sizeof b; i++) b[i] = byte(at + i);
        long n = write(fd, b, 1 + at % sizeof b);
        CHECK(n > 0);
        at += n;
    }
    CHECK(!shutdown(fd, SHUT_WR));
    return 0;
}

static void *offer(void *unused) {
    while (!is_over) {
        int p[2];
        CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, p) && write(p[0], "a", 1) == 1 && write(p[1], "b", 1) == 1);
        poll(0, 0, 1), close(p[0]), close(p[1]);
    }
    return 0;
}

int main(int argc, char **argv) {
    int p[2], status = 0;
    unsigned char b[4096];
    pthread_t sender, other;
    alarm(50), signal(SIGPIPE, SIG_IGN), end = now_ms() + atoi(argv[1]);
    CHECK(!(argc > 2 ? tcp_pair(p) : socketpair(AF_UNIX, SOCK_STREAM, 0, p)));
    int child = fork();
    fd = p[child == 0], close(p[child != 0]);
    CHECK(!pthread_create(&sender, 0, send_all, 0) && (!child || !pthread_create(&other, 0, offer, 0)));
    unsigned long at = 0;
    for (long n; (n = read(fd, b, sizeof b)) != 0;) {
        CHECK(n > 0);
        for (long i = 0; i < n; i++) CHECK(b[i] == byte(at++));
    }
    pthread_join(sender, 0), is_over = 1;
    if (!child) return 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    pthread_join(other, 0), puts("done");
    return 0;
}
