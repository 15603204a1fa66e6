/* Signals: interrupted calls, restarted calls, masks, jumps out of handlers, cancellation, alarms.
 */
#include "conform.h"

static volatile int caught;
static void on_signal(int signal) { (void)signal; caught++; }

static void install(int signal, int flags) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    NEED(sigaction(signal, &action, NULL) == 0);
    caught = 0;
}

/* Fills the session so that the next write blocks; `filled` is the number of bytes. */
static long filled;
static void fill_up(void) {
    static char bytes[100000];
    int on = 1, off = 0;
    long n;
    ioctl(S, FIONBIO, &on);
    while ((n = write(S, fill(bytes, sizeof bytes), sizeof bytes)) > 0) { unfill(sizeof bytes - n); filled += n; }
    unfill(sizeof bytes);
    /* TCP may have some more room once its acknowledgements have come. */
    for (int quiet = 0; quiet < 4; quiet++) {
        while ((n = write(S, fill(bytes, 1), 1)) > 0) filled += n, quiet = 0;
        unfill(1);
        nap(1);
    }
    ioctl(S, FIONBIO, &off);
}

CASE(read_interrupted, IN, ALL_PHASES) {
    char bytes[10];
    install(SIGUSR1, 0);
    for (int i = 0; i < 5; i++) {
        later3(OP_SIGNAL, SIGUSR1, 0, 0);
        SAY(read(S, bytes, 10));
        peer_done();
        if (i == 1) point();
    }
    SAY(caught);
    if (kind != PIN) {
        struct iovec part = {bytes, 10};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        later3(OP_SIGNAL, SIGUSR1, 0, 0);
        SAY(recv(S, bytes, 10, 0));
        peer_done();
        later3(OP_SIGNAL, SIGUSR1, 0, 0);
        SAY(recvmsg(S, &message, 0));
        peer_done();
        later3(OP_SIGNAL, SIGUSR1, 0, 0);
        SAY(recv(S, bytes, 10, MSG_PEEK));
        peer_done();
    }
    SAY_PEER(OP_SEND, 10);
    SAY(get(10));
}

CASE(read_restarted, IN, ALL_PHASES) {
    char bytes[10];
    install(SIGUSR1, SA_RESTART);
    for (int i = 0; i < 4; i++) {
        later3(OP_SIGNAL, SIGUSR1, 3, 3000);
        /* The peer sends the signal first and the bytes at a second order. This thread cannot give
         * that order, because it reads, so a child gives it. */
        pid_t child = fork();
        if (child == 0) {
            peer_done();
            NEED(peer(OP_SEND, 10) == 10);
            _exit(0);
        }
        check(bytes, SAY(read(S, bytes, 10)));
        int status;
        waitpid(child, &status, 0);
        if (i == 1) point();
    }
    /* Pending signals of one kind are merged (signal(7)). */
    HOLDS(caught >= 4);
}

/* TCP is left out: its buffers may have room for one more byte at any time. */
CASE(write_interrupted, LOCAL | POUT, ALL_PHASES) {
    install(SIGUSR1, 0);
    fill_up();
    for (int i = 0; i < 3; i++) {
        later3(OP_SIGNAL, SIGUSR1, 0, 0);
        SAY(write(S, "x", 1));
        peer_done();
    }
    SAY(caught);
    point();
    HOLDS(peer(OP_RECV, filled) == filled);
    SAY(put(10));
    SAY_PEER(OP_RECV, 10);
}

CASE(write_interrupted_in_the_middle, OUT, ALL_PHASES) {
    // More bytes than a session of any kind takes while the peer does not read.
    static char bytes[24000000];
    install(SIGUSR1, 0);
    later3(OP_SIGNAL, SIGUSR1, 0, 0);
    long n = write(S, fill(bytes, sizeof bytes), sizeof bytes);
    peer_done();
    HOLDS(n > 0 && n < (long)sizeof bytes);
    SAY(caught);
    HOLDS(peer(OP_RECV, n) == n);
}

CASE(write_restarted, OUT, ALL_PHASES) {
    install(SIGUSR1, SA_RESTART);
    fill_up();
    later3(OP_SIGNAL, SIGUSR1, 3, 3000);
    pid_t child = fork();
    if (child == 0) {
        peer_done();
        _exit(peer(OP_RECV, filled) == filled ? 0 : 1);
    }
    SAY(put(1));
    int status;
    waitpid(child, &status, 0);
    say_status("received", status);
    HOLDS(caught > 0);
    SAY_PEER(OP_RECV, 1);
}

CASE(wait_all_interrupted, SOCK, ALL_PHASES) {
    char bytes[100];
    install(SIGUSR1, 0);
    peer(OP_SEND, 10);
    later3(OP_SIGNAL, SIGUSR1, 0, 0);
    check(bytes, SAY(recv(S, bytes, 100, MSG_WAITALL)));
    peer_done();
    point();
    later3(OP_SIGNAL, SIGUSR1, 0, 0);
    SAY(recv(S, bytes, 100, MSG_WAITALL));
    peer_done();
    install(SIGUSR1, SA_RESTART);
    peer(OP_SEND, 10);
    later3(OP_SIGNAL, SIGUSR1, 0, 0);
    /* The kernel does not restart a call that already has bytes. */
    check(bytes, SAY(recv(S, bytes, 100, MSG_WAITALL)));
    peer_done();
}

/* With SO_RCVTIMEO or SO_SNDTIMEO set, calls on sockets are not restarted (signal(7)). */
CASE(timeouts_are_not_restarted, SOCK, ALL_PHASES) {
    struct timeval span = {5, 0};
    char bytes[10];
    install(SIGUSR1, SA_RESTART);
    SAY(setsockopt(S, SOL_SOCKET, SO_RCVTIMEO, &span, sizeof span));
    point();
    later3(OP_SIGNAL, SIGUSR1, 0, 0);
    SAY(read(S, bytes, 10));
    peer_done();
}

/* Waits are not restarted even with SA_RESTART (signal(7)). */
CASE(waits_interrupted, IN, ALL_PHASES) {
    struct pollfd one = {S, POLLIN, 0};
    int set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {EPOLLIN, {.fd = S}};
    NEED(epoll_ctl(set, EPOLL_CTL_ADD, S, &event) == 0);
    for (int flags = 0; flags < 2; flags++) {
        install(SIGUSR1, flags ? SA_RESTART : 0);
        later3(OP_SIGNAL, SIGUSR1, 0, 0);
        SAY(poll(&one, 1, -1));
        peer_done();
        later3(OP_SIGNAL, SIGUSR1, 0, 0);
        SAY(poll(&one, 1, 5000));
        peer_done();
        fd_set in;
        FD_ZERO(&in);
        FD_SET(S, &in);
        later3(OP_SIGNAL, SIGUSR1, 0, 0);
        SAY(select(S + 1, &in, NULL, NULL, NULL));
        peer_done();
        later3(OP_SIGNAL, SIGUSR1, 0, 0);
        SAY(epoll_wait(set, &event, 1, -1));
        peer_done();
        later3(OP_SIGNAL, SIGUSR1, 0, 0);
        SAY(epoll_wait(set, &event, 1, 5000));
        peer_done();
        if (flags == 0) point();
        SAY(caught);
    }
}

CASE(many_signals_early_and_late, IN, "km") {
    /* A signal must end the wait at any time: just before the thread sleeps, during that, and just
     * after. */
    char bytes[10];
    install(SIGALRM, 0);
    int interrupted = 0, got = 0;
    for (int i = 0; i < 400; i++) {
        /* The timer repeats, because its first signal may come before the call. */
        struct itimerval span = {{0, 2000}, {0, 1 + i % 97}};
        caught = 0;
        setitimer(ITIMER_REAL, &span, NULL);
        ssize_t n = -1;
        if (!caught) n = read(S, bytes, 10);
        else errno = EINTR;
        if (n == -1 && errno == EINTR) interrupted++;
        else if (n > 0) got++;
        setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
        if (i % 50 == 49) { NEED(peer(OP_SEND, 5) == 5); NEED(get(5) == 5); }
    }
    say("interrupted %d got %d", interrupted, got);
}

static int by_pselect(void) {
    fd_set in;
    sigset_t none;
    sigemptyset(&none);
    FD_ZERO(&in);
    FD_SET(S, &in);
    return pselect(S + 1, &in, NULL, NULL, &(struct timespec){5, 0}, &none);
}

CASE(masks, IN, ALL_PHASES) {
    sigset_t set, none, found;
    sigemptyset(&none);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    struct pollfd one = {S, POLLIN, 0};
    int epfd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {EPOLLIN, {.fd = S}};
    NEED(epoll_ctl(epfd, EPOLL_CTL_ADD, S, &event) == 0);
    install(SIGUSR1, 0);
    sigprocmask(SIG_BLOCK, &set, NULL);
    /* The signal is pending at the call, and the call's mask admits it at once. */
    kill(getpid(), SIGUSR1);
    SAY(caught);
    SAY(ppoll(&one, 1, &(struct timespec){5, 0}, &none));
    SAY(caught);
    kill(getpid(), SIGUSR1);
    SAY(by_pselect());
    SAY(caught);
    kill(getpid(), SIGUSR1);
    SAY(epoll_pwait(epfd, &event, 1, 5000, &none));
    SAY(caught);
    point();
    /* The signal comes while the call sleeps. */
    later3(OP_SIGNAL, SIGUSR1, 0, 0);
    SAY(ppoll(&one, 1, &(struct timespec){5, 0}, &none));
    peer_done();
    later3(OP_SIGNAL, SIGUSR1, 0, 0);
    SAY(by_pselect());
    peer_done();
    later3(OP_SIGNAL, SIGUSR1, 0, 0);
    SAY(epoll_pwait(epfd, &event, 1, 5000, &none));
    peer_done();
    SAY(caught);
    sigprocmask(SIG_BLOCK, NULL, &found);
    SAY(sigismember(&found, SIGUSR1));
    /* The call's own mask blocks the signal: the wait goes on, and the signal is pending
     * afterwards. */
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    later3(OP_SIGNAL, SIGUSR1, 0, 0);
    SAY(ppoll(&one, 1, &(struct timespec){0, 40000000}, &set));
    peer_done();
    SAY(caught);
    /* Bytes are there and a signal is pending: the kernel may report either, and reports the bytes.
     */
    sigprocmask(SIG_BLOCK, &set, NULL);
    NEED(peer(OP_SEND, 5) == 5);
    kill(getpid(), SIGUSR1);
    SAY(ppoll(&one, 1, &(struct timespec){5, 0}, &none));
    SAY(caught);
    SAY(epoll_pwait(epfd, &event, 1, 5000, &none));
    SAY(caught);
    SAY(get(5));
}

static int order[8];
static sigset_t meanwhile[8];
static void on_one_of_many(int signal) {
    if (caught < 8) order[caught] = signal, sigprocmask(SIG_BLOCK, NULL, &meanwhile[caught]);
    caught++;
}

/* Says which handlers ran, what was blocked meanwhile, and what is afterwards. */
static void say_which(void) {
    static const int of[] = {SIGUSR1, SIGUSR2, SIGCHLD, SIGWINCH};
    sigset_t now, left;
    sigprocmask(SIG_BLOCK, NULL, &now);
    sigpending(&left);
    for (int i = 0; i < caught && i < 8; i++)
        for (int k = 0; k < 4; k++) say("%d: %d %d", order[i], of[k], sigismember(&meanwhile[i], of[k]));
    for (int k = 0; k < 4; k++) say("%d %d %d", of[k], sigismember(&now, of[k]), sigismember(&left, of[k]));
    /* Nothing is left for the next call. */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, &now);
    sigprocmask(SIG_SETMASK, &now, NULL);
    caught = 0;
}

CASE(masks_admit_several, IN, ALL_PHASES) {
    struct pollfd one = {S, POLLIN, 0};
    sigset_t blocked, masks[2];
    fd_set in;
    int epfd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {EPOLLIN, {.fd = S}};
    NEED(epoll_ctl(epfd, EPOLL_CTL_ADD, S, &event) == 0);
    sigemptyset(&blocked), sigemptyset(&masks[0]), sigemptyset(&masks[1]);
    sigaddset(&blocked, SIGUSR1), sigaddset(&blocked, SIGUSR2), sigaddset(&blocked, SIGCHLD);
    sigaddset(&masks[1], SIGUSR1), sigaddset(&masks[1], SIGWINCH);
    for (int i = 0; i < 4; i++) {
        struct sigaction action = {.sa_handler = on_one_of_many, .sa_flags = i == 2 ? SA_NODEFER : 0};
        if (i == 1) sigaddset(&action.sa_mask, SIGUSR2);
        NEED(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGUSR2, &action, NULL) == 0);
        caught = 0;
        sigprocmask(SIG_SETMASK, &blocked, NULL);
        for (int way = 0; way < 6; way++) {
            sigset_t *mask = &masks[i == 3];
            struct timespec limit = {way % 2 ? 0 : 5, 0};
            FD_ZERO(&in);
            FD_SET(S, &in);
            kill(getpid(), SIGUSR1), kill(getpid(), SIGUSR2);
            if (way < 2) SAY(ppoll(&one, 1, &limit, mask));
            else if (way < 4) SAY(pselect(S + 1, &in, NULL, NULL, &limit, mask));
            else if (way < 5) SAY(epoll_pwait(epfd, &event, 1, 5000, mask));
            else SAY(sigsuspend(mask));
            say_which();
        }
        if (i == 1) point();
    }
}

static sigjmp_buf away;
static void jump(int signal) { (void)signal; siglongjmp(away, 1); }

CASE(jump_out_of_a_read, IN, ALL_PHASES) {
    char bytes[10];
    signal(SIGUSR1, jump);
    for (int i = 0; i < 5; i++) {
        later3(OP_SIGNAL, SIGUSR1, 0, 0);
        if (sigsetjmp(away, 1) == 0) SAY(read(S, bytes, 10));
        else say("jumped");
        peer_done();
        if (i == 2) point();
        SAY_PEER(OP_SEND, 5);
        SAY(get(5));
    }
}

CASE(jump_out_of_a_wait, IN, ALL_PHASES) {
    struct pollfd one = {S, POLLIN, 0};
    signal(SIGUSR1, jump);
    for (int i = 0; i < 3; i++) {
        later3(OP_SIGNAL, SIGUSR1, 0, 0);
        if (sigsetjmp(away, 1) == 0) SAY(poll(&one, 1, -1));
        else say("jumped");
        peer_done();
        SAY_PEER(OP_SEND, 5);
        SAY(get(5));
    }
}

CASE(alarm_during_a_read, IN, ALL_PHASES) {
    char bytes[10];
    install(SIGALRM, 0);
    ualarm(20000, 0);
    SAY(read(S, bytes, 10));
    point();
    struct itimerval span = {{0, 20000}, {0, 20000}};
    setitimer(ITIMER_REAL, &span, NULL);
    for (int i = 0; i < 4; i++) SAY(read(S, bytes, 10));
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    SAY(caught);
    SAY_PEER(OP_SEND, 5);
    SAY(get(5));
}

CASE(handler_uses_the_session, SOCK, ALL_PHASES) {
    extern void use_it(int);
    char bytes[10];
    struct sigaction action = {.sa_handler = use_it, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < 4; i++) {
        later3(OP_SIGNAL, SIGUSR1, 0, 0);
        pid_t child = fork();
        if (child == 0) {
            peer_done();
            /* The handler's bytes come first, then an answer. */
            NEED(peer(OP_RECV, 3) == 3);
            NEED(peer(OP_SEND, 10) == 10);
            _exit(0);
        }
        check(bytes, SAY(read(S, bytes, 10)));
        int status;
        waitpid(child, &status, 0);
        say_status("child", status);
    }
}

void use_it(int signal) {
    char bytes[3];
    int error = errno;
    (void)signal;
    fill(bytes, 3);
    NEED(write(S, bytes, 3) == 3);
    errno = error;
}

CASE(handler_while_busy, SOCK, "km") {
    /* Signals come at any point of short calls, and the handler uses the session too. */
    int echoed = 0;
    extern void count_and_look(int);
    struct sigaction action = {.sa_handler = count_and_look, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval span = {{0, 150}, {0, 150}};
    later3(OP_ECHO, 2000, 200, 0);
    setitimer(ITIMER_REAL, &span, NULL);
    char bytes[200];
    for (int i = 0; i < 2000; i++) {
        memset(bytes, i, 200);
        for (int at = 0; at < 200;) {
            ssize_t n = write(S, bytes + at, 200 - at);
            NEED(n > 0);
            at += n;
        }
        for (int at = 0; at < 200;) {
            ssize_t n = read(S, bytes + at, 200 - at);
            NEED(n > 0);
            at += n;
        }
        for (int at = 0; at < 200; at++) NEED(bytes[at] == (char)i);
        echoed++;
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    SAY(echoed);
    say("echoes: %ld", peer_done());
    HOLDS(caught > 0);
}

void count_and_look(int signal) {
    (void)signal;
    int error = errno, count;
    struct pollfd one = {S, POLLIN, 0};
    char byte;
    caught++;
    ioctl(S, FIONREAD, &count);
    poll(&one, 1, 0);
    if (recv(S, &byte, 1, MSG_PEEK | MSG_DONTWAIT)) {}
    errno = error;
}

static void *blocked(void *unused) {
    char bytes[10];
    (void)unused;
    ssize_t n = read(S, bytes, 10);
    note("not cancelled: %zd", n);
    return NULL;
}

static pthread_t begin_blocked(void) { return begin(blocked); }

CASE(cancelled_in_a_read, IN, ALL_PHASES) {
    pthread_t thread = begin_blocked();
    void *result;
    point();
    SAY(pthread_cancel(thread));
    SAY(pthread_join(thread, &result));
    HOLDS(result == PTHREAD_CANCELED);
    SAY_PEER(OP_SEND, 10);
    SAY(get(10));
    /* A second time, in case the first cancellation has left a lock taken. */
    thread = begin_blocked();
    SAY(pthread_cancel(thread));
    SAY(pthread_join(thread, &result));
    SAY_PEER(OP_SEND, 10);
    SAY(get(10));
}

/* Not by the loader: a static program's unwinder does not know the loader's code. */
#ifdef BY_THE_LOADER
#define SAY_UNWOUND() (void)0
#else
#define SAY_UNWOUND() SAY(unwound)
#endif

static int unwound;
static void unwind(int *unused) { (void)unused; unwound++; }

static void *blocked_with_a_local(void *unused) {
    /* Needs -fexceptions, as C++ does for destructors. */
    int local __attribute__((cleanup(unwind))) = 0;
    (void)local;
    return blocked(unused);
}

/* What a thread's frames leave to be cleaned up is cleaned up although a call of the library's is
 * in between. */
CASE(unwound_from_a_read, IN, ALL_PHASES) {
    pthread_t thread = begin(blocked_with_a_local);
    void *result;
    point();
    SAY(pthread_cancel(thread));
    SAY(pthread_join(thread, &result));
    HOLDS(result == PTHREAD_CANCELED);
    SAY_UNWOUND();
    SAY_PEER(OP_SEND, 10);
    SAY(get(10));
}

static void *interrupted;
static int sees_it;
static void look_back(int signal) {
    void *frames[100];
    (void)signal;
    int n = backtrace(frames, 100);
    for (int i = 0; i < n; i++)
        sees_it |= (char *)frames[i] > (char *)interrupted && (char *)frames[i] < (char *)interrupted + 1000;
}

/* A handler's stack trace reaches what the signal has interrupted. */
CASE(trace_in_a_handler, ANY, ALL_PHASES) {
    /* The first call loads the unwinder, which a handler must not. The only frame is this one. */
    SAY(backtrace(&interrupted, 1));
    signal(SIGUSR1, look_back);
    point();
    raise(SIGUSR1);
#ifndef BY_THE_LOADER
    SAY(sees_it);
#endif
    works("after the handler");
}

static void *writing(void *unused) {
    /* More bytes than a session of any kind takes while the peer does not read. */
    static char bytes[24000000];
    int local __attribute__((cleanup(unwind))) = 0;
    (void)unused, (void)local;
    ssize_t n = write(S, bytes, sizeof bytes);
    note("not cancelled: %zd", n);
    return NULL;
}

CASE(cancelled_in_the_middle_of_a_write, OUT, ALL_PHASES) {
    pthread_t thread = begin(writing);
    void *result;
    point();
    SAY(pthread_cancel(thread));
    SAY(pthread_join(thread, &result));
    HOLDS(result == PTHREAD_CANCELED);
    SAY_UNWOUND();
}

static void *receiving(void *unused) {
    char bytes[100];
    (void)unused;
    ssize_t n = recv(S, bytes, sizeof bytes, MSG_WAITALL);
    note("not cancelled: %zd", n);
    return NULL;
}

CASE(cancelled_in_the_middle_of_a_recv, SOCK, ALL_PHASES) {
    SAY_PEER(OP_SEND, 10);
    pthread_t thread = begin(receiving);
    void *result;
    point();
    SAY(pthread_cancel(thread));
    SAY(pthread_join(thread, &result));
    HOLDS(result == PTHREAD_CANCELED);
}

static void *polling(void *unused) {
    struct pollfd one = {S, POLLIN, 0};
    (void)unused;
    poll(&one, 1, -1);
    note("not cancelled");
    return NULL;
}

CASE(cancelled_in_a_poll, IN, ALL_PHASES) {
    pthread_t thread = begin(polling);
    void *result;
    SAY(pthread_cancel(thread));
    SAY(pthread_join(thread, &result));
    HOLDS(result == PTHREAD_CANCELED);
    SAY_PEER(OP_SEND, 10);
    SAY(get(10));
}

static void *pending_cancel(void *unused) {
    char bytes[10];
    (void)unused;
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL);
    pthread_cancel(pthread_self());
    /* read is a cancellation point with or without bytes to read (pthreads(7)). */
    ssize_t n = read(S, bytes, 5);
    note("not cancelled: %zd", n);
    return NULL;
}

CASE(cancellation_pending_at_a_read, IN, ALL_PHASES) {
    pthread_t thread;
    void *result;
    SAY_PEER(OP_SEND, 10);
    pthread_create(&thread, NULL, pending_cancel, NULL);
    pthread_join(thread, &result);
    HOLDS(result == PTHREAD_CANCELED);
    SAY(get(10));
}

CASE(signals_through_a_descriptor, IN, ALL_PHASES) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    struct pollfd two[2] = {{S, POLLIN, 0}, {fd, POLLIN, 0}};
    later3(OP_SIGNAL, SIGUSR1, 0, 0);
    SAY(poll(two, 2, 5000));
    peer_done();
    SAY(two[0].revents), SAY(two[1].revents);
    struct signalfd_siginfo info;
    SAY(read(fd, &info, sizeof info));
    SAY(info.ssi_signo);
    point();
    later(OP_SEND, 5);
    SAY(poll(two, 2, 5000));
    peer_done();
    SAY(two[0].revents), SAY(two[1].revents);
}

static void *sleeper(void *unused) {
    char bytes[10];
    (void)unused;
    ssize_t n = read(S, bytes, 10);
    note("thread: %zd %s, caught %d", n, n < 0 ? strerrorname_np(errno) : "", caught);
    return NULL;
}

CASE(signal_to_a_thread, IN, ALL_PHASES) {
    install(SIGUSR1, 0);
    pthread_t thread = begin(sleeper);
    point();
    SAY(pthread_kill(thread, SIGUSR1));
    join(thread);
}

CASE(stopped_and_continued, IN, ALL_PHASES) {
    char bytes[10];
    pid_t child = fork();
    if (child == 0) {
        until_asleep(getppid(), getppid());
        kill(getppid(), SIGSTOP);
        nap(10);
        kill(getppid(), SIGCONT);
        nap(10);
        NEED(peer(OP_SEND, 5) == 5);
        _exit(0);
    }
    check(bytes, SAY(read(S, bytes, 10)));
    int status;
    waitpid(child, &status, 0);
}

CASE(handlers_as_installed, PIN, "km") {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_NODEFER}, found;
    sigaddset(&action.sa_mask, SIGUSR2);
    SAY(sigaction(SIGUSR1, &action, NULL));
    SAY(sigaction(SIGUSR1, NULL, &found));
    HOLDS(found.sa_handler == on_signal);
    SAY(found.sa_flags & ~0x04000000);
    SAY(sigismember(&found.sa_mask, SIGUSR2));
    SAY(sigismember(&found.sa_mask, SIGTERM));
    HOLDS(signal(SIGUSR1, SIG_IGN) == on_signal);
    HOLDS(signal(SIGUSR1, SIG_DFL) == SIG_IGN);
    SAY(sigaction(SIGKILL, &action, NULL));
    SAY(sigaction(99, &action, NULL));
    for (int i = 1; i < 64; i++) {
        if (sigaction(i, NULL, &found)) continue;
        if (found.sa_handler != SIG_DFL) say("%d is not the default", i);
    }
}
