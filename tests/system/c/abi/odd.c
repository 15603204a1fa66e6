/* `odd NAME`: what programs may do that most do not. Each case holds without a loader as well. See
 * tests/abi_odd.rs.
 *
 * The exit status is 0, or 1 with a line on the failed check. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

enum { LIMIT_S = 60, CHILD = 3, PAGE = 4096 };

extern char **environ;
static char **words;
static char self[4096];

#define NEED(condition) need(condition, #condition, __LINE__)
static void need(int is_fine, const char *what, int line) {
    if (is_fine) return;
    fprintf(stderr, "odd: line %d: %s (%s)\n", line, what, strerror(errno));
    exit(1);
}

static void hangs(int signal) {
    (void)signal;
    static const char text[] = "odd: hangs\n";
    if (write(2, text, sizeof text - 1)) {}
    _exit(2);
}

/* ---- addresses ---- */

static long status(const char *field) {
    char line[256];
    long value = -1;
    FILE *file = fopen("/proc/self/status", "r");
    NEED(file != NULL);
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, field, strlen(field))) value = atol(line + strlen(field));
    fclose(file);
    return value;
}

/* brk(2), which answers with the break. */
static char *moved(char *to) { return (char *)syscall(SYS_brk, to); }

/* The break grows as far as nothing is in its way, and takes no room before. */
static void room(void) {
    NEED(status("VmSize:") < 1 << 20);
    NEED(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0) != MAP_FAILED);
    char *first = moved(0), *way = (char *)(((unsigned long)first + (16 << 20)) & -PAGE);
    char *other = mmap(way, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    NEED(other == way);
    *other = 7;
    NEED(moved(way + 2 * PAGE) == first && moved(0) == first && *other == 7);
    NEED(moved(way - PAGE) == way - PAGE && moved(way + 1) == way - PAGE);
    memset(first, 1, way - PAGE - first);
    NEED(moved(first) == first && munmap(other, PAGE) == 0 && moved(way + 2 * PAGE) == way + 2 * PAGE);
    for (char *at = (char *)(((unsigned long)first + PAGE - 1) & -PAGE); at < way; at += PAGE) NEED(*at == 0);
    NEED(moved(first) == first);
}

/* Calls with addresses that cannot be read or written. */
static void pointers(void) {
    void *bad = (void *)8, *none = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *all[] = { bad, none, (void *)-1L };
    for (int at = 0; at < 3; at++) {
        bad = all[at];
        NEED(syscall(SYS_rt_sigaction, SIGUSR1, bad, NULL, 8) == -1 && errno == EFAULT);
        NEED(syscall(SYS_rt_sigaction, SIGUSR1, NULL, bad, 8) == -1 && errno == EFAULT);
        NEED(syscall(SYS_rt_sigaction, SIGUSR1, bad, NULL, 7) == -1 && errno == EINVAL);
        NEED(syscall(SYS_sigaltstack, bad, NULL) == -1 && errno == EFAULT);
#if defined(__x86_64__)
        NEED(syscall(SYS_arch_prctl, 0x1003, bad) == -1 && errno == EFAULT);
        NEED(syscall(SYS_arch_prctl, 0x1004, bad) == -1 && errno == EFAULT);
#endif
    }
    char *list[] = { (char *)8, NULL };
    NEED(syscall(SYS_execve, self, words, 8) == -1 && errno == EFAULT);
    NEED(syscall(SYS_execve, self, words, list) == -1 && errno == EFAULT);
    NEED(syscall(SYS_clone3, 8, 64) == -1 && errno == EFAULT);
    NEED(syscall(SYS_clone, CLONE_THREAD, 0, 0, 0, 0) == -1 && errno == EINVAL);
    NEED(syscall(SYS_clone, CLONE_THREAD | CLONE_VM, 0, 0, 0, 0) == -1 && errno == EINVAL);
}

/* ---- threads and signals ---- */

static int ends[2], way;
static volatile int is_clean, count;

static void cleans(void *unused) {
    (void)unused;
    is_clean = 1;
}

static void *waits(void *unused) {
    char byte;
    struct pollfd one = { ends[0], POLLIN, 0 };
    (void)unused;
    pthread_cleanup_push(cleans, NULL);
    if (way == 0 && read(ends[0], &byte, 1)) {}
    if (way == 1) poll(&one, 1, -1);
    if (way == 2) recv(ends[1], &byte, 1, 0);
    if (way == 3) sleep(LIMIT_S);
    if (way == 4) pause();
    while (way == 5) {
        int pair[2];
        NEED(pipe(pair) == 0 && write(pair[1], "a", 1) == 1 && read(pair[0], &byte, 1) == 1);
        close(pair[0]);
        close(pair[1]);
    }
    pthread_cleanup_pop(1);
    return NULL;
}

/* Has the process use one processor: a thread that wakes another up is interrupted at once, so that
 * what it has begun is half done. */
static void pin(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    NEED(sched_setaffinity(0, sizeof one, &one) == 0);
}

/* Threads are cancelled in calls that wait, and as they begin. */
static void cancelled(void) {
    for (way = 0; way <= 5; way++) {
        NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        for (int round = 0; round < 20; round++) {
            pthread_t thread;
            void *result;
            is_clean = 0;
            NEED(pthread_create(&thread, NULL, waits, NULL) == 0);
            for (int turn = 0; turn < round * 10; turn++) sched_yield();
            if (round == 19) usleep(10000);
            NEED(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
            NEED(result == PTHREAD_CANCELED && (is_clean || round < 19));
        }
        close(ends[0]);
        close(ends[1]);
    }
}

static void cancelled_on_one(void) {
    pin();
    cancelled();
}

/* ---- unwinding ---- */

#ifdef __GLIBC__
static volatile int is_seen, unwinds;
static pid_t sleeper;

static _Unwind_Reason_Code sees(struct _Unwind_Context *context, void *start) {
    is_seen |= _Unwind_GetRegionStart(context) == (unsigned long)start;
    return _URC_NO_REASON;
}

static void waits_in(void);

static void looks(int signal) {
    is_seen = 0;
    _Unwind_Backtrace(sees, waits_in);
    unwinds += is_seen;
    /* A call that is restarted ends now. */
    if (signal == SIGUSR2) kill(sleeper, SIGKILL);
}

__attribute__((noinline)) static void waits_in(void) {
    if (way) NEED(waitpid(sleeper, NULL, 0) == sleeper);
    else NEED(poll(NULL, 0, -1) == -1 && pause() == -1);
}

/* A handler sees what led to the call that it has interrupted: one that fails, and one that is
 * restarted. */
static void unwound(void) {
    for (way = 0; way < 2; way++) {
        struct sigaction action = { .sa_handler = looks, .sa_flags = way ? SA_RESTART : 0 };
        struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = way ? SIGUSR2 : SIGUSR1 };
        struct itimerspec when = { { 0, 20000000 }, { 0, 20000000 } }, never = { 0 };
        timer_t timer;
        NEED(sigaction(event.sigev_signo, &action, NULL) == 0 && timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
        for (int round = 0; round < 10; round++) {
            sleeper = way ? fork() : 0;
            if (way && sleeper == 0) for (;;) pause();
            unwinds = 0;
            NEED(timer_settime(timer, 0, &when, NULL) == 0);
            waits_in();
            NEED(timer_settime(timer, 0, &never, NULL) == 0 && unwinds >= (way ? 1 : 2));
        }
        NEED(timer_delete(timer) == 0);
    }
}
#else
/* musl's calls have no tables for unwinding. */
static void unwound(void) {}
#endif

static void counts(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    count++;
}

/* An alternate stack of the least size is written within its bounds only. */
static void small(void) {
    char *area = mmap(NULL, 64 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *low = area + (32 << 10);
    struct sigaction action = { .sa_sigaction = counts, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    size_t sizes[] = { 2048, 3072, 4096, 8192 };
    struct itimerval soon = { { 0, 0 }, { 0, 10000 } };
    char byte;
    NEED(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGVTALRM, &action, NULL) == 0);
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        stack_t stack = { .ss_sp = low, .ss_size = sizes[at] };
        memset(area, 0x5a, 64 << 10);
        /* A stack without room for this processor's registers is refused, or ends the program. */
        if (sizes[at] < getauxval(51 /* AT_MINSIGSTKSZ */)) continue;
        NEED(sigaltstack(&stack, NULL) == 0);
        count = 0;
        NEED(raise(SIGUSR1) == 0 && count == 1);
        NEED(setitimer(ITIMER_VIRTUAL, &soon, NULL) == 0);
        while (count == 1) getppid();
        NEED(pipe(ends) == 0 && pthread_kill(pthread_self(), SIGUSR1) == 0 && count == 3);
        NEED(write(ends[1], "a", 1) == 1 && read(ends[0], &byte, 1) == 1);
        close(ends[0]);
        close(ends[1]);
        for (char *one = area; one < low; one++) NEED(*one == 0x5a);
    }
}

/* Waits once for a ring or for kernel AIO, with a mask that admits all. `way`: with a mask, with a
 * structure that has a mask, and with an operation that is submitted. */
static long waits_with(const sigset_t *mask) {
    /* `struct io_uring_params` (io_uring_setup(2)); not every C library's compiler finds the
     * kernel's headers. */
    static unsigned told[30];
    enum { WAITS = 1, IN_STRUCTURE = 8, TAIL = 11, ARRAY = 16, POLL = 6 };
    static long ring = -1;
    static unsigned long context;
    struct { const sigset_t *mask; size_t size; } sized = { mask, 8 };
    struct { const sigset_t *mask; unsigned size, most; void *limit; } structure = { mask, 8, 0, NULL };
    if (way == 3) {
        long events[4];
        if (!context) NEED(syscall(SYS_io_setup, 4, &context) == 0);
        return syscall(SYS_io_pgetevents, context, 1, 1, events, NULL, &sized);
    }
    if (ring == -1) ring = syscall(SYS_io_uring_setup, 4, told);
    NEED(ring >= 0 || errno == EPERM || errno == ENOSYS);
    /* Not everybody may have a ring. */
    if (ring < 0) return syscall(SYS_ppoll, NULL, 0, NULL, mask, 8);
    if (way == 0) return syscall(SYS_io_uring_enter, ring, 0, 1, WAITS, mask, 8);
    if (way == 1)
        return syscall(SYS_io_uring_enter, ring, 0, 1, WAITS | IN_STRUCTURE, &structure, sizeof structure);
    /* An operation that does not end: a pipe becomes readable. */
    char *queue = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, ring, 0);
    unsigned *all = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, ring, 0x10000000);
    NEED(queue != MAP_FAILED && all != MAP_FAILED && pipe(ends) == 0);
    memset(all, 0, 64);
    all[0] = POLL, all[1] = ends[0], all[7] = POLLIN;
    *(unsigned *)(queue + told[ARRAY]) = 0;
    __atomic_add_fetch((unsigned *)(queue + told[TAIL]), 1, __ATOMIC_RELEASE);
    return syscall(SYS_io_uring_enter, ring, 1, 1, WAITS, mask, 8);
}

/* All signals that a call's mask admits arrive in it. */
static void masked(void) {
    struct sigaction action = { .sa_sigaction = counts, .sa_flags = SA_SIGINFO };
    sigset_t both, none, now;
    sigemptyset(&none), sigemptyset(&both), sigaddset(&both, SIGUSR1), sigaddset(&both, SIGUSR2);
    NEED(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGUSR2, &action, NULL) == 0);
    NEED(sigprocmask(SIG_SETMASK, &both, NULL) == 0);
    for (way = 0; way < 4; way++) {
        count = 0;
        NEED(kill(getpid(), SIGUSR1) == 0 && kill(getpid(), SIGUSR2) == 0 && count == 0);
        long result = waits_with(&none);
        NEED(way == 2 ? result == 1 || (result == -1 && errno == EINTR) : result == -1 && errno == EINTR);
        NEED(count == 2);
        NEED(sigprocmask(SIG_SETMASK, NULL, &now) == 0);
        NEED(sigismember(&now, SIGUSR1) == 1 && sigismember(&now, SIGUSR2) == 1 && !sigismember(&now, SIGTERM));
    }
}

enum { ON_TOP = 2000, FILLED = 2048 };
static void fills(int signal) {
    (void)signal;
    volatile char own[FILLED];
    for (int at = 0; at < FILLED; at++) own[at] = 0x22;
    count++;
}

/* Signals arrive anywhere in the calls of a handler that runs on the alternate stack, also between
 * the program's stack and the loader's. Their own handlers run below it. */
static void is_on_top(int signal) {
    volatile char own[FILLED];
    stack_t now;
    (void)signal;
    for (int at = 0; at < FILLED; at++) own[at] = 0x11;
    while (count < ON_TOP) {
        NEED(sigaltstack(NULL, &now) == 0 && now.ss_flags == SS_ONSTACK);
        NEED(poll(NULL, 0, 0) == 0 || errno == EINTR);
        for (int at = 0; at < FILLED; at++) NEED(own[at] == 0x11);
    }
}

static void on_top(void) {
    static char area[1 << 18];
    stack_t stack = { .ss_sp = area, .ss_size = sizeof area }, now;
    struct sigaction action = { .sa_handler = is_on_top, .sa_flags = SA_ONSTACK };
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2 };
    struct itimerspec often = { { 0, 50000 }, { 0, 50000 } }, never = { { 0, 0 }, { 0, 0 } };
    timer_t timer;
    sigset_t all;
    NEED(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    action.sa_handler = fills;
    NEED(sigaction(SIGUSR2, &action, NULL) == 0 && timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    NEED(timer_settime(timer, 0, &often, NULL) == 0 && raise(SIGUSR1) == 0 && count >= ON_TOP);
    NEED(timer_settime(timer, 0, &never, NULL) == 0);
    NEED(sigaltstack(NULL, &now) == 0 && now.ss_flags == 0 && now.ss_sp == area);
    NEED(sigprocmask(SIG_SETMASK, NULL, &all) == 0);
    for (int one = 1; one < NSIG; one++) NEED(sigismember(&all, one) != 1);
}

/* ---- files ---- */

/* What is behind the target of a link stays as it was. */
static void linked(void) {
    char target[4096];
    memset(target, 'x', sizeof target);
    ssize_t len = readlink("/proc/self/exe", target, sizeof target);
    NEED(len > 0 && (size_t)len == strlen(self) && !memcmp(target, self, len));
    for (size_t at = len; at < sizeof target; at++) NEED(target[at] == 'x');
    NEED(readlink("/proc/self/exe", target, 2) == 2 && target[2] == self[2]);
    NEED(syscall(SYS_readlink, "/proc/self/exe", target, 0) == -1 && errno == EINVAL);
    /* Other names of the same link. */
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/exe", getpid(), getpid());
    NEED(readlink(path, target, sizeof target) == len && !memcmp(target, self, len));
    struct stat own, opened;
    int here = open(".", O_RDONLY), folder = open("/proc/self", O_RDONLY), file = openat(folder, "exe", O_RDONLY);
    NEED(stat(self, &own) == 0 && fstat(file, &opened) == 0 && opened.st_ino == own.st_ino);
    NEED(readlinkat(folder, "exe", target, sizeof target) == len && !memcmp(target, self, len));
    NEED(fchdir(folder) == 0 && readlink("exe", target, sizeof target) == len && !memcmp(target, self, len));
    NEED(fchdir(here) == 0 && readlink("exe", target, sizeof target) == -1);
    close(here), close(folder), close(file);
    memset(target, 'x', sizeof target);
    char longer[3000];
    memset(longer, 'a', sizeof longer);
    longer[2999] = 0;
    unlink("./long-link");
    NEED(symlink(longer, "./long-link") == 0 && readlink("./long-link", target, sizeof target) == 2999);
    NEED(target[2998] == 'a' && target[2999] == 'x');
}

/* ---- children ---- */

static int status_of(pid_t child) {
    int status = 0;
    NEED(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* The program executes itself by its link in /proc when no descriptor is free. */
static void crowded(void) {
    char *own[] = { self, "child", NULL };
    pid_t child = fork();
    if (!child) {
        while (dup(0) >= 0) {}
        NEED(errno == EMFILE);
        execv("/proc/self/exe", own);
        _exit(1);
    }
    NEED(status_of(child) == CHILD);
}

static void copy(const char *to, int mode) {
    char block[PAGE];
    int from = open(self, O_RDONLY), file = open(to, O_WRONLY | O_CREAT | O_TRUNC, mode);
    NEED(from >= 0 && file >= 0);
    for (ssize_t got; (got = read(from, block, sizeof block)) > 0;) NEED(write(file, block, got) == got);
    NEED(fchmod(file, mode) == 0 && close(file) == 0 && close(from) == 0);
}

/* Starts `path` in a child; returns the child's exit status, or 100 and the error of the start. */
static int started(const char *path, int flags) {
    char *child[] = { words[0], "child", NULL };
    pid_t made = fork();
    if (made == 0) {
        char name[64];
        if (flags != -1) {
            snprintf(name, sizeof name, path, open(self, flags));
            path = name;
        }
        execve(path, child, environ);
        _exit(100 + errno);
    }
    return status_of(made);
}

static char stack[1 << 16] __attribute__((aligned(64)));
static __thread int own = 17;

/* A child in the same memory, beside its parent: its calls do not disturb those of the parent. */
static int shares(void *argument) {
    for (int turn = 0; turn < 1000; turn++) {
        int pair[2];
        char byte;
        if (pipe(pair) != 0 || write(pair[1], "a", 1) != 1 || read(pair[0], &byte, 1) != 1) return 1;
        if (close(pair[0]) != 0 || close(pair[1]) != 0) return 1;
    }
    count += own == 17;
    return getpid() != *(pid_t *)argument ? CHILD : 1;
}

static void shared(void) {
    pid_t parent = getpid();
    char *child[] = { words[0], "child", NULL };
    int flags[] = { CLONE_VM, CLONE_VM | CLONE_FILES | CLONE_FS, CLONE_VM | CLONE_VFORK };
    for (int round = 0; round < 30; round++) {
        count = 0;
        pid_t made = clone(shares, stack + sizeof stack, flags[round % 3] | SIGCHLD, &parent);
        NEED(made > 0);
        for (int turn = 0; turn < 300; turn++) {
            char byte;
            NEED(pipe(ends) == 0 && write(ends[1], "a", 1) == 1 && read(ends[0], &byte, 1) == 1);
            NEED(close(ends[0]) == 0 && close(ends[1]) == 0);
        }
        NEED(status_of(made) == CHILD && count == 1);
        /* Threads and other children as ever. */
        pid_t other = fork();
        if (other == 0) {
            execve(self, child, environ);
            _exit(1);
        }
        NEED(status_of(other) == CHILD);
    }
}

/* A thread that shares neither descriptors nor the working directory with its maker. */
static int goes_apart(void *argument) {
    (void)argument;
    count = close(ends[0]) == 0 && chdir("/") == 0 && dup(ends[1]) == ends[0];
    return 0;
}

static void apart(void) {
    static volatile int number;
    char before[4096], after[4096];
    NEED(getcwd(before, sizeof before) && strcmp(before, "/") != 0);
    for (int round = 0; round < 30; round++) {
        NEED(pipe(ends) == 0);
        count = 0, number = 1;
        int flags = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID;
        int made = clone(goes_apart, stack + sizeof stack, flags, NULL, NULL, NULL, (int *)&number);
        /* Newer versions of musl make no such threads. */
        if (made < 0 && errno == EINVAL) return;
        NEED(made > 0);
        while (number) syscall(SYS_futex, &number, 0, 1, NULL, NULL, 0);
        char byte;
        NEED(count == 1 && write(ends[1], "a", 1) == 1 && read(ends[0], &byte, 1) == 1);
        NEED(getcwd(after, sizeof after) && !strcmp(before, after));
        NEED(close(ends[0]) == 0 && close(ends[1]) == 0);
    }
}

/* Programs are started only as the kernel would start them. */
static void replaced(void) {
    copy("./plain-file", 0644);
    NEED(started("./plain-file", -1) == 100 + EACCES);
    copy("./readless", 0111);
    NEED(started("./readless", -1) == CHILD);
    NEED(started(self, -1) == CHILD && started("/proc/self/exe", -1) == CHILD);
    NEED(started("/proc/self/../self/exe", -1) == CHILD && started("/proc/thread-self/exe", -1) == CHILD);
    NEED(started("/proc/self/fd/%d", O_RDONLY) == CHILD);
    NEED(started("/proc/self/fd/%d", O_RDONLY | O_CLOEXEC) == CHILD);
    NEED(started("/dev/fd/%d", O_RDONLY | O_CLOEXEC) == CHILD);
}

/* Programs are started behind another root. */
static void rooted(void) {
    /* A dynamic loader is not there. */
    if (getauxval(AT_BASE)) return;
    NEED(mkdir("./root", 0755) == 0 || errno == EEXIST);
    copy("./root/program", 0755);
    pid_t made = fork();
    if (made == 0) {
        if (chroot("./root") == -1 || chdir("/") == -1) _exit(errno == EPERM ? CHILD : 1);
        char *child[] = { words[0], "child", NULL };
        execve("/program", child, environ);
        _exit(100 + errno);
    }
    NEED(status_of(made) == CHILD);
}

/* A tracer sees the program itself begin. */
static void traced(void) {
    char path[64], file[4096];
    int status;
    pid_t child = fork();
    if (child == 0) {
        char *named[] = { words[0], "child", NULL };
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        execve(self, named, environ);
        _exit(100 + errno);
    }
    NEED(waitpid(child, &status, 0) == child && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
    snprintf(path, sizeof path, "/proc/%d/exe", child);
    ssize_t len = readlink(path, file, sizeof file - 1);
    NEED(len > 0);
    file[len] = 0;
    NEED(strcmp(file, self) == 0);
    NEED(ptrace(PTRACE_CONT, child, NULL, NULL) == 0 && status_of(child) == CHILD);
}

int main(int count_of_words, char **all) {
    words = all;
    signal(SIGALRM, hangs);
    alarm(LIMIT_S);
    static const struct { const char *name; void (*run)(void); } cases[] = {
        { "room", room },   { "pointers", pointers }, { "cancelled", cancelled }, { "cancelled_on_one", cancelled_on_one },
        { "small", small }, { "on_top", on_top },
        { "masked", masked }, { "crowded", crowded }, { "unwound", unwound },
        { "replaced", replaced }, { "rooted", rooted }, { "traced", traced }, { "linked", linked }, { "shared", shared },
        { "apart", apart },
    };
    if (count_of_words < 2) return 1;
    if (!strcmp(all[1], "child")) return CHILD;
    NEED(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++)
        if (!strcmp(all[1], cases[at].name)) return cases[at].run(), 0;
    return 1;
}
