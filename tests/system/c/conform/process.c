/* fork, vfork, spawn, exec, passing descriptors, stdio, and pipelines. */
#include "conform.h"
#include <spawn.h>
extern char **environ;

static void say_child(const char *what, pid_t child) {
    int status;
    while (waitpid(child, &status, 0) == -1 && errno == EINTR) {}
    say_status(what, status);
}

/* Receives in a child. The child has its own copy of the byte sequences, so the child reports its
 * position and the parent advances its own. */
static long child_gets(long len) {
    int told[2];
    NEED(pipe2(told, O_CLOEXEC) == 0);
    pid_t child = fork();
    if (child == 0) {
        long n = get(len);
        NEED(write(told[1], &n, sizeof n) == sizeof n);
        _exit(0);
    }
    long n = -2;
    close(told[1]);
    NEED(read(told[0], &n, sizeof n) == sizeof n);
    close(told[0]);
    say_child("child", child);
    return n;
}

/* Handlers of fork (pthread_atfork(3)) that the program registers before its first call, and that
 * use the session. */
static void (*in_child_first)(void);
static void child_begins(void) { if (in_child_first) in_child_first(); }
__attribute__((constructor)) static void register_handlers(void) { pthread_atfork(NULL, NULL, child_begins); }

static void uses_it(void) { works("handler"); }
static void closes_it(void) { SAY(close(S)); }

static void fork_with(void (*handler)(void)) {
    in_child_first = handler;
    pid_t child = fork();
    if (child == 0) _exit(5);
    say_child("child", child);
}

CASE(handler_of_fork_uses_it, ANY, ALL_PHASES) {
    works("before");
    fork_with(uses_it);
}

CASE(handler_of_fork_closes_it, ANY, ALL_PHASES) {
    works("before");
    fork_with(closes_it);
    works("parent");
}

CASE(child_reads, IN, ALL_PHASES) {
    SAY_PEER(OP_SEND, 1000);
    point();
    SAY(child_gets(400));
    /* The parent goes on where the child has stopped. */
    skip_received(400);
    SAY(get(600));
    works("parent");
}

/* Lets a child's first use of an inherited session be a wait. */
static void child_waits(int (*wait)(void)) {
    SAY_PEER(OP_SEND, 100);
    pid_t child = fork();
    if (child == 0) {
        SAY(wait());
        SAY(get(100));
        later(OP_SEND, 50);
        SAY(wait());
        SAY(get(50));
        SAY(peer_done());
        _exit(0);
    }
    point();
    say_child("child", child);
    skip_received(150);
    works("parent");
}

static int wait_by_poll(void) {
    struct pollfd asked[2] = {{S, POLLIN, 0}, {-1, 0, 0}};
    int found = poll(asked, 2, 5000);
    return found == 1 ? asked[0].revents : -found;
}

static int wait_by_select(void) {
    fd_set asked;
    struct timeval limit = {5, 0};
    FD_ZERO(&asked);
    FD_SET(S, &asked);
    return select(S + 1, &asked, NULL, NULL, &limit);
}

static int wait_by_epoll(void) {
    struct epoll_event event = {EPOLLIN, {.u64 = 7}}, found = {0};
    int set = epoll_create1(0);
    NEED(epoll_ctl(set, EPOLL_CTL_ADD, S, &event) == 0);
    int count = epoll_wait(set, &found, 1, 5000);
    NEED(close(set) == 0);
    return count == 1 ? (int)found.data.u64 : -count;
}

static int ask_how_much(void) {
    int there = 0;
    for (int i = 0; i < 5000 && there == 0; i++) {
        NEED(ioctl(S, FIONREAD, &there) == 0);
        if (there == 0) nap(1);
    }
    return there;
}

CASE(child_polls, IN, ALL_PHASES) {
    child_waits(wait_by_poll);
}

CASE(child_selects, IN, ALL_PHASES) {
    child_waits(wait_by_select);
}

CASE(child_waits_by_epoll, IN, ALL_PHASES) {
    child_waits(wait_by_epoll);
}

CASE(child_asks_how_much, IN, "m") {
    SAY_PEER(OP_SEND, 100);
    pid_t child = fork();
    if (child == 0) {
        SAY(ask_how_much());
        SAY(get(100));
        _exit(0);
    }
    say_child("child", child);
    skip_received(100);
    works("parent");
}

CASE(child_reads_what_comes_later, IN, ALL_PHASES) {
    pid_t child = fork();
    if (child == 0) {
        SAY(get(500));
        _exit(0);
    }
    nap(5);
    NEED(peer(OP_SEND, 500) == 500);
    say_child("child", child);
    skip_received(500);
    works("parent");
}

CASE(child_writes, OUT, ALL_PHASES) {
    SAY(put(100));
    pid_t child = fork();
    if (child == 0) {
        SAY(put(30000));
        _exit(0);
    }
    say_child("child", child);
    skip_sent(30000);
    point();
    SAY(put(100));
    SAY_PEER(OP_RECV, 30200);
    works("parent");
}

CASE(child_touches_nothing, ANY, ALL_PHASES) {
    pid_t child = fork();
    if (child == 0) _exit(7);
    say_child("child", child);
    works("parent");
    point();
    child = fork();
    if (child == 0) _exit(7);
    works("parent");
    say_child("child", child);
    works("parent");
}

CASE(child_exits_through_exit, ANY, ALL_PHASES) {
    pid_t child = fork();
    if (child == 0) exit(7);
    say_child("child", child);
    works("parent");
}

CASE(child_closes, ANY, ALL_PHASES) {
    pid_t child = fork();
    if (child == 0) {
        for (int i = 3; i < 300; i++) close(i);
        _exit(0);
    }
    say_child("child", child);
    works("parent");
}

CASE(parent_closes_child_serves, ANY, ALL_PHASES) {
    int done[2];
    char none;
    if (kind != PIN) SAY(put(100));
    NEED(!pipe(done));
    pid_t child = fork();
    if (child == 0) {
        /* Parent and child give orders over the same channel and print the same transcript, so the
         * child begins only after the parent has finished. */
        close(done[1]);
        NEED(read(done[0], &none, 1) == 0);
        nap(5);
        works("child");
        works("child again");
        for (int i = 0; i < 30; i++) {
            NEED(kind == POUT || (peer(OP_SEND, 1) == 1 && get(1) == 1));
            NEED(kind == PIN || (kind == POUT ? 1 : put(1) == 1 && peer(OP_RECV, i ? 1 : 1) == 1));
        }
        _exit(0);
    }
    if (kind != PIN) peer(OP_RECV, 100);
    SAY(close(S));
    close(done[0]);
    close(done[1]);
    say_child("child", child);
    if (kind != PIN) SAY_PEER(OP_DRAIN, 0);
}

CASE(both_write, OUT, ALL_PHASES) {
    /* Lines of parent and child, each of which must arrive whole. */
    char line[64];
    memset(line, 'a', sizeof line);
    pid_t child = fork();
    if (child == 0) memset(line, 'b', sizeof line);
    for (int i = 0; i < 100; i++) NEED(write(S, line, sizeof line) == sizeof line);
    if (child == 0) _exit(0);
    say_child("child", child);
    long found = 0;
    /* The bytes are not those of the sequence, so the peer counts them. */
    while (found < 12800) {
        long n = peer3(OP_RECV_ONE, 12800 - found, 0, 0);
        if (kind == POUT || n <= 0) break;
        found += n;
    }
    if (kind != POUT) SAY(found);
}

CASE(both_read, IN, ALL_PHASES) {
    int told[2];
    NEED(pipe2(told, O_CLOEXEC) == 0);
    point();
    char bytes[100];
    long sum = 0;
    pid_t child = fork();
    if (child == 0) {
        ssize_t n;
        while ((n = read(S, bytes, 100)) > 0) sum += n;
        NEED(write(told[1], &sum, sizeof sum) == sizeof sum);
        _exit(0);
    }
    nap(5);
    NEED(peer(OP_SEND, 20000) == 20000);
    NEED(peer(OP_CLOSE, 0) == 0);
    ssize_t n;
    while ((n = read(S, bytes, 100)) > 0) sum += n;
    long others = 0;
    NEED(read(told[0], &others, sizeof others) == sizeof others);
    say("together: %ld", sum + others);
    say_child("child", child);
}

CASE(child_of_a_child, ANY, ALL_PHASES) {
    pid_t child = fork();
    if (child == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) {
            works("grandchild");
            _exit(3);
        }
        say_child("grandchild", grandchild);
        _exit(4);
    }
    say_child("child", child);
    if (kind != POUT) skip_received(10);
    if (kind != PIN) skip_sent(10);
    works("parent");
}

CASE(daemon_style, ANY, ALL_PHASES) {
    /* A grandchild uses the session after its parents have ended. */
    int told[2];
    NEED(pipe2(told, O_CLOEXEC) == 0);
    pid_t child = fork();
    if (child == 0) {
        if (fork() != 0) _exit(0);
        setsid();
        nap(5);
        works("daemon");
        _exit(0);
    }
    close(told[1]);
    int status;
    waitpid(child, &status, 0);
    NEED(read(told[0], &status, 1) == 0);
    SAY(close(S));
}

CASE(fork_under_a_blocked_reader, IN, ALL_PHASES) {
    extern void *read_some(void *);
    pthread_t thread = begin(read_some);
    pid_t child = fork();
    if (child == 0) _exit(0);
    say_child("child", child);
    peer(OP_SEND, 10);
    join(thread);
}

void *read_some(void *unused) {
    char bytes[100];
    (void)unused;
    ssize_t n = read(S, bytes, 100);
    note("thread: read -> %zd", n);
    return NULL;
}

CASE(forks_while_threads_use_it, SOCK, ALL_PHASES) {
    later3(OP_ECHO, 300, 1000, 0);
    char bytes[1000] = "";
    for (int i = 0; i < 300; i++) {
        NEED(write(S, bytes, 1000) == 1000);
        if (i % 20 == 0) {
            pid_t child = fork();
            if (child == 0) _exit(0);
            int status;
            NEED(waitpid(child, &status, 0) == child && status == 0);
        }
        for (int at = 0; at < 1000;) {
            ssize_t n = read(S, bytes, 1000 - at);
            NEED(n > 0);
            at += n;
        }
    }
    say("echoes: %ld", peer_done());
}

/* Role of a program started by exec: mode r reads and checks the bytes sent, w writes. static.c
 * does the same in a static program. */
ROLE(use) {
    int fd = atoi(argv[1]);
    static char bytes[1000];
    if (argv[2][0] == 'r') {
        ssize_t n = read(fd, bytes, 500);
        say("exec'd: read -> %zd", n);
    } else {
        ssize_t n = write(fd, bytes, 300);
        say("exec'd: write -> %zd", n);
    }
    return 0;
}

static void exec_with(const char *path, char mode) {
    char number[16], letter[2] = {mode, 0};
    snprintf(number, sizeof number, "%d", S);
    fcntl(S, F_SETFD, 0);
    fcntl(conform_channel(), F_SETFD, 0);
    if (path == static_path) execl(path, path, number, letter, (char *)NULL);
    else execl(path, path, "--role", "use", number, letter, (char *)NULL);
    _exit(90);
}

static void try_exec(const char *path, const char *what) {
    if (kind != POUT) {
        SAY_PEER(OP_SEND, 500);
        pid_t child = fork();
        if (child == 0) exec_with(path, 'r');
        say_child(what, child);
        skip_received(500);
    }
    if (kind != PIN) {
        pid_t child = fork();
        if (child == 0) exec_with(path, 'w');
        say_child(what, child);
        /* The bytes are zeros, so they are counted and not checked. */
        long n = peer3(OP_RECV_ONE, 300, kind == POUT ? 0 : MSG_WAITALL, 0);
        if (kind != POUT) SAY(n);
    }
}

CASE(exec_in_a_child, ANY, ALL_PHASES) {
    try_exec(self_path, "dynamic");
}

CASE(exec_of_a_static_program, ANY, ALL_PHASES) {
    point();
    try_exec(static_path, "static");
}

CASE(exec_with_data_already_there, IN, ALL_PHASES) {
    SAY_PEER(OP_SEND, 500);
    point();
    exec_with(static_path, 'r');
}

CASE(exec_after_sending, OUT, ALL_PHASES) {
    SAY(put(5000));
    later(OP_RECV, 5000);
    nap(2);
    exec_with(static_path, 'w');
}

CASE(exec_itself, ANY, ALL_PHASES) {
    if (kind != POUT) SAY_PEER(OP_SEND, 500);
    exec_with(self_path, kind == POUT ? 'w' : 'r');
}

CASE(failed_exec, ANY, ALL_PHASES) {
    works("before");
    SAY(execl("/nonexistent/program", "program", (char *)NULL));
    works("after");
}

CASE(close_on_exec, ANY, ALL_PHASES) {
    char number[16];
    snprintf(number, sizeof number, "%d", S);
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "if test -e /proc/self/fd/$0; then exit 1; else exit 2; fi", number, (char *)NULL);
        _exit(90);
    }
    say_child("not inherited", child);
    works("session");
}

CASE(vfork_and_exec, ANY, ALL_PHASES) {
    works("before");
    for (int i = 0; i < 3; i++) {
        pid_t child = vfork();
        if (child == 0) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(90);
        }
        say_child("child", child);
        works("parent");
    }
    pid_t child = vfork();
    if (child == 0) _exit(5);
    say_child("child", child);
    works("parent");
}

CASE(vfork_closes_and_duplicates, ANY, ALL_PHASES) {
    works("before");
    int fd = S;
    pid_t child = vfork();
    if (child == 0) {
        close(fd);
        dup2(0, fd);
        close(0);
        execl("/bin/true", "true", (char *)NULL);
        _exit(90);
    }
    say_child("child", child);
    point();
    works("parent");
}

CASE(spawn_with_actions, IN, ALL_PHASES) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, S, 60);
    posix_spawn_file_actions_addclose(&actions, S);
    char *words[] = {(char *)static_path, "60", "r", NULL};
    pid_t child;
    SAY_PEER(OP_SEND, 500);
    point();
    NEED(posix_spawn(&child, static_path, &actions, NULL, words, environ) == 0);
    say_child("static", child);
    skip_received(500);
    SAY_PEER(OP_SEND, 500);
    char *own[] = {self_path, "--role", "use", "60", "r", NULL};
    NEED(posix_spawn(&child, self_path, &actions, NULL, own, environ) == 0);
    say_child("dynamic", child);
    skip_received(500);
    works("parent");
    SAY(posix_spawn(&child, "/nonexistent", NULL, NULL, own, environ));
    works("parent");
}

CASE(system_and_popen, ANY, ALL_PHASES) {
    works("before");
    SAY(system("exit 3"));
    works("after system");
    point();
    FILE *lines = popen("echo one; echo two", "r");
    NEED(lines);
    char line[20];
    while (fgets(line, sizeof line, lines)) say("line: %.3s", line);
    SAY(pclose(lines));
    works("after popen");
    lines = popen("cat >&1", "w");
    fprintf(lines, "through cat\n");
    SAY(pclose(lines));
    works("after popen");
}

CASE(system_with_the_session_as_input, IN, ALL_PHASES) {
    int kept = dup(0);
    SAY_PEER(OP_SEND, 500);
    SAY_PEER(OP_CLOSE, 0);
    point();
    NEED(dup2(S, 0) == 0);
    SAY(system("wc -c"));
    NEED(dup2(kept, 0) == 0);
}

CASE(system_with_the_session_as_output, OUT, ALL_PHASES) {
    int kept = dup(1);
    NEED(put(10) == 10);
    point();
    NEED(dup2(S, 1) == 1);
    int status = system("head -c 1000 /dev/zero");
    NEED(dup2(kept, 1) == 1);
    SAY(status);
    close(S);
    SAY_PEER(OP_RECV, 10);
    long n = peer3(OP_RECV_ONE, 1000, kind == POUT ? 0 : MSG_WAITALL, 0);
    if (kind != POUT) SAY(n);
}

CASE(pass_to_the_peer, SOCK, ALL_PHASES) {
    int other = dup(S);
    SAY(put(50));
    point();
    SAY(pass_own(other));
    /* The peer now has both ends, so it sees the effect of its calls on this end at its own. */
    SAY_PEER(OP_FIONREAD, 0);
    SAY_PEER(OP_SHUTDOWN, SHUT_WR);
    peer_use(0);
    SAY_PEER(OP_DRAIN, 0);
    SAY_PEER(OP_SEND, 10);
    SAY(get(10));
}

CASE(pass_to_itself, ANY, ALL_PHASES) {
    int pair[2], received = -1;
    NEED(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) == 0);
    struct msghdr message = {0};
    union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } control;
    struct iovec part = {"p", 1};
    message.msg_iov = &part, message.msg_iovlen = 1, message.msg_control = &control, message.msg_controllen = sizeof control;
    control.head.cmsg_level = SOL_SOCKET, control.head.cmsg_type = SCM_RIGHTS, control.head.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.head), &S, sizeof S);
    if (kind != PIN) NEED(put(10) == 10);
    SAY(sendmsg(pair[0], &message, 0));
    close(S);
    point();
    if (kind != POUT) SAY_PEER(OP_SEND, 10);
    char byte;
    struct iovec room = {&byte, 1};
    message.msg_iov = &room, message.msg_controllen = sizeof control;
    SAY(recvmsg(pair[1], &message, 0));
    memcpy(&received, CMSG_DATA(&control.head), sizeof received);
    S = received;
    if (kind != PIN) SAY_PEER(OP_RECV, 10);
    if (kind != POUT) SAY(get(10));
    works("passed");
}

CASE(descriptors_sent_on_the_session, LOCAL, ALL_PHASES) {
    /* The session itself carries a descriptor, with bytes before and after. */
    struct msghdr message = {0};
    union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } control;
    char byte;
    fill(&byte, 1);
    struct iovec part = {&byte, 1};
    int file = memfd_create("f", 0);
    message.msg_iov = &part, message.msg_iovlen = 1, message.msg_control = &control, message.msg_controllen = sizeof control;
    control.head.cmsg_level = SOL_SOCKET, control.head.cmsg_type = SCM_RIGHTS, control.head.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.head), &file, sizeof file);
    SAY(put(10));
    SAY(sendmsg(S, &message, 0));
    SAY(put(10));
    point();
    SAY_PEER(OP_RECV, 21);
}

CASE(stdio_reads, IN, ALL_PHASES) {
    FILE *file = fdopen(S, "r");
    char bytes[100];
    SAY_PEER(OP_SEND, 50);
    point();
    check(bytes, SAY(fread(bytes, 1, 20, file)));
    /* The C library's buffer already has the rest. */
    check(bytes, SAY(fread(bytes, 1, 30, file)));
    later(OP_SEND, 10);
    check(bytes, SAY(fread(bytes, 1, 10, file)));
    peer_done();
    SAY_PEER(OP_SEND, 10);
    check(bytes, SAY(read(S, bytes, 10)));
    SAY_PEER(OP_CLOSE, 0);
    SAY(fgetc(file));
    SAY(feof(file) != 0);
    SAY(fclose(file));
}

CASE(stdio_writes, OUT, ALL_PHASES) {
    FILE *file = fdopen(S, "w");
    char bytes[100];
    SAY(fwrite(fill(bytes, 20), 1, 20, file));
    SAY(fflush(file));
    SAY(put(30));
    point();
    SAY(fwrite(fill(bytes, 20), 1, 20, file));
    SAY(fflush(file));
    SAY_PEER(OP_RECV, 70);
    for (int i = 0; i < 100; i++) {
        NEED(fwrite(fill(bytes, 90), 1, 90, file) == 90);
        if (i % 3 == 0) NEED(fflush(file) == 0);
    }
    SAY(fclose(file));
    SAY_PEER(OP_DRAIN, 0);
}

CASE(stdin_and_stdout_mixed, ANY, ALL_PHASES) {
    char bytes[100];
    if (kind != POUT) {
        NEED(dup2(S, 0) == 0);
        close(S), S = 0;
        SAY_PEER(OP_SEND, 10);
        check(bytes, SAY(read(0, bytes, 10)));
        SAY_PEER(OP_SEND, 30);
        point();
        check(bytes, SAY(fread(bytes, 1, 5, stdin)));
        check(bytes, SAY(fread(bytes, 1, 25, stdin)));
        SAY_PEER(OP_SEND, 10);
        int c = getchar();
        bytes[0] = (char)c;
        check(bytes, 1);
        SAY(c >= 0);
        check(bytes, SAY(fread(bytes, 1, 9, stdin)));
    } else {
        int kept = dup(1);
        NEED(dup2(S, 1) == 1);
        close(S), S = 1;
        for (int i = 0; i < 20; i++) {
            NEED(put(10) == 10);
            fwrite(fill(bytes, 10), 1, 10, stdout);
            fflush(stdout);
            if (i == 10) point();
        }
        NEED(dup2(kept, 1) == 1);
        SAY_PEER(OP_RECV, 400);
    }
}

/* A pipeline as a shell makes it: each program in its own process, with the pipe as descriptor 0 or
 * 1. */
CASE(pipeline_by_the_shell, PIN, "k") {
    SAY(system("seq 20000 | cat | sort -n | tail -n 3"));
    SAY(system("head -c 3000000 /dev/zero | tr '\\0' 'x' | wc -c"));
    SAY(system("yes | head -n 5"));
    SAY(system("(echo a; echo b) | while read x; do echo got $x; done"));
}

ROLE(echo_stdin) {
    char line[200];
    (void)argc, (void)argv;
    /* A bare read, then stdio, then printf: the order in which children of shells use their input.
     */
    ssize_t n = read(0, line, 6);
    printf("%.*s", (int)n, line);
    while (fgets(line, sizeof line, stdin)) printf("<%s", line);
    fflush(stdout);
    return 0;
}

CASE(pipeline_of_ours, PIN, "k") {
    char command[PATH_MAX * 3 + 200];
    snprintf(command, sizeof command, "(echo first; seq 3000; sleep 0.02; seq 10) | %s --role echo_stdin | %s --role echo_stdin | cksum", self_path, self_path);
    SAY(system(command));
}
