/* A program that defines functions with names of the C library itself and exports them
   (-rdynamic). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifdef SIGNALS
static int (*next_action)(int, const struct sigaction *, struct sigaction *);
int sigaction(int number, const struct sigaction *new, struct sigaction *old) {
    if (!next_action) next_action = dlsym(RTLD_NEXT, "__sigaction");
    return next_action(number, new, old);
}
int pthread_sigmask(int how, const sigset_t *new, sigset_t *old) { abort(); }
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!next) next = dlsym(RTLD_NEXT, "pthread_create");
    return next(thread, attributes, start, argument);
}
#endif

#ifdef NUMBERS
int close(int fd) { return syscall(SYS_close, fd); }
ssize_t read(int fd, void *at, size_t len) { return syscall(SYS_read, fd, at, len); }
ssize_t write(int fd, const void *at, size_t len) { return syscall(SYS_write, fd, at, len); }
ssize_t readv(int fd, const struct iovec *at, int count) { return syscall(SYS_readv, fd, at, count); }
ssize_t recvfrom(int fd, void *at, size_t len, int flags, struct sockaddr *from, socklen_t *room) {
    return syscall(SYS_recvfrom, fd, at, len, flags, from, room);
}
int poll(struct pollfd *all, nfds_t count, int limit) { return syscall(SYS_poll, all, count, limit); }
int munmap(void *at, size_t len) { return syscall(SYS_munmap, at, len); }
int mprotect(void *at, size_t len, int protection) { return syscall(SYS_mprotect, at, len, protection); }
void *mmap(void *at, size_t len, int protection, int flags, int fd, off_t offset) {
    return (void *)syscall(SYS_mmap, at, len, protection, flags, fd, offset);
}
int open(const char *path, int flags, ...) { return syscall(SYS_open, path, flags, 0600); }
int dup2(int old, int new) { return syscall(SYS_dup2, old, new); }
int socket(int domain, int kind, int protocol) { return syscall(SYS_socket, domain, kind, protocol); }
int fcntl(int fd, int command, ...) {
    va_list list;
    va_start(list, command);
    long argument = va_arg(list, long);
    va_end(list);
    return syscall(SYS_fcntl, fd, command, argument);
}
#endif

#ifdef CLOCK
/* A clock that stands still, another environment, and functions that the program never needs. */
int clock_gettime(clockid_t clock, struct timespec *now) { *now = (struct timespec){ 1, 2 }; return 0; }
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *span, struct timespec *left) { abort(); }
char *getenv(const char *name) { return "nonsense"; }
char *realpath(const char *path, char *room) { abort(); }
ssize_t readlink(const char *path, char *at, size_t len) { abort(); }
int dl_iterate_phdr(int (*each)(void *, size_t, void *), void *argument) { abort(); }
int pthread_mutex_lock(pthread_mutex_t *mutex) { return 0; }
pid_t gettid(void) { return 1; }
pid_t getpid(void) { return 1; }
int sched_getcpu(void) { return -7; }
long sysconf(int name) { return -1; }
#endif

#ifdef MEMORY
/* An allocator that makes its system calls by number, as some allocators do. */
static char pool[1 << 22];
static size_t used;
void *malloc(size_t len) {
    void *page = (void *)syscall(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page, 4096);
    size_t at = __atomic_fetch_add(&used, (len + 31) / 16 * 16, __ATOMIC_RELAXED);
    *(size_t *)(pool + at + 8) = len;
    return pool + at + 16;
}
void free(void *at) { }
/* The pool is never reused, so the memory is zero. */
void *calloc(size_t count, size_t len) { return malloc(count * len); }
void *realloc(void *old, size_t len) {
    void *new = malloc(len);
    size_t before = old ? ((size_t *)old)[-1] : 0;
    return memcpy(new, old ? old : new, before < len ? before : len);
}
int posix_memalign(void **at, size_t align, size_t len) {
    *at = (void *)(((size_t)malloc(len + align) + align - 1) / align * align);
    return 0;
}
#endif

static volatile int caught;
static void on(int number) { caught = number; }

static void *echo(void *fd) {
    char byte;
    while (read(*(int *)fd, &byte, 1) == 1) write(*(int *)fd, &byte, 1);
    close(*(int *)fd);
    return NULL;
}

int main(void) {
    int pair[2];
    char byte;
    pthread_t thread;
    struct sigaction action = { .sa_handler = on };
    if (sigaction(SIGUSR1, &action, NULL) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 1;
    raise(SIGUSR1);
    pthread_create(&thread, NULL, echo, &pair[1]);
    for (int i = 0; i < 3000; i++) {
        struct pollfd one = { pair[0], POLLIN, 0 };
        if (write(pair[0], "x", 1) != 1 || poll(&one, 1, 5000) != 1 || read(pair[0], &byte, 1) != 1) return 2;
    }
    shutdown(pair[0], SHUT_WR);
    pthread_join(thread, NULL);
    printf("%d %zd\n", caught, read(pair[0], &byte, 1));
    int first = close(pair[0]), second = close(pair[0]);
    printf("%d %d %d\n", first, second, errno == EBADF);
    return 0;
}
