/* Calls that carry data: sizes, buffers, flags, queues and bad pointers. */
#include "conform.h"
#include <execinfo.h>
#include <sys/shm.h>

CASE(read_sizes, IN, ALL_PHASES) {
    char bytes[5000];
    SAY(read(S, bytes, 0));
    SAY_PEER(OP_SEND, 10);
    SAY(read(S, bytes, 0));
    check(bytes, SAY(read(S, bytes, 1)));
    point();
    check(bytes, SAY(read(S, bytes, 4)));
    check(bytes, SAY(read(S, bytes, sizeof bytes)));
    later(OP_SEND, 3000);
    check(bytes, SAY_SOME(read(S, bytes, 1)));
    peer_done();
    SAY(get(2999));
}

CASE(write_sizes, OUT, ALL_PHASES) {
    char bytes[5000];
    SAY(write(S, bytes, 0));
    SAY(write(S, fill(bytes, 1), 1));
    point();
    SAY(write(S, fill(bytes, 5000), 5000));
    SAY_PEER(OP_RECV, 5001);
    if (kind != POUT) {
        SAY(send(S, bytes, 0, 0));
        SAY(send(S, fill(bytes, 7), 7, MSG_NOSIGNAL));
        SAY(sendto(S, fill(bytes, 7), 7, 0, NULL, 0));
        SAY_PEER(OP_RECV, 14);
    }
}

CASE(more_than_the_ring_in, IN, ALL_PHASES) {
    later(OP_SEND, 3000000);
    SAY(get(1000));
    point();
    SAY(get(2999000));
    say("peer: %ld", peer_done());
}

CASE(more_than_the_ring_out, OUT, ALL_PHASES) {
    SAY(put(1000));
    point();
    later(OP_RECV, 3001000 - 1000 + 1000);
    SAY(put(3000000));
    say("peer: %ld", peer_done());
}

CASE(one_write_more_than_the_ring, OUT, ALL_PHASES) {
    long len = 2500000;
    char *bytes = malloc(len);
    later(OP_RECV, len);
    SAY(write(S, fill(bytes, len), len));
    say("peer: %ld", peer_done());
}

CASE(both_ways_at_once, SOCK, ALL_PHASES) {
    char bytes[3000];
    later3(OP_ECHO, 200, 3000, 0);
    for (int i = 0; i < 200; i++) {
        memset(bytes, i, sizeof bytes);
        NEED(write(S, bytes, sizeof bytes) == sizeof bytes);
        memset(bytes, 0, sizeof bytes);
        for (size_t at = 0; at < sizeof bytes;) {
            ssize_t n = read(S, bytes + at, sizeof bytes - at);
            NEED(n > 0);
            at += n;
        }
        for (size_t at = 0; at < sizeof bytes; at++) NEED(bytes[at] == (char)i);
        if (i == 100) point();
    }
    say("echoes: %ld", peer_done());
}

CASE(nonblocking_read, IN, ALL_PHASES) {
    char bytes[100];
    int on = 1, off = 0;
    SAY(ioctl(S, FIONBIO, &on));
    SAY(fcntl(S, F_GETFL) & O_NONBLOCK);
    SAY(read(S, bytes, 100));
    SAY(read(S, bytes, 0));
    SAY_PEER(OP_SEND, 10);
    point();
    check(bytes, SAY(read(S, bytes, 100)));
    SAY(read(S, bytes, 100));
    SAY(ioctl(S, FIONBIO, &off));
    later(OP_SEND, 5);
    check(bytes, SAY(read(S, bytes, 100)));
    peer_done();
    SAY(fcntl(S, F_SETFL, O_RDWR | O_NONBLOCK));
    SAY(read(S, bytes, 100));
    SAY(fcntl(S, F_SETFL, O_RDWR));
    later(OP_SEND, 5);
    check(bytes, SAY(read(S, bytes, 100)));
    peer_done();
}

/* Room in both bands, as far as the kind has them. */
CASE(bands_of_room, OUT, ALL_PHASES) {
    struct pollfd one = {S, POLLOUT | POLLWRNORM | POLLWRBAND, 0};
    char byte = 0;
    for (int i = 0; i < 3; i++) {
        SAY(write(S, fill(&byte, 1), 1));
        SAY_PEER(OP_RECV, 1);
    }
    point();
    for (int i = 0; i < 3; i++) {
        SAY(poll(&one, 1, 1000)), SAY(one.revents);
        SAY(write(S, fill(&byte, 1), 1));
        SAY_PEER(OP_RECV, 1);
    }
}

CASE(nonblocking_write, OUT, ALL_PHASES) {
    static char bytes[100000];
    int on = 1;
    long sum = 0, n;
    SAY(ioctl(S, FIONBIO, &on));
    while ((n = write(S, fill(bytes, sizeof bytes), sizeof bytes)) > 0) { unfill(sizeof bytes - n); sum += n; }
    unfill(sizeof bytes);
    say("full: %s", strerrorname_np(errno));
    HOLDS(sum > 4096);
    point();
    struct pollfd one = {S, POLLOUT, 0};
    /* After a recall the kernel's buffers still have room: millions of bytes, which single bytes
     * would take seconds to fill. */
    while ((n = write(S, fill(bytes, sizeof bytes), sizeof bytes)) > 0) { unfill(sizeof bytes - n); sum += n; }
    unfill(sizeof bytes);
    /* A byte may still fit although a whole buffer did not. */
    while ((n = write(S, fill(bytes, 1), 1)) > 0) sum += n;
    unfill(1);
    SAY(write(S, bytes, 1));
    HOLDS(peer(OP_RECV, sum) == sum);
    SAY(poll(&one, 1, 2000));
    SAY(one.revents);
    SAY(write(S, fill(bytes, 1), 1));
    SAY_PEER(OP_RECV, 1);
}

CASE(blocking_write_on_full, OUT, ALL_PHASES) {
    static char bytes[100000];
    int on = 1, off = 0;
    long sum = 0, n;
    ioctl(S, FIONBIO, &on);
    while ((n = write(S, fill(bytes, sizeof bytes), sizeof bytes)) > 0) { unfill(sizeof bytes - n); sum += n; }
    unfill(sizeof bytes);
    ioctl(S, FIONBIO, &off);
    later(OP_RECV, sum + 100000);
    SAY(write(S, fill(bytes, 100000), 100000));
    HOLDS(peer_done() == sum + 100000);
}

CASE(vectors_in, IN, ALL_PHASES) {
    char a[10], b[10], c[100];
    struct iovec parts[5] = {{a, 3}, {NULL, 0}, {b, 5}, {c, 0}, {c, 100}};
    SAY_PEER(OP_SEND, 20);
    point();
    SAY(readv(S, parts, 5));
    check(a, 3), check(b, 5), check(c, 12);
    SAY_PEER(OP_SEND, 4);
    SAY(readv(S, parts, 5));
    check(a, 3), check(b, 1);
    SAY(readv(S, parts, 0));
    SAY(readv(S, parts, -1));
    SAY(readv(S, parts, 1025));
    SAY(readv(S, NULL, 1));
    struct iovec empty[2] = {{a, 0}, {b, 0}};
    SAY(readv(S, empty, 2));
    struct iovec huge[2] = {{a, 10}, {b, (size_t)SSIZE_MAX + 1}};
    SAY(readv(S, huge, 2));
    SAY_PEER(OP_SEND, 5);
    SAY(preadv2(S, parts, 5, -1, 0));
    check(a, 3), check(b, 2);
    SAY(pread(S, a, 1, 0));
    SAY(preadv2(S, parts, 5, -1, RWF_NOWAIT));
}

CASE(vectors_out, OUT, ALL_PHASES) {
    char a[10], b[10], c[6000];
    struct iovec parts[5] = {{a, 3}, {NULL, 0}, {b, 5}, {c, 0}, {c, 6000}};
    fill(a, 3), fill(b, 5), fill(c, 6000);
    point();
    SAY(writev(S, parts, 5));
    SAY_PEER(OP_RECV, 6008);
    SAY(writev(S, parts, 0));
    SAY(writev(S, parts, -1));
    SAY(writev(S, parts, 1025));
    struct iovec empty[2] = {{a, 0}, {b, 0}};
    SAY(writev(S, empty, 2));
    struct iovec huge[2] = {{a, 10}, {b, (size_t)SSIZE_MAX + 1}};
    SAY(writev(S, huge, 2));
    SAY(pwrite(S, a, 1, 0));
    fill(a, 3), fill(b, 5);
    SAY(pwritev2(S, parts, 3, -1, 0));
    SAY_PEER(OP_RECV, 8);
}

CASE(vectors_more_than_the_ring, OUT, ALL_PHASES) {
    long len = 700000;
    char *bytes = malloc(3 * len);
    struct iovec parts[3] = {{bytes, len}, {bytes + len, len}, {bytes + 2 * len, len}};
    fill(bytes, 3 * len);
    later(OP_RECV, 3 * len);
    SAY(writev(S, parts, 3));
    say("peer: %ld", peer_done());
}

CASE(a_thousand_vectors, OUT, ALL_PHASES) {
    static char bytes[1024][3];
    struct iovec parts[1024];
    for (int i = 0; i < 1024; i++) parts[i] = (struct iovec){fill(bytes[i], 3), 3};
    SAY(writev(S, parts, 1024));
    SAY_PEER(OP_RECV, 3072);
}

CASE(messages, SOCK, ALL_PHASES) {
    char a[10], b[100], name[128];
    struct iovec parts[2] = {{a, 3}, {b, 100}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2, .msg_name = name, .msg_namelen = sizeof name, .msg_flags = 77};
    char room[100];
    message.msg_control = room, message.msg_controllen = sizeof room;
    SAY_PEER(OP_SEND, 9);
    point();
    SAY(recvmsg(S, &message, 0));
    check(a, 3), check(b, 6);
    SAY(message.msg_flags);
    SAY(message.msg_controllen);
    SAY(message.msg_namelen);
    SAY_PEER(OP_SEND, 9);
    message.msg_flags = 0, message.msg_controllen = sizeof room;
    SAY(recvmsg(S, &message, MSG_CMSG_CLOEXEC));
    SAY(message.msg_flags);
    check(a, 3), check(b, 6);
    struct msghdr plain = {.msg_iov = parts, .msg_iovlen = 2};
    fill(a, 3), fill(b, 100);
    SAY(sendmsg(S, &plain, 0));
    SAY_PEER(OP_RECV, 103);
    plain.msg_iovlen = 0;
    SAY(sendmsg(S, &plain, 0));
    SAY(recvmsg(S, &plain, MSG_DONTWAIT));
    struct sockaddr_storage from;
    socklen_t len = sizeof from;
    SAY_PEER(OP_SEND, 9);
    SAY(recvfrom(S, b, 100, 0, (void *)&from, &len));
    check(b, 9);
    SAY(len);
    struct mmsghdr many[2] = {{.msg_hdr = {.msg_iov = parts, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = parts + 1, .msg_iovlen = 1}}};
    SAY_PEER(OP_SEND, 9);
    SAY(recvmmsg(S, many, 2, MSG_DONTWAIT, NULL));
    SAY(many[0].msg_len);
    SAY(many[1].msg_len);
    check(a, 3), check(b, 6);
    parts[1].iov_len = 5;
    fill(a, 3), fill(b, 5);
    SAY(sendmmsg(S, many, 2, 0));
    SAY_PEER(OP_RECV, 8);
}

CASE(peek, SOCK, ALL_PHASES) {
    char bytes[100];
    SAY(recv(S, bytes, 5, MSG_PEEK | MSG_DONTWAIT));
    SAY_PEER(OP_SEND, 10);
    look(bytes, SAY(recv(S, bytes, 5, MSG_PEEK)));
    point();
    look(bytes, SAY(recv(S, bytes, 50, MSG_PEEK)));
    check(bytes, SAY(recv(S, bytes, 4, 0)));
    look(bytes, SAY(recv(S, bytes, 100, MSG_PEEK)));
    SAY_PEER(OP_SEND, 10);
    /* One peek may return the bytes of two sends or only those of the first; all bytes must be
     * there. */
    look(bytes, SAY_SOME(recv(S, bytes, 100, MSG_PEEK)));
    SAY(get(16));
    later(OP_SEND, 3);
    look(bytes, SAY(recv(S, bytes, 100, MSG_PEEK)));
    peer_done();
    SAY(get(3));
    struct iovec parts[2] = {{bytes, 2}, {bytes + 2, 50}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    SAY_PEER(OP_SEND, 10);
    look(bytes, SAY(recvmsg(S, &message, MSG_PEEK)));
    SAY(get(10));
}

CASE(peek_across_a_move, SOCK, "k") {
    char bytes[100];
    SAY_PEER(OP_SEND, 10);
    look(bytes, SAY(recv(S, bytes, 5, MSG_PEEK)));
    for (int i = 0; i < 20; i++) {
        NEED(peer(OP_SEND, 3) == 3);
        NEED(recv(S, bytes, 4, MSG_PEEK) == 4);
        look(bytes, 4);
        nap(1);
    }
    SAY(get(70));
}

CASE(wait_all, SOCK, ALL_PHASES) {
    char bytes[5000];
    SAY_PEER(OP_SEND, 10);
    check(bytes, SAY(recv(S, bytes, 10, MSG_WAITALL)));
    peer(OP_SEND, 10);
    later(OP_SEND, 4000);
    check(bytes, SAY(recv(S, bytes, 4010, MSG_WAITALL)));
    peer_done();
    peer(OP_SEND, 10);
    point();
    later(OP_SEND, 20);
    check(bytes, SAY(recv(S, bytes, 30, MSG_WAITALL)));
    peer_done();
    peer(OP_SEND, 10);
    look(bytes, SAY(recv(S, bytes, 10, MSG_WAITALL | MSG_PEEK)));
    SAY(get(10));
    peer(OP_SEND, 10);
    later3(OP_SHUTDOWN, SHUT_WR, 0, 0);
    check(bytes, SAY(recv(S, bytes, 100, MSG_WAITALL)));
    peer_done();
    SAY(recv(S, bytes, 100, MSG_WAITALL));
}

CASE(wait_all_more_than_the_ring, SOCK, ALL_PHASES) {
    long len = 2000000;
    char *bytes = malloc(len);
    later(OP_SEND, len);
    check(bytes, SAY(recv(S, bytes, len, MSG_WAITALL)));
    say("peer: %ld", peer_done());
}

CASE(wait_all_with_vectors, SOCK, ALL_PHASES) {
    char a[10], b[10], c[10];
    struct iovec parts[3] = {{a, 10}, {b, 10}, {c, 10}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    peer(OP_SEND, 7);
    later(OP_SEND, 23);
    SAY(recvmsg(S, &message, MSG_WAITALL));
    check(a, 10), check(b, 10), check(c, 10);
    peer_done();
}

CASE(dont_wait, SOCK, ALL_PHASES) {
    static char bytes[100000];
    long sum = 0, n;
    SAY(recv(S, bytes, 5, MSG_DONTWAIT));
    SAY(recv(S, bytes, 0, MSG_DONTWAIT));
    SAY_PEER(OP_SEND, 10);
    SAY(recv(S, bytes, 20, MSG_DONTWAIT | MSG_WAITALL));
    check(bytes, 10);
    point();
    while ((n = send(S, fill(bytes, sizeof bytes), sizeof bytes, MSG_DONTWAIT)) > 0) { unfill(sizeof bytes - n); sum += n; }
    unfill(sizeof bytes);
    say("full: %s", strerrorname_np(errno));
    SAY(fcntl(S, F_GETFL) & O_NONBLOCK);
    HOLDS(peer(OP_RECV, sum) == sum);
}

/* MSG_TRUNC discards TCP's bytes and has no effect on a Unix stream (tcp(7), recv(2)). */
CASE(truncate, TCP, ALL_PHASES) {
    char bytes[100];
    SAY_PEER(OP_SEND, 30);
    SAY(recv(S, NULL, 10, MSG_TRUNC));
    point();
    check(bytes, 0);
    SAY(recv(S, NULL, 100, MSG_TRUNC));
    SAY(recv(S, bytes, 10, MSG_DONTWAIT));
}

CASE(truncate_local, LOCAL, ALL_PHASES) {
    char bytes[100];
    SAY_PEER(OP_SEND, 30);
    check(bytes, SAY(recv(S, bytes, 10, MSG_TRUNC)));
    point();
    check(bytes, SAY(recv(S, bytes, 100, MSG_TRUNC)));
}

CASE(out_of_band, SOCK, ALL_PHASES) {
    char byte = 0;
    SAY_PEER(OP_SEND, 5);
    point();
    SAY_PEER(OP_OOB, 0);
    SAY_PEER(OP_SEND, 5);
    struct pollfd one = {S, POLLPRI, 0};
    SAY(poll(&one, 1, 2000));
    SAY(one.revents);
    SAY(recv(S, &byte, 1, MSG_OOB));
    SAY(byte);
    SAY(get(5));
    SAY(sockatmark(S));
    SAY(get(5));
    SAY(send(S, "?", 1, MSG_OOB));
    SAY(put(5));
    SAY_PEER(OP_RECV, 5);
}

CASE(bad_buffers_in, IN, ALL_PHASES) {
    char *none = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *fixed = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(edge + 4096, 4096);
    SAY_PEER(OP_SEND, 100);
    SAY(read(S, NULL, 10));
    SAY(read(S, none, 10));
    SAY(read(S, fixed, 10));
    SAY(read(S, (char *)1, 10));
    SAY(read(S, (char *)-4096L, 10));
    SAY(read(S, (char *)0x7fffffffffff0000, 10));
    point();
    struct iovec bad[2] = {{NULL, 5}, {edge, 5}};
    SAY(readv(S, bad, 2));
    SAY(readv(S, (void *)none, 2));
    if (kind != PIN) {
        struct msghdr message = {.msg_iov = bad, .msg_iovlen = 2};
        SAY(recv(S, none, 10, 0));
        SAY(recv(S, none, 10, MSG_PEEK));
        SAY(recvmsg(S, &message, 0));
        SAY(recvmsg(S, NULL, 0));
        SAY(recvmsg(S, (void *)none, 0));
    }
    SAY(get(100));
}

CASE(bad_buffers_in_nothing_there, IN, ALL_PHASES) {
    int on = 1;
    SAY(ioctl(S, FIONBIO, &on));
    SAY(read(S, NULL, 10));
    SAY(read(S, NULL, 0));
    SAY(ioctl(S, FIONREAD, NULL));
    SAY(ioctl(S, FIONBIO, NULL));
}

CASE(bad_buffers_out, OUT, ALL_PHASES) {
    char *none = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SAY(write(S, NULL, 10));
    SAY(write(S, none, 10));
    SAY(write(S, (char *)1, 10));
    SAY(write(S, (char *)-4096L, 10));
    point();
    char a[5];
    struct iovec bad[2] = {{NULL, 5}, {a, 5}};
    SAY(writev(S, bad, 2));
    SAY(writev(S, (void *)none, 2));
    if (kind != POUT) {
        struct msghdr message = {.msg_iov = bad, .msg_iovlen = 2};
        SAY(send(S, none, 10, 0));
        SAY(sendmsg(S, &message, 0));
        SAY(sendmsg(S, (void *)none, 0));
    }
    SAY(put(10));
    SAY_PEER(OP_RECV, 10);
}

/* A buffer that becomes invalid: the library must not rely on older knowledge of its pages. */
CASE(buffer_goes_bad, IN, ALL_PHASES) {
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 5; i++) {
        peer(OP_SEND, 10);
        NEED(read(S, page, 10) == 10);
        check(page, 10);
    }
    point();
    peer(OP_SEND, 10);
    SAY(mprotect(page, 4096, PROT_READ));
    SAY(read(S, page, 10));
    SAY(mprotect(page, 4096, PROT_NONE));
    SAY(read(S, page, 10));
    SAY(munmap(page, 4096));
    SAY(read(S, page, 10));
    SAY(get(10));
}

CASE(buffer_goes_bad_out, OUT, ALL_PHASES) {
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 5; i++) {
        NEED(write(S, fill(page, 10), 10) == 10);
        NEED(peer(OP_RECV, 10) == 10);
    }
    point();
    SAY(mprotect(page, 4096, PROT_NONE));
    SAY(write(S, page, 10));
    SAY(munmap(page, 4096));
    SAY(write(S, page, 10));
    SAY(put(10));
    SAY_PEER(OP_RECV, 10);
}

CASE(buffers_in_files, ANY, ALL_PHASES) {
    int file = memfd_create("f", MFD_CLOEXEC);
    NEED(ftruncate(file, 4096) == 0);
    char *mapped = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (kind != PIN) {
        SAY(write(S, mapped + 4096, 10));
        SAY(write(S, fill(mapped, 10), 10));
        SAY_PEER(OP_RECV, 10);
    }
    point();
    if (kind != POUT) {
        SAY_PEER(OP_SEND, 10);
        SAY(read(S, mapped + 4096, 10));
        check(mapped, SAY(read(S, mapped, 10)));
    }
}

/* Memory that was good goes bad without munmap or mprotect. */
enum { COVERED, TRUNCATED, OPENED_ANEW, BY_STREAM, DETACHED, BY_KEY, GUARDED, WAYS };
static char path_of_file[60];

static char *memory_to_lose(int way, int *file) {
    if (way == DETACHED) {
        int id = shmget(IPC_PRIVATE, 4096, 0600 | IPC_CREAT);
        char *at = shmat(id, NULL, 0);
        shmctl(id, IPC_RMID, NULL);
        return at;
    }
    if (way == GUARDED) return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *file = memfd_create("f", MFD_CLOEXEC);
    snprintf(path_of_file, sizeof path_of_file, "/proc/self/fd/%d", *file);
    NEED(ftruncate(*file, 4096) == 0);
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
}

static void lose(int way, char *at, int file) {
    FILE *stream;
    switch (way) {
    case COVERED: NEED(mmap(at, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at); break;
    case TRUNCATED: NEED(ftruncate(file, 0) == 0); break;
    case OPENED_ANEW: NEED(close(open(path_of_file, O_RDWR | O_TRUNC)) == 0); break;
    case BY_STREAM:
        NEED((stream = fopen(path_of_file, "w")) != NULL);
        fclose(stream);
        break;
    case DETACHED: NEED(shmdt(at) == 0); break;
    /* MADV_GUARD_INSTALL, since Linux 6.13; older kernels have it refused. */
    case GUARDED: if (madvise(at, 4096, 102)) munmap(at, 4096); break;
    case BY_KEY: NEED(pkey_mprotect(at, 4096, PROT_NONE, -1) == 0); break;
    }
}

CASE(memory_lost_in, IN, ALL_PHASES) {
    for (int way = 0, file = -1; way < WAYS; way++) {
        char *at = memory_to_lose(way, &file);
        warm_again(NULL);
        NEED(peer(OP_SEND, 20) == 20);
        NEED(read(S, at, 10) == 10);
        check(at, 10);
        lose(way, at, file);
        if (way == WAYS / 2) point();
        SAY(read(S, at, 10));
        SAY(get(10));
    }
}

CASE(memory_lost_out, OUT, ALL_PHASES) {
    for (int way = 0, file = -1; way < WAYS; way++) {
        char *at = memory_to_lose(way, &file);
        warm_again(NULL);
        NEED(write(S, fill(at, 10), 10) == 10);
        lose(way, at, file);
        if (way == WAYS / 2) point();
        SAY(write(S, at, 10));
        SAY(put(10));
        SAY_PEER(OP_RECV, 20);
    }
}

/* Without the phase in which the library begins here: it would put memory behind this. */
CASE(memory_behind_the_heap, IN, "mrp") {
    NEED(sbrk(4096 - ((uintptr_t)sbrk(0) & 4095)) != (void *)-1);
    char *at = sbrk(8192);
    NEED(peer(OP_SEND, 20) == 20);
    NEED(read(S, at + 4096, 10) == 10);
    check(at + 4096, 10);
    NEED(sbrk(-8192) == at + 8192);
    point();
    SAY(read(S, at + 4096, 10));
    SAY(get(10));
}

CASE(credentials_with_data, LOCAL, ALL_PHASES) {
    int on = 1;
    char bytes[10], room[200];
    struct iovec part = {bytes, 10};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    SAY(setsockopt(S, SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    SAY_PEER(OP_SEND, 5);
    check(bytes, SAY(recvmsg(S, &message, 0)));
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    SAY(head ? head->cmsg_type : -2);
    if (head) HOLDS(((struct ucred *)CMSG_DATA(head))->pid == peer_pid);
}

CASE(timestamps, LOCAL, ALL_PHASES) {
    int on = 1;
    char bytes[10], room[200];
    struct iovec part = {bytes, 10};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    SAY(setsockopt(S, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on));
    point();
    SAY_PEER(OP_SEND, 5);
    check(bytes, SAY(recvmsg(S, &message, 0)));
    SAY(message.msg_controllen > 0);
}

CASE(not_a_socket, PIN | POUT, ALL_PHASES) {
    char bytes[10];
    int value;
    socklen_t len = sizeof value;
    SAY(recv(S, bytes, 1, 0));
    SAY(send(S, bytes, 1, 0));
    SAY(recvmsg(S, &(struct msghdr){0}, 0));
    SAY(shutdown(S, SHUT_WR));
    SAY(getsockopt(S, SOL_SOCKET, SO_TYPE, &value, &len));
    SAY(lseek(S, 0, SEEK_SET));
    if (kind == PIN) SAY(write(S, bytes, 1));
    else SAY(read(S, bytes, 1));
    if (kind == PIN) SAY(write(S, bytes, 0));
    else SAY(read(S, bytes, 0));
    SAY(fsync(S));
    SAY(ftruncate(S, 0));
    struct stat status;
    SAY(fstat(S, &status));
    SAY(S_ISFIFO(status.st_mode));
}

CASE(bad_flags, SOCK, ALL_PHASES) {
    char bytes[10];
    SAY_PEER(OP_SEND, 5);
    if (kind & TCP) SAY(recv(S, bytes, 1, MSG_ERRQUEUE | MSG_DONTWAIT));
    check(bytes, SAY(recv(S, bytes, 5, 0x1000000)));
    SAY(recv(-1, bytes, 1, 0));
    SAY(send(9999, bytes, 1, 0));
    SAY(read(-1, bytes, 1));
    struct sockaddr_in to = {.sin_family = AF_INET};
    SAY(sendto(S, fill(bytes, 1), 1, 0, (void *)&to, sizeof to));
}

static int vprinted(const char *format, ...) {
    va_list words;
    va_start(words, format);
    int n = vdprintf(S, format, words);
    va_end(words);
    return n;
}

/* dprintf(3): inside the C library, in one piece or in several. */
CASE(printed, OUT, ALL_PHASES) {
    char b[5];
    fill(b, sizeof b);
    SAY(dprintf(S, "%c%c%c", b[0], b[1], b[2]));
    SAY_PEER(OP_RECV, 3);
    point();
    SAY(vprinted("%c%.1s%c", b[3], "", b[4]));
    SAY(dprintf(S, "%s", ""));
    SAY(dprintf(-1, "x"));
    SAY_PEER(OP_RECV, 2);
}

/* A function that writes to a number inside the C library, as crash handlers use it. */
CASE(stack_printed, OUT, ALL_PHASES) {
    void *addresses[] = {(void *)printf};
    backtrace_symbols_fd(addresses, 1, S);
    /* The text is no part of the sequence, and changes nothing in it. */
    HOLDS(peer(OP_RECV_ONE, 4096) > 10);
    point();
    works("between");
    backtrace_symbols_fd(addresses, 1, S);
    HOLDS(peer(OP_RECV_ONE, 4096) > 10);
}

CASE(printed_much, OUT, ALL_PHASES) {
    SAY(dprintf(S, "%*s", 9000, ""));
    SAY_PEER(OP_LINES, 9000);
    point();
    SAY(vprinted("%*s", 60000, ""));
    SAY_PEER(OP_LINES, 60000);
    works("afterwards");
}

CASE(printed_to_nobody, OUT, ALL_PHASES) {
    signal(SIGPIPE, SIG_IGN);
    SAY_PEER(OP_CLOSE, 0);
    point();
    SAY(dprintf(S, "x") < 0 || dprintf(S, "x") < 0);
}
