/* Epoll sets with several users: sets in sets, children, duplicates, threads that wait while
 * another thread changes the set. */
#include "readiness.h"

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
