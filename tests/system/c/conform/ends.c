/* Ends of sessions: end of file, half-close, reset, broken pipes, close under a blocked thread,
 * killed peers. */
#include "conform.h"

static int pipes_caught;
static pid_t pipe_thread;
static void on_pipe(int signal) {
    (void)signal;
    pipes_caught++;
    pipe_thread = thread_number();
}

static void catch_pipes(void) {
    struct sigaction action = {.sa_handler = on_pipe};
    sigaction(SIGPIPE, &action, NULL);
}

/* Waits until the kernel has reported the state of the peer to this end. */
static void until_told(short events) {
    struct pollfd one = {S, events, 0};
    for (int i = 0; i < 1000 && !(poll(&one, 1, 1000) == 1 && one.revents & (events | POLLHUP | POLLERR)); i++) nap(1);
}

static void say_error(void) {
    int value = -1;
    socklen_t len = sizeof value;
    getsockopt(S, SOL_SOCKET, SO_ERROR, &value, &len);
    say("SO_ERROR: %s", value ? strerrorname_np(value) : "0");
}

static void say_poll(short events) {
    struct pollfd one = {S, events, 0};
    int n = poll(&one, 1, 0);
    say("poll: %d %s%s%s%s%s", n, one.revents & POLLIN ? "IN " : "", one.revents & POLLOUT ? "OUT " : "", one.revents & POLLRDHUP ? "RDHUP " : "",
        one.revents & POLLHUP ? "HUP " : "", one.revents & POLLERR ? "ERR " : "");
}

CASE(end_of_file, IN, ALL_PHASES) {
    char bytes[100];
    SAY_PEER(OP_SEND, 10);
    SAY_PEER(OP_CLOSE, 0);
    point();
    until_told(POLLIN | POLLRDHUP);
    check(bytes, SAY(read(S, bytes, 4)));
    check(bytes, SAY(read(S, bytes, 100)));
    SAY(read(S, bytes, 100));
    SAY(read(S, bytes, 100));
    say_poll(POLLIN | POLLOUT | POLLRDHUP);
    SAY(close(S));
}

CASE(end_of_file_blocked, IN, ALL_PHASES) {
    char bytes[100];
    later(OP_CLOSE, 0);
    SAY(read(S, bytes, 100));
    peer_done();
    SAY(read(S, bytes, 100));
}

CASE(end_of_file_by_exit, IN, ALL_PHASES) {
    char bytes[100];
    SAY_PEER(OP_SEND, 10);
    later(OP_EXIT, 0);
    SAY(get(10));
    SAY(read(S, bytes, 100));
}

CASE(end_of_file_by_quick_exit, IN, ALL_PHASES) {
    char bytes[100];
    SAY_PEER(OP_SEND, 10);
    if (kind != PIN) SAY(put(10));
    later(OP_EXIT, 1);
    SAY(get(10));
    SAY(read(S, bytes, 100));
    struct pollfd one = {S, POLLIN, 0};
    SAY(poll(&one, 1, 1000));
    SAY(one.revents);
}

CASE(end_of_file_with_much_unread, IN, ALL_PHASES) {
    SAY_PEER(OP_SEND, 60000);
    SAY_PEER(OP_CLOSE, 0);
    point();
    SAY(get(100000));
    SAY(read(S, &(char){0}, 1));
}

CASE(half_close_in, SOCK, ALL_PHASES) {
    char bytes[100];
    SAY_PEER(OP_SEND, 10);
    SAY_PEER(OP_SHUTDOWN, SHUT_WR);
    point();
    until_told(POLLRDHUP);
    say_poll(POLLIN | POLLOUT | POLLRDHUP);
    check(bytes, SAY(read(S, bytes, 100)));
    SAY(read(S, bytes, 100));
    SAY(put(20));
    SAY_PEER(OP_RECV, 20);
    SAY(put(30));
    SAY(shutdown(S, SHUT_WR));
    SAY_PEER(OP_DRAIN, 0);
    signal(SIGPIPE, SIG_IGN);
    SAY(write(S, bytes, 0));
    SAY(write(S, bytes, 1));
    say_poll(POLLIN | POLLOUT | POLLRDHUP);
}

CASE(half_close_in_while_blocked, SOCK, ALL_PHASES) {
    char bytes[100];
    later3(OP_SHUTDOWN, SHUT_WR, 0, 0);
    SAY(read(S, bytes, 100));
    peer_done();
    SAY(put(20));
    SAY_PEER(OP_RECV, 20);
}

CASE(half_close_out, SOCK, ALL_PHASES) {
    char bytes[100];
    SAY(put(1000));
    point();
    SAY(shutdown(S, SHUT_WR));
    SAY_PEER(OP_DRAIN, 0);
    SAY_PEER(OP_SEND, 15);
    check(bytes, SAY(read(S, bytes, 100)));
    signal(SIGPIPE, SIG_IGN);
    SAY(write(S, bytes, 1));
    SAY(send(S, bytes, 1, MSG_NOSIGNAL));
    SAY(shutdown(S, SHUT_WR));
    SAY(shutdown(S, 7));
    SAY_PEER(OP_SEND, 15);
    SAY(get(15));
    SAY_PEER(OP_CLOSE, 0);
    until_told(POLLHUP);
    SAY(read(S, bytes, 1));
    say_poll(POLLIN | POLLOUT | POLLRDHUP);
}

static void *reader(void *unused) {
    char bytes[100];
    (void)unused;
    ssize_t n = read(S, bytes, 100);
    note("thread: read -> %zd %s", n, n < 0 ? strerrorname_np(errno) : "");
    return NULL;
}

CASE(shutdown_under_a_blocked_reader, SOCK, ALL_PHASES) {
    pthread_t thread = begin(reader);
    point();
    SAY(shutdown(S, SHUT_RD));
    join(thread);
    SAY(put(5));
    SAY_PEER(OP_RECV, 5);
    SAY(read(S, &(char){0}, 1));
}

CASE(shutdown_both_under_a_blocked_reader, SOCK, ALL_PHASES) {
    pthread_t thread = begin(reader);
    SAY(shutdown(S, SHUT_RDWR));
    join(thread);
    SAY_PEER(OP_DRAIN, 0);
}

static void *writer(void *unused) {
    // More bytes than a session of any kind takes while the peer does not read.
    static char bytes[24000000];
    (void)unused;
    signal(SIGPIPE, SIG_IGN);
    ssize_t n = write(S, bytes, sizeof bytes);
    note("thread: write -> %s", n < 0 ? strerrorname_np(errno) : n == sizeof bytes ? "all" : "some");
    n = write(S, bytes, sizeof bytes);
    note("thread: write -> %s", n < 0 ? strerrorname_np(errno) : "some");
    return NULL;
}

CASE(shutdown_under_a_blocked_writer, SOCK, ALL_PHASES) {
    pthread_t thread = begin(writer);
    point();
    SAY(shutdown(S, SHUT_WR));
    join(thread);
}

CASE(peer_closes_under_a_blocked_writer, OUT, ALL_PHASES) {
    pthread_t thread = begin(writer);
    SAY_PEER(OP_CLOSE, 0);
    join(thread);
}

CASE(peer_shuts_reading_under_a_blocked_writer, LOCAL, ALL_PHASES) {
    pthread_t thread = begin(writer);
    SAY_PEER(OP_SHUTDOWN, SHUT_RD);
    join(thread);
    say_poll(POLLIN | POLLOUT | POLLRDHUP);
}

CASE(broken_pipe, OUT, ALL_PHASES) {
    catch_pipes();
    SAY_PEER(OP_CLOSE, 0);
    point();
    until_told(kind == POUT ? POLLERR : POLLRDHUP);
    if (kind & TCP) {
        /* A TCP peer answers the first send with a reset; the second call below reports it. */
        SAY(send(S, "x", 1, 0));
        until_told(POLLHUP);
    }
    pid_t here = thread_number();
    SAY(write(S, "x", 1));
    SAY(pipes_caught);
    HOLDS(pipe_thread == here);
    SAY(write(S, "x", 0));
    SAY(pipes_caught);
    if (kind != POUT) {
        SAY(send(S, "x", 1, MSG_NOSIGNAL));
        SAY(pipes_caught);
        SAY(send(S, "x", 1, 0));
        SAY(pipes_caught);
    }
    struct iovec part = {"x", 1};
    SAY(writev(S, &part, 1));
    SAY(pipes_caught);
    say_poll(POLLOUT);
}

static void *break_pipe(void *unused) {
    (void)unused;
    pid_t here = thread_number();
    ssize_t n = write(S, "x", 1);
    note("thread: %zd %s", n, strerrorname_np(errno));
    note("the signal came to this thread: %d", pipe_thread == here);
    return NULL;
}

CASE(broken_pipe_in_a_thread, LOCAL | POUT, ALL_PHASES) {
    catch_pipes();
    SAY_PEER(OP_CLOSE, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, break_pipe, NULL);
    join(thread);
    SAY(pipes_caught);
}

CASE(broken_pipe_kills, LOCAL | POUT, ALL_PHASES) {
    SAY_PEER(OP_CLOSE, 0);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        SAY(write(S, "x", 1));
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    say_status("child", status);
    signal(SIGPIPE, SIG_DFL);
    SAY(write(S, "x", 1));
}

CASE(broken_pipe_blocked_signal, LOCAL | POUT, ALL_PHASES) {
    sigset_t set, found;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    sigprocmask(SIG_BLOCK, &set, NULL);
    catch_pipes();
    SAY_PEER(OP_CLOSE, 0);
    SAY(write(S, "x", 1));
    SAY(write(S, "x", 1));
    sigpending(&found);
    SAY(sigismember(&found, SIGPIPE));
    SAY(pipes_caught);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    SAY(pipes_caught);
}

CASE(peer_closes_with_unread_data, SOCK, ALL_PHASES) {
    char bytes[10];
    signal(SIGPIPE, SIG_IGN);
    SAY(put(100));
    point();
    SAY_PEER(OP_CLOSE, 0);
    until_told(POLLHUP);
    say_poll(POLLIN | POLLOUT | POLLRDHUP);
    SAY(read(S, bytes, 10));
    SAY(read(S, bytes, 10));
    SAY(write(S, bytes, 10));
    say_poll(POLLIN | POLLOUT | POLLRDHUP);
}

CASE(peer_closes_with_unread_data_and_sent_some, SOCK, ALL_PHASES) {
    char bytes[100];
    SAY(put(100));
    SAY_PEER(OP_SEND, 50);
    point();
    SAY_PEER(OP_CLOSE, 0);
    until_told(POLLHUP);
    if (kind & TCP) {
        /* A read may return the bytes received before the reset or the error. The bytes are not
         * compared with the sequence; both runs must print the same results. */
        SAY(read(S, bytes, 100));
        SAY(read(S, bytes, 100));
    } else {
        check(bytes, SAY(read(S, bytes, 100)));
        SAY(read(S, bytes, 100));
        SAY(read(S, bytes, 100));
    }
}

CASE(peer_closes_with_unread_data_while_blocked, SOCK, ALL_PHASES) {
    char bytes[10];
    SAY(put(100));
    later(OP_CLOSE, 0);
    SAY(read(S, bytes, 10));
    peer_done();
    SAY(read(S, bytes, 10));
    say_error();
}

CASE(close_with_unread_data, SOCK, ALL_PHASES) {
    SAY_PEER(OP_SEND, 100);
    point();
    SAY(close(S));
    nap(5);
    SAY_PEER(OP_RECV, 10);
    SAY_PEER(OP_RECV, 10);
}

CASE(close_then_peer_reads_all, OUT, ALL_PHASES) {
    SAY(put(30000));
    point();
    SAY(close(S));
    SAY_PEER(OP_DRAIN, 0);
}

CASE(close_with_more_than_the_kernel_holds, OUT, ALL_PHASES) {
    int on = 1;
    static char bytes[100000];
    long sum = 0, n;
    ioctl(S, FIONBIO, &on);
    while ((n = write(S, fill(bytes, sizeof bytes), sizeof bytes)) > 0) { unfill(sizeof bytes - n); sum += n; }
    later(OP_DRAIN, 0);
    SAY(close(S));
    HOLDS(peer_done() == sum);
}

CASE(linger_zero, TCP, ALL_PHASES) {
    struct linger now = {1, 0};
    SAY(put(100));
    point();
    SAY(setsockopt(S, SOL_SOCKET, SO_LINGER, &now, sizeof now));
    SAY(close(S));
    nap(5);
    SAY_PEER(OP_RECV, 10);
}

CASE(linger_some, SOCK, ALL_PHASES) {
    struct linger some = {1, 5};
    SAY(setsockopt(S, SOL_SOCKET, SO_LINGER, &some, sizeof some));
    SAY(put(1000));
    point();
    SAY(close(S));
    SAY_PEER(OP_DRAIN, 0);
}

CASE(peer_resets, TCP, ALL_PHASES) {
    char bytes[10];
    later(OP_RESET, 0);
    SAY(read(S, bytes, 10));
    peer_done();
    SAY(read(S, bytes, 10));
    catch_pipes();
    SAY(write(S, bytes, 10));
    SAY(pipes_caught);
}

CASE(peer_resets_error_is_kept, TCP, ALL_PHASES) {
    SAY_PEER(OP_RESET, 0);
    until_told(POLLERR);
    point();
    say_poll(POLLIN | POLLOUT | POLLRDHUP);
    say_error();
    say_error();
    SAY(read(S, &(char){0}, 1));
}

/* The kernel leaves the thread waiting until the peer sends, and a moved session ends the wait
 * (docs/use/linux-differences.md). In no case may the thread read from the object that has taken
 * over the number. */
static void *loose_reader(void *unused) {
    char bytes[100];
    (void)unused;
    ssize_t n = read(S, bytes, 100);
    note("thread: %s", n == 10 || (n == -1 && errno == EBADF) ? "as it may" : n == 0 ? "end" : "wrong");
    return NULL;
}

CASE(close_under_a_blocked_reader, IN, ALL_PHASES) {
    pthread_t thread = begin(loose_reader);
    point();
    SAY(close(S));
    SAY(fcntl(S, F_GETFD));
    nap(5);
    peer(OP_SEND, 10);
    join(thread);
}

CASE(close_under_a_blocked_reader_and_use_the_number, IN, ALL_PHASES) {
    int pair[2], number = S;
    char bytes[10];
    pthread_t thread = begin(loose_reader);
    SAY(close(S));
    NEED(pipe2(pair, O_CLOEXEC) == 0);
    while (pair[0] != number && pair[1] != number) {
        int fd = dup(pair[0]);
        NEED(fd >= 0);
        if (fd == number) break;
    }
    SAY(write(pair[1], "new", 3));
    nap(5);
    SAY(read(pair[0], bytes, 10));
    peer(OP_SEND, 10);
    join(thread);
    SAY(close(pair[0]));
    SAY(close(pair[1]));
}

CASE(peer_killed_at_rest, ANY, ALL_PHASES) {
    char bytes[10];
    signal(SIGPIPE, SIG_IGN);
    point();
    kill_peer();
    until_told(kind == POUT ? POLLERR : POLLIN | POLLRDHUP);
    if (kind != POUT) SAY(read(S, bytes, 10));
    if (kind != PIN) SAY(write(S, bytes, 10));
    if (kind & TCP) until_told(POLLHUP);
    if (kind != PIN) SAY(write(S, bytes, 10));
    if (kind != POUT) SAY(read(S, bytes, 10));
    say_poll(POLLIN | POLLOUT | POLLRDHUP);
}

CASE(peer_killed_while_blocked, IN, ALL_PHASES) {
    char bytes[10];
    later(OP_SIGNAL, 0);
    peer_done();
    pid_t child = fork();
    if (child == 0) {
        until_asleep(getppid(), getppid());
        kill(peer_pid, SIGKILL);
        _exit(0);
    }
    SAY(read(S, bytes, 10));
    SAY(read(S, bytes, 10));
    int status;
    waitpid(child, &status, 0);
}

CASE(peer_killed_having_sent, IN, ALL_PHASES) {
    SAY_PEER(OP_SEND, 40000);
    point();
    kill_peer();
    SAY(get(100000));
    SAY(read(S, &(char){0}, 1));
}

/* Goes on when the first thread has ended: /proc/self then shows nothing of the process. */
static void *child_reads_the_rest(void *unused) {
    extern void end_case(void);
    char name[60], text[400];
    (void)unused;
    snprintf(name, sizeof name, "/proc/%d/stat", getpid());
    do {
        nap(1);
        int file = open(name, O_RDONLY | O_CLOEXEC);
        ssize_t n = read(file, text, sizeof text - 1);
        close(file);
        text[n > 0 ? n : 0] = 0;
    } while (!strstr(text, ") Z "));
    kill_peer();
    pid_t child = fork();
    if (child == 0) {
        SAY(get(100));
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    SAY(get(100));
    end_case();
    exit(0);
}

CASE(peer_killed_having_sent_to_a_program_without_first_thread, PIN, ALL_PHASES) {
    pthread_t thread;
    SAY_PEER(OP_SEND, 100);
    point();
    NEED(pthread_create(&thread, NULL, child_reads_the_rest, NULL) == 0);
    pthread_exit(NULL);
}

CASE(peer_killed_with_unread_data, SOCK, ALL_PHASES) {
    char bytes[10];
    SAY(put(100));
    point();
    kill_peer();
    until_told(POLLHUP);
    SAY(read(S, bytes, 10));
    SAY(read(S, bytes, 10));
}

CASE(peer_killed_with_unread_data_and_sent_some, LOCAL, ALL_PHASES) {
    char bytes[100];
    SAY(put(100));
    SAY_PEER(OP_SEND, 50);
    point();
    kill_peer();
    until_told(POLLHUP);
    check(bytes, SAY(read(S, bytes, 100)));
    SAY(read(S, bytes, 100));
    SAY(read(S, bytes, 100));
}

/* A pending error is reported once, by the first call that asks for it. */
CASE(error_of_a_killed_peer, SOCK, ALL_PHASES) {
    char bytes[10];
    SAY(put(100));
    point();
    say_error();
    kill_peer();
    until_told(POLLHUP);
    say_error();
    say_error();
    SAY(read(S, bytes, 10));
    say_error();
}

CASE(error_of_a_killed_peer_asked_at_once, SOCK, ALL_PHASES) {
    char bytes[10];
    int value = -1;
    socklen_t len = sizeof value;
    SAY(put(100));
    point();
    kill_peer();
    for (int i = 0; i < 5000 && getsockopt(S, SOL_SOCKET, SO_ERROR, &value, &len) == 0 && value == 0; i++) nap(1);
    say("%s", strerrorname_np(value));
    SAY(read(S, bytes, 10));
}

CASE(error_of_a_killed_peer_that_has_sent_some, LOCAL, ALL_PHASES) {
    char bytes[100];
    SAY(put(100));
    SAY_PEER(OP_SEND, 50);
    point();
    kill_peer();
    until_told(POLLHUP);
    say_error();
    check(bytes, SAY(read(S, bytes, 100)));
    say_error();
    SAY(read(S, bytes, 100));
}

/* An error that a receive has reported is not pending any more. */
CASE(error_of_a_killed_peer_received, SOCK, ALL_PHASES) {
    char bytes[10];
    SAY(put(100));
    point();
    kill_peer();
    until_told(POLLHUP);
    SAY(read(S, bytes, 10));
    say_error();
    SAY(read(S, bytes, 10));
}

CASE(peer_killed_in_the_middle, ANY, ALL_PHASES) {
    signal(SIGPIPE, SIG_IGN);
    if (kind != POUT) {
        later(OP_SEND, 50000000);
        SAY(get(100000));
        point();
        kill_peer();
        long n = get(60000000);
        /* The result is the rest of the bytes in order, then the end of file or a reset. */
        HOLDS(n >= -1 && n < 50000000);
        n = read(S, &(char){0}, 1);
        HOLDS(n == 0 || (n == -1 && kind & TCP && errno == ECONNRESET));
    } else {
        later(OP_RECV, 50000000);
        SAY(put(100000));
        point();
        kill_peer();
        SAY(put(60000000));
    }
}

CASE(close_while_the_peer_is_about_to_read, OUT, "kmr") {
    SAY(put(20000));
    later(OP_DRAIN, 0);
    close(S);
    HOLDS(peer_done() == 20000);
}

/* Bytes that nobody has read leave the writer's process with the writer, which is not told. */
static void unread_then(enum op end, void (*leave)(void)) {
    catch_pipes();
    SAY(put(1000));
    if (end == OP_NOTHING)
        kill_peer();
    else
        peer(end, 0);
    point();
    leave();
    say("SIGPIPE: %d", pipes_caught);
}

static void leave_by_close(void) {
    SAY(close(S));
}

static void leave_by_dup(void) {
    int other = open("/dev/null", O_WRONLY);
    HOLDS(dup2(other, S) == S);
}

static void leave_by_fork(void) {
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(close(S));
    HOLDS(waitpid(child, &status, 0) == child && status == 0);
}

static void leave_by_spawn(void) {
    fflush(stdout);
    int status = -1;
    pid_t child = vfork();
    if (child == 0)
        execl("/bin/true", "true", NULL);
    HOLDS(waitpid(child, &status, 0) == child && status == 0);
    signal(SIGPIPE, SIG_DFL);
}

CASE(close_after_a_killed_reader, OUT, ALL_PHASES) {
    unread_then(OP_NOTHING, leave_by_close);
}

CASE(close_after_a_reader_that_closed, OUT, ALL_PHASES) {
    unread_then(OP_CLOSE, leave_by_close);
}

CASE(dup_over_after_a_killed_reader, OUT, ALL_PHASES) {
    unread_then(OP_NOTHING, leave_by_dup);
}

CASE(fork_after_a_killed_reader, OUT, ALL_PHASES) {
    unread_then(OP_NOTHING, leave_by_fork);
}

CASE(spawn_after_a_killed_reader, OUT, ALL_PHASES) {
    unread_then(OP_NOTHING, leave_by_spawn);
}

CASE(end_after_a_killed_reader, LOCAL | POUT, ALL_PHASES) {
    SAY(put(1000));
    kill_peer();
    point();
    fflush(stdout);
    signal(SIGPIPE, SIG_DFL);
}

CASE(close_after_a_killed_reader_with_a_pending_signal, OUT, ALL_PHASES) {
    sigset_t set, found;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    sigprocmask(SIG_BLOCK, &set, NULL);
    SAY(put(1000));
    kill_peer();
    point();
    raise(SIGPIPE);
    SAY(close(S));
    sigpending(&found);
    SAY(sigismember(&found, SIGPIPE));
}
