/* Queues, low-water marks, time limits, names and options of what moves.
 *
 * Not here: the data calls themselves (data.c). */
#include "conform.h"

CASE(bytes_waiting, IN, ALL_PHASES) {
    int count = -1;
    char bytes[100];
    SAY(ioctl(S, FIONREAD, &count));
    SAY(count);
    SAY_PEER(OP_SEND, 10);
    SAY(ioctl(S, FIONREAD, &count));
    SAY(count);
    check(bytes, SAY(read(S, bytes, 3)));
    point();
    if (phase == 'p') nap(20);
    SAY(ioctl(S, FIONREAD, &count));
    SAY(count);
    SAY_PEER(OP_SEND, 10);
    SAY(ioctl(S, FIONREAD, &count));
    SAY(count);
    SAY(get(17));
    SAY(ioctl(S, FIONREAD, &count));
    SAY(count);
}

CASE(bytes_unread_by_peer, SOCK, ALL_PHASES) {
    int count = -1;
    /* TCP's acknowledgements may be delayed. */
    for (int i = 0; i < 500 && ioctl(S, SIOCOUTQ, &count) == 0 && count > 0; i++) nap(1);
    SAY(ioctl(S, SIOCOUTQ, &count));
    SAY(count == 0);
    SAY(put(100));
    for (int i = 0; kind & TCP && i < 500 && ioctl(S, SIOCOUTQ, &count) == 0 && count > 0; i++) nap(1);
    SAY(ioctl(S, SIOCOUTQ, &count));
    /* Of a Unix stream the kernel counts unread bytes, with their overhead. A TCP peer has
     * acknowledged the bytes, so they no longer count. */
    HOLDS((count > 0) == !!(kind & LOCAL));
    SAY_PEER(OP_RECV, 100);
    SAY(ioctl(S, SIOCOUTQ, &count));
    SAY(count);
}

CASE(low_water_mark, SOCK, ALL_PHASES) {
    int mark = 8;
    char bytes[100];
    SAY(setsockopt(S, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark));
    struct pollfd one = {S, POLLIN, 0};
    peer(OP_SEND, 5);
    point();
    SAY(poll(&one, 1, 20));
    /* As many bytes as the low-water mark: the kernel does not wake a TCP reader for fewer, even if
     * the reader has taken some before. */
    later(OP_SEND, 9);
    check(bytes, SAY(recv(S, bytes, 100, 0)));
    peer_done();
    later(OP_SHUTDOWN, SHUT_WR);
    SAY(recv(S, bytes, 100, 0));
    peer_done();
}

CASE(receive_timeout, SOCK, ALL_PHASES) {
    struct timeval span = {0, 40000};
    char bytes[100];
    SAY(setsockopt(S, SOL_SOCKET, SO_RCVTIMEO, &span, sizeof span));
    long began = now_ms();
    SAY(read(S, bytes, 5));
    HOLDS(about(now_ms() - began, 40));
    peer(OP_SEND, 5);
    point();
    began = now_ms();
    check(bytes, SAY(recv(S, bytes, 10, MSG_WAITALL)));
    HOLDS(about(now_ms() - began, 40));
    struct timeval seen;
    socklen_t len = sizeof seen;
    SAY(getsockopt(S, SOL_SOCKET, SO_RCVTIMEO, &seen, &len));
    say("%ld.%06ld", (long)seen.tv_sec, (long)seen.tv_usec);
    span = (struct timeval){0, 0};
    SAY(setsockopt(S, SOL_SOCKET, SO_RCVTIMEO, &span, sizeof span));
    later(OP_SEND, 5);
    check(bytes, SAY(read(S, bytes, 5)));
    peer_done();
}

/* With a time limit below nothing calls do not wait, yet the socket tells the limit 0. */
CASE(negative_timeouts, SOCK, ALL_PHASES) {
    struct timeval span = {-1, 0};
    static char bytes[400000];
    long n;
    SAY(setsockopt(S, SOL_SOCKET, SO_RCVTIMEO, &span, sizeof span));
    SAY(setsockopt(S, SOL_SOCKET, SO_SNDTIMEO, &span, sizeof span));
    SAY(read(S, bytes, 5));
    peer(OP_SEND, 5);
    point();
    check(bytes, SAY(recv(S, bytes, 10, MSG_WAITALL)));
    while ((n = write(S, bytes, sizeof bytes)) > 0) continue;
    say("%ld %s", n, strerrorname_np(errno));
}

CASE(send_timeout, SOCK, ALL_PHASES) {
    struct timeval span = {0, 40000};
    static char bytes[100000];
    long sum = 0, n;
    SAY(setsockopt(S, SOL_SOCKET, SO_SNDTIMEO, &span, sizeof span));
    long began = now_ms();
    while ((n = write(S, fill(bytes, sizeof bytes), sizeof bytes)) > 0) { unfill(sizeof bytes - n); sum += n; began = now_ms(); }
    unfill(sizeof bytes);
    say("timed out: %s", strerrorname_np(errno));
    HOLDS(now_ms() - began <= 400);
    HOLDS(peer(OP_RECV, sum) == sum);
    SAY(put(10));
    SAY_PEER(OP_RECV, 10);
}

/* A peer that reads nothing: with TCP_USER_TIMEOUT the connection ends. */
static void unread_for_too_long(int waits) {
    static char bytes[65536];
    int limit_ms = 300, on = 1;
    long n;
    SAY(setsockopt(S, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms));
    works("with a limit");
    point();
    if (!waits) ioctl(S, FIONBIO, &on);
    while ((n = send(S, bytes, sizeof bytes, MSG_NOSIGNAL)) > 0) continue;
    say("full: %s", strerrorname_np(errno));
    if (waits) return;
    struct pollfd one = {S, POLLOUT, 0};
    SAY(poll(&one, 1, 5000));
    SAY(one.revents);
    SAY(send(S, bytes, 10, MSG_NOSIGNAL));
}

CASE(nobody_reads_for_too_long, TCP, ALL_PHASES) { unread_for_too_long(0); }
CASE(nobody_reads_for_too_long_waiting, TCP, ALL_PHASES) { unread_for_too_long(1); }

CASE(names, SOCK, ALL_PHASES) {
    struct sockaddr_storage own, other;
    socklen_t len = sizeof own, other_len = sizeof other;
    SAY(getsockname(S, (void *)&own, &len));
    SAY(len > 2 ? own.ss_family : own.ss_family + 1000);
    SAY(getpeername(S, (void *)&other, &other_len));
    SAY(other.ss_family);
    if (kind == TCP4) HOLDS(((struct sockaddr_in *)&other)->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    int value = -1;
    len = sizeof value;
    SAY(getsockopt(S, SOL_SOCKET, SO_ERROR, &value, &len));
    SAY(value);
    SAY(getsockopt(S, SOL_SOCKET, SO_TYPE, &value, &len));
    SAY(value);
    if (kind & LOCAL) {
        struct ucred who;
        len = sizeof who;
        SAY(getsockopt(S, SOL_SOCKET, SO_PEERCRED, &who, &len));
        HOLDS(who.uid == getuid() && (who.pid == peer_pid || who.pid == getpid()));
    }
    SAY(connect(S, (void *)&other, other_len) == -1);
    SAY(listen(S, 1));
    SAY(put(5));
    SAY_PEER(OP_RECV, 5);
}

CASE(tcp_options, TCP, ALL_PHASES) {
    int value = 1;
    socklen_t len = sizeof value;
    SAY(setsockopt(S, IPPROTO_TCP, TCP_NODELAY, &value, len));
    value = 0;
    SAY(getsockopt(S, IPPROTO_TCP, TCP_NODELAY, &value, &len));
    SAY(value);
    value = 1;
    SAY(setsockopt(S, IPPROTO_TCP, TCP_CORK, &value, len));
    SAY(put(10));
    point();
    value = 0;
    SAY(getsockopt(S, IPPROTO_TCP, TCP_CORK, &value, &len));
    SAY(value);
    value = 0;
    SAY(setsockopt(S, IPPROTO_TCP, TCP_CORK, &value, len));
    SAY_PEER(OP_RECV, 10);
    struct tcp_info info;
    len = sizeof info;
    SAY(getsockopt(S, IPPROTO_TCP, TCP_INFO, &info, &len));
    SAY(info.tcpi_state);
    SAY(send(S, "x", 1, MSG_MORE));
    unfill(-1);
    value = 1;
    SAY(setsockopt(S, IPPROTO_TCP, TCP_QUICKACK, &value, sizeof value));
    SAY(setsockopt(S, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value));
    value = 200000;
    SAY(setsockopt(S, SOL_SOCKET, SO_SNDBUF, &value, sizeof value));
    SAY(setsockopt(S, SOL_SOCKET, SO_RCVBUF, &value, sizeof value));
    SAY(setsockopt(S, SOL_SOCKET, 9999, &value, sizeof value));
    SAY(getsockopt(S, SOL_SOCKET, SO_TYPE, NULL, NULL));
}

static void *receive_30(void *unused) {
    note("get %ld", get(30));
    return NULL;
}

/* What a cork holds back comes when the cork is taken out, or after a while, to a reader that
 * sleeps meanwhile. */
CASE(corked, TCP, ALL_PHASES) {
    SAY(peer3(OP_OPTION, IPPROTO_TCP, TCP_CORK, 1));
    later(OP_SEND, 30);
    SAY(get(30));
    say("peer: %ld", peer_done());
    point();
    for (int round = 0; round < 3; round++) {
        SAY(peer3(OP_OPTION, IPPROTO_TCP, TCP_CORK, 1));
        pthread_t reader = begin(receive_30);
        SAY(peer3(OP_SEND, 10, 0, 0));
        SAY(peer3(OP_SEND, 20, 0, 0));
        /* TCP_NODELAY pushes, too, and leaves the cork in. */
        SAY(peer3(OP_OPTION, IPPROTO_TCP, round == 1 ? TCP_NODELAY : TCP_CORK, round == 1));
        join(reader);
    }
    SAY(peer3(OP_OPTION, IPPROTO_TCP, TCP_CORK, 0));
    works("uncorked");
}

/* Reading the option TCP_ZEROCOPY_RECEIVE receives. The headers of the C library and of the kernel
 * cannot be used together. */
struct zerocopy_receive {
    uint64_t address;
    uint32_t length, by_copy, left;
    int32_t error;
    uint64_t copy_at;
    int32_t copied;
    uint32_t flags;
};

CASE(received_by_an_option, TCP, ALL_PHASES) {
    char bytes[4096];
    enum { RECEIVE = 35 };
    SAY_PEER(OP_SEND, 100);
    point();
    void *pages = mmap(NULL, 65536, PROT_READ, MAP_SHARED, S, 0);
    NEED(pages != MAP_FAILED);
    struct zerocopy_receive asked = {(uintptr_t)pages, 65536, 0, 0, 0, (uintptr_t)bytes, sizeof bytes, 0};
    socklen_t len = sizeof asked;
    SAY(getsockopt(S, IPPROTO_TCP, RECEIVE, &asked, &len));
    SAY(asked.length);
    check(bytes, SAY(asked.copied));
    works("afterwards");
}

/* TCP_INQ, which a connection has from its listener: each message tells how much is left. */
CASE(told_what_is_left, TCP4, "k") {
    enum { INQ = 36 };
    int on = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof name;
    NEED(bind(listener, (void *)&name, len) == 0 && listen(listener, 1) == 0);
    NEED(getsockname(listener, (void *)&name, &len) == 0);
    SAY(setsockopt(listener, IPPROTO_TCP, INQ, &on, sizeof on));
    NEED(peer3(OP_CONNECT, TCP4, ntohs(name.sin_port), 0) == 0);
    S = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    NEED(S >= 0);
    int told = 0;
    for (int i = 0; i < 2000; i++) {
        char bytes[10], room[100];
        struct iovec part = {bytes, 10};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
        NEED(peer(OP_SEND, 10) == 10);
        NEED(recvmsg(S, &message, MSG_WAITALL) == 10);
        check(bytes, 10);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        told += head && head->cmsg_level == IPPROTO_TCP && head->cmsg_type == INQ;
        NEED(put(1) == 1 && peer(OP_RECV, 1) == 1);
    }
    SAY(told);
}
