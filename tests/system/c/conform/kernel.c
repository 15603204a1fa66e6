/* Features that only the kernel has: splice and related calls, settings of pipes, sandboxes,
 * changes of identity. */
#include "conform.h"
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

static void on_and_on(void) {
    for (int i = 0; i < 50; i++) {
        NEED(kind == POUT || (peer(OP_SEND, 1) == 1 && get(1) == 1));
        NEED(kind == PIN || (put(1) == 1 && peer(OP_RECV, 1) == 1));
    }
    say("on and on");
}

/* Makes a file that holds the next bytes of the sequence to send. */
static int file_with(size_t len) {
    int file = memfd_create("f", MFD_CLOEXEC);
    char *bytes = malloc(len);
    NEED(write(file, fill(bytes, len), len) == (ssize_t)len);
    free(bytes);
    return file;
}

CASE(sendfile_into_it, OUT, ALL_PHASES) {
    SAY(put(100));
    int file = file_with(30000);
    off_t at = 0;
    SAY(sendfile(S, file, &at, 10000));
    SAY(at);
    point();
    SAY(lseek(file, 10000, SEEK_SET));
    SAY(sendfile(S, file, NULL, 20000));
    SAY(lseek(file, 0, SEEK_CUR));
    SAY(sendfile(S, file, NULL, 20000));
    SAY_PEER(OP_RECV, 30100);
    SAY(sendfile(S, 9999, NULL, 1));
    SAY(sendfile(S, file, (off_t *)8, 1));
    works("session");
}

CASE(sendfile_of_much, OUT, ALL_PHASES) {
    int file = file_with(3000000);
    lseek(file, 0, SEEK_SET);
    later(OP_RECV, 3000000);
    long sum = 0, n;
    while (sum < 3000000 && (n = sendfile(S, file, NULL, 3000000 - sum)) > 0) sum += n;
    SAY(sum);
    SAY(peer_done());
}

CASE(sendfile_nonblocking, OUT, ALL_PHASES) {
    int file = file_with(9000000), on = 1;
    lseek(file, 0, SEEK_SET);
    ioctl(S, FIONBIO, &on);
    long sum = 0, n;
    while ((n = sendfile(S, file, NULL, 9000000 - sum)) > 0) sum += n;
    say("full: %s", strerrorname_np(errno));
    HOLDS(lseek(file, 0, SEEK_CUR) == sum);
    HOLDS(peer(OP_RECV, sum) == sum);
}

/* Sources that are no regular files: most are refused, and of a socket a pipe takes what is
 * there. */
CASE(sendfile_from_other_sources, OUT, ALL_PHASES) {
    int pair[2], ends[2], events = eventfd(3, EFD_CLOEXEC | EFD_NONBLOCK);
    int folder = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char bytes[50];
    NEED(pipe2(pair, O_CLOEXEC) == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    NEED(write(pair[1], "pipe", 4) == 4);
    SAY(sendfile(S, pair[0], NULL, 1000));
    warm_again(NULL);
    SAY(sendfile(S, events, NULL, 8));
    warm_again(NULL);
    SAY(sendfile(S, folder, NULL, 8));
    warm_again(NULL);
    point();
    NEED(write(ends[1], fill(bytes, 50), 50) == 50);
    long n = SAY(sendfile(S, ends[0], NULL, 1000));
    if (n == -1) unfill(50);
    else SAY_PEER(OP_RECV, 50);
    SAY(read(pair[0], bytes, 50));
    works("afterwards");
}

/* A file that is read past the page cache, to a place that is not aligned. */
CASE(sendfile_past_the_cache, OUT, ALL_PHASES) {
    static char bytes[8192];
    char path[] = "/var/tmp/conform.XXXXXX";
    SAY(put(3));
    int file = mkstemp(path);
    NEED(file >= 0 && write(file, fill(bytes, sizeof bytes), sizeof bytes) == sizeof bytes);
    close(file);
    file = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    unlink(path);
    /* Some file systems refuse O_DIRECT. */
    if (file < 0) return unfill(sizeof bytes);
    point();
    SAY(sendfile(S, file, NULL, sizeof bytes));
    SAY_PEER(OP_RECV, 3 + (long)sizeof bytes);
    close(file);
}

CASE(splice_out_of_it, IN, ALL_PHASES) {
    int pair[2];
    char bytes[200];
    NEED(pipe2(pair, O_CLOEXEC) == 0);
    SAY_PEER(OP_SEND, 100);
    point();
    SAY(splice(S, NULL, pair[1], NULL, 60, 0));
    check(bytes, SAY(read(pair[0], bytes, 200)));
    SAY(get(40));
    /* A splice from TCP waits in spite of SPLICE_F_NONBLOCK, so TCP is left out. */
    if (!(kind & TCP)) SAY(splice(S, NULL, pair[1], NULL, 60, SPLICE_F_NONBLOCK));
    later(OP_SEND, 30);
    SAY(splice(S, NULL, pair[1], NULL, 30, 0));
    peer_done();
    check(bytes, SAY(read(pair[0], bytes, 200)));
    works("session");
}

CASE(splice_into_it, OUT, ALL_PHASES) {
    int pair[2];
    char bytes[200];
    NEED(pipe2(pair, O_CLOEXEC) == 0);
    SAY(put(50));
    SAY(write(pair[1], fill(bytes, 100), 100));
    point();
    SAY(splice(pair[0], NULL, S, NULL, 100, 0));
    SAY(put(50));
    SAY_PEER(OP_RECV, 200);
    works("session");
}

CASE(tee_out_of_it, PIN, ALL_PHASES) {
    int pair[2];
    char bytes[200];
    NEED(pipe2(pair, O_CLOEXEC) == 0);
    SAY_PEER(OP_SEND, 100);
    point();
    SAY(tee(S, pair[1], 1000, 0));
    look(bytes, SAY(read(pair[0], bytes, 200)));
    SAY(get(100));
    works("session");
}

CASE(vmsplice_into_it, POUT, ALL_PHASES) {
    static char bytes[5000];
    struct iovec part = {bytes, 5000};
    SAY(put(50));
    fill(bytes, 5000);
    point();
    SAY(vmsplice(S, &part, 1, 0));
    SAY_PEER(OP_RECV, 5050);
    works("session");
}

CASE(copy_file_range_refused, ANY, ALL_PHASES) {
    int file = memfd_create("f", MFD_CLOEXEC);
    SAY(copy_file_range(file, NULL, S, NULL, 10, 0));
    SAY(copy_file_range(S, NULL, file, NULL, 10, 0));
    works("session");
}

CASE(pipe_sizes, PIN | POUT, ALL_PHASES) {
    SAY(fcntl(S, F_GETPIPE_SZ));
    SAY(fcntl(S, F_SETPIPE_SZ, 4096));
    SAY(fcntl(S, F_GETPIPE_SZ));
    works("small");
    point();
    SAY(fcntl(S, F_SETPIPE_SZ, 1 << 20));
    SAY(fcntl(S, F_GETPIPE_SZ));
    if (kind == POUT) {
        static char bytes[900000];
        int on = 1;
        ioctl(S, FIONBIO, &on);
        SAY(write(S, fill(bytes, 900000), 900000));
        SAY_PEER(OP_RECV, 900000);
    }
    works("large");
    SAY(fcntl(S, F_SETPIPE_SZ, -1));
}

/* A pipe with the capacity of one page holds one page before a writer blocks. */
CASE(a_small_pipe_is_small, POUT, ALL_PHASES) {
    static char bytes[65536];
    int on = 1;
    SAY(fcntl(S, F_SETPIPE_SZ, 4096));
    point();
    ioctl(S, FIONBIO, &on);
    SAY(write(S, fill(bytes, 65536), 65536));
    unfill(65536 - 4096);
    SAY_PEER(OP_RECV, 4096);
}

/* Packet mode (pipe(2), O_DIRECT): each write is read by one read. */
CASE(packet_pipes, PIN | POUT, ALL_PHASES) {
    char bytes[200];
    if (kind == POUT) {
        SAY(fcntl(S, F_SETFL, O_WRONLY | O_DIRECT));
        SAY(fcntl(S, F_GETFL) & O_DIRECT);
        point();
        SAY(write(S, fill(bytes, 10), 10));
        SAY(write(S, fill(bytes, 20), 20));
        say("peer: %ld", peer3(OP_RECV_ONE, 200, 0, 0));
        say("peer: %ld", peer3(OP_RECV_ONE, 200, 0, 0));
    } else {
        SAY(fcntl(S, F_GETFL) & O_DIRECT);
        SAY_PEER(OP_SEND, 10);
        SAY_PEER(OP_SEND, 20);
        check(bytes, SAY(read(S, bytes, 200)));
    }
}

/* Operations of io_submit(2): the kernel executes them on its own object. */
static long submit(unsigned long context, int command, void *buffer, size_t len) {
    struct iocb operation = {.aio_lio_opcode = command, .aio_fildes = S, .aio_buf = (uintptr_t)buffer, .aio_nbytes = len};
    struct iocb *list[] = {&operation};
    return syscall(SYS_io_submit, context, 1L, list);
}

static long submitted(unsigned long context) {
    struct io_event event = {0};
    struct timespec limit = {5, 0};
    if (syscall(SYS_io_getevents, context, 1L, 1L, &event, &limit) != 1) return -1;
    return event.res;
}

CASE(kernel_aio_polls_and_reads, IN, ALL_PHASES) {
    unsigned long context = 0;
    char bytes[20];
    NEED(syscall(SYS_io_setup, 4, &context) == 0);
    SAY(submit(context, IOCB_CMD_POLL, (void *)POLLIN, 0));
    point();
    SAY_PEER(OP_SEND, 10);
    say("ready: %ld", submitted(context) & POLLIN);
    SAY(submit(context, IOCB_CMD_PREAD, bytes, sizeof bytes));
    check(bytes, SAY(submitted(context)));
    works("afterwards");
}

CASE(kernel_aio_writes, OUT, ALL_PHASES) {
    unsigned long context = 0;
    char bytes[20];
    NEED(syscall(SYS_io_setup, 4, &context) == 0);
    SAY(submit(context, IOCB_CMD_PWRITE, fill(bytes, 10), 10));
    SAY(submitted(context));
    point();
    SAY_PEER(OP_RECV, 10);
    works("afterwards");
}

CASE(atomic_writes, POUT, ALL_PHASES) {
    /* Writes of up to PIPE_BUF bytes are atomic (pipe(7)): they are written whole or not at all. */
    static char bytes[4096];
    int on = 1;
    long sum = 0, n;
    ioctl(S, FIONBIO, &on);
    while ((n = write(S, fill(bytes, 1000), 1000)) == 1000) sum += n;
    unfill(1000);
    say("%ld %s", n, strerrorname_np(errno));
    point();
    while ((n = write(S, fill(bytes, 4096), 4096)) == 4096) sum += n;
    unfill(4096);
    say("%ld %s", n, strerrorname_np(errno));
    HOLDS(peer(OP_RECV, sum) == sum);
    SAY(write(S, fill(bytes, 4096), 4096));
    SAY_PEER(OP_RECV, 4096);
}

static int writers_go;
static void *write_lines(void *letter) {
    char line[512];
    memset(line, (int)(long)letter, sizeof line);
    while (!__atomic_load_n(&writers_go, __ATOMIC_SEQ_CST)) sched_yield();
    for (int i = 0; i < 400; i++)
        if (write(S, line, sizeof line) != sizeof line) note("short");
    return NULL;
}

/* Several threads write lines into one pipe; each line must arrive whole. */
CASE(several_writers, POUT, "kmp") {
    pthread_t threads[3];
    for (long i = 0; i < 3; i++) pthread_create(&threads[i], NULL, write_lines, (void *)('a' + i));
    later3(OP_FIONREAD, 0, 0, 0);
    __atomic_store_n(&writers_go, 1, __ATOMIC_SEQ_CST);
    peer_done();
    long mixed = 0, sum = 0;
    while (sum < 3 * 400 * 512) {
        long n = peer3(OP_LINES, 512, 0, 0);
        if (n < 0) { mixed++; n = 512; }
        sum += n;
        if (sum == 51200) point();
    }
    for (int i = 0; i < 3; i++) join(threads[i]);
    SAY(mixed);
}

/* Installs a seccomp filter that allows only the calls of a program that reads and writes; any
 * other call kills the process. */
static void strict_filter(void) {
    static const int allowed[] = {SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg,
                                  SYS_exit, SYS_exit_group, SYS_rt_sigreturn, SYS_close};
    enum { COUNT = sizeof allowed / sizeof *allowed };
    struct sock_filter code[COUNT + 4];
    int n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < COUNT; i++) code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i], (unsigned char)(COUNT - i), 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {(unsigned short)n, code};
    NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    NEED(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

CASE(a_filter_of_system_calls, ANY, ALL_PHASES) {
    works("before");
    point();
    strict_filter();
    works("filtered");
    on_and_on();
    if (kind != POUT) SAY_PEER(OP_SEND, 10);
    if (kind != POUT) SAY(get(10));
    _exit(0);
}

CASE(a_filter_set_by_system_call, SOCK, ALL_PHASES) {
    works("before");
    struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {1, code};
    NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    SAY(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
    works("after");
    on_and_on();
}

CASE(strict_mode, ANY, ALL_PHASES) {
    works("before");
    pid_t child = fork();
    if (child == 0) {
        char byte;
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        if (kind != POUT) { if (read(S, &byte, 1) != 1) syscall(SYS_exit, 2); }
        if (kind != PIN) { if (write(S, "x", 1) != 1) syscall(SYS_exit, 3); }
        syscall(SYS_exit, 0);
    }
    if (kind != POUT) NEED(peer(OP_SEND, 1) == 1);
    int status;
    waitpid(child, &status, 0);
    say_status("child", status);
}

CASE(another_user, ANY, ALL_PHASES) {
    works("before");
    point();
    SAY(setgid(65534));
    SAY(setuid(65534));
    works("after");
    on_and_on();
}

CASE(another_root, ANY, ALL_PHASES) {
    works("before");
    point();
    SAY(chroot("/proc/self"));
    SAY(chdir("/"));
    works("after");
    on_and_on();
}

CASE(another_root_before_it_moves, ANY, "k") {
    SAY(chroot("/sys"));
    SAY(chdir("/"));
    on_and_on();
    works("after");
}

CASE(not_dumpable, ANY, ALL_PHASES) {
    SAY(prctl(PR_SET_DUMPABLE, 0));
    on_and_on();
    point();
    works("after");
}

CASE(new_session_and_group, ANY, ALL_PHASES) {
    works("before");
    pid_t child = fork();
    if (child == 0) {
        SAY(setsid() > 0);
        works("child");
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    say_status("child", status);
}

/* System calls that bypass the library use the kernel object; bytes sent that way must arrive in
 * order. */
CASE(bare_system_calls, SOCK, ALL_PHASES) {
    char bytes[20];
    SAY(put(10));
    point();
    SAY(syscall(SYS_write, S, fill(bytes, 10), 10));
    SAY(put(10));
    SAY_PEER(OP_RECV, 30);
    SAY_PEER(OP_SEND, 10);
    SAY(syscall(SYS_read, S, bytes, 10));
    check(bytes, 10);
    on_and_on();
}

/* Waits made as bare system calls must see the same events as the waits of the C library. */
CASE(bare_waits, SOCK, ALL_PHASES) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7};
    struct timespec limit = {1, 0};
    int set = epoll_create1(EPOLL_CLOEXEC);
    NEED(set >= 0);
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, S, &event));
    for (int way = 0; way < 5; way++) {
        struct pollfd one = {S, POLLIN, 0};
        fd_set input;
        FD_ZERO(&input);
        FD_SET(S, &input);
        if (way == 2) point();
        later(OP_SEND, 10);
        if (way == 0) SAY(syscall(SYS_pselect6, S + 1, &input, NULL, NULL, &limit, NULL));
        if (way == 1) SAY(syscall(SYS_ppoll, &one, 1, &limit, NULL, 8));
        if (way == 2) SAY(syscall(SYS_epoll_pwait, set, &event, 1, 1000, NULL, 8));
        if (way == 3) SAY(syscall(SYS_epoll_pwait2, set, &event, 1, &limit, NULL, 8));
        if (way == 4) {
            SAY(syscall(SYS_ppoll, &one, 1, &(struct timespec){1, 0}, &(sigset_t){{0}}, 8));
            SAY(one.revents);
        }
        SAY(FD_ISSET(S, &input) != 0);
        peer_done();
        char bytes[10];
        struct iovec part = {bytes, sizeof bytes};
        SAY(syscall(SYS_preadv2, S, &part, 1, -1L, -1L, 0));
        check(bytes, 10);
    }
    close(set);
    on_and_on();
}

#if defined(__x86_64__) || defined(__aarch64__)
/* Makes a system call in the program's text, not through the C library. */
static long own_call(long number, long a, long b, long c, long d) {
#ifdef __x86_64__
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = 0;
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
    return answer;
#else
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = 0;
    register long x5 __asm__("x5") = 0;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#endif
}

/* Some programs wait by system calls of their own and do all else through the C library. The sixth
 * argument of epoll_pwait, the mask, is null. */
CASE(a_set_of_its_own, SOCK, "k") {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7};
    int set = own_call(SYS_epoll_create1, EPOLL_CLOEXEC, 0, 0, 0);
    NEED(set >= 0);
    SAY(own_call(SYS_epoll_ctl, set, EPOLL_CTL_ADD, S, (long)&event));
    int told = 0, got = 0;
    for (int round = 0; round < 300; round++) {
        NEED(peer(OP_SEND, 10) == 10);
        told += own_call(SYS_epoll_pwait, set, (long)&event, 1, 3000) == 1;
        char bytes[10];
        got += read(S, bytes, sizeof bytes);
    }
    SAY(told);
    SAY(got);
    close(set);
}
#endif

CASE(seen_by_tools, TCP, ALL_PHASES) {
    /* The connection is in the kernel's list of sockets, established, for as long as it is open. */
    struct sockaddr_storage own;
    socklen_t len = sizeof own;
    NEED(getsockname(S, (void *)&own, &len) == 0);
    unsigned port = ntohs(kind == TCP4 ? ((struct sockaddr_in *)&own)->sin_port : ((struct sockaddr_in6 *)&own)->sin6_port);
    char command[200];
    snprintf(command, sizeof command, "grep -c ':%04X .* 01 ' /proc/net/tcp%s", port, kind == TCP4 ? "" : "6");
    SAY(system(command));
    works("after");
}
