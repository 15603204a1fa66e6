/* The same calls on a session that is away from the kernel. A child is the peer, and gets its
   orders through a pipe. */
#include "peer.h"
#include <aio.h>
#include <wordexp.h>

/* The names that headers use in place of the ordinary functions (fortification), and those that
   other libraries call. None of these calls waits: if one bypassed the library, it would find
   neither bytes nor room, and fail. */
extern ssize_t __read(int, void *, size_t), __write(int, const void *, size_t), __send(int, const void *, size_t, int);
extern int __poll(struct pollfd *, nfds_t, int), __select(int, fd_set *, fd_set *, fd_set *, struct timeval *);
extern ssize_t __read_chk(int, void *, size_t, size_t), __recv_chk(int, void *, size_t, size_t, int);
extern ssize_t __recvfrom_chk(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);
extern int __poll_chk(struct pollfd *, nfds_t, int, size_t);
extern int __ppoll_chk(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);

#ifdef THREAD_LOCAL
/* The C library puts it on the stacks of new threads, the library's own too. */
__thread char storage[THREAD_LOCAL];
#endif

static void names(void) {
    char b[64];
    struct pollfd one = {s, POLLIN, 0};
    struct timespec soon = {1, 0};
    struct timeval then = {1, 0};
    fd_set in;
    SAY(fcntl(s, F_SETFL, O_NONBLOCK));
    SAY(__read(s, b, 1)), SAY(__read_chk(s, b, 1, 64)), SAY(__recv_chk(s, b, 1, 64, 0)), SAY(__recvfrom_chk(s, b, 1, 64, 0, 0, 0));
    SAY(__poll(&one, 1, 0)), SAY(__poll_chk(&one, 1, 0, sizeof one));
    SAY(ask('s', 50));
    SAY(__poll(&one, 1, 1000)), SAY(__poll_chk(&one, 1, 1000, sizeof one)), SAY(__ppoll_chk(&one, 1, &soon, 0, sizeof one));
    FD_ZERO(&in);
    FD_SET(s, &in);
    SAY(__select(s + 1, &in, 0, 0, &then)), SAY(FD_ISSET(s, &in) != 0);
    SAY(__read(s, b, 5)), SAY(__read_chk(s, b, 6, 64)), SAY(__recv_chk(s, b, 7, 64, 0));
    SAY(__recvfrom_chk(s, b, 8, 64, MSG_PEEK, 0, 0)), SAY(__recvfrom_chk(s, b, 64, 64, 0, 0, 0));
    SAY(__write(s, b, 9)), SAY(__send(s, b, 10, 0)), SAY(ask('r', 19));
    CHECK(!getenv("LD_PRELOAD") || is_away());
    /* The buffer is too small for the length, so the C library ends the program. */
    pid_t child = fork();
    if (child == 0) {
        close(2);
        __read_chk(s, b, 65, 64);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    SAY(WTERMSIG(status));
}

static void calls(void) {
    char b[256];
    void *none = mmap(0, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct iovec v[2] = {{b, 3}, {b + 8, 100}};
    struct sockaddr_storage who;
    socklen_t len = sizeof who;
    int n = -1;
    SAY(recv(s, b, 1, MSG_DONTWAIT));
    SAY(ask('s', 20));
    SAY(recv(s, b, 4, MSG_PEEK));
    SAY(ioctl(s, FIONREAD, &n)), SAY(n);
    SAY(read(s, none, 4)), SAY(read(s, 0, 4)), SAY(readv(s, none, 1)), SAY(recvmsg(s, none, 0));
    SAY(write(s, none, 4)), SAY(writev(s, (void *)8, 1)), SAY(sendmsg(s, (void *)8, 0));
    SAY(readv(s, v, 2));
    SAY(ask('s', 5)), SAY(recvfrom(s, b, 9, 0, (void *)&who, &len)), SAY(len);
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2, .msg_name = &who, .msg_namelen = sizeof who, .msg_control = b + 128, .msg_controllen = 64, .msg_flags = 99};
    SAY(ask('s', 50)), SAY(recvmsg(s, &m, MSG_CMSG_CLOEXEC));
    SAY(m.msg_namelen), SAY(m.msg_controllen), SAY(m.msg_flags);
    tell('w', 6), SAY(recv(s, b, 6, MSG_WAITALL));
    SAY(fcntl(s, F_SETFL, O_NONBLOCK)), SAY(read(s, b, 1)), SAY(fcntl(s, F_SETFL, 0));
    struct timeval t = {0, 30000};
    SAY(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t)), SAY(read(s, b, 1));
    t.tv_usec = 0, SAY(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    /* The far end of the buffer is inaccessible, but the call does not need it. */
    char *edge = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(edge + 4096, 4096, PROT_NONE);
    SAY(ask('s', 9)), SAY(read(s, edge + 4080, 1000000));
    munmap(edge, 8192), SAY(ask('s', 1)), SAY(read(s, edge, 1)), SAY(read(s, b, 1));
    /* Large transfers. */
    char *big = malloc(1 << 20);
    long all = 0, got;
    tell('s', 1 << 20);
    for (; all < 1 << 20; all += got) CHECK((got = read(s, big, 1 << 20)) > 0);
    CHECK(read(answers[0], &all, 8) == 8);
    tell('r', 1 << 20), SAY(write(s, big, 1 << 20)), CHECK(read(answers[0], &all, 8) == 8);
    tell('s', 1 << 20), SAY(recv(s, big, 1 << 20, MSG_WAITALL)), CHECK(read(answers[0], &all, 8) == 8);
    free(big);
}

static void waits(void) {
    char b[8];
    fd_set r, w;
    struct pollfd f = {s, POLLIN, 0};
    FD_ZERO(&r); FD_SET(s, &r); w = r;
    SAY(poll(&f, 1, 20)), f.events = POLLIN | POLLOUT, SAY(poll(&f, 1, 20)), SAY(f.revents);
    SAY(select(s + 1, &r, &w, 0, &(struct timeval){1, 0})), SAY(FD_ISSET(s, &r) * 2 + FD_ISSET(s, &w));
    FD_SET(s, &r); SAY(select(s + 1, &r, 0, 0, &(struct timeval){0, 20000}));
    tell('w', 1); FD_SET(s, &r); SAY(select(s + 1, &r, 0, 0, 0)), SAY(read(s, b, 8));
    f.events = POLLIN, tell('w', 1), SAY(poll(&f, 1, -1)), SAY(f.revents), SAY(read(s, b, 8));
    tell('w', 1), SAY(ppoll(&f, 1, &(struct timespec){5, 0}, &(sigset_t){0})), SAY(read(s, b, 8));
}

static volatile sig_atomic_t ran;
static void count(int n) { (void)n, ran++; }

static void *poke(void *to) {
    usleep(50000), pthread_kill(*(pthread_t *)to, SIGUSR1);
    return 0;
}

static void interruptions(void) {
    char b[8];
    pthread_t me = pthread_self(), t;
    for (int flags = 0; flags < 2; flags++) {
        struct sigaction a = {.sa_handler = count, .sa_flags = flags ? SA_RESTART : 0};
        ran = 0, sigaction(SIGUSR1, &a, 0);
        CHECK(!pthread_create(&t, 0, poke, &me));
        if (flags) usleep(0), tell('w', 1);
        SAY(read(s, b, 8)), pthread_join(t, 0), SAY(ran);
        CHECK(!pthread_create(&t, 0, poke, &me));
        SAY(poll(&(struct pollfd){s, POLLIN, 0}, 1, 5000)), pthread_join(t, 0), SAY(ran);
    }
    /* Often enough to hit every gap. Each signal must end a wait or arrive before it. */
    struct sigaction a = {.sa_handler = count};
    sigaction(SIGALRM, &a, 0);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 300}, {0, 300}}, 0);
    for (int i = 0; i < 500; i++) {
        CHECK(read(s, b, 1) == -1 && errno == EINTR);
        CHECK(poll(&(struct pollfd){s, POLLIN, 0}, 1, -1) == -1 && errno == EINTR);
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, 0);
    SAY(ask('s', 1)), SAY(read(s, b, 8));
}

static volatile sig_atomic_t next, wrong;
static void in_order(int n, siginfo_t *i, void *c) {
    (void)n, (void)c;
    if (i->si_value.sival_int != next++) wrong++;
}

static void *queue(void *to) {
    for (int i = 0; i < 20000; i++)
        while (pthread_sigqueue(*(pthread_t *)to, SIGRTMIN + 1, (union sigval){.sival_int = i})) sched_yield();
    return 0;
}

/* Signals at any moment of calls on a session: no signal is lost or out of order, and no byte
   either. */
static void storm(void) {
    char b[64];
    pthread_t me = pthread_self(), t;
    struct sigaction a = {.sa_sigaction = in_order, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGRTMIN + 1, &a, 0);
    CHECK(!pthread_create(&t, 0, queue, &me));
    for (int i = 0; next < 20000; i++) {
        memset(b, i, 64), errno = 77;
        CHECK(write(s, b, 64) == 64 && errno == 77 && ask('r', 64) == 64);
        CHECK(ask('s', 64) == 64 && recv(s, b, 64, MSG_WAITALL) > 0 && errno == 77);
        while (recv(s, b, 64, MSG_DONTWAIT) > 0) {}
    }
    pthread_join(t, 0);
    SAY(next), SAY(wrong);
}

static void *waiter(void *how) {
    char b[8];
    fd_set r;
    FD_ZERO(&r); FD_SET(s, &r);
    if (how == 0) read(s, b, 1);
    if (how == (void *)1) poll(&(struct pollfd){s, POLLIN, 0}, 1, -1);
    if (how == (void *)2) select(s + 1, &r, 0, 0, 0);
    return 0;
}

static void cancelled(int how) {
    pthread_t t;
    void *result;
    char b[8];
    CHECK(!pthread_create(&t, 0, waiter, (void *)(intptr_t)how));
    usleep(50000);
    CHECK(!pthread_cancel(t) && !pthread_join(t, &result) && result == PTHREAD_CANCELED);
    SAY(ask('s', 3)), SAY(read(s, b, 8)), SAY(write(s, b, 3)), SAY(ask('r', 3));
}

static void processes(void) {
    char b[64], number[16];
    int status;
    snprintf(number, sizeof number, "%d", s);
    pid_t c = vfork();
    if (c == 0) {
        dup2(s, 9), close(s);
        execl("/bin/sh", "sh", "-c", "printf vfork >&9", (char *)0);
        _exit(1);
    }
    CHECK(waitpid(c, &status, 0) == c && status == 0);
    SAY(ask('r', 5)), SAY(write(s, b, 4)), SAY(ask('r', 4)), warm();
    if ((c = fork()) == 0) _exit(write(s, "fork", 4) == 4 && read(s, b, 64) == 7 ? 0 : 1);
    SAY(ask('r', 4)), SAY(ask('s', 7));
    CHECK(waitpid(c, &status, 0) == c && status == 0);
    SAY(ask('s', 2)), SAY(read(s, b, 64)), warm();
    /* A daemon closes all inherited descriptors, also those that the library uses, before it uses a
       session that is away. */
    if ((c = fork()) == 0) {
        CHECK((s == 3 || !close_range(3, s - 1, 0)) && !close_range(s + 1, ~0u, 0));
        _exit(write(s, "alone", 5) == 5 ? 0 : 1);
    }
    SAY(ask('r', 5));
    CHECK(waitpid(c, &status, 0) == c && status == 0);
    posix_spawn_file_actions_t acts;
    posix_spawn_file_actions_init(&acts), posix_spawn_file_actions_adddup2(&acts, s, 1);
    CHECK(!posix_spawn(&c, "/bin/echo", &acts, 0, (char *[]){"echo", "spawned", 0}, environ));
    CHECK(waitpid(c, &status, 0) == c && status == 0);
    SAY(ask('r', 8));
}

static void stdio(void) {
    /* Descriptors 0 and 1, first with plain calls, then with stdio. */
    int kept = s;
    char b[64] = "";
    CHECK(dup2(s, 0) == 0 && dup2(s, 1) == 1), close(s), s = 0;
    warm();
    s = kept;
    SAY(printf("by stdio\n")), SAY(fflush(stdout)), SAY(ask('r', 9));
    SAY(ask('s', 4)), SAY(fread(b, 1, 4, stdin)), SAY(write(1, "x", 1)), SAY(ask('r', 1));
    close(0), close(1);
}

static void inner(void) {
    char b[8];
    struct aiocb block = {.aio_fildes = s, .aio_buf = b, .aio_nbytes = 8};
    SAY(dprintf(s, "%s %d %.1f\n", "direct", 5, 2.5)), SAY(ask('r', 13)), SAY(ask('s', 5));
    CHECK(!aio_read(&block));
    while (aio_error(&block) == EINPROGRESS) usleep(1000);
    SAY(aio_return(&block));
}

static void listed(void) {
    char b[8];
    struct aiocb block = {.aio_fildes = s, .aio_buf = b, .aio_nbytes = 8, .aio_lio_opcode = LIO_READ}, *list[2] = {0, &block};
    int64_t start = now_ms();
    SAY(ask('s', 5)), SAY(lio_listio(LIO_NOWAIT, list, 2, 0));
    while (aio_error(&block) == EINPROGRESS && now_ms() - start < 5000) usleep(1000);
    SAY(aio_error(&block)), SAY(aio_return(&block));
}

/* A shell that the C library starts inherits the descriptors without close-on-exec. */
static void expanded(void) {
    char text[80];
    wordexp_t words;
    snprintf(text, sizeof text, "$(timeout 5 head -c 5 <&%d | wc -c)", s);
    SAY(ask('s', 5)), SAY(wordexp(text, &words, 0));
    fprintf(stderr, "%s\n", words.we_wordv[0]);
}

static void ends(void) {
    char b[8];
    SAY(ask('s', 3)), SAY(ask('c', 0)), SAY(read(s, b, 2)), SAY(read(s, b, 8)), SAY(read(s, b, 8));
    signal(SIGPIPE, count), ran = 0;
    SAY(poll(&(struct pollfd){s, POLLIN | POLLRDHUP, 0}, 1, 1000));
    write(s, b, 1), usleep(20000), write(s, b, 1);
    SAY(write(s, b, 1)), SAY(ran > 0), SAY(send(s, b, 1, MSG_NOSIGNAL));
}

/* A program that learns in another way that the peer has ended the session finds the end at once,
   behind the bytes that the peer has sent. */
static void heard(int tcp) {
    char b[64];
    int status;
    for (const char *way = "CSBDREXK"; *way; way++)
        for (int i = 0; i < 3; i++) {
            struct pollfd one = {s, POLLIN | POLLRDHUP, 0};
            int is_over = *way == 'E' || *way == 'X' || *way == 'K';
            tell(*way, 20);
            if (is_over) CHECK(waitpid(peer, &status, 0) == peer);
            else CHECK(read(answers[0], b, sizeof(long)) == sizeof(long));
            SAY(recv(s, b, 64, MSG_DONTWAIT));
            SAY(poll(&one, 1, 0)), SAY(one.revents & (POLLIN | POLLRDHUP));
            SAY(recv(s, b, 64, MSG_DONTWAIT));
            close(s), close(told[1]), close(answers[0]);
            if (!is_over) CHECK(waitpid(peer, &status, 0) == peer && status == 0);
            begin(tcp);
        }
}

/* Ready descriptors are reported in the order in which they became ready; those of the kernel that
   were ready before come first. */
static void in_order_of_arrival(int tcp) {
    enum { N = 3 };
    int sessions[N], orders[N], done[N], p[2];
    pid_t peers[N];
    char b[64];
    end();
    is_cold = 1;
    for (int i = 0; i < N; i++) {
        begin(tcp);
        sessions[i] = s, orders[i] = told[1], done[i] = answers[0], peers[i] = peer;
    }
    /* Made after the last fork, so that no child can use the set. With each session two pipes
       move. */
    int set = epoll_create1(0);
    CHECK(set >= 0 && !pipe(p));
    CHECK(!epoll_ctl(set, EPOLL_CTL_ADD, p[0], &(struct epoll_event){EPOLLIN, {.u32 = 9}}));
    for (int i = 0; i < N; i++) {
        s = sessions[i], told[1] = orders[i], answers[0] = done[i], others = 3 * i + 2;
        CHECK(!epoll_ctl(set, EPOLL_CTL_ADD, s, &(struct epoll_event){EPOLLIN, {.u32 = i}}));
        warm(), switched();
    }
    for (int round = 0; round < 60; round++) {
        struct epoll_event found[8];
        /* The kernel removes a descriptor that was reported and is no longer ready from its list
           only in this call. */
        int before = epoll_wait(set, found, 8, 0);
        SAY(before);
        CHECK(write(p[1], b, 1) == 1);
        for (int i = 0; i < N; i++) {
            int at = (round % 2 ? round / 2 + i : round / 2 + N - i) % N;
            told[1] = orders[at], answers[0] = done[at];
            CHECK(ask('s', 1) == 1);
        }
        int n = epoll_wait(set, found, 8, 1000);
        SAY(n);
        for (int i = 0; i < n; i++) {
            SAY(found[i].data.u32);
            CHECK(read(found[i].data.u32 == 9 ? p[0] : sessions[found[i].data.u32], b, 1) == 1);
        }
    }
    for (int i = 1; i < N; i++) {
        s = sessions[i], told[1] = orders[i], answers[0] = done[i], peer = peers[i];
        end();
    }
    s = sessions[0], told[1] = orders[0], answers[0] = done[0], peer = peers[0];
}

static void numbers(void) {
    char b[8];
    int other = dup(s);
    SAY(write(other, b, 3)), SAY(ask('r', 3)), SAY(ask('s', 3)), SAY(read(s, b, 8)), SAY(close(other)), warm();
    SAY(shutdown(s, SHUT_WR)), SAY(ask('r', 1)), SAY(ask('s', 3)), SAY(read(s, b, 8));
    SAY(dup2(told[1], s) == s), SAY(read(s, b, 1));
}

int main(int argc, char **argv) {
    int tcp = argc > 2;
    alarm(60);
    begin(tcp);
    switch (argv[1][0]) {
    case 'c': calls(); break;
    case 'f': names(); break;
    case 'w': waits(); break;
    case 'i': interruptions(); break;
    case 'x': cancelled(argv[1][1] - '0'); break;
    case 'p': processes(); break;
    case 's': stdio(); break;
    case 'e': ends(); break;
    case 'h': heard(tcp); break;
    case 'o': in_order_of_arrival(tcp); break;
    case 'n': numbers(); break;
    case 't': storm(); break;
    case 'd': inner(); break;
    case 'l': listed(); break;
    case 'g': expanded(); break;
    }
    end();
    return 0;
}
