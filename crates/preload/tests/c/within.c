/* A program that talks to itself: both ends of each session are in this process, and move if the
   server is configured for that. First with one thread, then with two; then a child inherits both
   ends of a full session, and reads to the end. */
#include "peer.h"

static void make(const char *kind, int p[2]) {
    if (!strcmp(kind, "unix")) CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, p));
    else if (!strcmp(kind, "pipe")) CHECK(!pipe(p));
    else CHECK(!tcp_pair(p));
}

static char sent[1 << 16], got[1 << 16];

/* Moves `n` bytes from `w` to `r`. */
static void pass(int w, int r, int n) {
    CHECK(write(w, sent, n) == n);
    for (int have = 0, more; have < n; have += more) {
        struct pollfd one = {r, POLLIN, 0};
        CHECK(poll(&one, 1, 5000) == 1);
        CHECK((more = read(r, got + have, n - have)) > 0);
    }
    CHECK(!memcmp(sent, got, n));
}

/* Exchanges bytes until both ends have moved. */
static void warm_both(int w, int r) {
    int must = getenv("LD_PRELOAD") != 0;
    for (int i = 0; i < 400 || (must && is_away() < 2); i++) {
        CHECK(i < 100000);
        pass(w, r, 1 + i % 3000);
        if (i > 400) usleep(100);
    }
    for (int i = 0; i < 400; i++) pass(w, r, 1 + i % 3000);
}

/* Waits until the memory of earlier sessions is released. */
static void none(void) {
    for (int i = 0; is_away() > 0; i++) CHECK(i < 20000 && !usleep(1000));
}

static void *echo(void *fd) {
    char b[4096];
    int s = *(int *)fd, n;
    while ((n = read(s, b, sizeof b)) > 0) CHECK(write(s, b, n) == n);
    CHECK(n == 0 && !shutdown(s, SHUT_WR));
    return 0;
}

static void two_threads(int p[2]) {
    pthread_t thread;
    CHECK(!pthread_create(&thread, 0, echo, &p[1]));
    for (int i = 0; i < 3000; i++) pass(p[0], p[0], 1 + i % 3000);
    CHECK(!shutdown(p[0], SHUT_WR) && !pthread_join(thread, 0));
    SAY(read(p[0], got, 1));
}

/* All written bytes arrive, also in a child, and then the end. */
static void passed_on(int w, int r) {
    long put = 0, had = 0;
    int n, status;
    fcntl(w, F_SETFL, O_NONBLOCK);
    while ((n = write(w, sent, 4096)) > 0) put += n;
    pid_t child = fork();
    if (!child) {
        struct pollfd one = {r, POLLIN, 0};
        while (had < put && poll(&one, 1, 5000) == 1 && (n = read(r, got, sizeof got)) > 0) had += n;
        _exit(had != put);
    }
    CHECK(waitpid(child, &status, 0) == child);
    SAY(status), SAY(close(w)), SAY(read(r, got, 1)), SAY(close(r));
}

int main(int argc, char **argv) {
    const char *kind = argv[1];
    int p[2], is_pipe = !strcmp(kind, "pipe");
    alarm(60);
    for (int i = 0; i < sizeof sent; i++) sent[i] = i * 7 + i / 251;
    for (int round = 0; round < 3; round++) {
        none(), make(kind, p), warm_both(p[1], p[0]);
        if (!is_pipe) {
            two_threads(p);
            close(p[0]), close(p[1]);
            none(), make(kind, p), warm_both(p[1], p[0]);
        }
        passed_on(p[1], p[0]);
    }
    return 0;
}
