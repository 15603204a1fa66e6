/* Small stacks, with an inaccessible page below: `small HOW BYTES [KIND]`. HOW is `thread`,
   `alternate` (the stack of the SIGUSR1 handler) or `coroutine`; BYTES is the room in addition to
   what HOW itself needs. On this stack a session is read, written, polled and selected while it
   moves out, is called home by its peer and moves again; then it is shut down and closed, and other
   calls are made. */
#include "check.h"
#include <sys/prctl.h>
#include <ucontext.h>

static int s, told[2], answers[2];
static char b[256];

static void be_peer(int fd) {
    char c[64];
    while (read(told[0], c, 1) == 1) {
        if (*c == 'h') CHECK(close(dup(fd)) == 0);
        else CHECK(recv(fd, c, 64, MSG_WAITALL) == 64 && write(fd, c, 64) == 64);
        CHECK(write(answers[1], c, 1) == 1);
    }
    _exit(0);
}

static void ask(char what) { CHECK(write(told[1], &what, 1) == 1 && read(answers[0], &what, 1) == 1); }

static int is_away(void) {
    static char text[1 << 16];
    int maps = syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY), found = 0, got, kept = 0;
    while ((got = syscall(SYS_read, maps, text + kept, sizeof text - 1 - kept)) > 0) {
        text[kept + got] = 0;
        found |= strstr(text, "memfd:sojourn-stream") != 0;
        kept = kept + got > 64 ? 64 : 0;
    }
    syscall(SYS_close, maps);
    return found;
}

static int round_;

/* Makes each call once. */
static void once(void) {
    static fd_set set;
    static struct timeval limit;
    int p[2], i = round_++;
    struct pollfd one = {s, POLLIN, 0};
    CHECK(write(s, b, 64) == 64), ask('e');
    limit.tv_sec = 1, FD_SET(s, &set);
    if (i % 4 == 1) CHECK(poll(&one, 1, 1000) == 1);
    if (i % 4 == 2) CHECK(select(s + 1, &set, 0, 0, &limit) == 1);
    if (i % 4 == 3) CHECK(ppoll(&one, 1, 0, 0) == 1);
    CHECK(recv(s, b, 64, MSG_WAITALL) == 64);
    if (i % 16 == 0) CHECK(!pipe(p) && write(p[1], b, 8) == 8 && read(p[0], b, 8) == 8 && !close(p[0]) && !close(p[1]));
}

/* Repeats the calls until the session has moved, and then for a while. */
static void all(void) {
    int must = getenv("LD_PRELOAD") != 0, since = 0;
    int64_t start = now_ms();
    for (int i = 0; since < 600; i++) {
        CHECK(now_ms() - start < 20000);
        once();
        if (since || !must || (i % 16 == 0 && is_away())) since++;
        if (since % 250 == 249) ask('h');
    }
}

static void last(void) {
    pid_t child = _Fork();
    if (child == 0) _exit(write(s, b, 0) != 0);
    CHECK(waitpid(child, 0, 0) == child);
    int copy = dup(s);
    CHECK(copy >= 0 && !close(copy) && !shutdown(s, SHUT_WR) && !close(s));
}

static void *in_thread(void *a) { return all(), last(), a; }
static void on_signal(int n) { once(); }
static void on_last(int n) { last(); }

static void *stack_of(size_t len) {
    size_t page = sysconf(_SC_PAGESIZE), whole = (len + page - 1) / page * page;
    char *at = mmap(0, page + whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED && !mprotect(at, page, PROT_NONE));
    return at + page + whole - len;
}

int main(int argc, char **argv) {
    size_t more = atoi(argv[2]);
    int pair[2];
    CHECK(!(argc > 3 ? tcp_pair(pair) : socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) && !pipe(told) && !pipe(answers));
    if (fork() == 0) {
        close(pair[0]), close(told[1]), close(answers[0]);
        be_peer(pair[1]);
    }
    s = pair[0], close(pair[1]), close(told[0]), close(answers[1]);
    if (!strcmp(argv[1], "thread")) {
        pthread_attr_t attributes;
        pthread_t thread;
        pthread_attr_init(&attributes);
        CHECK(!pthread_attr_setstacksize(&attributes, sysconf(_SC_THREAD_STACK_MIN) + more));
        CHECK(!pthread_create(&thread, &attributes, in_thread, 0) && !pthread_join(thread, 0));
    } else if (!strcmp(argv[1], "alternate")) {
        size_t len = sysconf(_SC_MINSIGSTKSZ) + more;
        CHECK(!sigaltstack(&(stack_t){.ss_sp = stack_of(len), .ss_size = len}, 0));
        sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal, .sa_flags = SA_ONSTACK}, 0);
        sigaction(SIGUSR2, &(struct sigaction){.sa_handler = on_last, .sa_flags = SA_ONSTACK}, 0);
        int must = getenv("LD_PRELOAD") != 0, since = 0;
        int64_t start = now_ms();
        /* A session that only handlers use need not move, and the first session of a process moves
           late. So the session is used outside a handler first. */
        for (int i = 0; i < 400; i++) once();
        for (int i = 0; since < 600; i++) {
            CHECK(now_ms() - start < 20000), raise(SIGUSR1);
            if (since || !must || (i % 16 == 0 && is_away())) since++;
            if (since % 250 == 249) ask('h');
        }
        raise(SIGUSR2);
    } else {
        static ucontext_t back, there;
        getcontext(&there);
        there.uc_stack.ss_sp = stack_of(more), there.uc_stack.ss_size = more, there.uc_link = &back;
        makecontext(&there, (void (*)(void))in_thread, 1, 0);
        CHECK(!swapcontext(&back, &there));
    }
    puts("done");
    return 0;
}
