/* poll and select: levels, hang-ups, timeouts, mixtures with epoll.
 *
 * Not here: epoll (the other readiness files). */
#include "readiness.h"

static void say_events(const char *what, unsigned events) {
    say("%s:%s%s%s%s%s%s%s", what, events & EPOLLIN ? " IN" : "", events & EPOLLOUT ? " OUT" : "", events & EPOLLPRI ? " PRI" : "",
        events & EPOLLRDHUP ? " RDHUP" : "", events & EPOLLHUP ? " HUP" : "", events & EPOLLERR ? " ERR" : "", events & POLLNVAL ? " NVAL" : "");
}

int wait_for(int set, int ms) {
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

void no_edge(int set) {
    static int extra;
    struct epoll_event events[16];
    for (int i = 0; i < 3 && epoll_wait(set, events, 16, 5) > 0; i++)
        if (phase == 'm' && !(kind & TCP) && ++extra > 2) say("%d edges for nothing", extra);
}

int add(int set, int fd, unsigned events, uint64_t data) {
    struct epoll_event event = {events, {.u64 = data}};
    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
}

int add_away(int set, unsigned events, uint64_t data) {
    int result = add(set, S, events, data);
    NEED(result == 0);
    warm_again(NULL);
    return result;
}

int mod(int set, int fd, unsigned events, uint64_t data) {
    struct epoll_event event = {events, {.u64 = data}};
    return epoll_ctl(set, EPOLL_CTL_MOD, fd, &event);
}

static int once_set;

static uint64_t once_data;

static void change_once(void) { NEED(mod(once_set, S, EPOLLIN | EPOLLONESHOT, once_data) == 0); }

int add_once_away(int set, uint64_t data) {
    int result = add(set, S, EPOLLIN | EPOLLONESHOT, data);
    NEED(result == 0);
    once_set = set, once_data = data;
    warm_again(change_once);
    return result;
}

int del(int set, int fd) { return epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL); }

int new_set(void) {
    int set = epoll_create1(EPOLL_CLOEXEC);
    NEED(set >= 0);
    return set;
}

void poll_once(int fd, short events, int ms) {
    struct pollfd one = {fd, events, 0};
    int n = poll(&one, 1, ms);
    if (n < 0) say("poll: %s", strerrorname_np(errno));
    else if (n == 0) say("poll: nothing");
    else say_events("poll", (unsigned short)one.revents);
}

long fill_up(void) {
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

/* The same where the peer, too, has written as much as it may, and this end does not read. */
CASE(poll_output_behind_unread_bytes, UNIX | PAIR, ALL_PHASES) {
    static char bytes[65536];
    long theirs = peer(OP_FILLUP, 0), ours = fill_up();
    poll_once(S, POLLOUT, 0);
    point();
    later(OP_RECV, ours);
    poll_once(S, POLLOUT, 5000);
    HOLDS(peer_done() == ours);
    poll_once(S, POLLOUT, 5000);
    for (long n; theirs > 0; theirs -= n) NEED((n = read(S, bytes, sizeof bytes)) > 0);
    HOLDS(theirs == 0);
    works("then");
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

CASE(pri_only, SOCK, ALL_PHASES) {
    int set = new_set();
    SAY(add_away(set, EPOLLPRI, 1));
    NEED(peer(OP_SEND, 5) == 5);
    wait_for(set, 5);
    SAY(get(5));
    wait_for(set, 5);
}
