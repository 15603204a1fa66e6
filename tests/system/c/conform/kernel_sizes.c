/* Sizes of buffers that are set and asked for after a move, and how much may be written then
 * without a reader: as much as to the kernel, or more. */
#include "conform.h"

static long asked(int option) {
    int value = -1;
    socklen_t len = sizeof value;
    getsockopt(S, SOL_SOCKET, option, &value, &len);
    return value;
}

static long filled(size_t piece) {
    static char bytes[1 << 16];
    long sum = 0, n;
    int on = 1;
    ioctl(S, FIONBIO, &on);
    while ((n = write(S, fill(bytes, piece), piece)) > 0) { unfill(piece - n); sum += n; }
    unfill(piece);
    say("%s", strerrorname_np(errno));
    on = 0;
    ioctl(S, FIONBIO, &on);
    return sum;
}

CASE(sizes_set_after_a_move, SOCK, ALL_PHASES) {
    static int sizes[] = {0, 1, 4096, 30000, 212992, 1 << 22, -1};
    for (unsigned i = 0; i < 7; i++) {
        SAY(setsockopt(S, SOL_SOCKET, SO_SNDBUF, &sizes[i], sizeof(int))), SAY(asked(SO_SNDBUF));
        if (i == 3) point();
        SAY(setsockopt(S, SOL_SOCKET, SO_RCVBUF, &sizes[i], sizeof(int))), SAY(asked(SO_RCVBUF));
    }
    works("then");
}

CASE(sizes_small_fill, SOCK, ALL_PHASES) {
    int size = 4096;
    SAY(setsockopt(S, SOL_SOCKET, SO_SNDBUF, &size, sizeof size));
    SAY(peer3(OP_OPTION, SOL_SOCKET, SO_RCVBUF, size));
    point();
    long sum = filled(1000);
    HOLDS(sum >= 4000);
    HOLDS(peer(OP_RECV, sum) == sum);
    works("then");
}

CASE(sizes_large_fill, SOCK, ALL_PHASES) {
    int size = 200000;
    SAY(setsockopt(S, SOL_SOCKET, SO_SNDBUF, &size, sizeof size));
    point();
    long sum = filled(1000);
    HOLDS(sum > 150000);
    HOLDS(peer(OP_RECV, sum) == sum);
    works("then");
}

CASE(sizes_of_pipes_fill, POUT, ALL_PHASES) {
    static int sizes[] = {4096, 65536, 8192, 1 << 20, 4097, 1, 0};
    for (unsigned i = 0; i < 7; i++) {
        SAY(fcntl(S, F_SETPIPE_SZ, sizes[i]));
        SAY(fcntl(S, F_GETPIPE_SZ));
        if (i == 3) point();
        long sum = filled(i & 1 ? 1000 : 4096);
        SAY(sum);
        SAY(fcntl(S, F_SETPIPE_SZ, 4096));
        HOLDS(peer(OP_RECV, sum) == sum);
    }
    works("then");
}

CASE(sizes_of_pipes_default_fill, POUT, ALL_PHASES) {
    point();
    long sum = filled(4096);
    HOLDS(sum >= 65536);
    HOLDS(peer(OP_RECV, sum) == sum);
    sum = filled(1);
    HOLDS(sum >= 65536);
    HOLDS(peer(OP_RECV, sum) == sum);
}
