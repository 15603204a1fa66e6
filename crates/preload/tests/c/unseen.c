// The library has descriptors and threads of its own in this process. The program must not notice
// them: by the numbers that calls give and may name, by the end of the process, or by calls that
// only a process with one thread may make.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SESSIONS = 12, CALLS = 300 };
static int out = 1;

static void *echo(void *at) {
    int end = *(int *)at;
    char buf[64];
    ssize_t len;
    while ((len = read(end, buf, sizeof buf)) > 0)
        if (write(end, buf, len) != len) break;
    return 0;
}

// Returns one end of a pair whose other end a child echoes.
static int session(void) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) exit(2);
    if (!fork()) {
        for (int fd = 3; fd < 64; fd++)
            if (fd != pair[1]) close(fd);
        echo(&pair[1]);
        _exit(0);
    }
    close(pair[1]);
    return pair[0];
}

static void call(int end, int count) {
    char buf[64];
    for (int i = 0; i < count; i++)
        if (write(end, "hello", 5) != 5 || read(end, buf, sizeof buf) != 5) {
            dprintf(out, "a call failed: %s\n", strerror(errno));
            exit(3);
        }
}

// Makes calls until the session had time to move, and some more.
static void use(int end) {
    for (int i = 0; i < 60; i++) {
        call(end, 30);
        usleep(1000);
    }
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

// Puts an end of a pipe on the lowest free number with dup2, again and again while sessions move.
static void lowest(void) {
    int wrong = 0, sessions[SESSIONS];
    for (int i = 0; i < SESSIONS; i++) sessions[i] = session();
    for (int i = 0; i < SESSIONS; i++) {
        for (int k = 0; k < CALLS; k++) {
            call(sessions[i], 1);
            int number = dup(0), want = number, ends[2];
            close(number);
            if (pipe(ends)) exit(2);
            number = 63;
            if (k % 2) {
                number = fcntl(0, F_DUPFD, 3);
                close(number);
            }
            if (ends[0] != want) wrong++;
            if (write(ends[1], "data", 4) != 4) exit(2);
            if (dup2(ends[0], number) != number) wrong++;
            close(ends[0]);
            for (double until = now() + 0.00002; now() < until;) {}
            char buf[8];
            if (fcntl(number, F_GETFD) < 0 || read(number, buf, 8) != 4 || memcmp(buf, "data", 4)) wrong++;
            if (close(number) || close(number) != -1 || errno != EBADF) wrong++;
            close(ends[1]);
        }
    }
    dprintf(out, "wrong: %d\n", wrong);
}

// A daemon closes 0, 1 and 2: its next three files have these numbers.
static void standard(void) {
    out = fcntl(1, F_DUPFD, 50);
    int end = session();
    for (int round = 0; round < 40; round++) {
        close(0), close(1), close(2);
        call(end, 60);
        struct pollfd asked = { end, POLLIN, 0 };
        poll(&asked, 1, 1);
        int a = open("/dev/null", O_RDONLY), b = open("/dev/null", O_WRONLY);
        call(end, 5);
        FILE *c = fopen("/dev/null", "w");
        if (a != 0 || b != 1 || fileno(c) != 2) dprintf(out, "%d %d %d\n", a, b, fileno(c));
        fclose(c);
        open("/dev/null", O_WRONLY);
        if (round % 10 == 9) end = session();
    }
    dprintf(out, "over\n");
}

// Makes as many descriptors as possible while sessions move: each can be closed, and sessions go
// on.
static void full(void) {
    struct rlimit limit = { 128, 128 };
    setrlimit(RLIMIT_NOFILE, &limit);
    int ends[4], wrong = 0;
    for (int i = 0; i < 4; i++) ends[i] = session();
    for (int round = 0; round < 30; round++) {
        int files[128], count = 0;
        while (count < 128 && (files[count] = dup(0)) >= 0) count++;
        if (count == 128 || errno != EMFILE) wrong++;
        for (int i = 0; i < 4; i++) call(ends[i], 40);
        struct pollfd asked[2] = { { ends[0], POLLIN, 0 }, { ends[1], POLLIN, 0 } };
        char one;
        if (poll(asked, 2, 1) != 0) wrong++;
        if (write(ends[0], "x", 1) != 1 || poll(asked, 2, 10000) != 1) wrong++;
        if (read(ends[0], &one, 1) != 1) wrong++;
        for (int i = 0; i < count; i++)
            if (fcntl(files[i], F_GETFD) < 0 || close(files[i])) wrong++;
        close(ends[round % 4]);
        ends[round % 4] = session();
        usleep(2000);
    }
    // The library's descriptors do not reduce the number that the program can make.
    int count = 0;
    while (dup(0) >= 0) count++;
    dprintf(out, "wrong: %d, room for %d\n", wrong, count);
}

// A program may choose any number below its limit. A descriptor of the library's at that number
// gives way.
static void chosen(void) {
    struct rlimit limit = { 128, 128 };
    setrlimit(RLIMIT_NOFILE, &limit);
    int wrong = 0, end = session();
    use(end);
    for (int number = 40; number < 128; number++) {
        int ends[2];
        if (pipe(ends)) exit(2);
        if (dup2(ends[0], number) != number) wrong++;
        close(ends[0]);
        call(end, 3);
        char buf[8];
        if (write(ends[1], "data", 4) != 4 || read(number, buf, 8) != 4) wrong++;
        close(ends[1]);
    }
    use(end);
    for (int number = 40; number < 128; number++) {
        char buf[8];
        if (read(number, buf, 8) != 0 || close(number)) wrong++;
    }
    call(end, 10);
    dprintf(out, "wrong: %d\n", wrong);
}

static void told(void) { dprintf(out, "at exit\n"); }

static void *worker(void *end) {
    use(*(int *)end);
    return 0;
}

static void *leaver(void *end) {
    use(*(int *)end);
    pthread_exit(0);
}

static void *canceled(void *end) {
    use(*(int *)end);
    for (;;) pause();
}

static void *silent(void *end) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, 0);
    return worker(end);
}

// Prints how a child ends whose first thread ends before the last one.
static void last(const char *name, void *(*start)(void *), int cancels) {
    pid_t child = fork();
    if (!child) {
        atexit(told);
        static int end;
        end = session();
        pthread_t thread;
        pthread_create(&thread, 0, start, &end);
        if (cancels) {
            usleep(200000);
            pthread_cancel(thread);
        }
        pthread_exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    dprintf(out, "%s: %x\n", name, status);
}

static void *forks(void *unused) {
    pid_t child = fork();
    if (!child) {
        atexit(told);
        int end = session();
        use(end);
        return 0;
    }
    int status = -1;
    waitpid(child, &status, 0);
    dprintf(out, "forked: %x\n", status);
    return 0;
}

static void threads(void) {
    last("returns", worker, 0);
    last("leaves", leaver, 0);
    last("canceled", canceled, 1);
    last("silent", silent, 0);
    pthread_t thread;
    pthread_create(&thread, 0, forks, 0);
    pthread_join(thread, 0);
    // A child that ends by the system call itself runs no handlers, and ends with that status.
    pid_t child = fork();
    if (!child) {
        atexit(told);
        use(session());
        syscall(SYS_exit, 7);
    }
    int status = -1;
    waitpid(child, &status, 0);
    dprintf(out, "by the system call: %x\n", status);
}

static int pair[2];
static volatile int has_begun;

static void *ends_itself(void *delay) {
    while (!has_begun) {}
    double until = now() + (long)delay / 1e6;
    while (now() < until) {}
    syscall(SYS_exit, 0);
    return 0;
}

// A thread ends by the system call itself while the first calls on a session have the library begin
// its own threads. The process goes on.
static void early(void) {
    int ended = 0;
    for (long i = 0; i < 400; i++) {
        pid_t child = fork();
        if (!child) {
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) exit(2);
            pthread_t thread;
            pthread_create(&thread, 0, ends_itself, (void *)(300 + i % 400));
            has_begun = 1;
            char byte = 0;
            for (int c = 0; c < 50; c++)
                if (write(pair[0], &byte, 1) != 1 || read(pair[1], &byte, 1) != 1) exit(3);
            pthread_join(thread, 0);
            _exit(42);
        }
        int status = -1;
        waitpid(child, &status, 0);
        ended += !WIFEXITED(status) || WEXITSTATUS(status) != 42;
    }
    dprintf(out, "ended early: %d\n", ended);
}

static void apart(const char *name, int (*enter)(void)) {
    pid_t child = fork();
    if (!child) {
        int end = session();
        use(end);
        int failed = enter() ? errno : 0;
        call(end, 100);
        dprintf(out, "%s: %s\n", name, strerror(failed));
        _exit(0);
    }
    waitpid(child, 0, 0);
}

static int by_unshare(void) { return unshare(CLONE_NEWUSER); }
static int by_syscall(void) { return syscall(SYS_unshare, CLONE_NEWUSER); }
static int with_mounts(void) { return unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_FS); }
static int as_a_process(void) { return unshare(CLONE_THREAD | CLONE_SIGHAND | CLONE_VM); }
static int by_setns(void) {
    int own = open("/proc/self/ns/mnt", O_RDONLY);
    return own < 0 ? -1 : setns(own, CLONE_NEWNS);
}

static void namespaces(void) {
    apart("unshare", by_unshare);
    apart("syscall", by_syscall);
    apart("mounts", with_mounts);
    apart("process", as_a_process);
    apart("setns", by_setns);
}

int main(int count, char **arguments) {
    alarm(50);
    switch (arguments[1][0]) {
    case 'l': lowest(); break;
    case 's': standard(); break;
    case 'f': full(); break;
    case 'c': chosen(); break;
    case 't': threads(); break;
    case 'n': namespaces(); break;
    case 'e': early(); break;
    }
    return 0;
}
