/* `small NAME`: what a program does before and after the loader brings in the C library and the
 * preload library ("the host"). See tests/abi_small.rs.
 *
 * The exit status is 0, or 1 with a line on the failed check. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static char **words;
static __thread int own = 17;

#define NEED(condition) need(condition, #condition, __LINE__)
static void need(int is_fine, const char *what, int line) {
    if (is_fine) return;
    fprintf(stderr, "small: line %d: %s (%s)\n", line, what, strerror(errno));
    exit(1);
}

/* Returns true if the host is in this process. */
static int has_host(void) {
    static char text[1 << 16];
    int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    NEED(maps >= 0);
    size_t len = 0;
    for (ssize_t got; (got = read(maps, text + len, sizeof text - 1 - len)) > 0;) len += got;
    NEED(close(maps) == 0);
    text[len] = 0;
    NEED(strstr(text, "/sojourn-abi") != NULL);
    return strstr(text, "/libsojourn_preload") != NULL;
}

/* Calls of a program that stays small. */
static void little(void) {
    char byte, *kept = malloc(300000);
    NEED(kept && own == 17);
    memset(kept, 7, 300000);
    free(kept);
    int file = open(words[0], O_RDONLY), other = dup(file);
    NEED(file >= 0 && other >= 0 && fcntl(other, F_SETFD, FD_CLOEXEC) == 0);
    NEED(read(file, &byte, 1) == 1 && byte == 0x7f && lseek(other, 0, SEEK_CUR) == 1);
    NEED(close(file) == 0 && close(other) == 0);
    struct timespec span = { 0, 1000 };
    NEED(nanosleep(&span, NULL) == 0 && getppid() > 0);
    NEED(close(-1) == -1 && errno == EBADF);
}

static void alone(void) {
    little();
    NEED(!has_host());
}

/* The program becomes another one. */
static void replaced(void) {
    little();
    execv(words[0], (char *[]){ words[0], "alone", NULL });
    NEED(0);
}

static void *in_thread(void *at) {
    NEED(own == 17);
    own = 18;
    return at;
}

static void threads(void) {
    pthread_t made[4];
    void *result;
    for (int at = 0; at < 4; at++) NEED(pthread_create(&made[at], NULL, in_thread, &made[at]) == 0);
    for (int at = 0; at < 4; at++) NEED(pthread_join(made[at], &result) == 0 && result == &made[at]);
    NEED(own == 17);
}

/* What the kernel knows of the thread is the program's own again when the host is there. */
static void grown(void) {
    static struct { void *first; long offset; void *pending; } list;
    static int word;
    void *found = NULL;
    size_t len = 0;
    little();
    list.first = &list;
    NEED(syscall(SYS_set_robust_list, &list, sizeof list) == 0);
    NEED(syscall(SYS_set_tid_address, &word) == getpid());
    NEED(!has_host());
    NEED(syscall(SYS_get_robust_list, 0, &found, &len) == 0);
    NEED(found == &list && len == sizeof list);
    NEED(has_host());
    if (prctl(40 /* PR_GET_TID_ADDRESS */, &found) == 0) NEED(found == &word);
    little();
    threads();
}

/* Programs that write their title over arguments and environment (setproctitle(3bsd)). */
static void overwritten(void) {
    char *first = words[0], *last = words[0];
    char *path = strdup(words[0]);
    for (char **at = words; *at; at++) last = *at + strlen(*at);
    for (char **at = environ; *at; at++) last = *at + strlen(*at);
    NEED(path && last > first);
    memset(first, 'x', last - first);
    words[0] = path;
    threads();
    NEED(has_host());
}

/* The host finds room for its files, though the program takes all descriptors that it can get. */
static void descriptors(void) {
    struct rlimit limit;
    NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    int last = -1;
    for (int fd; (fd = open(words[0], O_RDONLY)) >= 0;) last = fd;
    NEED(errno == EMFILE && last == (int)limit.rlim_cur - 1);
    threads();
    NEED(close(last) == 0 && has_host());
}

/* A pipe between two processes brings the host in after a few calls; no byte is lost. */
static void stream(void) {
    char text[100], got[100] = "";
    for (size_t at = 0; at < sizeof text; at++) text[at] = at * 7;
    int to_child[2];
    NEED(pipe(to_child) == 0);
    pid_t child = fork();
    if (child == 0) {
        for (size_t at = 0; at < sizeof text; at++) if (read(to_child[0], got + at, 1) != 1) _exit(1);
        _exit(memcmp(text, got, sizeof text) != 0);
    }
    NEED(child > 0);
    for (size_t at = 0; at < sizeof text; at++) NEED(write(to_child[1], text + at, 1) == 1);
    int status;
    NEED(waitpid(child, &status, 0) == child && status == 0 && has_host());
}

/* Reads its standard input byte by byte, up to the end. */
static void input(void) {
    char byte;
    int count = 0;
    NEED(!has_host());
    for (; read(0, &byte, 1) == 1; count++) NEED(byte == 'a' + count % 26);
    NEED(count == 100 && has_host());
}

#if defined(__x86_64__)
/* Registers live over the call that brings in the host. */
static void registers(void) {
    uint64_t in[4] = { 1, 2, 3, 4 }, out[4] = { 0 };
    long result = SYS_getpgid, before = 0x1234, after = 0, rest;
    NEED(!has_host());
    result = SYS_epoll_create1;
    __asm__ volatile("movups (%3), %%xmm5; movups 16(%3), %%xmm15; mov %5, %%r12; xor %%edi, %%edi; stc; syscall;"
                     "setc %%dl; movups %%xmm5, (%4); movups %%xmm15, 16(%4); mov %%r12, %1; movzbl %%dl, %%edx"
                     : "+a"(result), "=m"(after), "=d"(rest)
                     : "S"(in), "b"(out), "m"(before)
                     : "rcx", "r11", "rdi", "r12", "xmm5", "xmm15", "memory", "cc");
    NEED(result >= 0 && memcmp(in, out, sizeof in) == 0 && after == before && rest == 1);
    NEED(has_host());
}
#else
static void registers(void) {}
#endif

static void ignores(int signal) {
    (void)signal;
}

/* Two thousand handlers, whose descriptions are on the stack, as Go's run-time has them. */
static void handlers(void) {
    for (int round = 0; round < 2000; round++) {
        struct sigaction action = { .sa_handler = ignores, .sa_flags = round & 1 ? SA_RESTART : 0 };
        NEED(sigaction(SIGUSR1, &action, NULL) == 0);
    }
    struct sigaction now;
    NEED(sigaction(SIGUSR1, NULL, &now) == 0 && now.sa_handler == ignores && now.sa_flags & SA_RESTART);
}

int main(int count, char **all) {
    words = all;
    static const struct { const char *name; void (*run)(void); } cases[] = {
        { "alone", alone },   { "replaced", replaced }, { "grown", grown },         { "overwritten", overwritten },
        { "handlers", handlers },
        { "stream", stream }, { "input", input },       { "registers", registers }, { "descriptors", descriptors },
    };
    if (count < 2) return 0;
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++)
        if (!strcmp(all[1], cases[at].name)) return cases[at].run(), 0;
    return 1;
}
