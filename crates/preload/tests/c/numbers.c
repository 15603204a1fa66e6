/* Calls through syscall(), with numbers that the library serves and with others. */
#include "check.h"
#ifdef PAST_C_LIBRARY
#include "past.h"
#endif

int main(void) {
    int p[2], s[2];
    char b[64];
    SAY(syscall(SYS_pipe2, p, O_CLOEXEC));
    SAY(syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, s));
    SAY(syscall(SYS_write, p[1], "abc", 3L));
    SAY(syscall(SYS_read, p[0], b, 64L));
    SAY(syscall(SYS_read, p[0], (char *)8, 0L));
    SAY(syscall(SYS_sendto, s[0], "abc", 3L, MSG_NOSIGNAL, 0L, 0L));
    SAY(syscall(SYS_recvfrom, s[1], b, 64L, MSG_DONTWAIT, 0L, 0L));
    SAY(syscall(SYS_recvfrom, s[1], b, 64L, MSG_DONTWAIT, 0L, 0L));
#ifdef SYS_poll
    SAY(syscall(SYS_poll, &(struct pollfd){p[0], POLLIN, 0}, 1L, 1));
#else
    SAY(syscall(SYS_ppoll, &(struct pollfd){p[0], POLLIN, 0}, 1L, &(struct timespec){0, 1000000}, 0L, 8L));
#endif
    SAY(syscall(SYS_fcntl, s[0], F_GETFD));
    SAY(syscall(SYS_dup3, s[0], 33, O_CLOEXEC));
    SAY(syscall(SYS_close, 33));
    SAY(syscall(SYS_close, 33));
    SAY(syscall(SYS_getpid) == getpid());
    SAY(syscall(9999, 1, 2, 3, 4, 5, 6));
    SAY(syscall(SYS_lseek, p[0], 0L, SEEK_CUR));
    /* A call with six arguments, all of which matter. */
    char *page = (char *)syscall(SYS_mmap, 0L, 4096L, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1L, 0L);
    CHECK(page != MAP_FAILED);
    page[0] = 1;
    SAY(syscall(SYS_ioctl, p[0], FIONREAD, page));
    SAY(syscall(SYS_io_uring_setup, 0, 0L) < 0);
    SAY(write(p[1], "abc", 3));
    SAY(read(p[0], b, 64));
    return 0;
}
