/* Shared by the test programs. SAY prints a value and errno, so that two runs can be compared.
   CHECK tests a condition that must hold in both runs. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define CHECK(what)                                                                                                    \
    ({                                                                                                                 \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "line %d: not so: %s (errno %d)\n", __LINE__, #what, errno);                               \
            exit(1);                                                                                                   \
        }                                                                                                              \
    })

/* Prints the value of a call, and errno after the call. */
#define SAY(call)                                                                                                      \
    ({                                                                                                                 \
        errno = 77;                                                                                                    \
        long say_ = (long)(call);                                                                                      \
        int error_ = errno;                                                                                            \
        fprintf(stderr, "%d: %ld %d\n", __LINE__, say_, error_);                                                       \
    })

static inline int tcp_pair(int pair[2]) {
    int one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int door = socket(AF_INET, SOCK_STREAM, 0);
    if (door < 0 || bind(door, (void *)&at, sizeof at) || listen(door, 1) || getsockname(door, (void *)&at, &len)) return -1;
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(pair[0], (void *)&at, sizeof at)) return -1;
    pair[1] = accept(door, 0, 0);
    setsockopt(pair[0], IPPROTO_TCP, 1, &one, sizeof one);
    return close(door);
}

static inline int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
