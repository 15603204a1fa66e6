/* epoll by level, one-shot and exclusive; errors of epoll_ctl; what ends show. */
#include "readiness.h"

CASE(level, IN, ALL_PHASES) {
    int set = new_set();
    SAY(add_away(set, EPOLLIN, 1));
    wait_for(set, 0);
    NEED(peer(OP_SEND, 10) == 10);
    wait_for(set, 1000);
    wait_for(set, 1000);
    point();
    wait_for(set, 1000);
    SAY(get(5));
    wait_for(set, 1000);
    SAY(get(5));
    wait_for(set, 0);
    later(OP_SEND, 10);
    wait_for(set, -1);
    peer_done();
    SAY(get(10));
    wait_for(set, 5);
    later(OP_CLOSE, 0);
    wait_for(set, -1);
    peer_done();
    if (kind & TCP) nap(2);
    wait_for(set, 1000);
}

CASE(level_both, SOCK, ALL_PHASES) {
    int set = new_set();
    SAY(add_away(set, EPOLLIN | EPOLLOUT | EPOLLRDHUP, 1));
    wait_for(set, 1000);
    NEED(peer(OP_SEND, 10) == 10);
    wait_for(set, 1000);
    long sum = fill_up();
    wait_for(set, 1000);
    SAY(get(10));
    wait_for(set, 5);
    point();
    later(OP_RECV, sum);
    wait_for(set, -1);
    HOLDS(peer_done() == sum);
    NEED(peer(OP_SHUTDOWN, SHUT_WR) == 0);
    nap(2);
    wait_for(set, 1000);
    SAY(mod(set, S, 0, 2));
    wait_for(set, 5);
    NEED(peer(OP_CLOSE, 0) == 0);
    wait_for(set, (kind & TCP) ? 5 : 1000);
}

CASE(one_shot, IN, ALL_PHASES) {
    int set = new_set();
    SAY(add_once_away(set, 1));
    NEED(peer(OP_SEND, 10) == 10);
    wait_for(set, 1000);
    wait_for(set, 5);
    NEED(peer(OP_SEND, 10) == 10);
    wait_for(set, 5);
    point();
    SAY(mod(set, S, EPOLLIN | EPOLLONESHOT, 2));
    wait_for(set, 1000);
    wait_for(set, 5);
    SAY(get(20));
    SAY(mod(set, S, EPOLLIN | EPOLLONESHOT, 3));
    wait_for(set, 5);
    later(OP_SEND, 10);
    wait_for(set, -1);
    peer_done();
    wait_for(set, 5);
    SAY(mod(set, S, EPOLLIN | EPOLLONESHOT | EPOLLET, 4));
    wait_for(set, 1000);
    wait_for(set, 5);
    NEED(peer(OP_CLOSE, 0) == 0);
    wait_for(set, 5);
}

CASE(exclusive, IN, ALL_PHASES) {
    int set = new_set();
    SAY(add_away(set, EPOLLIN | EPOLLEXCLUSIVE, 1));
    SAY(mod(set, S, EPOLLIN, 2));
    SAY(add(set, S, EPOLLIN, 3));
    point();
    NEED(peer(OP_SEND, 10) == 10);
    wait_for(set, 1000);
    SAY(get(10));
    later(OP_SEND, 10);
    wait_for(set, -1);
    peer_done();
    SAY(del(set, S));
    SAY(add(set, S, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 4));
    SAY(add(set, S, EPOLLIN | EPOLLEXCLUSIVE | EPOLLET, 5));
    wait_for(set, 1000);
    no_edge(set);
}

CASE(control_errors, IN, ALL_PHASES) {
    int set = new_set(), file = memfd_create("f", 0);
    SAY(mod(set, S, EPOLLIN, 1));
    SAY(del(set, S));
    SAY(add(set, S, EPOLLIN, 1));
    SAY(add(set, S, EPOLLIN, 1));
    SAY(del(set, S));
    SAY(del(set, S));
    point();
    SAY(add(set, 999, EPOLLIN, 1));
    SAY(add(999, S, EPOLLIN, 1));
    SAY(add(S, set, EPOLLIN, 1));
    SAY(add(set, set, EPOLLIN, 1));
    SAY(add(set, file, EPOLLIN, 1));
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, S, NULL));
    SAY(epoll_ctl(set, 77, S, &(struct epoll_event){0}));
    struct epoll_event event;
    SAY(epoll_wait(set, &event, 0, 0));
    SAY(epoll_wait(set, &event, -1, 0));
    SAY(epoll_wait(999, &event, 1, 0));
    SAY(epoll_wait(S, &event, 1, 0));
    SAY(add(set, S, EPOLLIN, 1));
    NEED(peer(OP_SEND, 5) == 5);
    wait_for(set, 1000);
    SAY(epoll_wait(set, (void *)8, 1, 1000));
    SAY(get(5));
    SAY(epoll_create(0));
    SAY(epoll_create1(12345));
}

CASE(in_two_sets, IN, ALL_PHASES) {
    int one = new_set(), two = new_set();
    SAY(add_away(one, EPOLLIN, 1));
    NEED(peer(OP_SEND, 5) == 5);
    SAY(get(5));
    SAY(add(two, S, EPOLLIN | EPOLLET, 2));
    for (int i = 0; i < 3; i++) {
        NEED(peer(OP_SEND, 10) == 10);
        wait_for(one, 1000);
        wait_for(two, 1000);
        no_edge(two);
        if (i == 1) point();
        SAY(get(10));
        wait_for(one, 5);
    }
    later(OP_SEND, 10);
    wait_for(two, -1);
    peer_done();
    SAY(close(one));
    SAY(get(10));
    NEED(peer(OP_SEND, 10) == 10);
    wait_for(two, 1000);
}

CASE(closed_while_in_the_set, IN, ALL_PHASES) {
    int set = new_set();
    SAY(add_away(set, EPOLLIN, 1));
    NEED(peer(OP_SEND, 10) == 10);
    wait_for(set, 1000);
    SAY(close(S));
    wait_for(set, 5);
    int pair[2];
    NEED(pipe2(pair, O_CLOEXEC) == 0);
    SAY(add(set, pair[0], EPOLLIN, 2));
    SAY(write(pair[1], "x", 1));
    wait_for(set, 1000);
}

CASE(maximum_of_events, TCP | UNIX, ALL_PHASES) {
    int set = new_set();
    SAY(add_away(set, EPOLLIN, 0));
    int first = S;
    for (int i = 1; i < 5; i++) {
        int other = second_session();
        SAY(add(set, other, EPOLLIN, i));
        NEED(write(other, "w", 1) == 1);
        NEED(peer(OP_WARM, 1) >= 0);
    }
    for (int i = 0; i < 5; i++) { peer_use(i); NEED(peer(OP_WARM, 0) == 1); }
    nap(2);
    int seen[5] = {0};
    struct epoll_event events[2];
    /* With room for two events in each wait, all sessions must have their turn. */
    for (int i = 0; i < 20000 && !(i > 20 && seen[0] && seen[1] && seen[2] && seen[3] && seen[4]); i++) {
        int n = epoll_wait(set, events, 2, 1000);
        /* While sessions move, a wait may return fewer events than sessions are ready
         * (docs/use/linux-differences.md), but at least one. */
        if (n < 1 || n > 2 || (n == 2 && events[0].data.u64 == events[1].data.u64)) say("%d", n);
        for (int k = 0; k < n; k++) seen[events[k].data.u64]++;
        if (i == 10) point();
    }
    for (int i = 0; i < 5; i++) HOLDS(seen[i] > 0);
    SAY(read(first, &(char){0}, 1));
    int again = 0;
    for (int i = 0; i < 20; i++) {
        int n = epoll_wait(set, events, 2, 1000);
        for (int k = 0; k < n; k++) again += events[k].data.u64 == 0;
    }
    SAY(again);
}

CASE(mixed, IN, ALL_PHASES) {
    int set = new_set();
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), pair[2];
    NEED(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) == 0);
    SAY(add_away(set, EPOLLIN, 1));
    SAY(add(set, timer, EPOLLIN, 2));
    SAY(add(set, event, EPOLLIN | EPOLLET, 3));
    SAY(add(set, pair[0], EPOLLIN, 4));
    wait_for(set, 0);
    struct itimerspec span = {{0, 0}, {0, 10000000}};
    SAY(timerfd_settime(timer, 0, &span, NULL));
    wait_for(set, -1);
    uint64_t count;
    SAY(read(timer, &count, 8));
    NEED(write(event, &(uint64_t){1}, 8) == 8);
    NEED(peer(OP_SEND, 10) == 10);
    nap(1);
    wait_for(set, 1000);
    point();
    wait_for(set, 1000);
    NEED(write(pair[1], "x", 1) == 1);
    /* Neither of the two may starve the other. */
    int seen[5] = {0};
    for (int i = 0; i < 300; i++) {
        struct epoll_event one;
        if (epoll_wait(set, &one, 1, 1000) == 1) seen[one.data.u64]++;
    }
    HOLDS(seen[1] > 0);
    HOLDS(seen[4] > 0);
    SAY(get(10));
    SAY(read(pair[0], &count, 1));
    later(OP_SEND, 10);
    wait_for(set, -1);
    peer_done();
    struct pollfd all[4] = {{timer, POLLIN, 0}, {S, POLLIN, 0}, {event, POLLIN, 0}, {pair[1], POLLOUT, 0}};
    SAY(poll(all, 4, 1000));
    for (int i = 0; i < 4; i++) SAY(all[i].revents);
    SAY(get(10));
    all[3].events = POLLIN, all[2].events = 0;
    later(OP_SEND, 10);
    SAY(poll(all, 4, -1));
    peer_done();
    for (int i = 0; i < 4; i++) SAY(all[i].revents);
}

CASE(hang_up_events, SOCK, ALL_PHASES) {
    int set = new_set();
    SAY(add_away(set, EPOLLIN | EPOLLRDHUP | EPOLLET, 1));
    NEED(peer(OP_SEND, 5) == 5);
    wait_for(set, 1000);
    NEED(peer(OP_SHUTDOWN, SHUT_WR) == 0);
    wait_for(set, 1000);
    point();
    no_edge(set);
    SAY(get(5));
    SAY(get(5));
    SAY(put(5));
    SAY_PEER(OP_RECV, 5);
    SAY(shutdown(S, SHUT_WR));
    nap(2);
    wait_for(set, 1000);
}

CASE(error_events, SOCK, ALL_PHASES) {
    int set = new_set();
    SAY(add_away(set, EPOLLIN, 1));
    SAY(put(10));
    point();
    NEED(peer(OP_CLOSE, 0) == 0);
    wait_for(set, 1000);
    SAY(get(1));
    wait_for(set, 1000);
}

CASE(killed_peers_events, ANY, ALL_PHASES) {
    int set = new_set();
    SAY(add_away(set, kind == POUT ? 0 : EPOLLIN | EPOLLRDHUP, 1));
    wait_for(set, 5);
    kill_peer();
    wait_for(set, 3000);
    nap(2);
    wait_for(set, 3000);
}

/* Both ends have written as much as they may, and nobody reads: this end waits for room only. */
CASE(room_behind_unread_bytes, UNIX | PAIR, ALL_PHASES) {
    static char bytes[65536];
    int set = new_set();
    SAY(add_away(set, EPOLLIN, 1));
    long theirs = peer(OP_FILLUP, 0), ours = fill_up();
    wait_for(set, 1000);
    SAY(mod(set, S, EPOLLOUT, 2));
    wait_for(set, 0);
    point();
    HOLDS(peer(OP_RECV, ours) == ours);
    wait_for(set, 5000);
    SAY(mod(set, S, EPOLLIN, 3));
    wait_for(set, 5000);
    for (long n; theirs > 0; theirs -= n) NEED((n = read(S, bytes, sizeof bytes)) > 0);
    HOLDS(theirs == 0);
    works("then");
}
