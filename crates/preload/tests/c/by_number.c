/* System calls by number, with valid arguments and, one at a time, invalid ones, on sessions that
   are away from the kernel or in it. `by_number WHERE KIND NAME...` prints the result of each call
   and the memory after it. WHERE is "away" or "kernel", KIND "unix" or "tcp". For each argument
   there is a session of its own. A child sends all bytes back. */
#include "check.h"
#ifdef PAST_C_LIBRARY
#include "past.h"
#endif
#include <linux/openat2.h>

#define SESSIONS 190
enum { ROOM = 1 << 16, CLOSED = 900 };

static int pairs[SESSIONS], used, s, set, empty[2], full[2], file, door;
static char *good_page, *bad_page;

/* Places in the accessible page. Behind each there is a copy at an odd address. */
enum { BUFFER = 0, LIST = 0x1000, HEADER = 0x2000, SECOND = 0x3000, THIRD = 0x4000, TIME = 0x5000, MASK = 0x6000, NAME = 0x7000, ONE = 0x9000, SIZED = 0xa000,
       EVENT = 0xb000, HOW = 0xc000, INPUT = 0xd000, OUTPUT = 0xe000, OLD_TIME = 0xf000, ODD = 0x801 };
static long at(int place) { return (long)(good_page + place); }

static void echo(void) {
    static struct pollfd all[SESSIONS];
    static char bytes[ROOM];
    for (int i = 0; i < SESSIONS; i++) all[i] = (struct pollfd){pairs[i], POLLIN, 0};
    for (int open = SESSIONS; open > 0;) {
        CHECK(poll(all, SESSIONS, 60000) > 0);
        for (int i = 0; i < SESSIONS; i++)
            if (all[i].revents) {
                ssize_t got = read(all[i].fd, bytes, sizeof bytes), done = 0;
                if (got <= 0) close(all[i].fd), all[i].fd = -1, open--;
                while (done < got) {
                    ssize_t sent = write(all[i].fd, bytes + done, got - done);
                    if (sent < 0) break;
                    done += sent;
                }
            }
    }
    _exit(0);
}

/* Returns true if a stream is mapped that was not mapped before. */
static int has_more_away(void) {
    static long seen[2 * SESSIONS];
    static int count;
    char line[512];
    int found = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, f)) {
        long inode;
        if (!strstr(line, "memfd:sojourn-stream") || sscanf(line, "%*s %*s %*s %*s %ld", &inode) != 1) continue;
        int known = 0;
        for (int i = 0; i < count; i++) known |= seen[i] == inode;
        if (!known) found = 1, seen[count++ % (2 * SESSIONS)] = inode;
    }
    fclose(f);
    return found;
}

static void exchange(int len) {
    char b[64];
    struct pollfd one = {s, POLLIN, 0};
    CHECK(write(s, b, len) == len);
    for (int got = 0; got < len;) {
        CHECK(poll(&one, 1, 10000) == 1);
        ssize_t more = read(s, b, len - got);
        CHECK(more > 0);
        got += more;
    }
}

static void next_session(int is_away) {
    int64_t start = now_ms();
    if (used > 0) close(s);
    CHECK(used < SESSIONS);
    s = pairs[used++];
    /* Before it moves: a session that is away goes home when it is put into a set. */
    struct epoll_event event = {EPOLLIN, {.u64 = 42}};
    CHECK(!epoll_ctl(set, EPOLL_CTL_ADD, s, &event));
    for (int i = 0; is_away && (i < 40 || !has_more_away()); i++) {
        CHECK(now_ms() - start < 10000);
        exchange(8);
    }
    /* By the end of these exchanges both directions have switched. */
    for (int i = 0; i < 4; i++) exchange(8);
}

/* Waits until `len` bytes can be read. */
static void await(int len) {
    int there = 0;
    for (int64_t start = now_ms(); there < len; ioctl(s, FIONREAD, &there)) {
        CHECK(now_ms() - start < 10000);
        poll(&(struct pollfd){s, 0, 0}, 1, there ? 1 : 0);
    }
    CHECK(there == len);
}

/* Waits for the echo of the bytes that a call has sent. */
static void await_echo(long number, long result) {
    int is_sent = number == SYS_write || number == SYS_writev || number == SYS_pwritev2 || number == SYS_sendto || number == SYS_sendmsg ||
                  number == SYS_sendfile;
    if (number == SYS_sendmmsg) is_sent = 1, result *= 6;
    if (is_sent && result > 0) await(8 + result);
}

/* Leaves exactly eight bytes to be read. */
static void prepare(void) {
    char b[64];
    struct pollfd one = {s, POLLIN, 0};
    while (poll(&one, 1, 0) == 1)
        if (read(s, b, sizeof b) <= 0) return;
    if (write(s, "abcdefgh", 8) != 8) return;
    await(8);
    /* Waits until the set reports the bytes: a sender that is preempted after writing them reports
       them late. */
    struct epoll_event event;
    CHECK(epoll_wait(set, &event, 1, 10000) == 1);
}

static void put(int place, const void *what, size_t len) {
    memcpy(good_page + place, what, len);
    memcpy(good_page + place + ODD, what, len);
}

static void fill(void) {
    memset(good_page, 0x55, ROOM);
    struct iovec list[2] = {{good_page + BUFFER, 4}, {good_page + BUFFER + 8, 2}};
    struct mmsghdr header = {.msg_hdr = {.msg_iov = (void *)at(LIST), .msg_iovlen = 2}};
    struct pollfd one = {s, POLLIN | POLLOUT, 0};
    struct timespec time = {0, 0};
    struct timeval old_time = {0, 0};
    struct { long mask, size; } mask = {at(MASK), 8};
    struct epoll_event event = {EPOLLIN, {.u64 = 43}};
    struct open_how how = {.flags = O_RDWR};
    fd_set in;
    long zero[2] = {0};
    int room = 64;
    FD_ZERO(&in);
    FD_SET(s, &in);
    put(LIST, list, sizeof list), put(HEADER, &header, sizeof header), put(TIME, &time, sizeof time), put(MASK, zero, 8);
    put(SECOND, &room, sizeof room), put(NAME, "/dev/null", 10);
    put(ONE, &one, sizeof one), put(SIZED, &mask, sizeof mask), put(EVENT, &event, sizeof event);
    put(HOW, &how, sizeof how), put(INPUT, &in, sizeof in), put(OUTPUT, &in, sizeof in), put(OLD_TIME, &old_time, sizeof old_time);
    memset(good_page + THIRD, 0, 0x1000);
}

/* The kinds of arguments, which determine their invalid values: (f)d, (p)ointer, (n)umber, (s)mall
   number, (i)nteger, (a)ddress of a page and its (l)ength, (-) none. */
struct call { const char *name; long number; const char *kinds; };
#define CALL(name, kinds) { #name, name, kinds }
static const struct call calls[] = {
    CALL(SYS_read, "fpn"), CALL(SYS_write, "fps"), CALL(SYS_readv, "fpn"), CALL(SYS_writev, "fpn"), CALL(SYS_preadv2, "fpn--i"),
    CALL(SYS_pwritev2, "fpn--i"), CALL(SYS_recvfrom, "fpni-p"), CALL(SYS_sendto, "fps---"), CALL(SYS_recvmsg, "fpi"), CALL(SYS_sendmsg, "fp-"),
    CALL(SYS_recvmmsg, "fpn-p"), CALL(SYS_sendmmsg, "fpn-"), CALL(SYS_sendfile, "ffps"), CALL(SYS_splice, "fpfps-"), CALL(SYS_tee, "ffs-"),
    CALL(SYS_vmsplice, "fpni"), CALL(SYS_close, "f"), CALL(SYS_close_range, "f-i"), CALL(SYS_dup, "f"), CALL(SYS_dup2, "ff"),
    CALL(SYS_dup3, "ffi"), CALL(SYS_fcntl, "fi-"), CALL(SYS_ioctl, "f-p"), CALL(SYS_socket, "iii"), CALL(SYS_socketpair, "iiip"),
    CALL(SYS_accept, "fpp"), CALL(SYS_accept4, "fppi"), CALL(SYS_connect, "fpn"), CALL(SYS_shutdown, "fi"), CALL(SYS_setsockopt, "fiipi"),
    CALL(SYS_getsockopt, "fiipp"), CALL(SYS_open, "p--"), CALL(SYS_openat, "-p--"), CALL(SYS_openat2, "-ppn"), CALL(SYS_creat, "p-"),
    CALL(SYS_pipe, "p"), CALL(SYS_pipe2, "pi"), CALL(SYS_munmap, "al"), CALL(SYS_mprotect, "ali"), CALL(SYS_mremap, "allii"),
    CALL(SYS_select, "npppp"), CALL(SYS_pselect6, "nppppp"), CALL(SYS_poll, "pni"), CALL(SYS_ppoll, "pnppn"), CALL(SYS_epoll_create, "i"),
    CALL(SYS_epoll_create1, "i"), CALL(SYS_epoll_ctl, "fifp"), CALL(SYS_epoll_wait, "fpni"), CALL(SYS_epoll_pwait, "fpnipn"),
    CALL(SYS_epoll_pwait2, "fpnppn"), CALL(SYS_io_uring_setup, "np"),
};

static void good(long number, long a[6]) {
    long page;
    long table[][7] = {
        {SYS_read, s, at(BUFFER), 5}, {SYS_write, s, at(BUFFER), 5}, {SYS_readv, s, at(LIST), 2}, {SYS_writev, s, at(LIST), 2},
        {SYS_preadv2, s, at(LIST), 2, -1, 0, 0}, {SYS_pwritev2, s, at(LIST), 2, -1, 0, 0}, {SYS_recvfrom, s, at(BUFFER), 5, 0, at(THIRD), at(SECOND)},
        {SYS_sendto, s, at(BUFFER), 5, MSG_NOSIGNAL, 0, 0}, {SYS_recvmsg, s, at(HEADER), 0}, {SYS_sendmsg, s, at(HEADER), MSG_NOSIGNAL},
        {SYS_recvmmsg, s, at(HEADER), 1, MSG_DONTWAIT, at(TIME)}, {SYS_sendmmsg, s, at(HEADER), 1, MSG_NOSIGNAL},
        {SYS_sendfile, s, file, at(THIRD), 4}, {SYS_splice, s, 0, empty[1], 0, 4, SPLICE_F_NONBLOCK},
        {SYS_tee, full[0], empty[1], 1, SPLICE_F_NONBLOCK}, {SYS_vmsplice, empty[1], at(LIST), 2, 0}, {SYS_close, CLOSED - 50},
        {SYS_close_range, CLOSED, CLOSED + 9, 0}, {SYS_dup, s}, {SYS_dup2, s, CLOSED}, {SYS_dup3, s, CLOSED, O_CLOEXEC},
        {SYS_fcntl, s, F_GETFL, at(THIRD)}, {SYS_ioctl, s, FIONREAD, at(THIRD)}, {SYS_socket, AF_UNIX, SOCK_STREAM, 0},
        {SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, at(THIRD)}, {SYS_accept, door, at(THIRD), at(SECOND)},
        {SYS_accept4, door, at(THIRD), at(SECOND), SOCK_CLOEXEC}, {SYS_connect, s, at(NAME), 16}, {SYS_shutdown, s, 7},
        {SYS_setsockopt, s, SOL_SOCKET, SO_KEEPALIVE, at(THIRD), 4}, {SYS_getsockopt, s, SOL_SOCKET, SO_TYPE, at(THIRD), at(SECOND)},
        {SYS_open, at(NAME), O_RDWR, 0}, {SYS_openat, AT_FDCWD, at(NAME), O_RDWR, 0}, {SYS_openat2, AT_FDCWD, at(NAME), at(HOW), sizeof(struct open_how)},
        {SYS_creat, at(NAME), 0600}, {SYS_pipe, at(THIRD)}, {SYS_pipe2, at(THIRD), O_CLOEXEC}, {SYS_munmap, 0, 4096},
        {SYS_mprotect, 0, 4096, PROT_READ}, {SYS_mremap, 0, 4096, 8192, MREMAP_MAYMOVE, 0}, {SYS_select, s + 1, at(INPUT), 0, 0, at(OLD_TIME)},
        {SYS_pselect6, s + 1, at(INPUT), at(OUTPUT), 0, at(TIME), at(SIZED)}, {SYS_poll, at(ONE), 1, 0}, {SYS_ppoll, at(ONE), 1, at(TIME), at(MASK), 8},
        {SYS_epoll_create, 1}, {SYS_epoll_create1, EPOLL_CLOEXEC}, {SYS_epoll_ctl, set, EPOLL_CTL_MOD, s, at(EVENT)},
        {SYS_epoll_wait, set, at(EVENT), 1, 0}, {SYS_epoll_pwait, set, at(EVENT), 1, 0, at(MASK), 8}, {SYS_epoll_pwait2, set, at(EVENT), 1, at(TIME), at(MASK), 8}, {SYS_io_uring_setup, 4, at(THIRD)},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i][0] == number) memcpy(a, table[i] + 1, 6 * sizeof *a);
    if (number == SYS_munmap || number == SYS_mprotect || number == SYS_mremap) {
        page = (long)mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        a[0] = page;
    }
}

/* Stores the invalid values of a kind behind the valid one. Returns their number. */
static int wrong(char kind, long right, long values[8]) {
    long all[8] = {right};
    int count = 1;
    switch (kind) {
    case 'f': all[1] = -1, all[2] = CLOSED + 50, all[3] = 0x7fffffff, all[4] = right | 1L << 32, count = 5; break;
    case 'p': all[1] = 0, all[2] = (long)bad_page, all[3] = right + ODD, all[4] = -1, all[5] = 1L << 62, all[6] = (long)bad_page - 1, count = 7; break;
    case 'n': all[1] = 0, all[2] = -1, all[3] = 0x7fffffff, all[4] = right | 1L << 32, all[5] = 3, count = 6; break;
    case 's': all[1] = 0, all[2] = -1, all[3] = 1, count = 4; break;
    case 'i': all[1] = -1, all[2] = 0x7fffffff, all[3] = right | 1L << 32, all[4] = 0x40, count = 5; break;
    case 'a': all[1] = 1, all[2] = right + 1, all[3] = -4096, count = 4; break;
    case 'l': all[1] = 0, all[2] = -1, all[3] = 1, count = 4; break;
    }
    memcpy(values, all, sizeof all);
    return count;
}

static int makes_number(long number) {
    return number == SYS_dup || number == SYS_socket || number == SYS_accept || number == SYS_accept4 || number == SYS_open || number == SYS_openat ||
           number == SYS_openat2 || number == SYS_creat || number == SYS_epoll_create || number == SYS_epoll_create1 || number == SYS_io_uring_setup;
}

static void forget_numbers(long number, long result) {
    int *two = (int *)at(THIRD);
    /* The structure contains the features of the kernel, which are not the same everywhere. */
    if (number == SYS_io_uring_setup) memset(good_page + THIRD, 0, 0x1000);
    if (makes_number(number) && result >= 0) close(result);
    if ((number == SYS_dup2 || number == SYS_dup3) && result >= 0 && result != s) close(result);
    if ((number == SYS_pipe || number == SYS_pipe2 || number == SYS_socketpair) && result == 0) {
        if (*two == 0x55555555) two = (int *)(at(THIRD) + ODD);
        close(two[0]), close(two[1]), memset(two, 0, 8);
    }
    char b[64];
    while (read(empty[0], b, sizeof b) > 0) {}
}

static void say(const struct call *call, int which, int value, long a[6]) {
    fill();
    prepare();
    if (call->number == SYS_close) CHECK(dup2(s, CLOSED - 50) == CLOSED - 50);
    errno = 77;
    long result = syscall(call->number, a[0], a[1], a[2], a[3], a[4], a[5]);
    int error = errno;
    if (call->number == SYS_close) close(CLOSED - 50);
    await_echo(call->number, result);
    forget_numbers(call->number, result);
    unsigned sum = 0;
    for (int i = 0; i < ROOM; i++) sum = sum * 31 + (unsigned char)good_page[i];
    int is_place = call->number == SYS_mremap && result > 4096;
    fprintf(stderr, "%s %d %d: %ld %d %u\n", call->name, which, value, makes_number(call->number) && result >= 0 ? 1000 : is_place ? 1001 : result, error,
            /* The memory contains pointers. */ sum & (is_place ? 0 : ~0u));
}

/* The remaining time is reported, and a time limit is kept. */
static void limits(void) {
    struct timespec time = {0, 30000000};
    struct timeval old_time = {0, 30000};
    struct pollfd one = {s, POLLPRI, 0};
    fd_set pri;
    FD_ZERO(&pri);
    FD_SET(s, &pri);
    SAY(syscall(SYS_ppoll, &one, 1, &time, 0, 8)), SAY(time.tv_nsec);
    time.tv_nsec = 30000000;
    SAY(syscall(SYS_pselect6, s + 1, 0, 0, &pri, &time, 0)), SAY(time.tv_nsec), FD_SET(s, &pri);
    SAY(syscall(SYS_select, s + 1, 0, 0, &pri, &old_time)), SAY(old_time.tv_usec), FD_SET(s, &pri);
    struct timespec odd[] = {{0, -1}, {-1, 0}, {0, 1000000000}};
    struct timeval old_odd[] = {{0, -1}, {-1, 0}, {0, 1000000}};
    for (int i = 0; i < 3; i++) {
        int is_long = i == 2;
        SAY(syscall(SYS_ppoll, &one, 1, &odd[i], 0, 8)), SAY(odd[i].tv_nsec);
        FD_SET(s, &pri), SAY(syscall(SYS_pselect6, s + 1, 0, 0, &pri, &odd[i], 0));
        prepare(), FD_SET(s, &pri);
        SAY(syscall(SYS_select, s + 1, is_long ? &pri : 0, 0, is_long ? 0 : &pri, &old_odd[i])), SAY(old_odd[i].tv_sec < 2);
    }
}

/* Sends from a buffer of which only the first byte is accessible, on sessions that are away at that
   moment. */
static void bad_ends(int is_away) {
    struct iovec list[2] = {{good_page, 4}, {bad_page - 1, 5}};
    struct msghdr header = {.msg_iov = list, .msg_iovlen = 2};
    next_session(is_away), SAY(syscall(SYS_write, s, bad_page - 1, 5));
    next_session(is_away), SAY(syscall(SYS_sendto, s, bad_page - 1, 5, MSG_NOSIGNAL, 0, 0));
    next_session(is_away), SAY(syscall(SYS_writev, s, list, 2));
    next_session(is_away), SAY(syscall(SYS_sendmsg, s, &header, MSG_NOSIGNAL));
}

int main(int argc, char **argv) {
    int is_away = argv[1][0] == 'a' && getenv("LD_PRELOAD"), tcp = argv[2][0] == 't', others[SESSIONS];
    alarm(110);
    signal(SIGPIPE, SIG_IGN);
    struct rlimit_ { unsigned long now, most; } limit = {1024, 4096};
    syscall(SYS_prlimit64, 0, 7, &limit, 0);
    for (int i = 0; i < SESSIONS; i++) {
        int p[2];
        CHECK(!(tcp ? tcp_pair(p) : socketpair(AF_UNIX, SOCK_STREAM, 0, p)));
        pairs[i] = p[0], others[i] = p[1];
    }
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < SESSIONS; i++) close(pairs[i]), pairs[i] = others[i];
        echo();
    }
    for (int i = 0; i < SESSIONS; i++) close(others[i]), fcntl(pairs[i], F_SETFL, O_NONBLOCK);
    CHECK(!pipe2(empty, O_NONBLOCK) && !pipe2(full, O_NONBLOCK) && write(full[1], "x", 1) == 1);
    door = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr nameless = {AF_UNIX};
    CHECK(!bind(door, &nameless, 2) && !listen(door, 1));
    file = memfd_create("file", 0), CHECK(write(file, "0123456789", 10) == 10);
    set = epoll_create1(0);
    /* At a fixed address, so that checksums of its contents can be compared. */
    good_page = mmap((void *)(1L << 40), ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    bad_page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(!mprotect(bad_page + 4096, 4096, PROT_NONE)), bad_page += 4096;
    for (int n = 3; n < argc; n++) {
        const struct call *call = 0;
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
            if (!strcmp(calls[i].name, argv[n])) call = &calls[i];
        if (!call) fprintf(stderr, "%s has no case here\n", argv[n]), exit(2);
        for (int which = 0; call->kinds[which]; which++) {
            long right[6] = {0}, values[8];
            if (call->kinds[which] == '-') continue;
            next_session(is_away);
            good(call->number, right);
            int count = wrong(call->kinds[which], right[which], values);
            for (int value = 0; value < count; value++) {
                long a[6];
                good(call->number, a);
                if (call->kinds[which] == 'a' && value > 0) a[which] = values[value];
                if (call->kinds[which] != 'a') a[which] = values[value];
                say(call, which, value, a);
            }
        }
    }
    next_session(is_away), limits();
    bad_ends(is_away);
    for (int i = used - 1; i < SESSIONS; i++) close(pairs[i]);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
