/* A session and its peer, a child that is told what to do over a pipe. */
#include "check.h"

static int s, told[2], answers[2];
/* It is not expected to move. */
static int stays;
/* A descriptor that the peer does not keep. */
static int inherited = -1;
static pid_t peer;

/* What the peer does: 's' sends n bytes, 'r' receives n, 'h' does and answers what they were, 'e' receives to the end, 'c' closes, 'q' ends,
   'w' sends n after 50 ms. */
static void be_peer(int fd) {
    struct { char what; int n; } order;
    static unsigned char bytes[1 << 20];
    signal(SIGPIPE, SIG_IGN);
    while (read(told[0], &order, sizeof order) == sizeof order) {
        long done = 0, got = 1;
        if (order.what == 'w') usleep(50000);
        if (order.what == 's' || order.what == 'w')
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
        if (order.what == 'c') close(fd);
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

static int is_away(void) {
    char line[512];
    int found = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, f))
        if (strstr(line, "memfd:sojourn-stream")) found = 1;
    fclose(f);
    return found;
}

/* Exchanges bytes until the session has moved, if it is to move. */
static void warm(void) {
    char b[64] = {1};
    int64_t start = now_ms();
    int must = getenv("LD_PRELOAD") != 0 && !stays;
    for (int i = 0; i < 200 || (must && (!is_away() || i < 400)); i++) {
        CHECK(now_ms() - start < 20000);
        CHECK(write(s, b, 64) == 64 && ask('r', 64) == 64);
        CHECK(ask('s', 64) == 64 && recv(s, b, 64, MSG_WAITALL) == 64);
    }
}

static void begin(int tcp) {
    int p[2];
    CHECK(!(tcp ? tcp_pair(p) : socketpair(AF_UNIX, SOCK_STREAM, 0, p)) && !pipe(told) && !pipe(answers));
    peer = fork();
    if (peer == 0) {
        close(p[0]), close(told[1]), close(answers[0]), close(inherited);
        be_peer(p[1]);
    }
    s = p[0], close(p[1]), close(told[0]), close(answers[1]);
    warm();
}

static void end(void) {
    int status;
    close(s), close(told[1]), close(answers[0]);
    CHECK(waitpid(peer, &status, 0) == peer && status == 0);
}
