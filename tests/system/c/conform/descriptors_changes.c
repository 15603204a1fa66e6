/* What changes while a call on the session waits: flags, time limits, the number itself; and calls
 * that make the session another one. Calls on numbers as such are in descriptors.c. */
#include "conform.h"

static void *blocked_read(void *unused) {
    char bytes[20];
    (void)unused;
    ssize_t n = read(S, bytes, 10);
    if (n > 0) check(bytes, n);
    note("read: %zd %s", n, n < 0 ? strerrorname_np(errno) : "");
    return NULL;
}

/* What was asked of the file when the call began holds until it ends. (Not in phase p: see
 * docs/use/linux-differences.md.) */
CASE(nonblocking_set_under_a_blocked_reader, SOCK, "kmr") {
    pthread_t thread = begin(blocked_read);
    char byte;
    SAY(fcntl(S, F_SETFL, fcntl(S, F_GETFL) | O_NONBLOCK));
    SAY(read(S, &byte, 1));
    nap(5);
    SAY_PEER(OP_SEND, 10);
    join(thread);
    SAY(read(S, &byte, 1));
}

CASE(limit_set_under_a_blocked_reader, SOCK, "kmr") {
    struct timeval span = {0, 20000};
    pthread_t thread = begin(blocked_read);
    SAY(setsockopt(S, SOL_SOCKET, SO_RCVTIMEO, &span, sizeof span));
    nap(50);
    SAY_PEER(OP_SEND, 10);
    join(thread);
    char byte;
    SAY(read(S, &byte, 1));
}

/* A call that a handler interrupts is restarted with the number, whatever that is by then. */
static int empty_file;
static void puts_another_there(int signal) { (void)signal, dup2(empty_file, S); }
static void closes_it(int signal) { (void)signal, close(S); }

static void interrupted_by(void (*handler)(int), int flags) {
    char bytes[20];
    empty_file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handler, .sa_flags = flags}, NULL);
    later3(OP_SIGNAL, SIGUSR1, 1, 0);
    SAY(read(S, bytes, 10));
    peer_done();
    SAY(read(S, bytes, 10));
    /* The other end has seen the end. */
    SAY_PEER(OP_DRAIN, 0);
}
CASE(replaced_in_a_handler, SOCK, "km") { interrupted_by(puts_another_there, 0); }
CASE(replaced_in_a_handler_of_a_restarted_read, SOCK, "km") { interrupted_by(puts_another_there, SA_RESTART); }
CASE(closed_in_a_handler, SOCK, "km") { interrupted_by(closes_it, 0); }
CASE(closed_in_a_handler_of_a_restarted_read, SOCK, "km") { interrupted_by(closes_it, SA_RESTART); }

static void sending_interrupted_by(void (*handler)(int), int flags) {
    static char much[1 << 24];
    empty_file = open("/dev/null", O_WRONLY | O_CLOEXEC);
    signal(SIGPIPE, SIG_IGN);
    fcntl(S, F_SETFL, O_NONBLOCK);
    /* What is on its way makes room a moment later. */
    for (int i = 0; i < 4; i++, nap(20)) while (write(S, much, 4096) > 0) {}
    fcntl(S, F_SETFL, 0);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handler, .sa_flags = flags}, NULL);
    later3(OP_SIGNAL, SIGUSR1, 1, 0);
    SAY(send(S, much, 10, 0));
    peer_done();
}
CASE(closed_in_a_handler_of_a_send, SOCK, "km") { sending_interrupted_by(closes_it, 0); }
CASE(closed_in_a_handler_of_a_restarted_send, SOCK, "km") { sending_interrupted_by(closes_it, SA_RESTART); }
CASE(replaced_in_a_handler_of_a_restarted_send, SOCK, "km") { sending_interrupted_by(puts_another_there, SA_RESTART); }

/* A wait for events that a handler interrupts tells nothing of what the handler did. */
static void wait_interrupted_by(void (*handler)(int), char wait) {
    struct pollfd two[2] = {{S, POLLIN, 0}, {conform_channel(), POLLPRI, 0}};
    struct epoll_event event = {.events = EPOLLIN};
    int set = epoll_create1(EPOLL_CLOEXEC);
    fd_set in;
    FD_ZERO(&in);
    FD_SET(S, &in);
    epoll_ctl(set, EPOLL_CTL_ADD, S, &event);
    empty_file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART}, NULL);
    later3(OP_SIGNAL, SIGUSR1, 1, 0);
    switch (wait) {
    case '1': SAY(poll(two, 1, 5000)); break;
    case '2': SAY(poll(two, 2, 5000)); break;
    case 's': SAY(select(S + 1, &in, NULL, NULL, NULL)); break;
    case 'e': SAY(epoll_wait(set, &event, 1, 5000)); break;
    }
    peer_done();
    SAY_PEER(OP_DRAIN, 0);
}
CASE(closed_in_a_handler_of_a_poll, SOCK, "km") { wait_interrupted_by(closes_it, '1'); }
CASE(closed_in_a_handler_of_a_poll_of_two, SOCK, "km") { wait_interrupted_by(closes_it, '2'); }
CASE(closed_in_a_handler_of_a_select, SOCK, "km") { wait_interrupted_by(closes_it, 's'); }
CASE(closed_in_a_handler_of_a_wait_on_a_set, SOCK, "km") { wait_interrupted_by(closes_it, 'e'); }
CASE(replaced_in_a_handler_of_a_poll_of_two, SOCK, "km") { wait_interrupted_by(puts_another_there, '2'); }

static void *blocked_poll(void *unused) {
    struct pollfd two[2] = {{S, POLLIN, 0}, {S, POLLIN | POLLRDHUP, 0}};
    (void)unused;
    int n = poll(two, 2, 10000);
    note("poll: %d %x %x", n, (unsigned)two[0].revents, (unsigned)two[1].revents);
    return NULL;
}
CASE(twice_in_one_poll, IN, ALL_PHASES) {
    pthread_t thread = begin(blocked_poll);
    point();
    SAY_PEER(OP_SEND, 10);
    join(thread);
}
CASE(shutdown_under_a_blocked_poll, SOCK, ALL_PHASES) {
    pthread_t thread = begin(blocked_poll);
    point();
    SAY(shutdown(S, SHUT_RD));
    join(thread);
    SAY_PEER(OP_SEND, 10);
}

/* The peer's program flips the flag of its own end while it is written to. */
CASE(peer_nonblocking_meanwhile, SOCK, ALL_PHASES) {
    SAY_PEER(OP_NONBLOCK, 1);
    SAY(put(10));
    SAY_PEER(OP_RECV_ONE, 10);
    point();
    SAY_PEER(OP_RECV_ONE, 10);
    SAY(peer_errno == EAGAIN);
}

/* A connected socket is connected again, or to nobody. */
CASE(connected_again, TCP | UNIX, ALL_PHASES) {
    struct sockaddr_storage name;
    socklen_t len = sizeof name;
    NEED(getpeername(S, (void *)&name, &len) == 0);
    SAY(connect(S, (void *)&name, len));
    point();
    SAY(connect(S, (void *)&name, len));
    works("still");
}
CASE(connected_to_nobody, TCP, ALL_PHASES) {
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    char byte;
    SAY(put(10));
    SAY_PEER(OP_RECV, 10);
    point();
    SAY(connect(S, &nobody, sizeof nobody));
    SAY(read(S, &byte, 1));
    SAY(send(S, "x", 1, MSG_NOSIGNAL));
    SAY_PEER(OP_RECV_ONE, 10);
    say("peer: %s", strerrorname_np(peer_errno) ? strerrorname_np(peer_errno) : "0");
}
