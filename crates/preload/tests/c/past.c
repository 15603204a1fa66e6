/* A program that makes its own system calls for a session that is away: in itself (main), in a
 * library that it is linked with (needed), in one that it opens when the session is away (opened),
 * and in a file's code that it maps then (mapped); beside threads that do so all the time (storm),
 * and where nothing can be rewritten: written memory must not be executed (barred), or the program
 * tests its own code (integrity). `past WHERE FILE`. */
#include "check.h"
#include "past.h"

#ifdef PART
struct past PART = PAST;
#else
#include "away.h"
#include <cpuid.h>
#include <dlfcn.h>
#include <sys/prctl.h>

#ifdef NEEDED
extern struct past needed;
#endif
static struct past here = PAST, *own = &here;
static int s, set;

/* Machine code: `mov eax, number; mov r10, rcx; syscall; ret`, at every 32nd byte. */
static void map_code(const char *path, struct past *all) {
    static const struct { int number; } calls[] = {{SYS_recvfrom}, {SYS_write}, {SYS_poll}, {SYS_epoll_wait}, {SYS_close}};
    unsigned char code[4096];
    memset(code, 0xcc, sizeof code);
    for (int i = 0; i < 5; i++) {
        unsigned char one[] = {0xb8, calls[i].number, calls[i].number >> 8, 0, 0, 0x49, 0x89, 0xca, 0x0f, 0x05, 0xc3};
        memcpy(code + 32 * i, one, sizeof one);
    }
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, code, sizeof code) == sizeof code);
    char *at = mmap(0, sizeof code, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    CHECK(at != MAP_FAILED && !close(fd) && !unlink(path));
    *all = here;
    all->write = (void *)(at + 32), all->poll = (void *)(at + 64), all->epoll_wait = (void *)(at + 96), all->close = (void *)(at + 128);
}

static int is_barred;
static int must(void) { return getenv("LD_PRELOAD") && getenv("SOJOURN_REWRITE") && !is_barred; }

/* One exchange. The bits of `how` choose which calls the C library makes. */
static void exchange(int fd, int how) {
    char b[64];
    struct epoll_event event = {0};
    struct pollfd one = {fd, POLLIN, 0};
    CHECK((how & 1 ? write(fd, "hello", 5) : own->write(fd, "hello", 5)) == 5);
    if (fd == s) {
        CHECK((how & 2 ? epoll_wait(set, &event, 1, 10000) : own->epoll_wait(set, &event, 1, 10000)) == 1);
        CHECK(event.data.u64 == 4711 && event.events == EPOLLIN);
    }
    CHECK((how & 4 ? poll(&one, 1, 10000) : own->poll(&one, 1, 10000)) == 1 && one.revents == POLLIN);
    CHECK((how & 8 ? read(fd, b, 64) : own->read(fd, b, 64)) == 5 && !memcmp(b, "hello", 5));
}

static void *small(void *unused) {
    for (int i = 0; i < 200; i++) exchange(s, i);
    return unused;
}

/* Threads that make calls while these are rewritten: without a pause, or asleep in one. */
static volatile int is_over;
static int gate[2];
static void *caller(void *unused) {
    struct pollfd none = {-1, 0, 0};
    long pid = getpid(), calls = 0;
    for (; !is_over || calls < 1000; calls++) {
        CHECK(past(SYS_getpid, 0, 0, 0, 0, 0, 0) == pid);
        CHECK(past_poll(&none, 1, 0) == 0 && past_close(999) == -EBADF);
    }
    return unused;
}
static void *sleeper(void *unused) {
    char byte;
    CHECK(past_read(gate[0], &byte, 1) == 1 && byte == 'x');
    CHECK(past_read(gate[0], &byte, 1) == 1 && byte == 'y');
    return unused;
}

static volatile int handled;
static void on_signal(int signal) {
    char b[8];
    CHECK(own->write(s, "signal", 6) == 6);
    struct pollfd one = {s, POLLIN, 0};
    CHECK(own->poll(&one, 1, 10000) == 1 && own->read(s, b, 8) == 6);
    handled++;
}

/* Upper halves of vector registers are kept, and those that were unused stay so. */
static void upper_halves(void) {
    if (!__builtin_cpu_supports("avx")) return;
    double values[8] = {1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5}, after[8];
    __asm__ volatile("vmovupd (%0), %%ymm3\n vmovupd 32(%0), %%ymm14\n mov $39, %%eax\n syscall\n .byte 0x48, 0x8d, 0x80, 0, 0, 0, 0\n"
                     "vmovupd %%ymm3, (%1)\n vmovupd %%ymm14, 32(%1)\n vzeroupper"
                     : : "r"(values), "r"(after) : "rax", "rcx", "r11", "memory", "xmm3", "xmm14");
    CHECK(!memcmp(values, after, sizeof values));
    unsigned a, b, c, d;
    if (!__get_cpuid_count(0xd, 1, &a, &b, &c, &d) || !(a & 4)) return;
    unsigned used_before, used_after;
    __asm__ volatile("vzeroupper\n mov $1, %%ecx\n xgetbv\n mov %%eax, %0\n"
                     "mov $39, %%eax\n syscall\n .byte 0x48, 0x8d, 0x80, 0, 0, 0, 0\n mov $1, %%ecx\n xgetbv\n mov %%eax, %1"
                     : "=&r"(used_before), "=&r"(used_after) : : "rax", "rcx", "rdx", "r11", "memory");
    CHECK(!(used_after & ~used_before & 4));
}

/* What flags and vector registers are worth over a call. */
static void registers(void) {
    long flags_before, flags_after, ok;
    double values[4] = {1.5, 2.5, 3.5, 4.5}, after[4];
    __asm__ volatile("movupd (%3), %%xmm3\n movupd 16(%3), %%xmm14\n stc\n pushfq\n pop %0\n mov $39, %%eax\n syscall\n .byte 0x48, 0x8d, 0x80, 0, 0, 0, 0\n pushfq\n pop %1\n"
                     "movupd %%xmm3, (%4)\n movupd %%xmm14, 16(%4)\n mov %%rax, %2"
                     : "=&r"(flags_before), "=&r"(flags_after), "=&r"(ok) : "r"(values), "r"(after) : "rax", "rcx", "r11", "memory", "cc", "xmm3", "xmm14");
    CHECK(ok == getpid() && flags_before == flags_after && !memcmp(values, after, sizeof values));
    upper_halves();
}

/* Calls in a row that are followed by the same bytes: what they jump to is as near as they are to
 * each other. */
static void in_a_row(void) {
    long first, second, third;
    __asm__ volatile("mov $39, %%eax\n syscall\n .byte 0x48, 0x8d, 0x80, 0, 0, 0, 0\n mov %%rax, %%r8\n"
                     "mov $39, %%eax\n syscall\n .byte 0x48, 0x8d, 0x80, 0, 0, 0, 0\n mov %%rax, %%r9\n"
                     "mov $39, %%eax\n syscall\n .byte 0x48, 0x8d, 0x80, 0, 0, 0, 0\n mov %%rax, %2\n mov %%r8, %0\n mov %%r9, %1"
                     : "=r"(first), "=r"(second), "=r"(third) : : "rax", "rcx", "r8", "r9", "r11", "memory", "cc");
    CHECK(first == getpid() && second == first && third == first);
}

static void serve(int fd) {
    char b[64];
    ssize_t n;
    while ((n = read(fd, b, sizeof b)) > 0) CHECK(write(fd, b, n) == n);
    exit(0);
}

int main(int argc, char **argv) {
    alarm(50);
    /* The first process becomes the peer; the program begins anew, with no child of its own. */
    if (argc == 3) {
        int pair[2];
        char number[16];
        CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
        pid_t child = fork();
        if (!child) {
            close(pair[1]);
            snprintf(number, sizeof number, "%d", pair[0]);
            execl("/proc/self/exe", argv[0], argv[1], argv[2], number, (char *)0);
            exit(9);
        }
        close(pair[0]);
        if (!fork()) serve(pair[1]);
        close(pair[1]);
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        SAY(status);
        return status != 0;
    }
    s = atoi(argv[3]);
    char where = argv[1][0];
#ifdef NEEDED
    if (where == 'n') own = &needed;
#endif
    /* The set is made past the library, before anything is rewritten. */
    set = own->any(SYS_epoll_create1, 0, 0, 0, 0, 0, 0);
    struct epoll_event event = {EPOLLIN, {.u64 = 4711}};
    CHECK(set >= 0 && !own->any(SYS_epoll_ctl, set, EPOLL_CTL_ADD, s, (long)&event, 0, 0));
    pthread_t others[4];
    int is_storm = where == 's';
    if (is_storm) {
        CHECK(!pipe(gate));
        for (int i = 0; i < 4; i++) CHECK(!pthread_create(&others[i], 0, i ? caller : sleeper, 0));
        usleep(20000);
    }
    /* PR_SET_MDWE: written memory must not be executed, so that nothing can be rewritten. */
    if (where == 'b') is_barred = 1, CHECK(!prctl(65, 1, 0, 0, 0));
#ifdef INTEGRITY
    /* By this message programs are known that compare their code with a checksum. */
    static const char *volatile message = "FIPS integrity test failed";
    is_barred = message != 0;
#endif
    int64_t start = now_ms();
    for (int i = 0; i < 500 || (must() && !is_away()); i++) {
        CHECK(now_ms() - start < 20000);
        exchange(s, i);
    }
    static struct past mapped;
    if (where == 'o') {
        void *plug = dlopen(argv[2], RTLD_NOW);
        CHECK(plug);
        own = dlsym(plug, "opened");
    } else if (where == 'm' && argv[1][2] == 'p') {
        map_code(argv[2], &mapped), own = &mapped;
    }
    for (int i = 0; i < 1000; i++) exchange(s, i);
    if (must()) CHECK(is_away());
    if (is_barred) CHECK(!is_away());
    if (is_storm) {
        is_over = 1;
        CHECK(write(gate[1], "x", 1) == 1 && past_write(gate[1], "y", 1) == 1);
        for (int i = 0; i < 4; i++) CHECK(!pthread_join(others[i], 0));
    }
    registers();
    in_a_row();
    /* Threads with little stack. */
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    CHECK(!pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN));
    CHECK(!pthread_create(&thread, &attributes, small, 0) && !pthread_join(thread, 0));
    /* Handlers of signals, which interrupt a call of the same kind, and any instruction. */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    CHECK(!sigaction(SIGALRM, &action, 0));
    struct itimerval often = {{0, 3000}, {0, 3000}}, never = {0};
    struct pollfd none = {-1, 0, 0};
    setitimer(ITIMER_REAL, &often, 0);
    while (handled < 50) own->poll(&none, 1, 1);
    setitimer(ITIMER_REAL, &never, 0);
    alarm(50);
    /* What numbers mean. */
    int other = own->any(SYS_dup, s, 0, 0, 0, 0, 0), third = own->any(SYS_dup2, s, 77, 0, 0, 0, 0);
    CHECK(third == 77);
    exchange(other, 0), exchange(77, 1);
    SAY(own->close(other)), SAY(own->close(other)), SAY(own->close(77));
    SAY(own->read(other, &other, 1)), SAY(own->any(SYS_lseek, s, 0, 0, 0, 0, 0));
    errno = 0;
    CHECK(own->write(999, "x", 1) == -EBADF && errno == 0);
    for (int i = 0; i < 100; i++) exchange(s, i);
    /* A child by the call itself. */
    long child = own->any(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
    if (!child) {
        for (int i = 0; i < 20; i++) exchange(s, 0);
        own->any(SYS_exit_group, 7, 0, 0, 0, 0, 0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    SAY(status);
    for (int i = 0; i < 100; i++) exchange(s, i);
    return 0;
}
#endif
