/* `hold KIND BYTES MODE`: two programs at the two ends of a session, or of two pipes, that both
 * send BYTES bytes before either receives any.
 *
 * MODE is the way of sending: `block` in one call, `pieces` in calls of 16 KiB, `small` in calls of
 * 1000 bytes, `once` by one call that does not wait and whose result is printed. Before that, the
 * programs exchange bytes for a while, so that the session can move; with `cold` they do not.
 *
 * The output is "all" or the number of bytes taken. The exit status is 2 if both programs wait for
 * each other for HOLD_SECONDS, and 1 with a line on any other failure. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_S = 20, ROUNDS = 300, OTHER_IN = 100, OTHER_OUT = 101 };

static void fail(const char *format, ...) {
    va_list words;
    va_start(words, format);
    fputs("hold: ", stderr);
    vfprintf(stderr, format, words);
    fputc('\n', stderr);
    _exit(1);
}

static void hangs(int signal) {
    (void)signal;
    _exit(2);
}

static unsigned char byte(long at) {
    return (unsigned char)(at * 7 + (at >> 9));
}

static void receive(int from, long begin, long bytes) {
    static unsigned char room[1 << 16];
    for (long at = 0; at < bytes;) {
        ssize_t got = read(from, room, bytes - at < (long)sizeof room ? (size_t)(bytes - at) : sizeof room);
        if (got <= 0) fail("received %ld of %ld: %m", at, bytes);
        for (ssize_t i = 0; i < got; i++)
            if (room[i] != byte(begin + at + i)) fail("byte %ld", begin + at + i);
        at += got;
    }
}

/* Sends the bytes in the way of the mode; returns the number of bytes taken. */
static long send_all(int to, const unsigned char *all, long bytes, const char *mode) {
    if (!strcmp(mode, "once")) {
        fcntl(to, F_SETFL, O_NONBLOCK);
        ssize_t sent = write(to, all, (size_t)bytes);
        fcntl(to, F_SETFL, 0);
        return sent < 0 ? 0 : sent;
    }
    long piece = !strcmp(mode, "pieces") ? 16384 : !strcmp(mode, "small") ? 1000 : bytes, at = 0;
    while (at < bytes) {
        ssize_t sent = write(to, all + at, (size_t)(bytes - at < piece ? bytes - at : piece));
        if (sent <= 0) fail("sent %ld of %ld: %m", at, bytes);
        at += sent;
    }
    return at;
}

/* Sends one byte each way for `rounds` rounds, during which the session moves. */
static void talk(int from, int to, int leads, int rounds) {
    char one = 'x';
    for (int round = 0; round < rounds; round++) {
        if (leads && write(to, &one, 1) != 1) fail("talk: %m");
        if (read(from, &one, 1) != 1) fail("talk: %m");
        if (!leads && write(to, &one, 1) != 1) fail("talk: %m");
        if (round % 50 == 49) usleep(30000);
    }
}

static void play(int from, int to, long bytes, const char *mode, int leads, int is_cold) {
    unsigned char *all = malloc((size_t)bytes);
    for (long at = 0; at < bytes; at++) all[at] = byte(at);
    if (!is_cold) talk(from, to, leads, ROUNDS);
    const char *limit = getenv("HOLD_SECONDS");
    alarm(limit ? (unsigned)atoi(limit) : LIMIT_S);
    long taken = send_all(to, all, bytes, mode);
    if (strcmp(mode, "once")) {
        receive(from, 0, bytes);
        if (leads) puts("all");
    } else if (leads) {
        printf("%ld\n", taken);
    }
    fflush(stdout);
    if (!strcmp(mode, "once")) {
        /* The other program has sent too and sends no more, so the bytes up to the end of file are
         * all that it sent. */
        static unsigned char room[1 << 16];
        shutdown(to, SHUT_WR);
        if (from != to) close(to);
        long at = 0;
        for (ssize_t got; (got = read(from, room, sizeof room)) > 0;)
            for (ssize_t i = 0; i < got; i++, at++)
                if (room[i] != byte(at)) fail("byte %ld", at);
        if (at < 1) fail("nothing was received");
    } else {
        talk(from, to, leads, 3);
    }
}

static void pair(const char *kind, int ends[4]) {
    int two[2];
    if (!strcmp(kind, "pipe")) {
        int other[2];
        if (pipe(two) || pipe(other)) fail("no pipe: %m");
        ends[0] = two[0], ends[1] = other[1], ends[2] = other[0], ends[3] = two[1];
        return;
    }
    if (!strcmp(kind, "unix")) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, two)) fail("no session: %m");
    } else {
        struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof name;
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        two[0] = socket(AF_INET, SOCK_STREAM, 0);
        if (bind(listener, (void *)&name, len) || listen(listener, 1) || getsockname(listener, (void *)&name, &len) ||
            connect(two[0], (void *)&name, len))
            fail("no session: %m");
        two[1] = accept(listener, NULL, NULL);
        close(listener);
    }
    ends[0] = ends[1] = two[0], ends[2] = ends[3] = two[1];
}

int main(int count, char **words) {
    if (count < 4) return 3;
    signal(SIGALRM, hangs);
    const char *kind = words[1], *mode = words[3];
    long bytes = atol(words[2]);
    int is_cold = count > 4 && !strcmp(words[4], "cold");
    if (count > 5) {
        play(OTHER_IN, !strcmp(kind, "pipe") ? OTHER_OUT : OTHER_IN, bytes, mode, 0, is_cold);
        return 0;
    }
    int ends[4];
    pair(kind, ends);
    dup2(ends[2], OTHER_IN), dup2(ends[3], OTHER_OUT);
    if (ends[3] == ends[2]) close(OTHER_OUT);
    close(ends[2]);
    if (ends[3] != ends[2]) close(ends[3]);
    pid_t child = fork();
    if (!child) {
        close(ends[0]), close(ends[1]);
        execl("/proc/self/exe", words[0], kind, words[2], mode, is_cold ? "cold" : "warm", "other", (char *)0);
        _exit(127);
    }
    close(OTHER_IN), close(OTHER_OUT);
    play(ends[0], ends[1], bytes, mode, 1, is_cold);
    int status;
    if (waitpid(child, &status, 0) != child || status) fail("the other: status %x", status);
    return 0;
}
