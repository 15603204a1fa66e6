/* Cases in which a signal handler interrupts a call that spins: it waits for the same session
 * itself, or never returns. The program runs with `spin = always`, so that no thread sleeps. Not
 * here: handlers that interrupt a sleep (signals.c). */
#include "conform.h"

enum { JUMPS = 40, SOON_US = 1500 };

static sigjmp_buf landing;
static char handlers_byte;
static volatile long handlers_result;

static void read_one(int signal) {
    (void)signal;
    handlers_result = read(S, &handlers_byte, 1);
}

static void jump(int signal) {
    (void)signal;
    siglongjmp(landing, 1);
}

static void handle(void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    NEED(sigaction(SIGALRM, &action, NULL) == 0);
}

static void alarm_in_us(long us) {
    struct itimerval once = {{0, 0}, {0, us}};
    NEED(setitimer(ITIMER_REAL, &once, NULL) == 0);
}

static void *send_after_the_alarm(void *unused) {
    (void)unused;
    nap(60);
    return (void *)peer(OP_SEND, 2);
}

CASE(handler_waits_for_it, IN, "m") {
    warm();
    handle(read_one);
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    NEED(pthread_sigmask(SIG_BLOCK, &alarms, NULL) == 0);
    pthread_t sender;
    NEED(pthread_create(&sender, NULL, send_after_the_alarm, NULL) == 0);
    NEED(pthread_sigmask(SIG_UNBLOCK, &alarms, NULL) == 0);
    alarm_in_us(10000);
    char byte;
    SAY(read(S, &byte, 1));
    NEED(pthread_join(sender, NULL) == 0);
    say("the handler's: %ld", handlers_result);
    check(&handlers_byte, 1);
    check(&byte, 1);
}

/* Jumps out of `wait` again and again. */
static void jump_out_of(void (*wait)(void)) {
    handle(jump);
    volatile int jumps = 0;
    while (jumps < JUMPS) {
        if (sigsetjmp(landing, 1)) {
            jumps++;
            continue;
        }
        alarm_in_us(SOON_US);
        wait();
        say("nothing to wait for");
        return;
    }
    say("%d jumps", jumps);
    SAY_PEER(OP_SEND, 3);
    SAY(get(3));
    works("after the jumps");
}

static int set;

static void by_read(void) {
    char byte;
    if (read(S, &byte, 1) >= 0) say("read");
}

static void by_poll(void) {
    struct pollfd asked = {S, POLLIN, 0};
    poll(&asked, 1, -1);
}

static void by_two(void) {
    struct pollfd asked[2] = {{S, POLLIN, 0}, {conform_channel(), POLLPRI, 0}};
    poll(asked, 2, -1);
}

static void by_set(void) {
    struct epoll_event event;
    epoll_wait(set, &event, 1, -1);
}

CASE(jumps_out_of_reads, IN, "m") {
    warm();
    jump_out_of(by_read);
}

CASE(jumps_out_of_polls, IN, "m") {
    warm();
    jump_out_of(by_poll);
    jump_out_of(by_two);
}

CASE(jumps_out_of_a_set, IN, "m") {
    set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    NEED(epoll_ctl(set, EPOLL_CTL_ADD, S, &event) == 0);
    warm();
    jump_out_of(by_set);
}
