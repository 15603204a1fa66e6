/* `beside KIND EVERY WINDOW until FILE`: two programs at the two ends of a Unix stream session,
 * which pass descriptors.
 *
 * Each program sends numbered messages of different lengths and receives those of the other. Every
 * EVERY-th message carries a descriptor, and every third of these also the credentials of its
 * sender. A program sends only while fewer than WINDOW of its messages are unanswered. The receiver
 * checks every byte of a message. A descriptor must come exactly once, with the first byte of its
 * message, as the lowest free number and with close-on-exec if that was asked for. Bytes of the
 * next message must not come with it.
 *
 * The output is the number of descriptors received. On a failed check the program prints a line and
 * exits with status 1. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_S = 40, LONGEST = 24, ROOM = 64 };

static const char *self, *kind, *until;
static long every, window;

static void fail(const char *format, ...) {
    va_list words;
    va_start(words, format);
    fprintf(stderr, "beside %s %ld %ld: ", kind, every, window);
    vfprintf(stderr, format, words);
    fputc('\n', stderr);
    _exit(1);
}

static void hangs(int signal) {
    (void)signal;
    static const char text[] = "beside: hangs\n";
    if (write(2, text, sizeof text - 1)) {}
    _exit(2);
}

/* Returns the length of a message; messages are numbered from 1. */
static long length(long number) {
    return 1 + number * 7 % LONGEST;
}

static int carries(long number) {
    return number % every == 0;
}

static unsigned char byte(long number, long at) {
    return (unsigned char)(number * 31 + at);
}

/* Returns a descriptor that identifies its message: a file with as many bytes as the message's
 * number. */
static int token(long number) {
    int fd = memfd_create("token", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, number)) fail("no token: %m");
    return fd;
}

static int send_one(int session, long number) {
    unsigned char bytes[LONGEST];
    long len = length(number);
    for (long at = 0; at < len; at++) bytes[at] = byte(number, at);
    struct iovec part = {bytes, (size_t)len};
    union {
        char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr aligned;
    } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    int fd = -1;
    if (carries(number)) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof fd);
        fd = token(number);
        memcpy(CMSG_DATA(head), &fd, sizeof fd);
        if (number / every % 3 == 0) {
            struct ucred own = {.pid = getpid(), .uid = getuid(), .gid = getgid()};
            head = CMSG_NXTHDR(&message, head);
            head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_CREDENTIALS, head->cmsg_len = CMSG_LEN(sizeof own);
            memcpy(CMSG_DATA(head), &own, sizeof own);
        } else {
            message.msg_controllen = CMSG_SPACE(sizeof fd);
        }
    }
    ssize_t sent = sendmsg(session, &message, MSG_NOSIGNAL | (number % 2 ? MSG_DONTWAIT : 0));
    int is_full = sent < 0 && errno == EAGAIN;
    if (sent != len && !is_full) fail("message %ld of %ld: sent %zd: %m", number, len, sent);
    if (fd >= 0) close(fd);
    return !is_full;
}

/* Progress in receiving the other program's messages. */
struct stream {
    long number, at, descriptors;
};

/* Returns the one descriptor that came with these bytes, or -1 without any. */
static int taken(struct msghdr *message) {
    int fd = -1;
    if (message->msg_flags & MSG_CTRUNC) fail("control data cut off");
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_type != SCM_RIGHTS || head->cmsg_len != CMSG_LEN(sizeof fd) || fd >= 0) fail("other control data");
        memcpy(&fd, CMSG_DATA(head), sizeof fd);
    }
    return fd;
}

/* Receives the bytes that are there. Returns 1 for some bytes, 0 for none, -1 for the end of the
 * session. */
static int receive(int session, struct stream *in, long turn) {
    unsigned char bytes[ROOM];
    struct iovec parts[2] = {{bytes, 5}, {bytes + 5, (size_t)(1 + turn % (ROOM - 5))}};
    char control[CMSG_SPACE(4 * sizeof(int))];
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2, .msg_control = control, .msg_controllen = sizeof control};
    int closes = turn % 2 ? MSG_CMSG_CLOEXEC : 0;
    if (turn % 11 == 0) {
        /* A peek removes neither bytes nor descriptors. */
        ssize_t seen = recvmsg(session, &message, MSG_DONTWAIT | MSG_PEEK);
        int fd = seen > 0 ? taken(&message) : -1;
        if (fd >= 0) close(fd);
        message.msg_controllen = sizeof control;
    }
    ssize_t got = recvmsg(session, &message, MSG_DONTWAIT | closes);
    if (got < 0 && errno == EAGAIN) return 0;
    if (got <= 0) return -1;
    int fd = taken(&message), expected = -1;
    long number = 0;
    for (ssize_t at = 0; at < got; at++) {
        if (in->at == length(in->number)) in->number++, in->at = 0;
        if (bytes[at] != byte(in->number, in->at)) fail("byte %ld of message %ld", in->at, in->number);
        if (expected >= 0 && in->number != number) fail("%ld came with the bytes of %ld", in->number, number);
        if (in->at++ == 0 && carries(in->number)) expected = 1, number = in->number;
    }
    if ((fd >= 0) != (expected >= 0)) fail("message %ld: descriptor %s", in->number, fd >= 0 ? "of another" : "lost");
    if (fd >= 0) {
        struct stat what;
        if (fstat(fd, &what) || what.st_size != number) fail("message %ld: descriptor of %ld", number, (long)what.st_size);
        if (!!(fcntl(fd, F_GETFD) & FD_CLOEXEC) != !!closes) fail("message %ld: closed on exec, or not", number);
        if (fcntl(fd, F_GETFD) < 0) fail("message %ld: not open: %m", number);
        close(fd);
        in->descriptors++;
    }
    return 1;
}

static void talk(int session, int leads) {
    long sent = 0, turn = 0;
    struct stream in = {0, 0, 0};
    int is_over = 0;
    in.at = length(0);
    for (;;) {
        if (!is_over && turn % 16 == 0 && leads && !access(until, F_OK)) {
            is_over = 1;
            shutdown(session, SHUT_WR);
        }
        while (!is_over && sent < in.number + window && send_one(session, sent + 1)) sent++;
        int got = receive(session, &in, turn++);
        if (got < 0) break;
        if (!got) {
            struct pollfd wait = {session, POLLIN, 0};
            poll(&wait, 1, 50);
        }
    }
    if (in.at != length(in.number)) fail("the end in the middle of message %ld", in.number);
    if (!is_over) shutdown(session, SHUT_WR);
    if (leads) printf("%ld\n", in.descriptors);
}

static int connected(void) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t len = sizeof(sa_family_t);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), session = socket(AF_UNIX, SOCK_STREAM, 0);
    /* Autobind: the kernel chooses an abstract name (unix(7)). */
    if (bind(listener, (void *)&name, len) || listen(listener, 1)) fail("no listener: %m");
    len = sizeof name;
    if (getsockname(listener, (void *)&name, &len) || connect(session, (void *)&name, len)) fail("no session: %m");
    int other = accept(listener, NULL, NULL);
    if (other < 0) fail("no session: %m");
    close(listener);
    if (dup2(other, 100) < 0 || close(other)) fail("no number: %m");
    return session;
}

int main(int count, char **words) {
    if (count < 6) return 3;
    self = words[0], kind = words[1], every = atol(words[2]), window = atol(words[3]), until = words[5];
    signal(SIGALRM, hangs);
    alarm(LIMIT_S);
    if (count > 6) {
        talk(100, 0);
        return 0;
    }
    int session, ends[2];
    if (!strcmp(kind, "pair")) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) fail("no session: %m");
        session = ends[0];
        if (dup2(ends[1], 100) < 0 || close(ends[1])) fail("no number: %m");
    } else {
        session = connected();
    }
    pid_t child = fork();
    if (!child) {
        close(session);
        execl("/proc/self/exe", self, kind, words[2], words[3], "until", until, "other", (char *)0);
        _exit(127);
    }
    close(100);
    talk(session, 1);
    int status;
    if (waitpid(child, &status, 0) != child || status) fail("the other: status %x", status);
    return 0;
}
