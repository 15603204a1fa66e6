/* What few programs do. */
#include "conform.h"
#include <sys/personality.h>
#include <sys/prctl.h>

CASE(strange_closes_all, ANY, ALL_PHASES) {
    int channel = conform_channel();
    works("before");
    for (int fd = 3; fd < 65536; fd++)
        if (fd != S && fd != channel) close(fd);
    point();
    works("after");
    works("again");
}

CASE(strange_closes_range, ANY, ALL_PHASES) {
    int channel = conform_channel();
    int low = S < channel ? S : channel, high = S < channel ? channel : S;
    for (int fd = 3; fd < low; fd++) close(fd);
    for (int fd = low + 1; fd < high; fd++) close(fd);
    SAY(close_range(high + 1, ~0u, 0));
    point();
    works("after");
}

static void *blocked(void *unused) {
    char bytes[10];
    (void)unused;
    note("thread: %zd", read(S, bytes, 10));
    check(bytes, 10);
    return NULL;
}

CASE(strange_fork_beside_a_blocked_thread, IN, ALL_PHASES) {
    pthread_t thread = begin(blocked);
    int status;
    pid_t child = fork();
    if (!child) {
        char bytes[10];
        _exit(recv(S, bytes, 10, MSG_DONTWAIT) == -1 ? errno == (kind == PIN ? ENOTSOCK : EAGAIN) ? 7 : errno : 3);
    }
    waitpid(child, &status, 0);
    say_status("child", status);
    SAY_PEER(OP_SEND, 10);
    join(thread);
    works("after");
}

static void *forks(void *unused) {
    int status;
    (void)unused;
    pid_t child = fork();
    if (!child) _exit(kind == PIN ? 5 : write(S, "", 0) == 0 ? 5 : 6);
    waitpid(child, &status, 0);
    note("child: %d", WEXITSTATUS(status));
    return NULL;
}

CASE(strange_fork_in_a_thread, ANY, ALL_PHASES) {
    pthread_t thread;
    works("before");
    pthread_create(&thread, NULL, forks, NULL);
    point();
    join(thread);
    works("after");
}

CASE(strange_peer_stopped_long, ANY, "kmr") {
    static char bytes[30000];
    works("before");
    kill(peer_pid, SIGSTOP);
    if (kind & OUT) SAY(write(S, fill(bytes, 30000), 30000));
    nap(300);
    point();
    if (kind & OUT) SAY(write(S, fill(bytes, 3000), 3000));
    kill(peer_pid, SIGCONT);
    if (kind & OUT) SAY_PEER(OP_RECV, 33000);
    works("after");
}

#define LIMITED(name, resource, value) \
    CASE(strange_limit_##name, ANY, "km") { \
        struct rlimit limit = {value, RLIM_INFINITY}; \
        getrlimit(resource, &limit), limit.rlim_cur = value; \
        SAY(setrlimit(resource, &limit)); \
        for (int i = 0; i < 20; i++) works("limited"); \
    }
LIMITED(of_files, RLIMIT_FSIZE, 4096)
LIMITED(of_locked_memory, RLIMIT_MEMLOCK, 0)
LIMITED(of_space, RLIMIT_AS, 1 << 20)
LIMITED(of_stacks, RLIMIT_STACK, 1 << 14)
LIMITED(of_data, RLIMIT_DATA, 0)
LIMITED(of_signals, RLIMIT_SIGPENDING, 0)
LIMITED(of_cores, RLIMIT_CORE, 0)
LIMITED(of_processes, RLIMIT_NPROC, 0)
LIMITED(of_descriptors, RLIMIT_NOFILE, 0)

CASE(strange_states, ANY, ALL_PHASES) {
    SAY(prctl(PR_SET_DUMPABLE, 0));
    SAY(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    personality(personality(~0ul) | ADDR_NO_RANDOMIZE);
    works("before");
    SAY(setsid() == getpid());
    point();
    SAY(setpgid(0, 0));
    works("after");
}

static void send_from(char *at, size_t len, int way) {
    struct iovec pieces[3] = {{at, len / 2}, {at + len / 2, len - len / 2}, {0, 0}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 3};
    if (way == 0) SAY(write(S, at, len));
    if (way == 1) SAY(writev(S, pieces, 3));
    if (way == 2 && kind & SOCK) SAY(sendmsg(S, &message, MSG_DONTWAIT));
}

/* What is sent from memory that ends in the middle: whole pages of it, or nothing. */
static void from_bad(int protection, long len) {
    long page = sysconf(_SC_PAGESIZE);
    char *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (protection < 0) munmap(two + page, page);
    else mprotect(two + page, page, protection);
    for (int way = 0; way < 3; way++)
        for (long inside = 0; inside <= len; inside += len > 20 ? 97 : 1) {
            say("way %d inside %ld", way, inside);
            send_from(two + page - inside, len, way);
        }
}

CASE(strange_sends_from_unmapped, OUT, "km") { from_bad(-1, 8); }
CASE(strange_sends_from_forbidden, OUT, "km") { from_bad(PROT_NONE, 700); }

CASE(strange_pieces_out, OUT, ALL_PHASES) {
    static struct iovec many[IOV_MAX + 1];
    static char bytes[IOV_MAX + 1];
    fill(bytes, IOV_MAX);
    for (int i = 0; i <= IOV_MAX; i++) many[i] = (struct iovec){bytes + i, 1};
    SAY(writev(S, many, IOV_MAX));
    SAY(writev(S, many, IOV_MAX + 1));
    SAY(writev(S, many, -1));
    SAY(writev(S, many, 0));
    point();
    SAY_PEER(OP_RECV, IOV_MAX);
    for (int i = 0; i < IOV_MAX; i++) many[i] = (struct iovec){(void *)1, 0};
    SAY(writev(S, many, IOV_MAX));
    many[IOV_MAX - 1] = (struct iovec){fill(bytes, 5), 5};
    SAY(writev(S, many, IOV_MAX));
    SAY_PEER(OP_RECV, 5);
    many[0] = (struct iovec){bytes, SSIZE_MAX};
    many[1] = (struct iovec){bytes, SSIZE_MAX};
    SAY(writev(S, many, 2));
    many[1] = (struct iovec){bytes, (size_t)SSIZE_MAX + 1};
    SAY(writev(S, many, 2));
    SAY(write(S, (void *)-4096, 10));
    SAY(write(S, NULL, 0));
    SAY(write(S, NULL, 1));
    SAY(writev(S, NULL, 0));
    SAY(writev(S, NULL, 1));
    if (kind & SOCK) {
        struct msghdr message = {.msg_iov = many, .msg_iovlen = IOV_MAX + 1};
        SAY(sendmsg(S, &message, 0));
        SAY(sendmsg(S, NULL, 0));
        SAY(sendmmsg(S, NULL, 1, 0));
        SAY(sendmmsg(S, NULL, 0, 0));
    }
    works("after");
}

CASE(strange_pieces_in, IN, ALL_PHASES) {
    static struct iovec many[IOV_MAX + 1];
    static char bytes[IOV_MAX + 1];
    SAY_PEER(OP_SEND, 100);
    for (int i = 0; i <= IOV_MAX; i++) many[i] = (struct iovec){bytes + i, 1};
    SAY(readv(S, many, IOV_MAX + 1));
    SAY(readv(S, many, -1));
    SAY(readv(S, many, 0));
    point();
    check(bytes, SAY(readv(S, many, IOV_MAX)));
    SAY_PEER(OP_SEND, 5);
    for (int i = 0; i < IOV_MAX; i++) many[i] = (struct iovec){(void *)1, 0};
    many[IOV_MAX - 1] = (struct iovec){bytes, 5};
    check(bytes, SAY(readv(S, many, IOV_MAX)));
    SAY_PEER(OP_SEND, 7);
    SAY(readv(S, NULL, 1));
    SAY(read(S, NULL, 0));
    SAY(read(S, NULL, 1));
    SAY(readv(S, NULL, 0));
    many[0] = (struct iovec){bytes, (size_t)SSIZE_MAX + 1};
    SAY(readv(S, many, 1));
    if (kind & SOCK) {
        struct msghdr message = {.msg_iov = many, .msg_iovlen = IOV_MAX + 1};
        SAY(recvmsg(S, &message, MSG_DONTWAIT));
        SAY(recvmsg(S, NULL, MSG_DONTWAIT));
        SAY(recvmmsg(S, NULL, 1, MSG_DONTWAIT, NULL));
        SAY(recvmmsg(S, NULL, 0, MSG_DONTWAIT, NULL));
    }
    many[0] = (struct iovec){bytes, 3};
    many[1] = (struct iovec){(void *)-4096, 3};
    SAY(readv(S, many, 2));
    int on = 1, off = 0;
    ioctl(S, FIONBIO, &on);
    SAY(read(S, bytes, 100));
    ioctl(S, FIONBIO, &off);
}

static char *apart;
static void *blocked_in_memory(void *unused) {
    (void)unused;
    ssize_t n = read(S, apart, 100);
    note("thread: %zd %s", n, n < 0 ? strerrorname_np(errno) : "");
    return NULL;
}

static void memory_goes(int (*go)(void *, size_t)) {
    apart = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_t thread = begin(blocked_in_memory);
    SAY(go(apart, 4096));
    point();
    SAY_PEER(OP_SEND, 10);
    join(thread);
}
static int forbid(void *at, size_t len) { return mprotect(at, len, PROT_READ); }
static int drop(void *at, size_t len) { return madvise(at, len, MADV_DONTNEED); }
CASE(strange_memory_unmapped_under_a_reader, IN, ALL_PHASES) { memory_goes(munmap); }
CASE(strange_memory_forbidden_under_a_reader, IN, ALL_PHASES) { memory_goes(forbid); }
CASE(strange_memory_dropped_under_a_reader, IN, ALL_PHASES) { memory_goes(drop); }

static void *blocked_writer(void *unused) {
    (void)unused;
    ssize_t n = write(S, apart, 1 << 24);
    note("thread: %s", n > 0 ? "some" : n < 0 ? strerrorname_np(errno) : "0");
    return NULL;
}

CASE(strange_memory_unmapped_under_a_writer, OUT, ALL_PHASES) {
    apart = mmap(NULL, 1 << 24, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_t thread = begin(blocked_writer);
    munmap(apart, 1 << 24);
    point();
    for (int i = 0; i < 40; i++) peer3(OP_RECV_ONE, 1 << 20, MSG_DONTWAIT, 0), nap(2);
    kill_peer();
    join(thread);
}

static int polled_count = 1;
static void *blocked_poll(void *unused) {
    struct pollfd *one = (struct pollfd *)apart;
    (void)unused;
    int n = poll(one, (nfds_t)polled_count, 10000);
    note("poll: %d %s", n, n < 0 ? strerrorname_np(errno) : "");
    return NULL;
}

static void *blocked_select(void *unused) {
    fd_set *set = (fd_set *)apart;
    (void)unused;
    int n = select(S + 1, set, NULL, NULL, NULL);
    note("select: %d %s", n, n < 0 ? strerrorname_np(errno) : "");
    return NULL;
}

static int set_of_one;
static void *blocked_set(void *unused) {
    (void)unused;
    int n = epoll_wait(set_of_one, (struct epoll_event *)apart, 10, 10000);
    note("epoll_wait: %d %s", n, n < 0 ? strerrorname_np(errno) : "");
    return NULL;
}

static void waits_in_memory(void *(*waits)(void *)) {
    apart = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *(struct pollfd *)apart = (struct pollfd){S, POLLIN, 0};
    for (int i = 1; i < polled_count; i++) ((struct pollfd *)apart)[i] = (struct pollfd){-1, POLLIN, 0};
    if (waits == blocked_select) {
        FD_ZERO((fd_set *)apart);
        FD_SET(S, (fd_set *)apart);
    }
    pthread_t thread = begin(waits);
    munmap(apart, 4096);
    point();
    SAY_PEER(OP_SEND, 10);
    join(thread);
}
CASE(strange_memory_unmapped_under_poll, IN, ALL_PHASES) { waits_in_memory(blocked_poll); }
CASE(strange_memory_unmapped_under_a_long_poll, IN, ALL_PHASES) {
    polled_count = 100;
    waits_in_memory(blocked_poll);
}
CASE(strange_memory_unmapped_under_select, IN, ALL_PHASES) { waits_in_memory(blocked_select); }
CASE(strange_memory_unmapped_under_a_set, IN, ALL_PHASES) {
    set_of_one = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(set_of_one, EPOLL_CTL_ADD, S, &event);
    waits_in_memory(blocked_set);
}
