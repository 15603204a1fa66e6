/* Signals for I/O (O_ASYNC): who gets which, when, and what it tells. */
#include "conform.h"

/* A signal that is queued. */
#define FIRST (SIGRTMIN + 5)

static volatile int caught;
static volatile long total;
static void on_signal(int signal) { (void)signal; caught++; }

/* Blocks the signals that the cases wait for. */
static void block(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGIO);
    sigaddset(&set, FIRST);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* Waits for the next signal; returns 0 if none comes. */
static siginfo_t info;
static int next_quietly(long milliseconds) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGIO);
    sigaddset(&set, FIRST);
    sigaddset(&set, SIGUSR2);
    struct timespec limit = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    memset(&info, 0, sizeof info);
    return sigtimedwait(&set, &info, &limit) > 0;
}

/* Waits likewise, and prints the signal and what it tells. */
static int next_signal(long milliseconds) {
    if (!next_quietly(milliseconds)) return 0;
    const char *name = info.si_signo == SIGIO ? "SIGIO" : info.si_signo == SIGUSR2 ? "SIGUSR2" : "queued";
    say("%s code %d band %#lx descriptor %s", name, info.si_code, (unsigned long)info.si_band,
        info.si_fd == S ? "S" : info.si_fd == 0 ? "none" : "another");
    return 1;
}

/* Has signals sent to the process: `signal`, or SIGIO without a word for 0. */
static void ask_for(int signal) {
    NEED(fcntl(S, F_SETOWN, getpid()) == 0);
    NEED(fcntl(S, F_SETSIG, signal) == 0);
    NEED(fcntl(S, F_SETFL, fcntl(S, F_GETFL) | O_ASYNC | O_NONBLOCK) == 0);
}

/* Prints if the session is where it should be; the peer sends a byte for that. */
static void stays_away(void) {
    int is_moved = phase == 'm' && getenv("CONFORM_HARNESS");
    char byte;
    NEED(peer(OP_WARM, 0) == 1);
    long in_kernel = raw_fionread(S);
    say("where it should be: %s", is_moved ? (in_kernel == 0 ? "yes" : "no") : "yes");
    NEED(read(S, &byte, 1) == 1);
}

CASE(asynchronous, IN, ALL_PHASES) {
    signal(SIGIO, on_signal);
    SAY(fcntl(S, F_SETOWN, getpid()));
    SAY(fcntl(S, F_SETFL, O_RDWR | O_ASYNC | O_NONBLOCK));
    SAY(fcntl(S, F_GETFL) & O_ASYNC);
    point();
    for (int i = 0; i < 5; i++) {
        caught = 0;
        NEED(peer(OP_SEND, 10) == 10);
        for (int k = 0; k < 2000 && !caught; k++) nap(1);
        HOLDS(caught > 0);
        SAY(get(10));
    }
    HOLDS(fcntl(S, F_GETOWN) == getpid());
    stays_away();
}

/* One signal after another. */
static void tells(int signal) {
    block();
    ask_for(signal);
    for (int i = 0; i < 4; i++) {
        NEED(peer(OP_SEND, 100) == 100);
        SAY(next_signal(5000));
        SAY(get(100));
        if (i == 1) point();
    }
    SAY(next_signal(10));
    stays_away();
}

CASE(tells_nothing, IN, "km") { tells(0); }
CASE(tells_the_number, IN, ALL_PHASES) { tells(FIRST); }
CASE(tells_by_sigio, IN, "m") { tells(SIGIO); }
CASE(tells_by_another, IN, "m") { tells(SIGUSR2); }

/* The kernel queues one for each message; TCP may join messages. */
CASE(queued, LOCAL | PIN, "m") {
    block();
    ask_for(FIRST);
    for (int i = 0; i < 7; i++) NEED(peer(OP_SEND, 1 + 300 * i) == 1 + 300 * i);
    for (int i = 0; i < 7; i++) SAY(next_signal(5000));
    SAY(next_signal(20));
    SAY(get(7 + 300 * 21));
    SAY(next_signal(10));
}

/* More than can be queued: SIGIO says that there was more. */
CASE(overflow, LOCAL | PIN, "m") {
    struct rlimit few = {3, 3};
    block();
    ask_for(FIRST);
    NEED(setrlimit(RLIMIT_SIGPENDING, &few) == 0);
    for (int i = 0; i < 9; i++) NEED(peer(OP_SEND, 1) == 1);
    int is_told = 0;
    for (int k = 0; k < 2000 && !is_told; k++) {
        sigset_t pending;
        sigpending(&pending);
        is_told = sigismember(&pending, SIGIO);
        nap(1);
    }
    HOLDS(is_told);
    SAY(get(9));
}

static void *hears(void *unused) {
    block();
    ask_for(FIRST);
    struct f_owner_ex owner = {F_OWNER_TID, gettid()};
    NEED(fcntl(S, F_SETOWN_EX, &owner) == 0);
    NEED(peer(OP_SEND, 10) == 10);
    SAY(next_signal(5000));
    return unused;
}

/* Makes a child the owner, which has a process group of its own. */
static void tell_child(int type) {
    pid_t child = fork();
    if (child == 0) _exit(next_signal(5000) ? 7 : 8);
    NEED(setpgid(child, child) == 0);
    struct f_owner_ex owner = {type, child};
    int status;
    SAY(fcntl(S, F_SETOWN_EX, &owner));
    NEED(peer(OP_SEND, 10) == 10);
    waitpid(child, &status, 0);
    say_status("child", status);
    SAY(next_signal(10));
    SAY(get(10));
}

/* The owner is a thread, a group, another process, nobody. */
CASE(owners, IN, "m") {
    block();
    pthread_t thread;
    pthread_create(&thread, NULL, hears, NULL);
    pthread_join(thread, NULL);
    SAY(next_signal(10));
    SAY(get(10));
    tell_child(F_OWNER_PID);
    /* Its owner has ended. */
    NEED(peer(OP_SEND, 10) == 10);
    SAY(next_signal(20));
    SAY(get(10));
    tell_child(F_OWNER_PGRP);
    SAY(fcntl(S, F_SETOWN, 0));
    NEED(peer(OP_SEND, 10) == 10);
    SAY(next_signal(20));
    SAY(get(10));
    stays_away();
}

/* Set, cleared and set again, by each of the calls for that. */
CASE(set_and_cleared, IN, "mk") {
    int on = 1, off = 0, flags = fcntl(S, F_GETFL) & O_ACCMODE;
    block();
    NEED(fcntl(S, F_SETFL, flags | O_NONBLOCK) == 0);
    NEED(peer(OP_SEND, 10) == 10);
    ask_for(FIRST);
    SAY(next_signal(10));
    SAY(get(10));
    for (int i = 0; i < 3; i++) {
        NEED(peer(OP_SEND, 10) == 10);
        SAY(next_signal(5000));
        SAY(get(10));
        if (i == 0) SAY(ioctl(S, FIOASYNC, &off));
        if (i == 1) SAY(fcntl(S, F_SETFL, flags | O_NONBLOCK));
        if (i == 2) SAY(syscall(SYS_fcntl, S, F_SETFL, flags | O_NONBLOCK));
        NEED(peer(OP_SEND, 10) == 10);
        SAY(next_signal(10));
        SAY(get(10));
        if (i == 0) SAY(ioctl(S, FIOASYNC, &on));
        if (i == 1) SAY(syscall(SYS_fcntl, S, F_SETFL, flags | O_NONBLOCK | O_ASYNC));
    }
    stays_away();
}

/* Calls on the session wait: a signal, or a call that waits, gets what comes. */
CASE(of_a_session_that_waits, IN, "m") {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    char bytes[10];
    NEED(sigaction(SIGIO, &action, NULL) == 0);
    NEED(fcntl(S, F_SETOWN, getpid()) == 0);
    NEED(fcntl(S, F_SETFL, (fcntl(S, F_GETFL) | O_ASYNC) & ~O_NONBLOCK) == 0);
    for (int i = 0; i < 3; i++) {
        later(OP_SEND, 10);
        check(bytes, SAY(read(S, bytes, 10)));
        peer_done();
    }
    /* A pipe tells its owner in any case. */
    HOLDS(kind == PIN ? caught > 0 : caught == 0);
}

/* Room, after a write that found none. */
CASE(room, SOCK, ALL_PHASES) {
    static char bytes[50000];
    long sent = 0, n;
    block();
    ask_for(0);
    for (int quiet = 0; quiet < 3; quiet++) {
        while ((n = write(S, fill(bytes, sizeof bytes), sizeof bytes)) > 0) { unfill(sizeof bytes - n); sent += n; quiet = 0; }
        unfill(sizeof bytes);
        nap(2);
    }
    NEED(errno == EAGAIN);
    point();
    while (next_signal(0)) {}
    /* A return may have told of room that was not there; then this finds none. */
    while ((n = write(S, fill(bytes, sizeof bytes), sizeof bytes)) > 0) { unfill(sizeof bytes - n); sent += n; }
    unfill(sizeof bytes);
    ask_for(FIRST);
    HOLDS(peer(OP_RECV, sent) == sent);
    SAY(next_signal(5000));
    struct pollfd one = {S, POLLOUT, 0};
    SAY(poll(&one, 1, 5000));
    SAY(put(1000));
    SAY_PEER(OP_RECV, 1000);
}

static void read_all(int signal) {
    char bytes[3000];
    long n;
    (void)signal;
    int saved = errno;
    while ((n = read(S, bytes, sizeof bytes)) > 0) { check(bytes, n); total += n; }
    errno = saved;
}

/* The usual server: its handler reads all that is there, while the peer sends on and on. */
CASE(flood, IN, ALL_PHASES) {
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGIO);
    sigprocmask(SIG_BLOCK, &set, &before);
    signal(SIGIO, read_all);
    ask_for(0);
    alarm(20);
    for (int i = 0; i < 300; i++) {
        long len = i % 100 == 99 ? 400000 : 1 + 17 * i;
        long until = total + len;
        later(OP_SEND, len);
        while (total < until) sigsuspend(&before);
        NEED(peer_done() == len);
        if (i == 150) point();
    }
    alarm(0);
    SAY(total);
}

/* Signals that wait when the session is closed, or when its peer ends, come. */
CASE(ends, IN, "mp") {
    block();
    ask_for(0);
    NEED(peer(OP_SEND, 10) == 10);
    SAY(next_signal(5000));
    point();
    SAY_PEER(OP_CLOSE, 0);
    SAY(next_signal(5000));
    SAY(get(10));
    SAY(get(1));
}

CASE(closed_with_one_pending, IN, "m") {
    block();
    ask_for(FIRST);
    NEED(peer(OP_SEND, 10) == 10);
    nap(20);
    SAY(close(S));
    SAY(next_signal(5000));
    SAY(next_signal(10));
}

/* A child reads, which sends the session home. */
CASE(forked, IN, "m") {
    block();
    ask_for(0);
    pid_t child = fork();
    if (child == 0) _exit(peer(OP_SEND, 10) == 10 && get(10) == 10 ? 3 : 4);
    int status;
    waitpid(child, &status, 0);
    say_status("child", status);
    skip_received(10);
    SAY(next_signal(5000));
    NEED(peer(OP_SEND, 10) == 10);
    SAY(next_signal(5000));
    SAY(get(10));
}

/* Role of a program that inherits the descriptor with O_ASYNC set, and tells of each message. */
ROLE(hears) {
    int told = 0, moved = 0;
    char bytes[10];
    S = atoi(argv[1]);
    long limit = now_ms() + 5000;
    while (next_quietly(5000)) {
        told++;
        moved += raw_fionread(S) == 0;
        int is_over = getenv("CONFORM_HARNESS") ? moved == 20 || now_ms() > limit : told == 20;
        if (read(S, bytes, 10) != 10 || write(atoi(argv[2]), is_over ? "e" : "x", 1) != 1) return 1;
        if (is_over) {
            say("where it should be: %s", now_ms() <= limit ? "yes" : "no");
            return 0;
        }
    }
    say("told of %d", told);
    return 1;
}

CASE(executed, PIN, "k") {
    char numbers[2][16], byte;
    int told[2], status;
    NEED(pipe(told) == 0);
    snprintf(numbers[0], 16, "%d", S);
    snprintf(numbers[1], 16, "%d", told[1]);
    block();
    ask_for(0);
    fcntl(S, F_SETFD, 0);
    pid_t child = fork();
    if (child == 0) {
        NEED(fcntl(S, F_SETOWN, getpid()) == 0);
        NEED(write(told[1], "x", 1) == 1);
        execl(self_path, self_path, "--role", "hears", numbers[0], numbers[1], (char *)NULL);
        _exit(9);
    }
    close(S), close(told[1]);
    while (read(told[0], &byte, 1) == 1 && byte != 'e') NEED(peer(OP_SEND, 10) == 10);
    waitpid(child, &status, 0);
    say_status("child", status);
}
