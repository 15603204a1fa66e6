// Descriptor tables that are not the process's: threads that have one of their own, and children of
// which only the C library knows; and limits of the table. Sessions are away when it begins. What
// is closed or replaced in one table stays open in the other.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "away.h"

// Returns one end of a pair. A child at the other end sends back what it gets, with another first
// letter.
static int session(char letter) {
    int pair[2];
    char buf[64];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) exit(2);
    if (!fork()) {
        for (int fd = 3; fd < 64; fd++)
            if (fd != pair[1]) close(fd);
        for (ssize_t len; (len = read(pair[1], buf, sizeof buf)) > 0;) {
            buf[0] = letter;
            if (write(pair[1], buf, len) != len) break;
        }
        _exit(0);
    }
    close(pair[1]);
    return pair[0];
}

static void call(int end, char letter) {
    char buf[64] = "";
    if (write(end, "?hello", 6) != 6 || read(end, buf, sizeof buf) != 6 || buf[0] != letter || strcmp(buf + 1, "hello")) {
        printf("%d answers %s, not %c: %s\n", end, buf, letter, strerror(errno));
        fflush(stdout);
        _exit(3);
    }
}

// Makes so many calls that the session would be away.
static void use(int end, char letter) {
    for (int i = 0; i < 1000; i++) {
        call(end, letter);
        if (i % 50 == 0) usleep(1000);
    }
}

static int one, other;
static atomic_int told, step;

static void away(void) {
    one = session('a'), other = session('b');
    for (int i = 0; i < 10 && (!i || getenv("LD_PRELOAD") && is_away() != 2); i++) use(one, 'a'), use(other, 'b');
    if (getenv("LD_PRELOAD") && is_away() != 2) printf("nothing moves\n");
}

static void wait_for(int value) {
    for (int i = 0; i < 10000 && step < value; i++) usleep(500);
}

// In the thread's own table the one number is closed, and the other's file is there in its place. A
// session that is new there has a number that soon is another's in the other table.
static void apart(void) {
    close(one);
    told += dup2(other, one) == one;
    close(other);
    int new = session('d');
    use(new, 'd'), use(one, 'b');
    step = 1;
    wait_for(2);
    use(new, 'd'), use(one, 'b');
    close(new);
    step = 3;
}

static void *unshares(void *none) {
    if (unshare(CLONE_FILES)) exit(2);
    apart();
    return none;
}

static void *ranges(void *none) {
    if (close_range(900, 901, CLOSE_RANGE_UNSHARE)) exit(2);
    apart();
    return none;
}

static int alone(void *none) {
    apart();
    return 0;
}

// The first thread, in the process's table, while the other one does its part.
static void beside(void) {
    wait_for(1);
    int new[2], number;
    use(one, 'a'), use(other, 'b');
    number = session('c');
    use(number, 'c');
    step = 2;
    wait_for(3);
    use(number, 'c');
}

static void in_thread(void *(*start)(void *)) {
    pthread_t thread;
    pthread_create(&thread, 0, start, 0);
    beside();
    pthread_join(thread, 0);
    use(one, 'a'), use(other, 'b');
    printf("told %d\n", told);
}

// A thread made by clone(2) without CLONE_FILES. It has the storage of this thread, which sleeps
// meanwhile.
static void cloned(void) {
    enum { LEN = 1 << 18 };
    static atomic_int number = 1;
    char *stack = malloc(LEN);
    int flags = CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID;
    step = 2;
    if (clone(alone, stack + LEN, flags, 0, 0, 0, &number) < 0) exit(2);
    while (number) syscall(SYS_futex, &number, FUTEX_WAIT, 1, 0, 0, 0);
    call(one, 'a'), call(other, 'b');
    beside();
    printf("told %d\n", told);
}

static void limit(rlim_t most) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = most;
    if (setrlimit(RLIMIT_NOFILE, &limit)) printf("no limit: %m\n");
}

static void asks(int count) {
    struct pollfd all[64];
    fd_set in;
    struct timeval soon = {0, 0};
    for (int i = 0; i < count; i++) all[i] = (struct pollfd){i ? -1 : one, POLLOUT, 0};
    int found = poll(all, count, 0);
    printf("poll of %d: %d %s\n", count, found, found < 0 ? strerrorname_np(errno) : "");
    FD_ZERO(&in);
    FD_SET(one, &in);
    found = select(count > one ? count : one + 1, 0, &in, 0, &soon);
    printf("select of %d: %d %s\n", count, found, found < 0 ? strerrorname_np(errno) : "");
}

static void *answers(void *none) {
    usleep(20000);
    if (write(one, "?hello", 6) != 6) exit(2);
    return none;
}

// Waits in each way for what comes a little later.
static void waits(const char *how) {
    pthread_t thread;
    struct pollfd asked = {one, POLLIN, 0};
    struct epoll_event event;
    struct timeval soon = {5, 0};
    int set = how[0] == 'e' ? atoi(how + 1) : -1, found;
    char buf[8];
    fd_set in;
    FD_ZERO(&in);
    FD_SET(one, &in);
    pthread_create(&thread, 0, answers, 0);
    if (how[0] == 'p') found = poll(&asked, 1, 5000);
    else if (how[0] == 's') found = select(one + 1, &in, 0, 0, &soon);
    else found = epoll_wait(set, &event, 1, 5000);
    printf("%c waits: %d %s\n", how[0], found, found < 0 ? strerrorname_np(errno) : "");
    pthread_join(thread, 0);
    if (read(one, buf, 8) != 6) printf("nothing there\n");
}

// A limit below the numbers that are open: these stay, poll(2) of more is refused, new ones are not
// to be had, and with a higher limit all goes on.
static void limited(void) {
    rlim_t all[] = {12, 3, 1, 0, 64};
    int high = fcntl(one, F_DUPFD, 50), set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    char sets[8];
    epoll_ctl(set, EPOLL_CTL_ADD, one, &event);
    sprintf(sets, "e%d", set);
    for (int i = 0; i < 5; i++) {
        limit(all[i]);
        call(one, 'a'), call(other, 'b'), call(high, 'a');
        asks(1), asks(4), asks(13), asks(60);
        waits("s"), waits(sets);
        if (all[i]) waits("p");
        int new = dup(one);
        printf("new: %d %s\n", new, new < 0 ? strerrorname_np(errno) : "");
        printf("at 40: %d\n", dup2(one, 40));
        if (new >= 0) close(new);
        close(40);
    }
    // By another process.
    if (!fork()) {
        struct rlimit low = {2, 64};
        _exit(prlimit(getppid(), RLIMIT_NOFILE, &low, 0) != 0);
    }
    int status = -1;
    wait(&status);
    printf("by another: %d\n", status);
    asks(1), asks(4);
    call(one, 'a'), call(other, 'b'), call(high, 'a');
}

#ifdef SPAWNS
int pidfd_spawn(int *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[], char *const[]);
int pidfd_spawnp(int *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[], char *const[]);

// Children that get the session, as it is and under another number.
static void spawned(void) {
    for (int i = 0; i < 4; i++) {
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        if (i & 1) posix_spawn_file_actions_adddup2(&actions, other, 30);
        char number[9], *words[] = {"tables", "child", number, i & 1 ? "b" : "a", 0};
        int pidfd = -1, error;
        siginfo_t ended;
        sprintf(number, "%d", i & 1 ? 30 : one);
        // The answer is for the child.
        if (write(i & 1 ? other : one, "?hello", 6) != 6) exit(2);
        usleep(20000);
        error = (i & 2 ? pidfd_spawnp : pidfd_spawn)(&pidfd, "/proc/self/exe", i & 1 ? &actions : 0, 0, words, environ);
        waitid(P_PIDFD, pidfd, &ended, WEXITED);
        printf("spawned: %d, %d\n", error, ended.si_status);
        use(one, 'a'), use(other, 'b');
    }
}
#endif

// A child of a process that is killed and that nobody waits for: it does not wait for an answer of
// the dead.
static void orphaned(void) {
    struct timespec begun, ended;
    int answers[2], begins[2];
    char told = 0;
    siginfo_t killed;
    if (pipe(answers) || pipe(begins)) exit(2);
    pid_t owner = fork();
    if (!owner) {
        away();
        if (fork()) raise(SIGKILL);
        if (read(begins[0], &told, 1) != 1) _exit(2);
        call(one, 'a'), call(other, 'b');
        _exit(write(answers[1], "!", 1) != 1);
    }
    waitid(P_PID, owner, &killed, WEXITED | WNOWAIT);
    clock_gettime(CLOCK_MONOTONIC, &begun);
    if (write(begins[1], "!", 1) != 1 || read(answers[0], &told, 1) != 1) printf("no answer\n");
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("signal %d, answer %c, slow: %d\n", killed.si_status, told, ended.tv_sec - begun.tv_sec > 4);
    waitpid(owner, 0, 0);
}

// The lowest numbers are the program's, however few there are, before anything has moved.
static void few(void) {
    limit(64);
    away();
    for (int number = 0; number != 51;) printf(" %d", number = dup(one));
    printf("\n");
    call(one, 'a'), call(other, 'b');
}

int main(int count, char **arguments) {
    alarm(50);
    if (count > 3) {
        char buf[8];
        int end = atoi(arguments[2]);
        if (read(end, buf, 6) != 6 || buf[0] != arguments[3][0]) return 8;
        for (int i = 0; i < 20; i++) call(end, buf[0]);
        return 7;
    }
    switch (arguments[1][0]) {
    case 'o': orphaned(); printf("over\n"); return 0;
    case 'f': few(); printf("over\n"); return 0;
    }
    away();
    switch (arguments[1][0]) {
    case 'u': in_thread(unshares); break;
    case 'r': in_thread(ranges); break;
    case 'c': cloned(); break;
    case 'l': limited(); break;
#ifdef SPAWNS
    case 's': spawned(); break;
#endif
    }
    printf("over\n");
    return 0;
}
