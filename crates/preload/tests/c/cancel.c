/* A cancelled thread ends in any call in which it waits, and its clean-up handlers run. */
#include "check.h"

static int p[2], s[2], door, set;
static volatile int entered, cleaned;

static void clean(void *x) { (void)x, cleaned = 1; }

static void *work(void *how) {
    char b[8];
    fd_set r;
    struct iovec v = {b, 8};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    FD_ZERO(&r);
    FD_SET(p[0], &r);
    pthread_cleanup_push(clean, 0);
    entered = 1;
    switch ((intptr_t)how) {
    case 0: read(p[0], b, 8); break;
    case 1: recv(s[0], b, 8, 0); break;
    case 2: recvmsg(s[0], &m, 0); break;
    case 3: readv(p[0], &v, 1); break;
    case 4: accept(door, 0, 0); break;
    case 5: poll(&(struct pollfd){p[0], POLLIN, 0}, 1, -1); break;
    case 6: select(p[0] + 1, &r, 0, 0, 0); break;
    case 7: epoll_wait(set, &(struct epoll_event){0}, 1, -1); break;
    case 8: recvfrom(s[0], b, 8, 0, 0, 0); break;
    case 9: ppoll(&(struct pollfd){p[0], POLLIN, 0}, 1, 0, 0); break;
    case 10: pause(); break;
    }
    pthread_cleanup_pop(0);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 1) {
        /* Each in a process of its own, because the first cancellation sends all sessions home. */
        for (int how = 0; how <= 10; how++) {
            char number[8];
            snprintf(number, sizeof number, "%d", how);
            pid_t c = fork();
            if (c == 0) execl("/proc/self/exe", "cancel", number, (char *)0);
            int status;
            CHECK(waitpid(c, &status, 0) == c);
            CHECK(status == 0);
        }
        return 0;
    }
    alarm(20);
    struct epoll_event e = {.events = EPOLLIN};
    CHECK(!pipe(p) && !socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    door = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(0);
    CHECK(!listen(door, 1) && !epoll_ctl(set, EPOLL_CTL_ADD, p[0], &e));
    /* First a thread that waits in the call, then a thread that is cancelled before the call. */
    for (int early = 0; early < 2; early++) {
        pthread_t t;
        void *result = 0;
        entered = cleaned = 0;
        CHECK(!pthread_create(&t, 0, work, (void *)(intptr_t)atoi(argv[1])));
        while (!entered) sched_yield();
        if (!early) usleep(50000);
        CHECK(!pthread_cancel(t) && !pthread_join(t, &result));
        CHECK(result == PTHREAD_CANCELED && cleaned);
    }
    /* The other threads go on as before. */
    char b[8];
    CHECK(write(p[1], "x", 1) == 1 && read(p[0], b, 8) == 1);
    return 0;
}
