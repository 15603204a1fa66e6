/* sendmsg, recvmsg, sendmmsg and recvmmsg; descriptors in messages. */
#include "check.h"

static int pass(int over, int fd) {
    char room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec one = {"d", 1};
    struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    return sendmsg(over, &m, 0) == 1 ? 0 : -1;
}

static int take(int over) {
    char room[CMSG_SPACE(sizeof(int))], b;
    struct iovec one = {&b, 1};
    struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    if (recvmsg(over, &m, MSG_CMSG_CLOEXEC) != 1) return -1;
    CHECK(m.msg_flags & MSG_CMSG_CLOEXEC);
    int fd = -1;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_type == SCM_RIGHTS) memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

static void both(int a, int b) {
    char x[32], y[32];
    struct sockaddr_storage who;
    struct iovec from[2] = {{"he", 2}, {"llo", 3}}, into[2] = {{x, 1}, {y, 31}};
    struct msghdr out = {.msg_iov = from, .msg_iovlen = 2};
    struct msghdr in = {.msg_iov = into, .msg_iovlen = 2, .msg_name = &who, .msg_namelen = sizeof who};
    SAY(sendmsg(a, &out, 0));
    SAY(recvmsg(b, &in, 0));
    SAY(in.msg_namelen);
    SAY(in.msg_flags);
    SAY(in.msg_controllen);
    SAY(sendmsg(a, 0, 0));
    SAY(recvmsg(b, (void *)16, 0));
    SAY(recvmsg(b, &in, MSG_DONTWAIT));
    out.msg_iov = (void *)16;
    SAY(sendmsg(a, &out, 0));
    out.msg_iov = from;
    out.msg_iovlen = 2000;
    SAY(sendmsg(a, &out, 0));
    out.msg_iovlen = 2;
    struct mmsghdr many[2] = {{.msg_hdr = out}, {.msg_hdr = out}};
    SAY(sendmmsg(a, many, 2, 0));
    SAY(many[1].msg_len);
    struct mmsghdr got[2] = {{.msg_hdr = {.msg_iov = into, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = into + 1, .msg_iovlen = 1}}};
    SAY(recvmmsg(b, got, 2, 0, 0));
    SAY(got[0].msg_len);
    SAY(got[1].msg_len);
}

int main(void) {
    int p[2], q[2], t[2];
    char b[8];
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, p) && !pipe(q) && !tcp_pair(t));
    both(p[0], p[1]);
    both(t[0], t[1]);
    CHECK(!pass(p[0], q[1]));
    int copy = take(p[1]);
    CHECK(copy >= 0 && fcntl(copy, F_GETFD) == FD_CLOEXEC);
    SAY(write(copy, "through", 7));
    SAY(read(q[0], b, 8));
    SAY(pass(p[0], 999));
    SAY(pass(t[0], q[1]));
    return 0;
}
