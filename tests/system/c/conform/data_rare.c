/* Data calls that few programs make: several messages with a limit, peeking by an offset, names
 * given with bytes of a connection, what lies between two sessions. */
#include "conform.h"

#include <sys/sendfile.h>

static char bytes[4096];

static void several(int count, int flags, long limit_ms) {
    struct mmsghdr many[4] = {0};
    struct iovec parts[4];
    struct timespec limit = {limit_ms / 1000, limit_ms % 1000 * 1000000};
    for (int i = 0; i < 4; i++) parts[i] = (struct iovec){bytes + i * 100, 10}, many[i].msg_hdr.msg_iov = &parts[i], many[i].msg_hdr.msg_iovlen = 1;
    long n = SAY(recvmmsg(S, many, (unsigned)count, flags, limit_ms < 0 ? NULL : &limit));
    for (int i = 0; i < n; i++) say("message %d: %u flags %x", i, many[i].msg_len, (unsigned)many[i].msg_hdr.msg_flags), check(bytes + i * 100, many[i].msg_len);
}

/* The time is looked at after each message only. */
CASE(several_messages_with_a_limit, SOCK, ALL_PHASES) {
    SAY_PEER(OP_SEND, 20);
    several(2, 0, 5000);
    point();
    later(OP_SEND, 10);
    several(3, 0, 1);
    peer_done();
    SAY_PEER(OP_SEND, 10);
    several(3, MSG_WAITFORONE, -1);
}

CASE(peeked_by_an_offset, SOCK, ALL_PHASES) {
    int at = 0;
    socklen_t len = sizeof at;
    SAY_PEER(OP_SEND, 100);
    SAY(setsockopt(S, SOL_SOCKET, SO_PEEK_OFF, &at, sizeof at));
    look(bytes, SAY(recv(S, bytes, 10, MSG_PEEK | MSG_DONTWAIT)));
    SAY(recv(S, bytes, 10, MSG_PEEK | MSG_DONTWAIT));
    point();
    check(bytes, SAY(recv(S, bytes, 5, MSG_DONTWAIT)));
    SAY(getsockopt(S, SOL_SOCKET, SO_PEEK_OFF, &at, &len)), SAY(at);
    at = -1;
    SAY(setsockopt(S, SOL_SOCKET, SO_PEEK_OFF, &at, sizeof at));
    check(bytes, SAY(recv(S, bytes, 95, MSG_DONTWAIT)));
}

CASE(sent_to_a_name, SOCK, ALL_PHASES) {
    struct sockaddr_storage name = {.ss_family = AF_UNIX};
    socklen_t len = sizeof(sa_family_t);
    if (kind & TCP) {
        len = sizeof name;
        NEED(getpeername(S, (void *)&name, &len) == 0);
    }
    long n = SAY(sendto(S, fill(bytes, 10), 10, MSG_NOSIGNAL, (void *)&name, len));
    if (n < 0) unfill(10);
    else SAY_PEER(OP_RECV_ONE, 10);
    point();
    struct iovec part = {fill(bytes, 10), 10};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_name = &name, .msg_namelen = len};
    n = SAY(sendmsg(S, &message, MSG_NOSIGNAL));
    if (n < 0) unfill(10);
    else SAY_PEER(OP_RECV_ONE, 10);
}

/* Bytes go from the session through a pipe of this process's own, and back into it. */
CASE(spliced_out_and_in, SOCK, ALL_PHASES) {
    int ends[2];
    NEED(pipe(ends) == 0);
    SAY_PEER(OP_SEND, 1000);
    point();
    long n = SAY(splice(S, NULL, ends[1], NULL, 1000, 0));
    NEED(n == 1000);
    check(bytes, SAY(read(ends[0], bytes, 400)));
    SAY(write(ends[1], fill(bytes, 300), 300));
    check(bytes, SAY(read(ends[0], bytes, 600)));
    SAY(splice(ends[0], NULL, S, NULL, 300, SPLICE_F_NONBLOCK));
    SAY_PEER(OP_RECV, 300);
    SAY(splice(ends[0], NULL, S, NULL, 300, SPLICE_F_NONBLOCK));
    works("afterwards");
}

/* Lengths beyond what one call of the kernel moves, and beyond the memory that is there. */
CASE(lengths_beyond_everything, SOCK, ALL_PHASES) {
    SAY_PEER(OP_SEND, 20);
    check(bytes, SAY(recv(S, bytes, (size_t)1 << 40, MSG_DONTWAIT)));
    SAY(recv(S, bytes, SIZE_MAX, MSG_DONTWAIT));
    point();
    SAY_PEER(OP_SEND, 20);
    check(bytes, SAY(read(S, bytes, SSIZE_MAX)));
    SAY(write(S, bytes, SIZE_MAX));
}

static void *receives_all(void *unused) {
    (void)unused;
    long n = recv(S, bytes, 100, MSG_WAITALL);
    note("recv: %ld %s", n, n < 0 ? strerrorname_np(errno) : "");
    if (n > 0) check(bytes, n);
    return NULL;
}

/* A call that waits for all ends at a byte that was sent out of band. */
CASE(wait_all_up_to_the_mark, SOCK, ALL_PHASES) {
    pthread_t thread = begin(receives_all);
    SAY_PEER(OP_SEND, 10);
    until_asleep(getpid(), tid);
    point();
    SAY_PEER(OP_OOB, 0);
    SAY_PEER(OP_SEND, 10);
    SAY_PEER(OP_SHUTDOWN, SHUT_WR);
    join(thread);
    SAY(sockatmark(S));
    SAY(get(10));
}

/* A pipe's writing end is read from, its reading end written to. */
static void in_the_wrong_direction(void) {
    struct iovec parts[2] = {{bytes, 10}, {bytes + 10, 10}};
    int other[2], source = memfd_create("source", MFD_CLOEXEC);
    NEED(pipe(other) == 0 && write(other[1], bytes, 10) == 10 && write(source, bytes, 10) == 10);
    if (kind == POUT) {
        SAY(read(S, bytes, 10)), SAY(readv(S, parts, 2)), SAY(preadv2(S, parts, 2, -1, RWF_NOWAIT));
        SAY(splice(S, NULL, other[1], NULL, 10, SPLICE_F_NONBLOCK));
        SAY(tee(S, other[1], 10, SPLICE_F_NONBLOCK));
        SAY(read(S, bytes, 0));
    } else {
        SAY(write(S, bytes, 10)), SAY(writev(S, parts, 2)), SAY(pwritev2(S, parts, 2, -1, RWF_NOWAIT));
        SAY(splice(other[0], NULL, S, NULL, 10, SPLICE_F_NONBLOCK));
        SAY(tee(other[0], S, 10, SPLICE_F_NONBLOCK));
        SAY(sendfile(S, source, &(off_t){0}, 10));
        SAY(write(S, bytes, 0));
    }
    close(other[0]), close(other[1]), close(source);
}

CASE(the_wrong_way, PIN | POUT, ALL_PHASES) {
    in_the_wrong_direction();
    works("between");
    point();
    in_the_wrong_direction();
    works("then");
}
