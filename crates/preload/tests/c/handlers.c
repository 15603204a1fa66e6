/* Signal handlers that arrive at any moment, also in the middle of `malloc` and of the library's
   own code, and make calls that POSIX allows in handlers. `handlers HOW [KIND]`: HOW is `plain` or
   `alternate` (the handler's stack), `pipe` (the self-pipe of a SIGCHLD handler) or `jump` (the
   handler leaves by siglongjmp). A child is the peer of a session, and every byte is checked; the
   handler uses a second session. */
#include "check.h"
#include <sys/resource.h>

enum { ROUNDS = 4000 };
static int s[2], t[2], self[2], ep, door, is_tcp;
static struct sockaddr_in at;
static socklen_t at_len = sizeof at;
static volatile sig_atomic_t ran, jumps, may_jump, children;
static sigjmp_buf back;
static unsigned long sent, got; /* bytes on the handler's session */

/* The program's malloc, which must not be called while the handler runs. */
static __thread volatile int is_handling;
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static void look(void) {
    if (is_handling) write(2, "memory in the handler\n", 22), abort();
}

void *malloc(size_t n) { return look(), __libc_malloc(n); }
void *calloc(size_t n, size_t m) { return look(), __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { return look(), __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { return look(), __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { return look(), (*p = __libc_memalign(a, n)) == 0; }
void free(void *p) { look(), __libc_free(p); }

static int pair(int p[2]) { return is_tcp ? tcp_pair(p) : socketpair(AF_UNIX, SOCK_STREAM, 0, p); }

/* Sends all bytes back. */
static void echo(int fd) {
    char b[4096];
    long n;
    while ((n = read(fd, b, sizeof b)) > 0)
        for (long done = 0, more; done < n; done += more) CHECK((more = write(fd, b + done, n - done)) > 0);
    _exit(0);
}

static int echoing(void) {
    int p[2];
    CHECK(!pair(p));
    if (fork() == 0) {
        setitimer(ITIMER_REAL, &(struct itimerval){0}, 0);
        close(p[0]);
        echo(p[1]);
    }
    close(p[1]);
    return p[0];
}

/* Calls that a handler may make. `fork` is not among them, because it takes the locks of malloc.
   The bytes of the handler's session are numbered; a byte suffices, because at most some hundred
   are under way. */
static void busy(int number) {
    int error = errno;
    unsigned char c = (unsigned char)sent, all[64];
    is_handling = 1, ran++;
    if (sent - got < 300 && write(t[0], &c, 1) == 1) sent++;
    struct pollfd one = {t[0], POLLIN, 0};
    struct epoll_event event;
    fd_set set;
    FD_ZERO(&set);
    FD_SET(t[0], &set);
    poll(&one, 1, 0), select(t[0] + 1, &set, 0, 0, &(struct timeval){0}), epoll_wait(ep, &event, 1, 0);
    struct iovec v = {all, sizeof all};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    long n = ran % 2 ? recvmsg(t[0], &m, MSG_DONTWAIT) : recv(t[0], all, sizeof all, MSG_DONTWAIT);
    for (long i = 0; i < n; i++) if (all[i] != (unsigned char)got++) write(2, "wrong byte in the handler\n", 26), _exit(1);
    /* Descriptors are made and closed. */
    int p[2], value, copy;
    if (pipe(p) == 0) {
        char d;
        v.iov_len = 5, write(p[1], all, 2), writev(p[1], &v, 1), read(p[0], &d, 1), readv(p[0], &v, 1);
        copy = dup(p[0]), fcntl(copy, F_GETFL), dup2(p[0], copy), close(copy), close(p[0]), close(p[1]);
    }
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, p) == 0) {
        v.iov_len = 5, sendmsg(p[0], &m, 0), send(p[0], all, 1, 0), sendto(p[1], all, 1, 0, 0, 0);
        shutdown(p[0], SHUT_WR), close(p[0]), close(p[1]);
    }
    if (ran % 16 == 0 && (p[0] = socket(AF_INET, SOCK_STREAM, 0)) >= 0) {
        if (connect(p[0], (void *)&at, sizeof at) == 0 && (p[1] = accept(door, 0, 0)) >= 0)
            setsockopt(p[1], SOL_SOCKET, SO_KEEPALIVE, &(int){1}, 4), getsockopt(p[1], SOL_SOCKET, SO_TYPE, &value, &(socklen_t){4}), close(p[1]);
        close(p[0]);
    }
    sigaction(SIGUSR2, &(struct sigaction){.sa_handler = SIG_IGN}, 0);
    if (ran % 200 == 0) {
        pid_t child = _Fork();
        if (child == 0) _exit(write(p[0], "x", 1) == 9);
        waitpid(child, 0, 0);
    }
    errno = error, is_handling = 0;
    if (may_jump) may_jump = 0, jumps++, siglongjmp(back, 1);
}

static void reaped(int number) {
    int error = errno;
    is_handling = 1;
    while (waitpid(-1, 0, WNOHANG) > 0) children++;
    write(self[1], "c", 1);
    errno = error, is_handling = 0;
}

static void *noise(void *stop) {
    while (!*(volatile int *)stop) {
        void *all[8];
        for (int i = 0; i < 8; i++) all[i] = malloc(2000 + 700 * i);
        for (int i = 0; i < 8; i++) free(all[i]);
    }
    return 0;
}

static void allocate(unsigned *seed) {
    void *all[16];
    for (int i = 0; i < 16; i++) all[i] = malloc(rand_r(seed) % 3000 + 1), memset(all[i], i, 1);
    for (int i = 0; i < 16; i++) all[i] = realloc(all[i], rand_r(seed) % 6000 + 1);
    for (int i = 0; i < 16; i++) free(all[i]);
}

/* The main program's work: allocates, and has a session of its own, whose bytes must come back. */
static void work(int rounds) {
    unsigned seed = 1;
    static unsigned char out[2048], in[2048];
    for (int round = 0; round < rounds; round++) {
        size_t n = rand_r(&seed) % sizeof out + 1, done = 0;
        for (size_t i = 0; i < n; i++) out[i] = (unsigned char)(round + i);
        allocate(&seed);
        for (size_t more; done < n; done += more) CHECK((long)(more = write(s[0], out + done, n - done)) > 0 || (more = 0, errno == EINTR));
        for (done = 0; done < n;) {
            struct pollfd one = {s[0], POLLIN, 0};
            if (round % 3 == 0) poll(&one, 1, -1);
            long more = recv(s[0], in + done, n - done, 0);
            CHECK(more > 0 || (more == -1 && errno == EINTR));
            if (more > 0) done += more;
        }
        CHECK(memcmp(in, out, n) == 0);
        allocate(&seed);
    }
}

static void tick(int us) { CHECK(!setitimer(ITIMER_REAL, &(struct itimerval){{0, us}, {0, us}}, 0)); }

static void pipes(void) {
    CHECK(!pipe2(self, O_NONBLOCK | O_CLOEXEC));
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = reaped, .sa_flags = SA_RESTART}, 0);
    unsigned seed = 2;
    char b[64];
    for (int i = 0; i < 300; i++) {
        if (fork() == 0) _exit(0);
        for (int told = 0; !told;) {
            allocate(&seed);
            struct pollfd one = {self[0], POLLIN, 0};
            if (poll(&one, 1, 10000) == 0) CHECK(!"a child's end is told");
            told = read(self[0], b, sizeof b) > 0;
        }
    }
    while (children < 300) poll(0, 0, 1);
}

int main(int argc, char **argv) {
    const char *how = argv[1];
    is_tcp = argc > 2 && !strcmp(argv[2], "tcp");
    int rounds = argc > 3 ? atoi(argv[3]) : ROUNDS, stop = 0;
    alarm(0), signal(SIGPIPE, SIG_IGN);
    if (!strcmp(how, "pipe")) return pipes(), puts("done"), 0;
    s[0] = echoing(), t[0] = echoing();
    at.sin_family = AF_INET, at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    door = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(!bind(door, (void *)&at, sizeof at) && !listen(door, 16) && !getsockname(door, (void *)&at, &at_len));
    fcntl(door, F_SETFL, O_NONBLOCK);
    CHECK((ep = epoll_create1(0)) >= 0 && !epoll_ctl(ep, EPOLL_CTL_ADD, t[0], &(struct epoll_event){.events = EPOLLIN}));
    struct sigaction a = {.sa_handler = busy, .sa_flags = SA_RESTART};
    if (!strcmp(how, "alternate")) {
        CHECK(!sigaltstack(&(stack_t){.ss_sp = malloc(SIGSTKSZ), .ss_size = SIGSTKSZ}, 0));
        a.sa_flags |= SA_ONSTACK;
    }
    sigaction(SIGALRM, &a, 0);
    pthread_t thread;
    sigset_t alarms, before;
    sigemptyset(&alarms), sigaddset(&alarms, SIGALRM), pthread_sigmask(SIG_BLOCK, &alarms, &before);
    CHECK(!pthread_create(&thread, 0, noise, &stop));
    pthread_sigmask(SIG_SETMASK, &before, 0);
    tick(700);
    if (!strcmp(how, "jump")) {
        /* The handler jumps out of a loop that holds no resources, and back into it. */
        for (volatile int i = 0; i < 500; i++) {
            if (sigsetjmp(back, 1) == 0)
                for (may_jump = 1; may_jump;) {
                    char c;
                    recv(s[0], &c, 1, 0);
                }
            work(4);
        }
    } else do work(rounds); while (ran <= 100); /* A fast machine needs more rounds for the same number of ticks. */
    /* From here on no signal that was put off can arrive between reading a byte and counting it. */
    tick(0), pthread_sigmask(SIG_BLOCK, &alarms, 0), stop = 1;
    CHECK(!pthread_join(thread, 0) && ran > 100);
    /* Waits until all bytes of the handler have come back. */
    while (got < sent) {
        unsigned char c;
        CHECK(read(t[0], &c, 1) == 1 && c == (unsigned char)got++);
    }
    puts("done");
    return 0;
}
