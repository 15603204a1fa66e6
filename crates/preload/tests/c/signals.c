/* Signal handlers: the installed action, the handler's arguments, the effect on calls. */
#include "check.h"

static volatile sig_atomic_t count, last, code, value, depth, deepest;
static void *stack_at;
static sigjmp_buf back;

static void plain(int s) { last = s, count++; }
static void full(int s, siginfo_t *i, void *c) {
    (void)c;
    last = s, code = i->si_code, value = i->si_value.sival_int, count++, stack_at = &s;
}
static void jumps(int s) { siglongjmp(back, s); }
static void nested(int s) {
    depth++;
    if (depth > deepest) deepest = depth;
    if (count++ == 0) raise(s);
    depth--;
}

static void install(int s, void *f, int flags, struct sigaction *old) {
    struct sigaction a = {.sa_flags = flags};
    if (flags & SA_SIGINFO) a.sa_sigaction = f; else a.sa_handler = f;
    sigaddset(&a.sa_mask, SIGUSR2);
    CHECK(!sigaction(s, &a, old));
}

static void *poke(void *to) {
    for (int i = 0; i < 3; i++) usleep(30000), pthread_kill(*(pthread_t *)to, SIGUSR1);
    return 0;
}

int main(void) {
    struct sigaction old;
    char b[8];
    int p[2];
    pthread_t me = pthread_self(), t;
    CHECK(!pipe(p));
    install(SIGUSR1, plain, SA_RESTART, 0);
    install(SIGUSR1, full, SA_SIGINFO | SA_NODEFER, &old);
    CHECK(old.sa_handler == plain && (old.sa_flags & (SA_RESTART | SA_SIGINFO)) == SA_RESTART);
    CHECK(sigismember(&old.sa_mask, SIGUSR2) == 1 && sigismember(&old.sa_mask, SIGUSR1) == 0);
    CHECK(!sigaction(SIGUSR1, 0, &old) && old.sa_sigaction == full && old.sa_flags & SA_SIGINFO && old.sa_flags & SA_NODEFER);
    sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 42});
    CHECK(count == 1 && last == SIGUSR1 && code == SI_QUEUE && value == 42);
    CHECK(signal(SIGUSR1, SIG_IGN) == (void *)full && signal(SIGUSR1, SIG_DFL) == SIG_IGN && signal(SIGUSR1, plain) == SIG_DFL);
    CHECK(!sigaction(SIGUSR1, 0, &old) && old.sa_handler == plain && old.sa_flags & SA_RESTART && sigismember(&old.sa_mask, SIGUSR1));
    CHECK(!(old.sa_flags & SA_SIGINFO));
    CHECK(!siginterrupt(SIGUSR1, 1) && !sigaction(SIGUSR1, 0, &old) && !(old.sa_flags & SA_RESTART) && old.sa_handler == plain);
    CHECK(signal(SIGUSR1, plain) == plain && !sigaction(SIGUSR1, 0, &old) && !(old.sa_flags & SA_RESTART));
    CHECK(!siginterrupt(SIGUSR1, 0) && !sigaction(SIGUSR1, 0, &old) && old.sa_flags & SA_RESTART);
    CHECK(sysv_signal(SIGUSR1, plain) == plain && !sigaction(SIGUSR1, 0, &old) && old.sa_flags & SA_RESETHAND);
    count = 0, raise(SIGUSR1);
    CHECK(count == 1 && !sigaction(SIGUSR1, 0, &old) && old.sa_handler == SIG_DFL);
    CHECK(sigset(SIGUSR1, plain) == SIG_DFL && sigset(SIGUSR1, SIG_HOLD) == plain && sigset(SIGUSR1, plain) == SIG_HOLD);
    SAY(sigaction(SIGKILL, &old, 0));
    SAY(sigaction(99, &old, 0));
    SAY(signal(SIGSTOP, plain) == SIG_ERR);
    SAY(signal(0, plain) == SIG_ERR);
    /* Nested handlers, and handlers that do not nest. */
    count = deepest = 0, install(SIGUSR1, nested, SA_NODEFER, 0), raise(SIGUSR1);
    SAY(deepest);
    count = deepest = 0, install(SIGUSR1, nested, 0, 0), raise(SIGUSR1);
    SAY(deepest);
    /* Calls that are interrupted, restarted, or left by a jump. */
    install(SIGUSR1, plain, 0, 0);
    CHECK(!pthread_create(&t, 0, poke, &me));
    SAY(read(p[0], b, 8));
    SAY(poll(&(struct pollfd){p[0], POLLIN, 0}, 1, 5000));
    SAY(select(0, 0, 0, 0, &(struct timeval){5, 0}));
    pthread_join(t, 0);
    install(SIGUSR1, plain, SA_RESTART, 0);
    count = 0;
    CHECK(!pthread_create(&t, 0, poke, &me));
    SAY(poll(&(struct pollfd){p[0], POLLIN, 0}, 1, 5000));
    int set = epoll_create1(0);
    SAY(epoll_wait(set, &(struct epoll_event){0}, 1, 5000));
    SAY(select(p[0] + 1, &(fd_set){{1L << p[0]}}, 0, 0, &(struct timeval){5, 0}));
    pthread_join(t, 0);
    SAY(count);
    CHECK(!pthread_create(&t, 0, poke, &me));
    install(SIGUSR1, jumps, 0, 0);
    for (volatile int i = 0; i < 3; i++)
        if (!sigsetjmp(back, 1)) read(p[0], b, 8);
    pthread_join(t, 0);
    /* After a jump out of a handler calls work as before. */
    SAY(write(p[1], "after", 5));
    SAY(read(p[0], b, 8));
    /* The signal mask of a wait applies during the wait only. */
    sigset_t none, usr1;
    sigemptyset(&none), sigemptyset(&usr1), sigaddset(&usr1, SIGUSR1);
    install(SIGUSR1, plain, 0, 0);
    sigprocmask(SIG_BLOCK, &usr1, 0);
    count = 0, raise(SIGUSR1);
    CHECK(count == 0);
    SAY(ppoll(&(struct pollfd){p[0], POLLIN, 0}, 1, 0, &none));
    SAY(count);
    raise(SIGUSR1);
    SAY(pselect(p[0] + 1, &(fd_set){{1L << p[0]}}, 0, 0, 0, &none));
    SAY(count);
    raise(SIGUSR1);
    SAY(epoll_pwait(set, &(struct epoll_event){0}, 1, 5000, &none));
    SAY(count);
    sigprocmask(SIG_UNBLOCK, &usr1, 0);
    /* A handler on an alternate stack. */
    char *own = malloc(1 << 16);
    CHECK(!sigaltstack(&(stack_t){.ss_sp = own, .ss_size = 1 << 16}, 0));
    install(SIGUSR1, full, SA_SIGINFO | SA_ONSTACK, 0);
    raise(SIGUSR1);
    CHECK((char *)stack_at > own && (char *)stack_at < own + (1 << 16));
    /* A handler for a fault. */
    install(SIGSEGV, jumps, 0, 0);
    if (!sigsetjmp(back, 1)) *(volatile int *)8 = 1; else SAY(1);
    return 0;
}
