/* epoll by edge: an edge for each arrival, across moves and returns, and none for nothing. */
#include "readiness.h"

CASE(edge, IN, ALL_PHASES) {
    int set = new_set();
    SAY(add_away(set, EPOLLIN | EPOLLET, 1));
    wait_for(set, 0);
    NEED(peer(OP_SEND, 10) == 10);
    wait_for(set, 1000);
    no_edge(set);
    /* New bytes make a new edge although nothing was read. */
    NEED(peer(OP_SEND, 10) == 10);
    wait_for(set, 1000);
    no_edge(set);
    point();
    NEED(peer(OP_SEND, 10) == 10);
    wait_for(set, 1000);
    SAY(get(30));
    no_edge(set);
    for (int i = 0; i < 5; i++) {
        later(OP_SEND, 10);
        wait_for(set, -1);
        peer_done();
        SAY(get(10));
    }
    no_edge(set);
    later(OP_CLOSE, 0);
    wait_for(set, -1);
    peer_done();
}

CASE(edge_partial_read, IN, ALL_PHASES) {
    int set = new_set();
    SAY(add_away(set, EPOLLIN | EPOLLET, 1));
    NEED(peer(OP_SEND, 10) == 10);
    wait_for(set, 1000);
    SAY(get(3));
    no_edge(set);
    NEED(peer(OP_SEND, 1) == 1);
    wait_for(set, 1000);
    SAY(get(8));
    no_edge(set);
}

CASE(edge_for_data_already_there, IN, ALL_PHASES) {
    NEED(peer(OP_SEND, 10) == 10);
    point();
    int set = new_set();
    SAY(add(set, S, EPOLLIN | EPOLLET, 1));
    wait_for(set, 1000);
    no_edge(set);
    SAY(del(set, S));
    SAY(add(set, S, EPOLLIN | EPOLLET, 2));
    wait_for(set, 1000);
    no_edge(set);
    SAY(mod(set, S, EPOLLIN | EPOLLET, 3));
    wait_for(set, 1000);
    no_edge(set);
    SAY(get(10));
    SAY(mod(set, S, EPOLLIN | EPOLLET, 4));
    no_edge(set);
}

/* Bytes arrive just before the session moves: their edge must be given exactly once. */
CASE(edge_across_a_move, IN, "k") {
    int set = new_set();
    SAY(add(set, S, EPOLLIN | EPOLLET, 1));
    char bytes[10];
    int on = 1;
    ioctl(S, FIONBIO, &on);
    for (int i = 0; i < 60; i++) {
        struct epoll_event event;
        NEED(peer(OP_SEND, 10) == 10);
        if (epoll_wait(set, &event, 1, 3000) != 1) { say("no edge at %d", i); break; }
        ssize_t n = read(S, bytes, 10);
        if (n != 10) say("%zd", n);
        check(bytes, n);
        if (read(S, bytes, 1) != -1) say("more");
        if (i % 7 == 0) nap(1);
    }
    wait_for(set, 5);
}

CASE(edge_across_moves_and_returns, IN, "m") {
    int set = new_set();
    SAY(add_away(set, EPOLLIN | EPOLLET, 1));
    char bytes[10];
    int on = 1, rounds = 0;
    ioctl(S, FIONBIO, &on);
    for (int i = 0; i < 40; i++) {
        struct epoll_event event;
        NEED(peer(OP_SEND, 10) == 10);
        if (i % 4 == 2) { phase = 'p'; point(); phase = 'm'; }
        if (epoll_wait(set, &event, 1, 3000) != 1) { say("no edge at %d", i); break; }
        for (int got = 0; got < 10;) {
            ssize_t n = read(S, bytes, 10 - got);
            if (n < 0) { if (epoll_wait(set, &event, 1, 3000) != 1) { say("no second edge at %d", i); return; } continue; }
            check(bytes, n);
            got += n;
        }
        if (read(S, bytes, 1) != -1) say("more");
        rounds++;
    }
    SAY(rounds);
}

CASE(edge_output, OUT, ALL_PHASES) {
    int set = new_set();
    SAY(add_away(set, EPOLLOUT | EPOLLET, 1));
    wait_for(set, 1000);
    wait_for(set, 5);
    SAY(put(10));
    SAY_PEER(OP_RECV, 10);
    long sum = fill_up();
    point();
    /* The recall moves the ring's bytes to the kernel, which makes room and so an edge. */
    sum += fill_up();
    struct epoll_event event;
    while (epoll_wait(set, &event, 1, 5) == 1) {}
    later(OP_RECV, sum);
    wait_for(set, -1);
    HOLDS(peer_done() == sum);
    SAY(mod(set, S, EPOLLOUT | EPOLLET, 2));
    wait_for(set, 1000);
    while (epoll_wait(set, &event, 1, 5) == 1) {}
}

/* Returns the data with which S is registered in the kernel's set: the program's, or another value
 * while the library answers for S. */
static unsigned long long registered(int set) {
    char path[64], line[256];
    unsigned long long data = 0, found = 0;
    unsigned events;
    int fd;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", set);
    FILE *file = fopen(path, "re");
    NEED(file != NULL);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "tfd: %d events: %x data: %llx", &fd, &events, &data) == 3 && fd == S) found = data;
    fclose(file);
    return found;
}

/* Waits until the session, registered with `data`, moves because of the earlier calls of both ends.
 * Without Sojourn no session moves, so there is nothing to wait for. */
static void until_joined(int set, unsigned long long data) {
    long limit = now_ms() + 5000;
    if (!getenv("CONFORM_HARNESS")) return;
    for (; registered(set) == data; nap(1))
        if (now_ms() > limit) { say("NOT MOVED"); return; }
}

/* The kernel's buffers are full when the session moves, and nothing is written afterwards: any room
 * comes from the kernel's buffers. */
CASE(edge_output_before_the_switch, LOCAL | POUT, "k") {
    int set = new_set();
    SAY(add(set, S, EPOLLOUT | EPOLLET, 1));
    wait_for(set, 1000);
    long sum = fill_up();
    /* The peer's first call is too small to make room, but makes both ends hot. */
    SAY_PEER(OP_RECV, 10);
    until_joined(set, 1);
    struct epoll_event event;
    while (epoll_wait(set, &event, 1, 5) == 1) {}
    later(OP_RECV, sum - 10);
    wait_for(set, -1);
    HOLDS(peer_done() == sum - 10);
}
