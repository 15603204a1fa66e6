/* poll, select and epoll. */
#include "check.h"

static fd_set only(int fd) {
    fd_set set;
    FD_ZERO(&set);
    if (fd >= 0) FD_SET(fd, &set);
    return set;
}

static void selects(int in, int out) {
    fd_set r = only(in), w = only(out), x = only(in);
    struct timeval t = {0, 0};
    char b[8];
    int top = (in > out ? in : out) + 1;
    SAY(select(top, &r, &w, &x, &t));
    SAY(FD_ISSET(in, &r) * 4 + FD_ISSET(out, &w) * 2 + FD_ISSET(in, &x));
    r = only(in), t = (struct timeval){0, 30000};
    int64_t start = now_ms();
    SAY(select(top, &r, 0, 0, &t));
    CHECK(now_ms() - start >= 29 && now_ms() - start < 2000);
    SAY(t.tv_sec + t.tv_usec);
    SAY(FD_ISSET(in, &r));
    SAY(write(out, "abc", 3));
    r = only(in), w = only(out), t = (struct timeval){5, 0};
    SAY(select(top, &r, &w, 0, &t));
    CHECK(t.tv_sec >= 4 && t.tv_sec + t.tv_usec > 0);
    r = only(in);
    SAY(select(top, &r, 0, 0, 0));
    r = only(in);
    SAY(pselect(top, &r, 0, 0, &(struct timespec){0, 0}, 0));
    r = only(in);
    SAY(select(0, &r, 0, 0, &(struct timeval){0, 1000}));
    SAY(select(-1, &r, 0, 0, 0));
    SAY(select(top, &r, 0, 0, &(struct timeval){-1, 0}));
    SAY(select(top, (void *)8, 0, 0, 0));
    /* With a descriptor below 64 the kernel need not look at the other words of the sets. */
    r = only(50);
    SAY(select(51, &r, 0, 0, 0));
    SAY(FD_ISSET(50, &r));
    SAY(read(in, b, 8));
}

static void polls(int in, int out) {
    struct pollfd f[4] = {{in, POLLIN, 9}, {out, POLLOUT, 9}, {-1, POLLIN, 9}, {700, POLLIN, 9}};
    char b[8];
    SAY(poll(f, 4, 0));
    for (int i = 0; i < 4; i++) SAY(f[i].revents);
    SAY(poll(f, 1, 20));
    SAY(poll(0, 0, 10));
    SAY(poll((void *)8, 1, 10));
    SAY(write(out, "x", 1));
    SAY(poll(f, 1, -1));
    f[0].events = POLLIN | POLLRDNORM | POLLPRI;
    SAY(ppoll(f, 1, &(struct timespec){1, 0}, 0));
    SAY(f[0].revents);
    SAY(ppoll(f, 1, &(struct timespec){1, 2000000000}, 0));
    SAY(read(in, b, 8));
    f[0].events = 0;
    SAY(poll(f, 1, 0));
}

static void epolls(int in, int out) {
    int set = epoll_create1(EPOLL_CLOEXEC), outer = epoll_create(1);
    struct epoll_event e = {EPOLLIN, {.u64 = 0x123456789abcdef}}, got[4];
    char b[8];
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, in, &e));
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, in, &e));
    SAY(epoll_ctl(set, EPOLL_CTL_MOD, out, &e));
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, 700, &e));
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, out, (void *)8));
    SAY(epoll_ctl(700, EPOLL_CTL_ADD, in, &e));
    SAY(epoll_ctl(set, 9, in, &e));
    SAY(epoll_wait(set, got, 4, 0));
    SAY(epoll_wait(set, got, 4, 20));
    SAY(epoll_wait(set, got, 0, 0));
    SAY(epoll_wait(in, got, 1, 0));
    SAY(epoll_wait(700, got, 1, 0));
    SAY(write(out, "x", 1));
    SAY(epoll_wait(set, (void *)8, 1, -1));
    SAY(epoll_wait(set, got, 4, -1));
    CHECK(got[0].events == EPOLLIN && got[0].data.u64 == 0x123456789abcdef);
    SAY(epoll_pwait2(set, got, 4, &(struct timespec){1, 0}, 0));
    e.data.fd = set;
    SAY(epoll_ctl(outer, EPOLL_CTL_ADD, set, &e));
    SAY(epoll_wait(outer, got, 4, 100));
    SAY(poll(&(struct pollfd){set, POLLIN, 0}, 1, 100));
    e.events = EPOLLIN | EPOLLET;
    SAY(epoll_ctl(set, EPOLL_CTL_MOD, in, &e));
    SAY(epoll_wait(set, got, 4, 0));
    SAY(epoll_wait(set, got, 4, 0));
    SAY(write(out, "y", 1));
    SAY(epoll_wait(set, got, 4, 0));
    e.events = EPOLLIN | EPOLLONESHOT;
    SAY(epoll_ctl(set, EPOLL_CTL_MOD, in, &e));
    SAY(epoll_wait(set, got, 4, 0));
    SAY(epoll_wait(set, got, 4, 0));
    SAY(epoll_ctl(set, EPOLL_CTL_DEL, in, 0));
    SAY(epoll_wait(set, got, 4, 0));
    SAY(read(in, b, 8));
    close(set);
    close(outer);
}

static void *late(void *fd) {
    usleep(20000);
    CHECK(write(*(int *)fd, "z", 1) == 1);
    return 0;
}

int main(void) {
    int p[2], pairs[3][2];
    pthread_t t;
    char b[8];
    CHECK(!pipe(pairs[0]) && !socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[1]) && !tcp_pair(pairs[2]));
    for (int i = 0; i < 3; i++) {
        int in = pairs[i][0], out = pairs[i][1];
        /* After these calls the library has an entry for the descriptors, too. */
        CHECK(write(out, "q", 1) == 1 && read(in, b, 1) == 1);
        selects(in, out);
        polls(in, out);
        epolls(in, out);
        CHECK(!pthread_create(&t, 0, late, &out));
        fd_set r = only(in);
        SAY(select(in + 1, &r, 0, 0, 0));
        pthread_join(t, 0);
        /* Hang-up is reported only in the sets that include it. */
        close(out);
        fd_set x = only(in);
        SAY(select(in + 1, 0, 0, &x, &(struct timeval){0, 20000}));
        r = only(in);
        SAY(select(in + 1, &r, 0, 0, 0));
        struct pollfd f = {in, POLLIN | POLLRDHUP, 0};
        SAY(poll(&f, 1, 0));
        SAY(f.revents);
    }
    CHECK(!pipe(p));
    close(p[0]);
    struct pollfd f = {p[1], POLLOUT, 0};
    SAY(poll(&f, 1, 0));
    SAY(f.revents);
    return 0;
}
