/* `abi NAME`: checks of the process environment that a program with its own system calls relies on.
 * See tests/abi.rs.
 *
 * The exit status is 0, or 1 with a line on the failed check. */
#define _GNU_SOURCE
#include <alloca.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_S = 60, CHILD = 3 };

extern char **environ;
static char **words;

#define NEED(condition) need(condition, #condition, __LINE__)
static void need(int is_fine, const char *what, int line) {
    if (is_fine) return;
    fprintf(stderr, "abi: line %d: %s (%s)\n", line, what, strerror(errno));
    exit(1);
}

static void hangs(int signal) {
    (void)signal;
    static const char text[] = "abi: hangs\n";
    if (write(2, text, sizeof text - 1)) {}
    _exit(2);
}

/* ---- state at the start ---- */

/* What proc(5) tells: the program's auxiliary vector, its code and its stack. */
static void told(void) {
    unsigned long size = 0;
    /* Kernels that cannot restore processes (CONFIG_CHECKPOINT_RESTORE) show what they have set. */
    if (prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, &size, 0, 0) != 0) return;
    unsigned long vector[128] = { 0 };
    FILE *file = fopen("/proc/self/auxv", "r");
    NEED(file && fread(vector, 16, 63, file) > 0 && fclose(file) == 0);
    static const unsigned long kinds[] = { AT_PHDR, AT_PHNUM, AT_ENTRY, AT_RANDOM, AT_EXECFN };
    for (int kind = 0; kind < 5; kind++) {
        unsigned long *at = vector;
        while (at[0] != AT_NULL && at[0] != kinds[kind]) at += 2;
        NEED(at[0] == kinds[kind] && at[1] == getauxval(at[0]));
    }
    unsigned long code[2], stack;
    file = fopen("/proc/self/stat", "r");
    char name[64];
    NEED(file && fscanf(file, "%*d (%63[^)])", name) == 1 && strncmp(name, basename(words[0]), 15) == 0);
    for (int field = 3; field < 26; field++) NEED(fscanf(file, "%*s") == 0);
    NEED(fscanf(file, "%lu %lu %lu", &code[0], &code[1], &stack) == 3 && fclose(file) == 0);
    unsigned long here = (unsigned long)told;
    NEED(code[0] <= here && here < code[1]);
    NEED(stack > (unsigned long)&here && stack < (unsigned long)words);
    char start[64] = "";
    file = fopen("/proc/self/cmdline", "r");
    NEED(file && fread(start, 1, 63, file) > 0 && fclose(file) == 0 && strncmp(start, words[0], 63) == 0);
}

static void start(void) {
    char path[4096], own[4096];
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);
    NEED(len > 0);
    path[len] = 0;
    NEED(realpath(words[0], own) && strcmp(path, own) == 0);
    NEED(!getenv("SOJOURN_ABI_FILE"));
    told();
    NEED(getauxval(AT_PAGESZ) == 4096 && getauxval(AT_ENTRY) && getauxval(AT_PHDR) && getauxval(AT_RANDOM));
    /* The kernel's functions in the vDSO (vdso(7)). */
    struct timespec before, after;
    NEED(clock_gettime(CLOCK_MONOTONIC, &before) == 0 && clock_gettime(CLOCK_MONOTONIC, &after) == 0);
    NEED(after.tv_sec > before.tv_sec || (after.tv_sec == before.tv_sec && after.tv_nsec >= before.tv_nsec));
    struct sigaction pipe;
    NEED(sigaction(SIGPIPE, NULL, &pipe) == 0 && pipe.sa_handler == SIG_DFL);
    sigset_t mask;
    NEED(sigprocmask(SIG_SETMASK, NULL, &mask) == 0);
    for (int signal = 1; signal < 32; signal++) NEED(!sigismember(&mask, signal));
    volatile char *deep = alloca(4 << 20);
    deep[0] = 1;
}

/* The program break, moved by brk(2) directly and by malloc. */
static void memory(void) {
    char *first = (char *)syscall(SYS_brk, 0), *end = first + 100000;
    NEED(first && (char *)syscall(SYS_brk, end) == end);
    memset(first, 7, 100000);
    NEED((char *)syscall(SYS_brk, first) == first && (char *)syscall(SYS_brk, end) == end);
    for (char *at = (char *)(((uintptr_t)first + 4095) & -4096L); at < end; at += 4096) NEED(*at == 0);
    NEED((char *)syscall(SYS_brk, first - 4096 * 100000L) == end);
    NEED((char *)syscall(SYS_brk, first) == first);
    for (int round = 0; round < 100; round++) {
        char *some[100];
        for (int at = 0; at < 100; at++) memset(some[at] = malloc(at * 100 + 1), at, at * 100 + 1);
        for (int at = 0; at < 100; at++) { NEED(some[at][at * 100] == at); free(some[at]); }
    }
}

/* ---- threads ---- */

static __thread int local = 5;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int count;

static void *counts(void *number) {
    local += (int)(intptr_t)number;
    for (int i = 0; i < 100; i++) {
        pthread_mutex_lock(&lock);
        count++;
        pthread_mutex_unlock(&lock);
    }
    return (void *)(intptr_t)local;
}

static pthread_mutex_t robust;
static void *dies_holding(void *unused) {
    (void)unused;
    NEED(pthread_mutex_lock(&robust) == 0);
    return NULL;
}

static void threads(void) {
    enum { ROUNDS = 200, AT_ONCE = 10 };
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t made[AT_ONCE];
        for (intptr_t i = 0; i < AT_ONCE; i++) NEED(pthread_create(&made[i], NULL, counts, (void *)i) == 0);
        for (intptr_t i = 0; i < AT_ONCE; i++) {
            void *result;
            NEED(pthread_join(made[i], &result) == 0 && (intptr_t)result == 5 + i);
        }
    }
    NEED(count == ROUNDS * AT_ONCE * 100 && local == 5);
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &kind);
    pthread_t made;
    NEED(pthread_create(&made, NULL, dies_holding, NULL) == 0 && pthread_join(made, NULL) == 0);
    NEED(pthread_mutex_lock(&robust) == EOWNERDEAD);
}

static void *ends_last(void *unused) {
    (void)unused;
    struct timespec span = { 0, 20000000 };
    nanosleep(&span, NULL);
    exit(0);
}

/* The main thread ends while the process goes on. */
static void first(void) {
    pthread_t made;
    NEED(pthread_create(&made, NULL, ends_last, NULL) == 0);
    pthread_exit(NULL);
}

/* ---- children ---- */

static int ended(pid_t child) {
    int status;
    NEED(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void children(void) {
    char *child[] = { words[0], "child", NULL };
    for (int i = 0; i < 100; i++) {
        pid_t pid = fork();
        if (pid == 0) _exit(i & 63);
        NEED(ended(pid) == (i & 63));
    }
    for (int i = 0; i < 50; i++) {
        pid_t pid = vfork();
        if (pid == 0) {
            execv(i & 1 ? "/proc/self/exe" : words[0], child);
            _exit(9);
        }
        NEED(ended(pid) == CHILD);
        pid = vfork();
        if (pid == 0) _exit(i);
        NEED(ended(pid) == i);
    }
    for (int i = 0; i < 20; i++) {
        pid_t pid;
        NEED(posix_spawn(&pid, words[0], NULL, NULL, child, environ) == 0);
        NEED(ended(pid) == CHILD);
    }
    NEED(system("exit 5") == 5 << 8);
    /* /bin/true may be of another kind than this program: linked statically or dynamically. */
    NEED(system("true") == 0);
    execv(words[0], (char *[]){ words[0], "end", NULL });
    NEED(0);
}

/* ---- signals ---- */

static volatile sig_atomic_t hits;
static void hit(int signal) {
    (void)signal;
    hits++;
    getppid();
}

static timer_t timer_of(int signal) {
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal };
    timer_t timer;
    NEED(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    return timer;
}

static void arm(timer_t timer, long first_ns, long every_ns) {
    struct itimerspec when = { { 0, every_ns }, { 0, first_ns } };
    NEED(timer_settime(timer, 0, &when, NULL) == 0);
}

static void handle(int signal, void (*handler)(int), int flags) {
    struct sigaction action = { .sa_handler = handler, .sa_flags = flags }, old;
    NEED(sigaction(signal, &action, NULL) == 0 && sigaction(signal, NULL, &old) == 0);
    NEED(old.sa_handler == handler && (old.sa_flags & ~0x04000000) == flags);
}

static void *writes_later(void *fd) {
    struct timespec span = { 0, 60000000 };
    nanosleep(&span, NULL);
    NEED(write(*(int *)fd, "q", 1) == 1);
    return NULL;
}

static void signals(void) {
    int ends[2];
    char byte;
    NEED(pipe(ends) == 0);
    handle(SIGUSR1, hit, 0);
    for (int i = 0; i < 1000; i++) NEED(raise(SIGUSR1) == 0 && hits == i + 1);
    timer_t timer = timer_of(SIGUSR1);
    arm(timer, 20000000, 0);
    NEED(read(ends[0], &byte, 1) == -1 && errno == EINTR);
    handle(SIGUSR1, hit, SA_RESTART);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_t writer;
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    NEED(pthread_create(&writer, NULL, writes_later, &ends[1]) == 0);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    arm(timer, 10000000, 0);
    NEED(read(ends[0], &byte, 1) == 1 && byte == 'q');
    pthread_join(writer, NULL);
    /* Handlers on an alternate stack, in the middle of calls. */
    stack_t stack = { .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 }, old;
    NEED(sigaltstack(&stack, NULL) == 0 && sigaltstack(NULL, &old) == 0 && old.ss_sp == stack.ss_sp);
    for (int flags = 0; flags < 2; flags++) {
        handle(SIGUSR1, hit, SA_RESTART | (flags ? SA_ONSTACK : 0));
        hits = 0;
        arm(timer, 100000, 100000);
        while (hits < 2000) {
            NEED(write(ends[1], "z", 1) == 1 && read(ends[0], &byte, 1) == 1 && byte == 'z');
        }
        arm(timer, 0, 0);
    }
}

static sigjmp_buf back;
static void jumps_out(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

/* Handlers that leave the interrupted call by siglongjmp. */
static void jumps(void) {
    int ends[2];
    char byte;
    NEED(pipe(ends) == 0);
    handle(SIGUSR2, jumps_out, 0);
    timer_t timer = timer_of(SIGUSR2);
    volatile int count = 0;
    if (sigsetjmp(back, 1)) count++;
    if (count < 1000) {
        arm(timer, 500000, 0);
        read(ends[0], &byte, 1);
        NEED(0);
    }
}

/* Vector registers, which the kernel preserves over a system call. */
#ifdef __x86_64__
#define ALL(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)
#define SET(N) "vmovups 32*" #N "(%1), %%ymm" #N "\n"
#define GET(N) "vmovups %%ymm" #N ", 32*" #N "(%2)\n"
#define CHANGED "rax", "rcx", "rdx", "r11", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", \
    "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

/* What a call on descriptor -1 leaves of registers one of which has an upper half, or none. */
static void upper_halves(long number, int wide) {
    uint64_t in[16][4], out[16][4];
    for (int at = 0; at < 16; at++)
        for (int part = 0; part < 4; part++) in[at][part] = part < 2 || at == wide ? number << 32 | at << 8 | part : 0;
    __asm__ volatile(ALL(SET) "movl %0, %%eax\n syscall\n" ALL(GET) "vzeroupper"
                     : : "r"((int)number), "r"(in), "r"(out), "D"(-1L) : CHANGED);
    NEED(memcmp(in, out, sizeof in) == 0);
}

/* Upper halves that were unused stay so: SSE is slow while they are in use, even with zeroes. */
static void unused_halves(long number) {
    unsigned before, after;
    __asm__ volatile("vzeroupper\n movl $1, %%ecx\n xgetbv\n movl %%eax, %0" : "=r"(before) : : CHANGED);
    __asm__ volatile("vzeroupper\n movl %1, %%eax\n syscall\n movl $1, %%ecx\n xgetbv\n movl %%eax, %0"
                     : "=&r"(after) : "r"((int)number), "D"(-1L) : CHANGED);
    NEED(!(after & ~before & 4));
}
#endif

/* The kernel keeps them, also over calls that the library serves once a descriptor needs it. */
static void vectors(void) {
#ifdef __x86_64__
    static const long calls[] = { SYS_getpid, SYS_read, SYS_close, SYS_fcntl, SYS_dup };
    unsigned a, b, c, d;
    int can_tell = __get_cpuid_count(0xd, 1, &a, &b, &c, &d) && a & 4;
    int ends[2];
    NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    for (int round = 0; round < 1000; round++) {
        uint64_t in[4] = { round, ~round, round * 3, 9 }, first[2], last[2];
        long result, number = calls[round % 5];
        __asm__ volatile("movups (%3), %%xmm0\n movups 16(%3), %%xmm15\n movl %4, %%eax\n syscall\n"
                         "movups %%xmm0, (%1)\n movups %%xmm15, (%2)"
                         : "=&a"(result) : "r"(first), "r"(last), "r"(in), "r"((int)number), "D"(-1L)
                         : "rcx", "r11", "xmm0", "xmm15", "memory");
        NEED(result == (number == SYS_getpid ? getpid() : -EBADF));
        NEED(memcmp(first, in, 16) == 0 && memcmp(last, in + 2, 16) == 0);
        if (!__builtin_cpu_supports("avx")) continue;
        upper_halves(number, round % 17);
        if (can_tell) unused_halves(number);
    }
#endif
}

/* The arithmetic flags, which the kernel preserves as well: a compiler may use them behind a call
 * that it knows to be one (`preserves_flags` in Rust). */
static void flags(void) {
#ifdef __x86_64__
    static const uint64_t all[] = { 1 << 0, 1 << 2, 1 << 4, 1 << 6, 1 << 7, 1 << 11 };
    uint64_t mask = 0;
    for (int i = 0; i < 6; i++) mask |= all[i];
    for (int set = 0; set < 64; set++) {
        uint64_t in = 0, out;
        for (int i = 0; i < 6; i++)
            if (set >> i & 1) in |= all[i];
        long result;
        __asm__ volatile("leaq -128(%%rsp), %%rsp\n pushq %2\n popfq\n movl %3, %%eax\n syscall\n"
                         "pushfq\n popq %1\n leaq 128(%%rsp), %%rsp\n"
                         : "=&a"(result), "=&r"(out) : "r"(in), "i"(39) : "rcx", "r11", "cc", "memory");
        NEED(result == getpid() && (out & mask) == in);
    }
#endif
}

/* ---- */

/* A system call that cannot be replaced by a longer instruction: it stands between the return point
 * of a function call and a return. */
#ifdef __x86_64__
long left(void);
__asm__(".text\n.globl left\nleft:\n push %rbx\n call 1f\n syscall\n pop %rbx\n ret\n1: mov $39, %eax\n ret\n");
#else
static long left(void) { return getpid(); }
#endif

static void *leaves(void *unused) {
    (void)unused;
    for (int i = 0; i < 1000; i++) NEED(left() == getpid());
    return NULL;
}

static void trapped(void) {
    leaves(NULL);
    pthread_t made;
    NEED(pthread_create(&made, NULL, leaves, NULL) == 0 && pthread_join(made, NULL) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        leaves(NULL);
        _exit(left() == getpid() ? 7 : 8);
    }
    NEED(ended(pid) == 7);
    /* The same call with all signals blocked. */
    sigset_t all;
    sigfillset(&all);
    NEED(sigprocmask(SIG_SETMASK, &all, NULL) == 0 && left() == getpid());
}

/* Prints if the loader is mapped into this process. */
static void loaded(void) {
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    NEED(maps != NULL);
    while (fgets(line, sizeof line, maps)) found |= strstr(line, "/sojourn-abi") != NULL;
    puts(found ? "loaded" : "plain");
}

int main(int count_of_words, char **all) {
    words = all;
    signal(SIGALRM, hangs);
    alarm(LIMIT_S);
    static const struct { const char *name; void (*run)(void); } cases[] = {
        { "start", start },     { "memory", memory }, { "threads", threads }, { "first", first },   { "children", children },
        { "signals", signals }, { "jumps", jumps },   { "vectors", vectors }, { "flags", flags }, { "loaded", loaded },
        { "trapped", trapped },
    };
    if (count_of_words < 2) return 1;
    if (!strcmp(all[1], "child")) return CHILD;
    if (!strcmp(all[1], "end")) return 0;
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++)
        if (!strcmp(all[1], cases[at].name)) return cases[at].run(), 0;
    return 1;
}
