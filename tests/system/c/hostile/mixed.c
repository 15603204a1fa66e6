/* `mixed KIND SEED`: a program with sixteen sessions (KIND: `pipe`, `unix`, `tcp`) to a hostile
 * peer, which is another process, and which writes random values into every word of the streams'
 * control pages, and other bytes into what it has sent, from the moment that the sessions have
 * moved. An odd SEED has it rest between two, so that sessions live longer, and a SEED that four
 * divides has it obey the protocol, except that it changes bytes which it has sent. Two more
 * sessions are with an honest process, which sends everything back.
 *
 * The program goes on with every kind of call that moves bytes or descriptors: vectors, many
 * messages at once, looks, whole messages with a time limit, splice(2), sendfile(2), edges of an
 * epoll set, duplicates, children that use or inherit sessions, shutdowns, closes that linger. No
 * call may return more bytes than it was asked for, or write behind them.
 *
 * What the peer sends, at first and later, is below FIRST_OURS, and what the program sends to it is
 * not and counts up, so that each byte shows whose it is and where it belongs: the program receives
 * none of its own, nor of another session's, and the kernel has for the peer, once the program is
 * through, what the program has written, in that order. (Who says that it has not read what it has
 * read gets it once more.) What is looked at comes once more, and what an honest process sends back
 * is what it was sent.
 *
 * The output is "away N", the number of regions that the peer has found, then "descriptors N",
 * "threads N", "memory N" (KiB) and "processor N" (ms): what the program has at the end beyond what
 * it had before the peer began. The caller limits the time. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_OURS = 0x40, VALUES = 0x3f, TALK = FIRST_OURS + VALUES, HONEST = 2, THEIRS = 0x15, BREAKS_MAX = 16 };
enum { SESSIONS = 16, ROUNDS = 2000, CALLS = 3000, PAGE = 4096, ROOM = 3000, GUARD = 64, MOST = 2 * SESSIONS };

/* A session: the same descriptor twice, or the ends of two pipes. */
struct session {
    int in, out;
    /* Bytes that the program has sent over it, from the first call after the move. */
    size_t sent;
};

static int is_pipe;

static void fail(const char *what) {
    fprintf(stderr, "mixed: %s: %s\n", what, strerror(errno));
    _exit(1);
}

#define FIRST_STATE 88172645463325252u
static uint64_t state = FIRST_STATE;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void rest_us(long us) {
    struct timespec time = {0, us * 1000};
    nanosleep(&time, NULL);
}

/* A stream: its control page, and the part of its bytes in which the peer's lie. */
struct region {
    volatile uint64_t *control;
    volatile unsigned char *bytes;
    size_t len;
    /* The ring of these bytes. */
    int ring;
};

/* Maps a stream once more, because the library lets go of it when its session goes home, and finds
 * the half of its bytes that holds the peer's. */
static struct region map(unsigned long begin, unsigned long end) {
    void *at = mremap((void *)begin, 0, end - begin, MREMAP_MAYMOVE);
    if (at == MAP_FAILED) fail("mremap");
    struct region one = {at, (volatile unsigned char *)at + PAGE, (end - begin - PAGE) / 2, 0};
    size_t first = 0;
    while (first < 2 * one.len && one.bytes[first] != THEIRS) first++;
    if (first == 2 * one.len) one.len = 0;
    if (one.len && first >= one.len) one.bytes += one.len, one.ring = 1;
    return one;
}

/* Finds the streams that this process maps. */
static int regions(struct region found[], int most) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[600];
    int count = 0;
    while (maps && count < most && fgets(line, sizeof line, maps)) {
        unsigned long begin, end;
        char access[8];
        if (strstr(line, "sojourn-stream") && sscanf(line, "%lx-%lx %7s", &begin, &end, access) == 3 && access[1] == 'w')
            found[count++] = map(begin, end);
    }
    if (maps) fclose(maps);
    return count;
}

/* Sends a byte each way over every session, for so many rounds that all have moved. */
static void talk(const struct session s[], int first) {
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < SESSIONS; i++) {
            char ours = TALK, theirs = THEIRS, got;
            if (first && write(s[i].out, &ours, 1) != 1) fail("write");
            if (read(s[i].in, &got, 1) != 1 || got != (first ? theirs : ours)) fail("read");
            if (!first && write(s[i].out, &theirs, 1) != 1) fail("write");
        }
    }
}

/* The byte at a place of what the program sends. */
static unsigned char ours_at(size_t place) {
    return (unsigned char)(FIRST_OURS + place % VALUES);
}

/* Reads from the kernel, past the library. */
static long raw_read(long fd, void *to, size_t len) {
#if defined __x86_64__
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_read), "D"(fd), "S"(to), "d"(len) : "rcx", "r11", "memory");
    return result;
#elif defined __aarch64__
    register long number __asm__("x8") = SYS_read, at __asm__("x0") = fd, room __asm__("x1") = (long)to, most __asm__("x2") = (long)len;
    __asm__ volatile("svc 0" : "+r"(at) : "r"(number), "r"(room), "r"(most) : "memory");
    return at;
#else
    return -1;
#endif
}

/* Sends some bytes that are in the ring, and receives all that has come, by the words of the rings
 * alone: a tail, and the reader's head 16 words behind. */
static void exchange_alone(const struct region *one) {
    volatile uint64_t *out = one->control + one->ring * 64, *in = one->control + (1 - one->ring) * 64;
    const uint64_t frozen = 1ull << 63;
    if (!(out[0] & frozen) && out[0] + 64 < (out[16] & ~frozen) + one->len) out[0] += next() % 64;
    if (!(in[16] & frozen) && !is_pipe) in[16] = in[0] & ~frozen;
}

static volatile sig_atomic_t is_over;

static void end(int number) {
    is_over = number;
}

/* Ends the peer: with 0 if the kernel has nothing for it but what the program may have written. The
 * library is not asked. */
static void look_at_kernel(const struct session s[]) {
    unsigned char got[ROOM];
    for (int i = 0; i < SESSIONS; i++) {
        long len;
        int last = TALK, breaks = 0;
        while ((len = raw_read(s[i].in, got, sizeof got)) > 0)
            for (long at = 0; at < len; last = got[at++]) {
                breaks += last != TALK && got[at] != TALK && got[at] != ours_at((size_t)(last - FIRST_OURS + 1));
                if (got[at] >= FIRST_OURS && got[at] <= TALK && breaks <= BREAKS_MAX) continue;
                fprintf(stderr, "mixed: session %d: byte %ld of %ld is %#x, behind %#x\n", i, at, len, got[at], last);
                _exit(3);
            }
    }
    _exit(0);
}

static void be_peer(const struct session s[], int tells, int rests, int is_gentle) {
    static struct region found[MOST];
    char sent[100];
    signal(SIGUSR1, end);
    memset(sent, THEIRS, sizeof sent);
    talk(s, 0);
    int count = regions(found, MOST), said;
    for (int i = 0; i < SESSIONS; i++)
        if (write(s[i].out, sent, sizeof sent) < 0) fail("write");
    if (write(tells, &count, sizeof count) < 0 || read(tells, &said, sizeof said) < 0) fail("tell");
    const uint64_t frozen = 1ull << 63;
    while (!is_over) {
        for (int i = 0; i < count && !is_over; i++) {
            /* Chooses heads and tails, or any word, and mostly values that are nearly valid. */
            uint64_t which = next(), near = next() >> 20 & 0x3ffff;
            int at = which & 1 ? (int)(which >> 8 & 7) * 16 : (int)(which >> 8 & (PAGE / 8 - 1));
            uint64_t value = which & 2 ? near : which & 4 ? near | frozen : which & 16 ? 0 : next();
            if (!is_gentle) found[i].control[at] = value;
            else if (found[i].len) exchange_alone(&found[i]);
            if (found[i].len) found[i].bytes[next() % found[i].len] = next() % FIRST_OURS;
            if (rests) rest_us(50);
        }
    }
    /* The program has closed its ends, so nothing blocks. */
    look_at_kernel(s);
}

/* Returns a socket that listens, and its address. */
static int listen_at(int family, struct sockaddr_storage *place, socklen_t *len) {
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memset(place, 0, sizeof *place);
    place->ss_family = AF_UNIX;
    *len = sizeof(sa_family_t);
    if (family == AF_INET) memcpy(place, &in, *len = sizeof in);
    if (bind(listener, (struct sockaddr *)place, *len) || listen(listener, SESSIONS)) fail("listen");
    *len = sizeof *place;
    if (getsockname(listener, (struct sockaddr *)place, len)) fail("getsockname");
    return listener;
}

/* Makes pipes for the sessions, before the peer is there. */
static void make_pipes(struct session ours[], struct session theirs[]) {
    for (int i = 0; i < SESSIONS; i++) {
        int one[2], other[2];
        if (pipe(one) || pipe(other)) fail("pipe");
        ours[i] = (struct session){one[0], other[1], 0};
        theirs[i] = (struct session){other[0], one[1], 0};
    }
}

static void connect_all(struct session s[], int family, struct sockaddr_storage *place, socklen_t len) {
    for (int i = 0; i < SESSIONS; i++) {
        int fd = socket(family, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)place, len)) fail("connect");
        s[i] = (struct session){fd, fd, 0};
    }
}

static void accept_all(struct session s[], int listener) {
    for (int i = 0; i < SESSIONS; i++) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) fail("accept");
        s[i] = (struct session){fd, fd, 0};
    }
}

static void drop(const struct session *s) {
    close(s->in);
    if (s->out != s->in) close(s->out);
}

static int begin(const char *kind, struct session ours[], const struct session beside[], int *peer) {
    int family = strcmp(kind, "tcp") ? AF_UNIX : AF_INET, rests = state & 1, is_gentle = !((state - FIRST_STATE) & 3);
    struct session theirs[SESSIONS];
    struct sockaddr_storage place;
    socklen_t len;
    int told[2], count, listener = is_pipe ? -1 : listen_at(family, &place, &len);
    if (is_pipe) make_pipes(ours, theirs);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, told)) fail("socketpair");
    if ((*peer = fork()) < 0) fail("fork");
    if (*peer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int i = 0; i < SESSIONS && is_pipe; i++) drop(&ours[i]);
        for (int i = 0; i < HONEST; i++) drop(&beside[i]);
        close(listener);
        if (!is_pipe) connect_all(theirs, family, &place, len);
        be_peer(theirs, told[1], rests, is_gentle);
    }
    for (int i = 0; i < SESSIONS && is_pipe; i++) drop(&theirs[i]);
    if (!is_pipe) accept_all(ours, listener);
    close(listener);
    talk(ours, 1);
    if (read(told[0], &count, sizeof count) != sizeof count || write(told[0], &count, sizeof count) < 0) fail("the peer");
    close(told[0]);
    close(told[1]);
    const struct timeval limit = {0, 2000};
    for (int i = 0; i < SESSIONS; i++) {
        if (is_pipe) {
            fcntl(ours[i].in, F_SETFL, O_NONBLOCK);
            fcntl(ours[i].out, F_SETFL, O_WRONLY | O_NONBLOCK);
            continue;
        }
        if (setsockopt(ours[i].in, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit)) fail("SO_RCVTIMEO");
        if (setsockopt(ours[i].in, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit)) fail("SO_SNDTIMEO");
    }
    return count;
}

/* A place for received bytes, with a guard behind. */
static unsigned char room[ROOM + GUARD];

static void guard(size_t len) {
    memset(room, 0, len);
    memset(room + len, 0xa5, GUARD);
}

/* Checks that no more than so much was received, and nothing but the peer's. */
static void check(const char *what, ssize_t got, size_t len) {
    if (got > (ssize_t)len) fail(what);
    for (int i = 0; i < GUARD; i++)
        if (room[len + i] != 0xa5) fail(what);
    for (size_t i = 0; i < len; i++)
        if (room[i] >= FIRST_OURS) {
            fprintf(stderr, "mixed: byte %zu of %zd is %#x, ", i, got, room[i]);
            fail(what);
        }
}

/* Looks at what has come, and takes it: it is the same. */
static void look_and_take(const struct session *s, size_t len) {
    static unsigned char looked[ROOM];
    ssize_t seen = is_pipe ? -1 : recv(s->in, looked, len, MSG_PEEK | MSG_DONTWAIT);
    if (seen <= 0) return;
    guard(len);
    ssize_t got = recv(s->in, room, len, MSG_DONTWAIT);
    check("recv", got, len);
    if (got <= 0) fail("what was looked at does not come");
    if (memcmp(looked, room, (size_t)(got < seen ? got : seen))) fail("what was looked at is another");
}

/* Has an honest process send back what comes over these sessions. */
static void begin_beside(struct session ours[]) {
    struct session theirs[HONEST];
    for (int i = 0; i < HONEST; i++) {
        int one[2], other[2];
        if (is_pipe ? pipe(one) || pipe(other) : socketpair(AF_UNIX, SOCK_STREAM, 0, one)) fail("beside");
        ours[i] = is_pipe ? (struct session){one[0], other[1], 0} : (struct session){one[0], one[0], 0};
        theirs[i] = is_pipe ? (struct session){other[0], one[1], 0} : (struct session){one[1], one[1], 0};
    }
    if (fork()) {
        for (int i = 0; i < HONEST; i++) drop(&theirs[i]);
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < HONEST; i++) drop(&ours[i]);
    struct pollfd polled[HONEST];
    for (int i = 0; i < HONEST; i++) polled[i] = (struct pollfd){theirs[i].in, POLLIN, 0};
    while (poll(polled, HONEST, -1) > 0)
        for (int i = 0; i < HONEST; i++) {
            ssize_t got = polled[i].revents ? read(theirs[i].in, room, ROOM) : 0;
            if (polled[i].revents && (got <= 0 || write(theirs[i].out, room, (size_t)got) != got)) _exit(0);
        }
    _exit(0);
}

/* Sends something to the honest process and receives it. */
static void exchange(const struct session *s) {
    static uint64_t place;
    unsigned char sent[400], got[400];
    size_t len = 1 + next() % sizeof sent, all = 0;
    for (size_t i = 0; i < len; i++, place++) sent[i] = 0x80 | (unsigned char)(place * 0x9e3779b97f4a7c15u >> 57);
    if (write(s->out, sent, len) != (ssize_t)len) fail("write beside");
    while (all < len) {
        ssize_t some = read(s->in, got + all, len - all);
        if (some <= 0) fail("read beside");
        all += (size_t)some;
    }
    if (memcmp(sent, got, len)) fail("what an honest process sends back is another");
}

static void receive(const struct session *s, size_t len) {
    static const int flags[] = {0, MSG_DONTWAIT, MSG_PEEK | MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT};
    guard(len);
    check("read", is_pipe || !(next() & 3) ? read(s->in, room, len) : recv(s->in, room, len, flags[next() % 6]), len);
}

static void receive_parts(const struct session *s, size_t len) {
    struct iovec parts[3] = {{room, len / 3}, {room + len / 3, 0}, {room + len / 3, len - len / 3}};
    struct mmsghdr many[2] = {{.msg_hdr = {.msg_iov = parts, .msg_iovlen = 2}}, {.msg_hdr = {.msg_iov = parts + 2, .msg_iovlen = 1}}};
    struct timespec none = {0, 0};
    guard(len);
    if (is_pipe || next() & 1) {
        check("readv", readv(s->in, parts, 3), len);
    } else if (recvmmsg(s->in, many, 2, MSG_DONTWAIT, &none) > 0) {
        if (many[0].msg_len > len / 3) fail("recvmmsg");
        check("recvmmsg", many[0].msg_len + (ssize_t)many[1].msg_len, len);
    }
    /* Bytes that are thrown away are counted; the place for them may be none (tcp(7)). */
    if (!is_pipe && recv(s->in, NULL, len, MSG_TRUNC | MSG_DONTWAIT) > (ssize_t)len) fail("MSG_TRUNC");
}

static void send_parts(struct session *s, size_t len) {
    len /= 2;
    struct iovec parts[3] = {{room, len / 2}, {room + len / 2, len - len / 2}, {room + len, len}};
    struct mmsghdr many[2] = {{.msg_hdr = {.msg_iov = parts, .msg_iovlen = 2}}, {.msg_hdr = {.msg_iov = parts + 2, .msg_iovlen = 1}}};
    ssize_t sent;
    for (size_t i = 0; i < ROOM; i++) room[i] = ours_at(s->sent + i);
    switch (is_pipe ? 2 : next() % 3) {
    case 0: sent = send(s->out, room, len, MSG_NOSIGNAL | (next() & 1 ? MSG_DONTWAIT : 0)); break;
    case 1: sent = sendmmsg(s->out, many, 2, MSG_NOSIGNAL | MSG_DONTWAIT) > 0 ? (ssize_t)many[0].msg_len : 0;
        s->sent += many[1].msg_len;
        break;
    default: sent = writev(s->out, parts, 2);
    }
    if (sent > (ssize_t)len) fail("send");
    if (sent > 0) s->sent += (size_t)sent;
}

/* Moves bytes without a copy in this program: from the session to a pipe of its own and back, or
 * from a file. */
static void move(struct session *s, int file, const int pipes[2], size_t len) {
    off_t from = (off_t)(s->sent % VALUES);
    if (next() & 1) {
        int flags = fcntl(s->out, F_GETFL);
        fcntl(s->out, F_SETFL, flags | O_NONBLOCK);
        ssize_t sent = sendfile(s->out, file, &from, len / 2);
        fcntl(s->out, F_SETFL, flags);
        if (sent > (ssize_t)len) fail("sendfile");
        if (sent > 0) s->sent += (size_t)sent;
        return;
    }
    int flags = fcntl(s->in, F_GETFL);
    fcntl(s->in, F_SETFL, flags | O_NONBLOCK);
    ssize_t got = splice(s->in, NULL, pipes[1], NULL, len, SPLICE_F_NONBLOCK);
    fcntl(s->in, F_SETFL, flags);
    if (got > (ssize_t)len) fail("splice");
    for (; got > 0; got -= ROOM) {
        guard(ROOM);
        check("splice", read(pipes[0], room, ROOM), ROOM);
    }
}

/* Waits for an edge, and for readiness. */
static void wait_for(const struct session *s, int set) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.fd = s->in}, found[4];
    struct pollfd polled[2] = {{s->in, POLLIN, 0}, {s->out, POLLOUT, 0}};
    epoll_ctl(set, next() & 1 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, s->in, &event);
    if (epoll_wait(set, found, 4, (int)(next() & 1)) > 4) fail("epoll_wait");
    if (poll(polled, 2, 0) > 2) fail("poll");
    if (!(next() & 3)) epoll_ctl(set, EPOLL_CTL_DEL, s->in, NULL);
}

/* Has a child use the session or inherit it, or another descriptor name it. */
static void share(const struct session *s) {
    int child, copy, status = 0;
    switch (next() % 3) {
    case 0:
        if ((child = fork()) == 0) {
            receive(s, 100);
            _exit(0);
        }
        if (waitpid(child, &status, 0) == child && status) fail("a child");
        break;
    case 1:
        if ((child = fork()) == 0) {
            execl("/bin/true", "true", NULL);
            _exit(1);
        }
        waitpid(child, NULL, 0);
        break;
    default:
        copy = dup(s->in);
        receive(s, 100);
        if (copy >= 0 && dup2(s->in, copy) < 0) fail("dup2");
        close(copy);
    }
}

static void finish(struct session *s) {
    struct linger linger = {next() & 1, 0};
    if (!is_pipe && next() & 1) setsockopt(s->out, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    if (!is_pipe && next() & 1) shutdown(s->out, (int)(next() % 3));
    receive(s, 100);
    drop(s);
}

static int entries(const char *path) {
    DIR *folder = opendir(path);
    int count = 0;
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count;
}

struct usage {
    long descriptors, threads, memory, processor;
};

static struct usage used(void) {
    struct rusage own;
    long all = 0, resident = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm || fscanf(statm, "%ld %ld", &all, &resident) != 2) fail("statm");
    fclose(statm);
    getrusage(RUSAGE_SELF, &own);
    long ms = (own.ru_utime.tv_sec + own.ru_stime.tv_sec) * 1000 + (own.ru_utime.tv_usec + own.ru_stime.tv_usec) / 1000;
    return (struct usage){entries("/proc/self/fd"), entries("/proc/self/task"), resident * (PAGE / 1024), ms};
}

int main(int count, char **words) {
    if (count != 3) return 64;
    struct session s[SESSIONS], beside[HONEST];
    int peer, status = 0, pipes[2], file = memfd_create("file", MFD_CLOEXEC), set = epoll_create1(EPOLL_CLOEXEC);
    signal(SIGPIPE, SIG_IGN);
    is_pipe = !strcmp(words[1], "pipe");
    state += strtoul(words[2], NULL, 10);
    for (size_t i = 0; i < ROOM; i++) room[i] = ours_at(i);
    if (pipe2(pipes, O_NONBLOCK | O_CLOEXEC) || write(file, room, ROOM) != ROOM) fail("files");
    begin_beside(beside);
    int found = begin(words[1], s, beside, &peer);
    struct usage before = used();
    for (int i = 0; i < CALLS; i++) {
        struct session *one = &s[next() % SESSIONS];
        size_t len = next() % ROOM;
        /* Some of what is done sends a session home, where it stays for a while. */
        switch (next() % 400) {
        case 0 ... 69: receive(one, len); break;
        case 70 ... 99: look_and_take(one, len); break;
        case 100 ... 119: exchange(&beside[next() % HONEST]); break;
        case 120 ... 199: receive_parts(one, len); break;
        case 200 ... 319: send_parts(one, len); break;
        case 320 ... 395: wait_for(one, set); break;
        case 396 ... 398: move(one, file, pipes, len); break;
        default: share(one);
        }
    }
    for (int i = 0; i < SESSIONS; i++) finish(&s[i]);
    struct usage after = used();
    printf("away %d\ndescriptors %ld\nthreads %ld\nmemory %ld\nprocessor %ld\n", found,
           after.descriptors - before.descriptors, after.threads - before.threads, after.memory - before.memory,
           after.processor - before.processor);
    fflush(stdout);
    kill(peer, SIGUSR1);
    if (waitpid(peer, &status, 0) != peer || status) fail("the peer's kernel");
    return 0;
}
