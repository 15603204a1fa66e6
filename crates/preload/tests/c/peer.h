/* A session and its peer: a child that gets its orders through a pipe. */
#include "check.h"
#include "away.h"
#include <netinet/tcp.h>

static int s, told[2], answers[2];
/* The number of sessions that are away, without this one. */
static int others;
/* True if the session must not be used before the test uses it. */
static int is_cold;
/* True if the session is not expected to move. */
static int stays;
/* A descriptor that the peer closes. */
static int inherited = -1;
static pid_t peer;

/* The peer's orders: 's' sends n bytes; 'r' receives n; 'h' receives n and answers their hash; 'e'
   receives to the end; 'c' closes; 'q' ends; 'w' sends n after 50 ms; capital letters send n and
   end the session in one of several ways. */
static void be_peer(int fd) {
    struct { char what; int n; } order;
    static unsigned char bytes[1 << 20];
    signal(SIGPIPE, SIG_IGN);
    /* Without this, the kernel would delay small segments while earlier ones are not
       acknowledged. */
    if (is_cold) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    while (read(told[0], &order, sizeof order) == sizeof order) {
        long done = 0, got = 1;
        if (order.what == 'w') usleep(50000);
        if (order.what == 's' || order.what == 'w' || order.what < 'a')
            for (; done < order.n; done += got)
                if ((got = write(fd, bytes, order.n - done)) < 0) break;
        if (order.what == 'r')
            for (; done < order.n; done += got)
                if ((got = read(fd, bytes, order.n - done > 4096 ? 4096 : order.n - done)) <= 0) break;
        if (order.what == 'h' || order.what == 'e') {
            long hash = 5381;
            for (; done < order.n || order.what == 'e'; done += got) {
                if ((got = read(fd, bytes, order.what == 'e' ? sizeof bytes : order.n - done)) <= 0) break;
                for (int i = 0; i < got; i++) hash = hash * 33 + bytes[i];
            }
            done = hash * 1000003 + done;
        }
        if (order.what == 'c' || order.what == 'C') close(fd);
        if (order.what == 'S') shutdown(fd, SHUT_WR);
        if (order.what == 'B') shutdown(fd, SHUT_RDWR);
        if (order.what == 'D') dup2(told[0], fd);
        if (order.what == 'R') close_range(fd, fd, 0);
        if (order.what == 'E') exit(0);
        if (order.what == 'X') _exit(0);
        if (order.what == 'K') raise(SIGKILL);
        if (order.what == 'q') _exit(0);
        if (order.what != 'w') CHECK(write(answers[1], &done, sizeof done) == sizeof done);
    }
    _exit(0);
}

static void tell(char what, int n) {
    struct { char what; int n; } order = {what, n};
    CHECK(write(told[1], &order, sizeof order) == sizeof order);
}

static long ask(char what, int n) {
    long done;
    tell(what, n);
    CHECK(read(answers[0], &done, sizeof done) == sizeof done);
    return done;
}

/* Exchanges bytes until the session has moved, if it is expected to move. */
static void warm(void) {
    char b[64] = {1};
    int64_t start = now_ms();
    int must = getenv("LD_PRELOAD") != 0 && !stays;
    for (int i = 0; i < 200 || (must && (is_away() <= others || i < 400)); i++) {
        CHECK(now_ms() - start < 20000);
        CHECK(write(s, b, 64) == 64 && ask('r', 64) == 64);
        CHECK(ask('s', 64) == 64 && recv(s, b, 64, MSG_WAITALL) == 64);
    }
}

/* Makes a system call that no interposer sees. */
__attribute__((unused)) static long inline_call(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 asm("r10") = d, r8 asm("r8") = e, r9 asm("r9") = f;
    asm volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    if (result < 0) errno = -result, result = -1;
    return result;
}


/* Exchanges bytes until the peer's bytes come through the ring: the peer's direction may switch
   after this one. */
__attribute__((unused)) static void switched(void) {
    char b[8];
    int64_t start = now_ms();
    int in_kernel = getenv("LD_PRELOAD") != 0;
    while (in_kernel) {
        CHECK(now_ms() - start < 20000);
        CHECK(ask('s', 1) == 1 && !inline_call(SYS_ioctl, s, FIONREAD, (long)&in_kernel, 0, 0, 0) && recv(s, b, 1, 0) == 1);
    }
}

static void begin(int tcp) {
    int p[2];
    CHECK(!(tcp ? tcp_pair(p) : socketpair(AF_UNIX, SOCK_STREAM, 0, p)) && !pipe(told) && !pipe(answers));
    peer = fork();
    if (peer == 0) {
        close(p[0]), close(told[1]), close(answers[0]), close(inherited);
        /* The child must not hold the earlier sessions, which are to move. */
        for (int fd = 3; is_cold && fd < 100; fd++)
            if (fd != p[1] && fd != told[0] && fd != answers[1]) close(fd);
        be_peer(p[1]);
    }
    s = p[0], close(p[1]), close(told[0]), close(answers[1]);
    if (!is_cold) warm();
}

static void end(void) {
    int status;
    close(s), close(told[1]), close(answers[0]);
    CHECK(waitpid(peer, &status, 0) == peer && status == 0);
}
