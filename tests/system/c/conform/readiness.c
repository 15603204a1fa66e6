/* poll, select and epoll: levels, edges, one-shot, exclusive, nested sets, timeouts, and mixtures.
 */
#include "conform.h"

static void say_events(const char *what, unsigned events) {
    say("%s:%s%s%s%s%s%s%s", what, events & EPOLLIN ? " IN" : "", events & EPOLLOUT ? " OUT" : "", events & EPOLLPRI ? " PRI" : "",
        events & EPOLLRDHUP ? " RDHUP" : "", events & EPOLLHUP ? " HUP" : "", events & EPOLLERR ? " ERR" : "", events & POLLNVAL ? " NVAL" : "");
}

/* Waits once and prints the events, ordered by their data. */
static int wait_for(int set, int ms) {
    struct epoll_event events[16];
    errno = 0;
    int n = epoll_wait(set, events, 16, ms);
    if (n <= 0) {
        say("wait: %s", n == 0 ? "nothing" : strerrorname_np(errno));
        return n;
    }
    /* The order of events is not compared, so they are printed by their data. */
    for (uint64_t data = 0; data < 100; data++)
        for (int i = 0; i < n; i++)
            if (events[i].data.u64 == data) {
                char name[32];
                snprintf(name, sizeof name, "wait gives %d", (int)data);
                say_events(name, events[i].events);
            }
    return n;
}

/* Checks that no edge is left. A move and a recall may each add one edge that the kernel would not
 * give (docs/use/linux-differences.md). In phase m the move is over, so one extra edge is allowed
 * for the whole case. */
static void no_edge(int set) {
    static int extra;
    struct epoll_event events[16];
    for (int i = 0; i < 3 && epoll_wait(set, events, 16, 5) > 0; i++)
        if (phase == 'm' && !(kind & TCP) && ++extra > 2) say("%d edges for nothing", extra);
}

static int add(int set, int fd, unsigned events, uint64_t data) {
    struct epoll_event event = {events, {.u64 = data}};
    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
}
/* Adds the session to a set. Adding recalls the session, so in the phases in which it should be
 * moved it is made to move again. */
static int add_away(int set, unsigned events, uint64_t data) {
    int result = add(set, S, events, data);
    NEED(result == 0);
    warm_again(NULL);
    return result;
}
static int mod(int set, int fd, unsigned events, uint64_t data) {
    struct epoll_event event = {events, {.u64 = data}};
    return epoll_ctl(set, EPOLL_CTL_MOD, fd, &event);
}
static int once_set;
static uint64_t once_data;
static void change_once(void) { NEED(mod(once_set, S, EPOLLIN | EPOLLONESHOT, once_data) == 0); }

/* Adds the session for one event, as add_away does otherwise. A session registered for one event
 * moves only if the registration is changed after the session is hot. */
static int add_once_away(int set, uint64_t data) {
    int result = add(set, S, EPOLLIN | EPOLLONESHOT, data);
    NEED(result == 0);
    once_set = set, once_data = data;
    warm_again(change_once);
    return result;
}
static int del(int set, int fd) { return epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL); }

static int new_set(void) {
    int set = epoll_create1(EPOLL_CLOEXEC);
    NEED(set >= 0);
    return set;
}

static void poll_once(int fd, short events, int ms) {
    struct pollfd one = {fd, events, 0};
    int n = poll(&one, 1, ms);
    if (n < 0) say("poll: %s", strerrorname_np(errno));
    else if (n == 0) say("poll: nothing");
    else say_events("poll", (unsigned short)one.revents);
}

/* Writes until the session is full; returns the number of bytes. */
static long fill_up(void) {
    static char bytes[100000];
    int on = 1, off = 0;
    long n, sum = 0;
    ioctl(S, FIONBIO, &on);
    for (int quiet = 0; quiet < 4; quiet++) {
        while ((n = write(S, fill(bytes, sizeof bytes), sizeof bytes)) > 0) { unfill(sizeof bytes - n); sum += n, quiet = 0; }
        unfill(sizeof bytes);
        while ((n = write(S, fill(bytes, 1), 1)) > 0) sum += n, quiet = 0;
        unfill(1);
        nap(1);
    }
    ioctl(S, FIONBIO, &off);
    return sum;
}

CASE(poll_input, IN, ALL_PHASES) {
    poll_once(S, POLLIN, 0);
    poll_once(S, POLLIN, 10);
    SAY_PEER(OP_SEND, 10);
    poll_once(S, POLLIN, 1000);
    poll_once(S, POLLIN | POLLOUT | POLLRDNORM, 1000);
    poll_once(S, 0, 0);
    point();
    poll_once(S, POLLIN, 1000);
    SAY(get(9));
    poll_once(S, POLLIN, 1000);
    SAY(get(1));
    poll_once(S, POLLIN, 0);
    later(OP_SEND, 10);
    poll_once(S, POLLIN, 5000);
    peer_done();
    SAY(get(10));
    later(OP_SEND, 10);
    poll_once(S, POLLIN, -1);
    peer_done();
    SAY(get(10));
    later(OP_CLOSE, 0);
    poll_once(S, POLLIN, -1);
    peer_done();
    poll_once(S, POLLIN, -1);
}

CASE(poll_output, OUT, ALL_PHASES) {
    poll_once(S, POLLOUT, 0);
    long sum = fill_up();
    poll_once(S, POLLOUT, 0);
    poll_once(S, POLLOUT, 10);
    point();
    later(OP_RECV, sum);
    poll_once(S, POLLOUT, 5000);
    HOLDS(peer_done() == sum);
    poll_once(S, POLLOUT, 0);
    sum = fill_up();
    later(OP_RECV, sum);
    poll_once(S, POLLOUT, -1);
    HOLDS(peer_done() == sum);
}

CASE(poll_hang_up, ANY, ALL_PHASES) {
    poll_once(S, 0, 0);
    later(OP_CLOSE, 0);
    poll_once(S, kind == POUT ? POLLOUT & 0 : POLLRDHUP, 5000);
    peer_done();
    point();
    if (kind & TCP) nap(2);
    poll_once(S, POLLIN | POLLOUT | POLLRDHUP, 1000);
    poll_once(S, 0, 0);
}

CASE(poll_half_closed, SOCK, ALL_PHASES) {
    SAY_PEER(OP_SEND, 5);
    later3(OP_SHUTDOWN, SHUT_WR, 0, 0);
    poll_once(S, POLLRDHUP, 5000);
    peer_done();
    point();
    poll_once(S, POLLIN | POLLOUT | POLLRDHUP, 1000);
    SAY(get(5));
    poll_once(S, POLLIN | POLLOUT | POLLRDHUP, 1000);
    SAY(shutdown(S, SHUT_WR));
    nap(2);
    poll_once(S, POLLIN | POLLOUT | POLLRDHUP, 1000);
}

CASE(poll_oddities, IN, ALL_PHASES) {
    struct pollfd three[3] = {{-1, POLLIN, 7}, {S, POLLIN, 7}, {999, POLLIN, 7}};
    SAY(poll(three, 3, 0));
    SAY(three[0].revents), SAY(three[1].revents), SAY(three[2].revents);
    point();
    NEED(peer(OP_SEND, 5) == 5);
    SAY(poll(three, 3, 1000));
    SAY(three[0].revents), SAY(three[1].revents), SAY(three[2].revents);
    long began = now_ms();
    SAY(poll(NULL, 0, 30));
    HOLDS(about(now_ms() - began, 30));
    SAY(poll((void *)8, 1, 0));
    SAY(poll(NULL, 1, 0));
    SAY(poll(three, 100000000, 0));
    SAY(ppoll(three, 2, &(struct timespec){0, -1}, NULL));
    SAY(ppoll(three, 2, &(struct timespec){0, 0}, NULL));
    struct pollfd twice[2] = {{S, POLLIN, 0}, {S, POLLOUT | POLLIN, 0}};
    SAY(poll(twice, 2, 100));
    SAY(twice[0].revents), SAY(twice[1].revents);
    SAY(get(5));
}

CASE(timeouts, IN, ALL_PHASES) {
    struct pollfd one = {S, POLLIN, 0};
    long began = now_ms();
    SAY(poll(&one, 1, 30));
    HOLDS(about(now_ms() - began, 30));
    point();
    fd_set in;
    FD_ZERO(&in);
    FD_SET(S, &in);
    struct timeval span = {0, 30000};
    began = now_ms();
    SAY(select(S + 1, &in, NULL, NULL, &span));
    HOLDS(about(now_ms() - began, 30));
    SAY(FD_ISSET(S, &in));
    /* Linux's select stores the time left in its argument (select(2)). */
    say("left: %ld.%06ld", (long)span.tv_sec, (long)span.tv_usec);
    int set = new_set();
    SAY(add_away(set, EPOLLIN, 1));
    began = now_ms();
    wait_for(set, 30);
    HOLDS(about(now_ms() - began, 30));
    struct epoll_event event;
    began = now_ms();
    SAY(epoll_pwait2(set, &event, 1, &(struct timespec){0, 30000000}, NULL));
    HOLDS(about(now_ms() - began, 30));
    SAY(epoll_pwait2(set, &event, 1, &(struct timespec){0, 0}, NULL));
    later(OP_SEND, 5);
    span = (struct timeval){5, 0};
    FD_SET(S, &in);
    SAY(select(S + 1, &in, NULL, NULL, &span));
    peer_done();
    HOLDS(span.tv_sec == 4);
}

CASE(selects, ANY, ALL_PHASES) {
    fd_set in, out, err;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&err);
    FD_SET(S, &in);
    FD_SET(S, &out);
    FD_SET(S, &err);
    if (kind == PIN) FD_ZERO(&out);
    if (kind == POUT) FD_ZERO(&in);
    SAY(select(S + 1, &in, &out, &err, &(struct timeval){0, 10000}));
    SAY(FD_ISSET(S, &in) != 0), SAY(FD_ISSET(S, &out) != 0), SAY(FD_ISSET(S, &err) != 0);
    if (kind == POUT) return;
    NEED(peer(OP_SEND, 5) == 5);
    point();
    FD_SET(S, &in);
    SAY(select(S + 1, &in, NULL, NULL, &(struct timeval){1, 0}));
    SAY(FD_ISSET(S, &in) != 0);
    SAY(get(5));
    later(OP_SEND, 5);
    FD_SET(S, &in);
    SAY(select(S + 1, &in, NULL, NULL, NULL));
    peer_done();
    SAY(get(5));
    later(OP_CLOSE, 0);
    FD_SET(S, &in);
    SAY(select(S + 1, &in, NULL, NULL, NULL));
    peer_done();
    SAY(select(-1, NULL, NULL, NULL, NULL));
    SAY(select(0, NULL, NULL, NULL, &(struct timeval){0, -1}));
    SAY(select(S + 1, (void *)8, NULL, NULL, &(struct timeval){0, 0}));
}

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

CASE(set_in_a_set, IN, ALL_PHASES) {
    int inner = new_set(), outer = new_set();
    SAY(add_away(inner, EPOLLIN, 1));
    SAY(add(outer, inner, EPOLLIN, 2));
    wait_for(outer, 5);
    NEED(peer(OP_SEND, 10) == 10);
    wait_for(outer, 1000);
    wait_for(inner, 1000);
    point();
    SAY(get(10));
    wait_for(outer, 5);
    later(OP_SEND, 10);
    wait_for(outer, -1);
    peer_done();
    wait_for(inner, 0);
    SAY(get(10));
    wait_for(inner, 0);
    SAY(add(inner, outer, EPOLLIN, 3));
}

CASE(set_polled, IN, ALL_PHASES) {
    int set = new_set();
    SAY(add_away(set, EPOLLIN, 1));
    for (int i = 0; i < 3; i++) {
        poll_once(set, POLLIN, 5);
        NEED(peer(OP_SEND, 10) == 10);
        poll_once(set, POLLIN, 1000);
        wait_for(set, 0);
        if (i == 0) point();
        SAY(get(10));
        later(OP_SEND, 10);
        poll_once(set, POLLIN, -1);
        peer_done();
        fd_set in;
        FD_ZERO(&in);
        FD_SET(set, &in);
        SAY(select(set + 1, &in, NULL, NULL, &(struct timeval){1, 0}));
        SAY(get(10));
    }
}

CASE(set_used_by_a_child, IN, ALL_PHASES) {
    int set = new_set();
    SAY(add_away(set, EPOLLIN, 1));
    NEED(peer(OP_SEND, 10) == 10);
    pid_t child = fork();
    if (child == 0) {
        wait_for(set, 2000);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    say_status("child", status);
    wait_for(set, 1000);
    SAY(get(10));
    NEED(peer(OP_SEND, 10) == 10);
    wait_for(set, 1000);
}

CASE(set_duplicated, IN, ALL_PHASES) {
    int set = new_set();
    SAY(add_away(set, EPOLLIN, 1));
    int other = dup(set);
    NEED(peer(OP_SEND, 10) == 10);
    wait_for(other, 1000);
    SAY(close(set));
    point();
    wait_for(other, 1000);
    SAY(get(10));
    SAY(del(other, S));
    NEED(peer(OP_SEND, 10) == 10);
    wait_for(other, 5);
    SAY(add(other, S, EPOLLIN, 2));
    wait_for(other, 1000);
}

CASE(duplicate_in_the_set, IN, ALL_PHASES) {
    int set = new_set(), other = dup(S);
    SAY(add(set, S, EPOLLIN, 1));
    SAY(add(set, other, EPOLLIN, 2));
    NEED(peer(OP_SEND, 10) == 10);
    point();
    wait_for(set, 1000);
    SAY(close(other));
    /* The other number's registration stays as long as the open file description exists (epoll(7)).
     */
    wait_for(set, 1000);
    SAY(get(10));
    wait_for(set, 5);
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

static int shared_set;
static void *waiter(void *unused) {
    struct epoll_event event;
    (void)unused;
    int n = epoll_wait(shared_set, &event, 1, 3000);
    note("thread: %d", n);
    return NULL;
}

CASE(two_threads_in_one_wait, IN, ALL_PHASES) {
    shared_set = new_set();
    NEED(add_away(shared_set, EPOLLIN | EPOLLET, 1) == 0);
    pthread_t one = begin(waiter);
    pthread_t two = begin(waiter);
    point();
    /* Each arrival makes one event, which wakes one thread. */
    NEED(peer(OP_SEND, 10) == 10);
    nap(20);
    NEED(peer(OP_SEND, 10) == 10);
    pthread_join(one, NULL);
    join(two);
    SAY(get(20));
}

static void *poller(void *unused) {
    struct pollfd one = {S, POLLIN, 0};
    (void)unused;
    int n = poll(&one, 1, 3000);
    note("thread: %d %d", n, one.revents);
    return NULL;
}

CASE(two_threads_poll, IN, ALL_PHASES) {
    pthread_t one = begin(poller);
    pthread_t two = begin(poller);
    point();
    NEED(peer(OP_SEND, 10) == 10);
    pthread_join(one, NULL);
    join(two);
    SAY(get(10));
}

static void *register_later(void *unused) {
    (void)unused;
    until_asleep(getpid(), getpid());
    if (add(shared_set, S, EPOLLIN, 1)) note("cannot add");
    return NULL;
}

CASE(registered_while_a_thread_waits, IN, ALL_PHASES) {
    pthread_t thread;
    shared_set = new_set();
    NEED(peer(OP_SEND, 10) == 10);
    point();
    pthread_create(&thread, NULL, register_later, NULL);
    wait_for(shared_set, 5000);
    join(thread);
    SAY(get(10));
}

static void *rearm_later(void *unused) {
    (void)unused;
    until_asleep(getpid(), getpid());
    if (mod(shared_set, S, EPOLLIN | EPOLLONESHOT, 2)) note("cannot change");
    return NULL;
}

CASE(rearmed_while_a_thread_waits, IN, ALL_PHASES) {
    pthread_t thread;
    shared_set = new_set();
    SAY(add_once_away(shared_set, 1));
    NEED(peer(OP_SEND, 10) == 10);
    wait_for(shared_set, 1000);
    point();
    pthread_create(&thread, NULL, rearm_later, NULL);
    wait_for(shared_set, 5000);
    join(thread);
    SAY(get(10));
}

CASE(poll_and_set_together, IN, ALL_PHASES) {
    int set = new_set();
    SAY(add_away(set, EPOLLIN | EPOLLET, 1));
    NEED(peer(OP_SEND, 10) == 10);
    poll_once(S, POLLIN, 1000);
    wait_for(set, 1000);
    point();
    poll_once(S, POLLIN, 1000);
    no_edge(set);
    SAY(get(10));
    poll_once(S, POLLIN, 5);
    NEED(peer(OP_SEND, 10) == 10);
    wait_for(set, 1000);
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

CASE(pri_only, SOCK, ALL_PHASES) {
    int set = new_set();
    SAY(add_away(set, EPOLLPRI, 1));
    NEED(peer(OP_SEND, 5) == 5);
    wait_for(set, 5);
    SAY(get(5));
    wait_for(set, 5);
}
