/* Descriptor numbers: the lowest free one, duplicates, ranges; the effects of closing and
   replacing. */
#include "check.h"

int main(void) {
    int p[2], s[2], none;
    char b[8];
    CHECK(!pipe(p) && !socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    SAY(p[0]), SAY(p[1]), SAY(s[1]);
    for (int i = 0; i < 5000; i++) CHECK(write(s[0], "12345678", 8) == 8 && read(s[1], b, 8) == 8);
    none = dup(s[1]);
    SAY(none);
    SAY(dup2(s[1], 40)), SAY(dup2(40, 40)), SAY(dup2(99, 40)), SAY(dup2(s[1], -1)), SAY(dup2(s[1], 1 << 30));
    SAY(dup3(s[1], 41, O_CLOEXEC)), SAY(dup3(41, 41, 0)), SAY(dup3(s[1], 41, 3)), SAY(fcntl(41, F_GETFD));
    SAY(fcntl(s[1], F_DUPFD, 50)), SAY(fcntl(s[1], F_DUPFD_CLOEXEC, 50)), SAY(fcntl(51, F_GETFD));
    SAY(fcntl(99, F_DUPFD, 1)), SAY(dup(99));
    SAY(write(s[0], "shared", 6)), SAY(read(50, b, 2)), SAY(read(40, b, 2)), SAY(read(none, b, 2));
    SAY(fcntl(40, F_SETFL, O_NONBLOCK)), SAY(read(s[1], b, 1)), SAY(fcntl(50, F_SETFL, 0));
    /* Another file replaces the descriptor of a connection: the peer finds the end. */
    SAY(close(none)), SAY(close(41)), SAY(close(50)), SAY(close(51)), SAY(close(40));
    SAY(dup2(p[0], s[1])), SAY(read(s[0], b, 8)), SAY(write(p[1], "pipe", 4)), SAY(read(s[1], b, 8));
    SAY(close(s[1])), SAY(close(s[1])), SAY(close(-1));
    SAY(fcntl(s[0], F_SETOWN, getpid())), SAY(fcntl(s[0], F_GETOWN) == getpid());
    SAY(fcntl(p[1], F_SETPIPE_SZ, 65536)), SAY(fcntl(p[0], F_GETPIPE_SZ));
    SAY(fcntl(99, F_GETFL)), SAY(fcntl(s[0], 9999));
    SAY(ioctl(s[0], FIOCLEX)), SAY(fcntl(s[0], F_GETFD)), SAY(ioctl(s[0], 0x1234)), SAY(ioctl(99, FIONREAD, &none));
    SAY(isatty(s[0]));
    SAY(dup2(s[0], 70)), SAY(dup2(s[0], 72));
    SAY(close_range(72, 71, 0)), SAY(close_range(60, 71, 99));
    SAY(close_range(71, 80, CLOSE_RANGE_CLOEXEC)), SAY(fcntl(72, F_GETFD)), SAY(fcntl(70, F_GETFD));
    SAY(close_range(60, 71, 0)), SAY(fcntl(70, F_GETFD)), SAY(fcntl(72, F_GETFD));
    SAY(close_range(60, ~0U, 0)), SAY(fcntl(72, F_GETFD));
    SAY(dup2(s[0], 70)), closefrom(60), SAY(fcntl(70, F_GETFD));
    SAY(open("/dev/null", O_RDONLY));
    for (int fd = 3; fd < 1024; fd++) close(fd);
    SAY(socket(AF_UNIX, SOCK_STREAM, 0));
    SAY(close_range(3, ~0U, 0));
    SAY(dup(2));
    return 0;
}
