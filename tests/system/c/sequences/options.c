/* Calls that ask about descriptors, and set what they do. See sequences.h. */
#include "sequences.h"

static void do_ioctl(const long *a, int count) {
    int value = count > 2 ? (int)a[2] : -7;
    if (result(ioctl(fd_of(a[0]), (unsigned long)a[1], &value)) == 0) say(" = %d", value);
}

/* getsockopt SLOT LEVEL NAME [ROOM] */
static void do_getsockopt(const long *a, int count) {
    unsigned char value[64];
    socklen_t len = count > 3 ? (socklen_t)a[3] : sizeof value;
    memset(value, 0x5a, sizeof value);
    if (len > sizeof value) len = sizeof value;
    if (result(getsockopt(fd_of(a[0]), (int)a[1], (int)a[2], value, &len)) != 0) return;
    say(" len %d:", (int)len);
    /* Process numbers are not told. */
    int is_peer = a[1] == SOL_SOCKET && a[2] == SO_PEERCRED;
    for (socklen_t i = is_peer ? 4 : 0; i < len && i < sizeof value; i++) say(" %02x", value[i]);
}

static void do_setsockopt(const long *a, int count) {
    int value = (int)a[3];
    (void)count;
    result(setsockopt(fd_of(a[0]), (int)a[1], (int)a[2], &value, sizeof value));
}

static void do_linger(const long *a, int count) {
    struct linger value = {(int)a[1], (int)a[2]};
    (void)count;
    result(setsockopt(fd_of(a[0]), SOL_SOCKET, SO_LINGER, &value, sizeof value));
}

/* timeout SLOT SO_RCVTIMEO|SO_SNDTIMEO MICROSECONDS */
static void do_timeout(const long *a, int count) {
    struct timeval value = {a[2] / 1000000, a[2] % 1000000};
    (void)count;
    result(setsockopt(fd_of(a[0]), SOL_SOCKET, (int)a[1], &value, sizeof value));
}

static void tell_name(const struct sockaddr_storage *name, socklen_t len) {
    say(" len %d family %d", (int)len, len >= sizeof(sa_family_t) ? name->ss_family : -1);
}

static void do_getsockname(const long *a, int count) {
    struct sockaddr_storage name;
    socklen_t len = sizeof name;
    (void)count;
    if (result(getsockname(fd_of(a[0]), (void *)&name, &len)) == 0) tell_name(&name, len);
}

static void do_getpeername(const long *a, int count) {
    struct sockaddr_storage name;
    socklen_t len = sizeof name;
    (void)count;
    if (result(getpeername(fd_of(a[0]), (void *)&name, &len)) == 0) tell_name(&name, len);
}

static void do_tcpinfo(const long *a, int count) {
    struct tcp_info info;
    socklen_t len = sizeof info;
    (void)count;
    if (result(getsockopt(fd_of(a[0]), IPPROTO_TCP, TCP_INFO, &info, &len)) == 0) say(" state %d", info.tcpi_state);
}

static void do_connect(const long *a, int count) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(9)};
    (void)count;
    guard();
    result(connect(fd_of(a[0]), (void *)&name, sizeof name));
    unguard();
}

static void do_listen(const long *a, int count) { (void)count; result(listen(fd_of(a[0]), 1)); }

static void do_accept(const long *a, int count) {
    (void)count;
    guard();
    result(accept(fd_of(a[0]), NULL, NULL));
    unguard();
}

const struct call option_calls[] = {
    {"ioctl", do_ioctl}, {"getsockopt", do_getsockopt}, {"setsockopt", do_setsockopt}, {"linger", do_linger}, {"timeout", do_timeout},
    {"getsockname", do_getsockname}, {"getpeername", do_getpeername}, {"tcpinfo", do_tcpinfo}, {"connect", do_connect}, {"listen", do_listen}, {"accept", do_accept},
    {NULL, NULL},
};
