/* What each call says, and in which order, once the other side has ended: which call takes the
 * error, and what is left for the others. */
#include "conform.h"

static void state(void) {
    struct pollfd one = {S, POLLIN | POLLOUT | POLLRDHUP, 0};
    int n = poll(&one, 1, 0);
    say("poll: %d %s%s%s%s%s", n, one.revents & POLLIN ? "IN " : "", one.revents & POLLOUT ? "OUT " : "", one.revents & POLLRDHUP ? "RDHUP " : "",
        one.revents & POLLHUP ? "HUP " : "", one.revents & POLLERR ? "ERR " : "");
}

static void until(short events) {
    struct pollfd one = {S, events, 0};
    for (int i = 0; i < 1000 && !(poll(&one, 1, 1000) == 1 && one.revents & (events | POLLHUP | POLLERR)); i++) nap(1);
}

static void error(void) {
    int value = -1;
    socklen_t len = sizeof value;
    getsockopt(S, SOL_SOCKET, SO_ERROR, &value, &len);
    say("SO_ERROR: %s", value ? strerrorname_np(value) : "0");
}

static void act(char what) {
    static char bytes[200];
    struct iovec piece = {bytes, 7};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    switch (what) {
    case 'r': SAY(recv(S, bytes, 7, MSG_DONTWAIT)); break;
    case 'R': SAY(read(S, bytes, 200)); break;
    case 'w': SAY(send(S, bytes, 7, MSG_NOSIGNAL | MSG_DONTWAIT)); break;
    case 'e': error(); break;
    case 'k': SAY(recv(S, bytes, 7, MSG_DONTWAIT | MSG_PEEK)); break;
    case 'm': SAY(recvmsg(S, &message, MSG_DONTWAIT)), SAY(message.msg_flags); break;
    case 'i': {
        int n = -1;
        SAY(ioctl(S, FIONREAD, &n)), SAY(n);
        break;
    }
    case 's': SAY(shutdown(S, SHUT_WR)); break;
    case 'd': SAY(shutdown(S, SHUT_RD)); break;
    case 'b': SAY(shutdown(S, SHUT_RDWR)); break;
    case 'p': state(); break;
    case 'S': SAY_PEER(OP_SHUTDOWN, SHUT_WR); break;
    case 'D': SAY_PEER(OP_SHUTDOWN, SHUT_RD); break;
    case 'q': SAY_PEER(OP_RECV_ONE, 7); break;
    case 'x': SAY_PEER(OP_SEND, 7); break;
    case 'P': point(); break;
    case 'H': until(POLLHUP); break;
    case 'U': until(POLLRDHUP); break;
    case 'z': nap(5); break;
    }
}

static void all(const char *what) {
    signal(SIGPIPE, SIG_IGN);
    for (; *what; what++) act(*what);
}

/* The end comes in one of four ways, with and without bytes that this side has not read. */
static void ended(const char *what) {
    static char bytes[200];
    int how = *what++ - '0';
    signal(SIGPIPE, SIG_IGN);
    if (how & 1) SAY_PEER(OP_SEND, 10);
    if (how & 2) NEED(send(S, bytes, 20, 0) == 20);
    if (!(how & 8)) point();
    if (how & 4) SAY_PEER(OP_RESET, 0);
    else SAY_PEER(OP_CLOSE, 0);
    until(how & 6 ? POLLHUP : POLLRDHUP);
    if (how & 8) point();
    all(what);
}

#define ORDERS(name, kinds, first) \
    CASE(closed_##name, kinds, "mrp") { ended("0" first "prwepRwpe"); } \
    CASE(closed_having_sent_##name, kinds, "mrp") { ended("1" first "prwepRwpe"); } \
    CASE(closed_with_unread_##name, kinds, "mrp") { ended("2" first "prwepRwpe"); } \
    CASE(closed_with_unread_having_sent_##name, kinds, "mrp") { ended("3" first "prwepRwpe"); } \
    CASE(closed_with_unread_having_sent_home_late_##name, kinds, "p") { ended(";" first "prwepRwpe"); } \
    CASE(closed_with_unread_home_late_##name, kinds, "p") { ended(":" first "prwepRwpe"); } \
    CASE(reset_##name, (kinds) & TCP, "mrp") { ended("4" first "prwepRwpe"); } \
    CASE(reset_having_sent_##name, (kinds) & TCP, "mrp") { ended("5" first "prwepRwpe"); } \
    CASE(reset_with_unread_##name, (kinds) & TCP, "mrp") { ended("6" first "prwepRwpe"); }

ORDERS(receives, SOCK, "r")
ORDERS(sends, SOCK, "w")
ORDERS(asks, SOCK, "e")
ORDERS(peeks, SOCK, "k")
ORDERS(messages, SOCK, "m")
ORDERS(shuts_writing, SOCK, "s")
ORDERS(shuts_reading, SOCK, "d")

/* Halves that are closed, in each order. */
CASE(halves_peer_first, SOCK, ALL_PHASES) { all("SPUpRwsHpRwpebpRwd"); }
CASE(halves_own_first, SOCK, ALL_PHASES) { all("sPpwqSHpRwpebpRwd"); }
CASE(halves_peer_first_then_both, SOCK, ALL_PHASES) { all("SUPpbHpRwpes"); }
CASE(halves_own_reading, SOCK, ALL_PHASES) { all("xzdPprRrpwxzpRwpe"); }
CASE(halves_own_reading_first, SOCK, ALL_PHASES) { all("dPprpxzprRpwxzpesSp"); }
CASE(halves_peer_reading, SOCK, ALL_PHASES) { all("DzPpwzpwperx"); }
CASE(halves_own_reading_twice, SOCK, ALL_PHASES) { all("ddPsspRbpe"); }
CASE(halves_with_bytes, SOCK, ALL_PHASES) { all("xSUPpipkRpRwp"); }
CASE(halves_with_bytes_both, SOCK, ALL_PHASES) { all("xwSsHPpiRRpqqe"); }
